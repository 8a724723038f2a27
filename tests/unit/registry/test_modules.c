/* SPDX-License-Identifier: Apache-2.0 */
/* Module files, good and bad: what loads, and what a refusal says. */
#include "config.h"

#include "modules.h"

/* ---- files that are no modules --------------------------------------- */

static void test_no_such_file(void **state)
{
    gyre_error error = {0};

    (void)state;
    refuse("absent.so", GYRE_PLUGIN_OPEN, "open: No such file");
    assert_int_equal(gyre_plugin_load(context, "absent.so", &error),
                     GYRE_PLUGIN_OPEN);
    unit_assert_text(&error, "absent.so: open: no such file (looked in the "
                             "current folder; option plugin_path: not set; "
                             "GYRE_PLUGIN_PATH: not set; installed: ");
    assert_int_equal(gyre_plugin_load(context, "", &error), GYRE_INVALID);
    assert_int_equal(gyre_plugin_load(context, NULL, &error), GYRE_INVALID);
}

static void test_folder_text_and_empty(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_scratch("folder.so"), 0700), 0);
    refuse("folder.so", GYRE_PLUGIN_OPEN, "is a folder");
    write_file("text.so", "return 1\n", 9);
    refuse("text.so", GYRE_PLUGIN_OPEN, "not a shared object");
    write_file("empty.so", "", 0);
    refuse("empty.so", GYRE_PLUGIN_OPEN, "is empty");
}

static int sink(void *user, const char *library)
{
    size_t *bytes = user;

    *bytes += strlen(library);
    return 0;
}

static void test_cut_and_damaged(void **state)
{
    static char bytes[1 << 20], damaged[1 << 20];
    size_t size, sum = 0;
    uint32_t seed = 1;
    const char *why = NULL;

    (void)state;
    if (!have_compiler())
        return;
    write_toy("toy.c", "toy");
    must_shell("$CC -I$SRC/sdk/include " GOOD_FLAGS " toy.c -o toy.so -lm");
    size = read_file("toy.so", bytes, sizeof(bytes));
    write_file("cut.so", bytes, size / 2);
    refuse("cut.so", GYRE_PLUGIN_OPEN, "cut short");
    /* No cut and no changed byte leads the reader outside the file. */
    for (size_t n = 0; n < 2048 && n < size; n++)
        gyre_elf_needed((uint8_t *)bytes, n, sink, &sum, &why);
    for (int round = 0; round < 20000; round++) {
        memcpy(damaged, bytes, size);
        for (int i = 0; i < 1 + round % 3; i++) {
            seed = seed * 1664525u + 1013904223u;
            damaged[(seed >> 8) % (round % 2 ? 1024u : (uint32_t)size)] =
                (char)(seed >> 3);
        }
        gyre_elf_needed((uint8_t *)damaged, size, sink, &sum, &why);
    }
}

/* ---- modules that do not load ---------------------------------------- */

static void test_no_entry(void **state)
{
    static const char source[] = "int nothing(void) { return 0; }\n";

    (void)state;
    if (!have_compiler())
        return;
    write_file("bare.c", source, sizeof(source) - 1);
    must_shell("$CC -fPIC -shared bare.c -o bare.so");
    refuse("bare.so", GYRE_PLUGIN_OPEN,
           "symbol: it exports no gyre_module_entry");
}

static void test_missing_dependency(void **state)
{
    static const char source[] = "int dependency(void);\n"
                                 "int use(void) { return dependency(); }\n";
    static const char other[] = "int dependency(void) { return 1; }\n";

    (void)state;
    if (!have_compiler())
        return;
    write_file("use.c", source, sizeof(source) - 1);
    write_file("dep.c", other, sizeof(other) - 1);
    must_shell("$CC -fPIC -shared dep.c -o libdep.so && "
               "$CC -fPIC -shared use.c -o use.so -L. -ldep && rm libdep.so");
    refuse("use.so", GYRE_PLUGIN_OPEN,
           "the file is there, but a library that it needs is missing: "
           "libdep.so");
    assert_non_null(strstr(log_text, "links to libdep.so; a plugin links to "
                                     "libc and libm only"));
    must_shell("$CC -fPIC -shared use.c -o symbol.so");
    refuse("symbol.so", GYRE_PLUGIN_OPEN, "undefined symbol: dependency");
}

/* The entry of a library that the module links to is not the module's. */
static void test_entry_of_a_dependency(void **state)
{
    static const char source[] = "int nothing(void) { return 0; }\n";

    (void)state;
    if (!have_compiler())
        return;
    write_toy("inner.c", "inner");
    write_file("outer.c", source, sizeof(source) - 1);
    must_shell("$CC -I$SRC/sdk/include " GOOD_FLAGS
               " inner.c -o libinner.so -lm && $CC -fPIC -shared outer.c -o "
               "outer.so -Wl,--no-as-needed -L. -linner -Wl,-rpath,$PWD");
    refuse("outer.so", GYRE_PLUGIN_OPEN,
           "comes from a library that it links to");
}

static void test_other_abi(void **state)
{
    static const char source[] =
        "#include <gyre/plugin.h>\n"
        "static const gyre_module m = {MAGIC, sizeof(m), MAJOR, 3, NULL,\n"
        "                              NULL, 0};\n"
        "const gyre_module *gyre_module_entry(void) { return RESULT; }\n";

    (void)state;
    if (!have_compiler())
        return;
    write_file("abi.c", source, sizeof(source) - 1);
    must_shell("B=\"$CC -I$SRC/sdk/include -fPIC -shared abi.c\"; "
               "M=-DMAGIC=GYRE_PLUGIN_MAGIC; $B $M -DMAJOR=2 '-DRESULT=&m' "
               "-o two.so && $B $M -DMAJOR=0 '-DRESULT=&m' -o zero.so && "
               "$B -DMAGIC=7 -DMAJOR=1 '-DRESULT=&m' -o magic.so && "
               "$B $M -DMAJOR=1 '-DRESULT=&m' -o facts.so && "
               "$B $M -DMAJOR=1 -DRESULT=NULL -o null.so");
    refuse("two.so", GYRE_PLUGIN_ABI,
           "abi: built for ABI 2.3, this library has 1.0; install a newer "
           "library, or rebuild the plugin against this one's headers");
    refuse("zero.so", GYRE_PLUGIN_ABI,
           "abi: built for ABI 0.3, this library has 1.0; rebuild the plugin");
    refuse("magic.so", GYRE_PLUGIN_ABI, "magic is 0000000000000007");
    refuse("facts.so", GYRE_PLUGIN_BAD, "build facts are missing");
    refuse("null.so", GYRE_PLUGIN_BAD, "gyre_module_entry returned NULL");
}

/* ---- flags ----------------------------------------------------------- */

static void test_header_refuses_wrong_flags(void **state)
{
    char output[8192];

    (void)state;
    if (!have_compiler())
        return;
    write_toy("toy.c", "toy");
    assert_int_not_equal(shell("$CC -I$SRC/sdk/include -O3 -fPIC -shared "
                               "toy.c -o errno.so -lm"),
                         0);
    read_file("output", output, sizeof(output));
    assert_non_null(strstr(output, "without -fno-math-errno no root"));
    assert_int_not_equal(shell("$CC -I$SRC/sdk/include -O3 -ffast-math -fPIC "
                               "-shared toy.c -o fast.so -lm"),
                         0);
    read_file("output", output, sizeof(output));
    assert_non_null(strstr(output, "-ffast-math and its parts"));
}

/* No macro tells of contraction: only running the code does. */
static void test_contraction_is_found_at_load(void **state)
{
    (void)state;
    if (!have_compiler() || !gyre_loop_runs_here(GYRE_LOOP_AVX2))
        return;
    write_toy("toy.c", "toy");
    must_shell("$CC -I$SRC/sdk/include " GOOD_FLAGS
               " -ffp-contract=fast toy.c -o fused.so -lm");
    refuse("fused.so", GYRE_PLUGIN_BAD, "fused a*b+c in the AVX2 loop");
    refuse("fused.so", GYRE_PLUGIN_BAD, "-ffp-contract=off");
}

/* ---- names ----------------------------------------------------------- */

static const gyre_plugin *find(const char *name)
{
    const gyre_plugin *plugin = NULL;
    gyre_error error = {0};

    if (gyre_plugin_find(context, GYRE_KIND_OPTIMIZER, name, &plugin, &error) !=
        GYRE_OK)
        fail_msg("%s", error.text);
    return plugin;
}

static void test_duplicate_names(void **state)
{
    (void)state;
    if (!have_compiler())
        return;
    write_toy("toy.c", "toy");
    must_shell("C=\"$CC -I$SRC/sdk/include " GOOD_FLAGS "\"; "
               "$C toy.c -o one.so -lm && cp one.so other.so && "
               "sed 's/&gyre_plugin_toy/&, \\&gyre_plugin_toy/' toy.c > "
               "twice.c && $C twice.c -o twice.so -lm");
    refuse("twice.so", GYRE_PLUGIN_BAD, "init: it lists toy twice");
    assert_int_equal(gyre_plugin_load(context, in_scratch("one.so"), NULL),
                     GYRE_OK);
    assert_int_equal(gyre_plugin_load(context, in_scratch("one.so"), NULL),
                     GYRE_OK);
    refuse("other.so", GYRE_DUPLICATE, "toy is already loaded from");
    assert_string_equal(find("toy")->summary, "toy");
}

static int note(void *user, const gyre_plugin *plugin, const char *path)
{
    char *text = user;
    size_t at = strlen(text);

    snprintf(text + at, 512 - at, "%s:%s ", plugin->name,
             path == NULL ? "in" : strrchr(path, '/') + 1);
    return 0;
}

/* A file wins over a built-in; a broken one is no reason to fall back. */
static void test_search(void **state)
{
    const gyre_plugin *plugin = NULL;
    gyre_error error = {0};
    char listed[512] = "";

    (void)state;
    if (!have_compiler())
        return;
    write_toy("sgd.c", "sgd");
    write_toy("some.c", "hidden");
    must_shell("C=\"$CC -I$SRC/sdk/include " GOOD_FLAGS "\"; mkdir -p p q && "
               "$C sgd.c -o p/sgd.so -lm && $C some.c -o q/some.so -lm && "
               "echo no > q/lion.so");
    gyre_context_destroy(context);
    {
        char path[1200];

        snprintf(path, sizeof(path), "%s:%s:", in_scratch("p"),
                 in_scratch("q"));
        context = context_with_path(path);
    }
    assert_string_equal(find("sgd")->summary, "toy");
#ifdef GYRE_BUILTIN_PLUGINS
    assert_non_null(strstr(log_text, "its sgd takes the place"));
    assert_string_equal(find("adamw")->licence, "Apache-2.0");
#endif
    assert_int_equal(
        gyre_plugin_find(context, GYRE_KIND_OPTIMIZER, "lion", &plugin, &error),
        GYRE_PLUGIN_OPEN);
    unit_assert_text(&error, "q/lion.so: open: not a shared object");
    assert_string_equal(find("hidden")->name, "hidden");
    assert_non_null(strstr(log_text, "1 skipped: "));
    assert_int_equal(
        gyre_plugin_find(context, GYRE_KIND_OPTIMIZER, "lion", &plugin, &error),
        GYRE_PLUGIN_OPEN);
    assert_int_equal(gyre_plugin_find(context, GYRE_KIND_OPTIMIZER, "adamx",
                                      &plugin, &error),
                     GYRE_NOT_FOUND);
    unit_assert_text(&error, "no plugin \"adamx\" of kind gyre.optimizer/1");
    unit_assert_text(&error, "hidden");
    unit_assert_text(&error, "looked in option plugin_path: ");
    assert_null(plugin);
    assert_int_equal(gyre_plugin_each(context, note, listed, NULL), GYRE_OK);
#ifdef GYRE_BUILTIN_PLUGINS
    assert_string_equal(
        listed, "fp8:in quantize:in sign:in topk:in "
                "adagrad:in adam:in adamw:in hidden:some.so "
                "lion:in sgd:sgd.so "
                "2d:in allgather:in burst:in double-ring:in "
                "multi-ring:in ring:in tile:in tokenring:in ulysses:in ");
#endif
}

/* ---- other headers --------------------------------------------------- */

static void use_toy(const char *file, const char *name)
{
    const gyre_setting settings[] = {{"start", 5}};
    gyre_error error = {0};
    gyre_opt *opt = NULL;
    float g = 2.0f, p = 1.0f, sum = 0.0f, last = 0.0f, scalars[16];
    float *slot[] = {&p, &sum, &last};

    if (gyre_plugin_load(context, in_scratch(file), &error) != GYRE_OK ||
        gyre_opt_create(context, name, settings, 1, &opt, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    assert_true(gyre_opt_slot_initial(opt, 0) == 5.0f);
    assert_true(gyre_opt_slot_initial(opt, 1) == 0.25f);
    assert_int_equal(gyre_opt_parameter_count(opt), 2);
    assert_string_equal(gyre_opt_plugin(opt)->parameters[1].name, "start");
    assert_int_equal(
        gyre_opt_scalars(opt, gyre_opt_defaults(opt), 1, scalars, NULL),
        GYRE_OK);
    gyre_opt_update(opt, 1, &g, slot, scalars, 0);
    assert_true(p == 0.0f && sum == 2.0f && last == 2.0f);
    gyre_opt_destroy(opt);
}

/* The first release's header, frozen: what was built with it stays good. */
static void test_frozen_header(void **state)
{
    (void)state;
    if (!have_compiler())
        return;
    write_toy("frozen.c", "frozen");
    must_shell("$CC -I$SRC/tests/abi/1.0 " GOOD_FLAGS
               " frozen.c -o frozen.so -lm");
    use_toy("frozen.so", "frozen");
}

/* A later minor version: every struct is longer. */
static void test_later_header(void **state)
{
    (void)state;
    if (!have_compiler())
        return;
    write_toy("later.c", "later");
    must_shell("mkdir -p new/gyre && "
               "cp $SRC/sdk/include/gyre/plugin*.h new/gyre && "
               "sed -i -e 's/^} gyre_[a-z]*;/    uint64_t later[3];\\n&/' "
               "-e 's/ABI_MINOR 0/ABI_MINOR 7/' new/gyre/plugin*.h && "
               "test $(grep -l 'later.3' new/gyre/plugin*.h | wc -l) -eq 4 && "
               "$CC -Inew " GOOD_FLAGS " later.c -o later.so -lm");
    use_toy("later.so", "later");
}

/* Built for this machine alone, and without optimisation. */
static void test_other_flags(void **state)
{
    (void)state;
    if (!have_compiler())
        return;
    write_toy("native.c", "native");
    write_toy("slow.c", "slow");
    must_shell("C=\"$CC -I$SRC/sdk/include -Wall -Wextra -Werror\"; "
               "$C " GOOD_FLAGS " -march=native native.c -o native.so -lm && "
               "$C " GOOD_FLAGS " -O0 slow.c -o slow.so -lm");
    use_toy("native.so", "native");
    use_toy("slow.so", "slow");
}

static void test_cxx(void **state)
{
    (void)state;
    if (!have_compiler() || shell("c++ --version") != 0)
        return;
    write_toy("cxx.c", "cxx");
    must_shell("c++ -x c++ -std=c++17 -Wall -Wextra -Werror "
               "-I$SRC/sdk/include " GOOD_FLAGS " cxx.c -o cxx.so -lm");
    use_toy("cxx.so", "cxx");
}

int main(void)
{
#define IN_CONTEXT(test) \
    cmocka_unit_test_setup_teardown(test, open_context, close_context)
    const struct CMUnitTest tests[] = {
        IN_CONTEXT(test_no_such_file),
        IN_CONTEXT(test_folder_text_and_empty),
        IN_CONTEXT(test_cut_and_damaged),
        IN_CONTEXT(test_no_entry),
        IN_CONTEXT(test_missing_dependency),
        IN_CONTEXT(test_entry_of_a_dependency),
        IN_CONTEXT(test_other_abi),
        IN_CONTEXT(test_header_refuses_wrong_flags),
        IN_CONTEXT(test_contraction_is_found_at_load),
        IN_CONTEXT(test_duplicate_names),
        IN_CONTEXT(test_search),
        IN_CONTEXT(test_frozen_header),
        IN_CONTEXT(test_later_header),
        IN_CONTEXT(test_other_flags),
        IN_CONTEXT(test_cxx),
    };

    return cmocka_run_group_tests_name("registry/modules", tests, open_scratch,
                                       close_scratch);
}
