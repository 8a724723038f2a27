/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules whose blocks go to CUDA's driver, on one that is not there
 * (../device/fake): the program is played by the function below, from the words
 * and arrays of the launch.  Skips where the module was not built.
 */
#include "config.h"

#include "attention/kernel_device.h"
#include "device/module.h"
#include "trial.h"

#include "../device/fake/fake.h"
#include "../device/open_fake.h"

#include <gyre/registry.h>

#include <math.h>

static fake_cuda_state *cuda;
static fake_nvrtc_state *nvrtc;

/* ---- the program ------------------------------------------------------- */

typedef struct played {
    const uint32_t *in;
    float *out;
    uint32_t heads, rows, keys, dim, v_dim;
} played;

static const float *array_of(const played *p, int word)
{
    return (const float *)(const void *)(p->in + p->in[word]);
}

static float number(const played *p, int word)
{
    float value;
    memcpy(&value, &p->in[word], sizeof(value));
    return value;
}

static uint64_t position(const played *p, int word, uint32_t i)
{
    const uint32_t *at = p->in + p->in[word] + 2 * i;
    return at[0] | (uint64_t)at[1] << 32;
}

static double dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double score(const played *p, uint32_t h, uint32_t row, uint32_t key)
{
    const float *q = array_of(p, GYRE_WORD_AT_Q) + (h * p->rows + row) * p->dim;
    double s = dot(q, array_of(p, GYRE_WORD_AT_K) + key * p->dim, p->dim) *
               (double)number(p, GYRE_WORD_SCALE);
    if (p->in[GYRE_WORD_AT_SLOPES] != 0)
        s -= (double)array_of(p, GYRE_WORD_AT_SLOPES)[h] *
             fabs((double)position(p, GYRE_WORD_AT_ROW_AT, row) -
                  (double)position(p, GYRE_WORD_AT_KEY_AT, key));
    return s;
}

static double factor(const played *p, uint32_t h, uint32_t row, uint32_t key)
{
    uint64_t q = position(p, GYRE_WORD_AT_ROW_AT, row);
    uint64_t k = position(p, GYRE_WORD_AT_KEY_AT, key);
    uint32_t head = p->in[GYRE_WORD_HEAD] + h, of = p->in[GYRE_WORD_KEY];
    if (p->in[GYRE_WORD_BELOW] == 0)
        return 1;
    uint32_t key0 = gyre_hash(of, (uint32_t)(q >> 32), head);
    uint32_t key1 = gyre_hash(of, head, (uint32_t)q);
    return gyre_hash(key0, key1 + (uint32_t)(k >> 32), (uint32_t)k) >=
                   p->in[GYRE_WORD_BELOW]
               ? (double)number(p, GYRE_WORD_KEEP)
               : 0;
}

/* Calls `each` for the pairs of a row that are allowed. */
typedef void (*each_pair)(const played *p, uint32_t h, uint32_t row,
                          uint32_t key, double *sums);
static void along(const played *p, uint32_t h, uint32_t row, each_pair each,
                  double *sums)
{
    const uint32_t *first = p->in + p->in[GYRE_WORD_AT_FIRST] + row;
    const uint32_t *runs = p->in + p->in[GYRE_WORD_AT_RUNS];
    for (uint32_t i = first[0]; i < first[1]; i++)
        for (uint32_t key = runs[2 * i]; key < runs[2 * i + 1]; key++)
            each(p, h, row, key, sums);
}

enum { MOST_DIM = 64 };

/* sums: of weights, then of weighted values. */
static void attend_pair(const played *p, uint32_t h, uint32_t row, uint32_t key,
                        double *sums)
{
    const float *v = array_of(p, GYRE_WORD_AT_V) + key * p->v_dim;
    double w = exp(score(p, h, row, key)), z = factor(p, h, row, key);
    sums[0] += w;
    for (uint32_t d = 0; d < p->v_dim; d++)
        sums[1 + d] += w * z * (double)v[d];
}

/* Scores of the tests are far below what exp overflows at. */
static void attend(const played *p, uint32_t h, uint32_t row)
{
    double sums[1 + MOST_DIM] = {0};
    float *o = p->out + (h * p->rows + row) * p->v_dim;
    float *lse = p->out + p->heads * p->rows * p->v_dim + h * p->rows + row;
    along(p, h, row, attend_pair, sums);
    if (sums[0] == 0)
        return;
    double before = exp((double)*lse), total = before + sums[0];
    for (uint32_t d = 0; d < p->v_dim; d++)
        o[d] = (float)((before * (double)o[d] + sums[1 + d]) / total);
    *lse = (float)log(total);
}

static void grad_pair(const played *p, uint32_t h, uint32_t row, uint32_t key,
                      double *sums)
{
    uint32_t at = h * p->rows + row;
    const float *q = array_of(p, GYRE_WORD_AT_Q) + at * p->dim;
    const float *k = array_of(p, GYRE_WORD_AT_K) + key * p->dim;
    const float *v = array_of(p, GYRE_WORD_AT_V) + key * p->v_dim;
    const float *d_o = array_of(p, GYRE_WORD_AT_DO) + at * p->v_dim;
    float *dk = p->out + p->heads * p->rows * p->dim + key * p->dim;
    float *dv = p->out + p->heads * p->rows * p->dim + p->keys * p->dim +
                key * p->v_dim;
    double w =
        exp(score(p, h, row, key) - (double)array_of(p, GYRE_WORD_AT_L)[at]);
    double z = factor(p, h, row, key);
    double ds =
        w *
        (z * dot(d_o, v, p->v_dim) - (double)array_of(p, GYRE_WORD_AT_D)[at]) *
        (double)number(p, GYRE_WORD_SCALE);
    for (uint32_t d = 0; d < p->dim; d++) {
        sums[d] += ds * (double)k[d];
        dk[d] += (float)(ds * (double)q[d]);
    }
    for (uint32_t d = 0; d < p->v_dim; d++)
        dv[d] += (float)(w * z * (double)d_o[d]);
}

static void grad(const played *p, uint32_t h, uint32_t row)
{
    double sums[MOST_DIM] = {0};
    float *dq = p->out + (h * p->rows + row) * p->dim;
    along(p, h, row, grad_pair, sums);
    for (uint32_t d = 0; d < p->dim; d++)
        dq[d] += (float)sums[d];
}

static void play(void *state, const void *input, unsigned grains)
{
    const uint32_t *in = input;
    played p = {in,
                state,
                in[GYRE_WORD_HEADS],
                in[GYRE_WORD_ROWS],
                in[GYRE_WORD_KEYS],
                in[GYRE_WORD_DIM],
                in[GYRE_WORD_V_DIM]};
    (void)grains;
    for (uint32_t h = 0; h < p.heads; h++)
        for (uint32_t row = 0; row < p.rows; row++)
            if (in[GYRE_WORD_GRAD])
                grad(&p, h, row);
            else
                attend(&p, h, row);
}

/* ---- tests --------------------------------------------------------------- */

static const trial_case problem = {.kernel = "cuda",
                                   .dtype = GYRE_F32,
                                   .words = "ring",
                                   .ranks = 2,
                                   .tokens = 14,
                                   .batch = 2,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 8,
                                   .v_head_dim = 12,
                                   .mask = &trial_full};

static int setup(void **state)
{
    (void)state;
    if (cuda == NULL) {
        cuda = open_fake("libcuda.so.1", "fake_cuda");
        nvrtc = open_fake("libnvrtc.so.13", "fake_nvrtc");
    }
    *cuda = (fake_cuda_state){.devices = 1,
                              .free_bytes = (size_t)1 << 30,
                              .group = GYRE_DEVICE_TILE * GYRE_DEVICE_TILE,
                              .kernel = play};
    *nvrtc = (fake_nvrtc_state){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(cuda->wrong, 0);
    assert_int_equal(cuda->depth, 0);
    assert_int_equal(cuda->live, 0);
    assert_int_equal(cuda->retained, 0);
    assert_int_equal(cuda->abandoned, 0);
    assert_int_equal(nvrtc->wrong, 0);
    assert_int_equal(nvrtc->live, 0);
    return 0;
}

static void schedules_are_right(void **state)
{
    static const char *const words[] = {
        "ring", "2d heads=2", "multi-ring team=2", "double-ring window=2"};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_mask window = {.size = sizeof(window), .causal = 1, .window = 6};
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t narrow = 0; narrow < 2; narrow++) {
            trial_case c = problem;
            c.words = words[i];
            c.ranks = 4;
            c.dtype = narrow ? GYRE_BF16 : GYRE_F32;
            c.mask = i % 2 ? &window : &trial_full;
            c.layout = GYRE_LAYOUT_ZIGZAG;
            c.dropout = 0.25;
            c.slopes = trial_slopes;
            assert_true(trial_good(context, &c));
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* A ring of two with a full mask: two blocks a rank and pass, each a launch for
 * every sequence and KV head; and what the trial runs on one rank. */
static void every_block_is_launched(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    (void)state;
    assert_true(trial_good(context, &problem));
    assert_int_equal(cuda->launches, (2 * 2 + 1) * 2 * (2 * 4));
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static gyre_status live(gyre_context *context, const trial_case *c,
                        gyre_error *error)
{
    trial_options t;
    gyre_trial trial = {.size = sizeof(trial)};
    trial_prepare(context, c, &t);
    return gyre_attention_trial(context, NULL, &t.options, NULL, &trial, error);
}

/* No driver, no device, no compiler: an error that says so, and no result from
 * elsewhere. */
static void without_a_device_nothing_runs(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_error error = {0};
    trial_case c = problem;
    (void)state;
    cuda->devices = 0;
    assert_int_not_equal(live(context, &c, &error), GYRE_OK);
    unit_assert_text(&error, "rank 0, kernel cuda: ");
    cuda->devices = 1;
    c.kernel = "cuda:3";
    assert_int_not_equal(live(context, &c, &error), GYRE_OK);
    unit_assert_text(&error, "kernel cuda:3: ");
    assert_int_equal(cuda->launches, 0);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Whatever call of the driver fails, at opening or in the middle of a ring: an
 * error of the rank, no rank waits for another, nothing is left. */
static void any_call_may_fail(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    unsigned calls, step = unit_sampled() ? 37 : 11;
    gyre_error error = {0};
    trial_case c = problem;
    (void)state;
    c.batch = 1;
    c.heads = c.kv_heads = 2;
    assert_int_equal(live(context, &c, &error), GYRE_OK);
    calls = cuda->calls;
    uint64_t before = memory.bytes;
    for (unsigned n = 1; n <= calls; n += step) {
        cuda->fail_at = cuda->calls + n;
        gyre_status status = live(context, &c, &error);
        cuda->fail_at = 0;
        if (status == GYRE_OK)
            continue; /* of those whose failure changes nothing */
        unit_assert_text(&error, "cuda");
        assert_int_equal(memory.bytes, before);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void any_memory_may_fail(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    trial_case c = problem;
    trial_options t;
    gyre_world *world;
    gyre_error error = {0};
    (void)state;
    c.batch = 1;
    c.heads = c.kv_heads = 2;
    trial_prepare(context, &c, &t);
    for (uint64_t n = 1;; n++) {
        gyre_attention *attention;
        assert_int_equal(gyre_world_open(context, &t.world, &world, &error),
                         GYRE_OK);
        uint64_t before = memory.bytes;
        memory.fail_at = memory.requests + n;
        gyre_status status =
            gyre_attention_open(context, world, &t.options, &attention, &error);
        memory.fail_at = 0;
        if (status == GYRE_OK) {
            gyre_attention_close(attention);
            gyre_world_close(world);
            break;
        }
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_int_equal(memory.bytes, before);
        gyre_world_close(world);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static bool is_built(void)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    const gyre_plugin *plugin;
    gyre_error error;
    gyre_status status =
        gyre_plugin_find(context, GYRE_KIND_DEVICE, "cuda", &plugin, &error);
    if (status == GYRE_NOT_FOUND)
        printf("1..0 # SKIP %s\n", error.text);
    gyre_context_destroy(context);
    return status != GYRE_NOT_FOUND;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(schedules_are_right),           TEST(every_block_is_launched),
        TEST(without_a_device_nothing_runs), TEST(any_call_may_fail),
        TEST(any_memory_may_fail),
    };
    if (!is_built())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
