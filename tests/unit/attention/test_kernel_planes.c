/* SPDX-License-Identifier: Apache-2.0 */
/* Planes: identities, sums over dtypes, casts rounded once, delta. */
#include "config.h"

#include "kernel_case.h"

#include <math.h>

static const gyre_run_of_rows rows[] = {{1, 0, 1}, {3, 2, 2}};
static const gyre_reach reach = {
    .batch = 1, .h0 = 1, .h1 = 2, .dim = 3, .rows = rows, .count = 2};

static gyre_plane plane(void *at, size_t element)
{
    return (gyre_plane){
        .at = at, .row = 4 * element, .head = 20 * element, .head0 = 1};
}

static void identities_fill_what_is_reached(void **unused)
{
    double x[20];
    float y[20];
    gyre_plane at = plane(x, 8), narrow = plane(y, 4);

    (void)unused;
    for (int i = 0; i < 20; i++)
        x[i] = 9, y[i] = 9;
    gyre_identity(&reach, GYRE_F64, -INFINITY, &at);
    gyre_identity(&reach, GYRE_F32, 0.0, &narrow);
    for (int r = 0; r < 5; r++)
        for (int d = 0; d < 4; d++) {
            bool in = d < 3 && (r == 0 || r == 2 || r == 3);

            assert_true(x[r * 4 + d] == (in ? -INFINITY : 9));
            assert_true(y[r * 4 + d] == (in ? 0 : 9));
        }
}

static void sums_are_made_in_the_wider_dtype(void **unused)
{
    uint16_t a[20];
    float b[20];
    double c[20];
    float small = 1.0f / 256;
    gyre_plane pa = plane(a, 2), pb = plane(b, 4), pc = plane(c, 8);

    (void)unused;
    for (int i = 0; i < 20; i++) {
        gyre_from_f32(GYRE_BF16, &small, &a[i], 1);
        b[i] = 1.0f, c[i] = 1.0;
    }
    /* 1 + 2^-8 is no bf16: a sum in bf16 would lose it. */
    gyre_add_planes(&reach, GYRE_BF16, &pa, GYRE_F32, &pb);
    gyre_add_planes(&reach, GYRE_BF16, &pa, GYRE_F64, &pc);
    assert_true(b[0] == 1.0f + small && b[8] == 1.0f + small);
    assert_true(b[3] == 1.0f && b[4] == 1.0f && b[16] == 1.0f);
    assert_true(c[0] == 1.0 + 1.0 / 256 && c[4] == 1.0);
    gyre_add_planes(&reach, GYRE_F64, &pc, GYRE_F64, &pc);
    assert_true(c[8] == 2.0 * (1.0 + 1.0 / 256) || c[8] > 2.0);
}

static void casts_round_once(void **unused)
{
    /* Just above the middle of 1 and 1 + 2^-7: through f32 it would fall on
     * the middle, and then to even, down. */
    double x[20], back[20];
    uint16_t y[20];
    float one = 1.0f, next = 1.0f + 1.0f / 128;
    uint16_t up, down;
    gyre_plane px = plane(x, 8), py = plane(y, 2), pb = plane(back, 8);

    (void)unused;
    memset(y, 0, sizeof(y));
    for (int i = 0; i < 20; i++)
        x[i] = 1.0 + 1.0 / 256 + 0x1p-40;
    x[12] = -(1.0 + 1.0 / 256 - 0x1p-40);
    gyre_convert(&reach, GYRE_F64, &px, GYRE_BF16, &py);
    gyre_from_f32(GYRE_BF16, &next, &up, 1);
    gyre_from_f32(GYRE_BF16, &one, &down, 1);
    assert_int_equal(y[0], up);
    assert_int_equal(y[8], down | 0x8000); /* from row 3 into row 2 */
    assert_int_equal(y[9], up);
    gyre_run_of_rows same[] = {{2, 2, 1}};
    gyre_reach one_row = {
        .batch = 1, .h0 = 1, .h1 = 2, .dim = 3, .rows = same, .count = 1};
    gyre_convert(&one_row, GYRE_BF16, &py, GYRE_F64, &pb);
    assert_true(back[8] == -1.0 && back[9] == (double)next);
    uint64_t odd = 0x7ff0dead00000001; /* a NaN keeps its bits in a copy */
    memcpy(&x[8], &odd, 8);
    gyre_convert(&one_row, GYRE_F64, &px, GYRE_F64, &pb);
    assert_memory_equal(&back[8], &odd, 8);
}

static void delta_is_a_row_sum(void **unused)
{
    float o[20], d_o[20], f[5] = {0}, *out = f;
    double wide[5] = {0}, wo[20], wd[20];
    gyre_plane po = plane(o, 4), pd = plane(d_o, 4);
    gyre_plane pf = {.at = (char *)out, .row = 4, .head0 = 1};
    gyre_plane qo = plane(wo, 8), qd = plane(wd, 8);
    gyre_plane pw = {.at = (char *)wide, .row = 8, .head0 = 1};

    (void)unused;
    for (int i = 0; i < 20; i++)
        o[i] = (float)i, d_o[i] = (float)(i % 3), wo[i] = i, wd[i] = i % 3;
    gyre_delta(&reach, GYRE_F32, &po, &pd, GYRE_F32, &pf);
    gyre_delta(&reach, GYRE_F64, &qo, &qd, GYRE_F64, &pw);
    assert_true(f[0] == 4 * 1 + 5 * 2 + 6 * 0 && f[1] == 0);
    assert_true(f[2] == 12 * 0 + 13 * 1 + 14 * 2);
    assert_true(wide[0] == 14 && wide[2] == 41 && wide[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identities_fill_what_is_reached),
        cmocka_unit_test(sums_are_made_in_the_wider_dtype),
        cmocka_unit_test(casts_round_once),
        cmocka_unit_test(delta_is_a_row_sum),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
