/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of what is declared before a store is made. */
#ifndef GYRE_TESTS_UNIT_STORE_PLANNED_H
#define GYRE_TESTS_UNIT_STORE_PLANNED_H

#include "fixture.h"

#include <dirent.h>

typedef struct world {
    fixture f;
    model m;
} world;

static inline int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    fixture_begin(&w->f);
    *state = w;
    return 0;
}

static inline int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    model_free(&w->m);
    free(w);
    return 0;
}

static inline gyre_store_plan plan_of(world *w, const gyre_store_spec *spec,
                                      const gyre_store_options *options)
{
    gyre_store_plan plan = {.size = sizeof(plan)};

    good(&w->f,
         gyre_store_make_plan(w->f.context, spec, options, &plan, &w->f.error));
    assert_int_equal(plan.total_bytes,
                     plan.buffer_bytes + plan.gradient_bytes + plan.leaf_bytes +
                         plan.table_bytes + plan.other_bytes +
                         plan.residual_bytes + plan.payload_bytes);
    return plan;
}

/* In a folder; none without one. */
static inline size_t entries(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    size_t n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return n;
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
