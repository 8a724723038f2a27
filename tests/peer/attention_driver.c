/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block through a kernel, for comparison with others.
 *
 *     attention_driver KERNEL BATCH HEADS KV_HEADS ROWS KEYS DIM V_DIM CAUSAL
 *
 * stdin: Q, K, V, dO as f64 [batch][head][row][dim]; stdout: O, LSE, DQ, DK, DV
 * likewise.
 */
#include "config.h"

#include "attention/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static gyre_plane plane(size_t heads, size_t rows, size_t dim, gyre_dtype dtype)
{
    size_t row = dim * gyre_dtype_bytes(dtype);

    return (gyre_plane){
        .row = row, .head = row * rows, .batch = row * rows * heads};
}

static void set(gyre_dtype dtype, char *at, double x)
{
    float f = (float)x;

    if (dtype == GYRE_F64)
        *(double *)(void *)at = x;
    else
        gyre_from_f32(dtype, &f, at, 1);
}

static double get(gyre_dtype dtype, const char *at)
{
    float f;

    if (dtype == GYRE_F64)
        return *(const double *)(const void *)at;
    gyre_to_f32(dtype, at, 1, &f, 1);
    return (double)f;
}

/* From stdin, or filled. */
static gyre_plane take(size_t batch, size_t heads, size_t rows, size_t dim,
                       gyre_dtype dtype, const double *fill)
{
    gyre_plane p = plane(heads, rows, dim, dtype);
    size_t n = batch * heads * rows * dim;

    p.at = calloc(n + 1, gyre_dtype_bytes(dtype));
    for (size_t i = 0; i < n && p.at != NULL; i++) {
        double x = fill != NULL ? *fill : 0.0;

        if (fill == NULL && fread(&x, sizeof(x), 1, stdin) != 1)
            exit(99);
        set(dtype, p.at + i * gyre_dtype_bytes(dtype), x);
    }
    return p;
}

static void put(const gyre_plane *p, size_t n, gyre_dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        double x = get(dtype, p->at + i * gyre_dtype_bytes(dtype));

        fwrite(&x, sizeof(x), 1, stdout);
    }
}

static int run(const gyre_kernel *k, gyre_block *b, size_t rows, size_t keys)
{
    size_t B = b->batch, H = b->heads, K = b->kv_heads;
    size_t D = b->head_dim, V = b->v_head_dim, bytes = k->scratch(b);
    const double zero = 0.0, none = -INFINITY;
    gyre_run_of_rows all = {0, 0, rows};
    gyre_reach reach = {b->batch, 0, b->heads, b->v_head_dim, &all, 1, 0};
    gyre_kernel_run how = {.workers = 1, .scratch_bytes = bytes};
    gyre_error error = {0};

    how.scratch = aligned_alloc(64, bytes + 64);
    b->Q = take(B, H, rows, D, k->dtype, NULL);
    b->K = take(B, K, keys, D, k->dtype, NULL);
    b->V = take(B, K, keys, V, k->dtype, NULL);
    b->DO = take(B, H, rows, V, k->dtype, NULL);
    b->O = take(B, H, rows, V, k->sum, &zero);
    b->LSE = b->L = take(B, H, rows, 1, k->stat, &none);
    b->D = take(B, H, rows, 1, k->stat, &zero);
    b->DQ = take(B, H, rows, D, k->sum, &zero);
    b->DK = take(B, K, keys, D, k->sum, &zero);
    b->DV = take(B, K, keys, V, k->sum, &zero);
    gyre_plane o = take(B, H, rows, V, k->dtype, &zero);
    if (k->attend(b, &how, &error) != GYRE_OK)
        goto failed;
    /* As training does: delta of the O that left in the model's dtype. */
    gyre_convert(&reach, k->sum, &b->O, k->dtype, &o);
    gyre_delta(&reach, k->dtype, &o, &b->DO, k->stat, &b->D);
    if (k->grad(b, &how, &error) != GYRE_OK)
        goto failed;
    put(&b->O, B * H * rows * V, k->sum);
    put(&b->LSE, B * H * rows, k->stat);
    put(&b->DQ, B * H * rows * D, k->sum);
    put(&b->DK, B * K * keys * D, k->sum);
    put(&b->DV, B * K * keys * V, k->sum);
    return 0;
failed:
    fprintf(stderr, "attention_driver: %s\n", error.text);
    return 1;
}

int main(int argc, char **argv)
{
    uint32_t n[8];

    if (argc != 10)
        return 2;
    for (int i = 0; i < 8; i++)
        n[i] = (uint32_t)strtoul(argv[i + 2], NULL, 10);
    gyre_mask mask = {.size = sizeof(mask), .causal = n[7]};
    gyre_piece q = {0, n[3], 1, 0}, kv = {0, n[4], 1, 0};
    gyre_block block = {.batch = n[0],
                        .heads = n[1],
                        .kv_heads = n[2],
                        .h1 = n[1],
                        .head_dim = n[5],
                        .v_head_dim = n[6],
                        .mask = &mask,
                        .q = &q,
                        .kv = &kv,
                        .q_count = 1,
                        .kv_count = 1};
    const gyre_kernel *kernel = gyre_kernel_find(argv[1]);

    return kernel == NULL ? 2 : run(kernel, &block, n[3], n[4]);
}
