/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-gather: every rank collects all KV and computes its own Q in one go; the
 * gradients of KV are scattered back.  As in Megatron and in the training of
 * Llama 3 (2024).
 *
 * With strides the KV heads come in so many parts, each on its way while the
 * one before is computed.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                               \
    P(strides, GYRE_STRUCTURAL, GYRE_INT(1, 1, 65535), \
      "parts of the KV heads, gathered one after the other")
#include <gyre/plugin.h>

#include "../form.h"

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    const gy_values *v = GY_VALUES_(values);

    if (v->strides <= p->kv_heads)
        return 0;
    return form_say(
        text, size,
        "strides = %u cannot cut %u KV heads; strides = 1 to %u would work",
        (uint32_t)v->strides, p->kv_heads, p->kv_heads);
}

static gyre_radix radix_of(const gy_values *v, const gyre_problem *p,
                           uint32_t pass)
{
    gyre_radix radix = form_one_ring(p);

    (void)pass;
    radix.kv_gather = form_digit(p->ranks, 1);
    radix.inner = form_digit(1, 1);
    radix.strides = (uint32_t)v->strides;
    return radix;
}

FORM_SCHEDULE(allgather, "allgather", "gather all KV, compute at once")
