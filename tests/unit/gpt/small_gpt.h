/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the example gpt share: a small model and a step of it. */
#ifndef GYRE_TESTS_UNIT_GPT_SMALL_GPT_H
#define GYRE_TESTS_UNIT_GPT_SMALL_GPT_H

#include "gpt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 5, LENGTH = 37 };

/* Odd on purpose: no row block, query block or tile is whole. */
static const gpt_config odd = {.layers = 2,
                               .heads = 3,
                               .width = 48,
                               .context = 40,
                               .threads = 2,
                               .seed = 11};

static inline gpt *make(gpt_config config)
{
    char reason[200] = "";
    gpt *g = gpt_create(&config, reason, sizeof reason);

    if (!g)
        fail_msg("%s", reason);
    return g;
}

static inline void fill(int32_t *tokens, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(seed >> 24);
    }
}

static inline double train_step(gpt *g, float scale)
{
    int32_t tokens[2 * BATCH * LENGTH];

    fill(tokens, 2 * BATCH * LENGTH, 3);
    return gpt_forward_backward(g, tokens, tokens + BATCH * LENGTH, BATCH,
                                LENGTH, scale);
}

static inline void expect_same_gradients(const gpt *a, const gpt *b)
{
    for (size_t i = 0; i < gpt_parameter_count(a); i++)
        assert_memory_equal(gpt_parameter_at(a, i)->grad,
                            gpt_parameter_at(b, i)->grad,
                            gpt_parameter_at(a, i)->n * sizeof(float));
}

/* valgrind looks at the memory only: it is slow, and shows this process, but
 * not those it starts, a processor for which the BLAS has other kernels. */
static inline bool in_valgrind(void)
{
    return getenv("GYRE_VALGRIND") != NULL;
}

#endif
