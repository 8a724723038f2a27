/* SPDX-License-Identifier: Apache-2.0 */
/* Making, running and judging block problems. */
#include "config.h"

#include "kernel_case.h"

#include <math.h>
#include <stdio.h>

/* ---- values ------------------------------------------------------------ */

static uint64_t state;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) * 0x1p-23 - 1.0;
}

static double *random_values(size_t n, gyre_dtype dtype)
{
    double *x = calloc(n + 1, sizeof(double));

    for (size_t i = 0; i < n; i++) {
        float f = (float)(uniform() + uniform() + uniform());
        uint16_t half;

        x[i] = (double)f;
        if (dtype == GYRE_F64)
            x[i] += uniform() * 0x1p-30;
        if (dtype == GYRE_BF16) {
            gyre_from_f32(GYRE_BF16, &f, &half, 1);
            gyre_to_f32(GYRE_BF16, &half, 1, &f, 1);
            x[i] = (double)f;
        }
    }
    return x;
}

/* ---- pieces ------------------------------------------------------------ */

static uint32_t cut(gyre_piece *out, uint64_t n, uint32_t layout)
{
    uint64_t row = 0;
    uint32_t count = 0;

    if (layout == CASE_WHOLE) {
        out[count++] = (gyre_piece){0, n, 1, 0};
    } else if (layout == CASE_ZIGZAG) { /* last half first */
        out[count++] = (gyre_piece){n - n / 2, n / 2, 1, 0};
        out[count++] = (gyre_piece){0, n - n / 2, 1, n / 2};
    } else if (layout == CASE_STRIPED) {
        for (uint64_t r = 0; r < 3; r++) {
            uint64_t length = n > r ? (n - r - 1) / 3 + 1 : 0;

            out[count++] = (gyre_piece){r, length, 3, row};
            row += length;
        }
    } else { /* uneven, one empty, one token */
        uint64_t at = 0;

        for (uint64_t length = 1; at < n; length = length * 2 + 1) {
            uint64_t take = length < n - at ? length : n - at;

            out[count++] = (gyre_piece){at, take, 1, at};
            if (count == 1)
                out[count++] = (gyre_piece){at + 1, 0, 1, at + 1};
            at += take;
        }
    }
    return count;
}

static uint64_t position_of(const gyre_piece *pieces, uint32_t count,
                            uint64_t row)
{
    for (uint32_t p = 0; p < count; p++)
        if (row >= pieces[p].row && row - pieces[p].row < pieces[p].length)
            return pieces[p].start + (row - pieces[p].row) * pieces[p].stride;
    fail_msg("row %llu is in no piece", (unsigned long long)row);
    return 0;
}

void case_make(kernel_case *c, const kernel_shape *shape, gyre_dtype dtype,
               uint64_t seed)
{
    size_t q = (size_t)shape->batch * shape->heads * shape->q_rows;
    size_t kv = (size_t)shape->batch * shape->kv_heads * shape->kv_rows;

    memset(c, 0, sizeof(*c));
    c->shape = *shape;
    c->shape.mask.size = sizeof(c->shape.mask);
    state = seed * 77 + 1;
    c->q_count = cut(c->q, shape->q_rows, shape->layout);
    c->kv_count = cut(c->kv, shape->kv_rows, shape->layout);
    c->q_in = random_values(q * shape->dim, dtype);
    c->k_in = random_values(kv * shape->dim, dtype);
    c->v_in = random_values(kv * shape->v_dim, dtype);
    c->do_in = random_values(q * shape->v_dim, dtype);
}

void case_free(kernel_case *c)
{
    free(c->q_in);
    free(c->k_in);
    free(c->v_in);
    free(c->do_in);
}

static kernel_values values_new(const kernel_shape *s)
{
    size_t q = (size_t)s->batch * s->heads * s->q_rows;
    size_t kv = (size_t)s->batch * s->kv_heads * s->kv_rows;
    kernel_values v = {.o_n = q * s->v_dim,
                       .lse_n = q,
                       .dq_n = q * s->dim,
                       .dk_n = kv * s->dim,
                       .dv_n = kv * s->v_dim};

    v.o = calloc(v.o_n + 1, sizeof(double));
    v.lse = calloc(v.lse_n + 1, sizeof(double));
    v.dq = calloc(v.dq_n + 1, sizeof(double));
    v.dk = calloc(v.dk_n + 1, sizeof(double));
    v.dv = calloc(v.dv_n + 1, sizeof(double));
    return v;
}

void values_free(kernel_values *v)
{
    free(v->o);
    free(v->lse);
    free(v->dq);
    free(v->dk);
    free(v->dv);
}

/* ---- references -------------------------------------------------------- */

/* Floats that were summed in the space of doubles. */
static void widen(double *x, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        float f;

        memcpy(&f, (char *)x + i * sizeof(f), sizeof(f));
        x[i] = (double)f;
    }
}

#define NAME case_naive_
#define T double
#define EXP exp
#define LOG log
#define WIDEN(x, n) ((void)(n))
#include "kernel_naive_body.h"
#undef NAME
#undef T
#undef EXP
#undef LOG
#undef WIDEN
#define NAME case_plain_
#define T float
#define EXP expf
#define LOG logf
#define WIDEN(x, n) widen(x, n)
#include "kernel_naive_body.h"

kernel_values case_naive(const kernel_case *c)
{
    return case_naive_(c);
}

kernel_values case_plain(const kernel_case *c)
{
    return case_plain_(c);
}

/* ---- a kernel's planes -------------------------------------------------- */

typedef struct held {
    gyre_plane plane;
    gyre_dtype dtype;
    size_t batch, heads, rows, dim;
    char *block;
} held;

static void set(gyre_dtype dtype, char *at, double x)
{
    float f = (float)x;

    if (dtype == GYRE_F64)
        memcpy(at, &x, sizeof(x));
    else
        gyre_from_f32(dtype, &f, at, 1);
}

static double get(gyre_dtype dtype, const char *at)
{
    double x;
    float f;

    if (dtype == GYRE_F64) {
        memcpy(&x, at, sizeof(x));
        return x;
    }
    gyre_to_f32(dtype, at, 1, &f, 1);
    return (double)f;
}

static char *place(const held *h, size_t b, size_t head, size_t r, size_t d)
{
    return h->plane.at + b * h->plane.batch + head * h->plane.head +
           r * h->plane.row + d * gyre_dtype_bytes(h->dtype);
}

/* from NULL: `fill`. */
static held hold(gyre_dtype dtype, size_t batch, size_t heads, size_t rows,
                 size_t dim, uint32_t gap, const double *from, double fill)
{
    size_t bytes = gyre_dtype_bytes(dtype);
    held h = {.dtype = dtype,
              .batch = batch,
              .heads = heads,
              .rows = rows,
              .dim = dim};

    h.plane.row = (dim + gap) * bytes;
    h.plane.head = (rows + (gap > 0)) * h.plane.row;
    h.plane.batch = heads * h.plane.head + gap * bytes;
    h.block = malloc(batch * h.plane.batch + 64);
    memset(h.block, 0xff, batch * h.plane.batch + 64); /* NaN between rows */
    h.plane.at = h.block;
    for (size_t b = 0; b < batch; b++)
        for (size_t x = 0; x < heads; x++)
            for (size_t r = 0; r < rows; r++)
                for (size_t d = 0; d < dim; d++)
                    set(dtype, place(&h, b, x, r, d),
                        from == NULL
                            ? fill
                            : from[((b * heads + x) * rows + r) * dim + d]);
    return h;
}

static void give(held *h, double *out)
{
    for (size_t b = 0; b < h->batch; b++)
        for (size_t x = 0; x < h->heads; x++)
            for (size_t r = 0; r < h->rows; r++)
                for (size_t d = 0; d < h->dim && out != NULL; d++)
                    out[((b * h->heads + x) * h->rows + r) * h->dim + d] =
                        get(h->dtype, place(h, b, x, r, d));
    free(h->block);
}

/* ---- running ------------------------------------------------------------ */

typedef struct team {
    size_t count;
    uint32_t workers;
    void (*body)(void *state, size_t index, uint32_t worker);
    void *state;
} team;
typedef struct member {
    team *of;
    uint32_t worker;
} member;

static void *work(void *user)
{
    member *m = user;

    for (size_t i = m->worker; i < m->of->count; i += m->of->workers)
        m->of->body(m->of->state, i, m->worker);
    return NULL;
}

void case_each(void *user, size_t count,
               void (*body)(void *state, size_t index, uint32_t worker),
               void *body_state)
{
    team t = {count, *(const uint32_t *)user, body, body_state};
    pthread_t threads[16];
    member members[16];

    for (uint32_t w = 0; w < t.workers; w++) {
        members[w] = (member){&t, w};
        assert_int_equal(pthread_create(&threads[w], NULL, work, &members[w]),
                         0);
    }
    for (uint32_t w = 0; w < t.workers; w++)
        pthread_join(threads[w], NULL);
}

static void call(const gyre_kernel *kernel, gyre_block *block,
                 const case_how *how, bool grad)
{
    uint32_t workers = how->workers > 0 ? how->workers : 1;
    size_t bytes = kernel->scratch(block) * workers;
    gyre_kernel_run run = {.user = &workers,
                           .each = workers > 1 ? case_each : NULL,
                           .workers = workers,
                           .scratch_bytes = bytes};
    gyre_error error = {0};

    run.scratch = aligned_alloc(64, bytes + 64);
    memset(run.scratch, 0xff, bytes); /* NaN: nothing may be read from before */
    gyre_status status;
    if (how->device != NULL)
        status = (grad ? gyre_block_device_grad
                       : gyre_block_device_attend)(how->device, block, &error);
    else
        status = (grad ? kernel->grad : kernel->attend)(block, &run, &error);
    if (status != GYRE_OK)
        fail_msg("%s", error.text);
    free(run.scratch);
}

static void calls(const kernel_case *c, const gyre_kernel *kernel,
                  gyre_block block, const case_how *how, bool grad)
{
    uint32_t split = how->split > 0 ? how->split : 1;

    for (uint32_t h = 0; h < (how->by_head ? c->shape.heads : 1); h++)
        for (uint32_t s = 0; s < split; s++) {
            uint32_t first = c->kv_count * s / split;

            block.h0 = how->by_head ? h : 0;
            block.h1 = how->by_head ? h + 1 : c->shape.heads;
            block.kv = c->kv + first;
            block.kv_count = c->kv_count * (s + 1) / split - first;
            call(kernel, &block, how, grad);
        }
}

kernel_values case_run(const kernel_case *c, const case_how *how)
{
    const gyre_kernel *k = gyre_kernel_find(how->kernel);
    const kernel_shape *s = &c->shape;
    kernel_values out = values_new(s);
    size_t B = s->batch, H = s->heads, K = s->kv_heads;
    uint32_t gap = how->gap;
    gyre_block block = {.batch = s->batch,
                        .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .head_dim = s->dim,
                        .v_head_dim = s->v_dim,
                        .mask = &s->mask,
                        .q = c->q,
                        .q_count = c->q_count,
                        .params = s->params};
    double *delta = calloc(out.lse_n + 1, sizeof(double));

    assert_non_null(k);
    held q = hold(k->dtype, B, H, s->q_rows, s->dim, gap, c->q_in, 0);
    held kk = hold(k->dtype, B, K, s->kv_rows, s->dim, gap, c->k_in, 0);
    held v = hold(k->dtype, B, K, s->kv_rows, s->v_dim, gap, c->v_in, 0);
    held d_o = hold(k->dtype, B, H, s->q_rows, s->v_dim, gap, c->do_in, 0);
    held o = hold(k->sum, B, H, s->q_rows, s->v_dim, gap, NULL, 0);
    held lse = hold(k->stat, B, H, s->q_rows, 1, gap, NULL, -INFINITY);
    held dq = hold(k->sum, B, H, s->q_rows, s->dim, gap, NULL, 0);
    held dk = hold(k->sum, B, K, s->kv_rows, s->dim, gap, NULL, how->before);
    held dv = hold(k->sum, B, K, s->kv_rows, s->v_dim, gap, NULL, how->before);
    block.Q = q.plane, block.K = kk.plane, block.V = v.plane;
    block.O = o.plane, block.LSE = lse.plane, block.DO = d_o.plane;
    block.DQ = dq.plane;
    block.DK = dk.plane, block.DV = dv.plane;
    calls(c, k, block, how, false);
    give(&o, out.o), give(&lse, out.lse);
    for (size_t i = 0; i < out.o_n; i++)
        if (out.lse[i / s->v_dim] != -INFINITY)
            delta[i / s->v_dim] += out.o[i] * c->do_in[i];
    held l = hold(k->stat, B, H, s->q_rows, 1, gap, out.lse, 0);
    held d = hold(k->stat, B, H, s->q_rows, 1, gap, delta, 0);
    block.L = l.plane, block.D = d.plane;
    calls(c, k, block, how, true);
    give(&q, NULL), give(&kk, NULL), give(&v, NULL), give(&d_o, NULL);
    give(&l, NULL), give(&d, NULL);
    give(&dq, out.dq), give(&dk, out.dk), give(&dv, out.dv);
    free(delta);
    return out;
}

/* ---- judging ------------------------------------------------------------ */

double values_most(const double *a, size_t n)
{
    double most = 0.0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(a[i]))
            most = fmax(most, fabs(a[i]));
    return most;
}

double values_error(const double *a, const double *b, size_t n)
{
    double most = 0.0;

    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i]) /* also -inf */
            continue;
        if (!isfinite(a[i] - b[i]))
            return INFINITY;
        most = fmax(most, fabs(a[i] - b[i]));
    }
    return most;
}

static void check(const char *what, const char *of, const double *got,
                  const double *plain, const double *ref, size_t n, double most,
                  double eps)
{
    double bound = 2.0 * values_error(plain, ref, n);
    double floor = 4.0 * eps * fmax(most, values_most(ref, n));
    double error = values_error(got, ref, n);

    bound = bound > floor ? bound : floor;
    if (!isfinite(bound) || !(error <= bound))
        fail_msg("%s: %s is off by %g, at most %g (largest %g)", what, of,
                 error, bound, values_most(ref, n));
}

void values_check(const char *what, const kernel_values *got,
                  const kernel_values *plain, const kernel_values *ref,
                  double eps)
{
    /* With one key DQ and DK are a difference of two equal terms, 0: what the
     * terms were like shows in DV. */
    double terms = values_most(ref->dv, ref->dv_n);

    check(what, "O", got->o, plain->o, ref->o, ref->o_n, 0, eps);
    check(what, "LSE", got->lse, plain->lse, ref->lse, ref->lse_n, 0, eps);
    check(what, "DQ", got->dq, plain->dq, ref->dq, ref->dq_n, terms, eps);
    check(what, "DK", got->dk, plain->dk, ref->dk, ref->dk_n, terms, eps);
    check(what, "DV", got->dv, plain->dv, ref->dv, ref->dv_n, 0, eps);
}
