/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_backward.c - the schedule of one backward pass. Each line is one round
 * of the pool:
 *
 *   first:     rows (lm_head, ln_f); tiles of lm_head; ln_f
 *   per layer: rows (mlp, ln_2, attn.c_proj); tiles of c_proj, c_fc; ln_2;
 *              heads; tiles of attn.c_proj; rows (c_attn, ln_1); tiles of
 *              c_attn; ln_1
 *   last:      wte; wpe
 *
 * The gradient towards the inputs always comes before the gradients of the
 * weights it passes, so a weight may change once its gradient is announced.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <cblas.h>

/* dx[rows][in] = dy[rows][out] w[out][in] */
static void linear_backward(float *dx, const float *dy, const float *w,
                            size_t rows, size_t in, size_t out)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)in,
                (int)out, 1.0f, dy, (int)out, w, (int)in, 0.0f, dx, (int)in);
}

/* ---- gradients of parameters ---- */

typedef struct tile_job {
    float *dw, *db; /* db may be NULL */
    const float *dy, *x;
    const float *mean, *rstd;
    size_t rows, in, out;
} tile_job;

static void announce(gpt *g, const gpt_parameter *parameter)
{
    if (g->on_gradient)
        g->on_gradient(g, (size_t)(parameter - g->parameter), g->gradient_user);
}

/* dw = dy^T x; the first tile of each row also sums its columns of dy. */
static void weight_tile(void *job, size_t task, size_t worker)
{
    const tile_job *t = job;
    const size_t across = gpt_pieces(t->in, GPT_TILE_IN);
    const size_t down = gpt_tile_out(t->out);
    const size_t o0 = task / across * down;
    const size_t i0 = task % across * GPT_TILE_IN;
    const size_t o1 = gpt_piece_end(o0, down, t->out);
    const size_t i1 = gpt_piece_end(i0, GPT_TILE_IN, t->in);

    (void)worker;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(o1 - o0),
                (int)(i1 - i0), (int)t->rows, 1.0f, t->dy + o0, (int)t->out,
                t->x + i0, (int)t->in, 0.0f, t->dw + o0 * t->in + i0,
                (int)t->in);
    if (t->db && i0 == 0)
        gpt_column_sums(t->db, t->dy, t->rows, t->out, o0, o1);
}

/* weight is followed by its bias in the table, if it has one */
static void weight_gradient(const gpt_pass *p, gpt_parameter *weight, bool bias,
                            const float *dy, const float *x)
{
    gpt *g = p->g;
    tile_job job = {.dw = weight[0].grad,
                    .db = bias ? weight[1].grad : NULL,
                    .dy = dy,
                    .x = x,
                    .rows = p->row1,
                    .in = weight->shape[1],
                    .out = weight->shape[0]};

    gpt_pool_run(g->pool, weight_tile, &job,
                 gpt_pieces(job.out, gpt_tile_out(job.out)) *
                     gpt_pieces(job.in, GPT_TILE_IN));
    announce(g, &weight[0]);
    if (bias)
        announce(g, &weight[1]);
}

enum { NORM_COLUMNS = 16 };

static void norm_columns(void *job, size_t task, size_t worker)
{
    const tile_job *t = job;
    size_t c0 = task * NORM_COLUMNS;

    (void)worker;
    gpt_layernorm_columns(t->dw, t->db, t->dy, t->x, t->mean, t->rstd, t->rows,
                          t->out, c0, gpt_piece_end(c0, NORM_COLUMNS, t->out));
}

static void norm_gradient(const gpt_pass *p, gpt_parameter *weight,
                          const float *x, const float *mean, const float *rstd)
{
    gpt *g = p->g;
    tile_job job = {.dw = weight[0].grad,
                    .db = weight[1].grad,
                    .dy = g->ws.dln,
                    .x = x,
                    .mean = mean,
                    .rstd = rstd,
                    .rows = p->row1,
                    .out = g->config.width};

    gpt_pool_run(g->pool, norm_columns, &job,
                 gpt_pieces(job.out, NORM_COLUMNS));
    announce(g, &weight[0]);
    announce(g, &weight[1]);
}

/* Each task owns some bytes and adds the rows that hold them in order. */
enum { TOKENS_PER_TASK = 16 };

static void token_gradient(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    const size_t c = p->g->config.width;
    const int32_t t0 = (int32_t)(task * TOKENS_PER_TASK);
    float *grad = p->g->parameter[GPT_WTE].grad;

    (void)worker;
    for (size_t i = 0; i < TOKENS_PER_TASK * c; i++)
        grad[(size_t)t0 * c + i] = 0.0f;
    for (size_t r = 0; r < p->row1; r++) {
        int32_t token = p->tokens[r];

        if (token < t0 || token >= t0 + TOKENS_PER_TASK)
            continue;
        for (size_t i = 0; i < c; i++)
            grad[(size_t)token * c + i] += p->g->ws.dx[r * c + i];
    }
}

/* Positions past the length of this batch get 0. */
static void position_gradient(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    const size_t c = p->g->config.width;
    float *grad = p->g->parameter[GPT_WPE].grad + task * c;

    (void)worker;
    for (size_t i = 0; i < c; i++)
        grad[i] = 0.0f;
    if (task >= p->length)
        return;
    for (size_t r = task; r < p->row1; r += p->length)
        for (size_t i = 0; i < c; i++)
            grad[i] += p->g->ws.dx[r * c + i];
}

/* ---- backward ---- */

static void backward_end(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    gpt *g = p->g;
    gpt_workspace *ws = &g->ws;
    const size_t c = g->config.width;
    const gpt_parameter *tail = &g->parameter[g->parameters - 3];
    size_t r0 = task * p->block;
    size_t rows = gpt_piece_end(r0, p->block, p->row1) - r0;

    (void)worker;
    linear_backward(ws->dln + r0 * c, ws->logits + r0 * GPT_VOCABULARY,
                    tail[2].data, rows, c, GPT_VOCABULARY);
    gpt_layernorm_backward(ws->dx + r0 * c, NULL, ws->dln + r0 * c,
                           ws->x_out + r0 * c, tail[0].data, ws->mean_f + r0,
                           ws->rstd_f + r0, rows, c);
}

/* dx -> dx1 through the mlp, then datt through attn.c_proj */
static void backward_mlp(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    gpt *g = p->g;
    gpt_workspace *ws = &g->ws;
    const size_t c = g->config.width, l = p->layer;
    const gpt_layer *a = &ws->layer[l];
    size_t r0 = task * p->block;
    size_t rows = gpt_piece_end(r0, p->block, p->row1) - r0;
    float *dfc = ws->dwide + r0 * 4 * c;

    (void)worker;
    linear_backward(dfc, ws->dx + r0 * c, gpt_data(g, l, GPT_PROJ2_W), rows,
                    4 * c, c);
    gpt_gelu_backward(dfc, a->fc + r0 * 4 * c, rows * 4 * c);
    linear_backward(ws->dln + r0 * c, dfc, gpt_data(g, l, GPT_FC_W), rows, c,
                    4 * c);
    gpt_layernorm_backward(ws->dx1 + r0 * c, ws->dx + r0 * c, ws->dln + r0 * c,
                           a->x1 + r0 * c, gpt_data(g, l, GPT_LN2_W),
                           a->mean2 + r0, a->rstd2 + r0, rows, c);
    linear_backward(ws->datt + r0 * c, ws->dx1 + r0 * c,
                    gpt_data(g, l, GPT_PROJ_W), rows, c, c);
}

static void backward_heads(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    const gpt_workspace *ws = &p->g->ws;
    const size_t c = p->g->config.width;
    size_t offset;
    gpt_head h = gpt_head_of(p, task, &offset);
    float *d = ws->dwide + offset;

    gpt_attention_backward(&h, ws->datt + (h.out - ws->layer[p->layer].att), d,
                           d + c, d + 2 * c, p->length,
                           ws->scratch + worker * ws->scratch_n);
}

/* dx1 -> dx through c_attn and ln_1 */
static void backward_qkv(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    gpt *g = p->g;
    gpt_workspace *ws = &g->ws;
    const size_t c = g->config.width, l = p->layer;
    const gpt_layer *a = &ws->layer[l];
    size_t r0 = task * p->block;
    size_t rows = gpt_piece_end(r0, p->block, p->row1) - r0;

    (void)worker;
    linear_backward(ws->dln + r0 * c, ws->dwide + r0 * 3 * c,
                    gpt_data(g, l, GPT_ATTN_W), rows, c, 3 * c);
    gpt_layernorm_backward(ws->dx + r0 * c, ws->dx1 + r0 * c, ws->dln + r0 * c,
                           a->x0 + r0 * c, gpt_data(g, l, GPT_LN1_W),
                           a->mean1 + r0, a->rstd1 + r0, rows, c);
}

static void backward_layer(gpt_pass *p, size_t blocks)
{
    gpt *g = p->g;
    const gpt_workspace *ws = &g->ws;
    const gpt_layer *a = &ws->layer[p->layer];
    gpt_parameter *w = gpt_layer_parameter(g, p->layer, 0);

    gpt_pool_run(g->pool, backward_mlp, p, blocks);
    weight_gradient(p, &w[GPT_PROJ2_W], true, ws->dx, a->act);
    weight_gradient(p, &w[GPT_FC_W], true, ws->dwide, a->ln2);
    norm_gradient(p, &w[GPT_LN2_W], a->x1, a->mean2, a->rstd2);
    if (!gpt_attention_elsewhere(p, true))
        gpt_pool_run(g->pool, backward_heads, p, p->batch * g->config.heads);
    if (p->failed)
        return;
    weight_gradient(p, &w[GPT_PROJ_W], true, ws->dx1, a->att);
    gpt_pool_run(g->pool, backward_qkv, p, blocks);
    weight_gradient(p, &w[GPT_ATTN_W], true, ws->dwide, a->ln1);
    norm_gradient(p, &w[GPT_LN1_W], a->x0, a->mean1, a->rstd1);
}

void gpt_backward(gpt_pass *p)
{
    gpt *g = p->g;
    gpt_parameter *tail = &g->parameter[g->parameters - 3];
    const gpt_workspace *ws = &g->ws;
    size_t blocks = gpt_pieces(p->row1, p->block);

    gpt_pool_run(g->pool, backward_end, p, blocks);
    weight_gradient(p, &tail[2], false, ws->logits, ws->lnf);
    norm_gradient(p, &tail[0], ws->x_out, ws->mean_f, ws->rstd_f);
    for (p->layer = g->config.layers; p->layer-- > 0 && !p->failed;)
        backward_layer(p, blocks);
    if (p->failed)
        return;
    gpt_pool_run(g->pool, token_gradient, p, GPT_VOCABULARY / TOKENS_PER_TASK);
    announce(g, &g->parameter[GPT_WTE]);
    gpt_pool_run(g->pool, position_gradient, p, g->config.context);
    announce(g, &g->parameter[GPT_WPE]);
}
