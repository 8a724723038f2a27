/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of `gyre bench attention --schedules` found, put together. */
#include "config.h"

#include "bench_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 1000 };

static double number(const json_t *of, const char *name)
{
    return json_number_value(json_object_get(of, name));
}

static const json_t *pass_of(const json_t *rank, size_t step, size_t pass)
{
    return json_array_get(json_array_get(rank, step), pass);
}

/* ---- one step ---------------------------------------------------------- */

/* A step is as long as its slowest rank's. */
static double step_seconds(const attention_options *opt, json_t *const *ranks,
                           size_t step)
{
    double most = 0;

    for (size_t r = 0; r < opt->ranks; r++) {
        double sum = number(pass_of(ranks[r], step, 0), "seconds") +
                     number(pass_of(ranks[r], step, 1), "seconds");
        most = sum > most ? sum : most;
    }
    return most;
}

static size_t median_step(const attention_options *opt, json_t *const *ranks)
{
    double times[MAX_STEPS];
    size_t order[MAX_STEPS], n = (size_t)opt->steps;

    for (size_t i = 0; i < n; i++) {
        size_t at = i;

        times[i] = step_seconds(opt, ranks, i);
        for (; at > 0 && times[order[at - 1]] > times[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order[(n - 1) / 2];
}

/* Exposed: time of a pass in which a rank does not compute. */
static json_t *merge_pass(const attention_options *opt, json_t *const *ranks,
                          size_t step, size_t pass,
                          const bench_attention_model *model, bool *same)
{
    double seconds = 0, compute = 0, communication = 0, exposed = 0;
    json_t *by_rank = json_array();
    json_int_t sent = 0, far = 0;
    json_t *out;

    for (size_t r = 0; r < opt->ranks; r++) {
        const json_t *p = pass_of(ranks[r], step, pass);
        double took = number(p, "seconds"), busy = number(p, "compute");

        seconds = took > seconds ? took : seconds;
        compute += busy;
        communication += number(p, "communication");
        exposed += took > busy ? took - busy : 0;
        sent += json_integer_value(json_object_get(p, "sent"));
        far += json_integer_value(json_object_get(p, "far"));
        *same = *same && number(p, "sent") == number(p, "planned_sent") &&
                number(p, "received") == number(p, "planned_received");
        json_array_append_new(by_rank, json_deep_copy(p));
    }
    *same = *same && (double)far == model->far[pass];
    double n = (double)opt->ranks;
    out = json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "seconds",
                    seconds, "model_seconds", model->seconds[pass],
                    "compute_seconds", compute / n, "communication_seconds",
                    communication / n, "exposed_seconds", exposed / n,
                    "sent_bytes", sent, "far_bytes", far, "ranks", by_rank);
    json_object_set_new(
        out, "exposed_share",
        json_real(communication > 0 ? exposed / communication : 0));
    return out;
}

json_t *bench_attention_merge(const attention_options *opt, const char *name,
                              json_t *const *ranks,
                              const bench_attention_model *model)
{
    bool same = true;

    for (size_t r = 0; r < opt->ranks; r++)
        if (json_array_size(ranks[r]) != opt->steps)
            return NULL;
    size_t step = median_step(opt, ranks);
    json_t *forward = merge_pass(opt, ranks, step, 0, model, &same);
    json_t *backward = merge_pass(opt, ranks, step, 1, model, &same);
    return json_pack("{s:s, s:f, s:f, s:b, s:o, s:o}", "schedule", name,
                     "seconds", step_seconds(opt, ranks, step), "model_seconds",
                     model->seconds[0] + model->seconds[1], "bytes_as_planned",
                     same, "forward", forward, "backward", backward);
}

/* ---- table ------------------------------------------------------------- */

static void print_pass(const json_t *p)
{
    printf("  %6.3f %6.3f %3.0f%%", number(p, "seconds"),
           number(p, "model_seconds"), number(p, "exposed_share") * 100);
}

void bench_attention_table(const attention_options *opt, const json_t *report)
{
    const json_t *list = json_object_get(report, "schedules");
    const char *bytes = opt->slots > 1 ? "far_bytes" : "sent_bytes";
    bool same = true;
    size_t i;
    const json_t *s;

    printf("%llu ranks, %llu to a node, links of %llu Mbit/s; in place of "
           "blocks, sleeps\nas at %.4g GFLOP/s\n\n",
           (unsigned long long)opt->ranks, (unsigned long long)opt->slots,
           (unsigned long long)opt->rate, number(report, "gflops"));
    printf("             ---- forward -----  ---- backward ----  --- step ----"
           "  %8s\n",
           opt->slots > 1 ? "far" : "sent");
    printf("schedule     second  model  exp  second  model  exp  second  model"
           "    a rank\n");
    json_array_foreach(list, i, s)
    {
        const json_t *f = json_object_get(s, "forward");
        const json_t *b = json_object_get(s, "backward");
        char text[16];

        const char *name = json_string_value(json_object_get(s, "schedule"));

        printf("%-11.*s", (int)strcspn(name, ":"), name);
        print_pass(f);
        print_pass(b);
        printf("  %6.3f %6.3f %8s\n", number(s, "seconds"),
               number(s, "model_seconds"),
               cli_bytes((number(f, bytes) + number(b, bytes)) /
                             (double)opt->ranks,
                         text));
        same = same && json_is_true(json_object_get(s, "bytes_as_planned"));
    }
    json_array_foreach(json_object_get(report, "left_out"), i, s) printf(
        "%s: left out: %s\n", json_string_value(json_object_get(s, "schedule")),
        json_string_value(json_object_get(s, "why")));
    printf("\n");
    json_array_foreach(list, i, s)
    {
        const char *name = json_string_value(json_object_get(s, "schedule"));

        if (strchr(name, ':') != NULL)
            printf("%s\n", name);
    }
    printf("exp: time in which ranks wait, of the time with transfers on "
           "their way\n%s\n",
           same ? "bytes are those of the plans on every rank"
                : "WRONG: a rank moved other bytes than its plan says");
}
