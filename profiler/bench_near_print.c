/* SPDX-License-Identifier: Apache-2.0 */
/* Table, JSON and plot of `gyre bench near`. */
#include "config.h"

#include "bench_near.h"
#include "svg.h"

#include <string.h>

static const double MB = 1e6;

const near_case near_cases[NEAR_CASES] = {
    {"host", "baseline", NEAR_HOST, 0, 0},
    {"near", "update offload", NEAR_UPDATE, 1, 0},
    {"overlap", "+ overlap", NEAR_OVERLAP, 0, 0},
    {"compression", "+ compression", NEAR_COMPRESSION, 0, 0},
    {"committed-1", "  residual, n = 1", NEAR_COMPRESSION, 0, 1},
    {"committed-10", "  residual, n = 10", NEAR_COMPRESSION, 0, 10},
};

/* The share of the closed form's speed that was reached; that of the speed-up
 * where the baseline ran too. */
static double reached(const near_result *r)
{
    return r->speedup > 0 ? r->speedup / r->model_speedup
                          : r->model_seconds / r->seconds;
}

static bool equal_digests(const near_report *report, bool compressed)
{
    const char *first = NULL;

    for (size_t i = 0; i < report->count; i++) {
        const near_result *r = &report->results[i];

        /* committed-10 takes more steps */
        if ((r->of->scheme == NEAR_COMPRESSION) != compressed ||
            r->of->commit_every > 1)
            continue;
        if (first != NULL && strcmp(first, r->digest) != 0)
            return false;
        first = r->digest;
    }
    return true;
}

static bool equal_bytes(const near_report *report)
{
    bool equal = true;

    for (size_t i = 0; i < report->count; i++)
        equal &= report->results[i].equal;
    return equal;
}

static const near_result *worst(const near_report *report)
{
    const near_result *least = NULL;

    for (size_t i = 0; i < report->count; i++)
        if (least == NULL || reached(&report->results[i]) < reached(least))
            least = &report->results[i];
    return least;
}

/* ---- JSON ------------------------------------------------------------- */

static json_t *speed(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static void put(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_real(value));
}

static json_t *result_json(const near_result *r)
{
    json_t *o =
        json_pack("{s:i, s:s, s:I}", "devices", (int)r->devices, "scheme",
                  r->of->name, "chunk_elements", (json_int_t)r->chunk_elements);

    put(o, "seconds", r->seconds);
    put(o, "seconds_least", r->least);
    put(o, "seconds_most", r->most);
    put(o, "gradient_seconds", r->gradient_seconds);
    put(o, "update_seconds", r->update_seconds);
    put(o, "model_seconds", r->model_seconds);
    put(o, "model_update_seconds", r->model_update_seconds);
    json_object_set_new(o, "speedup", speed(r->speedup));
    json_object_set_new(o, "model_speedup", speed(r->model_speedup));
    json_object_set_new(o, "update_speedup", speed(r->update_speedup));
    json_object_set_new(o, "model_update_speedup",
                        speed(r->model_update_speedup));
    put(o, "of_model", reached(r));
    put(o, "host_bytes_per_param", r->bytes.host);
    put(o, "host_down_bytes_per_param", r->down);
    put(o, "host_up_bytes_per_param", r->up);
    put(o, "host_bytes_formula", r->formula.host);
    put(o, "device_read_bytes_per_param", r->bytes.device_read);
    put(o, "device_read_bytes_formula", r->formula.device_read);
    put(o, "device_write_bytes_per_param", r->bytes.device_write);
    put(o, "device_write_bytes_formula", r->formula.device_write);
    put(o, "residual_bytes_per_param", r->residual);
    put(o, "residual_bytes_formula", r->residual_formula);
    json_object_set_new(o, "equal", json_boolean(r->equal));
    put(o, "frame_bytes_per_param", r->frames);
    put(o, "padding_read_bytes_per_param", r->padding_read);
    put(o, "padding_write_bytes_per_param", r->padding_write);
    put(o, "commit_write_bytes_per_param", r->commit_write);
    json_object_set_new(o, "digest", json_string(r->digest));
    return o;
}

json_t *near_json(const near_report *report)
{
    const near_options *o = report->options;
    json_t *list = json_array();
    json_t *root =
        json_pack("{s:s, s:I, s:I}", "optimizer", o->optimizer, "elements",
                  (json_int_t)o->elements, "steps", (json_int_t)o->steps);

    json_object_set_new(root, "compressor", json_string(o->compressor));
    put(root, "ratio", o->ratio);
    json_object_set_new(root, "residual",
                        json_string(o->residual_off ? "off" : "volatile"));
    json_object_set_new(root, "return_dtype",
                        json_string(gyre_dtype_name(o->returned)));
    json_object_set_new(root, "device_throttle",
                        json_string(o->kernel ? "kernel" : "own"));
    json_object_set_new(root, "link_throttle", json_string("own"));
    put(root, "link_bytes_per_second", o->link);
    put(root, "read_bytes_per_second", o->read);
    put(root, "write_bytes_per_second", o->write);
    put(root, "disk_bytes_per_second", report->disk);
    put(root, "forward_seconds", report->forward);
    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(list, result_json(&report->results[i]));
    if (report->count > 0)
        put(root, "worst_of_model", reached(worst(report)));
    json_object_set_new(root, "bytes_equal", json_boolean(equal_bytes(report)));
    json_object_set_new(root, "digests_equal",
                        json_boolean(equal_digests(report, false) &&
                                     equal_digests(report, true)));
    json_object_set_new(root, "results", list);
    return root;
}

/* ---- table ------------------------------------------------------------ */

void near_print_head(const near_report *report)
{
    const near_options *o = report->options;

    printf("%s, %llu parameters in f32, %s back; %s keeps %g %% of elements, "
           "residual %s\n",
           o->optimizer, (unsigned long long)o->elements,
           gyre_dtype_name(o->returned), o->compressor, o->ratio * 100,
           o->residual_off ? "off" : "volatile");
    printf("link %g MB/s (ours), devices %g MB/s read, %g MB/s write (%s); "
           "the disk does %.0f MB/s\n",
           o->link / MB, o->read / MB, o->write / MB,
           o->kernel ? "the kernel's throttle on loop devices" : "ours",
           report->disk / MB);
    printf("forward and backward sleep %.3f s; %llu steps each; speed-ups over "
           "the baseline on as many devices\n\n",
           report->forward, (unsigned long long)o->steps);
    printf("%21s%19s%19s%7s%15s%15s%15s\n", "", "whole step", "update alone",
           "of", "host link", "device reads", "device writes");
    printf("%-21s%7s%6s%6s%7s%6s%6s%7s%15s%15s%15s\n", " N scheme", "s",
           "times", "model", "s", "times", "model", "model", "B (formula)",
           "B (formula)", "B (formula)");
}

static void print_times(double seconds, double times, double model)
{
    printf(" %6.3f", seconds);
    if (times > 0)
        printf(" %5.2f %5.2f", times, model);
    else
        printf("     -     -");
}

void near_print_row(const near_result *r)
{
    printf("%2u %-18s", r->devices, r->of->label);
    print_times(r->seconds, r->speedup, r->model_speedup);
    print_times(r->update_seconds, r->update_speedup, r->model_update_speedup);
    printf("  %.3f  %5.2f (%5.2f)  %5.2f (%5.2f)  %5.2f (%5.2f)\n", reached(r),
           r->bytes.host, r->formula.host, r->bytes.device_read,
           r->formula.device_read, r->bytes.device_write,
           r->formula.device_write);
    fflush(stdout);
}

/* The bytes beside the formulas, of the last number of devices. */
static void print_beside(const near_report *report)
{
    unsigned devices = report->results[report->count - 1].devices;

    printf("\nbeside the formulas, bytes per parameter with %u devices:\n"
           "   scheme             residual  frames  padding r  padding w  "
           "commit w\n",
           devices);
    for (size_t i = 0; i < report->count; i++) {
        const near_result *r = &report->results[i];

        if (r->devices == devices)
            printf("   %-18s %8.3f %7.4f %10.4f %10.4f %9.4f\n", r->of->label,
                   r->residual, r->frames, r->padding_read, r->padding_write,
                   r->commit_write);
    }
}

void near_print_foot(const near_report *report)
{
    const near_result *least;

    if (report->count == 0)
        return;
    least = worst(report);
    print_beside(report);
    printf("\nleast share of a closed form: %.3f (%s, %u devices)\n",
           reached(least), least->of->name, least->devices);
    printf("bytes moved and bytes of the formulas: %s\n",
           equal_bytes(report) ? "all equal" : "NOT EQUAL");
    printf("digests after the same steps: %s without compression, %s with\n",
           equal_digests(report, false) ? "all equal" : "NOT EQUAL",
           equal_digests(report, true) ? "all equal" : "NOT EQUAL");
}

/* ---- plot ------------------------------------------------------------- */

/* Four hues that differ in lightness too. */
static const char *const colours[NEAR_CASES] = {
    "#6b6b6b", "#2a6fbb", "#c8641b", "#1b8a5a", "#1b8a5a", "#1b8a5a"};

typedef enum view { SECONDS, WHOLE, UPDATE } view;

typedef struct curves {
    svg_line lines[2 * NEAR_CASES];
    double x[NEAR_CASES][NEAR_MAX_DEVICES];
    double y[2 * NEAR_CASES][NEAR_MAX_DEVICES];
    size_t count;
} curves;

/* Residuals that are committed have rows in the table; in the plot they would
 * lie on the curve of compression. */
static void collect(const near_report *report, view of, curves *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t c = 0; c < NEAR_CASES && near_cases[c].commit_every == 0; c++) {
        size_t seen = out->count++, model = out->count++, n = 0;

        for (size_t i = 0; i < report->count; i++) {
            const near_result *r = &report->results[i];

            if (r->of != &near_cases[c] || (of != SECONDS && !(r->speedup > 0)))
                continue;
            out->x[c][n] = r->devices;
            out->y[seen][n] = of == SECONDS ? r->seconds
                              : of == WHOLE ? r->speedup
                                            : r->update_speedup;
            out->y[model][n++] = of == SECONDS ? r->model_seconds
                                 : of == WHOLE ? r->model_speedup
                                               : r->model_update_speedup;
        }
        out->lines[seen] =
            (svg_line){near_cases[c].label, colours[c],  false, true, n,
                       out->x[c],           out->y[seen]};
        out->lines[model] = (svg_line){NULL, colours[c], true,         false,
                                       n,    out->x[c],  out->y[model]};
    }
}

int near_plot(FILE *file, const near_report *report)
{
    static curves views[3];
    static const char *const titles[] = {"Whole step", "Whole step",
                                         "Gradients and update alone"};
    const near_options *o = report->options;
    const svg_line key[] = {
        {"measured", "#333", false, true, 0, NULL, NULL},
        {"closed form", "#333", true, false, 0, NULL, NULL}};
    char note[256];
    svg_panel panels[3];
    svg_plot plot = {.title = "Updating beside the storage, against state that "
                              "travels to the host",
                     .note = note,
                     .key = key,
                     .key_count = 2,
                     .panels = panels,
                     .panel_count = 3};

    for (int k = SECONDS; k <= UPDATE; k++) {
        collect(report, (view)k, &views[k]);
        panels[k] = (svg_panel){titles[k], "devices",
                                k == SECONDS ? "seconds"
                                             : "times as fast as the baseline",
                                views[k].count, views[k].lines};
    }
    snprintf(note, sizeof(note),
             "%s, %.4g million parameters; link %g MB/s, each device %g MB/s "
             "read and %g MB/s write%s; %s keeps %g %% of elements",
             o->optimizer, (double)o->elements / 1e6, o->link / MB,
             o->read / MB, o->write / MB,
             o->kernel ? " (throttled by the kernel)" : "", o->compressor,
             o->ratio * 100);
    return svg_write(file, &plot);
}
