/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit.h"
#include "trial.h"

#include <stdio.h>

const gyre_mask trial_causal = {.size = sizeof(gyre_mask), .causal = 1};
const gyre_mask trial_full = {.size = sizeof(gyre_mask)};

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

bool trial_good(gyre_context *context, const trial_case *c)
{
    gyre_trial trial;
    if (!trial_run(context, c, &trial))
        return false;
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
        const gyre_trial_tensor *t = &trial.tensor[i];
        if (t->compared && !t->ok)
            fail_msg("%s, %u ranks, %llu tokens, layout %u, kernel %s: %s is "
                     "wrong by %g, bound %g",
                     c->words, c->ranks, (unsigned long long)c->tokens,
                     c->layout, c->kernel ? c->kernel : "f64", t->name,
                     t->max_abs_error, t->bound);
    }
    if (!trial.ledger_ok)
        fail_msg("%s, %u ranks: rank %u moved other bytes than planned",
                 c->words, c->ranks, trial.bad_rank);
    assert_int_equal(trial.tensor[GYRE_TRIAL_O].compared, 1);
    assert_int_equal(trial.tensor[GYRE_TRIAL_DV].compared, 1);
    assert_int_equal(trial.ok, 1);
    return true;
}
