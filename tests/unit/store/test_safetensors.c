/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: what is refused and how, export and import, both ways equal. */
#include "config.h"

#include "exchange.h"

#include "store/safetensors.h"

#include <math.h>

/* ---- the parser ------------------------------------------------------- */

static const struct {
    const char *header;
    uint64_t data;    /* bytes behind the header */
    const char *text; /* NULL: good */
} headers[] = {
    {"{}", 0, NULL},
    {"{}   ", 0, NULL},
    {"{\"a\":" T("F32", "[2,3]", "0", "24") "}", 24, NULL},
    {"{\"a\":" T("F32", "[]", "0", "4") "}", 4, NULL},
    {"{\"a\":" T("F32", "[0,9223372036854775807,9223372036854775807]", "0",
                 "0") "}",
     0, NULL},
    {"{\"b\":" T("BF16", "[2]", "8", "12") ",\"a\":" T("F64", "[1]", "0",
                                                       "8") "}",
     12, NULL},
    {"{\"__metadata__\":{\"k\":\"v\"},\"a\":" T("U8", "[1]", "0", "1") "}", 1,
     NULL},
    {"", 0, "does not begin with \"{\""},
    {" {}", 0, "does not begin with \"{\""},
    {"[]", 0, "does not begin with \"{\""},
    {"{\"a\":", 0, "header, byte"},
    {"{}{}", 0, "header, byte"},
    {"{\"a\":{},\"a\":{}}", 0, "duplicate"},
    {"{\"a\\u0000b\":{}}", 0, "header, byte"},
    {"{\"\xff\":{}}", 0, "header, byte"},
    {"{\"a\":1}", 0, "tensor \"a\" must be an object"},
    {"{\"\":" T("F32", "[1]", "0", "4") "}", 4, "empty name"},
    {"{\"a\":{}}", 0, "tensor \"a\": field \"dtype\""},
    {"{\"a\":" T("F31", "[1]", "0", "4") "}", 4, "field \"dtype\""},
    {"{\"a\":{\"dtype\":5}}", 4, "field \"dtype\""},
    {"{\"a\":{\"dtype\":\"F32\"}}", 4, "field \"shape\""},
    {"{\"a\":" T("F32", "[-1]", "0", "4") "}", 4, "field \"shape\""},
    {"{\"a\":" T("F32", "[1.0]", "0", "4") "}", 4, "field \"shape\""},
    {"{\"a\":" T("F32", "[\"1\"]", "0", "4") "}", 4, "field \"shape\""},
    {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4,
     "at most 8 dimensions"},
    {"{\"a\":" T("F32", "[4294967296,4294967296]", "0", "4") "}", 4,
     "less than 2^64"},
    {"{\"a\":" T("F32", "[4611686018427387905]", "0", "4") "}", 4,
     "field \"data_offsets\" spans"},
    {"{\"a\":" T("F32", "[99999999999999999999]", "0", "4") "}", 4,
     "header, byte"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "field \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
     "field \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
     "field \"data_offsets\""},
    {"{\"a\":" T("F32", "[1]", "-4", "0") "}", 4, "field \"data_offsets\""},
    {"{\"a\":" T("F32", "[1]", "4", "0") "}", 4, "field \"data_offsets\""},
    {"{\"a\":" T("F32", "[1]", "0", "4") "}", 3, "it is truncated"},
    {"{\"a\":" T("F32", "[1]", "0", "9223372036854775807") "}", 4,
     "it is truncated"},
    {"{\"a\":" T("F32", "[2]", "0", "4") "}", 4, "spans 4 bytes"},
    {"{\"a\":" T("F32", "[1]", "0", "4") "}", 5, "belong to none"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "2",
                                                     "6") "}",
     6,
     "tensor \"b\": field \"data_offsets\" begins at 2, which "
     "overlaps"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "0",
                                                     "4") "}",
     4, "overlaps"},
    {"{\"a\":" T("F32", "[1]", "4", "8") "}", 8, "leaves a gap"},
    {"{\"__metadata__\":5}", 0, "\"__metadata__\" must be an object"},
    {"{\"__metadata__\":{\"k\":5}}", 0, "\"k\" must be a text"},
};

static void test_headers(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);

    (void)state;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        size_t n = strlen(headers[i].header);
        gyre_error error = {GYRE_OK, ""};
        gyre_st st;
        gyre_status status =
            gyre_st_parse(context, "x.safetensors", headers[i].header, n,
                          8 + n + headers[i].data, &st, &error);

        if (headers[i].text == NULL) {
            if (status != GYRE_OK)
                fail_msg("%s: %s", headers[i].header, error.text);
            gyre_st_close(&st);
            continue;
        }
        if (status != GYRE_FORMAT)
            fail_msg("taken: %s", headers[i].header);
        unit_assert_text(&error, headers[i].text);
        unit_assert_text(&error, "x.safetensors");
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_header_length(void **state)
{
    static const struct {
        unsigned char bytes[16];
        size_t n;
    } files[] = {
        {"", 0},
        {"{}", 2},
        {"\x02\0\0\0\0\0\0", 7},
        {"\x03\0\0\0\0\0\0\0{}", 10},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10},
        {"\xf8\xff\xff\xff\xff\xff\xff\xff{}", 10},
    };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char folder[256], path[300];
    gyre_error error;
    gyre_st st;

    (void)state;
    care_folder(folder, "st");
    snprintf(path, sizeof(path), "%s/x", folder);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        FILE *file = fopen(path, "wb");

        fwrite(files[i].bytes, files[i].n, 1, file);
        fclose(file);
        assert_int_equal(gyre_st_open(context, path, &st, &error), GYRE_FORMAT);
        unit_assert_text(&error, path);
    }
    assert_int_equal(gyre_st_open(context, folder, &st, &error), GYRE_FORMAT);
    assert_int_equal(gyre_st_open(context, "/nowhere", &st, &error),
                     GYRE_NOT_FOUND);
    care_remove(folder);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- export and import ------------------------------------------------ */

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

static void test_refused_imports(void **state)
{
    static const struct {
        const char *header;
        size_t bytes;
        gyre_status status;
        const char *text;
    } files[] = {
        {"{\"nobody\":" T("F32", "[1]", "0", "4") "}", 4, GYRE_NOT_FOUND,
         "tensor \"nobody\" is not in store"},
        {"{\"exp_avg/frozen.pos\":" T("F32", "[2000]", "0", "8000") "}", 8000,
         GYRE_NOT_FOUND, "tensor \"exp_avg/frozen.pos\""},
        {"{\"h.0.weight\":" T("F32", "[64,63]", "0", "16128") "}", 16128,
         GYRE_INVALID, "has shape [64, 63]"},
        {"{\"h.0.weight\":" T("F32", "[4096]", "0", "16384") "}", 16384,
         GYRE_INVALID, "it is [64, 64]"},
        {"{\"scale\":" T("I32", "[]", "0", "4") "}", 4, GYRE_UNSUPPORTED,
         "tensor \"scale\" is I32"},
        {"{\"scale\":" T("F32", "[]", "0", "4") ",\"__metadata__\":{"
                                                "\"gyre.steps\":\"[]\"}}",
         4, GYRE_FORMAT, "metadata \"gyre.steps\" must be an object"},
        {"{\"scale\":" T("F32", "[]", "0", "4") ",\"__metadata__\":{"
                                                "\"gyre.steps\":\"{\"}}",
         4, GYRE_FORMAT, "metadata \"gyre.steps\", byte"},
        {"{\"scale\":" T("F32", "[]", "0",
                         "4") ",\"__metadata__\":{"
                              "\"gyre.steps\":\"{\\\"scale\\\":-1}\"}}",
         4, GYRE_FORMAT, "tensor \"scale\" must have a whole number"},
    };
    static const char zeros[1 << 15];
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state want = care_state_of(store), got;
    gyre_error error;

    (void)state;
    gyre_store_close(store);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        make_file(f.file, files[i].header, zeros, files[i].bytes);
        assert_int_equal(import(&f, f.path, &error), files[i].status);
        unit_assert_text(&error, files[i].text);
        unit_assert_text(&error, f.file);
    }
    unlink(f.file);
    assert_int_equal(import(&f, f.path, &error), GYRE_NOT_FOUND);
    assert_int_equal(
        gyre_store_import(f.context, f.path, NULL, NULL, NULL, NULL, &error),
        GYRE_INVALID);
    assert_int_equal(care_files(f.path), 4);
    got = care_state_at(f.context, f.path);
    assert_string_equal(want.text, got.text);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_parameters_only),
        cmocka_unit_test(test_other_dtypes),
        cmocka_unit_test(test_refused_imports),
        cmocka_unit_test(test_names_that_collide),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
