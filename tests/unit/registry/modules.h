/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making module files in a test: a scratch folder, a compiler, a log.
 *
 * The compiler and the source tree come from the environment that `make check`
 * sets; without them have_compiler() is false and there is nothing to test.
 */
#ifndef GYRE_TESTS_UNIT_REGISTRY_MODULES_H
#define GYRE_TESTS_UNIT_REGISTRY_MODULES_H

#include "../unit.h"

#include "base/base.h"
#include "registry/registry.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOOD_FLAGS \
    "-O3 -fno-math-errno -fno-trapping-math -ffp-contract=off -fPIC -shared"

static char scratch[256];
static char log_text[16384];
static gyre_context *context;

static bool have_compiler(void)
{
    return getenv("CC") != NULL && getenv("GYRE_TOP_SRC") != NULL;
}

static void take_log(void *user, gyre_log_level level, const char *text)
{
    size_t at = strlen(log_text);

    (void)user;
    snprintf(log_text + at, sizeof(log_text) - at, "%d %s\n", (int)level, text);
}

static gyre_context *context_with_path(const char *path)
{
    gyre_context_options options = {0};
    gyre_context *fresh = NULL;

    options.size = sizeof(options);
    options.plugin_path = path;
    options.log = take_log;
    assert_int_equal(gyre_context_create(&options, &fresh, NULL), GYRE_OK);
    return fresh;
}

static int open_scratch(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    unsetenv("GYRE_PLUGIN_PATH");
    snprintf(scratch, sizeof(scratch), "%s/gyre-modules-XXXXXX",
             base != NULL ? base : "/tmp");
    return mkdtemp(scratch) == NULL;
}

static int close_scratch(void **state)
{
    char command[512];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", scratch);
    return system(command) != 0;
}

static int open_context(void **state)
{
    (void)state;
    log_text[0] = '\0';
    context = context_with_path(NULL);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    gyre_context_destroy(context);
    return 0;
}

/* One of several names in use at a time. */
static const char *in_scratch(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", scratch, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(in_scratch(name), "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t read_file(const char *name, char *bytes, size_t room)
{
    FILE *file = fopen(in_scratch(name), "rb");
    size_t size;

    assert_non_null(file);
    size = fread(bytes, 1, room, file);
    fclose(file);
    assert_true(size < room);
    bytes[size] = '\0';
    return size;
}

/* Run a shell line in the scratch folder with $CC and $SRC; its output goes to
 * the file "output".  The exit status. */
static int shell(const char *line)
{
    char command[4096];

    snprintf(command, sizeof(command),
             "cd '%s' && SRC=\"$GYRE_TOP_SRC\" && { %s ; } > output 2>&1",
             scratch, line);
    return system(command);
}

static void must_shell(const char *line)
{
    char output[8192] = "";

    if (shell(line) != 0) {
        FILE *file = fopen(in_scratch("output"), "rb");

        if (file != NULL) {
            output[fread(output, 1, sizeof(output) - 1, file)] = '\0';
            fclose(file);
        }
        fail_msg("%s: %s", line, output);
    }
}

/* A complete optimizer in few lines, by its name. */
static void write_toy(const char *file, const char *name)
{
    char text[2048];
    int n = snprintf(
        text, sizeof(text),
        "#define GY_PARAMETERS(P) P(lr, GYRE_STEP, \\\n"
        "    GYRE_FLOAT(0.5, 0.0, GYRE_NO_LIMIT, \"[)\"), \"rate\") \\\n"
        "    P(start, GYRE_STRUCTURAL, GYRE_INT(3, 0, 9), \"start\")\n"
        "#define GY_SLOTS(S) S(sum, 0.0, \"start\") S(last, 0.25, NULL)\n"
        "#define GY_SCALARS(S) S(lr)\n"
        "#include <gyre/plugin.h>\n"
        "GY_KERNEL( sum = sum + g; last = g; p = gy_fma(-lr, g, p); )\n"
        "static void toy(const gy_values *v, uint64_t t,\n"
        "                const gyre_math *m, gy_scalars *s)\n"
        "{ (void)t; (void)m; s->lr = v->lr; }\n"
        "GYRE_OPTIMIZER(%s, \"0.1\", \"toy\", \"Apache-2.0\", 0, 1,\n"
        "               gy_first_variant, gy_no_check, toy)\n"
        "GYRE_MODULE(%s, &gyre_plugin_%s)\n",
        name, name, name);

    write_file(file, text, (size_t)n);
}

static void refuse(const char *file, gyre_status status, const char *text)
{
    gyre_error error = {0};

    assert_int_equal(gyre_plugin_load(context, in_scratch(file), &error),
                     status);
    unit_assert_text(&error, in_scratch(file));
    unit_assert_text(&error, text);
}

#endif
