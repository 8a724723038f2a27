/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The textbook in memory: what a round must do, on plain arrays, without
 * chunks, devices or threads.
 */
#include "config.h"

#include "fixture.h"

static float *zeros(uint64_t n)
{
    float *block = calloc(n + 1, sizeof(float));

    assert_non_null(block);
    return block;
}

void oracle_begin(oracle *o, const model *m)
{
    memset(o, 0, sizeof(*o));
    o->m = m;
    for (size_t i = 0; i < m->count; i++) {
        o->p[i] = zeros(m->elements[i]);
        o->m1[i] = zeros(m->elements[i]);
        o->m2[i] = zeros(m->elements[i]);
        o->g[i] = zeros(m->elements[i]);
        if (m->tensors[i].data != NULL)
            memcpy(o->p[i], m->tensors[i].data, m->elements[i] * sizeof(float));
    }
    for (size_t g = 0; g < GROUPS_MOST; g++)
        o->group[g] = (adamw){1e-3, 0.9, 0.999, 1e-8, 1e-2};
}

void oracle_end(oracle *o)
{
    for (size_t i = 0; i < o->m->count; i++) {
        free(o->p[i]);
        free(o->m1[i]);
        free(o->m2[i]);
        free(o->g[i]);
    }
}

void oracle_give(oracle *o, size_t tensor, const float *data)
{
    for (uint64_t i = 0; i < o->m->elements[tensor]; i++) {
        if (o->given[tensor])
            o->g[tensor][i] += data[i];
        else
            o->g[tensor][i] = data[i];
    }
    o->given[tensor] = true;
}

void oracle_give_all(oracle *o, uint64_t seed)
{
    for (size_t i = 0; i < o->m->count; i++) {
        float *g = zeros(o->m->elements[i]);

        gradient_fill(seed, i, 0, (size_t)o->m->elements[i], g);
        if (!(o->m->tensors[i].flags & GYRE_TENSOR_FROZEN))
            oracle_give(o, i, g);
        free(g);
    }
}

/* 16 double lanes by index mod 16, folded 8-4-2-1. */
static double leaf(const float *g, size_t n)
{
    double lane[16] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 16] += (double)g[i] * (double)g[i];
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

double oracle_norm(const oracle *o, double scale, double denominator)
{
    double sum = 0;

    for (size_t i = 0; i < o->m->count; i++)
        for (uint64_t at = 0; o->given[i] && at < o->m->elements[i];
             at += 1024) {
            uint64_t left = o->m->elements[i] - at;

            sum += leaf(o->g[i] + at, left < 1024 ? (size_t)left : 1024);
        }
    return sqrt(sum) / (scale * denominator);
}

/* The formula of PyTorch's AdamW; where it is rounded is the kernel's. */
static void update_tensor(oracle *o, size_t tensor, float q)
{
    const adamw *a = &o->group[o->m->tensors[tensor].group];
    long double t = (long double)++o->t[tensor];
    float rest1 = (float)(1.0 - a->beta1), rest2 = (float)(1.0 - a->beta2);
    float correct2 = (float)(1 / sqrtl(1 - powl(a->beta2, t)));
    float step = (float)(a->lr / (1 - powl(a->beta1, t)));
    float decay = (float)(a->lr * a->weight_decay), eps = (float)a->eps;

    for (uint64_t i = 0; i < o->m->elements[tensor]; i++) {
        float g = q == 1.0f ? o->g[tensor][i] : o->g[tensor][i] * q;
        float *p = &o->p[tensor][i];
        float *m1 = &o->m1[tensor][i], *m2 = &o->m2[tensor][i];

        *m1 = fmaf(rest1, g - *m1, *m1);
        *m2 = fmaf(rest2, fmaf(g, g, -*m2), *m2);
        *p -= fmaf(decay, *p, step * (*m1 / fmaf(sqrtf(*m2), correct2, eps)));
    }
}

void oracle_step(oracle *o, double scale, double denominator, double clip)
{
    double norm = oracle_norm(o, scale, denominator);
    double k = 1;
    float q;

    if (clip > 0 && clip / (norm + 1e-6) < 1)
        k = clip / (norm + 1e-6);
    q = (float)(1 / (scale * denominator) * k);
    for (size_t i = 0; i < o->m->count; i++)
        if (o->given[i])
            update_tensor(o, i, q);
    memset(o->given, 0, sizeof(o->given));
}

static void expect_array(fixture *f, const oracle *o, size_t tensor, int slot,
                         const float *want)
{
    size_t n = (size_t)o->m->elements[tensor];
    float *have = zeros(n);

    good(f, gyre_store_read(f->store, tensor, slot, 0, n, GYRE_F32, have,
                            &f->error));
    for (size_t i = 0; i < n; i++)
        if (memcmp(&have[i], &want[i], sizeof(float)) != 0)
            fail_msg("tensor %s, slot %d, element %zu: %a, by the book %a",
                     o->m->names[tensor], slot, i, (double)have[i],
                     (double)want[i]);
    free(have);
}

void expect_oracle(fixture *f, const oracle *o)
{
    for (size_t i = 0; i < o->m->count; i++) {
        assert_int_equal(step_of(f, i), o->t[i]);
        expect_array(f, o, i, -1, o->p[i]);
        if (o->m->tensors[i].flags & GYRE_TENSOR_FROZEN)
            continue;
        expect_array(f, o, i, 0, o->m1[i]);
        expect_array(f, o, i, 1, o->m2[i]);
    }
}
