/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round: its frame (round.c, round_memory.c), gradients in (gradient.c,
 * born.c) and on (intake.c, residual.c), one chunk's update in its worker
 * (apply.c), norm and end (update.c, finish.c), bytes (ledger.c).
 *
 *     begin --> OPEN -- gradient, absent, release, next --> update --+
 *                 |                                                  |
 *                 +-- abort: as if it had not begun                  v
 *                                       RUNNING (chunks update, wait) | SKIPPED
 *                                                                  |
 *                                                               finish
 *
 * Three ways for a gradient from its pieces to its update:
 *
 *     HELD      pieces -> f32 in memory -----------------------> update
 *     SPILLED   pieces -> f32 in memory -> intake: add to the gradient region
 *               of its chunk, in every micro-batch ------------> update
 *     STREAMED  pieces -> f32 in memory -> intake of the last micro-batch:
 *               compress, wire blocks to the region or kept ---> update
 *
 * With a compressor HELD gradients are compressed by the update.  "In memory"
 * is that of a device for tensors whose side is BORN.  The intake
 * is a stream of its own, from the begin of a micro-batch to its end, and gives
 * the memory of what it took back.
 *
 * Counting, all atomic:
 *     grain_left   elements of a grain still to come in this micro-batch; at 0
 *                  in the last one its leaf (norm partial) is taken (SPILLED:
 *                  by the intake)
 *     chunk_left   grains without a leaf, and with `early` also bound tensors
 *                  not yet released; at 0 the chunk may be updated.  With an
 *                  intake: grains to come in this micro-batch; at 0 it is
 *                  pushed there
 *     tensor_left  chunks that have yet to deliver a bound tensor
 *
 * A leaf that is not finite means a gradient that is not: squares of f32 and
 * their sum over a grain cannot overflow a double.
 */
#ifndef GYRE_SRC_STORE_ROUND_H
#define GYRE_SRC_STORE_ROUND_H

#include "device/feedback.h"
#include "store/stream.h"

typedef struct gyre_claim {
    uint64_t *ends; /* disjoint ranges, ascending: begin, end, ... */
    size_t count;   /* of ranges */
    size_t capacity;
    uint64_t got; /* elements in this micro-batch */
    bool absent;  /* in this micro-batch */
    bool filled;  /* by an earlier micro-batch */
    bool released;
} gyre_claim;

typedef enum gyre_gradient_way {
    GYRE_WAY_HELD,
    GYRE_WAY_SPILLED,
    GYRE_WAY_STREAMED
} gyre_gradient_way;

/* Where a tensor's gradients are, and where they are compressed. */
enum {
    GYRE_SIDE_NONE, /* nothing came yet */
    GYRE_SIDE_HERE,
    GYRE_SIDE_BORN /* on the device where they are born */
};

typedef enum gyre_round_state {
    GYRE_ROUND_OPEN,
    GYRE_ROUND_RUNNING,
    GYRE_ROUND_SKIPPED
} gyre_round_state;

/* What happened to a trainable chunk in this round. */
enum {
    GYRE_CHUNK_PUSHED = 1,
    GYRE_CHUNK_UPDATED = 2,
    GYRE_CHUNK_DELIVERED = 4,
    GYRE_CHUNK_FED = 8 /* its next residual is written */
};

/* The gradients of one chunk as the intake left them. */
typedef struct gyre_taken {
    uint64_t bytes;   /* from the start of its region; 0: nothing */
    uint64_t hash;    /* of these */
    uint64_t payload; /* of its wire blocks; the rest is frame */
} gyre_taken;

/* What a lane of a device is at. */
typedef struct gyre_chunk_job {
    gyre_update_job job;
    gyre_var vars[GYRE_STORE_VARS];
    gyre_ledger ledger;
} gyre_chunk_job;

struct gyre_round {
    gyre_store *store;
    gyre_round_state state;
    double scale, denominator, clip;
    uint32_t micro_batches, micro;
    bool ended; /* the last micro-batch was ended by `next` */
    bool early, dynamic;
    gyre_gradient_way way;
    bool regions;   /* what the intake makes goes to the gradient regions */
    bool late;      /* clip what came out of the compressor */
    bool streaming; /* workers run our stream */
    bool taking;    /* it is the intake */
    bool failed;    /* one of them stopped with an error; under lock */
    gyre_error why; /* the intake failed: this is what the round ends with */

    pthread_mutex_t lock; /* claims, failed */
    pthread_cond_t moved; /* tensor_left reached 0, or failed */
    gyre_claim *claims;   /* [tensors] */
    bool *skip;           /* [tensors]: absent in the whole round, or frozen */
    uint8_t *side;        /* [tensors], with a compressor; under lock until the
                             tensor's first piece is claimed */
    float *scalars;       /* [tensors][GYRE_OPT_MAX_SCALARS] */
    _Atomic uint16_t *grain_left;
    double *leaves; /* [train_grains] */
    _Atomic uint64_t *chunk_left;
    _Atomic uint64_t *tensor_left;
    _Atomic uint8_t *chunk_state;
    gyre_entry *fresh;      /* [train_chunks]: entries of updated chunks */
    gyre_chunk_job *jobs;   /* [devices][lanes] */
    gyre_segment *segments; /* [devices][lanes][max_runs + 1] */
    size_t max_runs;
    uint32_t lanes; /* the most of any device */

    gyre_taken *taken;   /* [train_chunks], with an intake */
    double *kept_leaves; /* [train_grains], with a compressor: of D(c) */
    void *decided;       /* of a compressor with a barrier */
    bool surveyed;       /* and by it: a is where the next residual will be */
    float *kappa_before; /* [tensors], with a residual */
    bool adopted;        /* the residual is */
    pthread_cond_t taken_some;
    _Atomic uint64_t waiting; /* chunks pushed to the intake, not yet taken */
    _Atomic size_t overflown; /* 1 + a tensor whose G q + kappa e did */

    float inv;          /* 1 / (S D) */
    float q;            /* inv k */
    gyre_ledger ledger; /* see gyre_store_count */
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
/* Its memory, by `way` and `early`, and what it counts down.  On failure
 * gyre_round_discard frees what there is (round_memory.c). */
gyre_status gyre_round_allocate(gyre_round *round, gyre_error *error);
/* A round was given and has this tensor (gradient.c). */
gyre_status gyre_round_check_tensor(gyre_round *round, size_t tensor,
                                    gyre_error *error);
/* Claim a range, under the lock; *add says that earlier micro-batches left
 * something to add to.  DUPLICATE, STATE, NO_MEMORY. */
gyre_status gyre_round_claim(gyre_round *round, size_t tensor, uint64_t first,
                             uint64_t end, bool *add, gyre_error *error);
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
/* Start the stream of updates (apply.c). */
void gyre_round_start(gyre_round *round);
/* End it or the intake, if one runs. */
gyre_status gyre_round_end_stream(gyre_round *round, gyre_error *error);
/* A stream failed: who waits is woken.  For gyre_stream.ended. */
void gyre_round_stream_ended(void *user, uint32_t device, gyre_status status);

/* ---- update and end (update.c, finish.c) ------------------------------ */

/* All of an update that its caller waits for.  MISSING leaves the round open.
 */
gyre_status gyre_round_update_now(gyre_round *round, gyre_error *error);
/* Norm of what the optimizer sees; NaN while it is not yet known. */
double gyre_round_norm_compressed(const gyre_round *round);
/* As much of a report as the caller's has room for; `to` may be NULL. */
void gyre_round_hand_report(const gyre_round_report *from,
                            gyre_round_report *to);
/* Give delivered ranges their old values back, once.  `all`: everything bound,
 * for a rollback over several rounds. */
gyre_status gyre_round_give_back(gyre_round *round, bool all,
                                 gyre_error *error);

/* ---- intake (intake.c) ------------------------------------------------ */

/* Memory for gradients, kept in the store over rounds. */
gyre_status gyre_round_hold(gyre_round *round, gyre_error *error);
/* Free what the store keeps for rounds. */
void gyre_store_free_gradients(gyre_store *store);
/* This micro-batch has an intake: arm chunk_left and start it. */
void gyre_intake_start(gyre_round *round);
/* All of a chunk came in this micro-batch.  Any thread. */
void gyre_intake_push(gyre_round *round, uint64_t chunk);
/* Wait while the intake has more to take than it has buffers for. */
void gyre_intake_wait(gyre_round *round);
/* Are all gradients of a chunk finite, by their leaves? */
bool gyre_round_finite(const gyre_round *round, uint64_t chunk);
/* What was read is what the intake wrote?  CORRUPT with file and offset. */
gyre_status gyre_round_check_region(const gyre_round *round, gyre_work work,
                                    gyre_error *error);
/* End the intake of this micro-batch, if there is one.  An error stays: the
 * round is lost and ends with it. */
gyre_status gyre_intake_end(gyre_round *round, gyre_error *error);

/* ---- compression (residual.c) ----------------------------------------- */

/* Most bytes of all wire blocks of a chunk. */
uint64_t gyre_round_wire_bound(const gyre_store *store, uint64_t chunk);
/*
 * Compress the gradients in memory of what is not skipped, wire blocks in the
 * order of the runs from `wire` on; residuals of the rest are copied.  RANGE
 * when G q + kappa e overflowed: `overflown` says where.  IO of a device.  Any
 * thread, once a chunk.
 */
gyre_status gyre_round_compress(gyre_round *round, uint64_t chunk,
                                uint8_t *wire, gyre_taken *out,
                                gyre_error *error);
/* Bytes of `decided`; 0 without a barrier. */
size_t gyre_round_decided_bytes(const gyre_round *round);
/* Survey all gradients for a compressor with a barrier.  Errors: NO_MEMORY,
 * RANGE (overflow, as above). */
gyre_status gyre_round_survey(gyre_round *round, gyre_error *error);
/* The text for an overflow that `overflown` tells. */
gyre_status gyre_round_tell_overflow(const gyre_round *round,
                                     gyre_error *error);
/* The round succeeded: its residuals become those in force. */
void gyre_round_adopt_residual(gyre_round *round);
/* ... after all not: what the round read is still there, and was saved. */
void gyre_round_unadopt_residual(gyre_round *round);

/* ---- born on a device (born.c) ---------------------------------------- */

/*
 * Can these bytes of a device be compressed where they are?  The first piece
 * opens the birthplace; when that cannot be, the log is told and *reaches stays
 * false.  Errors: PLUGIN_BAD (the encoder does not build), NO_MEMORY.
 */
gyre_status gyre_born_reaches(gyre_round *round, const gyre_gradient *piece,
                              uint64_t bytes, bool *reaches, gyre_error *error);
/* A piece is about to be claimed: choose the tensor's side if it has none, and
 * bring its residual there. */
gyre_status gyre_born_settle(gyre_round *round, size_t tensor, bool wanted,
                             bool *born, gyre_error *error);
/* Claim and take a piece of a tensor whose side is BORN, from memory that the
 * birthplace reaches or from the host.  After IO the round is lost. */
gyre_status gyre_born_piece(gyre_round *round, size_t tensor, uint64_t first,
                            uint64_t count, const gyre_gradient *gradient,
                            gyre_error *error);
/* Its last micro-batch has nothing for it: leaves of all its grains. */
void gyre_born_absent(gyre_round *round, size_t tensor);
/* gyre_feedback_run of one run; its next residual when it is skipped. */
gyre_status gyre_born_compress(const gyre_round *round, uint64_t chunk,
                               const gyre_run *run, gyre_feedback_job *job,
                               gyre_error *error);
gyre_status gyre_born_keep(const gyre_store *store, uint64_t chunk,
                           const gyre_run *run, gyre_error *error);

#endif
