/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: options, instruction sets, log, rooms, two side by side. */
#include "config.h"

#include "../unit.h"

#include "base/base.h"

#include <stdio.h>

static gyre_context_options plain(void)
{
    gyre_context_options options = {0};

    options.size = sizeof(options);
    return options;
}

/* ---- options --------------------------------------------------------- */

static void test_defaults(void **state)
{
    gyre_context *context = NULL;

    (void)state;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    assert_null(gyre_context_plugin_path(context));
    assert_int_equal(gyre_context_trace_records(context), 0);
    gyre_log(context, GYRE_LOG_ERROR, "into %s", "silence");
    gyre_context_destroy(context);
    gyre_context_destroy(NULL);
}

static void test_null_out_is_an_error(void **state)
{
    gyre_error error;

    (void)state;
    assert_int_equal(gyre_context_create(NULL, NULL, &error), GYRE_INVALID);
    unit_assert_text(&error, "out is NULL");
}

static void test_options_are_copied(void **state)
{
    gyre_context_options options = plain();
    gyre_context *context = NULL;
    char path[] = "/a:/b";

    (void)state;
    options.plugin_path = path;
    options.trace_records = 64;
    assert_int_equal(gyre_context_create(&options, &context, NULL), GYRE_OK);
    path[1] = 'x';
    memset(&options, 0xff, sizeof(options));
    assert_string_equal(gyre_context_plugin_path(context), "/a:/b");
    assert_int_equal(gyre_context_trace_records(context), 64);
    gyre_context_destroy(context);
}

/* A host built with an older, shorter or a later, longer header. */
static void test_size_of_options(void **state)
{
    struct {
        gyre_context_options options;
        char later[24];
    } grown;
    gyre_context_options options = plain();
    gyre_context *context = NULL;
    gyre_error error = {0};

    (void)state;
    options.size = 0;
    assert_int_equal(gyre_context_create(&options, &context, &error),
                     GYRE_INVALID);
    unit_assert_text(&error, "sizeof(gyre_context_options)");

    options.size = offsetof(gyre_context_options, plugin_path);
    options.plugin_path = (const char *)1; /* beyond the size: not read */
    options.trace_records = 7;
    assert_int_equal(gyre_context_create(&options, &context, &error), GYRE_OK);
    assert_int_equal(gyre_context_trace_records(context), 0);
    gyre_context_destroy(context);

    memset(&grown, 0, sizeof(grown));
    grown.options.size = sizeof(grown);
    context = NULL;
    assert_int_equal(gyre_context_create(&grown.options, &context, &error),
                     GYRE_OK);
    gyre_context_destroy(context);
    grown.later[23] = 1;
    context = NULL;
    assert_int_equal(gyre_context_create(&grown.options, &context, &error),
                     GYRE_UNSUPPORTED);
    assert_null(context);
}

static void test_each_allocation_may_fail(void **state)
{
    unit_memory memory = {0};
    gyre_context_options options = unit_options(&memory);
    uint64_t n = 0;
    gyre_status status;

    (void)state;
    options.plugin_path = "/somewhere";
    do {
        gyre_context *context = NULL;
        gyre_error error = {0};

        memory.fail_at = memory.requests + ++n;
        status = gyre_context_create(&options, &context, &error);
        if (status == GYRE_OK) {
            gyre_context_destroy(context);
        } else {
            assert_int_equal(status, GYRE_NO_MEMORY);
            assert_int_equal(error.status, GYRE_NO_MEMORY);
            assert_null(context);
        }
        unit_memory_check(&memory);
    } while (status != GYRE_OK);
    assert_int_equal(n, 3); /* two requests, and the run without failure */
}

/* ---- instruction sets ------------------------------------------------ */

static gyre_status create_with(const char *option, const char *variable,
                               char name[16], gyre_error *error)
{
    gyre_context_options options = plain();
    gyre_context *context = NULL;
    gyre_status status;

    if (variable != NULL)
        setenv("GYRE_ISA", variable, 1);
    else
        unsetenv("GYRE_ISA");
    options.instruction_set = option;
    status = gyre_context_create(&options, &context, error);
    unsetenv("GYRE_ISA");
    if (status != GYRE_OK)
        return status;
    snprintf(name, 16, "%s", gyre_context_instruction_set(context));
    assert_string_equal(name, gyre_isa_name(gyre_context_isa(context)));
    gyre_context_destroy(context);
    return GYRE_OK;
}

static void test_option_wins_over_variable(void **state)
{
    gyre_error error = {0};
    char name[16] = "";
    char best[16] = "";

    (void)state;
    assert_int_equal(create_with(NULL, NULL, best, &error), GYRE_OK);
    assert_int_equal(create_with(NULL, "", name, &error), GYRE_OK);
    assert_string_equal(name, best);
    assert_int_equal(create_with(NULL, "scalar", name, &error), GYRE_OK);
    assert_string_equal(name, "scalar");
    assert_int_equal(create_with(best, "scalar", name, &error), GYRE_OK);
    assert_string_equal(name, best);
    assert_int_equal(create_with("scalar", "nonsense", name, &error), GYRE_OK);
    assert_string_equal(name, "scalar");
}

static void test_unknown_set_names_its_origin(void **state)
{
    gyre_error error = {0};
    char name[16] = "";

    (void)state;
    assert_int_equal(create_with("avx3", NULL, name, &error), GYRE_INVALID);
    unit_assert_text(&error, "instruction_set");
    unit_assert_text(&error, "\"avx3\"");
    unit_assert_text(&error, "scalar, avx2, avx512");
    assert_int_equal(create_with(NULL, "AVX2", name, &error), GYRE_INVALID);
    unit_assert_text(&error, "GYRE_ISA");
}

/* Each set is either taken or refused as what the machine lacks. */
static void test_every_set(void **state)
{
    char name[16] = "";
    bool lacking = false;

    (void)state;
    for (int i = 0; i < GYRE_ISA_COUNT; i++) {
        const char *set = gyre_isa_name((gyre_isa)i);
        gyre_error error = {0};
        gyre_status status = create_with(set, NULL, name, &error);

        if (status == GYRE_OK) {
            assert_false(lacking); /* a better one implies the lesser */
            assert_string_equal(name, set);
        } else {
            lacking = true;
            assert_int_equal(status, GYRE_UNSUPPORTED);
            unit_assert_text(&error, set);
        }
    }
    assert_string_equal(gyre_isa_name((gyre_isa)77), "unknown");
}

/* ---- log ------------------------------------------------------------- */

typedef struct seen {
    int count;
    gyre_log_level level;
    char text[2 * GYRE_ERROR_TEXT];
} seen;

static void note(void *user, gyre_log_level level, const char *text)
{
    seen *log = user;

    log->count++;
    log->level = level;
    snprintf(log->text, sizeof(log->text), "%s", text);
}

static void test_log(void **state)
{
    gyre_context_options options = plain();
    gyre_context *context = NULL;
    seen log = {0};

    (void)state;
    options.log = note;
    options.log_user = &log;
    assert_int_equal(gyre_context_create(&options, &context, NULL), GYRE_OK);
    assert_int_equal(log.count, 0);
    gyre_log(context, GYRE_LOG_WARNING, "%s %d", "disk", 3);
    assert_int_equal(log.count, 1);
    assert_int_equal(log.level, GYRE_LOG_WARNING);
    assert_string_equal(log.text, "disk 3");
    gyre_log(context, GYRE_LOG_DEBUG, "%05000d", 1);
    assert_int_equal(strlen(log.text), GYRE_ERROR_TEXT - 1);
    gyre_context_destroy(context);
}

/* ---- rooms and neighbours -------------------------------------------- */

static char order[8];

static void release_trace(gyre_context *context, void *room)
{
    strcat(order, "t");
    gyre_free(context, room, 8, 1);
}

static void release_registry(gyre_context *context, void *room)
{
    /* what lies below is still there */
    assert_non_null(gyre_context_room(context, GYRE_ROOM_TRACE));
    strcat(order, "r");
    gyre_free(context, room, 8, 1);
}

static void test_rooms_are_freed_from_the_top(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    void *registry = gyre_alloc(context, 8, 1);
    void *trace = gyre_alloc(context, 8, 1);

    (void)state;
    assert_null(gyre_context_room(context, GYRE_ROOM_TRACE));
    gyre_context_lock(context);
    gyre_context_set_room(context, GYRE_ROOM_REGISTRY, registry,
                          release_registry);
    gyre_context_set_room(context, GYRE_ROOM_TRACE, trace, release_trace);
    gyre_context_unlock(context);
    assert_ptr_equal(gyre_context_room(context, GYRE_ROOM_TRACE), trace);
    assert_ptr_equal(gyre_context_room(context, GYRE_ROOM_REGISTRY), registry);
    order[0] = '\0';
    gyre_context_destroy(context);
    assert_string_equal(order, "rt");
    unit_memory_check(&memory);
}

static void test_two_contexts_share_nothing(void **state)
{
    unit_memory memory[2] = {{0}, {0}};
    gyre_context_options options = unit_options(&memory[1]);
    gyre_context *one = unit_context(&memory[0]);
    gyre_context *two = NULL;
    uint64_t base = gyre_context_memory(one, NULL);
    seen log = {0};
    void *block;

    (void)state;
    options.instruction_set = "scalar";
    options.plugin_path = "/two";
    options.log = note;
    options.log_user = &log;
    assert_int_equal(gyre_context_create(&options, &two, NULL), GYRE_OK);
    block = gyre_alloc(two, 1000, 1);
    assert_int_equal(gyre_context_memory(one, NULL), base);
    gyre_log(one, GYRE_LOG_ERROR, "one");
    assert_int_equal(log.count, 0);
    assert_null(gyre_context_plugin_path(one));
    gyre_context_lock(one);
    gyre_context_lock(two); /* a lock of its own */
    gyre_context_unlock(two);
    gyre_context_unlock(one);
    gyre_context_destroy(one);
    unit_memory_check(&memory[0]);
    gyre_free(two, block, 1000, 1);
    gyre_context_destroy(two);
    unit_memory_check(&memory[1]);
}

static void test_version_and_summary(void **state)
{
    int part[3];
    char rest;

    (void)state;
    assert_int_equal(sscanf(gyre_version(), "%d.%d.%d%c", &part[0], &part[1],
                            &part[2], &rest),
                     3);
    assert_string_equal(gyre_version(), PACKAGE_VERSION);
    for (const char *line = gyre_build_summary(); *line != '\0';) {
        const char *end = strchr(line, '\n');
        const char *colon = strstr(line, ": ");

        assert_non_null(end);
        assert_true(colon != NULL && colon > line && colon + 2 < end);
        line = end + 1;
    }
    assert_non_null(strstr(gyre_build_summary(), "liburing: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_null_out_is_an_error),
        cmocka_unit_test(test_options_are_copied),
        cmocka_unit_test(test_size_of_options),
        cmocka_unit_test(test_each_allocation_may_fail),
        cmocka_unit_test(test_option_wins_over_variable),
        cmocka_unit_test(test_unknown_set_names_its_origin),
        cmocka_unit_test(test_every_set),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_rooms_are_freed_from_the_top),
        cmocka_unit_test(test_two_contexts_share_nothing),
        cmocka_unit_test(test_version_and_summary),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
