/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of what a schedule would make, with its own closed forms. */
#include "attention/make.h"

#include <string.h>

typedef struct forms {
    const gyre_plan_source *source;
    const gyre_plan *plan; /* begun: its problem has the chunks */
} forms;

static uint32_t expect(void *user, uint32_t rank, gyre_phase_bytes *phases,
                       uint64_t *memory)
{
    const forms *f = user;
    uint32_t count = 0;

    gyre_plan_source_formula(f->source, &f->plan->problem, rank, phases, &count,
                             memory);
    return count;
}

/* The published forms hold for all that is sent; a pruned plan sends less. */
static gyre_status prove_pruned(gyre_context *context,
                                const gyre_plan_request *request,
                                const gyre_proof_options *options,
                                gyre_proof *out, gyre_error *error)
{
    gyre_plan *plan = NULL;
    gyre_status status = gyre_plan_make(context, request, &plan, error);

    if (status == GYRE_OK)
        status = gyre_plan_prove(plan, options, out, error);
    gyre_plan_free(plan);
    return status;
}

gyre_status gyre_plan_prove_request(gyre_context *context,
                                    const gyre_plan_request *request,
                                    const gyre_proof_options *options,
                                    gyre_proof *out, gyre_error *error)
{
    gyre_proof_options mine = {.size = sizeof(mine)};
    gyre_plan_source source;
    forms user = {.source = &source};
    gyre_plan *plan = NULL;

    if (options != NULL)
        memcpy(&mine, options,
               options->size < sizeof(mine) ? options->size : sizeof(mine));
    gyre_status status =
        gyre_plan_source_open(context, request, &source, error);
    if (status != GYRE_OK)
        return status;
    if (source.drop != GYRE_DROP_NONE) {
        gyre_plan_source_close(&source);
        return prove_pruned(context, request, &mine, out, error);
    }
    status = gyre_plan_begin(context, &source.spec, &plan, error);
    user.plan = plan;
    if (mine.expect == NULL && source.schedule != NULL) {
        mine.expect = expect;
        mine.user = &user;
    }
    if (status == GYRE_OK)
        status = gyre_plan_prove_spec(context, &source.spec, &mine, out, error);
    gyre_plan_free(plan);
    gyre_plan_source_close(&source);
    return status;
}
