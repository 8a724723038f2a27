/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ready queue of a rank.
 *
 *     unit:  waiting --> started --> ended
 *
 * A unit starts when it is first in its lane, the one before it has ended, and
 * so have those that gyre_plan_order names.  Whoever ends a unit pumps: it
 * begins all groups that can begin.  One thread pumps at a time, for the calls
 * of an endpoint must not meet; another that comes meanwhile, or the same one
 * from a callback within gyre_transport_begin, leaves a note (`again`).
 *
 * A buf changes its tenant when the first unit of the new one starts; by order,
 * nothing of the old one runs then.  Sums are filled there, under the lock, so
 * that no other unit of the new tenant starts before.
 */
#include "attention/executor.h"

#include "trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const gyre_plan_unit *unit_of(const gyre_executor *x, uint32_t unit)
{
    return &x->program->units[unit];
}

static bool is_ready(const gyre_executor *x, uint32_t unit)
{
    for (uint32_t i = x->order.first[unit]; i < x->order.first[unit + 1]; i++)
        if (!x->ended[x->order.deps[i]])
            return false;
    return true;
}

/* The unit of this lane that can start now, or unit_count. */
static uint32_t startable(const gyre_executor *x, uint32_t lane)
{
    uint32_t unit = x->lane_at[lane];
    bool can = x->status == GYRE_OK && !x->lane_busy[lane] &&
               unit < x->program->unit_count && is_ready(x, unit);
    return can ? unit : x->program->unit_count;
}

/* First to fail counts. */
static void fail(gyre_executor *x, uint32_t unit, gyre_status status,
                 const gyre_error *cause)
{
    if (x->status != GYRE_OK)
        return;
    const gyre_plan_unit *u = unit_of(x, unit);
    const gyre_plan_op *op = &x->program->ops[u->first];
    const char *text = cause != NULL ? cause->text : gyre_status_text(status);
    x->status = status;
    x->failed_at = gyre_now();
    if (u->group != GYRE_NO_VIEW)
        gyre_fail(&x->error, status,
                  "plan '%s', rank %u, op %u (group '%s' of %u): %s",
                  x->plan->name, x->rank, u->first,
                  x->plan->phases[x->program->groups[u->group].phase], u->count,
                  text);
    else
        gyre_fail(&x->error, status, "plan '%s', rank %u, op %u (%s): %s",
                  x->plan->name, x->rank, u->first, gyre_op_name(op->code),
                  text);
}

static void start(gyre_executor *x, uint32_t unit)
{
    const gyre_plan_unit *u = unit_of(x, unit);
    x->lane_busy[u->lane] = true;
    for (uint32_t i = 0; i < u->count; i++)
        gyre_executor_birth(x, &x->program->ops[u->first + i]);
}

static void end(gyre_executor *x, uint32_t unit)
{
    uint32_t lane = unit_of(x, unit)->lane;
    x->ended[unit] = true;
    x->ended_count++;
    x->lane_busy[lane] = false;
    x->lane_at[lane] = x->lane_next[unit];
}

/* ---- groups ---------------------------------------------------------------
 */

static void pump(gyre_executor *x);

static void done(void *user, gyre_status status, const gyre_error *error)
{
    gyre_flight *flight = user;
    gyre_executor *x = flight->executor;
    uint32_t phase = x->program->groups[unit_of(x, flight->unit)->group].phase;
    gyre_trace_end(x->context, GYRE_TRACE_LINK, x->phase_names[phase],
                   flight->begin, flight->bytes);
    gyre_flight_free(flight);
    pthread_mutex_lock(&x->lock);
    if (status == GYRE_OK)
        end(x, flight->unit);
    else
        fail(x, flight->unit, status, error);
    /* What waited for it computes while more groups begin. */
    pthread_cond_signal(&x->changed);
    pump(x);
    /* Last: the rank's thread may now return and free the executor. */
    x->pending--;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

/* With the lock, which it gives up meanwhile. */
static void begin_group(gyre_executor *x, uint32_t unit)
{
    uint32_t group = unit_of(x, unit)->group;
    uint32_t phase = x->program->groups[group].phase;
    gyre_flight *flight = &x->flights[group];
    gyre_error error;
    start(x, unit);
    x->next_group = group + 1;
    x->pending++;
    pthread_mutex_unlock(&x->lock);
    gyre_status status = gyre_flight_load(x, group, flight, &error);
    if (status == GYRE_OK) {
        flight->unit = unit;
        flight->begin = gyre_trace_begin(x->phase_names[phase]);
        status = gyre_transport_begin(
            x->endpoint, unit_of(x, unit)->lane, x->phases[phase],
            flight->messages, flight->message_count, done, flight, &error);
        if (status != GYRE_OK)
            gyre_flight_free(flight);
    }
    pthread_mutex_lock(&x->lock);
    if (status != GYRE_OK) {
        x->pending--;
        fail(x, unit, status, &error);
    }
}

/* With the lock: begin all groups that can. */
static void pump(gyre_executor *x)
{
    x->again = true;
    if (x->pumping)
        return;
    x->pumping = true;
    while (x->again) {
        x->again = false;
        for (uint32_t lane = 0; lane < GYRE_PLAN_LANES; lane++) {
            uint32_t unit = startable(x, lane);
            if (unit == x->program->unit_count ||
                unit_of(x, unit)->group == GYRE_NO_VIEW)
                continue;
            /* The proof of one lane is for program order. */
            if (x->one_queue && unit_of(x, unit)->group != x->next_group)
                continue;
            begin_group(x, unit);
            x->again = true;
        }
    }
    x->pumping = false;
    pthread_cond_signal(&x->changed);
}

/* ---- ops that compute
 * -------------------------------------------------------- */

/* Delays of tests: the same for a seed, rank and unit. */
static void nap(const gyre_executor *x, uint32_t unit)
{
    if (x->options.delay == 0)
        return;
    uint64_t seed = x->options.delay_seed;
    uint32_t draw =
        gyre_hash((uint32_t)seed ^ x->rank, (uint32_t)(seed >> 32), unit);
    uint64_t ns =
        (uint64_t)((double)draw / 4294967296.0 * (double)x->options.delay);
    struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&time, NULL);
}

/* Instead of a block: sleep until it would have been computed. */
static void pretend(const gyre_executor *x, uint32_t unit,
                    const gyre_plan_op *op)
{
    uint64_t until = gyre_now();
    gyre_plan_step step;
    gyre_plan_step_fill(x->plan, x->rank, unit,
                        (uint32_t)(op - x->program->ops), &step);
    until += (uint64_t)(gyre_plan_step_flops(x->plan, &step) /
                        x->options.flops * 1e9);
    struct timespec time = {(time_t)(until / 1000000000),
                            (long)(until % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) ==
           EINTR)
        ;
}

static gyre_status run_op(gyre_executor *x, uint32_t unit,
                          const gyre_plan_op *op, gyre_error *error)
{
    bool block = op->code == GYRE_OP_ATT || op->code == GYRE_OP_GRD;
    if (!block || x->options.flops <= 0)
        return gyre_executor_step(x, op, error);
    pretend(x, unit, op);
    return GYRE_OK;
}

/* The earliest op that can start, or unit_count. */
static uint32_t next_op(const gyre_executor *x)
{
    uint32_t best = x->program->unit_count;
    for (uint32_t lane = 0; lane < GYRE_PLAN_LANES; lane++) {
        uint32_t unit = startable(x, lane);
        if (unit < best && unit_of(x, unit)->group == GYRE_NO_VIEW)
            best = unit;
    }
    return best;
}

/* With the lock, which it gives up meanwhile. */
static void compute(gyre_executor *x, uint32_t unit)
{
    const gyre_plan_op *op = &x->program->ops[unit_of(x, unit)->first];
    gyre_error error;
    start(x, unit);
    pthread_mutex_unlock(&x->lock);
    nap(x, unit);
    uint64_t begin = gyre_trace_begin(x->op_names[op->code]);
    gyre_status status = run_op(x, unit, op, &error);
    gyre_trace_end(x->context, GYRE_TRACE_COMPUTE, x->op_names[op->code], begin,
                   unit);
    pthread_mutex_lock(&x->lock);
    if (status == GYRE_OK)
        end(x, unit);
    else
        fail(x, unit, status, &error);
}

static void restart(gyre_executor *x)
{
    memset(x->ended, 0, x->program->unit_count * sizeof(*x->ended));
    memcpy(x->lane_at, x->lane_first, sizeof(x->lane_at));
    memset(x->lane_busy, 0, sizeof(x->lane_busy));
    for (uint32_t i = 0; i < x->program->buf_count; i++)
        x->tenants[i] = GYRE_NO_VIEW;
    x->ended_count = 0;
    x->next_group = 0;
    x->status = GYRE_OK;
}

gyre_status gyre_executor_run(gyre_executor *x, gyre_error *error)
{
    gyre_fp saved = gyre_fp_pin();
    uint32_t units = x->program->unit_count;
    pthread_mutex_lock(&x->lock);
    restart(x);
    pump(x);
    while (x->status == GYRE_OK && x->ended_count < units) {
        uint32_t unit = next_op(x);
        if (unit < units) {
            compute(x, unit);
            pump(x);
        } else {
            pthread_cond_wait(&x->changed, &x->lock);
        }
    }
    if (x->status != GYRE_OK) {
        pthread_mutex_unlock(&x->lock);
        gyre_transport_abort(x->endpoint, x->status, x->error.text);
        pthread_mutex_lock(&x->lock);
    }
    while (x->pending > 0 || x->pumping)
        pthread_cond_wait(&x->changed, &x->lock);
    gyre_status status = x->status;
    pthread_mutex_unlock(&x->lock);
    gyre_fp_restore(saved);
    return status == GYRE_OK ? GYRE_OK
                             : gyre_fail(error, status, "%s", x->error.text);
}

/* ---- open, close ----------------------------------------------------------
 */

static void link_lanes(gyre_executor *x)
{
    uint32_t units = x->program->unit_count;
    for (uint32_t lane = 0; lane < GYRE_PLAN_LANES; lane++)
        x->lane_first[lane] = units;
    for (uint32_t u = units; u-- > 0;) {
        uint32_t lane = unit_of(x, u)->lane;
        x->lane_next[u] = x->lane_first[lane];
        x->lane_first[lane] = u;
    }
}

/* Phases of the plan by their number in the world. */
static gyre_status find_phases(gyre_executor *x, gyre_error *error)
{
    const gyre_world *world = gyre_transport_world(x->endpoint);
    uint32_t known = gyre_transport_phases(world);
    for (uint32_t i = 0; i < x->plan->phase_count; i++) {
        uint32_t at = 0;
        while (at < known && strcmp(gyre_transport_phase_name(world, at),
                                    x->plan->phases[i]) != 0)
            at++;
        if (at == known)
            return gyre_fail(error, GYRE_INVALID,
                             "plan '%s' counts bytes under '%s', which is no "
                             "phase of the world: name it when the world is "
                             "opened",
                             x->plan->name, x->plan->phases[i]);
        x->phases[i] = (uint8_t)at;
    }
    return GYRE_OK;
}

static void name_spans(gyre_executor *x)
{
    char text[64];
    for (uint32_t i = GYRE_OP_ATT; i < GYRE_OP_COUNT; i++) {
        snprintf(text, sizeof(text), "attention %s", gyre_op_name(i));
        x->op_names[i] = gyre_trace_intern(x->context, text);
    }
    for (uint32_t i = 0; i < x->plan->phase_count; i++) {
        snprintf(text, sizeof(text), "attention %s", x->plan->phases[i]);
        x->phase_names[i] = gyre_trace_intern(x->context, text);
    }
}

gyre_status gyre_queue_open(gyre_executor *x, gyre_error *error)
{
    const gyre_plan_program *p = x->program;
    x->one_queue = gyre_transport_one_queue(gyre_transport_world(x->endpoint));
    gyre_status status = find_phases(x, error);
    if (status == GYRE_OK)
        status = gyre_plan_order_make(x->plan, x->rank, &x->order, error);
    if (status != GYRE_OK)
        return status;
    if (x->order.clash_unit != GYRE_NO_VIEW)
        return gyre_fail(error, GYRE_PLAN,
                         "plan '%s', rank %u: unit %u touches one place twice",
                         x->plan->name, x->rank, x->order.clash_unit);
    size_t units = (size_t)p->unit_count + 1;
    x->ended = gyre_alloc_zero(x->context, units, sizeof(*x->ended));
    x->lane_next = gyre_alloc(x->context, units, sizeof(*x->lane_next));
    x->flights = gyre_alloc_zero(x->context, (size_t)p->group_count + 1,
                                 sizeof(*x->flights));
    if (x->ended == NULL || x->lane_next == NULL || x->flights == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "plan '%s', rank %u: no memory for its queue",
                         x->plan->name, x->rank);
    link_lanes(x);
    name_spans(x);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    x->queue_open = true;
    return GYRE_OK;
}

void gyre_queue_close(gyre_executor *x)
{
    const gyre_plan_program *p = x->program;
    size_t units = (size_t)p->unit_count + 1;
    if (x->queue_open) {
        pthread_mutex_destroy(&x->lock);
        pthread_cond_destroy(&x->changed);
    }
    if (x->order.context != NULL)
        gyre_plan_order_free(&x->order);
    gyre_free(x->context, x->ended, units, sizeof(*x->ended));
    gyre_free(x->context, x->lane_next, units, sizeof(*x->lane_next));
    gyre_free(x->context, x->flights, (size_t)p->group_count + 1,
              sizeof(*x->flights));
}
