/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: what is refused and how, export and import, both ways equal. */
#include "config.h"

#include "care.h"

#include "store/safetensors.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- the parser ------------------------------------------------------- */

#define T(dtype, shape, begin, end)                                         \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin \
    "," end "]}"

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

/* ---- files made by hand ----------------------------------------------- */

static void make_file(const char *path, const char *header, const void *data,
                      size_t bytes)
{
    uint64_t n = strlen(header);
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    fwrite(&n, 8, 1, file);
    fwrite(header, n, 1, file);
    if (bytes > 0)
        fwrite(data, bytes, 1, file);
    fclose(file);
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

    (void)state;
    care_folder(folder, "st");
    snprintf(path, sizeof(path), "%s/x", folder);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        FILE *file = fopen(path, "wb");
        gyre_error error;
        gyre_st st;

        fwrite(files[i].bytes, files[i].n, 1, file);
        fclose(file);
        assert_int_equal(gyre_st_open(context, path, &st, &error), GYRE_FORMAT);
        unit_assert_text(&error, path);
    }
    {
        gyre_error error;
        gyre_st st;

        assert_int_equal(gyre_st_open(context, folder, &st, &error),
                         GYRE_FORMAT);
        assert_int_equal(gyre_st_open(context, "/nowhere", &st, &error),
                         GYRE_NOT_FOUND);
    }
    care_remove(folder);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- export and import ------------------------------------------------ */

typedef struct fixture {
    unit_memory memory;
    gyre_context *context;
    char folder[256], path[300], file[300];
    char log[4096];
} fixture;

static void take_log(void *user, gyre_log_level level, const char *text)
{
    fixture *f = user;
    size_t n = strlen(f->log);

    if (level <= GYRE_LOG_WARNING)
        snprintf(f->log + n, sizeof(f->log) - n, "%s\n", text);
}

static gyre_store *set_up(fixture *f, int rounds)
{
    gyre_context_options options;
    gyre_store *store;

    memset(f, 0, sizeof(*f));
    options = unit_options(&f->memory);
    options.log = take_log;
    options.log_user = f;
    assert_int_equal(gyre_context_create(&options, &f->context, NULL), GYRE_OK);
    care_folder(f->folder, "st");
    snprintf(f->path, sizeof(f->path), "%s/store", f->folder);
    snprintf(f->file, sizeof(f->file), "%s/x.safetensors", f->folder);
    store = care_create(f->context, f->path, 2, 0);
    care_rounds(store, rounds);
    return store;
}

static void tear_down(fixture *f)
{
    care_remove(f->folder);
    gyre_context_destroy(f->context);
    unit_memory_check(&f->memory);
}

static void must_export(fixture *f, gyre_store *store, int parameters_only)
{
    gyre_error error;

    if (gyre_store_export(store, f->file, parameters_only, NULL, NULL,
                          &error) != GYRE_OK)
        fail_msg("%s", error.text);
}

static gyre_status import(fixture *f, const char *path, gyre_error *error)
{
    gyre_store_options options = {
        .size = sizeof(options), .io = "posix", .buffers = 2};

    return gyre_store_import(f->context, path, f->file, &options, NULL, NULL,
                             error);
}

static void must_import(fixture *f, const char *path)
{
    gyre_error error;

    if (import(f, path, &error) != GYRE_OK)
        fail_msg("%s", error.text);
}

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
    gyre_store_read(store, 3, -1, 0, 64, GYRE_F32, bias, NULL);
    gyre_store_read(store, 3, 0, 0, 64, GYRE_F32, m, NULL);
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

/* All bytes of the last export. */
static size_t slurp(const fixture *f, char *out, size_t room)
{
    FILE *file = fopen(f->file, "rb");
    size_t n;

    assert_non_null(file);
    n = fread(out, 1, room, file);
    fclose(file);
    assert_true(n < room);
    return n;
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

/* ---- failures --------------------------------------------------------- */

static int stop_second(void *user, uint64_t done, uint64_t total)
{
    int *calls = user;

    assert_true(done <= total);
    return ++*calls == 2;
}

static void test_stopped(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state want = care_state_of(store), got;
    gyre_error error;
    int calls = 0;

    (void)state;
    assert_int_equal(
        gyre_store_export(store, f.file, 0, stop_second, &calls, &error),
        GYRE_STOPPED);
    assert_int_equal(care_files(f.folder), 1);
    must_export(&f, store, 0);
    gyre_store_close(store);
    calls = 1;
    assert_int_equal(gyre_store_import(f.context, f.path, f.file, NULL,
                                       stop_second, &calls, &error),
                     GYRE_STOPPED);
    assert_int_equal(care_files(f.path), 4);
    got = care_state_at(f.context, f.path);
    assert_string_equal(want.text, got.text);
    tear_down(&f);
}

static void test_every_allocation_fails(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state want = care_state_of(store), got;
    gyre_error error;
    gyre_status status;
    uint64_t n;

    (void)state;
    for (n = 1;; n++) {
        f.memory.fail_at = f.memory.requests + n;
        status = gyre_store_export(store, f.file, 0, NULL, NULL, &error);
        f.memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_int_equal(care_files(f.folder), 1);
    }
    assert_true(n > 10);
    gyre_store_close(store);
    for (n = 1;; n++) {
        uint64_t before = f.memory.bytes;

        f.memory.fail_at = f.memory.requests + n;
        status = import(&f, f.path, &error);
        f.memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        if (status != GYRE_NO_MEMORY)
            fail_msg("request %llu: %s", (unsigned long long)n, error.text);
        assert_int_equal(f.memory.bytes, before);
        assert_int_equal(f.memory.wrong, 0);
        assert_int_equal(care_files(f.path), 4);
    }
    assert_true(n > 50);
    got = care_state_at(f.context, f.path);
    assert_string_equal(want.text, got.text);
    tear_down(&f);
}

/* The damage is found while it is copied; nothing half-written stays. */
static void test_damaged_store_is_not_exported(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    char name[400];
    gyre_store_info info = {.size = sizeof(info)};
    gyre_error error;
    int fd;

    (void)state;
    gyre_store_get_info(store, &info, NULL);
    snprintf(name, sizeof(name), "%s/%.8s.g1.d01", f.path, info.uuid);
    fd = open(name, O_WRONLY);
    for (off_t at = 65536; at < 1 << 20; at += 4096)
        assert_int_equal(pwrite(fd, "damaged", 7, at), 7);
    close(fd);
    assert_int_equal(gyre_store_export(store, f.file, 0, NULL, NULL, &error),
                     GYRE_CORRUPT);
    assert_int_equal(care_files(f.folder), 1);
    gyre_store_close(store);
    tear_down(&f);
}

/* Written whole, and then it cannot have the name: nothing of it stays. */
static void test_a_name_that_cannot_be_had(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 0);
    gyre_error error;

    (void)state;
    mkdir(f.file, 0700);
    assert_int_equal(gyre_store_export(store, f.file, 0, NULL, NULL, &error),
                     GYRE_IO);
    unit_assert_text(&error, "cannot rename");
    assert_int_equal(care_files(f.folder), 2);
    gyre_store_close(store);
    tear_down(&f);
}

static void test_disk_full(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    char path[300];
    gyre_error error;

    (void)state;
    snprintf(path, sizeof(path), "%s/small", f.folder);
    mkdir(path, 0700);
    if (!care_small_disk(path, "size=64k")) {
        gyre_store_close(store);
        tear_down(&f);
        skip();
    }
    snprintf(f.file, sizeof(f.file), "%s/x.safetensors", f.folder);
    {
        char file[400];

        snprintf(file, sizeof(file), "%s/x", path);
        assert_int_equal(gyre_store_export(store, file, 0, NULL, NULL, &error),
                         GYRE_NO_SPACE);
        assert_int_equal(care_files(path), 0);
    }
    assert_int_equal(umount(path), 0);
    gyre_store_close(store);
    tear_down(&f);
}

/* Old values or new ones, never some of each. */
static void test_killed_import(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state old, new, got;
    int killed = 1, n;

    (void)state;
    care_rounds(store, 2);
    must_export(&f, store, 0);
    new = care_state_of(store);
    gyre_store_close(store);
    care_remove(f.path);
    store = care_create(f.context, f.path, 2, 0);
    care_rounds(store, 3); /* so that round, blob and step are the same */
    gyre_store_close(store);
    {
        /* and one value is not */
        float other = 42;
        char keep[320];

        snprintf(keep, sizeof(keep), "%s.keep", f.file);
        assert_int_equal(rename(f.file, keep), 0);
        make_file(f.file, "{\"scale\":" T("F32", "[]", "0", "4") "}", &other,
                  4);
        must_import(&f, f.path);
        assert_int_equal(rename(keep, f.file), 0);
    }
    old = care_state_at(f.context, f.path);
    assert_string_not_equal(old.text, new.text);
    for (n = 1; killed; n += 5) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            gyre_store_options options = {.size = sizeof(options)};
            gyre_context *context = NULL;
            char io[64];

            snprintf(io, sizeof(io), "faulty:posix,kill=%d", n);
            options.io = io;
            if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
                _exit(2);
            unit_end_child(gyre_store_import(context, f.path, f.file, &options,
                                             NULL, NULL, NULL) == GYRE_OK);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        killed = WIFSIGNALED(status);
        if (!killed)
            assert_int_equal(WEXITSTATUS(status), 0);
        got = care_state_at(f.context, f.path);
        assert_string_equal(got.text, killed ? old.text : new.text);
        assert_int_equal(care_files(f.path), 4);
    }
    assert_true(n > 30);
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
        cmocka_unit_test(test_control_word_of_the_host),
        cmocka_unit_test(test_a_step_beyond_2_63),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_damaged_store_is_not_exported),
        cmocka_unit_test(test_a_name_that_cannot_be_had),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_killed_import),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
