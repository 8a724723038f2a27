/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the store share: a folder that goes away, a model with
 * pseudo-random values, rounds in one line, and the textbook in memory.
 *
 *     fixture f;
 *     model m = {0};
 *     model_mixed(&m);
 *     fixture_begin(&f);
 *     fixture_create(&f, &m, NULL, NULL);          one device, AdamW
 *     fixture_round(&f, &m, 1, NULL, NULL);        gradients of seed 1
 *     ...
 *     fixture_end(&f);                             nothing leaks
 *     model_free(&m);
 */
#ifndef GYRE_TESTS_UNIT_STORE_FIXTURE_H
#define GYRE_TESTS_UNIT_STORE_FIXTURE_H

#include "../unit.h"

#include <gyre/store.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { MODEL_MOST = 32, DEVICES_MOST = 16, SLOTS_MOST = 3, GROUPS_MOST = 4 };

/* ---- a model ---------------------------------------------------------- */

typedef struct model {
    size_t count;
    gyre_tensor tensors[MODEL_MOST];
    uint64_t elements[MODEL_MOST];
    char names[MODEL_MOST][64];
} model;

/* One more tensor of that many elements, with initial values. */
void model_add(model *m, const char *name, uint64_t elements, uint32_t group,
               uint32_t flags);
/* Ten tensors: no element, one, a scalar, parts of grains, many grains, frozen
 * ones between; two groups. */
void model_mixed(model *m);
void model_free(model *m);
uint64_t model_trainable(const model *m);

/* Gradient of one element: a pure function, so that pieces come in any order.
 * Signs differ, exponents spread over 2^-20 .. 1. */
float gradient_at(uint64_t seed, size_t tensor, uint64_t index);
/* n of them from `first`. */
void gradient_fill(uint64_t seed, size_t tensor, uint64_t first, size_t n,
                   float *out);
uint64_t random_next(uint64_t *seed);

/* ---- a folder and a store --------------------------------------------- */

typedef struct fixture {
    unit_memory memory;
    gyre_context *context;
    char root[128];
    char path[160];                 /* root/store */
    char device[DEVICES_MOST][176]; /* root/dNN, made by fixture_devices */
    const char *devices[DEVICES_MOST];
    gyre_store *store; /* or NULL */
    gyre_error error;
} fixture;

void fixture_begin(fixture *f);
/* With an instruction set; false when the machine lacks it. */
bool fixture_begin_on(fixture *f, const char *instruction_set);
/* Close the store, remove everything, check the memory. */
void fixture_end(fixture *f);
/* The first n device folders, in `spec`. */
void fixture_devices(fixture *f, gyre_store_spec *spec, size_t n);

gyre_store_spec spec_of(const model *m);
gyre_store_options plain_options(void);
gyre_round_options round_options(void);

/* Create, open, close; the first two must succeed. */
void fixture_create(fixture *f, const model *m, const gyre_store_spec *spec,
                    const gyre_store_options *options);
void fixture_open(fixture *f, const gyre_store_options *options);
void fixture_close(fixture *f);

/* A status as wanted, else the error's text. */
#define expect(f, call, want)                                                 \
    do {                                                                      \
        gyre_status expect_status = (call);                                   \
        if (expect_status != (want))                                          \
            fail_msg("%s: %s is wanted: %s", gyre_status_name(expect_status), \
                     gyre_status_name(want), (f)->error.text);                \
    } while (0)
#define good(f, call) expect(f, call, GYRE_OK)

/* ---- rounds ----------------------------------------------------------- */

gyre_round *fixture_open_round(fixture *f, const gyre_round_options *options);
/* A piece of f32 data. */
gyre_status give(fixture *f, gyre_round *round, size_t tensor, uint64_t first,
                 uint64_t count, const float *data);
/* The whole gradient of one tensor, or of all trainable ones. */
void give_tensor(fixture *f, gyre_round *round, const model *m, size_t tensor,
                 uint64_t seed);
void give_all(fixture *f, gyre_round *round, const model *m, uint64_t seed);
/* Begin, give all, finish. */
void fixture_round(fixture *f, const model *m, uint64_t seed,
                   const gyre_round_options *options,
                   gyre_round_report *report);

gyre_store_info info_of(fixture *f);
/* A tensor's own t. */
uint64_t step_of(fixture *f, size_t tensor);

/* All that a round may change, to hold against later. */
typedef struct snapshot {
    char digest[GYRE_DIGEST_TEXT];
    uint64_t slots; /* sum over all state and steps */
    uint64_t round, step;
} snapshot;
snapshot snapshot_of(fixture *f, const model *m);
void expect_same_contents(const snapshot *a, const snapshot *b);

/* ---- the textbook ----------------------------------------------------- */

/* AdamW with the operation order of its kernel, on plain arrays. */
typedef struct adamw {
    double lr, beta1, beta2, eps, weight_decay;
} adamw;

typedef struct oracle {
    const model *m;
    float *p[MODEL_MOST], *m1[MODEL_MOST], *m2[MODEL_MOST];
    float *g[MODEL_MOST];   /* accumulated in f32, in order */
    bool given[MODEL_MOST]; /* in this round */
    uint64_t t[MODEL_MOST];
    adamw group[GROUPS_MOST];
} oracle;

void oracle_begin(oracle *o, const model *m);
void oracle_end(oracle *o);
/* Take a tensor's whole gradient: the first of a round is stored, the others
 * are added. */
void oracle_give(oracle *o, size_t tensor, const float *data);
void oracle_give_all(oracle *o, uint64_t seed);
/* sqrt(sum of leaves) / (S D), leaves in the order of the tensors. */
double oracle_norm(const oracle *o, double scale, double denominator);
/* Clip, update what was given, and forget the gradients. */
void oracle_step(oracle *o, double scale, double denominator, double clip);
/* Every element, every slot and every t, bit for bit. */
void expect_oracle(fixture *f, const oracle *o);

#endif
