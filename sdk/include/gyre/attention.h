/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact attention over many ranks: a plan that runs.
 *
 *     world --> attention (a request: schedule, problem, mask)
 *                   forward    Q K V        --> O [LSE]
 *                   backward   DO           --> DQ DK DV
 *
 * In a world of backend "threads" all ranks are in this process, with "mpi" one
 * is.  Each rank holds some tokens of every sequence, with all heads; which,
 * says gyre_attention_chunks.  A tensor of a rank has its tokens in the order
 * of those chunks.
 *
 * Forward keeps what backward needs, and the user's Q, K, V and O of the last
 * forward must stay as they are until backward has returned: backward reads
 * them there, takes no other, and is refused when no forward came before.  It
 * may be called again.
 *
 * Failure.  When a rank fails, all ranks get an error that says which rank, op
 * and cause; nothing hangs.  The world is then broken: close it, and open
 * another.
 *
 * Threads.  Of a world and all that was made over it one thread at a time uses
 * anything; forward and backward start a thread per rank and `workers` - 1 more
 * for it, and join them before they return.  With "mpi" every rank makes the
 * same calls in the same order.
 */
#ifndef GYRE_ATTENTION_H
#define GYRE_ATTENTION_H

#include <gyre/context.h>
#include <gyre/dtype.h>
#include <gyre/plan.h>
#include <gyre/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- world ------------------------------------------------------------- */

typedef struct gyre_world gyre_world;

/* Zero everything, set `size`, then what differs.  Copied. */
typedef struct gyre_world_request {
    size_t size;
    const char *backend; /* NULL: "threads"; "mpi", "nccl" */
    uint32_t ranks;      /* mpi: 0, or what MPI must have */
    uint32_t buffered;   /* threads: 1: a put ends at once, into a copy */
    uint64_t timeout;    /* ns that a message may take; 0: for ever */
    uint64_t delay;      /* ns at most, drawn before and after each message */
    uint64_t delay_seed;
    const char *const *phases; /* beside ring, inner, outer, a2a, gather,
                                  reduce */
    uint32_t phase_count;
    /* Ranks of a node: rank r is on node r / node, and the ledger has bytes
     * within nodes, class "inner", and between them, "outer", apart.  0: one
     * class, "peer". */
    uint32_t node;
} gyre_world_request;

/* Errors: INVALID, RANGE; NOT_FOUND or UNSUPPORTED for a backend that is not
 * here (says what to install); NO_MEMORY, SYSTEM. */
GYRE_API gyre_status gyre_world_open(gyre_context *context,
                                     const gyre_world_request *request,
                                     gyre_world **out, gyre_error *error);
/* After all that was made over it.  NULL is allowed. */
GYRE_API void gyre_world_close(gyre_world *world);
/* How many ranks there are, and which are in this process: *count from *first
 * on.  Any thread. */
GYRE_API uint32_t gyre_world_size(const gyre_world *world, uint32_t *first,
                                  uint32_t *count);
/* What every rank holds, to every process: `bytes[r]` of rank r, rank after
 * rank in `all`, where those of the ranks that are here lie already.  All
 * processes call with the same bytes; with one rank's alone it is a broadcast.
 * No ledger counts it.  Errors: INVALID; RANGE when the sum does not fit;
 * NO_MEMORY; what broke the world.  After an error it is broken for the others
 * as well. */
GYRE_API gyre_status gyre_world_gather(gyre_world *world, const size_t *bytes,
                                       void *all, gyre_error *error);
/* For a process that cannot go on: breaks the world, so that the others get
 * "rank R gave up: " and `why` where they would wait.  status: of that error,
 * OK stands for STOPPED.  Any thread; the first call counts. */
GYRE_API void gyre_world_give_up(gyre_world *world, gyre_status status,
                                 const char *why);

/* ---- attention --------------------------------------------------------- */

typedef struct gyre_attention gyre_attention;

/* Zero everything, set `size`, then what differs.  What pointers lead to need
 * not outlive the call, but for plans. */
typedef struct gyre_attention_options {
    size_t size;
    /* What to compute and how; `pass` is not read.  With forward set: those
     * plans instead, which must outlive the attention. */
    const gyre_plan_request *request;
    const gyre_plan *forward, *backward;
    uint32_t forward_only; /* 1: no backward pass, and nothing kept for it */
    /* Deterministic mode: every sequence is cut in so many tiles (fewer when
     * there are fewer tokens), each pair of tiles is computed alone and the
     * results are added in one fixed order: O and gradients have the same bits
     * for every schedule, layout and number of ranks whose chunks end where
     * tiles do.  240 fits 1 to 6 and 8 ranks in any layout but striped; as many
     * as tokens fits everything.  Costs memory and bytes by that factor,
     * see gyre_attention_measure.  0: off. */
    uint32_t tiles;
    /* NULL: by dtype; "f64", "f32", "bf16", "count"; or blocks on a device:
     * "opencl" and "cuda", with ":N" for another than the first, of f32 or
     * bf16.  Each rank and pass opens it for itself; where it is missing, open
     * fails. */
    const char *kernel;
    double scale;   /* 0: 1 / sqrt(head_dim); finite in the dtype of sums */
    double dropout; /* 0 <= p < 1 */
    uint64_t seed;  /* of dropout: a pair (batch, head, q, k) is kept or not,
                       whatever the schedule */
    const float *slopes; /* [heads] of ALiBi, finite: - slope |q - k|; or NULL
                          */
    uint64_t delay;      /* ns at most before each computing op, for tests */
    uint64_t delay_seed;
    /* To time a schedule on a machine that is too small for it: above 0, ATT
     * and GRD compute nothing and sleep as long as their operations, counted as
     * gyre_plan_time does, take at so many a second.  All else is done, bytes
     * travel.  Results are those of a mask that allows nothing: zeros, LSE
     * -inf. */
    double flops;
    /* Threads that compute for each rank that is here, 1 to 1024; no bit
     * depends on it.  0: the cores that this process may use over its ranks, or
     * all over the ranks of this machine when that is less, at least 1.  Blocks
     * on a device have their own. */
    uint32_t workers;
    uint32_t reserved;
} gyre_attention_options;

/* Makes the plans and takes all memory.  Ranks in several processes: all open
 * it, and INVALID says which was given another plan or option that decides
 * results (delay, workers and devices may differ).  Errors: INVALID, RANGE,
 * PLAN, NOT_FOUND, PARAMETER, UNSUPPORTED, NO_MEMORY.  The world outlives it.
 */
GYRE_API gyre_status gyre_attention_open(gyre_context *context,
                                         gyre_world *world,
                                         const gyre_attention_options *options,
                                         gyre_attention **out,
                                         gyre_error *error);
/* NULL is allowed. */
GYRE_API void gyre_attention_close(gyre_attention *attention);

/* The chunks of a rank on a side, in the order of its tokens; valid until
 * close.  Returns how many. */
GYRE_API uint32_t gyre_attention_chunks(const gyre_attention *attention,
                                        uint32_t rank, uint32_t side,
                                        const gyre_chunk **out);
/* Tokens of a rank on a side. */
GYRE_API uint64_t gyre_attention_tokens(const gyre_attention *attention,
                                        uint32_t rank, uint32_t side);

/* Element (b, t, h, d) lies at at[b * batch + t * token + h * head + d], in
 * elements of the plan's dtype; LSE has no d and is f32, or f64 when the dtype
 * is. */
typedef struct gyre_attention_tensor {
    void *at;
    size_t batch, token, head;
} gyre_attention_tensor;

/* Of one rank.  q, o, lse, d_o, d_q: query heads; k, v, d_k, d_v: KV heads. */
typedef struct gyre_attention_tensors {
    gyre_attention_tensor q, k, v;       /* forward reads */
    gyre_attention_tensor o;             /* forward writes */
    gyre_attention_tensor lse;           /* at NULL: not wanted */
    gyre_attention_tensor d_o;           /* backward reads */
    gyre_attention_tensor d_q, d_k, d_v; /* backward writes */
} gyre_attention_tensors;

/*
 * tensors: one for each rank in this process.  Outputs are undefined on an
 * error.  forward: lse is UNSUPPORTED where the schedule leaves the statistics
 * elsewhere.  backward: STATE without a forward before, or when opened
 * forward_only.  Errors: MISSING for a tensor, NO_MEMORY, SYSTEM, PEER and what
 * else broke the world.
 */
GYRE_API gyre_status gyre_attention_forward(
    gyre_attention *attention, const gyre_attention_tensors *tensors,
    gyre_error *error);
GYRE_API gyre_status gyre_attention_backward(
    gyre_attention *attention, const gyre_attention_tensors *tensors,
    gyre_error *error);

/* ---- what it costs ------------------------------------------------------- */

/* Bytes of a rank. */
typedef struct gyre_attention_cost {
    size_t size;
    uint64_t bufs[GYRE_PASS_COUNT];     /* of the plan, the user's included */
    uint64_t external[GYRE_PASS_COUNT]; /* of them the user's tensors */
    uint64_t saved;                     /* of backward's: kept by forward */
    uint64_t leaves[GYRE_PASS_COUNT];   /* more, for deterministic mode */
    uint64_t scratch[GYRE_PASS_COUNT];  /* of the kernel, all workers (0: of
                                           one); a device takes as much again */
    uint64_t sent[GYRE_PASS_COUNT], received[GYRE_PASS_COUNT];
    uint64_t leaves_sent[GYRE_PASS_COUNT]; /* beyond sent, for deterministic
                                              mode */
    uint64_t leaves_received[GYRE_PASS_COUNT];
} gyre_attention_cost;

/* Without running anything, and without a world.  Any thread. */
GYRE_API gyre_status gyre_attention_measure(
    gyre_context *context, const gyre_attention_options *options, uint32_t rank,
    gyre_attention_cost *out, gyre_error *error);

/* What a rank that is here has moved in its last forward or backward. */
typedef struct gyre_attention_link {
    const char *phase; /* "ring", ... */
    const char *klass; /* of link */
    uint64_t sent, received;
    uint64_t planned_sent, planned_received; /* with leaves */
} gyre_attention_link;
/* Calls `each` for phases and classes with bytes, planned or moved; nonzero
 * stops.  Errors: STATE before that pass, RANGE for a rank elsewhere. */
GYRE_API gyre_status gyre_attention_ledger(
    const gyre_attention *attention, uint32_t pass, uint32_t rank,
    int (*each)(void *user, const gyre_attention_link *link), void *user,
    gyre_error *error);

/* ---- trial --------------------------------------------------------------- */

/*
 * Runs a plan forward and backward on random Q, K, V and DO, which depend on
 * the seed and positions alone, and compares with the definition, computed in
 * f64 without any schedule:
 *
 *     count             exact
 *     f64               1e-12 of the largest value of the tensor
 *     f32, bf16         twice the error of one rank with the same kernel, at
 *                       least 4 eps of the largest value, and half an eps of
 *                       f32 for each rank
 *     ... bf16 wire     (1 + cast depth) / 256 of the largest value: that of
 *                       forward for O, of both passes for gradients; LSE is
 *                       f32 there, too
 *
 * What is not finite is wrong, also where one rank has it, too.
 *
 * and the bytes that each rank moved with the plan's.  With "mpi" rank 0 makes
 * the comparison and all ranks get its result.
 */
enum {
    GYRE_TRIAL_O,
    GYRE_TRIAL_LSE,
    GYRE_TRIAL_DQ,
    GYRE_TRIAL_DK,
    GYRE_TRIAL_DV,
    GYRE_TRIAL_TENSORS
};

typedef struct gyre_trial_tensor {
    const char *name;  /* "O", "LSE", "DQ", "DK", "DV" */
    uint32_t compared; /* 0: not computed, or held nowhere */
    uint32_t ok;
    double max_abs_error;
    double max_rel_error; /* max |error| / max |reference| */
    double bound;         /* of max_abs_error */
    uint64_t hash;        /* of all bits, in the order of positions */
} gyre_trial_tensor;

typedef struct gyre_trial {
    size_t size;
    uint32_t ok;        /* tensors and ledger */
    uint32_t ledger_ok; /* every rank moved what its plan says */
    uint32_t bad_rank;  /* of the ledger */
    uint32_t reserved;
    gyre_trial_tensor tensor[GYRE_TRIAL_TENSORS];
} gyre_trial;

typedef struct gyre_trial_options {
    size_t size;
    uint64_t seed;
    /* The ledger, by pass and rank; only where the comparison is made. */
    void (*link)(void *user, uint32_t pass, uint32_t rank,
                 const gyre_attention_link *link);
    void *user;
} gyre_trial_options;

/* A comparison that fails is GYRE_OK with ok 0.  Errors: those of open, forward
 * and backward.  world NULL: one of threads is made for it. */
GYRE_API gyre_status gyre_attention_trial(gyre_context *context,
                                          gyre_world *world,
                                          const gyre_attention_options *options,
                                          const gyre_trial_options *trial,
                                          gyre_trial *out, gyre_error *error);

#ifdef __cplusplus
}
#endif

#endif
