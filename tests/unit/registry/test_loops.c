/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same bits from every loop of every variant: scalar, AVX2, AVX-512, whole
 * or in pieces, at any alignment, and nothing touched outside the arrays.
 *
 * Inputs are random bit patterns, so that denormals, infinities, NaN and
 * values that overflow and cancel all occur.  NaN equals NaN as a class.
 */
#include "config.h"

#include "../unit.h"

#include "base/base.h"
#include "registry/registry.h"

#include <gyre/registry.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TILE = GYRE_OPT_TILE, MAX_ARRAYS = 2 + GYRE_OPT_MAX_SLOTS };

static gyre_context *contexts[GYRE_LOOP_COUNT];

typedef struct setup {
    const char *label;
    const char *name;
    gyre_setting settings[6];
    size_t count;
} setup;

/* Every variant, and every switch that takes another way through a kernel. */
static const setup setups[] = {
    {"adam", "adam", {{"weight_decay", 0.1}}, 1},
    {"adam amsgrad", "adam", {{"amsgrad", 1}, {"maximize", 1}}, 2},
    {"adamw", "adamw", {{"weight_decay", 0.1}}, 1},
    {"adamw amsgrad", "adamw", {{"amsgrad", 1}, {"bias_correction", 0}}, 2},
    {"sgd", "sgd", {{"lr", 0.1}, {"weight_decay", 0.01}}, 2},
    {"sgd momentum", "sgd", {{"momentum", 0.9}, {"dampening", 0.5}}, 2},
    {"sgd nesterov", "sgd", {{"momentum", 0.9}, {"nesterov", 1}}, 2},
    {"sgd ema", "sgd", {{"momentum", 0.9}, {"averaging", 1}}, 2},
    {"adagrad", "adagrad", {{"lr_decay", 0.1}, {"weight_decay", 0.1}}, 2},
    {"adagrad sum_only",
     "adagrad",
     {{"decay_in", 1}, {"weight_decay", 0.1}},
     2},
    {"lion", "lion", {{"weight_decay", 0.1}}, 1},
};
enum { SETUPS = sizeof(setups) / sizeof(setups[0]) };

static gyre_opt *make(int isa, const setup *s)
{
    gyre_opt *opt = NULL;
    gyre_error error = {0};

    if (gyre_opt_create(contexts[isa], s->name, s->settings, s->count, &opt,
                        &error) != GYRE_OK)
        fail_msg("%s: %s", s->label, error.text);
    return opt;
}

/* ---- data ------------------------------------------------------------ */

static uint64_t random_state = 88172645463325252u;

static uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

/* Three in four are of usual size, or nearly all results would be NaN. */
static float random_float(void)
{
    uint32_t bits = random_bits();
    float value;

    if ((random_bits() & 3u) != 0)
        bits = (bits & 0x807fffffu) | (100u + bits % 40u) << 23;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

typedef struct arrays {
    float *at[MAX_ARRAYS]; /* g, p, slots */
} arrays;

static void fill(arrays *a, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < n; i++)
            a->at[k][i] = random_float();
    }
}

static void copy(arrays *to, const arrays *from, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++)
        memcpy(to->at[k], from->at[k], n * sizeof(float));
}

static void expect_same(const arrays *a, const arrays *b, size_t count,
                        size_t n, const char *label, const char *what)
{
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < n; i++) {
            float x = a->at[k][i], y = b->at[k][i];

            if (!(isnan(x) && isnan(y)) && memcmp(&x, &y, sizeof(x)) != 0)
                fail_msg("%s, %s: array %zu element %zu of %zu: %a and %a",
                         label, what, k, i, n, (double)x, (double)y);
        }
    }
}

static arrays allocate(size_t count, size_t n)
{
    arrays a = {{0}};

    for (size_t k = 0; k < count; k++) {
        a.at[k] = malloc(n * sizeof(float));
        assert_non_null(a.at[k]);
    }
    return a;
}

static void release(arrays *a)
{
    for (size_t k = 0; k < MAX_ARRAYS; k++)
        free(a->at[k]);
}

static void update(const gyre_opt *opt, const arrays *a, size_t from, size_t n,
                   const float *scalars)
{
    float *slot[MAX_ARRAYS];

    for (size_t k = 0; k + 1 < MAX_ARRAYS; k++)
        slot[k] = a->at[k + 1] != NULL ? a->at[k + 1] + from : NULL;
    gyre_opt_update(opt, n, a->at[0] + from, slot, scalars, from);
}

static const char *const isa_names[] = {"scalar", "avx2", "avx512"};

/* ---- tests ----------------------------------------------------------- */

static void test_same_bits_on_every_instruction_set(void **state)
{
    gyre_fp saved = gyre_fp_pin();

    (void)state;
    for (size_t s = 0; s < SETUPS; s++) {
        gyre_opt *scalar = make(GYRE_LOOP_SCALAR, &setups[s]);
        size_t count = 2 + gyre_opt_slot_count(scalar);
        arrays start = allocate(count, TILE), want = allocate(count, TILE),
               have = allocate(count, TILE);
        float scalars[GYRE_OPT_MAX_SCALARS];

        for (uint64_t round = 1; round <= 40; round++) {
            assert_int_equal(gyre_opt_scalars(scalar, gyre_opt_defaults(scalar),
                                              round, scalars, NULL),
                             GYRE_OK);
            fill(&start, count, TILE);
            copy(&want, &start, count, TILE);
            update(scalar, &want, 0, TILE, scalars);
            for (int isa = 1; isa < GYRE_LOOP_COUNT; isa++) {
                gyre_opt *opt;

                if (contexts[isa] == NULL)
                    continue;
                opt = make(isa, &setups[s]);
                assert_string_equal(gyre_opt_loop_name(opt), isa_names[isa]);
                copy(&have, &start, count, TILE);
                update(opt, &have, 0, TILE, scalars);
                expect_same(&want, &have, count, TILE, setups[s].label,
                            isa_names[isa]);
                gyre_opt_destroy(opt);
            }
        }
        release(&start);
        release(&want);
        release(&have);
        gyre_opt_destroy(scalar);
    }
    gyre_fp_restore(saved);
}

static void test_whole_or_in_pieces(void **state)
{
    gyre_fp saved = gyre_fp_pin();

    (void)state;
    for (size_t s = 0; s < SETUPS; s++) {
        for (int isa = 0; isa < GYRE_LOOP_COUNT; isa++) {
            gyre_opt *opt;
            size_t count;
            arrays whole, pieces;
            float scalars[GYRE_OPT_MAX_SCALARS];

            if (contexts[isa] == NULL)
                continue;
            opt = make(isa, &setups[s]);
            count = 2 + gyre_opt_slot_count(opt);
            whole = allocate(count, TILE);
            pieces = allocate(count, TILE);
            gyre_opt_scalars(opt, gyre_opt_defaults(opt), 3, scalars, NULL);
            fill(&whole, count, TILE);
            copy(&pieces, &whole, count, TILE);
            update(opt, &whole, 0, TILE, scalars);
            for (size_t at = 0; at < TILE;) {
                size_t n = random_bits() % 131u;

                if (n > TILE - at)
                    n = TILE - at;
                update(opt, &pieces, at, n, scalars);
                at += n;
            }
            expect_same(&whole, &pieces, count, TILE, setups[s].label,
                        "in pieces");
            release(&whole);
            release(&pieces);
            gyre_opt_destroy(opt);
        }
    }
    gyre_fp_restore(saved);
}

/* Arrays that end at an unreadable page, so that each start is misaligned by
 * its length; and begin after one, at every offset. */
typedef struct guarded {
    char *base;
    size_t page, room;
} guarded;

static guarded guard(size_t bytes)
{
    guarded g;

    g.page = (size_t)sysconf(_SC_PAGESIZE);
    g.room = (bytes + g.page - 1) / g.page * g.page;
    g.base = mmap(NULL, g.room + 2 * g.page, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.base != MAP_FAILED);
    assert_int_equal(mprotect(g.base, g.page, PROT_NONE), 0);
    assert_int_equal(mprotect(g.base + g.page + g.room, g.page, PROT_NONE), 0);
    return g;
}

static void test_edges(void **state)
{
    gyre_fp saved = gyre_fp_pin();
    guarded pages[MAX_ARRAYS];

    (void)state;
    for (size_t k = 0; k < MAX_ARRAYS; k++)
        pages[k] = guard((TILE + 16) * sizeof(float));
    for (size_t s = 0; s < SETUPS; s++) {
        gyre_opt *scalar = make(GYRE_LOOP_SCALAR, &setups[s]);
        size_t count = 2 + gyre_opt_slot_count(scalar);
        arrays want = allocate(count, TILE), have = {{0}};
        float scalars[GYRE_OPT_MAX_SCALARS];

        gyre_opt_scalars(scalar, gyre_opt_defaults(scalar), 2, scalars, NULL);
        for (int isa = 0; isa < GYRE_LOOP_COUNT; isa++) {
            gyre_opt *opt;

            if (contexts[isa] == NULL)
                continue;
            opt = make(isa, &setups[s]);
            for (size_t n = 0; n <= 68; n++) {
                size_t length = n == 68 ? TILE : n;

                for (size_t k = 0; k < count; k++) {
                    guarded *g = &pages[k];

                    /* odd arrays at the front, by turns misaligned */
                    have.at[k] =
                        (k + n) % 2 == 0
                            ? (float *)(void *)(g->base + g->page + g->room) -
                                  length
                            : (float *)(void *)(g->base + g->page) +
                                  (n + k) % 16 * (n != 68);
                }
                fill(&want, count, length);
                copy(&have, &want, count, length);
                update(scalar, &want, 0, length, scalars);
                update(opt, &have, 0, length, scalars);
                expect_same(&want, &have, count, length, setups[s].label,
                            "edges");
            }
            gyre_opt_destroy(opt);
        }
        release(&want);
        gyre_opt_destroy(scalar);
    }
    for (size_t k = 0; k < MAX_ARRAYS; k++)
        munmap(pages[k].base, pages[k].room + 2 * pages[k].page);
    gyre_fp_restore(saved);
}

static void test_gradient_is_not_written(void **state)
{
    (void)state;
    for (size_t s = 0; s < SETUPS; s++) {
        gyre_opt *opt = make(GYRE_LOOP_SCALAR, &setups[s]);
        size_t count = 2 + gyre_opt_slot_count(opt);
        arrays a = allocate(count, 67), before = allocate(count, 67);
        float scalars[GYRE_OPT_MAX_SCALARS];

        gyre_opt_scalars(opt, gyre_opt_defaults(opt), 1, scalars, NULL);
        fill(&a, count, 67);
        copy(&before, &a, count, 67);
        update(opt, &a, 0, 67, scalars);
        expect_same(&a, &before, 1, 67, setups[s].label, "gradient");
        release(&a);
        release(&before);
        gyre_opt_destroy(opt);
    }
}

/* Built in, or from the module file: the same text, so the same hash. */
static void test_kernel_hash(void **state)
{
    gyre_opt *plain = make(0, &setups[2]), *amsgrad = make(0, &setups[3]),
             *adam = make(0, &setups[0]);

    (void)state;
    assert_true(gyre_opt_kernel_hash(plain) != gyre_opt_kernel_hash(amsgrad));
    assert_true(gyre_opt_kernel_hash(plain) != gyre_opt_kernel_hash(adam));
    assert_string_equal(gyre_opt_defines(plain), "-DGY_AMSGRAD=0");
    assert_string_equal(gyre_opt_defines(amsgrad), "-DGY_AMSGRAD=1");
    assert_non_null(strstr(gyre_opt_kernel_text(plain), "gy_fma(g, g, "
                                                        "-exp_avg_sq)"));
    gyre_opt_destroy(plain);
    gyre_opt_destroy(amsgrad);
    gyre_opt_destroy(adam);
}

static void test_slots_follow_the_variant(void **state)
{
    static const gyre_setting settings[] = {{"initial_accumulator_value", 0.5}};
    gyre_opt *plain = make(0, &setups[2]), *amsgrad = make(0, &setups[3]),
             *adagrad = NULL;
    size_t place = 9;

    (void)state;
    assert_int_equal(gyre_opt_slot_count(plain), 2);
    assert_int_equal(gyre_opt_slot_count(amsgrad), 3);
    assert_string_equal(gyre_opt_slot_name(plain, 0), "exp_avg");
    assert_string_equal(gyre_opt_slot_name(plain, 1), "exp_avg_sq");
    assert_string_equal(gyre_opt_slot_name(amsgrad, 2), "max_exp_avg_sq");
    assert_int_equal(gyre_opt_kernel_slot_count(plain), 3);
    assert_string_equal(gyre_opt_kernel_slot_name(plain, 2, &place),
                        "max_exp_avg_sq");
    assert_int_equal(place, 0);
    gyre_opt_kernel_slot_name(amsgrad, 2, &place);
    assert_int_equal(place, 3);
    assert_int_equal(
        gyre_opt_create(contexts[0], "adagrad", settings, 1, &adagrad, NULL),
        GYRE_OK);
    assert_true(gyre_opt_slot_initial(adagrad, 0) == 0.5f);
    assert_true(gyre_opt_slot_initial(plain, 0) == 0.0f);
    gyre_opt_destroy(plain);
    gyre_opt_destroy(amsgrad);
    gyre_opt_destroy(adagrad);
}

/* A host that flushes denormals: scalars and the check of a loop do not see
 * its control word, and leave it as it was. */
static void test_control_word_of_the_host(void **state)
{
#if defined(__x86_64__)
    static const setup tiny = {
        "tiny", "adamw", {{"lr", 1e-310}, {"eps", 1e-38}}, 2};
    float want[GYRE_OPT_MAX_SCALARS], have[GYRE_OPT_MAX_SCALARS];
    unsigned word = __builtin_ia32_stmxcsr();
    gyre_opt *opt = make(0, &tiny), *other;

    gyre_opt_scalars(opt, gyre_opt_defaults(opt), 1, want, NULL);
    __builtin_ia32_ldmxcsr(0xffc0); /* FTZ, DAZ, round to zero */
    other = make(0, &tiny);
    gyre_opt_scalars(other, gyre_opt_defaults(other), 1, have, NULL);
    assert_int_equal(__builtin_ia32_stmxcsr() & 0xffc0u, 0xffc0);
    __builtin_ia32_ldmxcsr(word);
    assert_memory_equal(want, have,
                        gyre_opt_scalar_count(opt) * sizeof(want[0]));
    assert_true(want[4] != 0.0f); /* eps: a denormal */
    gyre_opt_destroy(opt);
    gyre_opt_destroy(other);
#endif
    (void)state;
}

static int open_contexts(void **state)
{
    (void)state;
    for (int isa = 0; isa < GYRE_LOOP_COUNT; isa++) {
        gyre_context_options options = {0};

        options.size = sizeof(options);
        options.instruction_set = isa_names[isa];
        if (gyre_context_create(&options, &contexts[isa], NULL) != GYRE_OK)
            contexts[isa] = NULL;
    }
    return contexts[0] == NULL;
}

static int close_contexts(void **state)
{
    (void)state;
    for (int isa = 0; isa < GYRE_LOOP_COUNT; isa++)
        gyre_context_destroy(contexts[isa]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_on_every_instruction_set),
        cmocka_unit_test(test_whole_or_in_pieces),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_gradient_is_not_written),
        cmocka_unit_test(test_kernel_hash),
        cmocka_unit_test(test_slots_follow_the_variant),
        cmocka_unit_test(test_control_word_of_the_host),
    };

    return cmocka_run_group_tests_name("registry/loops", tests, open_contexts,
                                       close_contexts);
}
