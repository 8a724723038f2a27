/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_forward.c - the schedule of one forward pass, for training and for
 * generation. Each line is one round of the pool:
 *
 *   per layer: rows (end of the previous layer, ln_1, c_attn)
 *              heads (attention)
 *   last:      rows (end of the last layer, ln_f, lm_head, loss)
 *
 * Why the products are cut here and not inside the BLAS: OpenBLAS 0.3.21
 * (SkylakeX kernels) repeats its own bits from run to run, and gives equal
 * bits for 1 to 4 threads where the shape is a multiple of its kernel; other
 * shapes (333 x 777 x 555, and 144 x 48 x 700 transposed) come out different
 * with 1 and with 2 threads. Blocks of fixed shape with one thread each are
 * free of that, at a small price (gpt_internal.h).
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <cblas.h>

/* y[rows][out] = beta y + x[rows][in] w[out][in]^T. One row, as in
 * generation, would cost sgemm a packed copy of w. */
static void linear(float *y, const float *x, const float *w, size_t rows,
                   size_t in, size_t out, float beta)
{
    if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)out, (int)in, 1.0f, w,
                    (int)in, x, 1, beta, y, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows,
                    (int)out, (int)in, 1.0f, x, (int)in, w, (int)in, beta, y,
                    (int)out);
}

/* ---- forward ---- */

static void begin_layer(const gpt_pass *p, size_t l, size_t r0, size_t rows)
{
    gpt *g = p->g;
    const size_t c = g->config.width;
    const gpt_layer *a = &g->ws.layer[l];

    gpt_layernorm(a->ln1 + r0 * c, a->mean1 + r0, a->rstd1 + r0, a->x0 + r0 * c,
                  gpt_data(g, l, GPT_LN1_W), gpt_data(g, l, GPT_LN1_B), rows,
                  c);
    gpt_fill_bias(a->qkv + r0 * 3 * c, NULL, gpt_data(g, l, GPT_ATTN_B), rows,
                  3 * c);
    linear(a->qkv + r0 * 3 * c, a->ln1 + r0 * c, gpt_data(g, l, GPT_ATTN_W),
           rows, c, 3 * c, 1.0f);
}

static void end_layer(const gpt_pass *p, size_t l, size_t r0, size_t rows)
{
    gpt *g = p->g;
    const size_t c = g->config.width;
    const gpt_layer *a = &g->ws.layer[l];
    float *out = l + 1 < g->config.layers ? g->ws.layer[l + 1].x0 : g->ws.x_out;

    gpt_fill_bias(a->x1 + r0 * c, a->x0 + r0 * c, gpt_data(g, l, GPT_PROJ_B),
                  rows, c);
    linear(a->x1 + r0 * c, a->att + r0 * c, gpt_data(g, l, GPT_PROJ_W), rows, c,
           c, 1.0f);
    gpt_layernorm(a->ln2 + r0 * c, a->mean2 + r0, a->rstd2 + r0, a->x1 + r0 * c,
                  gpt_data(g, l, GPT_LN2_W), gpt_data(g, l, GPT_LN2_B), rows,
                  c);
    gpt_fill_bias(a->fc + r0 * 4 * c, NULL, gpt_data(g, l, GPT_FC_B), rows,
                  4 * c);
    linear(a->fc + r0 * 4 * c, a->ln2 + r0 * c, gpt_data(g, l, GPT_FC_W), rows,
           c, 4 * c, 1.0f);
    gpt_gelu(a->act + r0 * 4 * c, a->fc + r0 * 4 * c, rows * 4 * c);
    gpt_fill_bias(out + r0 * c, a->x1 + r0 * c, gpt_data(g, l, GPT_PROJ2_B),
                  rows, c);
    linear(out + r0 * c, a->act + r0 * 4 * c, gpt_data(g, l, GPT_PROJ2_W), rows,
           4 * c, c, 1.0f);
}

static void end_model(const gpt_pass *p, size_t r0, size_t rows)
{
    gpt *g = p->g;
    gpt_workspace *ws = &g->ws;
    const size_t c = g->config.width;
    const gpt_parameter *tail = &g->parameter[g->parameters - 3];

    gpt_layernorm(ws->lnf + r0 * c, ws->mean_f + r0, ws->rstd_f + r0,
                  ws->x_out + r0 * c, tail[0].data, tail[1].data, rows, c);
    linear(ws->logits + r0 * GPT_VOCABULARY, ws->lnf + r0 * c, tail[2].data,
           rows, c, GPT_VOCABULARY, 0.0f);
    if (!p->targets)
        return;
    for (size_t r = r0; r < r0 + rows; r++)
        ws->losses[r] = gpt_cross_entropy(ws->logits + r * GPT_VOCABULARY,
                                          p->targets[r], p->gradient, p->scale);
}

static void forward_rows(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    gpt *g = p->g;
    size_t r0 = p->row0 + task * p->block;
    size_t r1 = gpt_piece_end(r0, p->block, p->row1);

    (void)worker;
    if (p->layer == 0)
        gpt_embed(g->ws.layer[0].x0, g->parameter[GPT_WTE].data,
                  g->parameter[GPT_WPE].data, p->tokens, r0, r1, p->length,
                  g->config.width);
    else
        end_layer(p, p->layer - 1, r0, r1 - r0);
    if (p->layer < g->config.layers)
        begin_layer(p, p->layer, r0, r1 - r0);
    else
        end_model(p, r0, r1 - r0);
}

gpt_head gpt_head_of(const gpt_pass *p, size_t task, size_t *offset)
{
    const gpt *g = p->g;
    const gpt_layer *a = &g->ws.layer[p->layer];
    const size_t c = g->config.width, dim = c / g->config.heads;
    const size_t row = task / g->config.heads * p->length;
    const size_t column = task % g->config.heads * dim;
    const float *qkv = a->qkv + row * 3 * c + column;

    *offset = row * 3 * c + column;
    return (gpt_head){.q = qkv,
                      .k = qkv + c,
                      .v = qkv + 2 * c,
                      .out = a->att + row * c + column,
                      .lse = a->lse + task * p->length,
                      .width = c,
                      .dim = dim,
                      .score_ld = g->ws.score_ld};
}

static void forward_heads(void *job, size_t task, size_t worker)
{
    const gpt_pass *p = job;
    const gpt_workspace *ws = &p->g->ws;
    size_t offset;
    gpt_head h = gpt_head_of(p, task, &offset);
    /* Generation computes the tail of one sequence, training all of each. */
    size_t q0 = p->batch == 1 ? p->row0 : 0;
    size_t q1 = p->batch == 1 ? p->row1 : p->length;

    gpt_attention(&h, q0, q1, ws->scratch + worker * ws->scratch_n);
}

bool gpt_attention_elsewhere(gpt_pass *p, bool backward)
{
    gpt *g = p->g;
    const gpt_layer *a = &g->ws.layer[p->layer];
    const size_t c = g->config.width;
    gpt_attention_job job = {.layer = p->layer,
                             .batch = p->batch,
                             .length = p->length,
                             .heads = g->config.heads,
                             .dim = c / g->config.heads,
                             .q = a->qkv,
                             .k = a->qkv + c,
                             .v = a->qkv + 2 * c,
                             .out = a->att};

    if (!g->by.forward || !p->targets)
        return false;
    if (backward) {
        job.dout = g->ws.datt;
        job.dq = g->ws.dwide;
        job.dk = g->ws.dwide + c;
        job.dv = g->ws.dwide + 2 * c;
    }
    p->failed = (backward ? g->by.backward : g->by.forward)(
                    g->by.user, &job, g->error, sizeof g->error) != 0;
    return true;
}

/* Announces what the next round of rows reads: rows of layer l end with
 * c_attn, the round after the last layer with the last parameter. */
static void await_parameters(gpt_pass *p)
{
    gpt *g = p->g;
    size_t end = p->layer < g->config.layers
                     ? GPT_FIRST_LAYER + p->layer * GPT_PER_LAYER + GPT_PROJ_W
                     : g->parameters;

    for (; p->awaited < end; p->awaited++)
        if (g->on_parameter)
            g->on_parameter(g, p->awaited, g->parameter_user);
}

void gpt_forward(gpt_pass *p)
{
    gpt *g = p->g;
    size_t blocks;

    p->block = gpt_row_block(p->row1 - p->row0, g->config.width);
    blocks = gpt_pieces(p->row1 - p->row0, p->block);
    for (p->layer = 0; p->layer < g->config.layers; p->layer++) {
        await_parameters(p);
        gpt_pool_run(g->pool, forward_rows, p, blocks);
        if (!gpt_attention_elsewhere(p, false))
            gpt_pool_run(g->pool, forward_heads, p, p->batch * g->config.heads);
        if (p->failed)
            return;
    }
    await_parameters(p);
    gpt_pool_run(g->pool, forward_rows, p, blocks);
}
