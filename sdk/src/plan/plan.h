/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attention schedule as data.  Pure: no I/O, no threads, no clock.
 *
 *     layout + mask --> cells          which (Q chunk, KV chunk) pairs count
 *     emit(builder, rank) --> program  bufs, slots, views, ops, groups
 *     program --> order                which unit waits for which
 *     plan --> prove, prune, bytes, memory, text, binary, diff
 *
 * A plan has one program a rank.  Ids (slot, view, op, group, unit) are of one
 * program; row sets and phase names are shared by all programs.  After
 * gyre_plan_create a plan is constant and any thread may read it; building and
 * changing one is for one thread.
 *
 * The builder takes any ops whose ids exist; what is right is for the prover to
 * say, so that a wrong plan can be held up, saved and shown.
 */
#ifndef GYRE_SRC_PLAN_PLAN_H
#define GYRE_SRC_PLAN_PLAN_H

#include "base/base.h"
#include <gyre/plan.h>

/* One more word of a hash, of tables and of plans that are compared. */
static inline uint64_t gyre_plan_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 32;
}

/* ---- layout (layout.c) ----------------------------------------------- */

/* Tokens of one side as a chunk table; also the user's, of any lengths.
 * Position ranges must not overlap; every owner is below `ranks`. */
typedef struct gyre_chunks {
    gyre_chunk *at;
    uint32_t count;
} gyre_chunks;

/* Cut `tokens` by layout for ranks at `grid` (grid[ranks]).  documents: of
 * LAYOUT_DOCUMENTS, the table to follow.  Uneven lengths and empty chunks come
 * out where tokens do not divide.  Errors: NO_MEMORY, INVALID. */
gyre_status gyre_layout_cut(gyre_context *context, uint32_t layout,
                            uint64_t tokens, const gyre_documents *documents,
                            const gyre_grid *grid, uint32_t ranks,
                            gyre_chunks *out, gyre_error *error);
/* Errors: INVALID names the chunk: owner, stride, beyond `tokens`, or
 * overlapping another; or tokens that no chunk has. */
gyre_status gyre_chunks_check(gyre_context *context, const gyre_chunk *chunks,
                              uint32_t count, uint64_t tokens, uint32_t ranks,
                              const char *side, gyre_error *error);

/* ---- mask and cells (mask.c) ----------------------------------------- */

typedef enum gyre_cell {
    GYRE_CELL_EMPTY,
    GYRE_CELL_FULL,
    GYRE_CELL_PARTIAL
} gyre_cell;

/* A copy that owns its tables; checked for `batch` sequences.  NULL: full. */
gyre_status gyre_mask_copy(gyre_context *context, const gyre_mask *mask,
                           uint32_t batch, gyre_mask **out, gyre_error *error);
void gyre_mask_free(gyre_context *context, gyre_mask *mask);
bool gyre_mask_allows(const gyre_mask *mask, uint32_t batch, uint64_t q,
                      uint64_t k);
/* The first run of allowed key positions at or after `from` that ends by
 * `end`: [*low, *high), false when there is none.  Call again from *high. */
bool gyre_mask_span(const gyre_mask *mask, uint32_t batch, uint64_t q,
                    uint64_t from, uint64_t end, uint64_t *low, uint64_t *high);
/* Of two chunks in one sequence, and over all sequences of the batch: EMPTY
 * when empty in each, FULL when full in each. */
gyre_cell gyre_mask_cell(const gyre_mask *mask, uint32_t batch,
                         const gyre_chunk *q, const gyre_chunk *kv);
gyre_cell gyre_mask_cells(const gyre_mask *mask, uint32_t batches,
                          const gyre_chunk *q, const gyre_chunk *kv);
/* Allowed pairs of a cell over all sequences, exactly. */
uint64_t gyre_mask_area(const gyre_mask *mask, uint32_t batches,
                        const gyre_chunk *q, const gyre_chunk *kv);

/* ---- a plan ---------------------------------------------------------- */

/* A sorted set of chunks of one side, interned: same set, same id. */
typedef struct gyre_plan_rows {
    uint32_t side;
    uint32_t first, count; /* in plan->row_chunks */
    uint32_t next;         /* of the hash chain */
    uint64_t tokens;
} gyre_plan_rows;

typedef struct gyre_plan_view {
    uint32_t slot, rows;
    uint16_t h0, h1;
    uint32_t planes;
} gyre_plan_view;

/* 32 bytes.  view[1] of PUT and GET is the peer.  group: of a compute op
 * GYRE_NO_VIEW. */
typedef struct gyre_plan_op {
    uint8_t code, lane;
    uint16_t channel;
    uint32_t group;
    uint32_t view[GYRE_OP_VIEWS];
} gyre_plan_op;

typedef struct gyre_plan_group {
    uint32_t first, count; /* ops, neighbours in program order */
    uint8_t lane, phase, pattern, reserved;
} gyre_plan_group;

/* What starts and ends together: a compute op, or a group. */
typedef struct gyre_plan_unit {
    uint32_t first, count; /* ops */
    uint32_t lane;
    uint32_t group; /* or GYRE_NO_VIEW */
} gyre_plan_unit;

typedef struct gyre_plan_program {
    gyre_plan_slot *slots;
    gyre_plan_view *views;
    gyre_plan_op *ops;
    gyre_plan_group *groups;
    gyre_plan_unit *units;
    uint32_t slot_count, view_count, op_count, group_count, unit_count;
    uint32_t buf_count;
    uint32_t slot_room, view_room, op_room, group_room, unit_room;
    uint32_t *view_table; /* hash of interned views */
    uint32_t view_table_size;
} gyre_plan_program;

enum { GYRE_PLAN_MAX_PHASES = 16, GYRE_PLAN_PHASE_BYTES = 16 };

struct gyre_plan {
    gyre_context *context;
    char *name;           /* of the schedule, for messages and files */
    gyre_problem problem; /* chunk tables are the plan's own */
    gyre_mask *mask;
    uint32_t pass;
    char phases[GYRE_PLAN_MAX_PHASES][GYRE_PLAN_PHASE_BYTES];
    uint32_t phase_count;
    gyre_plan_rows *rows;
    uint32_t *row_chunks;
    uint32_t *row_table;
    uint32_t *owned[GYRE_SIDE_COUNT]; /* row set by rank */
    uint32_t row_count, row_room, row_chunk_count, row_chunk_room;
    uint32_t row_table_size;
    gyre_plan_program *programs; /* [problem.ranks]; not emitted: no ops */
};

typedef struct gyre_plan_spec {
    const char *name;
    gyre_problem problem; /* without chunks: cut by layout and grid */
    uint32_t layout;
    const gyre_grid *grid; /* [ranks]; NULL: place r of ranks */
    const gyre_mask *mask; /* NULL: full */
    uint32_t pass;
    uint32_t reserved;
    void (*emit)(void *user, uint32_t pass, uint32_t rank,
                 const gyre_plan_host *host, gyre_builder *builder);
    void *user;
} gyre_plan_spec;

/* Fill the dtype_bytes .. stat_bytes and check counts, dims and dtypes: heads
 * divide, dims <= 65536, heads <= 65535, sum dtype f32 or f64 (f64 when dtype
 * is).  Errors: INVALID. */
gyre_status gyre_problem_complete(gyre_problem *problem, gyre_error *error);

/* Lay out, then emit every rank.  begin stops before emitting: for one that
 * emits rank by rank with gyre_plan_emit (again: replaces), or builds by hand.
 * Errors: INVALID, NO_MEMORY, and PLAN with what the schedule said. */
gyre_status gyre_plan_create(gyre_context *context, const gyre_plan_spec *spec,
                             gyre_plan **out, gyre_error *error);
gyre_status gyre_plan_begin(gyre_context *context, const gyre_plan_spec *spec,
                            gyre_plan **out, gyre_error *error);
gyre_status gyre_plan_emit(gyre_plan *plan, const gyre_plan_spec *spec,
                           uint32_t rank, gyre_error *error);
void gyre_plan_clear(gyre_plan *plan, uint32_t rank); /* forget a program */

/* ---- building one program (build.c) ---------------------------------- */

/* The functions that a schedule gets; Lua and readers of files use them too. */
extern const gyre_plan_host gyre_plan_host_table;
enum { GYRE_RECENT_VIEWS = 32 };
struct gyre_builder {
    gyre_plan *plan;
    uint32_t rank;
    uint32_t group; /* open one, or GYRE_NO_VIEW */
    gyre_plan_program program;
    uint32_t recent[GYRE_RECENT_VIEWS]; /* id + 1 of a view, by slot */
    gyre_status status;                 /* the first error */
    gyre_error error;
};
void gyre_program_free(gyre_context *context, gyre_plan_program *program);
void gyre_builder_open(gyre_builder *builder, gyre_plan *plan, uint32_t rank);
/* Put the program into the plan, or free it and say the first error. */
gyre_status gyre_builder_close(gyre_builder *builder, gyre_error *error);

/* The mixed radix of gyre/plugin.h, as a function of the host (radix.c). */
void gyre_plan_radix(gyre_builder *builder, const gyre_radix *radix);

/* Interned row set (rows.c).  GYRE_NO_VIEW: out of memory. */
uint32_t gyre_plan_intern_rows(gyre_plan *plan, uint32_t side,
                               const uint32_t *chunks, uint32_t count);
static inline const uint32_t *gyre_plan_row_list(const gyre_plan *plan,
                                                 uint32_t rows)
{
    return plan->row_chunks + plan->rows[rows].first;
}

/* ---- what things are (value.c) --------------------------------------- */

bool gyre_value_is_sum(uint32_t kind);
uint32_t gyre_value_side(uint32_t kind);
uint32_t gyre_value_planes(uint32_t kind);  /* the full set */
const char *gyre_value_name(uint32_t kind); /* "Q", ..., "DKV*" */
const char *gyre_op_name(uint32_t code);    /* "PUT", ... */
const char *gyre_pattern_name(uint32_t pattern);
/* Which of a op's views it writes, and which it may leave out: bit i for
 * view[i]; and how many it has (1 for PUT and GET). */
uint32_t gyre_op_writes(uint32_t code);
uint32_t gyre_op_optional(uint32_t code);
uint32_t gyre_op_views(uint32_t code);
/* KV heads of query heads h0..h1. */
void gyre_kv_heads(const gyre_problem *problem, uint32_t h0, uint32_t h1,
                   uint32_t *k0, uint32_t *k1);
/* Bytes of `tokens` rows x query heads x planes of a kind, for the batch. */
uint64_t gyre_value_bytes(const gyre_problem *problem, uint32_t kind,
                          uint32_t dtype, uint64_t tokens, uint32_t h0,
                          uint32_t h1, uint32_t planes);
uint64_t gyre_slot_bytes(const gyre_plan *plan, const gyre_plan_slot *slot);
uint64_t gyre_view_bytes(const gyre_plan *plan,
                         const gyre_plan_program *program, uint32_t view);

/* Two plans are for the same problem: ranks, sizes, dtypes and chunks; and the
 * same mask (diff.c). */
bool gyre_plan_same_problem(const gyre_plan *one, const gyre_plan *other);

/* ---- order (order.c) -------------------------------------------------- */

/*
 * Which units a unit waits for, beside the one before it on its own lane:
 * deps[first[u] .. first[u + 1]), at most one (the latest) a lane, all below u.
 * Two ops conflict if they touch one buf, one writes, and the tenant differs or
 * rows x heads x planes intersect; every op of a new tenant waits for all
 * accesses of the tenant before.
 */
typedef struct gyre_plan_order {
    gyre_context *context;
    uint32_t *first, *deps;
    uint32_t unit_count, dep_count, dep_room;
    uint32_t clash_unit; /* a unit with two members in conflict, or NO_VIEW */
} gyre_plan_order;
gyre_status gyre_plan_order_make(const gyre_plan *plan, uint32_t rank,
                                 gyre_plan_order *out, gyre_error *error);
void gyre_plan_order_free(gyre_plan_order *order);

/* ---- looking (visit.c) ------------------------------------------------ */

/* Op `index`, which is of unit `unit`; begin and end are 0. */
void gyre_plan_step_fill(const gyre_plan *plan, uint32_t rank, uint32_t unit,
                         uint32_t index, gyre_plan_step *out);
/* Floating-point operations of an ATT or GRD, 0 of other ops (time.c). */
double gyre_plan_step_flops(const gyre_plan *plan, const gyre_plan_step *step);

/* ---- counting (count.c) ----------------------------------------------- */

/* Sent and received of one rank by phase index; arrays [phase_count]. */
void gyre_plan_count_bytes(const gyre_plan *plan, uint32_t rank, uint64_t *sent,
                           uint64_t *received);
/* Of these, what goes to and comes from ranks on other nodes.  shift: of
 * program 0, moved to stand for `rank` (prove.h); NULL: of the rank's own
 * program. */
struct gyre_shift;
void gyre_plan_count_outer(const gyre_plan *plan, uint32_t rank,
                           const struct gyre_shift *shift, uint64_t *sent,
                           uint64_t *received);
/* Sum over bufs of the largest tenant; *external: of bufs with external slots
 * alone. Errors: NO_MEMORY. */
gyre_status gyre_plan_count_memory(const gyre_plan *plan, uint32_t rank,
                                   uint64_t *bytes, uint64_t *external,
                                   gyre_error *error);

/* ---- proof and prune (prove*.c, prune.c) ------------------------------ */

/*
 * As gyre_plan_prove of what gyre_plan_create would make, but emits rank by
 * rank: when every program is that of rank 0 with peers, rows and heads moved
 * by the rank's coordinates, one program is proven for all (quotient = 1) and
 * under the full mask, which is more than any mask asks.  Else all programs are
 * kept and proven expanded.  Errors: those of gyre_plan_create and of
 * gyre_plan_prove.
 */
gyre_status gyre_plan_prove_spec(gyre_context *context,
                                 const gyre_plan_spec *spec,
                                 const gyre_proof_options *options,
                                 gyre_proof *out, gyre_error *error);

/*
 * Drop what nobody needs: rows of an op without a cell, plain rows that reach
 * no cell and no output (backwards), rows of sums to which nothing was added
 * (forwards); then ops without rows, and the rows of slots that no op touches.
 * Both ends of a transfer lose the same rows.  A phase in which a transfer
 * changed has no declared pattern any more.  The plan must be right: PLAN with
 * the proof's reason when it is not, and then the plan is as before.  Errors:
 * PLAN, NO_MEMORY.
 */
gyre_status gyre_plan_prune(gyre_plan *plan, gyre_error *error);

#endif
