/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_internal.h - what the .c files of the gpt share: the model's memory,
 * the pool and the kernels.
 *
 * Memory of one gpt (all blocks 64-byte aligned):
 *
 *   struct | parameter table | names      one calloc each
 *   arena      data of every parameter, then grad of every parameter
 *   workspace  activations, then gradients of activations, then scratch
 *              (one slice for each worker)
 */
#ifndef GYRE_EXAMPLE_GPT_INTERNAL_H
#define GYRE_EXAMPLE_GPT_INTERNAL_H

#include <stdbool.h>

#include "gpt.h"

enum { GPT_ERROR_SIZE = 192, GPT_ALIGN = 64 };

/*
 * Shapes of the tiles, functions of the model and the batch only, never of
 * the number of threads. Each tile makes sgemm pack its operands anew, so
 * tiles are as large as leaves about eight (rows) or four (weights) of them.
 * Measured on one core of a busy machine against whole products, widths 128
 * to 768: sgemm takes 3 to 10 % longer for rows, 19 to 28 % for weight
 * gradients. With two thirds of a step in sgemm that makes about 8 %.
 */
static inline size_t gpt_clamp(size_t n, size_t low, size_t high)
{
    return n < low ? low : n > high ? high : n;
}

/* Rows in one task of the row-wise passes. Narrow models keep to fewer, so
 * that a task's activations stay in a second-level cache of 1 to 2 MiB. */
static inline size_t gpt_row_block(size_t rows, size_t width)
{
    size_t most = width <= 128 ? 128 : width <= 256 ? 256 : 512;

    return gpt_clamp((rows / 8 + 63) / 64 * 64, 128, most);
}

/* Rows of one tile of a weight gradient [out][in]; a multiple of the 16 of
 * the usual kernels. */
static inline size_t gpt_tile_out(size_t out)
{
    return gpt_clamp((out / 4 + 31) / 32 * 32, 64, 512);
}

enum { GPT_TILE_IN = 512 };
/* Query rows that attention handles at once; the causal half it skips is
 * exact to this granularity. */
enum { GPT_QUERY_BLOCK = 64 };

/* Offsets of one layer's parameters; layer l starts at 2 + 12 * l. */
enum {
    GPT_LN1_W,
    GPT_LN1_B,
    GPT_ATTN_W,
    GPT_ATTN_B,
    GPT_PROJ_W,
    GPT_PROJ_B,
    GPT_LN2_W,
    GPT_LN2_B,
    GPT_FC_W,
    GPT_FC_B,
    GPT_PROJ2_W,
    GPT_PROJ2_B,
    GPT_PER_LAYER
};
enum { GPT_WTE, GPT_WPE, GPT_FIRST_LAYER };

/* ---- pool ---- */

typedef struct gpt_pool gpt_pool;
typedef void (*gpt_task_fn)(void *job, size_t task, size_t worker);

gpt_pool *gpt_pool_create(size_t threads);
void gpt_pool_destroy(gpt_pool *pool);
size_t gpt_pool_memory(size_t threads);
/* Runs fn(job, 0..tasks-1, worker), in any order, and returns when all are
 * done. Two tasks of one worker never overlap; the caller is worker 0. */
void gpt_pool_run(gpt_pool *pool, gpt_task_fn fn, void *job, size_t tasks);

/* ---- activations of one layer, N = batch * length rows ---- */

typedef struct gpt_layer {
    float *x0;  /* [N][C] residual stream on entry */
    float *ln1; /* [N][C] */
    float *qkv; /* [N][3C] */
    float *lse; /* [batch][heads][length] log of the softmax denominators */
    float *att; /* [N][C] heads side by side */
    float *x1;  /* [N][C] residual stream after attention */
    float *ln2; /* [N][C] */
    float *fc;  /* [N][4C] before GELU */
    float *act; /* [N][4C] after GELU */
    float *mean1, *rstd1, *mean2, *rstd2; /* [N] */
} gpt_layer;

typedef struct gpt_workspace {
    size_t batch; /* capacity in sequences of `context`; 0: none */
    void *block;
    gpt_layer *layer;
    float *x_out, *lnf, *mean_f, *rstd_f;
    float *logits;                /* [N][256]; becomes its own gradient */
    double *losses;               /* [N] */
    float *dx, *dx1, *dln, *datt; /* [N][C] */
    float *dwide;                 /* [N][4C]: gradient of fc, later of qkv */
    float *scratch;               /* [threads][scratch_n] */
    size_t scratch_n;
    size_t score_ld;
} gpt_workspace;

struct gpt {
    gpt_config config;
    gpt_parameter *parameter;
    size_t parameters;
    char (*names)[GPT_NAME_BYTES];
    float *arena;
    gpt_pool *pool;
    gpt_workspace ws;
    gpt_gradient_fn on_gradient;
    void *gradient_user;
    gpt_parameter_fn on_parameter;
    void *parameter_user;
    gpt_attention_by by; /* forward NULL: our own */
    bool busy;           /* inside a call; refuses re-entry from a callback */
    char error[GPT_ERROR_SIZE];
};

static inline gpt_parameter *gpt_layer_parameter(gpt *g, size_t layer,
                                                 size_t which)
{
    return &g->parameter[GPT_FIRST_LAYER + layer * GPT_PER_LAYER + which];
}

static inline size_t gpt_pieces(size_t n, size_t piece)
{
    return n / piece + (n % piece != 0);
}

static inline size_t gpt_piece_end(size_t begin, size_t piece, size_t end)
{
    return end - begin < piece ? end : begin + piece;
}

static inline const float *gpt_data(gpt *g, size_t layer, size_t which)
{
    return gpt_layer_parameter(g, layer, which)->data;
}

void gpt_fail(gpt *g, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* ---- sizes (gpt_memory.c) ---- */

/* Replaces threads 0 and names what is wrong, or returns NULL. */
const char *gpt_check_config(gpt_config *config);
size_t gpt_parameter_total(const gpt_config *config);
/* Dimensions of parameter i; shape[1] is 0 for a vector. */
void gpt_parameter_shape(const gpt_config *config, size_t i, size_t shape[2]);
/* Bytes of data, then grad, 0 on overflow; carves them when g is given. */
size_t gpt_arena_layout(const gpt_config *config, gpt *g);
/* Bytes of the workspace, 0 on overflow; carves it when ws->block is set. */
size_t gpt_workspace_layout(const gpt_config *config, size_t batch,
                            gpt_workspace *ws);

/* ---- one forward pass, shared by training and generation ---- */

typedef struct gpt_pass {
    gpt *g;
    const int32_t *tokens;
    const int32_t *targets; /* NULL: no loss */
    size_t batch, length;
    size_t row0, row1; /* rows to compute; all, or one position onwards */
    size_t block;      /* rows in one task; set by gpt_forward */
    size_t layer;
    size_t awaited; /* parameters announced so far, by every forward pass */
    bool gradient;
    bool failed; /* by another's attention; g->error says why */
    float scale;
} gpt_pass;

/* Head number `task` of the pass's layer; offset is that of q in qkv. */
typedef struct gpt_head gpt_head;
gpt_head gpt_head_of(const gpt_pass *pass, size_t task, size_t *offset);
/* The whole layer by another; false when the gpt is to do it itself. */
bool gpt_attention_elsewhere(gpt_pass *pass, bool backward);
void gpt_forward(gpt_pass *pass);
void gpt_backward(gpt_pass *pass);

/* ---- kernels on rows (gpt_layers.c) ---- */

void gpt_embed(float *x, const float *wte, const float *wpe,
               const int32_t *tokens, size_t row0, size_t row1, size_t length,
               size_t width);
void gpt_layernorm(float *y, float *mean, float *rstd, const float *x,
                   const float *w, const float *b, size_t rows, size_t width);
/* dx = carry + gradient through the LayerNorm; carry may be NULL. */
void gpt_layernorm_backward(float *dx, const float *carry, const float *dy,
                            const float *x, const float *w, const float *mean,
                            const float *rstd, size_t rows, size_t width);
/* dw[c], db[c] for c in [c0, c1), summed over all rows. */
void gpt_layernorm_columns(float *dw, float *db, const float *dy,
                           const float *x, const float *mean, const float *rstd,
                           size_t rows, size_t width, size_t c0, size_t c1);
/* out[r][c] = carry[r][c] + bias[c]; carry may be NULL. */
void gpt_fill_bias(float *out, const float *carry, const float *bias,
                   size_t rows, size_t width);
void gpt_column_sums(float *out, const float *x, size_t rows, size_t width,
                     size_t c0, size_t c1);
void gpt_gelu(float *y, const float *x, size_t n);
void gpt_gelu_backward(float *dy_to_dx, const float *x, size_t n);
/* Cross-entropy of one row of logits; with gradient the row becomes
 * (softmax - one_hot) * scale. */
double gpt_cross_entropy(float *logits, int32_t target, bool gradient,
                         float scale);

/* ---- attention of one head of one sequence (gpt_attention.c) ---- */

struct gpt_head {
    const float *q, *k, *v; /* row stride 3C */
    float *out;             /* row stride C */
    float *lse;             /* [length] */
    size_t width, dim, score_ld;
};

void gpt_attention(const gpt_head *h, size_t q0, size_t q1, float *scratch);
/* dq, dk, dv have row stride 3C, dout C; overwrites all `length` rows. */
void gpt_attention_backward(const gpt_head *h, const float *dout, float *dq,
                            float *dk, float *dv, size_t length,
                            float *scratch);

/* ---- random numbers (gpt_random.c): pure functions of their arguments ---- */

uint64_t gpt_random_bits(uint64_t seed, uint64_t stream, uint64_t counter);
double gpt_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter);
void gpt_random_normal(float *out, size_t n, double deviation, uint64_t seed,
                       uint64_t stream);

#endif
