/* SPDX-License-Identifier: Apache-2.0 */
/* gyre_attention: plans, executors of the ranks that are here, threads. */
#include "attention/face.h"

#include <math.h>
#include <string.h>

/* ---- options ------------------------------------------------------------- */

gyre_status gyre_attention_take(const gyre_attention_options *given,
                                gyre_attention_options *out, gyre_error *error)
{
    if (given == NULL || given->size == 0)
        return gyre_fail(error, GYRE_INVALID,
                         "attention options: size is 0; set it to "
                         "sizeof(gyre_attention_options)");
    memset(out, 0, sizeof(*out));
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    if (out->request == NULL && out->forward == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "attention options: neither a request nor a plan");
    if (!(out->dropout >= 0 && out->dropout < 1))
        return gyre_fail(error, GYRE_RANGE,
                         "attention options: dropout is %g: 0 up to, not "
                         "including, 1",
                         out->dropout);
    if (!(out->flops >= 0))
        return gyre_fail(error, GYRE_RANGE,
                         "attention options: flops is %g: 0 to compute, or "
                         "above 0 to sleep instead",
                         out->flops);
    if (out->workers > GYRE_MAX_WORKERS)
        return gyre_fail(error, GYRE_RANGE,
                         "attention options: %u workers: 1 to %u, or 0 for the "
                         "cores of this process over its ranks",
                         out->workers, GYRE_MAX_WORKERS);
    return GYRE_OK;
}

static gyre_status check_given(const gyre_plan *plan, uint32_t pass,
                               gyre_error *error)
{
    if (plan == NULL || plan->pass == pass)
        return GYRE_OK;
    return gyre_fail(error, GYRE_INVALID,
                     "attention options: plan '%s' is not of the %s pass",
                     plan->name,
                     pass == GYRE_PASS_FORWARD ? "forward" : "backward");
}

gyre_status gyre_attention_plans(gyre_context *context,
                                 const gyre_attention_options *options,
                                 gyre_plan *made[GYRE_PASS_COUNT],
                                 const gyre_plan *plans[GYRE_PASS_COUNT],
                                 gyre_error *error)
{
    gyre_status status = GYRE_OK;
    made[0] = made[1] = NULL;
    if (options->forward != NULL) {
        plans[0] = options->forward;
        plans[1] = options->forward_only ? NULL : options->backward;
        for (uint32_t pass = 0; pass < 2 && status == GYRE_OK; pass++)
            status = check_given(plans[pass], pass, error);
        if (status == GYRE_OK && plans[1] != NULL &&
            !gyre_plan_same_problem(plans[0], plans[1]))
            status = gyre_fail(error, GYRE_INVALID,
                               "attention options: plans '%s' and '%s' are not "
                               "of one problem: compare them with gyre plan "
                               "diff",
                               plans[0]->name, plans[1]->name);
        return status;
    }
    gyre_plan_request request = {0};
    memcpy(&request, options->request,
           options->request->size < sizeof(request) ? options->request->size
                                                    : sizeof(request));
    uint32_t passes = options->forward_only ? 1 : 2;
    for (uint32_t pass = 0; pass < passes && status == GYRE_OK; pass++) {
        request.pass = pass;
        status = gyre_plan_make(context, &request, &made[pass], error);
    }
    if (status != GYRE_OK) {
        gyre_plan_free(made[0]);
        made[0] = NULL;
        return status;
    }
    plans[0] = made[0];
    plans[1] = made[1];
    return GYRE_OK;
}

gyre_executor_options
gyre_attention_executor_options(const gyre_attention_options *options,
                                const gyre_plan *plan)
{
    const char *name = options->kernel;
    if (name == NULL)
        name = gyre_dtype_name((gyre_dtype)plan->problem.dtype);
    return (gyre_executor_options){.kernel = name,
                                   .params = {.scale = options->scale,
                                              .dropout = options->dropout,
                                              .seed = options->seed,
                                              .slopes = options->slopes},
                                   .tiles = options->tiles,
                                   .workers = options->workers,
                                   .delay = options->delay,
                                   .delay_seed = options->delay_seed,
                                   .flops = options->flops};
}

/* ---- open ------------------------------------------------------------------
 */

static gyre_status no_memory(gyre_error *error)
{
    return gyre_fail(error, GYRE_NO_MEMORY, "no memory for an attention");
}

/* Before anything runs: a kernel that refuses it in a forward breaks the world.
 */
static gyre_status check_scale(const gyre_attention *a, double scale,
                               gyre_error *error)
{
    gyre_dtype sum = (gyre_dtype)a->plans[0]->problem.sum_dtype;
    if (gyre_scale_fits(scale, sum))
        return GYRE_OK;
    return gyre_fail(error, GYRE_RANGE,
                     "attention options: scale is %g: a finite number in %s, "
                     "or 0 for 1/sqrt(head dim)",
                     scale, gyre_dtype_name(sum));
}

static gyre_status check_ranks(const gyre_attention *a, gyre_error *error)
{
    uint32_t ranks = gyre_transport_ranks(a->world);
    for (uint32_t pass = 0; pass < 2; pass++)
        if (a->plans[pass] != NULL && a->plans[pass]->problem.ranks != ranks)
            return gyre_fail(error, GYRE_INVALID,
                             "plan '%s' is for %u ranks, the world has %u",
                             a->plans[pass]->name,
                             a->plans[pass]->problem.ranks, ranks);
    return GYRE_OK;
}

/* A transport of one queue begins the groups of a rank in program order.  A
 * plan that counts on lanes could then wait for itself, over any number of
 * ranks, where no two ends disagree that the transport could see. */
static gyre_status check_lanes(const gyre_attention *a, gyre_error *error)
{
    if (!gyre_transport_one_queue(a->world))
        return GYRE_OK;
    for (uint32_t pass = 0; pass < 2; pass++) {
        gyre_proof proof = {.size = sizeof(proof)};
        if (a->plans[pass] == NULL)
            continue;
        gyre_status status =
            gyre_plan_prove(a->plans[pass], NULL, &proof, error);
        if (status != GYRE_OK)
            return status;
        if (!proof.one_lane)
            return gyre_fail(error, GYRE_INVALID,
                             "plan '%s' is not proven to end on one lane, and "
                             "%s has one: run it on threads or mpi%s%s",
                             a->plans[pass]->name,
                             gyre_transport_backend(a->world),
                             proof.ok ? "" : ", or mend it: ", proof.reason);
    }
    return GYRE_OK;
}

/* The chunks of each rank, in the order of its rows. */
static gyre_status list_chunks(gyre_attention *a, gyre_error *error)
{
    const gyre_plan *plan = a->plans[0];
    const gyre_problem *p = &plan->problem;
    for (uint32_t side = 0; side < GYRE_SIDE_COUNT; side++) {
        a->chunks[side] =
            gyre_alloc(a->context, p->chunk_count[side], sizeof(gyre_chunk));
        a->chunk_first[side] =
            gyre_alloc(a->context, (size_t)p->ranks + 1, sizeof(uint32_t));
        if (a->chunks[side] == NULL || a->chunk_first[side] == NULL)
            return no_memory(error);
        uint32_t at = 0;
        for (uint32_t r = 0; r < p->ranks; r++) {
            uint32_t rows = plan->owned[side][r];
            a->chunk_first[side][r] = at;
            for (uint32_t i = 0; i < plan->rows[rows].count; i++)
                a->chunks[side][at++] =
                    p->chunks[side][gyre_plan_row_list(plan, rows)[i]];
        }
        a->chunk_first[side][p->ranks] = at;
    }
    return GYRE_OK;
}

static gyre_status open_executors(gyre_attention *a,
                                  const gyre_attention_options *options,
                                  uint32_t pass, gyre_error *error)
{
    const gyre_plan *plan = a->plans[pass];
    if (plan == NULL)
        return GYRE_OK;
    gyre_executor_options with = gyre_attention_executor_options(options, plan);
    a->executors[pass] =
        gyre_alloc_zero(a->context, a->count, sizeof(*a->executors[pass]));
    a->moved[pass] = gyre_alloc_zero(a->context, a->count,
                                     (size_t)a->phases * a->classes *
                                         sizeof(gyre_link_count));
    if (a->executors[pass] == NULL || a->moved[pass] == NULL)
        return no_memory(error);
    for (uint32_t i = 0; i < a->count; i++) {
        gyre_endpoint *endpoint;
        if (pass == GYRE_PASS_BACKWARD)
            with.saved = a->executors[GYRE_PASS_FORWARD][i];
        gyre_status status =
            gyre_transport_endpoint(a->world, a->first + i, &endpoint, error);
        if (status == GYRE_OK)
            status = gyre_executor_open(plan, a->first + i, endpoint, &with,
                                        &a->executors[pass][i], error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

static gyre_status keep_slopes(gyre_attention *a,
                               gyre_attention_options *options,
                               gyre_error *error)
{
    if (options->slopes == NULL)
        return GYRE_OK;
    uint32_t heads = a->plans[0]->problem.heads;
    for (uint32_t h = 0; h < heads; h++)
        if (!isfinite(options->slopes[h]))
            return gyre_fail(error, GYRE_RANGE,
                             "attention options: slope of head %u is %g: it "
                             "must be finite",
                             h, (double)options->slopes[h]);
    a->slopes = gyre_alloc(a->context, heads, sizeof(float));
    if (a->slopes == NULL)
        return no_memory(error);
    memcpy(a->slopes, options->slopes, heads * sizeof(float));
    options->slopes = a->slopes;
    return GYRE_OK;
}

gyre_status gyre_attention_give_up(gyre_world *world, gyre_status status,
                                   const gyre_error *error)
{
    gyre_endpoint *endpoint;
    uint32_t first, count;
    gyre_transport_local(world, &first, &count);
    if (count < gyre_transport_ranks(world) &&
        gyre_transport_endpoint(world, first, &endpoint, NULL) == GYRE_OK)
        gyre_transport_abort(endpoint, status, error->text);
    return status;
}

/* Processes beside this one may be bound to cores of their own or not: each
 * takes no more than its part of all. */
static uint32_t default_workers(const gyre_world *world, uint32_t here)
{
    uint32_t own = gyre_team_cores() / here;
    uint32_t part = gyre_team_all_cores() / gyre_transport_host(world);
    uint32_t each = own < part ? own : part;
    each = each < GYRE_MAX_WORKERS ? each : GYRE_MAX_WORKERS;
    return each > 1 ? each : 1;
}

gyre_status gyre_attention_open(gyre_context *context, gyre_world *world,
                                const gyre_attention_options *given,
                                gyre_attention **out, gyre_error *error)
{
    gyre_attention_options options;
    gyre_error own; /* the others are told why, also where nobody asks here */
    if (error == NULL)
        error = &own;
    gyre_status status = gyre_attention_take(given, &options, error);
    if (status != GYRE_OK)
        return gyre_attention_give_up(world, status, error);
    gyre_attention *a = gyre_alloc_zero(context, 1, sizeof(*a));
    if (a == NULL)
        return gyre_attention_give_up(world, no_memory(error), error);
    a->context = context;
    a->world = world;
    gyre_transport_local(world, &a->first, &a->count);
    if (options.workers == 0)
        options.workers = default_workers(world, a->count);
    a->phases = gyre_transport_phases(world);
    a->classes = gyre_transport_classes(world);
    status = gyre_attention_plans(context, &options, a->made, a->plans, error);
    if (status == GYRE_OK)
        status = check_ranks(a, error);
    if (status == GYRE_OK)
        status = check_lanes(a, error);
    if (status == GYRE_OK)
        status = check_scale(a, options.scale, error);
    if (status == GYRE_OK)
        status = list_chunks(a, error);
    if (status == GYRE_OK)
        status = keep_slopes(a, &options, error);
    a->kept = gyre_alloc_zero(context, a->count, sizeof(*a->kept));
    if (status == GYRE_OK && a->kept == NULL)
        status = no_memory(error);
    for (uint32_t pass = 0; pass < 2 && status == GYRE_OK; pass++)
        status = open_executors(a, &options, pass, error);
    if (status == GYRE_OK)
        status = gyre_attention_same(a, &options, error);
    if (status != GYRE_OK) {
        gyre_attention_close(a);
        return gyre_attention_give_up(world, status, error);
    }
    *out = a;
    return GYRE_OK;
}

void gyre_attention_close(gyre_attention *a)
{
    if (a == NULL)
        return;
    gyre_context *context = a->context;
    const gyre_plan *plan = a->plans[0];
    for (int pass = GYRE_PASS_COUNT - 1; pass >= 0; pass--) {
        for (uint32_t i = 0; a->executors[pass] != NULL && i < a->count; i++)
            gyre_executor_close(a->executors[pass][i]);
        gyre_free(context, a->executors[pass], a->count,
                  sizeof(*a->executors[pass]));
        gyre_free(context, a->moved[pass], a->count,
                  (size_t)a->phases * a->classes * sizeof(gyre_link_count));
    }
    for (int side = 0; plan != NULL && side < GYRE_SIDE_COUNT; side++) {
        gyre_free(context, a->chunks[side], plan->problem.chunk_count[side],
                  sizeof(gyre_chunk));
        gyre_free(context, a->chunk_first[side],
                  (size_t)plan->problem.ranks + 1, sizeof(uint32_t));
    }
    if (plan != NULL)
        gyre_free(context, a->slopes, plan->problem.heads, sizeof(float));
    gyre_free(context, a->kept, a->count, sizeof(*a->kept));
    gyre_plan_free(a->made[GYRE_PASS_FORWARD]);
    gyre_plan_free(a->made[GYRE_PASS_BACKWARD]);
    gyre_free(context, a, 1, sizeof(*a));
}

/* ---- rows ------------------------------------------------------------------
 */

uint32_t gyre_attention_chunks(const gyre_attention *a, uint32_t rank,
                               uint32_t side, const gyre_chunk **out)
{
    if (side >= GYRE_SIDE_COUNT || rank >= a->plans[0]->problem.ranks)
        return 0;
    uint32_t first = a->chunk_first[side][rank];
    if (out != NULL)
        *out = a->chunks[side] + first;
    return a->chunk_first[side][rank + 1] - first;
}

uint64_t gyre_attention_tokens(const gyre_attention *a, uint32_t rank,
                               uint32_t side)
{
    const gyre_plan *plan = a->plans[0];
    if (side >= GYRE_SIDE_COUNT || rank >= plan->problem.ranks)
        return 0;
    return plan->rows[plan->owned[side][rank]].tokens;
}
