/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt.c - creation, memory and the public entry points of the gpt.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__GNUC__)
/* Present when the BLAS is OpenBLAS. */
extern void openblas_set_num_threads(int) __attribute__((weak));
#endif

/* ---- sizes ---- */

bool gpt_mul(size_t a, size_t b, size_t *out)
{
    if (a && b > SIZE_MAX / a)
        return false;
    *out = a * b;
    return true;
}

/* A block that grows by aligned pieces; total is SIZE_MAX once it overflows,
 * and every later piece keeps it so. */
typedef struct carver {
    char *base; /* NULL: only count */
    size_t total;
} carver;

static void *carve(carver *v, size_t a, size_t b, size_t size)
{
    size_t bytes;
    void *piece = v->base ? v->base + v->total : NULL;

    if (!gpt_mul(a, b, &bytes) || !gpt_mul(bytes, size, &bytes) ||
        bytes > SIZE_MAX - GPT_ALIGN) {
        v->total = SIZE_MAX;
        return NULL;
    }
    bytes = (bytes + GPT_ALIGN - 1) / GPT_ALIGN * GPT_ALIGN;
    if (v->total > SIZE_MAX - bytes) {
        v->total = SIZE_MAX;
        return NULL;
    }
    v->total += bytes;
    return piece;
}

static void carve_layer(carver *v, gpt_layer *a, size_t rows, size_t c,
                        size_t heads)
{
    const size_t f = sizeof(float);

    a->x0 = carve(v, rows, c, f);
    a->ln1 = carve(v, rows, c, f);
    a->qkv = carve(v, rows, 3 * c, f);
    a->lse = carve(v, rows, heads, f);
    a->att = carve(v, rows, c, f);
    a->x1 = carve(v, rows, c, f);
    a->ln2 = carve(v, rows, c, f);
    a->fc = carve(v, rows, 4 * c, f);
    a->act = carve(v, rows, 4 * c, f);
    a->mean1 = carve(v, rows, 1, f);
    a->rstd1 = carve(v, rows, 1, f);
    a->mean2 = carve(v, rows, 1, f);
    a->rstd2 = carve(v, rows, 1, f);
}

size_t gpt_workspace_layout(const gpt_config *config, size_t batch,
                            gpt_workspace *ws)
{
    const size_t c = config->width, f = sizeof(float);
    carver v = {.base = ws->block};
    gpt_layer unused;
    size_t rows;

    if (!gpt_mul(batch, config->context, &rows) || rows > INT_MAX)
        return 0;
    ws->layer = carve(&v, config->layers, 1, sizeof(gpt_layer));
    for (size_t l = 0; l < config->layers && v.total != SIZE_MAX; l++)
        carve_layer(&v, ws->block ? &ws->layer[l] : &unused, rows, c,
                    config->heads);
    ws->x_out = carve(&v, rows, c, f);
    ws->lnf = carve(&v, rows, c, f);
    ws->mean_f = carve(&v, rows, 1, f);
    ws->rstd_f = carve(&v, rows, 1, f);
    ws->logits = carve(&v, rows, GPT_VOCABULARY, f);
    ws->losses = carve(&v, rows, 1, sizeof(double));
    ws->dx = carve(&v, rows, c, f);
    ws->dx1 = carve(&v, rows, c, f);
    ws->dln = carve(&v, rows, c, f);
    ws->datt = carve(&v, rows, c, f);
    ws->dwide = carve(&v, rows, 4 * c, f);
    ws->score_ld = (config->context + 15) / 16 * 16;
    ws->scratch_n = 2 * GPT_QUERY_BLOCK * ws->score_ld;
    ws->scratch = carve(&v, config->threads, ws->scratch_n, f);
    return v.total == SIZE_MAX ? 0 : v.total;
}

/* Dimensions of parameter i; shape[1] is 0 for a vector. */
static void parameter_shape(const gpt_config *config, size_t i,
                            size_t shape[2])
{
    static const unsigned char in_out[GPT_PER_LAYER][2] = {
        {1, 0}, {1, 0}, {3, 1}, {3, 0}, {1, 1}, {1, 0},
        {1, 0}, {1, 0}, {4, 1}, {4, 0}, {1, 4}, {1, 0}};
    const size_t c = config->width;
    const size_t tail = GPT_FIRST_LAYER + config->layers * GPT_PER_LAYER;

    if (i == GPT_WPE || i == GPT_WTE || i == tail + 2) {
        shape[0] = i == GPT_WPE ? config->context : GPT_VOCABULARY;
        shape[1] = c;
    } else if (i >= tail) {
        shape[0] = c;
        shape[1] = 0;
    } else {
        const unsigned char *t =
            in_out[(i - GPT_FIRST_LAYER) % GPT_PER_LAYER];

        shape[0] = t[0] * c;
        shape[1] = t[1] * c;
    }
}

static size_t parameter_total(const gpt_config *config)
{
    return GPT_FIRST_LAYER + config->layers * GPT_PER_LAYER + 3;
}

/* Bytes of data, then grad; carves both when g has an arena. */
static size_t arena_layout(const gpt_config *config, gpt *g)
{
    carver v = {.base = g ? (char *)g->arena : NULL};
    size_t count = parameter_total(config), shape[2];

    for (int half = 0; half < 2; half++)
        for (size_t i = 0; i < count && v.total != SIZE_MAX; i++) {
            float *piece;

            parameter_shape(config, i, shape);
            piece = carve(&v, shape[0], shape[1] ? shape[1] : 1,
                          sizeof(float));
            if (g && half == 0)
                g->parameter[i].data = piece;
            else if (g)
                g->parameter[i].grad = piece;
        }
    return v.total == SIZE_MAX ? 0 : v.total;
}

/* Replaces threads 0 and names what is wrong, or returns NULL. */
static const char *check_config(gpt_config *config)
{
    /* 4 * width must fit the BLAS's int; layers only bound the table. */
    const size_t most = INT_MAX / 4;

    if (config->threads == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        config->threads = online > 0 ? (size_t)online : 1;
    }
    if (config->layers < 1 || config->layers > 4096)
        return "layers must be 1 to 4096";
    if (config->width < 1 || config->width > most)
        return "width must be 1 to 536870911";
    if (config->heads < 1 || config->width % config->heads != 0)
        return "heads must be at least 1 and divide width";
    if (config->context < 1 || config->context > most)
        return "context must be 1 to 536870911";
    if (config->threads > 1024)
        return "threads must be 0 to 1024";
    return NULL;
}

size_t gpt_memory(const gpt_config *config, size_t batch)
{
    gpt_config checked;
    gpt_workspace ws = {0};
    size_t arena, work, fixed;

    if (!config || batch == 0)
        return 0;
    checked = *config;
    if (check_config(&checked))
        return 0;
    arena = arena_layout(&checked, NULL);
    work = gpt_workspace_layout(&checked, batch, &ws);
    fixed = sizeof(gpt) + gpt_pool_memory(checked.threads) +
            parameter_total(&checked) *
                (sizeof(gpt_parameter) + GPT_NAME_SIZE);
    if (arena == 0 || work == 0 || arena > SIZE_MAX - work ||
        arena + work > SIZE_MAX - fixed)
        return 0;
    return arena + work + fixed;
}

/* ---- creation ---- */

static const char *const layer_names[GPT_PER_LAYER] = {
    "ln_1.weight",        "ln_1.bias",       "attn.c_attn.weight",
    "attn.c_attn.bias",   "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight",        "ln_2.bias",       "mlp.c_fc.weight",
    "mlp.c_fc.bias",      "mlp.c_proj.weight", "mlp.c_proj.bias"};

static void describe(gpt *g, size_t i)
{
    static const char *const tail_names[] = {"ln_f.weight", "ln_f.bias",
                                             "lm_head.weight"};
    gpt_parameter *p = &g->parameter[i];
    char *name = g->names[i];
    size_t tail = g->parameters - 3;

    if (i == GPT_WTE || i == GPT_WPE)
        snprintf(name, GPT_NAME_SIZE, "%s",
                 i == GPT_WTE ? "wte.weight" : "wpe.weight");
    else if (i >= tail)
        snprintf(name, GPT_NAME_SIZE, "%s", tail_names[i - tail]);
    else
        snprintf(name, GPT_NAME_SIZE, "h.%zu.%s",
                 (i - GPT_FIRST_LAYER) / GPT_PER_LAYER,
                 layer_names[(i - GPT_FIRST_LAYER) % GPT_PER_LAYER]);
    parameter_shape(&g->config, i, p->shape);
    p->name = name;
    p->rank = p->shape[1] ? 2 : 1;
    p->decay = p->rank == 2;
    if (p->rank == 1)
        p->shape[1] = 1;
    p->n = p->shape[0] * p->shape[1];
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
        why = check_config(&checked);
    }
    if (!why && (bytes = arena_layout(&checked, NULL)) == 0)
        why = "the model is too large to address";
    if (why) {
        if (errbuf)
            snprintf(errbuf, errsize, "gpt: %s", why);
        return NULL;
    }
    g = calloc(1, sizeof *g);
    if (g) {
        g->config = checked;
        g->parameters = parameter_total(&checked);
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
    arena_layout(&g->config, g);
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
    g->user = user;
}

/* ---- one step ---- */

int gpt_reserve(gpt *g, size_t batch)
{
    gpt_workspace ws = {0};
    size_t bytes;

    if (batch <= g->ws.batch)
        return 0;
    if (g->busy) {
        gpt_fail(g, "gpt: called from its own gradient callback");
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
        gpt_fail(g, "gpt: called from its own gradient callback");
        return -1.0;
    }
    if (!tokens || !targets || batch == 0 || length == 0 ||
        length > g->config.context) {
        gpt_fail(g, "gpt: batch %zu, length %zu: need tokens and targets, "
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
    if (gradient)
        gpt_backward(&pass);
    g->busy = false;
    return sum / (double)pass.row1;
}

double gpt_forward_backward(gpt *g, const int32_t *tokens,
                            const int32_t *targets, size_t batch,
                            size_t length, float grad_scale)
{
    return step(g, tokens, targets, batch, length, true, grad_scale);
}

double gpt_loss(gpt *g, const int32_t *tokens, const int32_t *targets,
                size_t batch, size_t length)
{
    return step(g, tokens, targets, batch, length, false, 1.0f);
}
