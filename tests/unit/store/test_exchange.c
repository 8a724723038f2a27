/* SPDX-License-Identifier: Apache-2.0 */
/* Export and import: both ways equal, in parts, in other dtypes. */
#include "config.h"

#include "exchange.h"

#include <math.h>

/* Without what an export does not carry: round, loss scale, blob. */
static void expect_same_values(const care_state *a, const care_state *b)
{
    const char *x = strstr(a->text, " round "), *y = strstr(b->text, " round ");

    assert_int_equal(x - a->text, y - b->text);
    assert_memory_equal(a->text, b->text, x - a->text);
    x = strstr(a->text, " step ");
    y = strstr(b->text, " step ");
    assert_int_equal(strcspn(x + 6, " "), strcspn(y + 6, " "));
    assert_memory_equal(x, y, 6 + strcspn(x + 6, " "));
}

/* Into a fresh store of another layout, and back once more. */
static void test_round_trip(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 4), *other;
    care_state want = care_state_of(store), got;
    char path[320];
    gyre_error error;

    (void)state;
    must_export(&f, store, 0);
    assert_int_equal(care_files(f.folder), 2); /* nothing beside it */
    snprintf(path, sizeof(path), "%s/other", f.folder);
    assert_int_equal(
        care_try_create(f.context, path, 3, 1024, 1, &other, &error), GYRE_OK);
    care_rounds(other, 2);
    gyre_store_close(other);
    must_import(&f, path);
    assert_int_equal(care_files(path), 5);
    other = care_open(f.context, path);
    got = care_state_of(other);
    expect_same_values(&want, &got);
    /* and it goes on as the first one does */
    gyre_store_close(store);
    store = care_open(f.context, f.path);
    must_export(&f, other, 0);
    gyre_store_close(other);
    gyre_store_close(store);
    must_import(&f, f.path);
    store = care_open(f.context, f.path);
    got = care_state_of(store);
    assert_string_equal(got.text, want.text); /* round, blob, scale stay */
    care_rounds(store, 2);
    got = care_state_of(store);
    gyre_store_close(store);
    want = care_reference(f.context, 6, 0);
    assert_string_equal(got.text, want.text);
    assert_string_equal(f.log, "");
    tear_down(&f);
}

static uint64_t step_of(gyre_store *store, size_t tensor)
{
    gyre_tensor t;
    uint64_t step;

    assert_int_equal(gyre_store_tensor(store, tensor, &t, &step, NULL),
                     GYRE_OK);
    return step;
}

/* Parameters alone bring no step: the state they would belong to is missing. */
static void test_parameters_only(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 4);
    gyre_store_info info = {.size = sizeof(info)};
    char before[GYRE_DIGEST_TEXT], after[GYRE_DIGEST_TEXT], path[320];
    float zero = 1;

    (void)state;
    gyre_store_digest(store, before, NULL);
    must_export(&f, store, 1);
    gyre_store_close(store);
    snprintf(path, sizeof(path), "%s/other", f.folder);
    gyre_store_close(care_create(f.context, path, 1, 0));
    must_import(&f, path);
    store = care_open(f.context, path);
    gyre_store_digest(store, after, NULL);
    assert_string_equal(before, after);
    gyre_store_get_info(store, &info, NULL);
    assert_int_equal(info.step, 0);
    assert_int_equal(step_of(store, 0), 0);
    assert_int_equal(gyre_store_read(store, 0, 0, 5, 1, GYRE_F32, &zero, NULL),
                     GYRE_OK);
    assert_true(zero == 0);
    gyre_store_close(store);
    tear_down(&f);
}

/* Some tensors, in other dtypes, with NaN; the others stay. */
static void test_other_dtypes(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state before = care_state_of(store), after;
    unsigned char data[8 + 2 * 64 + 2 * 64];
    double scale = 0.1;
    float value, bias[64], m[64];

    (void)state;
    gyre_store_close(store);
    memcpy(data, &scale, 8);
    for (int i = 0; i < 64; i++) {
        uint16_t bf16 = (uint16_t)(0x3f80 + i); /* 1 + i / 128 */
        uint16_t f16 = (uint16_t)(0x3c00 + i);  /* 1 + i / 1024 */

        if (i == 7)
            bf16 = 0x7fc0;
        memcpy(data + 8 + 2 * i, &bf16, 2);
        memcpy(data + 8 + 128 + 2 * i, &f16, 2);
    }
    make_file(
        f.file,
        "{\"scale\":" T("F64", "[]", "0", "8") ",\"h.0.bias\":" T(
            "BF16", "[64]", "8",
            "136") ",\"exp_avg/h.0.bias\":" T("F16", "[64]", "136", "264") "}",
        data, sizeof(data));
    must_import(&f, f.path);
    assert_non_null(strstr(f.log, "1 values are not a number, the first in "
                                  "\"h.0.bias\""));
    store = care_open(f.context, f.path);
    assert_int_equal(
        gyre_store_read(store, 4, -1, 0, 1, GYRE_F32, &value, NULL), GYRE_OK);
    assert_true(value == (float)scale);
    assert_int_equal(gyre_store_read(store, 3, -1, 0, 64, GYRE_F32, bias, NULL),
                     GYRE_OK);
    assert_int_equal(gyre_store_read(store, 3, 0, 0, 64, GYRE_F32, m, NULL),
                     GYRE_OK);
    for (int i = 0; i < 64; i++) {
        assert_true(i == 7 ? isnan(bias[i]) : bias[i] == 1 + i / 128.0f);
        assert_true(m[i] == 1 + i / 1024.0f);
    }
    assert_int_equal(step_of(store, 3), 1);
    after = care_state_of(store);
    assert_string_not_equal(before.text, after.text);
    gyre_store_close(store);
    tear_down(&f);
}

/* "exp_avg/w" is a tensor, and also slot exp_avg of tensor w: refused, unless
 * it is for parameters only. */
static void test_names_that_collide(void **state)
{
    gyre_tensor tensors[] = {{.name = "w", .rank = 1, .shape = {5}},
                             {.name = "exp_avg/w", .rank = 1, .shape = {5}}};
    gyre_tensor bad = {.name = "\xff\xfe", .rank = 1, .shape = {5}};
    gyre_store_spec spec = {
        .size = sizeof(spec), .tensors = tensors, .tensor_count = 2};
    fixture f;
    gyre_store *store = set_up(&f, 0);
    char path[320];
    gyre_error error;

    (void)state;
    gyre_store_close(store);
    snprintf(path, sizeof(path), "%s/other", f.folder);
    assert_int_equal(
        gyre_store_create(f.context, path, &spec, NULL, &store, NULL), GYRE_OK);
    assert_string_equal(gyre_store_slot(store, 0), "exp_avg");
    assert_int_equal(gyre_store_export(store, f.file, 0, NULL, NULL, &error),
                     GYRE_DUPLICATE);
    unit_assert_text(&error, "\"exp_avg/w\"");
    must_export(&f, store, 1);
    gyre_store_close(store);
    must_import(&f, path);
    /* a name that JSON cannot hold is refused when the store is made */
    care_remove(path);
    spec.tensors = &bad;
    spec.tensor_count = 1;
    assert_int_equal(
        gyre_store_create(f.context, path, &spec, NULL, &store, &error),
        GYRE_INVALID);
    unit_assert_text(&error, "is not UTF-8");
    assert_int_not_equal(access(path, F_OK), 0);
    tear_down(&f);
}

/* A host that flushes denormals: what a codec has below them is exported, and
 * the host's control word is as it was. */
static void test_control_word_of_the_host(void **state)
{
#if defined(__x86_64__)
    static char want[65536], have[65536];
    gyre_tensor tensor = {.name = "w", .rank = 1, .shape = {1000}};
    const gyre_slot_codec codec = {"*", GYRE_STATE_Q8};
    gyre_store_spec spec = {.size = sizeof(spec),
                            .tensors = &tensor,
                            .tensor_count = 1,
                            .codecs = &codec,
                            .codec_count = 1};
    gyre_gradient gradient = {.dtype = GYRE_F32};
    const unsigned word = __builtin_ia32_stmxcsr();
    fixture f;
    gyre_store *store = set_up(&f, 0);
    gyre_round *round;
    float g[1000], v;
    char path[320];
    size_t n;

    gyre_store_close(store);
    snprintf(path, sizeof(path), "%s/other", f.folder);
    assert_int_equal(
        gyre_store_create(f.context, path, &spec, NULL, &store, NULL), GYRE_OK);
    for (int i = 0; i < 1000; i++)
        g[i] = 3e-19f; /* (1 - beta2) g g is about 9e-41 */
    gradient.data = g;
    assert_int_equal(gyre_round_begin(store, NULL, &round, NULL), GYRE_OK);
    assert_int_equal(gyre_round_gradient(round, 0, 0, 1000, &gradient, NULL),
                     GYRE_OK);
    assert_int_equal(gyre_round_finish(round, NULL, 0, NULL, NULL), GYRE_OK);
    assert_int_equal(gyre_store_read(store, 0, 1, 0, 1, GYRE_F32, &v, NULL),
                     GYRE_OK);
    assert_true(v > 0 && v < 1e-38f);
    must_export(&f, store, 0);
    n = slurp(&f, want, sizeof(want));
    __builtin_ia32_ldmxcsr(0xffc0); /* FTZ, DAZ, round to zero */
    must_export(&f, store, 0);
    assert_int_equal(__builtin_ia32_stmxcsr() & 0xffc0u, 0xffc0);
    __builtin_ia32_ldmxcsr(word);
    assert_int_equal(slurp(&f, have, sizeof(have)), n);
    assert_memory_equal(want, have, n);
    gyre_store_close(store);
    tear_down(&f);
#endif
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_parameters_only),
        cmocka_unit_test(test_other_dtypes),
        cmocka_unit_test(test_names_that_collide),
        cmocka_unit_test(test_control_word_of_the_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
