/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closed forms of the mixed radix: bytes by phase and memory of one rank, and
 * the grid.  Written from the description in gyre/plugin.h, not from the
 * emitter, so that the two can be held against each other.
 *
 *     form_rows.h      what a rank holds: tokens, heads, bytes of a token
 *     form_bytes.h     form_bytes(problem, radix, pass, rank, out)
 *     form_memory.h    form_memory(problem, radix, pass, rank)
 *     form.h           the schedule of a radix, and helpers of `check`
 *
 * Sums run over the tokens that each rank really has: uneven lengths and uneven
 * heads come out to the byte.
 */
#ifndef GYRE_PLUGINS_SCHEDULES_FORM_H
#define GYRE_PLUGINS_SCHEDULES_FORM_H

#include "form_bytes.h"
#include "form_memory.h"
#include <stdarg.h>
#include <stdio.h>

/* ---- a schedule that is a radix --------------------------------------- */

/*
 * Needs `static gyre_radix radix_of(const gy_values *, const gyre_problem *,
 * uint32_t pass)` and `static int check(const double *, const gyre_problem *,
 * char *, size_t)`.
 */
#define FORM_SCHEDULE(id, name, summary)                                       \
    static void form_grid_(const double *values, const gyre_problem *p,        \
                           uint32_t rank, gyre_grid *out)                      \
    {                                                                          \
        gyre_radix radix = radix_of(GY_VALUES_(values), p, GYRE_PASS_FORWARD); \
                                                                               \
        form_grid(p, &radix, rank, out);                                       \
    }                                                                          \
    static void form_emit_(const double *values, uint32_t pass, uint32_t rank, \
                           const gyre_plan_host *host, gyre_builder *builder)  \
    {                                                                          \
        gyre_radix radix =                                                     \
            radix_of(GY_VALUES_(values), host->problem(builder), pass);        \
                                                                               \
        (void)rank;                                                            \
        host->radix(builder, &radix);                                          \
    }                                                                          \
    static uint32_t form_bytes_(const double *values, const gyre_problem *p,   \
                                uint32_t pass, uint32_t rank,                  \
                                gyre_phase_bytes *out)                         \
    {                                                                          \
        gyre_radix radix = radix_of(GY_VALUES_(values), p, pass);              \
                                                                               \
        return form_bytes(p, &radix, pass, rank, out);                         \
    }                                                                          \
    static uint64_t form_memory_(const double *values, const gyre_problem *p,  \
                                 uint32_t pass, uint32_t rank)                 \
    {                                                                          \
        gyre_radix radix = radix_of(GY_VALUES_(values), p, pass);              \
                                                                               \
        return form_memory(p, &radix, pass, rank);                             \
    }                                                                          \
    static const gyre_schedule form_schedule_ = {                              \
        sizeof(gyre_schedule), check,       form_grid_, form_emit_,            \
        form_bytes_,           form_memory_};                                  \
    GYRE_SCHEDULE(id, name, "1.0.0", summary, "Apache-2.0",                    \
                  GYRE_CLAIM_DETERMINISTIC, &form_schedule_)                   \
    GYRE_MODULE(id, &gyre_plugin_##id)

/* ---- saying what is wrong --------------------------------------------- */

/* A sentence of check; returns 1. */
__attribute__((format(printf, 3, 4), unused)) static int
form_say(char *text, size_t size, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return 1;
}

/* "1, 2 or 4": the numbers up to `most` whose power (1 or 2) divides n. */
__attribute__((unused)) static const char *
form_divisors(uint32_t n, uint32_t most, int power, char list[160])
{
    size_t at = 0, last = 0;

    list[0] = '\0';
    for (uint64_t d = 1; d <= n && d <= most && at < 120; d++) {
        if (n % (power == 2 ? d * d : d) != 0)
            continue;
        last = at;
        at += (size_t)snprintf(list + at, 160 - at, "%s%llu",
                               at > 0 ? ", " : "", (unsigned long long)d);
    }
    if (last > 0) {
        char word[24];

        snprintf(word, sizeof(word), "%s", list + last + 2);
        snprintf(list + last, 160 - last, " or %s", word);
    }
    return list;
}

/* The largest divisor of n up to `most`. */
FORM_ uint32_t form_divisor(uint32_t n, uint32_t most)
{
    while (most > 1 && n % most != 0)
        most--;
    return most > 0 ? most : 1;
}

/* "kv|q|burst" of what rings pass on. */
FORM_ int form_moves_q(uint32_t travels, uint32_t pass)
{
    return travels == 1 || (travels == 2 && pass == GYRE_PASS_BACKWARD);
}

FORM_ gyre_radix_digit form_digit(uint32_t count, uint32_t stride)
{
    gyre_radix_digit digit = {count, count > 1 ? stride : 1};

    return digit;
}

/* One ring of all ranks; the others change what differs. */
FORM_ gyre_radix form_one_ring(const gyre_problem *p)
{
    gyre_radix_digit none = {1, 1};
    gyre_radix radix = {sizeof(radix), none,          none, none,
                        none,          {p->ranks, 1}, 0,    1};

    return radix;
}

#endif
