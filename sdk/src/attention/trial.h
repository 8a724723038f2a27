/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of gyre_attention_trial; for the sources of this room only. */
#ifndef GYRE_SRC_ATTENTION_TRIAL_H
#define GYRE_SRC_ATTENTION_TRIAL_H

#include "attention/face.h"

enum {
    GYRE_WHOLE_Q,
    GYRE_WHOLE_K,
    GYRE_WHOLE_V,
    GYRE_WHOLE_DO,
    GYRE_WHOLE_O, /* from here on as GYRE_TRIAL_O ... */
    GYRE_WHOLE_LSE,
    GYRE_WHOLE_DQ,
    GYRE_WHOLE_DK,
    GYRE_WHOLE_DV,
    GYRE_WHOLE_COUNT
};

typedef struct gyre_shape {
    uint32_t heads;
    uint64_t rows;
    uint32_t dim;
} gyre_shape;

/* All tensors of all ranks, f64, [batch][head][position][dim]. */
typedef struct gyre_whole {
    gyre_context *context;
    uint32_t batch;
    gyre_shape shape[GYRE_WHOLE_COUNT];
    size_t elements[GYRE_WHOLE_COUNT];
    double *at[GYRE_WHOLE_COUNT];
} gyre_whole;

const char *gyre_trial_name(uint32_t tensor); /* "O", ... */
bool gyre_whole_make(gyre_context *context, const gyre_problem *problem,
                     gyre_whole *out); /* zeros; false: no memory */
void gyre_whole_free(gyre_whole *whole);
/* Q K V DO by seed and position, rounded to the dtype. */
void gyre_whole_fill(gyre_whole *whole, uint64_t seed, gyre_dtype dtype);
/* O LSE DQ DK DV by the definition. */
gyre_status gyre_whole_reference(gyre_whole *whole, const gyre_plan *plan,
                                 const gyre_kernel_params *params, bool count,
                                 bool backward, gyre_error *error);

typedef struct gyre_trial_rule {
    gyre_dtype dtype;
    uint32_t ranks;
    bool count, narrow_wire;
    uint32_t casts[GYRE_TRIAL_TENSORS]; /* narrowings before it is final */
    bool compared[GYRE_TRIAL_TENSORS];
} gyre_trial_rule;
/* alone: the same kernel without a schedule. */
void gyre_whole_compare(const gyre_whole *got, const gyre_whole *reference,
                        const gyre_whole *alone, const gyre_trial_rule *rule,
                        gyre_trial *out);

/* One run of an attention, forward and, when it has one, backward, on inputs
 * from `whole` (trial_run.c).  Results go into it where rank 0 is, elsewhere
 * it is left alone.  *lse: whether all of LSE is kept somewhere.  ledger:
 * [pass][rank][phase][class], at rank 0. */
gyre_status gyre_trial_run(gyre_attention *attention, gyre_whole *whole,
                           bool *lse, gyre_link_count *ledger,
                           gyre_error *error);

#endif
