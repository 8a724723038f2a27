/* SPDX-License-Identifier: Apache-2.0 */
/* A plan from a request: plugin, settings, problem, grid, then every rank. */
#include "attention/make.h"

#include <string.h>

static void emit_one(void *user, uint32_t pass, uint32_t rank,
                     const gyre_plan_host *host, gyre_builder *builder)
{
    const gyre_plan_source *source = user;

    source->schedule->emit(source->values, pass, rank, host, builder);
}

/* A request may be of an earlier header: what it lacks reads as 0. */
static gyre_status take_request(const gyre_plan_request *given,
                                gyre_plan_request *out, gyre_error *error)
{
    if (given == NULL || given->size == 0)
        return gyre_fail(error, GYRE_INVALID,
                         "plan request: size is 0; set it to "
                         "sizeof(gyre_plan_request)");
    memset(out, 0, sizeof(*out));
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    if (out->schedule == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "plan request: no schedule is named");
    if (out->pass >= GYRE_PASS_COUNT || out->drop > GYRE_DROP_DEAD)
        return gyre_fail(error, GYRE_INVALID,
                         "plan request: pass is %u and drop %u; both are 0 or "
                         "1",
                         out->pass, out->drop);
    return GYRE_OK;
}

static gyre_problem problem_of(const gyre_plan_request *r)
{
    gyre_problem problem = {
        .size = sizeof(problem),
        .ranks = r->ranks,
        .batch = r->batch ? r->batch : 1,
        .heads = r->heads,
        .kv_heads = r->kv_heads ? r->kv_heads : r->heads,
        .head_dim = r->head_dim,
        .v_head_dim = r->v_head_dim ? r->v_head_dim : r->head_dim,
        .dtype = r->dtype,
        .wire_dtype = r->wire_dtype,
        .tokens = {r->tokens, r->kv_tokens ? r->kv_tokens : r->tokens},
        .node = r->node};

    return problem;
}

static gyre_status find_values(gyre_plan_source *source,
                               const gyre_plan_request *request,
                               gyre_error *error)
{
    const gyre_plugin *plugin = NULL;
    gyre_status status = gyre_plugin_find(source->context, GYRE_KIND_SCHEDULE,
                                          request->schedule, &plugin, error);

    if (status != GYRE_OK)
        return status;
    source->schedule = plugin->descriptor;
    for (uint32_t i = 0; i < plugin->parameter_count; i++)
        source->values[i] = plugin->parameters[i].initial;
    return gyre_parameter_values(plugin, request->settings,
                                 request->setting_count, source->values, error);
}

static gyre_status ask_schedule(const gyre_plan_source *source,
                                const char *name, gyre_error *error)
{
    char text[GYRE_ERROR_TEXT / 2] = "it gives no reason";

    if (source->schedule->check(source->values, &source->spec.problem, text,
                                sizeof(text)) == 0)
        return GYRE_OK;
    text[sizeof(text) - 1] = '\0';
    return gyre_fail(error, GYRE_INVALID, "schedule '%s': %s", name, text);
}

static gyre_status make_grid(gyre_plan_source *source, gyre_error *error)
{
    const gyre_problem *problem = &source->spec.problem;

    if (source->schedule->grid == NULL)
        return GYRE_OK;
    source->grid =
        gyre_alloc(source->context, problem->ranks, sizeof(*source->grid));
    if (source->grid == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %u ranks",
                         problem->ranks);
    for (uint32_t r = 0; r < problem->ranks; r++)
        source->schedule->grid(source->values, problem, r, &source->grid[r]);
    source->spec.grid = source->grid;
    return GYRE_OK;
}

static gyre_status take_plugin(gyre_plan_source *source,
                               const gyre_plan_request *request,
                               gyre_error *error)
{
    gyre_status status = find_values(source, request, error);

    if (status == GYRE_OK)
        status = ask_schedule(source, request->schedule, error);
    return status == GYRE_OK ? make_grid(source, error) : status;
}

static gyre_status take_emit(gyre_plan_source *source,
                             const gyre_plan_request *request,
                             gyre_error *error)
{
    if (request->setting_count > 0)
        return gyre_fail(error, GYRE_PARAMETER,
                         "schedule '%s' is the caller's and has no settings",
                         request->schedule);
    source->spec.emit = request->emit;
    source->spec.user = request->emit_user;
    return GYRE_OK;
}

gyre_status gyre_plan_source_open(gyre_context *context,
                                  const gyre_plan_request *request,
                                  gyre_plan_source *out, gyre_error *error)
{
    gyre_plan_request r;
    gyre_status status = take_request(request, &r, error);

    if (status != GYRE_OK)
        return status;
    *out = (gyre_plan_source){.context = context, .drop = r.drop};
    out->spec = (gyre_plan_spec){.name = r.schedule,
                                 .problem = problem_of(&r),
                                 .layout = r.layout,
                                 .mask = r.mask,
                                 .pass = r.pass,
                                 .emit = emit_one,
                                 .user = out};
    status = gyre_problem_complete(&out->spec.problem, error);
    if (status == GYRE_OK)
        status = r.emit != NULL ? take_emit(out, &r, error)
                                : take_plugin(out, &r, error);
    for (int side = 0; side < GYRE_SIDE_COUNT; side++) {
        out->spec.problem.chunks[side] = r.chunks[side];
        out->spec.problem.chunk_count[side] = r.chunk_count[side];
    }
    if (status != GYRE_OK)
        gyre_plan_source_close(out);
    return status;
}

void gyre_plan_source_close(gyre_plan_source *source)
{
    gyre_free(source->context, source->grid, source->spec.problem.ranks,
              sizeof(*source->grid));
    source->grid = NULL;
}

void gyre_plan_source_formula(const gyre_plan_source *source,
                              const gyre_problem *problem, uint32_t rank,
                              gyre_phase_bytes *out, uint32_t *count,
                              uint64_t *memory)
{
    const gyre_schedule *schedule = source->schedule;
    uint32_t pass = source->spec.pass;

    *count = schedule->bytes(source->values, problem, pass, rank, out);
    *memory = schedule->memory(source->values, problem, pass, rank);
}

gyre_status gyre_plan_make(gyre_context *context,
                           const gyre_plan_request *request, gyre_plan **out,
                           gyre_error *error)
{
    gyre_plan_source source;
    gyre_plan *plan = NULL;
    gyre_status status =
        gyre_plan_source_open(context, request, &source, error);

    if (status != GYRE_OK)
        return status;
    status = gyre_plan_create(context, &source.spec, &plan, error);
    gyre_plan_source_close(&source);
    if (status == GYRE_OK && source.drop == GYRE_DROP_DEAD)
        status = gyre_plan_prune(plan, error);
    if (status == GYRE_OK)
        *out = plan;
    else
        gyre_plan_free(plan);
    return status;
}

gyre_status gyre_plan_formula(gyre_context *context,
                              const gyre_plan_request *request, uint32_t rank,
                              gyre_phase_bytes *out, uint32_t *count,
                              uint64_t *memory, gyre_error *error)
{
    gyre_plan_source source;
    gyre_plan *plan = NULL;
    gyre_status status =
        gyre_plan_source_open(context, request, &source, error);

    if (status != GYRE_OK)
        return status;
    if (source.schedule == NULL)
        status = gyre_fail(error, GYRE_UNSUPPORTED,
                           "schedule '%s' is the caller's and has no closed "
                           "forms",
                           request->schedule);
    else if (rank >= source.spec.problem.ranks)
        status = gyre_fail(error, GYRE_RANGE, "there is no rank %u of %u", rank,
                           source.spec.problem.ranks);
    if (status == GYRE_OK)
        status = gyre_plan_begin(context, &source.spec, &plan, error);
    if (status == GYRE_OK)
        gyre_plan_source_formula(&source, &plan->problem, rank, out, count,
                                 memory);
    gyre_plan_free(plan);
    gyre_plan_source_close(&source);
    return status;
}
