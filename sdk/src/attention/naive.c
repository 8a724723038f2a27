/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by its definition, one query after the other. */
#include "attention/face.h"

#include <math.h>
#include <string.h>

/* One query of one head: its rows, and where its keys' begin. */
typedef struct query {
    uint32_t b, h;
    uint64_t at;
    const double *q, *d_o, *k, *v;
    double *o, *d_q, *d_k, *d_v;
    gyre_drop_key drop;
    double scale, slope;
    double lse, delta;
} query;

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add(double *to, double factor, const double *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}

static double score(const gyre_naive *n, const query *q, uint64_t key)
{
    uint32_t d = n->problem->head_dim;
    uint64_t apart = key > q->at ? key - q->at : q->at - key;
    return q->scale * dot(q->q, q->k + key * d, d) - q->slope * (double)apart;
}

/* The next allowed key at or after `from`. */
static bool next_key(const gyre_naive *n, const query *q, uint64_t *key)
{
    uint64_t high;
    return gyre_mask_span(n->mask, q->b, q->at, *key,
                          n->problem->tokens[GYRE_SIDE_KV], key, &high);
}

static double kept(const gyre_naive *n, const query *q, uint64_t key)
{
    if (n->params.dropout == 0)
        return 1;
    return gyre_keeps(&q->drop, key) ? 1 / (1 - n->params.dropout) : 0;
}

static void forward(const gyre_naive *n, query *q)
{
    uint32_t dv = n->problem->v_head_dim;
    double largest = -INFINITY, sum = 0;
    for (uint64_t k = 0; next_key(n, q, &k); k++) {
        n->row[k] = score(n, q, k);
        largest = n->row[k] > largest ? n->row[k] : largest;
    }
    q->lse = -INFINITY;
    memset(q->o, 0, dv * sizeof(*q->o));
    if (largest == -INFINITY)
        return;
    for (uint64_t k = 0; next_key(n, q, &k); k++)
        sum += exp(n->row[k] - largest);
    q->lse = largest + log(sum);
    for (uint64_t k = 0; next_key(n, q, &k); k++)
        add(q->o, kept(n, q, k) * exp(n->row[k] - q->lse), q->v + k * dv, dv);
}

static void backward(const gyre_naive *n, query *q)
{
    uint32_t d = n->problem->head_dim, dv = n->problem->v_head_dim;
    q->delta = dot(q->o, q->d_o, dv);
    for (uint64_t k = 0; next_key(n, q, &k); k++) {
        double z = kept(n, q, k), p = exp(n->row[k] - q->lse);
        double ds = p * (z * dot(q->d_o, q->v + k * dv, dv) - q->delta);
        add(q->d_v + k * dv, z * p, q->d_o, dv);
        add(q->d_q, ds * q->scale, q->k + k * d, d);
        add(q->d_k + k * d, ds * q->scale, q->q, d);
    }
}

/* What the kernel `count` does: 1 for each pair, in every element. */
static void count(const gyre_naive *n, query *q)
{
    uint32_t d = n->problem->head_dim, dv = n->problem->v_head_dim;
    q->lse = -INFINITY;
    memset(q->o, 0, dv * sizeof(*q->o));
    for (uint64_t k = 0; next_key(n, q, &k); k++) {
        for (uint32_t i = 0; i < dv; i++)
            q->o[i] += 1;
        for (uint32_t i = 0; q->d_q != NULL && i < d; i++) {
            q->d_q[i] += 1;
            q->d_k[k * d + i] += 1;
        }
        for (uint32_t i = 0; q->d_q != NULL && i < dv; i++)
            q->d_v[k * dv + i] += 1;
    }
}

static query query_of(const gyre_naive *n, uint32_t b, uint32_t h, uint64_t at)
{
    const gyre_problem *p = n->problem;
    size_t head = (size_t)b * p->heads + h, d = p->head_dim;
    size_t kv_head = (size_t)b * p->kv_heads + h / (p->heads / p->kv_heads);
    size_t row = head * p->tokens[GYRE_SIDE_Q] + at;
    size_t key = kv_head * p->tokens[GYRE_SIDE_KV], dv = p->v_head_dim;
    query q = {.b = b, .h = h, .at = at};
    q.q = n->q + row * d;
    q.k = n->k + key * d;
    q.v = n->v + key * dv;
    q.o = n->o + row * dv;
    if (n->d_q != NULL) {
        q.d_o = n->d_o + row * dv;
        q.d_q = n->d_q + row * d;
        q.d_k = n->d_k + key * d;
        q.d_v = n->d_v + key * dv;
    }
    q.scale = n->params.scale != 0 ? n->params.scale : 1 / sqrt((double)d);
    q.slope = n->params.slopes != NULL ? (double)n->params.slopes[h] : 0;
    q.drop = gyre_drop_row(&n->params, b, h, at);
    return q;
}

void gyre_naive_run(const gyre_naive *n)
{
    const gyre_problem *p = n->problem;
    size_t rows = (size_t)p->batch * p->heads * p->tokens[GYRE_SIDE_Q];
    size_t keys = (size_t)p->batch * p->kv_heads * p->tokens[GYRE_SIDE_KV];
    if (n->d_q != NULL) {
        memset(n->d_q, 0, rows * p->head_dim * sizeof(double));
        memset(n->d_k, 0, keys * p->head_dim * sizeof(double));
        memset(n->d_v, 0, keys * p->v_head_dim * sizeof(double));
    }
    for (uint32_t b = 0; b < p->batch; b++)
        for (uint32_t h = 0; h < p->heads; h++)
            for (uint64_t t = 0; t < p->tokens[GYRE_SIDE_Q]; t++) {
                query q = query_of(n, b, h, t);
                if (n->count)
                    count(n, &q);
                else
                    forward(n, &q);
                if (n->d_q != NULL && !n->count)
                    backward(n, &q);
                n->lse[((size_t)b * p->heads + h) * p->tokens[GYRE_SIDE_Q] +
                       t] = q.lse;
            }
}
