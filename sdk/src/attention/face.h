/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a gyre_attention; for the sources of this room only. */
#ifndef GYRE_SRC_ATTENTION_FACE_H
#define GYRE_SRC_ATTENTION_FACE_H

#include "attention/executor.h"

struct gyre_attention {
    gyre_context *context;
    gyre_world *world;
    gyre_plan *made[GYRE_PASS_COUNT];           /* to be freed, or NULL */
    const gyre_plan *plans[GYRE_PASS_COUNT];    /* backward NULL: none */
    uint32_t first, count;                      /* ranks that are here */
    gyre_executor **executors[GYRE_PASS_COUNT]; /* [count] */
    gyre_chunk *chunks[GYRE_SIDE_COUNT];     /* by rank, in the order of rows */
    uint32_t *chunk_first[GYRE_SIDE_COUNT];  /* [ranks + 1] */
    gyre_link_count *moved[GYRE_PASS_COUNT]; /* [count][phases][classes] */
    uint32_t phases, classes;                /* of the world */
    float *slopes;                           /* [heads], or NULL */
    gyre_attention_tensors *kept;            /* [count]: of the last forward */
    bool kept_forward;
    bool ran[GYRE_PASS_COUNT];
};

/* Options with a size of their own; checked. */
gyre_status gyre_attention_take(const gyre_attention_options *given,
                                gyre_attention_options *out, gyre_error *error);
/* Plans of the options; *made are to be freed. */
gyre_status gyre_attention_plans(gyre_context *context,
                                 const gyre_attention_options *options,
                                 gyre_plan *made[GYRE_PASS_COUNT],
                                 const gyre_plan *plans[GYRE_PASS_COUNT],
                                 gyre_error *error);
/* Where other processes have ranks: break the world for them, so that nobody
 * waits for this one, which cannot go on for what `error` says.  Returns
 * status.
 */
gyre_status gyre_attention_give_up(gyre_world *world, gyre_status status,
                                   const gyre_error *error);
/* agree.c: INVALID where a process has other numbers than that of rank 0, by
 * name; and so of plans and options.  All processes call it; all hear of it. */
gyre_status gyre_attention_agree(gyre_context *context, gyre_world *world,
                                 const uint64_t *numbers,
                                 const char *const *names, uint32_t count,
                                 gyre_error *error);
gyre_status gyre_attention_same(const gyre_attention *a,
                                const gyre_attention_options *options,
                                gyre_error *error);
gyre_executor_options
gyre_attention_executor_options(const gyre_attention_options *options,
                                const gyre_plan *plan);

/* Bytes that a rank sends and receives in a phase, by the phase's name, over
 * the links of a class; phase NULL: in all; leaves: how many leaves a sum has,
 * or NULL; world NULL: links of all classes. */
void gyre_planned_bytes(const gyre_plan *plan, uint32_t rank,
                        const gyre_leaves *leaves, const char *phase,
                        const gyre_world *world, uint32_t klass, uint64_t *sent,
                        uint64_t *received);

/* ---- what results are held against ----------------------------------------
 */

/* The definition, in f64, without tiles.  All dense, [batch][head][position]
 * [dim], KV heads for k v d_k d_v; gradients NULL: forward only. */
typedef struct gyre_naive {
    const gyre_problem *problem;
    const gyre_mask *mask;
    gyre_kernel_params params;
    bool count; /* pairs instead */
    const double *q, *k, *v, *d_o;
    double *o, *lse, *d_q, *d_k, *d_v; /* overwritten */
    double *row;                       /* scratch: [KV tokens] */
} gyre_naive;
void gyre_naive_run(const gyre_naive *naive);

/* The schedule of one rank: one ATT, or one GRD. */
void gyre_solo_emit(void *user, uint32_t pass, uint32_t rank,
                    const gyre_plan_host *host, gyre_builder *b);

#endif
