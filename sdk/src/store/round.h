/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round: its frame (round.c), gradients in (gradient.c), update and end
 * (update.c).
 *
 *     begin --> OPEN -- gradient, absent, release, next --> update --+
 *                 |                                                  |
 *                 +-- abort: as if it had not begun                  v
 *                                       RUNNING (chunks update, wait) | SKIPPED
 *                                                                  |
 *                                                               finish
 *
 * Counting, all atomic:
 *     grain_left   elements of a grain still to come in this micro-batch; at 0
 *                  in the last one its leaf (norm partial) is taken
 *     chunk_left   grains without a leaf, and with `early` also bound tensors
 *                  not yet released; at 0 the chunk may be updated
 *     tensor_left  chunks that have yet to deliver a bound tensor
 *
 * A leaf that is not finite means a gradient that is not: squares of f32 and
 * their sum over a grain cannot overflow a double.
 */
#ifndef GYRE_SRC_STORE_ROUND_H
#define GYRE_SRC_STORE_ROUND_H

#include "store/store.h"

typedef struct gyre_claim {
    uint64_t *ends; /* disjoint ranges, ascending: begin, end, ... */
    size_t count;   /* of ranges */
    size_t capacity;
    uint64_t got; /* elements in this micro-batch */
    bool absent;  /* in this micro-batch */
    bool filled;  /* by an earlier micro-batch */
    bool released;
} gyre_claim;

typedef enum gyre_round_state {
    GYRE_ROUND_OPEN,
    GYRE_ROUND_RUNNING,
    GYRE_ROUND_SKIPPED
} gyre_round_state;

/* What happened to a trainable chunk in this round. */
enum {
    GYRE_CHUNK_PUSHED = 1,
    GYRE_CHUNK_UPDATED = 2,
    GYRE_CHUNK_DELIVERED = 4
};

struct gyre_round {
    gyre_store *store;
    gyre_round_state state;
    double scale, denominator, clip;
    uint32_t micro_batches, micro;
    bool ended; /* the last micro-batch was ended by `next` */
    bool early, dynamic;
    bool streaming; /* workers run our stream */
    bool failed;    /* one of them stopped with an error; under lock */

    pthread_mutex_t lock; /* claims, failed */
    pthread_cond_t moved; /* tensor_left reached 0, or failed */
    gyre_claim *claims;   /* [tensors] */
    bool *skip;           /* [tensors]: absent in the whole round, or frozen */
    float *scalars;       /* [tensors][GYRE_OPT_MAX_SCALARS] */
    _Atomic uint16_t *grain_left;
    double *leaves; /* [train_grains] */
    _Atomic uint64_t *chunk_left;
    _Atomic uint64_t *tensor_left;
    _Atomic uint8_t *chunk_state;
    gyre_entry *fresh;      /* [train_chunks]: entries of updated chunks */
    gyre_segment *segments; /* [devices][max_runs] */
    size_t max_runs;

    float q; /* x = G q */
    gyre_ledger ledger; /* under lock while workers run */
    _Atomic uint64_t exposed_ns;
    gyre_worker_stats stats;
    gyre_round_report report;
};

/* Elements of a tensor in one of its grains (counted in the element space). */
static inline size_t gyre_round_grain_elements(const gyre_tensor_state *t,
                                               uint64_t grain)
{
    uint64_t left = t->elements - (grain - t->first_grain) * GYRE_GRAIN;

    return left < GYRE_GRAIN ? (size_t)left : GYRE_GRAIN;
}
/* A round was given and has this tensor (gradient.c). */
gyre_status gyre_round_check_tensor(gyre_round *round, size_t tensor,
                                    gyre_error *error);
/* Take the norm partial of a grain whose gradient is whole. */
void gyre_round_take_leaf(gyre_round *round, const gyre_tensor_state *t,
                          uint64_t grain);
/* Give a chunk to its device if it has anything to update and was not given
 * before. */
void gyre_round_push(gyre_round *round, uint64_t chunk);
/* Take `n` off chunk_left; with `early`, push at 0. */
void gyre_round_chunk_done(gyre_round *round, uint64_t chunk, uint64_t n);
/* Mark a tensor released (idempotent). */
void gyre_round_release_now(gyre_round *round, size_t tensor);
/* Everything of the last micro-batch is there?  MISSING lists what is not. */
gyre_status gyre_round_complete(gyre_round *round, gyre_error *error);
/* Start the stream of updates (update.c). */
void gyre_round_start(gyre_round *round);

#endif
