/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of a trace, read back by a parser that is not ours. */
#include "config.h"

#include "../unit.h"

#include <gyre/trace.h>

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static gyre_context *traced(unit_memory *memory)
{
    gyre_context_options options = unit_options(memory);
    gyre_context *context = NULL;

    options.trace_records = 64;
    assert_int_equal(gyre_context_create(&options, &context, NULL), GYRE_OK);
    return context;
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/gyre-trace-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof(path), "%s/t.json", folder);
    unlink(path);
    return rmdir(folder); /* fails when a .tmp was left */
}

static json_t *write_and_parse(gyre_context *context)
{
    char path[128];
    gyre_error error = {0};
    json_error_t parse_error;
    json_t *root;

    snprintf(path, sizeof(path), "%s/t.json", folder);
    if (gyre_trace_write_json(context, path, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    root = json_load_file(path, 0, &parse_error);
    if (root == NULL)
        fail_msg("line %d: %s", parse_error.line, parse_error.text);
    return root;
}

static const char *text_of(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    assert_non_null(text);
    return text;
}

static double number_of(json_t *object, const char *key)
{
    json_t *number = json_object_get(object, key);

    assert_true(json_is_number(number));
    return json_number_value(number);
}

static void test_events(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory);
    uint32_t read = gyre_trace_intern(context, "read");
    json_t *root, *events, *event, *other;

    (void)state;
    gyre_trace_name_thread(context, "main \"thread\"");
    gyre_trace_record(context, GYRE_TRACE_STORAGE_READ, read,
                      1700000000000001000u, 1700000000000003500u, 4096);
    gyre_trace_record(context, GYRE_TRACE_LINK, read, 1700000000000002007u,
                      1700000000000002007u, 1u << 31);
    root = write_and_parse(context);
    events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), 3);

    event = json_array_get(events, 0);
    assert_string_equal(text_of(event, "ph"), "M");
    assert_string_equal(text_of(json_object_get(event, "args"), "name"),
                        "main \"thread\"");
    event = json_array_get(events, 1);
    assert_string_equal(text_of(event, "ph"), "X");
    assert_string_equal(text_of(event, "name"), "read");
    assert_string_equal(text_of(event, "cat"), "storage read");
    assert_true(number_of(event, "ts") == 0);
    assert_true(number_of(event, "dur") == 2.5);
    assert_true(number_of(event, "tid") == 1);
    assert_true(number_of(event, "pid") == getpid());
    assert_true(number_of(json_object_get(event, "args"), "arg") == 4096);
    event = json_array_get(events, 2);
    assert_string_equal(text_of(event, "cat"), "link");
    assert_true(number_of(event, "ts") == 1.007);
    assert_true(number_of(event, "dur") == 0);

    other = json_object_get(root, "otherData");
    assert_true(number_of(other, "records") == 2);
    assert_true(number_of(other, "dropped") == 0);
    assert_true(number_of(other, "record_cost_ns") > 0);
    assert_true(json_integer_value(json_object_get(other, "clock_base_ns")) ==
                1700000000000001000);
    json_decref(root);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_empty(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory);
    json_t *root;

    (void)state;
    root = write_and_parse(context);
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 0);
    json_decref(root);
    gyre_context_destroy(context);
}

/* Any bytes may be a name; the file is JSON all the same. */
static void test_names_of_any_bytes(void **state)
{
    static const char *const names[][2] = {
        {"quote \" back \\ slash", "quote \" back \\ slash"},
        {"tab\tline\n\x01", "tab\tline\n\x01"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x80"},
        {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
        {"bad \xff\x80 overlong \xc0\xaf",
         "bad \xef\xbf\xbd\xef\xbf\xbd overlong \xef\xbf\xbd\xef\xbf\xbd"},
        {"surrogate \xed\xa0\x80",
         "surrogate \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"", ""},
    };
    enum { N = sizeof(names) / sizeof(names[0]) };
    unit_memory memory = {0};
    gyre_context *context = traced(&memory);
    json_t *root, *events;

    (void)state;
    for (int i = 0; i < N; i++)
        gyre_trace_record(context, GYRE_TRACE_HOST,
                          gyre_trace_intern(context, names[i][0]),
                          (uint64_t)i + 1, (uint64_t)i + 1, 0);
    root = write_and_parse(context);
    events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), N);
    for (int i = 0; i < N; i++)
        assert_string_equal(text_of(json_array_get(events, (size_t)i), "name"),
                            names[i][1]);
    json_decref(root);
    gyre_context_destroy(context);
}

static void test_where_it_cannot_write(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory);
    gyre_error error = {0};
    uint64_t bytes;
    char path[128];

    (void)state;
    gyre_trace_record(context, GYRE_TRACE_HOST, gyre_trace_intern(context, "x"),
                      1, 2, 3);
    bytes = memory.bytes;
    assert_int_equal(gyre_trace_write_json(context, "/nowhere/t", &error),
                     GYRE_NOT_FOUND);
    unit_assert_text(&error, "/nowhere/t");
    assert_int_equal(gyre_trace_write_json(context, "/dev/full", &error),
                     GYRE_NO_SPACE);
    unit_assert_text(&error, "/dev/full");
    assert_int_equal(gyre_trace_write_json(context, NULL, &error),
                     GYRE_INVALID);
    /* a folder stands where the file is to go */
    snprintf(path, sizeof(path), "%s/t.json", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_not_equal(gyre_trace_write_json(context, path, &error), GYRE_OK);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(memory.bytes, bytes);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* A file that stood there is replaced, and whole. */
static void test_replaces(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory);
    char path[128];
    FILE *file;

    (void)state;
    snprintf(path, sizeof(path), "%s/t.json", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 10000; i++)
        fputs("old ", file);
    fclose(file);
    json_decref(write_and_parse(context));
    gyre_context_destroy(context);
}

/* Where the file cannot be finished the old one stays and no part is left;
 * remove_folder sees to the latter. */
static void test_unfinished_file(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory);
    gyre_error error = {0};
    struct rlimit before, small;
    char path[128], text[8] = "";
    gyre_status status;
    FILE *file;

    (void)state;
    snprintf(path, sizeof(path), "%s/t.json", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("old", file);
    fclose(file);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 64;
    setrlimit(RLIMIT_FSIZE, &small);
    status = gyre_trace_write_json(context, path, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, GYRE_IO);
    unit_assert_text(&error, path);
    file = fopen(path, "r");
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    assert_string_equal(text, "old");
    gyre_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_events, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_empty, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_names_of_any_bytes, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_where_it_cannot_write, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_unfinished_file, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_replaces, make_folder,
                                        remove_folder),
    };

#ifdef GYRE_NO_TRACE
    puts("1..0 # SKIP the trace is compiled out");
    return 0;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
