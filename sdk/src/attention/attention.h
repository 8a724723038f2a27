/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a plan: one executor per rank and pass, over an endpoint of the
 * transport, with a block kernel.
 *
 *     plan --> executor:  slots (bufs, the user's tensors)
 *                         queue (lanes, waits)  --> groups --> transport
 *                                               --> ops    --> kernel
 *
 * Storage.  A slot is parts: K and V, O and LSE, LSE and delta, or one.  A part
 * lies dense as [batch][head][row][dim], or where the user's tensor is.  The
 * parts of one slot lie in wire order, for O* LSE before O, so that both are
 * aligned whatever the dtype of O is.  The bytes of a view travel by part, in
 * that order, then batch, head, row, dim.
 *
 * Memory.  Every buf is one block, as large as its largest tenant, taken when
 * the executor is opened: their sum is what gyre_plan_count_memory says, less
 * the user's own.  Extents of a group are lists, made when it starts.
 *
 * Leaves (deterministic mode; leaves.c).  A sum then holds one partial value
 * for each KV tile (O*, DQ*) or each Q tile and query head of the group (DKV*),
 * one after the other as if there were that many slots in one buf.
 *
 * Order.  An op starts when its lane is free and what gyre_plan_order names has
 * ended.  A group may start on whatever thread ended what it waited for, an op
 * of the others on the thread in gyre_executor_run.
 */
#ifndef GYRE_SRC_ATTENTION_ATTENTION_H
#define GYRE_SRC_ATTENTION_ATTENTION_H

#include "attention/kernel.h"
#include "plan/plan.h"
#include "transport/transport.h"

#include <gyre/attention.h>

typedef struct gyre_executor gyre_executor;

/* ---- leaves (leaves.c) ------------------------------------------------- */

/* Both sides of a sequence cut in tiles: tile i of n is positions
 * [tokens i / n, tokens (i + 1) / n).  Count 0: not deterministic. */
typedef struct gyre_leaves {
    uint32_t count[GYRE_SIDE_COUNT];
    uint64_t tokens[GYRE_SIDE_COUNT];
    uint32_t group; /* query heads of a KV head */
} gyre_leaves;

/* tiles: at most so many a side.  Errors: INVALID names a chunk that holds part
 * of a tile, or a wire dtype that rounds sums. */
gyre_status gyre_leaves_make(const gyre_plan *plan, uint32_t tiles,
                             gyre_leaves *out, gyre_error *error);
/* Leaves of a sum of this kind; 1 for other kinds and when off. */
uint32_t gyre_leaves_of(const gyre_leaves *leaves, uint32_t kind);

/* ---- slots (slots.c) --------------------------------------------------- */

typedef struct gyre_part {
    gyre_plane plane; /* of leaf 0 */
    size_t leaf;      /* bytes from one leaf to the next */
    uint32_t dim;     /* 1: a statistic */
    uint32_t heads;   /* from plane.head0 on */
    gyre_dtype dtype;
    bool kv; /* heads are KV heads */
} gyre_part;

enum { GYRE_MAX_PARTS = 2 };

typedef struct gyre_slot_place {
    gyre_part part[GYRE_MAX_PARTS]; /* K V, O LSE, LSE delta */
    uint32_t count;
    uint32_t leaves;
} gyre_slot_place;

/* Parts of a slot as they would lie at `base`. */
void gyre_place_dense(const gyre_plan *plan, const gyre_plan_slot *slot,
                      uint32_t leaves, char *base, gyre_slot_place *out);
/* The same where the user's tensors are; rows and heads must be all of the
 * rank's.  Errors: MISSING names the tensor. */
gyre_status gyre_place_user(const gyre_plan *plan, const gyre_plan_slot *slot,
                            uint32_t rank, const gyre_attention_tensors *user,
                            gyre_slot_place *out, gyre_error *error);
/* Query heads h0..h1 as this part counts heads. */
void gyre_part_heads(const gyre_problem *problem, const gyre_part *part,
                     uint32_t h0, uint32_t h1, uint32_t *a, uint32_t *b);
/* Order in which parts travel: the i-th is this one. */
uint32_t gyre_part_wire(uint32_t kind, uint32_t i);

/* Rows of `rows` as pieces at their offset in a slot of rows `in`; out has room
 * for one a chunk.  The number, or UINT32_MAX when one is not in the slot.
 * Empty chunks are left out. */
uint32_t gyre_slot_pieces(const gyre_plan *plan, uint32_t rows, uint32_t in,
                          gyre_piece *out);

/* ---- executor (executor.c, queue.c, step.c) ------------------------------ */

typedef struct gyre_executor_options {
    const char *kernel;
    gyre_kernel_params params;
    uint32_t tiles;   /* deterministic mode: at most so many a side; 0: off */
    uint32_t workers; /* threads that compute; 0: 1 */
    uint64_t delay;   /* ns at most before each op that computes */
    uint64_t delay_seed;
    const gyre_executor *saved; /* backward: the forward one of this rank */
    double flops; /* above 0: ATT and GRD sleep instead, at this rate */
} gyre_executor_options;

/* What an executor takes, known before it is opened. */
typedef struct gyre_executor_memory {
    uint64_t bufs;     /* of the plan, the user's own included */
    uint64_t external; /* of them the user's own */
    uint64_t saved;    /* backward: of them what forward keeps */
    uint64_t leaves;   /* beyond `bufs`, for deterministic mode */
    uint64_t scratch;  /* of the kernel, all workers */
} gyre_executor_memory;

/* Check the program of `rank` as far as memory safety asks, take all memory.
 * plan, endpoint and saved outlive it.  Errors: INVALID, NOT_FOUND (kernel),
 * PLAN, NO_MEMORY. */
gyre_status gyre_executor_open(const gyre_plan *plan, uint32_t rank,
                               gyre_endpoint *endpoint,
                               const gyre_executor_options *options,
                               gyre_executor **out, gyre_error *error);
void gyre_executor_close(gyre_executor *executor);
gyre_status gyre_executor_measure(const gyre_plan *plan, uint32_t rank,
                                  const gyre_executor_options *options,
                                  gyre_executor_memory *out, gyre_error *error);

/* Where the user's tensors are, for the runs that follow.  Not while one is. */
gyre_status gyre_executor_bind(gyre_executor *executor,
                               const gyre_attention_tensors *user,
                               gyre_error *error);
/* Run the program once; all ranks do so together.  On an error, own or of
 * another rank, the world is broken, nothing is pending and the text says rank,
 * op and cause.  One thread an executor. */
gyre_status gyre_executor_run(gyre_executor *executor, gyre_error *error);

/* A place of forward that is kept, of the same kind, rows, heads and dtype as a
 * slot of another plan; NULL when there is none. */
const gyre_slot_place *gyre_executor_saved(const gyre_executor *executor,
                                           const gyre_plan *plan,
                                           const gyre_plan_slot *slot);
const gyre_slot_place *gyre_executor_place(const gyre_executor *executor,
                                           uint32_t slot);

#endif
