/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of an executor; for the sources of this room only. */
#ifndef GYRE_SRC_ATTENTION_EXECUTOR_H
#define GYRE_SRC_ATTENTION_EXECUTOR_H

#include "attention/attention.h"
#include "attention/team.h"
#include "attention/kernel_device.h"

#include <pthread.h>

/* Lists of pieces: of an op's views, of a block's two sides, of a transfer. */
enum {
    GYRE_PIECES_BLOCK = GYRE_OP_VIEWS,
    GYRE_PIECES_TRANSFER = GYRE_PIECES_BLOCK + GYRE_SIDE_COUNT,
    GYRE_EXECUTOR_PIECES
};

struct gyre_executor {
    gyre_context *context;
    const gyre_plan *plan;
    const gyre_plan_program *program;
    uint32_t rank;
    gyre_endpoint *endpoint;
    const gyre_kernel *kernel; /* of the host */
    const char *module;        /* of devices, "cuda"; NULL: the host computes */
    uint32_t module_index;     /* which device */
    gyre_device_room room;     /* the largest block */
    gyre_block_device *device; /* for ATT and GRD; or NULL */
    gyre_executor_options options;
    gyre_leaves leaves;
    gyre_plan_order order;

    char **bufs; /* NULL: not ours */
    uint64_t *buf_bytes;
    uint32_t *tenants;       /* slot by buf */
    gyre_slot_place *places; /* by slot */
    gyre_piece *pieces; /* GYRE_EXECUTOR_PIECES lists, of piece_room each */
    gyre_run_of_rows *runs;
    uint32_t piece_room;
    char *scratch;
    size_t scratch_bytes;
    gyre_team team; /* its threads are there while a run is */
    char *fold;     /* where the leaves of one head are folded */
    size_t fold_bytes;

    /* The queue, under lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool *ended;         /* by unit */
    uint32_t *lane_next; /* unit -> next of its lane, or unit_count */
    uint32_t lane_first[GYRE_PLAN_LANES], lane_at[GYRE_PLAN_LANES];
    bool lane_busy[GYRE_PLAN_LANES];
    uint32_t ended_count;
    bool one_queue;      /* the world's: groups begin in program order */
    uint32_t next_group; /* to begin, then */
    uint32_t pending;    /* groups begun whose callback has not returned */
    bool pumping, again;
    bool queue_open;
    gyre_status status; /* the first that went wrong */
    uint64_t failed_at; /* when */
    gyre_error error;
    struct gyre_flight *flights;          /* by group */
    uint8_t phases[GYRE_PLAN_MAX_PHASES]; /* of the world */
    uint32_t op_names[GYRE_OP_COUNT];     /* of the trace */
    uint32_t phase_names[GYRE_PLAN_MAX_PHASES];
};

/* One op that computes (step.c). */
gyre_status gyre_executor_step(gyre_executor *x, const gyre_plan_op *op,
                               gyre_error *error);
/* The blocks of an ATT or GRD, as the kernel gets them: one a run of pieces
 * that lie alike in all slots, or one a pair of tiles and head (step.c). */
typedef gyre_status (*gyre_block_each)(gyre_executor *x, const gyre_plan_op *op,
                                       const gyre_block *block,
                                       gyre_error *error);
gyre_status gyre_executor_blocks(gyre_executor *x, const gyre_plan_op *op,
                                 gyre_block_each each, gyre_error *error);
/* on_device.c: what computes ATT and GRD.  Find it; hold room for one more
 * block; take a device once all are held; run. */
gyre_status gyre_executor_choose(gyre_executor *x, gyre_error *error);
gyre_status gyre_executor_largest(gyre_executor *x, const gyre_plan_op *op,
                                  const gyre_block *block, gyre_error *error);
gyre_status gyre_executor_open_device(gyre_executor *x, gyre_error *error);
gyre_status gyre_executor_compute(gyre_executor *x, const gyre_plan_op *op,
                                  const gyre_block *block, gyre_error *error);
/* The leaves of one block; FIN of a sum that has leaves (leaves.c). */
gyre_status gyre_leaves_block(gyre_executor *x, const gyre_plan_op *op,
                              const gyre_block *block, gyre_block_each each,
                              gyre_error *error);
void gyre_leaves_finish(gyre_executor *x, const gyre_plan_op *op);
/* What that takes beside: the rows of one head in f64. */
size_t gyre_leaves_fold_bytes(uint64_t rows, uint32_t dim, gyre_dtype sum);
/* First use of a slot: identity (step.c). */
void gyre_executor_birth(gyre_executor *x, const gyre_plan_op *op);

/* One group on its way: messages and extents, alive until its callback. */
typedef struct gyre_flight {
    gyre_executor *executor;
    uint32_t unit;
    gyre_message *messages;
    gyre_extent *extents;
    uint32_t message_count, extent_count, extent_room;
    uint64_t bytes; /* put and got */
    uint64_t begin;
} gyre_flight;

/* flight.c: its lists from the views; and freed.  In the pumping thread. */
gyre_status gyre_flight_load(gyre_executor *x, uint32_t group,
                             gyre_flight *flight, gyre_error *error);
void gyre_flight_free(gyre_flight *flight);

static inline gyre_piece *gyre_executor_list(const gyre_executor *x, uint32_t i)
{
    return x->pieces + (size_t)i * x->piece_room;
}

/* check.c: pieces have room for one a chunk of any view. */
gyre_status gyre_executor_check(const gyre_plan *plan, uint32_t rank,
                                gyre_piece *pieces, gyre_error *error);
uint32_t gyre_executor_piece_room(const gyre_plan *plan, uint32_t rank);

/* queue.c; close also what was never opened. */
gyre_status gyre_queue_open(gyre_executor *x, gyre_error *error);
void gyre_queue_close(gyre_executor *x);

#endif
