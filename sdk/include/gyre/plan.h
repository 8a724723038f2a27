/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over several ranks as a plan: masks, layouts, and plans made by a
 * schedule plugin.  gyre-plan(5) is the manual of plans.
 *
 *     gyre_plan_request request = {sizeof(request), "ring"};
 *     request.ranks = 8; ...
 *     gyre_plan_make(context, &request, &plan, &error);
 *
 *     allowed(b, q, k) = k <= q              when causal
 *                    and |q - k| < window    when window > 0
 *                    and same document       when documents are given
 *                    and its block is set    when blocks are given
 *
 * q and k are positions of tokens in one sequence of the batch.
 */
#ifndef GYRE_PLAN_H
#define GYRE_PLAN_H

#include <gyre/context.h>
#include <gyre/dtype.h>
#include <gyre/plugin.h>
#include <gyre/registry.h>
#include <gyre/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Packed documents of one sequence: document i has positions bounds[i] ..
 * bounds[i + 1] - 1; ascending, count + 1 bounds.  A token in no document is
 * masked from and to everything. */
typedef struct gyre_documents {
    const uint64_t *bounds;
    uint32_t count;
    uint32_t reserved;
} gyre_documents;

typedef struct gyre_mask {
    size_t size;
    uint32_t causal;         /* 0 or 1 */
    uint32_t document_count; /* tables: 0 none, 1 for all, or one a sequence */
    uint64_t window;         /* 0: none */
    const gyre_documents *documents;
    const uint8_t *blocks; /* block_rows x block_columns, row by row; or NULL */
    uint64_t block_q, block_k; /* positions of a block */
    uint32_t block_rows, block_columns;
} gyre_mask;

typedef enum gyre_layout {
    GYRE_LAYOUT_CONTIGUOUS = 0, /* one run of positions a place */
    GYRE_LAYOUT_ZIGZAG = 1,     /* run i and run 2N - 1 - i */
    GYRE_LAYOUT_STRIPED = 2,    /* every N-th position */
    GYRE_LAYOUT_DOCUMENTS = 3,  /* each document zigzag on its own */
    GYRE_LAYOUT_COUNT
} gyre_layout;

/* "contiguous", ...; NULL for an unknown number.  Any thread. */
GYRE_API const char *gyre_layout_name(uint32_t layout);
/* By name; RANGE and the list of names when unknown.  Any thread. */
GYRE_API gyre_status gyre_layout_parse(const char *name, uint32_t *out,
                                       gyre_error *error);

/* ---- making a plan ------------------------------------------------------ */

typedef struct gyre_plan gyre_plan;

typedef enum gyre_drop {
    GYRE_DROP_NONE = 0, /* send what the published formulas say */
    GYRE_DROP_DEAD = 1  /* leave out rows that no cell needs, empty sums */
} gyre_drop;

/* What 0 or NULL stands for is in brackets. */
typedef struct gyre_plan_request {
    size_t size;
    const char *schedule; /* name of a plugin of kind gyre.schedule/1 */
    const gyre_setting *settings;
    size_t setting_count;
    uint32_t pass; /* GYRE_PASS_FORWARD, GYRE_PASS_BACKWARD */
    uint32_t drop; /* gyre_drop */
    uint32_t ranks;
    uint32_t batch; /* [1] */
    uint32_t heads;
    uint32_t kv_heads; /* [heads] */
    uint32_t head_dim;
    uint32_t v_head_dim; /* [head_dim] */
    uint32_t dtype;      /* of Q, K, V, O and gradients: gyre_dtype */
    uint32_t wire_dtype; /* of partial sums between ranks [f32] */
    uint64_t tokens;     /* of Q in one sequence */
    uint64_t kv_tokens;  /* [tokens] */
    uint32_t layout;     /* gyre_layout, by the schedule's grid of ranks; */
    uint32_t chunk_count[GYRE_SIDE_COUNT]; /* or [0] a table of the user's */
    const gyre_chunk *chunks[GYRE_SIDE_COUNT];
    const gyre_mask *mask; /* [full] */
    /* A schedule of the caller's instead of a plugin, which `schedule` then
     * only names: called once a rank, from the calling thread.  Rank r is place
     * r of the layout; there are no settings and no closed forms. */
    void (*emit)(void *user, uint32_t pass, uint32_t rank,
                 const gyre_plan_host *host, gyre_builder *builder);
    void *emit_user;
    /* Ranks of a node: rank r is on node r / node, and bytes between nodes are
     * counted by themselves [0: all on one]. */
    uint32_t node;
    uint32_t reserved;
} gyre_plan_request;

/* Find the plugin, check settings and problem, lay the tokens out, emit every
 * rank, prune when asked to.  Errors: those of gyre_plugin_find; PARAMETER;
 * INVALID, also with the schedule's own sentence; PLAN; NO_MEMORY.  A plan is
 * constant, any thread may read it, and the context must outlive it. */
GYRE_API gyre_status gyre_plan_make(gyre_context *context,
                                    const gyre_plan_request *request,
                                    gyre_plan **out, gyre_error *error);
/* NULL is fine. */
GYRE_API void gyre_plan_free(gyre_plan *plan);

typedef struct gyre_plan_info {
    size_t size;
    const char *schedule; /* as long as the plan */
    uint32_t pass, ranks;
    uint64_t op_count, unit_count; /* over all ranks */
    uint32_t phase_count;
    uint32_t reserved;
    const char *phases[GYRE_PLAN_PHASES];
} gyre_plan_info;

/* Set info->size first; fields beyond it are not written.  Any thread. */
GYRE_API void gyre_plan_get_info(const gyre_plan *plan, gyre_plan_info *info);
/* Bytes counted op by op, by link: all, and those between nodes;
 * out[GYRE_PLAN_PHASES].  Phases without bytes on this
 * rank are left out.  Errors: RANGE. */
GYRE_API gyre_status gyre_plan_rank_bytes(const gyre_plan *plan, uint32_t rank,
                                          gyre_phase_bytes *out,
                                          uint32_t *count, gyre_error *error);
/* Bytes of all bufs of a rank, and of those that the user owns.  Errors: RANGE,
 * NO_MEMORY. */
GYRE_API gyre_status gyre_plan_rank_memory(const gyre_plan *plan, uint32_t rank,
                                           uint64_t *bytes, uint64_t *external,
                                           gyre_error *error);
/* The same two by the plugin's closed forms, without emitting anything: of an
 * unpruned plan.  out[GYRE_PLAN_PHASES].  Errors: as gyre_plan_make. */
GYRE_API gyre_status gyre_plan_formula(gyre_context *context,
                                       const gyre_plan_request *request,
                                       uint32_t rank, gyre_phase_bytes *out,
                                       uint32_t *count, uint64_t *memory,
                                       gyre_error *error);

/* ---- proof --------------------------------------------------------------- */

typedef struct gyre_proof_options {
    size_t size;
    /* The closed forms that counted bytes and memory must equal, by rank: fills
     * phases[GYRE_PLAN_PHASES] and *memory (UINT64_MAX: not known) and returns
     * how many phases; phases without bytes may be left out.  NULL: no check.
     */
    uint32_t (*expect)(void *user, uint32_t rank, gyre_phase_bytes *phases,
                       uint64_t *memory);
    void *user;
    /* Of a backward plan: the forward plan, which must keep every slot that the
     * backward binds.  NULL: believed. */
    const gyre_plan *forward;
    /* What a byte costs on the critical path when one (query, key) pair of one
     * head costs 1. */
    double byte_cost;
    uint32_t expanded; /* 1: no quotient even where all ranks are alike */
    uint32_t reserved;
} gyre_proof_options;

typedef struct gyre_proof {
    size_t size;
    uint32_t ok;
    uint32_t quotient;     /* 1: one program was proven for all ranks */
    uint32_t one_lane;     /* no deadlock on one communication lane either */
    uint32_t cast_depth;   /* most narrowings of a sum before it is final */
    uint64_t ops;          /* of all ranks */
    uint64_t peak_bytes;   /* largest memory of a rank */
    uint64_t sent_bytes;   /* of all ranks */
    uint64_t unused_bytes; /* received, and of no use to the receiver itself */
    uint64_t dead_bytes;   /* received, and of no use to anyone */
    double balance;        /* largest work of a rank over the mean; 1 is best */
    double work;           /* largest work: pairs x heads */
    double critical_path;  /* with byte_cost */
    /* Of a plan that is wrong: where, GYRE_NO_VIEW for what does not apply,
     * and a sentence. */
    uint32_t rank, op;
    uint32_t q_chunk, kv_chunk, head;
    uint32_t reserved;
    char reason[256];
} gyre_proof;

/*
 * Show that a plan is right under every order that its lanes and waits allow:
 * types, matching transfers, no deadlock, each cell exactly once, outputs at
 * home, bytes and memory as expected.  A wrong plan is GYRE_OK with ok = 0.
 * unused_bytes, dead_bytes, balance, work and critical_path are counted for
 * the mask; in a quotient for the full mask.  options may be NULL.  Linear in
 * ops.  Any thread; the plan stays as it is.  Errors: NO_MEMORY.
 */
GYRE_API gyre_status gyre_plan_prove(const gyre_plan *plan,
                                     const gyre_proof_options *options,
                                     gyre_proof *out, gyre_error *error);
/* The same of what gyre_plan_make would make, without keeping all ranks where
 * they are alike, and against the schedule's own closed forms unless options
 * has others or rows are dropped.  Errors: as gyre_plan_make. */
GYRE_API gyre_status gyre_plan_prove_request(gyre_context *context,
                                             const gyre_plan_request *request,
                                             const gyre_proof_options *options,
                                             gyre_proof *out,
                                             gyre_error *error);

/* ---- plans as files ---------------------------------------------------- */

/* Takes `size` bytes; the first status that is not OK ends the writing and is
 * what the writer returns. */
typedef gyre_status gyre_plan_write(void *user, const void *data, size_t size,
                                    gyre_error *error);

/* All of a plan, as text or as bytes; gyre-plan(5) describes both.  The same
 * plan gives the same bytes.  Any thread.  Errors: NO_MEMORY, and those of
 * `write`. */
GYRE_API gyre_status gyre_plan_write_text(const gyre_plan *plan,
                                          gyre_plan_write *write, void *user,
                                          gyre_error *error);
GYRE_API gyre_status gyre_plan_write_binary(const gyre_plan *plan,
                                            gyre_plan_write *write, void *user,
                                            gyre_error *error);

/* Read either back; `file` names the bytes in messages.  What comes out has
 * ids that exist and nothing more is promised: prove it.  gyre_plan_free ends
 * it.  Any thread.  Errors: FORMAT with the line or byte, CORRUPT (the sum of
 * a binary plan), NO_MEMORY. */
GYRE_API gyre_status gyre_plan_read(gyre_context *context, const char *file,
                                    const void *data, size_t size,
                                    gyre_plan **out, gyre_error *error);

/* ---- looking at a plan ------------------------------------------------- */

/* One view of an op.  chunks: of side `side`, in the plan's table. */
typedef struct gyre_plan_part {
    uint32_t kind, dtype, slot, buf, flags; /* GYRE_VALUE_, GYRE_SLOT_ */
    uint32_t h0, h1, planes;
    uint32_t side, chunk_count;
    const uint32_t *chunks; /* ascending */
    uint64_t tokens, bytes;
    uint32_t absent; /* 1: left out, and all above is 0 */
    uint32_t reserved;
} gyre_plan_part;

/* One op of one rank.  Ops of a group share `unit` and stand together. */
typedef struct gyre_plan_step {
    size_t size;
    uint32_t rank, op, unit;
    uint32_t code, lane;    /* GYRE_OP_ */
    uint32_t peer, channel; /* of PUT and GET; else GYRE_NO_VIEW, 0 */
    uint32_t pattern;       /* of its group: GYRE_PATTERN_ */
    const char *phase;      /* of its group, or "" */
    uint64_t pairs;         /* ATT, GRD: allowed (q, k) pairs x heads */
    double begin, end;      /* seconds; gyre_plan_time alone fills them */
    uint32_t part_count;
    uint32_t reserved;
    gyre_plan_part parts[GYRE_OP_VIEWS];
} gyre_plan_step;

/* Returning other than OK ends the walk with that status. */
typedef gyre_status gyre_plan_each(void *user, const gyre_plan_step *step,
                                   gyre_error *error);
/* All ops of a rank in program order.  Any thread.  Errors: RANGE for a rank
 * that is not, and those of `each`. */
GYRE_API gyre_status gyre_plan_walk(const gyre_plan *plan, uint32_t rank,
                                    gyre_plan_each *each, void *user,
                                    gyre_error *error);
/* Which units each unit waits for, the one before it on its lane included: all
 * below it; count 0 for the first.  Any thread.  Errors: RANGE, NO_MEMORY, and
 * those of `each`. */
GYRE_API gyre_status gyre_plan_waits(
    const gyre_plan *plan, uint32_t rank,
    gyre_status (*each)(void *user, uint32_t unit, const uint32_t *waits,
                        uint32_t count, gyre_error *error),
    void *user, gyre_error *error);
/* "ATT Q[0 3] KV[1 2] -> O*[0 3]" of a step: heads where they are not all, a
 * dtype and the peer of transfers.  Cut at `size`; returns `text`. */
GYRE_API const char *gyre_plan_step_text(const gyre_plan *plan,
                                         const gyre_plan_step *step, char *text,
                                         size_t size);
/* "Q", "KV*", ...; "PUT", ...; "?" for an unknown number.  Any thread. */
GYRE_API const char *gyre_plan_kind_name(uint32_t kind);
GYRE_API const char *gyre_plan_op_name(uint32_t code);
/* What the plan is for; chunks are the plan's, and the name is. */
GYRE_API const gyre_problem *gyre_plan_problem(const gyre_plan *plan);
GYRE_API const gyre_mask *gyre_plan_mask(const gyre_plan *plan);
GYRE_API const char *gyre_plan_name(const gyre_plan *plan);
GYRE_API uint32_t gyre_plan_pass(const gyre_plan *plan);

/* What things take. */
typedef struct gyre_plan_rates {
    size_t size;
    double flops;   /* of ATT and GRD, per second */
    double memory;  /* of all other ops, bytes per second */
    double link;    /* of a node, each way, bytes per second */
    double latency; /* of a group, seconds */
    /* Above 1: rank r is on node r / node, else on one of its own.  What
     * travels within a node has a link of its rank with near_link instead. */
    double near_link;
    uint32_t node;
    uint32_t reserved;
} gyre_plan_rates;

/*
 * The walk of all ranks by time: a unit begins when its lane and all it waits
 * for are done; a group ends when the last of its transfers does.  A transfer
 * is ready when both groups have begun, then has its turn on the link that it
 * leaves by and on that by which it comes.  Sorted by rank, then as
 * gyre_plan_walk.  *total: the end of the last.  Any thread.  Errors:
 * NO_MEMORY; PLAN for a plan that deadlocks or whose transfers do not match;
 * INVALID for a rate of 0 or below.
 */
GYRE_API gyre_status gyre_plan_time(const gyre_plan *plan,
                                    const gyre_plan_rates *rates,
                                    gyre_plan_each *each, void *user,
                                    double *total, gyre_error *error);

/* One thing that two plans do not share. */
typedef struct gyre_plan_difference {
    size_t size;
    const char *what;    /* "problem", "slot", "buf", "group", "op" */
    uint32_t rank;       /* GYRE_NO_VIEW: of the problem */
    uint32_t one, other; /* index in each plan; GYRE_NO_VIEW: not there */
    const char *text;    /* what it is, until the callback returns */
} gyre_plan_difference;

/*
 * Compare: the problem, then by rank the slots, groups and ops as the shortest
 * list of those that must go and come, and the bufs where all slots are alike.
 * Everything that a file keeps is compared but the plan's name and the numbers
 * of row sets, views and bufs: 0 differences, and the plans do the same.
 * *count: how many; `each` may be NULL.  Any thread.  Errors: NO_MEMORY.
 */
GYRE_API gyre_status
gyre_plan_diff(const gyre_plan *one, const gyre_plan *other,
               void (*each)(void *user, const gyre_plan_difference *difference),
               void *user, uint64_t *count, gyre_error *error);

#ifdef __cplusplus
}
#endif

#endif
