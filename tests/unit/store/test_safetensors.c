/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: which files are taken, and which are refused and how. */
#include "config.h"

#include "exchange.h"

#include "store/safetensors.h"

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

/* Steps are whole numbers as JSON has them; near 2^64 the next would be 0. */
static void test_a_step_beyond_2_63(void **state)
{
    static char bytes[1 << 20], text[1 << 16];
    static const char mark[] = "\"gyre.step\":\"";
    fixture f;
    gyre_store *store = set_up(&f, 1);
    gyre_error error;
    uint64_t length;
    size_t n, cut;
    char *at;

    (void)state;
    must_export(&f, store, 0);
    gyre_store_close(store);
    n = slurp(&f, bytes, sizeof(bytes));
    memcpy(&length, bytes, sizeof(length));
    assert_true(length < sizeof(text) - 64);
    memcpy(text, bytes + 8, length);
    at = strstr(text, mark);
    assert_non_null(at);
    cut = (size_t)(at - text) + strlen(mark);
    assert_memory_equal(text + cut, "1\"", 2);
    snprintf(text + cut, sizeof(text) - cut, "9223372036854775808%.*s",
             (int)(length - cut - 1), bytes + 8 + cut + 1);
    make_file(f.file, text, bytes + 8 + length, n - 8 - length);
    assert_int_equal(import(&f, f.path, &error), GYRE_FORMAT);
    unit_assert_text(&error, "below 2^63, not \"9223372036854775808\"");
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_refused_imports),
        cmocka_unit_test(test_a_step_beyond_2_63),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
