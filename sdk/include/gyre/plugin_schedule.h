/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins of kind "gyre.schedule/1"; gyre/plugin.h includes this. */
#ifndef GYRE_PLUGIN_SCHEDULE_H
#define GYRE_PLUGIN_SCHEDULE_H

#include <gyre/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A schedule says which rank holds which rows when, as a plan: per rank a list
 * of ops over slots.  It holds no transport, kernel, mask or random numbers.
 * sdk/man/gyre-plan.5 is the manual of plans; in short:
 *
 *     chunk   a run of token positions with one owner; rows are sets of chunks
 *     buf     storage of a rank
 *     slot    a value in a buf: kind, rows, query heads, dtype
 *     view    rows, heads and planes of a slot
 *     op      PUT GET ATT GRD RED CPY FIN DLT on views, on a lane
 *
 * Heads are always query heads: a KV view of query heads h0..h1 holds the KV
 * heads floor(h0 / g) .. ceil(h1 / g), g = heads / kv_heads.
 */
#define GYRE_KIND_SCHEDULE "gyre.schedule/1"

enum { GYRE_SIDE_Q = 0, GYRE_SIDE_KV = 1, GYRE_SIDE_COUNT = 2 };
enum { GYRE_PASS_FORWARD = 0, GYRE_PASS_BACKWARD = 1, GYRE_PASS_COUNT = 2 };

typedef struct gyre_chunk {
    uint64_t start;  /* position of the first token */
    uint64_t length; /* tokens; may be 0 */
    uint64_t stride; /* from one position to the next, at least 1 */
    uint32_t owner;  /* rank */
    uint32_t reserved;
} gyre_chunk;

/* What is to be computed.  In check and grid the chunks are not known yet
 * (count 0). */
typedef struct gyre_problem {
    size_t size;
    uint32_t ranks, batch;
    uint32_t heads, kv_heads;      /* heads % kv_heads == 0 */
    uint32_t head_dim, v_head_dim; /* of Q and K; of V and O */
    uint32_t dtype;                /* of Q, KV, O, DO, DQ, DKV: gyre_dtype */
    uint32_t wire_dtype;           /* of sums in a PUT */
    uint32_t sum_dtype;            /* of sums that are computed on */
    uint32_t stat_dtype;           /* of LSE and delta */
    uint32_t dtype_bytes, wire_bytes, sum_bytes, stat_bytes;
    uint64_t tokens[GYRE_SIDE_COUNT]; /* of one sequence */
    const gyre_chunk *chunks[GYRE_SIDE_COUNT];
    uint32_t chunk_count[GYRE_SIDE_COUNT];
    const uint64_t *rank_tokens[GYRE_SIDE_COUNT]; /* of each rank; as chunks,
                                                     NULL in check and grid */
    uint32_t node; /* ranks of a node: r is on node r / node; 0: one node */
    uint32_t reserved;
} gyre_problem;

/* Kinds of values.  KV and DKV hold K and V together, ST the planes LSE and
 * delta.  The last three are sums ("O*"): partial O with its LSE, and partial
 * gradients; they are born as the identity. */
enum {
    GYRE_VALUE_Q,
    GYRE_VALUE_KV,
    GYRE_VALUE_O,
    GYRE_VALUE_DO,
    GYRE_VALUE_ST,
    GYRE_VALUE_DQ,
    GYRE_VALUE_DKV,
    GYRE_VALUE_O_SUM,
    GYRE_VALUE_DQ_SUM,
    GYRE_VALUE_DKV_SUM,
    GYRE_VALUE_COUNT
};
enum {
    GYRE_PLANE_LSE =
        1u << 0, /* of ST; every other kind has the plane 1 alone */
    GYRE_PLANE_DELTA = 1u << 1
};

/* Ops with their views, in this order; [] may be GYRE_NO_VIEW.  PUT and GET
 * are written by put and get of the host. */
enum {
    GYRE_OP_PUT, /* a */
    GYRE_OP_GET, /* a */
    GYRE_OP_ATT, /* Q KV O* : adds every cell of rows(Q) x rows(KV) */
    GYRE_OP_GRD, /* Q DO ST KV [DQ*] [DKV*] : likewise */
    GYRE_OP_RED, /* a* b* : b += a */
    GYRE_OP_CPY, /* a b : b = a, for sums also a change of dtype */
    GYRE_OP_FIN, /* a* b [ST] : the one normalise and cast; ST.LSE from O* */
    GYRE_OP_DLT, /* O DO ST : delta = rowsum(DO * O) */
    GYRE_OP_COUNT
};
enum { GYRE_OP_VIEWS = 6, GYRE_PLAN_LANES = 8 };
#define GYRE_NO_VIEW UINT32_MAX
#define GYRE_NEW_BUF UINT32_MAX

/* What the members of a group are together. */
enum {
    GYRE_PATTERN_NONE,
    GYRE_PATTERN_A2A, /* all to all */
    GYRE_PATTERN_AG,  /* all-gather */
    GYRE_PATTERN_RS,  /* reduce-scatter: every member carries sums */
    GYRE_PATTERN_COUNT
};

enum {
    GYRE_SLOT_EXTERNAL = 1u << 0, /* the user's own buffer, at its owner */
    GYRE_SLOT_SAVED = 1u << 1     /* forward: kept for the backward pass;
                                     backward: bound to what forward kept */
};

typedef struct gyre_plan_slot {
    uint32_t kind; /* GYRE_VALUE_... */
    uint32_t rows; /* from owned, rows or join; on the kind's side */
    uint32_t h0, h1;
    uint32_t dtype;
    uint32_t buf; /* GYRE_NEW_BUF, or one to be reused */
    uint32_t flags;
    uint32_t reserved;
} gyre_plan_slot;

typedef struct gyre_builder gyre_builder;

/*
 * The mixed radix: one emitter behind most schedules.  A rank's number has five
 * digits, each with its size and stride (which digit stands for neighbours);
 * the strides are 1 and the products of the sizes below.  Digits of size 1 are
 * not there.  Forward, with Q and KV blocks by the four digits that are not
 * heads:
 *
 *     heads      all to all: fewer heads, the rows of all ranks of this digit
 *     q_gather   all-gather of Q rows, reduce-scatter of O*
 *     kv_gather  all-gather of KV rows
 *     outer,     ring of `moves`: `inner` steps, then one of outer, and so on;
 *     inner      the next transfer is under way while this block is computed
 *
 * so that each rank computes q_gather Q blocks by the other KV blocks.  In the
 * backward pass gathers are repeated and gradients scattered; what moves takes
 * its gradient along as a sum of its own, whose first hop is after step 1 and
 * whose own part never leaves home (hops = PUBLISHED: the sum begins at home
 * and makes as many hops as there are ranks in the ring).
 */
typedef struct gyre_radix_digit {
    uint32_t count, stride;
} gyre_radix_digit;

enum {
    GYRE_RADIX_DESCENDING = 1u << 0, /* rings pass on to the rank below */
    GYRE_RADIX_PUBLISHED = 1u << 1,
    GYRE_RADIX_KEEP_SPLIT = 1u << 2, /* keep Q, KV, O by heads for backward */
    GYRE_RADIX_MOVE_Q = 1u << 3,     /* the ring moves Q's side; KV stays */
    GYRE_RADIX_STRAIGHT = 1u << 4,   /* sums go straight home at each step */
    GYRE_RADIX_NESTED = 1u << 5 /* phases "inner" and "outer", not "ring" */
};

typedef struct gyre_radix {
    size_t size;
    gyre_radix_digit heads, q_gather, kv_gather, outer, inner;
    uint32_t flags;
    uint32_t strides; /* do it for so many parts of the KV heads in turn; at
                         least 1; more only without heads and rings */
} gyre_radix;

/*
 * What a schedule calls while it emits one rank.  Ids are of that rank and that
 * call; the same input gives the same id.  The first error is kept and ends the
 * plan, the functions go on returning harmless ids: no check is needed in
 * between.
 *
 * owned: the rows that `rank` owns.  rows: any chunks, sorted here, none twice.
 * join: union of two disjoint row sets of one side.
 * view: part of a slot; whole: all of it.
 * begin..end: one group; its puts and gets start together.  `phase` is a short
 *   name ("ring") under which bytes are counted.
 * put, get: the k-th put to a peer on a channel meets its k-th get from here.
 * op: any other op.
 * refuse: end the plan with this sentence.
 * radix: the whole program of this rank and pass, by the mixed radix.
 */
typedef struct gyre_plan_host {
    size_t size;
    const gyre_problem *(*problem)(const gyre_builder *builder);
    uint32_t (*owned)(gyre_builder *builder, uint32_t side, uint32_t rank);
    uint32_t (*rows)(gyre_builder *builder, uint32_t side,
                     const uint32_t *chunks, uint32_t count);
    uint32_t (*join)(gyre_builder *builder, uint32_t rows, uint32_t others);
    uint64_t (*row_tokens)(const gyre_builder *builder, uint32_t rows);
    uint32_t (*slot)(gyre_builder *builder, const gyre_plan_slot *slot);
    uint32_t (*view)(gyre_builder *builder, uint32_t slot, uint32_t rows,
                     uint32_t h0, uint32_t h1, uint32_t planes);
    uint32_t (*whole)(gyre_builder *builder, uint32_t slot);
    void (*begin)(gyre_builder *builder, uint32_t lane, const char *phase,
                  uint32_t pattern);
    void (*put)(gyre_builder *builder, uint32_t view, uint32_t peer,
                uint32_t channel);
    void (*get)(gyre_builder *builder, uint32_t view, uint32_t peer,
                uint32_t channel);
    void (*end)(gyre_builder *builder);
    void (*op)(gyre_builder *builder, uint32_t lane, uint32_t code,
               const uint32_t *views, uint32_t count);
    void (*refuse)(gyre_builder *builder, const char *text);
    void (*radix)(gyre_builder *builder, const gyre_radix *radix);
} gyre_plan_host;

/* Where a rank stands on the sequence: the host cuts it for `contexts` places
 * by the layout asked for (contiguous, zigzag, ...), then each place's pieces
 * evenly in `parts` neighbours.  context < contexts, part < parts, and every
 * pair belongs to one rank. */
typedef struct gyre_grid {
    uint32_t context, contexts;
    uint32_t part, parts;
} gyre_grid;

enum { GYRE_PLAN_PHASES = 8 };

/* Bytes of one rank in one phase of one pass; outer: those of them to and from
 * ranks on other nodes, 0 when there is one node. */
typedef struct gyre_phase_bytes {
    const char *phase;
    uint64_t sent, received;
    uint64_t outer_sent, outer_received;
} gyre_phase_bytes;

/*
 * values: of the parameter table.  All: any thread, no side effects.
 *
 * check: 0 when the schedule can do the problem; else nonzero and a sentence
 *   that says what is wrong and which numbers would work.  The others are only
 *   called after it.
 * grid: NULL: rank r is place r of `ranks`.
 * emit: the ops of one rank in one pass.
 * bytes: the closed form; fills out[GYRE_PLAN_PHASES], returns how many; phases
 *   without bytes are left out.
 * memory: the closed form of the bytes of all bufs of a rank, the user's own
 *   included.
 */
typedef struct gyre_schedule {
    size_t size;
    int (*check)(const double *values, const gyre_problem *problem, char *text,
                 size_t size);
    void (*grid)(const double *values, const gyre_problem *problem,
                 uint32_t rank, gyre_grid *out);
    void (*emit)(const double *values, uint32_t pass, uint32_t rank,
                 const gyre_plan_host *host, gyre_builder *builder);
    uint32_t (*bytes)(const double *values, const gyre_problem *problem,
                      uint32_t pass, uint32_t rank, gyre_phase_bytes *out);
    uint64_t (*memory)(const double *values, const gyre_problem *problem,
                       uint32_t pass, uint32_t rank);
} gyre_schedule;

/* ---- writing a schedule ------------------------------------------------ */

/*
 * Before including this header, define GY_SCHEDULE and GY_PARAMETERS, all of
 * them structural and at least one.  Then write the functions of gyre_schedule
 * (GY_VALUES_(values) turns values into a gy_values) and end with
 *
 *     static const gyre_schedule name = {sizeof(gyre_schedule), check, ...};
 *     GYRE_SCHEDULE(id, "name", "1.0.0", "summary", "licence", claims, &name)
 *     GYRE_MODULE(id, &gyre_plugin_id)
 */
#ifdef GY_SCHEDULE

#define GYRE_SCHEDULE(id, name, version, summary, licence, claims, descriptor) \
    static const gyre_build gy_build_ = GY_BUILD_(0, NULL);                    \
    static const gyre_parameter gy_parameter_table_[] = {                      \
        GY_PARAMETERS(GY_PARAMETER_ENTRY_)};                                   \
    GY_EXTERN_ __attribute__((visibility("hidden")))                           \
    const gyre_plugin gyre_plugin_##id;                                        \
    const gyre_plugin gyre_plugin_##id = {sizeof(gyre_plugin),                 \
                                          GYRE_KIND_SCHEDULE,                  \
                                          name,                                \
                                          version,                             \
                                          summary,                             \
                                          licence,                             \
                                          gy_parameter_table_,                 \
                                          sizeof(gy_parameter_table_) /        \
                                              sizeof(gy_parameter_table_[0]),  \
                                          claims,                              \
                                          &gy_build_,                          \
                                          descriptor,                          \
                                          NULL};

#endif /* GY_SCHEDULE */

#ifdef __cplusplus
}
#endif

#endif
