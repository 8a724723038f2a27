/* SPDX-License-Identifier: Apache-2.0 */
/* Block kernels: dropout, derivatives, masked rows and NaN, long chains of
 * partial values, fixed tiles and instruction sets to the bit, bad blocks. */
#include "config.h"

#include "attention/kernel_blas.h"
#include "attention/kernel_rows.h"
#include "kernel_case.h"

#include <float.h>
#include <math.h>

static const char *const fast[] = {"f32", "bf16"};

/* ---- dropout ----------------------------------------------------------- */

static void dropout_is_independent_of_everything_but_the_pair(void **unused)
{
    gyre_kernel_params params = {.dropout = 0.25, .seed = 42};
    double kept = 0, both = 0, n = 0;

    (void)unused;
    for (uint64_t q = 0; q < 200; q++) {
        gyre_drop_key a = gyre_drop_row(&params, 0, 0, q);
        gyre_drop_key b = gyre_drop_row(&params, 0, 1, q);
        gyre_drop_key c = gyre_drop_row(&params, 1, 0, q);
        gyre_drop_key d = gyre_drop_row(&params, 0, 0, q + ((uint64_t)1 << 32));

        for (uint64_t k = 0; k < 200; k++, n += 1) {
            bool here = gyre_keeps(&a, k);

            kept += here;
            both += here && gyre_keeps(&b, k);
            both += here && gyre_keeps(&c, k);
            both += here && gyre_keeps(&d, k);
            both += here && gyre_keeps(&a, k + 1);
            both += here && gyre_keeps(&a, k + ((uint64_t)1 << 32));
        }
    }
    /* 40,000 draws: 3/4 and, of each two, 9/16, within 5 standard errors. */
    assert_true(fabs(kept / n - 0.75) < 5 * sqrt(0.75 * 0.25 / n));
    assert_true(fabs(both / n / 5 - 0.5625) < 5 * sqrt(0.5625 * 0.4375 / n));
    params.seed = 43;
    gyre_drop_key other = gyre_drop_row(&params, 0, 0, 0);
    params.seed = 42 + ((uint64_t)1 << 32);
    gyre_drop_key high = gyre_drop_row(&params, 0, 0, 0);
    params.seed = 42;
    gyre_drop_key same = gyre_drop_row(&params, 0, 0, 0);
    assert_true(other.key0 != same.key0 && high.key0 != same.key0);
}

/* V = unit vectors shows the weights themselves. */
static void dropout_is_the_same_on_every_kernel_and_tiling(void **unused)
{
    static const char *const names[] = {"f64", "f32", "bf16", "f32"};
    kernel_shape shape = {"dropout",
                          1,
                          1,
                          1,
                          16,
                          90,
                          90,
                          90,
                          .mask = {.causal = 1},
                          .params = {.dropout = 0.4, .seed = 7},
                          .layout = CASE_STRIPED};

    (void)unused;
    for (size_t i = 0; i < 4; i++) {
        kernel_case c;
        case_how how = {.kernel = names[i], .workers = 1, .split = i};

        shape.params.tile = i == 3 ? 16 : 0;
        case_make(&c, &shape, gyre_kernel_find(names[i])->dtype, 3);
        for (size_t k = 0; k < 90; k++)
            for (size_t d = 0; d < 90; d++)
                c.v_in[k * 90 + d] = k == d;
        kernel_values got = case_run(&c, &how);
        for (uint64_t r = 0; r < 90; r++)
            for (uint64_t k = 0; k < 90; k++) {
                /* Row r of the striped layout. */
                uint64_t q = r < 30 ? 3 * r : r < 60 ? 3 * r - 89 : 3 * r - 178;
                uint64_t at = k < 30   ? 3 * k
                              : k < 60 ? 3 * k - 89
                                       : 3 * k - 178;
                gyre_drop_key drop = gyre_drop_row(&shape.params, 0, 0, q);
                bool seen = got.o[r * 90 + k] != 0.0;

                assert_int_equal(seen, at <= q && gyre_keeps(&drop, at));
            }
        values_free(&got);
        case_free(&c);
    }
}

/* ---- derivatives -------------------------------------------------------- */

/* sum of dO * O: its derivatives are what grad gives. */
static double loss(const kernel_case *c)
{
    kernel_values v = case_run(c, &(case_how){.kernel = "f64", .workers = 1});
    double sum = 0.0;

    for (size_t i = 0; i < v.o_n; i++)
        sum += v.o[i] * c->do_in[i];
    values_free(&v);
    return sum;
}

static void slope_of(const kernel_case *c, double *x, size_t n,
                     const double *grad, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        double before = x[i], h = 1e-5;

        x[i] = before + h;
        double up = loss(c);
        x[i] = before - h;
        double down = loss(c);
        x[i] = before;
        /* h^2 times a third derivative of order 1, and 1e-16 / h. */
        if (fabs((up - down) / (2 * h) - grad[i]) > 1e-8)
            fail_msg("%s of element %zu is %.12g, not %.12g", what, i, grad[i],
                     (up - down) / (2 * h));
    }
}

static void gradients_are_finite_differences(void **unused)
{
    static const float slopes[] = {0.3f, 0.1f};
    kernel_shape shape = {
        "tiny",
        1,
        2,
        1,
        3,
        2,
        5,
        6,
        .mask = {.causal = 1, .window = 4},
        .params = {.dropout = 0.2, .seed = 5, .scale = 0.8, .slopes = slopes},
        .layout = CASE_ODD};
    kernel_case c;

    (void)unused;
    case_make(&c, &shape, GYRE_F64, 11);
    kernel_values v = case_run(&c, &(case_how){.kernel = "f64", .workers = 1});
    slope_of(&c, c.q_in, v.dq_n, v.dq, "DQ");
    slope_of(&c, c.k_in, v.dk_n, v.dk, "DK");
    slope_of(&c, c.v_in, v.dv_n, v.dv, "DV");
    values_free(&v);
    case_free(&c);
}

/* ---- nothing to see ----------------------------------------------------- */

/* Positions 40 .. 59 are in no document: padding, and full of NaN.  A rank may
 * hold nothing else. */
static void padding_may_hold_anything(void **unused)
{
    static const uint64_t bounds[] = {0, 40};
    static const gyre_documents table = {bounds, 1, 0};
    static const char *const names[] = {"f64", "f32", "bf16", "f32"};
    kernel_shape shape = {
        "padding",
        1,
        2,
        1,
        32,
        32,
        60,
        60,
        .mask = {.causal = 1, .document_count = 1, .documents = &table}};

    (void)unused;
    for (size_t i = 0; i < 4; i++) {
        kernel_case c, clean;
        case_how how = {.kernel = names[i], .workers = 2};

        shape.params.tile = i == 3 ? 16 : 0;
        case_make(&c, &shape, gyre_kernel_find(names[i])->dtype, 5);
        case_make(&clean, &shape, gyre_kernel_find(names[i])->dtype, 5);
        for (size_t h = 0; h < 2; h++)
            for (size_t r = 40; r < 60; r++)
                for (size_t d = 0; d < 32; d++) {
                    c.q_in[(h * 60 + r) * 32 + d] = NAN;
                    c.do_in[(h * 60 + r) * 32 + d] = INFINITY;
                    c.k_in[r * 32 + d] = NAN;
                    c.v_in[r * 32 + d] = d % 2 ? NAN : -INFINITY;
                }
        kernel_values got = case_run(&c, &how), ref = case_naive(&clean);
        kernel_values plain = case_plain(&clean);
        values_check("padding", &got, i == 0 ? &ref : &plain, &ref,
                     i == 0 ? 0.25e-12 : FLT_EPSILON);
        for (size_t h = 0; h < 2; h++)
            for (size_t r = 40; r < 60; r++) {
                assert_true(got.lse[h * 60 + r] == -INFINITY);
                for (size_t d = 0; d < 32; d++) {
                    assert_true(got.o[(h * 60 + r) * 32 + d] == 0.0);
                    assert_true(got.dq[(h * 60 + r) * 32 + d] == 0.0);
                    assert_true(got.dk[r * 32 + d] == 0.0);
                    assert_true(got.dv[r * 32 + d] == 0.0);
                }
            }
        values_free(&got);
        values_free(&ref);
        values_free(&plain);
        case_free(&c);
        case_free(&clean);
    }
}

static void a_value_that_is_not_finite_shows(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        kernel_shape shape = {
            "nan", 1, 1, 1, 32, 32, 20, 20, .mask = {.causal = 1}};
        kernel_case c;

        case_make(&c, &shape, gyre_kernel_find(fast[i])->dtype, 5);
        c.k_in[7 * 32] = NAN;
        kernel_values v =
            case_run(&c, &(case_how){.kernel = fast[i], .workers = 1});
        for (size_t r = 0; r < 20; r++)
            assert_int_equal(isnan(v.o[r * 32]) != 0, r >= 7);
        values_free(&v);
        case_free(&c);
    }
}

/* ---- merging ------------------------------------------------------------ */

typedef struct part {
    double o[2], lse;
} part;

static part merged(const gyre_kernel *k, part a, part b)
{
    double held_f64[6] = {a.o[0], a.o[1], a.lse, b.o[0], b.o[1], b.lse};
    float held_f32[6];
    bool wide = k->sum == GYRE_F64;
    size_t e = wide ? 8 : 4;
    gyre_run_of_rows row = {0, 0, 1};
    gyre_reach reach = {
        .batch = 1, .h1 = 1, .dim = 2, .rows = &row, .count = 1};

    for (int i = 0; i < 6; i++)
        held_f32[i] = (float)held_f64[i];
    char *at = wide ? (char *)held_f64 : (char *)held_f32;
    gyre_plane planes[4];
    for (int i = 0; i < 4; i++)
        planes[i] = (gyre_plane){.at = at + (size_t)(i / 2 * 3 + i % 2 * 2) * e,
                                 .row = 2 * e};
    k->merge(&reach, k->sum, &planes[0], &planes[1], &planes[2], &planes[3]);
    for (int i = 0; i < 6 && !wide; i++)
        held_f64[i] = (double)held_f32[i];
    return (part){{held_f64[3], held_f64[4]}, held_f64[5]};
}

static void merging_has_an_identity(void **unused)
{
    static const char *const names[] = {"f64", "f32", "bf16"};
    part none = {{0, 0}, -INFINITY}, a = {{1, -2}, 3}, b = {{4, 8}, 3};
    part far = {{5, 5}, -200}, huge = {{1, 1}, 1e30};

    (void)unused;
    for (size_t i = 0; i < 3; i++) {
        const gyre_kernel *k = gyre_kernel_find(names[i]);
        part x = merged(k, none, none);

        assert_true(x.o[0] == 0 && x.o[1] == 0 && x.lse == -INFINITY);
        x = merged(k, a, none);
        assert_true(x.o[0] == 1 && x.o[1] == -2 && x.lse == 3);
        x = merged(k, none, a);
        assert_true(x.o[0] == 1 && x.o[1] == -2 && x.lse == 3);
        x = merged(k, a, b); /* equal weights, natural logarithm */
        assert_true(fabs(x.o[0] - 2.5) < 1e-6 && fabs(x.o[1] - 3) < 1e-6);
        assert_true(fabs(x.lse - (3 + log(2))) < 1e-6);
        x = merged(k, a, far);
        assert_true(x.o[0] == 1 && x.lse == 3);
        x = merged(k, huge, a);
        assert_true(x.o[0] == 1 && isfinite(x.lse));
        /* An identity's O is never read. */
        part garbage = {{NAN, INFINITY}, -INFINITY};
        x = merged(k, garbage, a);
        assert_true(x.o[0] == 1 && x.o[1] == -2);
        x = merged(k, a, garbage);
        assert_true(x.o[0] == 1 && x.o[1] == -2);
    }
    part sum = merged(gyre_kernel_find("count"), a, b);
    assert_true(sum.o[0] == 5 && sum.o[1] == 6 && sum.lse == 3);
}

/* ---- many hops ---------------------------------------------------------- */

/* Each merge rounds LSE (4 to 8 here: half an ulp is 2 eps) and O (about eps)
 * once, apart from the others: after n merges about sqrt(n) times that,
 * whatever the library's sums did on the instructions that it found.  One hop
 * in bf16 would show a thousand times as much. */
static void sixty_hops_add_the_roundings_of_their_merges(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        kernel_shape shape = {
            "hops", 1, 1, 1, 64, 64, 40, 240, .layout = CASE_WHOLE};
        kernel_case c;

        case_make(&c, &shape, gyre_kernel_find(fast[i])->dtype, 21);
        for (uint32_t p = 0; p < 60; p++)
            c.kv[p] = (gyre_piece){4 * p, 4, 1, 4 * p};
        c.kv_count = 60;
        kernel_values ref = case_naive(&c);
        kernel_values one =
            case_run(&c, &(case_how){.kernel = fast[i], .workers = 1});
        kernel_values got = case_run(
            &c, &(case_how){.kernel = fast[i], .workers = 1, .split = 60});
        values_check("60 hops", &got, &one, &ref, sqrt(60.0) * FLT_EPSILON);
        values_free(&got);
        values_free(&ref);
        values_free(&one);
        case_free(&c);
    }
}

/* Added to a sum of 2^20, whose last bit is 2^-3, what grad adds is rounded
 * once for its 12 heads and all tiles of queries. */
static void a_call_of_grad_rounds_running_sums_once(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        kernel_shape shape = {"sums",
                              1,
                              12,
                              1,
                              16,
                              8,
                              300,
                              300,
                              {.causal = 1},
                              .layout = CASE_WHOLE};
        kernel_case c;
        case_how how = {.kernel = fast[i]};

        case_make(&c, &shape, gyre_kernel_find(fast[i])->dtype, 31);
        kernel_values apart = case_run(&c, &how);
        how.before = 0x1p20;
        kernel_values sums = case_run(&c, &how);
        for (size_t n = 0; n < sums.dk_n; n++)
            sums.dk[n] -= how.before;
        for (size_t n = 0; n < sums.dv_n; n++)
            sums.dv[n] -= how.before;
        assert_true(values_most(apart.dk, apart.dk_n) > 1);
        assert_true(values_error(sums.dk, apart.dk, sums.dk_n) <= 0x1p-4);
        assert_true(values_error(sums.dv, apart.dv, sums.dv_n) <= 0x1p-4);
        values_free(&apart);
        values_free(&sums);
        case_free(&c);
    }
}

/* ---- bits ---------------------------------------------------------------- */

/* Rows of one tile against one tile: alone, among others, strided, moved. */
static void a_leaf_has_the_same_bits_from_any_pieces(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        kernel_shape shape = {"leaf",
                              1,
                              1,
                              1,
                              40,
                              24,
                              32,
                              32,
                              .mask = {.causal = 1},
                              .params = {.tile = 32}};
        kernel_case c;
        case_how how = {.kernel = fast[i], .workers = 1};
        case_how gaps = {.kernel = fast[i], .workers = 2, .gap = 3};

        case_make(&c, &shape, gyre_kernel_find(fast[i])->dtype, 31);
        kernel_values whole = case_run(&c, &how);
        /* Five rows of the Q tile alone, all keys, in three pieces. */
        kernel_case few = c;
        few.shape.q_rows = 5;
        few.q[0] = (gyre_piece){3, 5, 6, 0};
        few.q_in = calloc(5 * 40, 8), few.do_in = calloc(5 * 24, 8);
        for (size_t r = 0; r < 5; r++) {
            memcpy(few.q_in + r * 40, c.q_in + (3 + 6 * r) * 40, 40 * 8);
            memcpy(few.do_in + r * 24, c.do_in + (3 + 6 * r) * 24, 24 * 8);
        }
        few.kv[0] = (gyre_piece){20, 12, 1, 20};
        few.kv[1] = (gyre_piece){0, 8, 1, 0};
        few.kv[2] = (gyre_piece){8, 12, 1, 8};
        few.kv_count = 3;
        kernel_values got = case_run(&few, &gaps);
        for (size_t r = 0; r < 5; r++) {
            size_t at = 3 + 6 * r;

            assert_memory_equal(got.o + r * 24, whole.o + at * 24, 24 * 8);
            assert_memory_equal(got.lse + r, whole.lse + at, 8);
            assert_memory_equal(got.dq + r * 40, whole.dq + at * 40, 40 * 8);
        }
        values_free(&got);
        values_free(&whole);
        free(few.q_in);
        free(few.do_in);
        case_free(&c);
    }
}

static void rows_have_the_same_bits_on_every_instruction_set(void **unused)
{
    float x[160], y[160], z[160], dp[160];

    (void)unused;
#ifndef HAVE_SLEEF
    skip();
#endif
    for (int set = GYRE_ISA_SCALAR; set < GYRE_ISA_COUNT; set++) {
        const gyre_row_loops *loops = gyre_row_loops_of((gyre_isa)set);
        const gyre_row_loops *plain = gyre_row_loops_of(GYRE_ISA_SCALAR);
        float sum, sum2;

        for (int i = 0; i < 160; i++) {
            x[i] = i % 7 == 3 ? -INFINITY : sinf((float)i) * 30.0f - 20.0f;
            y[i] = z[i] = x[i];
            dp[i] = cosf((float)i);
        }
        float m = loops->soften(x, 160, -100.0f, &sum);
        float m2 = plain->soften(y, 160, -100.0f, &sum2);
        assert_memory_equal(x, y, sizeof(x));
        assert_true(m == m2 && sum == sum2);
        for (int i = 0; i < 160; i++) {
            double want = exp((double)(z[i] - m));

            /* 1 ulp, and what is below the least normal number may be 0. */
            assert_true(fabs((double)x[i] - want) <= 1.2e-7 * want + 1.2e-38);
        }
        memcpy(y, z, sizeof(y));
        loops->weigh(y, 160, 3.0f);
        plain->weigh(z, 160, 3.0f);
        assert_memory_equal(y, z, sizeof(y));
        memcpy(z, dp, sizeof(z));
        z[3] = dp[3] = NAN; /* y[3] is 0 */
        loops->slope(y, dp, 160, 0.25f, 0.5f);
        plain->slope(y, z, 160, 0.25f, 0.5f);
        assert_memory_equal(dp, z, sizeof(z));
        assert_true(dp[3] == 0.0f);
        assert_true(loops->exponential(-1.5f) == plain->exponential(-1.5f));
        for (int i = 0; i < 160; i++)
            x[i] = -INFINITY;
        m = loops->soften(x, 160, -INFINITY, &sum);
        assert_true(m == -INFINITY && sum == 0.0f && x[0] == 0.0f);
    }
}

/* ---- products ------------------------------------------------------------ */

static void the_library_multiplies_as_the_loops_do(void **unused)
{
    static float a[64 * 64], b[64 * 64], c[64 * 64], d[64 * 64];

    (void)unused;
    for (int i = 0; i < 64 * 64; i++)
        a[i] = (float)(i % 13) - 6.0f, b[i] = (float)(i % 11) - 5.0f;
    for (int kind = 0; kind < 3; kind++) { /* small integers: exact */
        gyre_product p = {.a_transposed = kind == 1,
                          .b_transposed = kind == 2,
                          .m = 17,
                          .n = 33,
                          .k = 20,
                          .alpha = 2.0f,
                          .beta = kind == 0 ? 0.0f : 1.0f,
                          .a = a,
                          .b = b,
                          .c = c,
                          .lda = 50,
                          .ldb = 60,
                          .ldc = 40};

        for (int i = 0; i < 64 * 64; i++)
            c[i] = d[i] = kind == 0 ? NAN : 1.0f;
        gyre_multiply(&p);
        p.c = d;
        gyre_multiply_plain(&p);
        for (int i = 0; i < 17; i++)
            assert_memory_equal(c + i * 40, d + i * 40, 33 * sizeof(float));
    }
    assert_true(strlen(gyre_multiply_name()) > 0);
}

/* ---- bad blocks -----------------------------------------------------------
 */

static void bad_blocks_are_refused(void **unused)
{
    float room[64], out[64];
    gyre_plane plane = {.at = (char *)room, .row = 32, .head = 64, .batch = 64};
    gyre_plane to = {.at = (char *)out, .row = 32, .head = 64, .batch = 64};
    gyre_piece piece = {0, 2, 1, 0}, still = {0, 2, 0, 0};
    const gyre_block good = {.batch = 1,
                             .heads = 2,
                             .kv_heads = 1,
                             .h1 = 2,
                             .head_dim = 8,
                             .v_head_dim = 8,
                             .q = &piece,
                             .kv = &piece,
                             .q_count = 1,
                             .kv_count = 1,
                             .Q = plane,
                             .K = plane,
                             .V = plane,
                             .O = to,
                             .LSE = to};
    const gyre_kernel *k = gyre_kernel_find("f32");
    enum { BAD = 12 };
    gyre_block bad[BAD];
    gyre_error error = {0};

    (void)unused;
    for (int i = 0; i < BAD; i++)
        bad[i] = good;
    bad[0].kv_heads = 0;
    bad[1].heads = 3, bad[1].kv_heads = 2;
    bad[2].h1 = 3;
    bad[3].head_dim = 0;
    bad[4].params.dropout = 1.0;
    bad[5].params.tile = 7;
    bad[6].kv = &still;
    bad[7].V.at = NULL;
    bad[8].Q.row = 30;
    bad[9].K.row = 28;
    bad[10].params.scale = NAN;
    bad[11].params.scale = 1e39; /* a double, no float */
    assert_int_equal(gyre_block_check(k, &good, false, &error), GYRE_OK);
    for (int i = 0; i < BAD; i++) {
        error.text[0] = '\0';
        assert_int_equal(gyre_block_check(k, &bad[i], false, &error),
                         GYRE_INVALID);
        assert_true(strlen(error.text) > 10);
    }
    assert_true(gyre_scale_fits(1e39, GYRE_F64));
    assert_false(gyre_scale_fits(INFINITY, GYRE_F64));
    /* grad without outputs, or with half of DK and DV. */
    assert_int_equal(gyre_block_check(k, &good, true, &error), GYRE_INVALID);
    bad[0] = good;
    bad[0].DO = bad[0].L = bad[0].D = bad[0].DK = plane;
    assert_int_equal(gyre_block_check(k, &bad[0], true, &error), GYRE_INVALID);
    bad[0].DV = plane;
    assert_int_equal(gyre_block_check(k, &bad[0], true, &error), GYRE_OK);
    memset(out, 0x77, sizeof(out));
    gyre_kernel_run run = {.workers = 1};
    assert_int_equal(k->attend(&good, &run, &error), GYRE_INVALID);
    for (size_t i = 0; i < sizeof(out); i++)
        assert_int_equal(((unsigned char *)out)[i], 0x77);
    assert_null(gyre_kernel_find("f16"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_is_independent_of_everything_but_the_pair),
        cmocka_unit_test(dropout_is_the_same_on_every_kernel_and_tiling),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(padding_may_hold_anything),
        cmocka_unit_test(a_value_that_is_not_finite_shows),
        cmocka_unit_test(merging_has_an_identity),
        cmocka_unit_test(sixty_hops_add_the_roundings_of_their_merges),
        cmocka_unit_test(a_call_of_grad_rounds_running_sums_once),
        cmocka_unit_test(a_leaf_has_the_same_bits_from_any_pieces),
        cmocka_unit_test(rows_have_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(the_library_multiplies_as_the_loops_do),
        cmocka_unit_test(bad_blocks_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
