/* SPDX-License-Identifier: Apache-2.0 */
/* One pass: bind, a thread per rank that is here, the ledger, LSE. */
#include "attention/face.h"

#include "trace/trace.h"

#include <stdio.h>
#include <string.h>

typedef struct rank_run {
    gyre_executor *executor;
    gyre_status status;
    gyre_error error;
} rank_run;

static void *run_rank(void *argument)
{
    rank_run *run = argument;
    char name[32];
    snprintf(name, sizeof(name), "attention rank %u", run->executor->rank);
    gyre_trace_name_thread(run->executor->context, name);
    run->status = gyre_executor_run(run->executor, &run->error);
    return NULL;
}

/* The last rank runs here, for a world of one needs no thread. */
static void run_all(gyre_attention *a, rank_run *runs, pthread_t *threads)
{
    uint32_t started = 0, last = a->count - 1;
    while (started < last) {
        int err =
            pthread_create(&threads[started], NULL, run_rank, &runs[started]);
        if (err != 0) {
            runs[last].status = gyre_fail_errno(
                &runs[last].error, GYRE_SYSTEM, err,
                "no thread for attention rank %u", a->first + started);
            gyre_transport_abort(runs[started].executor->endpoint,
                                 runs[last].status, runs[last].error.text);
            break;
        }
        started++;
    }
    if (started == last) {
        runs[last].status =
            gyre_executor_run(runs[last].executor, &runs[last].error);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* The one that failed first: the others only heard of it. */
static gyre_status first_failure(const gyre_attention *a, const rank_run *runs,
                                 gyre_error *error)
{
    const rank_run *first = NULL;
    for (uint32_t i = 0; i < a->count; i++)
        if (runs[i].status != GYRE_OK &&
            (first == NULL ||
             runs[i].executor->failed_at < first->executor->failed_at))
            first = &runs[i];
    return first == NULL
               ? GYRE_OK
               : gyre_fail(error, first->status, "%s", first->error.text);
}

/* ---- ledger ----------------------------------------------------------------
 */

/* moved = (counts now) - moved, or moved = - counts. */
static void count_moved(gyre_attention *a, uint32_t pass, bool begin)
{
    gyre_link_count *at = a->moved[pass];
    for (uint32_t i = 0; i < a->count; i++) {
        const gyre_endpoint *endpoint = a->executors[pass][i]->endpoint;
        for (uint32_t phase = 0; phase < a->phases; phase++)
            for (uint32_t c = 0; c < a->classes; c++, at++) {
                gyre_link_count now = gyre_transport_count(endpoint, phase, c);
                if (begin) {
                    *at = now;
                    continue;
                }
                at->sent = now.sent - at->sent;
                at->received = now.received - at->received;
                at->puts = now.puts - at->puts;
                at->gets = now.gets - at->gets;
            }
    }
}

/* ---- one pass
 * ---------------------------------------------------------------- */

/* Where the plan leaves LSE of all rows and heads of the rank, or NULL. */
static const gyre_part *home_lse(const gyre_executor *x)
{
    const gyre_plan *plan = x->plan;
    for (uint32_t i = 0; i < x->program->slot_count; i++) {
        const gyre_plan_slot *s = &x->program->slots[i];
        if (s->kind == GYRE_VALUE_ST && s->flags & GYRE_SLOT_SAVED &&
            s->rows == plan->owned[GYRE_SIDE_Q][x->rank] && s->h0 == 0 &&
            s->h1 == plan->problem.heads)
            return &x->places[i].part[0];
    }
    return NULL;
}

static void give_lse(const gyre_executor *x, const gyre_attention_tensor *to)
{
    const gyre_problem *p = &x->plan->problem;
    const gyre_part *from = home_lse(x);
    gyre_run_of_rows all = {
        0, 0, x->plan->rows[x->plan->owned[GYRE_SIDE_Q][x->rank]].tokens};
    gyre_reach reach = {
        .batch = p->batch, .h1 = p->heads, .dim = 1, .rows = &all, .count = 1};
    gyre_plane out = {.at = to->at,
                      .batch = to->batch * p->stat_bytes,
                      .head = to->head * p->stat_bytes,
                      .row = to->token * p->stat_bytes};
    gyre_convert(&reach, from->dtype, &from->plane, from->dtype, &out);
}

static gyre_status bind_all(gyre_attention *a, uint32_t pass,
                            const gyre_attention_tensors *tensors,
                            gyre_error *error)
{
    gyre_status status = GYRE_OK;
    for (uint32_t i = 0; i < a->count && status == GYRE_OK; i++) {
        gyre_executor *x = a->executors[pass][i];
        gyre_attention_tensors bound = tensors[i];
        if (pass == GYRE_PASS_BACKWARD) {
            bound.q = a->kept[i].q;
            bound.k = a->kept[i].k;
            bound.v = a->kept[i].v;
            bound.o = a->kept[i].o;
        }
        status = gyre_executor_bind(x, &bound, error);
        if (status == GYRE_OK && pass == GYRE_PASS_FORWARD &&
            bound.lse.at != NULL && home_lse(x) == NULL)
            status = gyre_fail(error, GYRE_UNSUPPORTED,
                               "plan '%s' does not leave the LSE of a rank's "
                               "rows at that rank: do not ask for it",
                               x->plan->name);
    }
    /* Other processes are about to run. */
    if (status != GYRE_OK && a->count < gyre_transport_ranks(a->world))
        gyre_transport_abort(a->executors[pass][0]->endpoint, status,
                             error != NULL ? error->text : "bad tensors");
    return status;
}

static gyre_status run_pass(gyre_attention *a, uint32_t pass,
                            const gyre_attention_tensors *tensors,
                            gyre_error *error)
{
    gyre_error local;
    if (error == NULL)
        error = &local;
    gyre_status status = gyre_transport_check(a->world, error);
    if (status == GYRE_OK)
        status = bind_all(a, pass, tensors, error);
    if (status != GYRE_OK)
        return status;
    rank_run *runs = gyre_alloc_zero(a->context, a->count, sizeof(*runs));
    pthread_t *threads = gyre_alloc(a->context, a->count, sizeof(*threads));
    if (runs == NULL || threads == NULL) {
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for %u threads",
                           a->count);
        gyre_transport_abort(a->executors[pass][0]->endpoint, status,
                             error->text);
    } else {
        for (uint32_t i = 0; i < a->count; i++)
            runs[i].executor = a->executors[pass][i];
        count_moved(a, pass, true);
        run_all(a, runs, threads);
        count_moved(a, pass, false);
        a->ran[pass] = true;
        status = first_failure(a, runs, error);
    }
    gyre_free(a->context, runs, a->count, sizeof(*runs));
    gyre_free(a->context, threads, a->count, sizeof(*threads));
    return status;
}

gyre_status gyre_attention_forward(gyre_attention *a,
                                   const gyre_attention_tensors *tensors,
                                   gyre_error *error)
{
    a->kept_forward = false;
    gyre_status status = run_pass(a, GYRE_PASS_FORWARD, tensors, error);
    if (status != GYRE_OK)
        return status;
    for (uint32_t i = 0; i < a->count; i++) {
        a->kept[i] = tensors[i];
        if (tensors[i].lse.at != NULL)
            give_lse(a->executors[GYRE_PASS_FORWARD][i], &tensors[i].lse);
    }
    a->kept_forward = true;
    return GYRE_OK;
}

gyre_status gyre_attention_backward(gyre_attention *a,
                                    const gyre_attention_tensors *tensors,
                                    gyre_error *error)
{
    if (a->plans[GYRE_PASS_BACKWARD] == NULL)
        return gyre_fail(error, GYRE_STATE,
                         "plan '%s' was opened for the forward pass alone",
                         a->plans[0]->name);
    if (!a->kept_forward)
        return gyre_fail(error, GYRE_STATE,
                         "backward of plan '%s' without a forward before: it "
                         "uses what forward kept",
                         a->plans[0]->name);
    return run_pass(a, GYRE_PASS_BACKWARD, tensors, error);
}
