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

#ifdef __cplusplus
}
#endif

#endif
