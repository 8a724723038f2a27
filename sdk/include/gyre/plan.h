/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an attention computes and how its tokens lie: masks and layouts.
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

/* ---- proof --------------------------------------------------------------- */

typedef struct gyre_plan gyre_plan;

typedef struct gyre_proof_options {
    size_t size;
    /* The closed forms that counted bytes and memory must equal, by rank: fills
     * phases[GYRE_PLAN_PHASES] and *memory (UINT64_MAX: not known) and returns
     * how many phases; phases without bytes may be left out.  NULL: no check. */
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

#ifdef __cplusplus
}
#endif

#endif
