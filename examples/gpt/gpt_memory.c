/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_memory.c - how large everything is and where it lies. The same walk
 * counts and carves, so what is announced is what is allocated.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <limits.h>
#include <unistd.h>

/* false on overflow */
static bool multiply(size_t a, size_t b, size_t *out)
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

    if (!multiply(a, b, &bytes) || !multiply(bytes, size, &bytes) ||
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

    if (!multiply(batch, config->context, &rows) || rows > INT_MAX)
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

void gpt_parameter_shape(const gpt_config *config, size_t i, size_t shape[2])
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
        const unsigned char *t = in_out[(i - GPT_FIRST_LAYER) % GPT_PER_LAYER];

        shape[0] = t[0] * c;
        shape[1] = t[1] * c;
    }
}

size_t gpt_parameter_total(const gpt_config *config)
{
    return GPT_FIRST_LAYER + config->layers * GPT_PER_LAYER + 3;
}

size_t gpt_arena_layout(const gpt_config *config, gpt *g)
{
    carver v = {.base = g ? (char *)g->arena : NULL};
    size_t count = gpt_parameter_total(config), shape[2];

    for (int half = 0; half < 2; half++)
        for (size_t i = 0; i < count && v.total != SIZE_MAX; i++) {
            float *piece;

            gpt_parameter_shape(config, i, shape);
            piece = carve(&v, shape[0], shape[1] ? shape[1] : 1, sizeof(float));
            if (g && half == 0)
                g->parameter[i].data = piece;
            else if (g)
                g->parameter[i].grad = piece;
        }
    return v.total == SIZE_MAX ? 0 : v.total;
}

const char *gpt_check_config(gpt_config *config)
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
    if (gpt_check_config(&checked))
        return 0;
    arena = gpt_arena_layout(&checked, NULL);
    work = gpt_workspace_layout(&checked, batch, &ws);
    fixed = sizeof(gpt) + gpt_pool_memory(checked.threads) +
            gpt_parameter_total(&checked) *
                (sizeof(gpt_parameter) + GPT_NAME_BYTES);
    if (arena == 0 || work == 0 || arena > SIZE_MAX - work ||
        arena + work > SIZE_MAX - fixed)
        return 0;
    return arena + work + fixed;
}
