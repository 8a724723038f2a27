/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One context for all tests of a program, and nothing of the library left when
 * they end:
 *
 *     return in_context(tests);
 */
#ifndef GYRE_TESTS_UNIT_ATTENTION_IN_CONTEXT_H
#define GYRE_TESTS_UNIT_ATTENTION_IN_CONTEXT_H

#include "../unit.h"

static gyre_context *context;
static unit_memory context_memory;

static inline int in_context_begin(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    /* Counting takes a third more time there, and its lock hides races. */
    return gyre_context_create(NULL, &context, NULL) != GYRE_OK;
#else
    context = unit_context(&context_memory);
    return 0;
#endif
}

/* cmocka returns what tests say, not what the end of a group says. */
static inline int in_context_end(int failed)
{
    gyre_context_destroy(context);
    return failed || context_memory.blocks != 0 || context_memory.bytes != 0 ||
           context_memory.wrong != 0;
}

#define in_context(tests) \
    in_context_end(cmocka_run_group_tests(tests, in_context_begin, NULL))

#endif
