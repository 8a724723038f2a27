/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt.c - creation and the public entry points of the gpt.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
/* Present when the BLAS is OpenBLAS. */
extern void openblas_set_num_threads(int) __attribute__((weak));
#endif

/* ---- creation ---- */

static const char *const layer_names[GPT_PER_LAYER] = {
    "ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
    "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

int gpt_parameter_plan(const gpt_config *config, size_t i,
                       char name[GPT_NAME_BYTES], gpt_parameter *out)
{
    static const char *const tail_names[] = {"ln_f.weight", "ln_f.bias",
                                             "lm_head.weight"};
    size_t total = gpt_parameter_total(config), tail = total - 3;
    gpt_parameter p = {.name = name};

    if (i >= total)
        return -1;
    if (i == GPT_WTE || i == GPT_WPE)
        snprintf(name, GPT_NAME_BYTES, "%s",
                 i == GPT_WTE ? "wte.weight" : "wpe.weight");
    else if (i >= tail)
        snprintf(name, GPT_NAME_BYTES, "%s", tail_names[i - tail]);
    else
        snprintf(name, GPT_NAME_BYTES, "h.%zu.%s",
                 (i - GPT_FIRST_LAYER) / GPT_PER_LAYER,
                 layer_names[(i - GPT_FIRST_LAYER) % GPT_PER_LAYER]);
    gpt_parameter_shape(config, i, p.shape);
    p.rank = p.shape[1] ? 2 : 1;
    p.decay = p.rank == 2;
    if (p.rank == 1)
        p.shape[1] = 1;
    p.n = p.shape[0] * p.shape[1];
    *out = p;
    return 0;
}

static void describe(gpt *g, size_t i)
{
    gpt_parameter planned, *p = &g->parameter[i];

    gpt_parameter_plan(&g->config, i, g->names[i], &planned);
    planned.data = p->data;
    planned.grad = p->grad;
    *p = planned;
}

static void initialise(gpt *g)
{
    const double residual = 0.02 / sqrt(2.0 * (double)g->config.layers);

    for (size_t i = 0; i < g->parameters; i++) {
        gpt_parameter *p = &g->parameter[i];
        bool norm = strstr(p->name, "ln_") != NULL;
        bool bias = strstr(p->name, ".bias") != NULL;

        if (p->rank == 2)
            gpt_random_normal(p->data, p->n,
                              strstr(p->name, "c_proj") ? residual : 0.02,
                              g->config.seed, i);
        else
            for (size_t k = 0; k < p->n; k++)
                p->data[k] = norm && !bias ? 1.0f : 0.0f;
        memset(p->grad, 0, p->n * sizeof *p->grad);
    }
}

gpt *gpt_create(const gpt_config *config, char *errbuf, size_t errsize)
{
    const char *why = "no configuration";
    gpt_config checked = {0};
    size_t bytes = 0;
    gpt *g;

    if (config) {
        checked = *config;
        why = gpt_check_config(&checked);
    }
    if (!why && (bytes = gpt_arena_layout(&checked, NULL)) == 0)
        why = "the model is too large to address";
    if (why) {
        if (errbuf)
            snprintf(errbuf, errsize, "gpt: %s", why);
        return NULL;
    }
    g = calloc(1, sizeof *g);
    if (g) {
        g->config = checked;
        g->parameters = gpt_parameter_total(&checked);
        g->parameter = calloc(g->parameters, sizeof *g->parameter);
        g->names = calloc(g->parameters, sizeof *g->names);
        g->arena = aligned_alloc(GPT_ALIGN, bytes);
        g->pool = gpt_pool_create(checked.threads);
    }
    if (!g || !g->parameter || !g->names || !g->arena || !g->pool) {
        if (errbuf)
            snprintf(errbuf, errsize,
                     "gpt: no memory or threads: %zu bytes of weights and "
                     "gradients, %zu threads",
                     bytes, checked.threads);
        gpt_destroy(g);
        return NULL;
    }
    gpt_arena_layout(&g->config, g);
    for (size_t i = 0; i < g->parameters; i++)
        describe(g, i);
    initialise(g);
#if defined(__GNUC__)
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
#endif
    return g;
}

void gpt_release(gpt *g)
{
    if (g->busy)
        return;
    free(g->ws.block);
    g->ws = (gpt_workspace){0};
}

void gpt_destroy(gpt *g)
{
    if (!g)
        return;
    gpt_pool_destroy(g->pool);
    free(g->ws.block);
    free(g->arena);
    free(g->names);
    free(g->parameter);
    free(g);
}

/* ---- small accessors ---- */

void gpt_fail(gpt *g, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(g->error, sizeof g->error, format, args);
    va_end(args);
}

const gpt_config *gpt_configuration(const gpt *g)
{
    return &g->config;
}

const char *gpt_error(const gpt *g)
{
    return g->error;
}

size_t gpt_parameter_count(const gpt *g)
{
    return g->parameters;
}

const gpt_parameter *gpt_parameter_at(const gpt *g, size_t i)
{
    return i < g->parameters ? &g->parameter[i] : NULL;
}

void gpt_on_gradient(gpt *g, gpt_gradient_fn fn, void *user)
{
    g->on_gradient = fn;
    g->gradient_user = user;
}

void gpt_on_parameter(gpt *g, gpt_parameter_fn fn, void *user)
{
    g->on_parameter = fn;
    g->parameter_user = user;
}

void gpt_use_attention(gpt *g, const gpt_attention_by *by)
{
    g->by = by ? *by : (gpt_attention_by){0};
}

/* ---- one step ---- */

int gpt_reserve(gpt *g, size_t batch)
{
    gpt_workspace ws = {0};
    size_t bytes;

    if (batch <= g->ws.batch)
        return 0;
    if (g->busy) {
        gpt_fail(g, "gpt: called from its own callback");
        return -1;
    }
    bytes = gpt_workspace_layout(&g->config, batch, &ws);
    if (bytes == 0) {
        gpt_fail(g, "gpt: a batch of %zu x %zu tokens is too large", batch,
                 g->config.context);
        return -1;
    }
    /* The old block goes first: both at once would double the peak. */
    gpt_release(g);
    ws.block = aligned_alloc(GPT_ALIGN, bytes);
    if (!ws.block) {
        gpt_fail(g, "gpt: no memory for a workspace of %zu bytes", bytes);
        return -1;
    }
    gpt_workspace_layout(&g->config, batch, &ws);
    ws.batch = batch;
    g->ws = ws;
    return 0;
}

static bool in_vocabulary(gpt *g, const char *what, const int32_t *ids,
                          size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= GPT_VOCABULARY) {
            gpt_fail(g, "gpt: %s[%zu] is %ld, must be 0 to 255", what, i,
                     (long)ids[i]);
            return false;
        }
    return true;
}

static double step(gpt *g, const int32_t *tokens, const int32_t *targets,
                   size_t batch, size_t length, bool gradient, float scale)
{
    gpt_pass pass = {.g = g,
                     .tokens = tokens,
                     .targets = targets,
                     .batch = batch,
                     .length = length,
                     .gradient = gradient};
    double sum = 0.0;

    if (g->busy) {
        gpt_fail(g, "gpt: called from its own callback");
        return -1.0;
    }
    if (!tokens || !targets || batch == 0 || length == 0 ||
        length > g->config.context) {
        gpt_fail(g,
                 "gpt: batch %zu, length %zu: need tokens and targets, "
                 "batch >= 1 and 1 <= length <= context %zu",
                 batch, length, g->config.context);
        return -1.0;
    }
    if (gpt_reserve(g, batch) != 0 ||
        !in_vocabulary(g, "tokens", tokens, batch * length) ||
        !in_vocabulary(g, "targets", targets, batch * length))
        return -1.0;
    pass.row1 = batch * length;
    pass.scale = scale / (float)pass.row1;
    g->busy = true;
    gpt_forward(&pass);
    for (size_t r = 0; r < pass.row1; r++)
        sum += g->ws.losses[r];
    if (gradient && !pass.failed)
        gpt_backward(&pass);
    g->busy = false;
    if (pass.failed)
        return -1.0;
    return sum / (double)pass.row1;
}

double gpt_forward_backward(gpt *g, const int32_t *tokens,
                            const int32_t *targets, size_t batch, size_t length,
                            float grad_scale)
{
    return step(g, tokens, targets, batch, length, true, grad_scale);
}

double gpt_loss(gpt *g, const int32_t *tokens, const int32_t *targets,
                size_t batch, size_t length)
{
    return step(g, tokens, targets, batch, length, false, 1.0f);
}
