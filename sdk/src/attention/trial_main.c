/* SPDX-License-Identifier: Apache-2.0 */
/* gyre_attention_trial: the run, the reference, the verdict. */
#include "attention/trial.h"

#include <string.h>

typedef struct trial {
    gyre_context *context;
    gyre_attention_options options; /* with plans */
    gyre_trial_options asked;
    const gyre_plan *plans[GYRE_PASS_COUNT];
    gyre_plan *made[GYRE_PASS_COUNT];
    gyre_world *world, *own_world;
    gyre_attention *attention;
    bool root;
    gyre_whole got, reference, alone;
    gyre_link_count *ledger; /* [pass][rank][phase][class] */
    size_t ledger_count;
    gyre_trial result;
} trial;

static gyre_status open_world(trial *t, gyre_world *given, gyre_error *error)
{
    const char *phases[2 * GYRE_PLAN_MAX_PHASES];
    gyre_world_request request = {.size = sizeof(request),
                                  .ranks = t->plans[0]->problem.ranks,
                                  .phases = phases};
    t->world = given;
    if (given != NULL)
        return GYRE_OK;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0;
             t->plans[pass] != NULL && i < t->plans[pass]->phase_count; i++)
            phases[request.phase_count++] = t->plans[pass]->phases[i];
    gyre_status status =
        gyre_world_open(t->context, &request, &t->own_world, error);
    t->world = t->own_world;
    return status;
}

static gyre_status prepare(trial *t, gyre_world *world, gyre_error *error)
{
    gyre_status status =
        gyre_attention_plans(t->context, &t->options, t->made, t->plans, error);
    if (status != GYRE_OK)
        return world == NULL ? status
                             : gyre_attention_give_up(world, status, error);
    t->options.forward = t->plans[0];
    t->options.backward = t->plans[1];
    status = open_world(t, world, error);
    if (status == GYRE_OK)
        status = gyre_attention_open(t->context, t->world, &t->options,
                                     &t->attention, error);
    if (status == GYRE_OK)
        status = gyre_attention_agree(t->context, t->world, &t->asked.seed,
                                      &(const char *){"seed"}, 1, error);
    if (status != GYRE_OK)
        return status;
    const gyre_attention *a = t->attention;
    const gyre_problem *p = &t->plans[0]->problem;
    t->root = a->first == 0;
    t->ledger_count = 2 * (size_t)p->ranks * a->phases * a->classes;
    t->ledger =
        gyre_alloc_zero(t->context, t->ledger_count, sizeof(*t->ledger));
    if (t->ledger == NULL || !gyre_whole_make(t->context, p, &t->got) ||
        (t->root && (!gyre_whole_make(t->context, p, &t->reference) ||
                     !gyre_whole_make(t->context, p, &t->alone)))) {
        gyre_transport_abort(a->executors[0][0]->endpoint, GYRE_NO_MEMORY,
                             "no memory for a trial");
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a trial");
    }
    gyre_whole_fill(&t->got, t->asked.seed, (gyre_dtype)p->dtype);
    return GYRE_OK;
}

/* The same problem on one rank: forward and backward. */
static gyre_status solo_plan(const trial *t, uint32_t pass, gyre_plan **out,
                             gyre_error *error)
{
    const gyre_plan *plan = t->plans[0];
    gyre_plan_spec spec = {.name = "one rank",
                           .problem = plan->problem,
                           .mask = plan->mask,
                           .pass = pass,
                           .emit = gyre_solo_emit};
    spec.problem.ranks = 1;
    for (int side = 0; side < GYRE_SIDE_COUNT; side++) {
        spec.problem.chunks[side] = NULL;
        spec.problem.chunk_count[side] = 0;
    }
    return gyre_plan_create(t->context, &spec, out, error);
}

static gyre_status run_alone(trial *t, gyre_error *error)
{
    gyre_plan *plans[GYRE_PASS_COUNT] = {0};
    gyre_world *world = NULL;
    gyre_attention *attention = NULL;
    bool lse;
    gyre_world_request request = {.size = sizeof(request), .ranks = 1};
    gyre_attention_options options = t->options;
    options.tiles = 0;
    options.delay = 0;
    gyre_status status = solo_plan(t, 0, &plans[0], error);
    if (status == GYRE_OK && t->plans[1] != NULL)
        status = solo_plan(t, 1, &plans[1], error);
    options.forward = plans[0];
    options.backward = plans[1];
    if (status == GYRE_OK)
        status = gyre_world_open(t->context, &request, &world, error);
    if (status == GYRE_OK)
        status =
            gyre_attention_open(t->context, world, &options, &attention, error);
    if (status == GYRE_OK)
        status = gyre_trial_run(attention, &t->alone, &lse, NULL, error);
    gyre_attention_close(attention);
    gyre_world_close(world);
    gyre_plan_free(plans[0]);
    gyre_plan_free(plans[1]);
    return status;
}

/* Gradients are made from O, too: they pass what either pass narrows. */
static gyre_status find_casts(const trial *t, uint32_t *casts,
                              gyre_error *error)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        gyre_proof proof = {.size = sizeof(proof)};
        if (t->plans[pass] == NULL)
            continue;
        gyre_status status =
            gyre_plan_prove(t->plans[pass], NULL, &proof, error);
        if (status != GYRE_OK)
            return status;
        for (uint32_t i = pass == GYRE_PASS_FORWARD ? GYRE_TRIAL_O
                                                    : GYRE_TRIAL_DQ;
             i < GYRE_TRIAL_TENSORS; i++)
            if (proof.cast_depth > casts[i])
                casts[i] = proof.cast_depth;
    }
    return GYRE_OK;
}

static gyre_status judge(trial *t, bool lse, gyre_error *error)
{
    const gyre_problem *p = &t->plans[0]->problem;
    const gyre_executor *x = t->attention->executors[0][0];
    bool backward = t->plans[1] != NULL;
    bool count = strcmp(x->kernel->name, "count") == 0;
    gyre_trial_rule rule = {
        .dtype = (gyre_dtype)p->dtype,
        .ranks = p->ranks,
        .count = count,
        .narrow_wire = p->wire_dtype != p->sum_dtype,
        .compared = {true, lse && !count, backward, backward, backward}};
    gyre_status status = GYRE_OK;
    gyre_whole_fill(&t->reference, t->asked.seed, rule.dtype);
    gyre_whole_fill(&t->alone, t->asked.seed, rule.dtype);
    status = gyre_whole_reference(&t->reference, t->plans[0],
                                  &x->options.params, count, backward, error);
    if (status == GYRE_OK)
        status = run_alone(t, error);
    if (status == GYRE_OK && rule.narrow_wire)
        status = find_casts(t, rule.casts, error);
    if (status == GYRE_OK)
        gyre_whole_compare(&t->got, &t->reference, &t->alone, &rule,
                           &t->result);
    return status;
}

static void hold_ledger(trial *t)
{
    const gyre_attention *a = t->attention;
    const gyre_link_count *at = t->ledger;
    uint32_t ranks = t->plans[0]->problem.ranks;
    t->result.ledger_ok = 1;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t r = 0; r < ranks; r++)
            for (uint32_t i = 0; i < a->phases * a->classes; i++, at++) {
                if (t->plans[pass] == NULL)
                    continue;
                gyre_attention_link link = {.phase = gyre_transport_phase_name(
                                                a->world, i / a->classes),
                                            .klass = gyre_transport_class_name(
                                                a->world, i % a->classes),
                                            .sent = at->sent,
                                            .received = at->received};
                gyre_planned_bytes(t->plans[pass], r,
                                   &a->executors[pass][0]->leaves, link.phase,
                                   a->world, i % a->classes, &link.planned_sent,
                                   &link.planned_received);
                if (t->result.ledger_ok &&
                    (link.sent != link.planned_sent ||
                     link.received != link.planned_received)) {
                    t->result.ledger_ok = 0;
                    t->result.bad_rank = r;
                }
                if (t->asked.link != NULL && link.sent + link.received +
                                                     link.planned_sent +
                                                     link.planned_received >
                                                 0)
                    t->asked.link(t->asked.user, pass, r, &link);
            }
    t->result.ok &= t->result.ledger_ok;
}

/* With several processes, all get what rank 0 found. */
static gyre_status share(trial *t, gyre_status status, gyre_error *error)
{
    const gyre_attention *a = t->attention;
    gyre_endpoint *endpoint = a->executors[0][0]->endpoint;
    if (a->count == t->plans[0]->problem.ranks)
        return status;
    if (status != GYRE_OK) {
        gyre_transport_abort(endpoint, status, error->text);
        return status;
    }
    status = gyre_transport_broadcast(endpoint, 0, &t->result,
                                      sizeof(t->result), error);
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++)
        t->result.tensor[i].name = gyre_trial_name(i);
    return status;
}

static void close(trial *t)
{
    gyre_attention_close(t->attention);
    gyre_world_close(t->own_world);
    gyre_whole_free(&t->got);
    gyre_whole_free(&t->reference);
    gyre_whole_free(&t->alone);
    gyre_free(t->context, t->ledger, t->ledger_count, sizeof(*t->ledger));
    gyre_plan_free(t->made[0]);
    gyre_plan_free(t->made[1]);
}

gyre_status gyre_attention_trial(gyre_context *context, gyre_world *world,
                                 const gyre_attention_options *options,
                                 const gyre_trial_options *asked,
                                 gyre_trial *out, gyre_error *error)
{
    trial t = {.context = context};
    gyre_error local;
    bool lse = false;
    if (error == NULL)
        error = &local;
    if (out->size < sizeof(*out))
        return gyre_fail(error, GYRE_INVALID,
                         "trial: size is %zu, set it to sizeof(gyre_trial)",
                         out->size);
    if (asked != NULL)
        memcpy(&t.asked, asked,
               asked->size < sizeof(t.asked) ? asked->size : sizeof(t.asked));
    gyre_status status = gyre_attention_take(options, &t.options, error);
    if (status != GYRE_OK)
        return status;
    status = prepare(&t, world, error);
    if (status == GYRE_OK)
        status = gyre_trial_run(t.attention, &t.got, &lse, t.ledger, error);
    if (status == GYRE_OK) {
        if (t.root)
            status = judge(&t, lse, error);
        if (t.root && status == GYRE_OK)
            hold_ledger(&t);
        status = share(&t, status, error);
    }
    close(&t);
    if (status == GYRE_OK) {
        t.result.size = out->size;
        *out = t.result;
    }
    return status;
}
