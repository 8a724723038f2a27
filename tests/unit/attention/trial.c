/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit.h"
#include "trial.h"

#include <math.h>

const gyre_mask trial_causal = {.size = sizeof(gyre_mask), .causal = 1};
const gyre_mask trial_full = {.size = sizeof(gyre_mask)};
const gyre_mask trial_window = {
    .size = sizeof(gyre_mask), .causal = 1, .window = 5};
const gyre_mask trial_band = {.size = sizeof(gyre_mask), .window = 5};

static const uint64_t one[] = {0, 7, 8, 19, 33}, other[] = {3, 11, 29};
static const gyre_documents tables[] = {{.bounds = one, .count = 4},
                                        {.bounds = other, .count = 2}};
const gyre_mask trial_documents = {.size = sizeof(gyre_mask),
                                   .causal = 1,
                                   .documents = tables,
                                   .document_count = 2};

static const uint8_t blocks[] = {1, 0, 0, 1, 0, 0, 1, 0,
                                 0, 0, 0, 0, 1, 0, 1, 0};
const gyre_mask trial_blocks = {.size = sizeof(gyre_mask),
                                .blocks = blocks,
                                .block_q = 9,
                                .block_k = 8,
                                .block_rows = 4,
                                .block_columns = 4};
static const uint8_t blocks_short[] = {1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0};
const gyre_mask trial_blocks_short = {.size = sizeof(gyre_mask),
                                      .blocks = blocks_short,
                                      .block_q = 9,
                                      .block_k = 8,
                                      .block_rows = 3,
                                      .block_columns = 4};

const float trial_slopes[8] = {0.5f,   0.25f,  0.125f, 0.0625f,
                               0.031f, 0.015f, 0.007f, 0};

static uint32_t or_else(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

void trial_prepare(gyre_context *context, const trial_case *c,
                   trial_options *out)
{
    memset(out, 0, sizeof(*out));
    schedule_set(context, &out->request, c->words);
    gyre_plan_request *r = &out->request.request;
    r->ranks = c->ranks;
    r->drop = c->drop;
    r->batch = c->batch;
    r->heads = or_else(c->heads, 8);
    r->kv_heads = c->heads != 0 ? c->kv_heads : or_else(c->kv_heads, 4);
    r->head_dim = or_else(c->head_dim, 8);
    r->v_head_dim =
        c->head_dim != 0 ? c->v_head_dim : or_else(c->v_head_dim, 4);
    r->dtype = c->kernel != NULL ? c->dtype : GYRE_F64;
    r->wire_dtype = c->wire_dtype;
    r->tokens = c->tokens;
    r->kv_tokens = c->kv_tokens;
    r->layout = c->layout;
    r->mask = c->mask != NULL ? c->mask : &trial_causal;
    for (int side = 0; c->chunks != NULL && side < GYRE_SIDE_COUNT; side++) {
        r->chunks[side] = c->chunks;
        r->chunk_count[side] = c->chunk_count;
    }
    out->options = (gyre_attention_options){.size = sizeof(out->options),
                                            .request = r,
                                            .kernel = c->kernel,
                                            .tiles = c->tiles,
                                            .dropout = c->dropout,
                                            .seed = 77,
                                            .slopes = c->slopes,
                                            .delay = c->delay,
                                            .delay_seed = c->ranks};
    out->world = (gyre_world_request){.size = sizeof(out->world),
                                      .ranks = c->ranks,
                                      .delay = c->delay,
                                      .delay_seed = 3 + c->ranks,
                                      .timeout = UINT64_C(60000000000)};
}

bool trial_run(gyre_context *context, const trial_case *c, gyre_trial *out)
{
    trial_options t;
    gyre_world *world = NULL;
    gyre_plan *plan = NULL;
    gyre_error error = {0};
    trial_prepare(context, c, &t);
    gyre_status status =
        gyre_plan_make(context, &t.request.request, &plan, &error);
    if (status == GYRE_INVALID || status == GYRE_PARAMETER)
        return false; /* by check */
    gyre_plan_free(plan);
    if (status == GYRE_OK)
        status = gyre_world_open(context, &t.world, &world, &error);
    gyre_trial_options asked = {.size = sizeof(asked), .seed = 5};
    *out = (gyre_trial){.size = sizeof(*out)};
    if (status == GYRE_OK)
        status = gyre_attention_trial(context, world, &t.options, &asked, out,
                                      &error);
    gyre_world_close(world);
    if (status != GYRE_OK)
        fail_msg("%s, %u ranks: %s", c->words, c->ranks, error.text);
    return true;
}

/*
 * The verdict's bound of f32 sums is a multiple of what one rank errs by, which
 * is luck: another order of the same additions may err by more.  So one
 * rounding, 2^-24, is granted for each term of a sum, of a running sum at most
 * twice as large as the largest result.  Terms are tokens, in DK and DV times
 * the query heads of a KV head.  What a test is to see, a sum in bf16 (2^-9),
 * is far beyond.
 */
static double allowed(const gyre_plan_request *r, const gyre_trial_tensor *t)
{
    uint64_t tokens = r->kv_tokens > r->tokens ? r->kv_tokens : r->tokens;
    double terms = (double)tokens * r->heads / or_else(r->kv_heads, r->heads);
    if (r->dtype == GYRE_F64 || t->max_rel_error == 0)
        return t->bound;
    double largest = t->max_abs_error / t->max_rel_error;
    return t->bound + terms * 0x1p-24 * 2 * largest;
}

bool trial_good(gyre_context *context, const trial_case *c)
{
    gyre_trial trial;
    trial_options used;
    if (!trial_run(context, c, &trial))
        return false;
    trial_prepare(context, c, &used);
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
        const gyre_trial_tensor *t = &trial.tensor[i];
        double bound = allowed(&used.request.request, t);
        if (t->compared && !(isfinite(t->bound) && t->max_abs_error <= bound))
            fail_msg("%s, %u ranks, %llu tokens, layout %u, kernel %s: %s is "
                     "wrong by %g, bound %g",
                     c->words, c->ranks, (unsigned long long)c->tokens,
                     c->layout, c->kernel ? c->kernel : "f64", t->name,
                     t->max_abs_error, bound);
    }
    if (!trial.ledger_ok)
        fail_msg("%s, %u ranks: rank %u moved other bytes than planned",
                 c->words, c->ranks, trial.bad_rank);
    assert_int_equal(trial.tensor[GYRE_TRIAL_O].compared, 1);
    assert_int_equal(trial.tensor[GYRE_TRIAL_DV].compared, 1);
    return true;
}

/* One of every kind. */
static const char *const schedules[] = {
    "ring",
    "ring direction=descending hops=published",
    "double-ring window=2",
    "2d heads=2",
    "2d heads=4 keep=split",
    "multi-ring team=2",
    "tile a=2",
    "ulysses",
    "allgather",
    "burst",
    "tokenring",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(*schedules) };

void trial_sweep(trial_case c, const uint32_t *ranks, uint32_t at_least)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint32_t ran = 0;
    for (uint32_t s = 0; s < SCHEDULES; s += unit_sampled() ? 4 : 1)
        for (const uint32_t *p = ranks; *p != 0; p++) {
            c.words = schedules[s];
            c.ranks = *p;
            ran += trial_good(context, &c);
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    if (ran < (unit_sampled() ? 1 : at_least))
        fail_msg("only %u ran", ran);
}
