/* SPDX-License-Identifier: Apache-2.0 */
/* What computes beside a device, and at which rates, in words. */
#include "config.h"

#include "store/compute.h"

#include <math.h>
#include <string.h>

bool gyre_rate_parse(const char *text, size_t length, double *rate)
{
    static const struct {
        char letter;
        double times;
    } unit[] = {{'k', 1e3}, {'M', 1e6}, {'G', 1e9}};
    char number[32];
    double value, times = 1;

    if (length == 0 || length >= sizeof(number))
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    for (size_t i = 0; i < sizeof(unit) / sizeof(unit[0]); i++)
        if (number[length - 1] == unit[i].letter) {
            times = unit[i].times;
            number[length - 1] = '\0';
        }
    /* Digits and one point, and not "inf", "0x1" or " 1". */
    if (strspn(number, "0123456789.") != strlen(number))
        return false;
    if (!gyre_number_parse(number, &value) || !(value > 0) ||
        !isfinite(value * times))
        return false;
    *rate = value * times;
    return true;
}

static gyre_status bad_rates(const char *text, gyre_error *error)
{
    return gyre_fail(error, GYRE_INVALID,
                     "compute \"%.100s\": emulated:read=RATE,write=RATE is "
                     "needed, one of the two may be left out; a RATE is in "
                     "bytes per second, as 65M",
                     text);
}

static gyre_status parse_rates(const char *text, gyre_compute *out,
                               gyre_error *error)
{
    static const char read[] = "read=", write[] = "write=";
    const char *at = text + strlen("emulated:");

    while (*at != '\0') {
        size_t length = strcspn(at, ",");
        double *rate;

        if (strncmp(at, read, strlen(read)) == 0) {
            rate = &out->read_rate;
            at += strlen(read);
            length -= strlen(read);
        } else if (strncmp(at, write, strlen(write)) == 0) {
            rate = &out->write_rate;
            at += strlen(write);
            length -= strlen(write);
        } else {
            return bad_rates(text, error);
        }
        if (*rate != 0 || !gyre_rate_parse(at, length, rate))
            return bad_rates(text, error);
        at += length;
        if (*at == ',' && *++at == '\0')
            return bad_rates(text, error);
    }
    if (out->read_rate == 0 && out->write_rate == 0)
        return bad_rates(text, error);
    return GYRE_OK;
}

/* "opencl", "opencl:3". */
static bool is_module(const char *text, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(text, name, n) != 0)
        return false;
    if (text[n] == '\0')
        return true;
    return text[n] == ':' && text[n + 1] != '\0' &&
           strspn(text + n + 1, "0123456789") == strlen(text + n + 1);
}

gyre_status gyre_compute_parse(const char *text, gyre_compute *out,
                               gyre_error *error)
{
    gyre_compute compute = {"cpu", 0, 0};

    if (strncmp(text, "emulated", strlen("emulated")) == 0) {
        gyre_status status = text[strlen("emulated")] == ':'
                                 ? parse_rates(text, &compute, error)
                                 : bad_rates(text, error);

        if (status != GYRE_OK)
            return status;
    } else if (strcmp(text, "cpu") == 0 || is_module(text, "opencl") ||
               is_module(text, "cuda")) {
        compute.device = text;
    } else {
        return gyre_fail(error, GYRE_INVALID,
                         "compute \"%.100s\" is unknown: cpu, opencl[:N], "
                         "cuda[:N] and emulated:read=RATE,write=RATE are "
                         "known",
                         text);
    }
    *out = compute;
    return GYRE_OK;
}

gyre_status gyre_compute_check(const gyre_store_options *options,
                               gyre_error *error)
{
    gyre_compute ignored;

    if (options->compute_count > GYRE_MAX_DEVICES ||
        (options->compute_count > 0 && options->compute == NULL))
        return gyre_fail(error, GYRE_INVALID,
                         "options.compute_count is %zu: 0, 1, or one for each "
                         "of at most %d devices, with their names in "
                         "options.compute",
                         options->compute_count, GYRE_MAX_DEVICES);
    for (size_t i = 0; i < options->compute_count; i++) {
        gyre_status status;

        if (options->compute[i] == NULL)
            return gyre_fail(error, GYRE_INVALID,
                             "options.compute[%zu] is NULL: name a device, as "
                             "cpu",
                             i);
        status = gyre_compute_parse(options->compute[i], &ignored, error);
        if (status != GYRE_OK)
            return status;
    }
    if (!(options->link_rate >= 0) || !isfinite(options->link_rate))
        return gyre_fail(error, GYRE_RANGE,
                         "options.link_rate is %g bytes per second; it must "
                         "be above 0, or 0 for a link as it is",
                         options->link_rate);
    if (options->placement != GYRE_NEAR && options->placement != GYRE_HOST)
        return gyre_fail(error, GYRE_INVALID,
                         "options.placement is %d; GYRE_NEAR (0) and "
                         "GYRE_HOST (1) are known",
                         (int)options->placement);
    return GYRE_OK;
}

gyre_status gyre_compute_take(gyre_store *store,
                              const gyre_store_options *options,
                              gyre_error *error)
{
    size_t count = options != NULL ? options->compute_count : 0;

    if (count > 1 && count != store->layout.devices)
        return gyre_fail(error, GYRE_INVALID,
                         "options.compute names %zu devices and the store has "
                         "%u: give one name for all, or one for each",
                         count, store->layout.devices);
    for (uint32_t d = 0; count > 0 && d < store->layout.devices; d++) {
        gyre_place *place = &store->places[d];

        place->compute =
            gyre_copy_text(store->context, options->compute[count > 1 ? d : 0]);
        if (place->compute == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory for devices");
    }
    return GYRE_OK;
}
