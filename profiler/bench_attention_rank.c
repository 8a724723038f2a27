/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the schedules that `gyre bench attention` holds against each
 * other.  All ranks make the same calls in the same order; nothing holds them
 * together between steps but the transfers themselves, as in training.  The
 * first step of a schedule is not measured: ranks come to it at any time.
 */
#include "config.h"

#include "bench_attention.h"

#include <gyre/attention.h>
#include <gyre/trace.h>

#include <stdlib.h>
#include <string.h>

enum { TRACE_RECORDS = 1 << 14 };

typedef struct rank_state {
    const attention_options *opt;
    gyre_context *context;
    gyre_world *world;
    uint32_t rank;
    json_t *out; /* by schedule */
} rank_state;

/* ---- one pass ---------------------------------------------------------- */

typedef struct pass_time {
    uint64_t compute;  /* ns in ops */
    uint64_t transfer; /* ns with at least one transfer on its way */
    uint64_t end;      /* of the transfers so far */
} pass_time;

/* Spans come by begin. */
static int add_span(void *user, const gyre_span *span)
{
    pass_time *t = user;

    if (span->category == GYRE_TRACE_COMPUTE) {
        t->compute += span->end - span->begin;
    } else if (span->category == GYRE_TRACE_LINK && span->end > t->end) {
        t->transfer +=
            span->end - (span->begin > t->end ? span->begin : t->end);
        t->end = span->end;
    }
    return 0;
}

typedef struct pass_bytes {
    uint64_t sent, received, planned_sent, planned_received;
    uint64_t far; /* of what was sent: to other nodes */
} pass_bytes;

static int add_link(void *user, const gyre_attention_link *link)
{
    pass_bytes *b = user;

    b->sent += link->sent;
    if (strcmp(link->klass, "outer") == 0)
        b->far += link->sent;
    b->received += link->received;
    b->planned_sent += link->planned_sent;
    b->planned_received += link->planned_received;
    return 0;
}

static gyre_status run_pass(rank_state *s, gyre_attention *attention,
                            uint32_t pass,
                            const gyre_attention_tensors *tensors, json_t *out,
                            gyre_error *error)
{
    pass_time t = {0};
    pass_bytes b = {0};

    gyre_trace_clear(s->context);
    uint64_t begin = gyre_trace_clock();
    gyre_status status =
        pass == GYRE_PASS_FORWARD
            ? gyre_attention_forward(attention, tensors, error)
            : gyre_attention_backward(attention, tensors, error);
    uint64_t taken = gyre_trace_clock() - begin;
    if (status == GYRE_OK)
        status = gyre_trace_each(s->context, add_span, &t, error);
    if (status == GYRE_OK)
        status = gyre_attention_ledger(attention, pass, s->rank, add_link, &b,
                                       error);
    if (status != GYRE_OK)
        return status;
    json_array_append_new(
        out,
        json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "seconds",
                  (double)taken * 1e-9, "compute", (double)t.compute * 1e-9,
                  "communication", (double)t.transfer * 1e-9, "sent",
                  (json_int_t)b.sent, "far", (json_int_t)b.far, "received",
                  (json_int_t)b.received, "planned_sent",
                  (json_int_t)b.planned_sent, "planned_received",
                  (json_int_t)b.planned_received, "lost_records",
                  (json_int_t)gyre_trace_dropped(s->context)));
    return GYRE_OK;
}

/* ---- one schedule ------------------------------------------------------ */

/* All tensors in one block of zeros, dense by head, so that rows of a head
 * travel as one piece. */
static float *take_tensors(const rank_state *s, const gyre_attention *attention,
                           gyre_attention_tensors *out)
{
    const attention_options *opt = s->opt;
    uint64_t kv_heads = opt->kv_heads > 0 ? opt->kv_heads : opt->heads;
    gyre_attention_tensor *list[] = {&out->q, &out->o, &out->d_o, &out->d_q,
                                     &out->k, &out->v, &out->d_k, &out->d_v};
    uint64_t rows[GYRE_SIDE_COUNT], elements[GYRE_SIDE_COUNT];

    for (uint32_t side = 0; side < GYRE_SIDE_COUNT; side++) {
        rows[side] = gyre_attention_tokens(attention, s->rank, side);
        elements[side] = rows[side] * opt->head_dim *
                         (side == GYRE_SIDE_Q ? opt->heads : kv_heads);
    }
    /* One more, for a rank without tokens. */
    float *all = calloc(4 * (elements[0] + elements[1]) + 1, sizeof(*all));
    float *at = all;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < sizeof(list) / sizeof(*list) && all != NULL; i++) {
        uint32_t side = i < 4 ? GYRE_SIDE_Q : GYRE_SIDE_KV;

        *list[i] = (gyre_attention_tensor){.at = at,
                                           .token = opt->head_dim,
                                           .head = rows[side] * opt->head_dim};
        at += elements[side];
    }
    return all;
}

static int run_steps(rank_state *s, const char *name, gyre_attention *attention)
{
    gyre_attention_tensors tensors;
    float *memory = take_tensors(s, attention, &tensors);
    json_t *steps = json_array();
    gyre_error error = {0};
    gyre_status status = GYRE_OK;

    if (memory == NULL) {
        json_decref(steps);
        return cli_fail(s->opt->cli, CLI_FAULT, "no memory for tensors");
    }
    for (uint64_t i = 0; i <= s->opt->steps && status == GYRE_OK; i++) {
        json_t *passes = json_array();

        for (uint32_t pass = 0; pass < GYRE_PASS_COUNT && status == GYRE_OK;
             pass++)
            status = run_pass(s, attention, pass, &tensors, passes, &error);
        if (i > 0)
            json_array_append(steps, passes);
        json_decref(passes);
    }
    free(memory);
    json_object_set_new(s->out, name, steps);
    return status == GYRE_OK ? CLI_GOOD
                             : cli_fail_status(s->opt->cli, status, &error);
}

static int run_schedule(rank_state *s, const char *name)
{
    bench_attention_problem problem;
    gyre_attention_options options = {.size = sizeof(options),
                                      .request = &problem.request,
                                      .kernel = "f32",
                                      .flops = s->opt->flops * 1e9};
    gyre_attention *attention = NULL;
    gyre_error error = {0};

    gyre_status status =
        bench_attention_request(s->opt, s->context, name, &problem, &error);
    if (status == GYRE_OK)
        status = gyre_attention_open(s->context, s->world, &options, &attention,
                                     &error);
    if (status != GYRE_OK)
        return cli_fail_status(s->opt->cli, status, &error);
    int code = run_steps(s, name, attention);
    gyre_attention_close(attention);
    return code;
}

/* ---- the rank ---------------------------------------------------------- */

static int run_all(rank_state *s)
{
    int code = CLI_GOOD;
    const char *at = s->opt->only;

    while (code == CLI_GOOD && *at != '\0') {
        char name[BENCH_ATTENTION_NAME];
        size_t n = strcspn(at, ",");

        snprintf(name, sizeof(name), "%.*s", (int)n, at);
        code = run_schedule(s, name);
        at += n + (at[n] == ',');
    }
    return code;
}

static int write_file(const rank_state *s)
{
    size_t room = strlen(s->opt->into) + 32;
    char *path = malloc(room);
    int code = CLI_GOOD;

    if (path == NULL)
        return cli_fail(s->opt->cli, CLI_FAULT, "no memory");
    snprintf(path, room, "%s/%u.json", s->opt->into, s->rank);
    if (json_dump_file(s->out, path, JSON_COMPACT) != 0)
        code = cli_fail(s->opt->cli, CLI_FAULT, "%s cannot be written", path);
    free(path);
    return code;
}

int bench_attention_rank(const attention_options *opt)
{
    rank_state s = {.opt = opt, .out = json_object()};
    gyre_context_options more = {.size = sizeof(more),
                                 .trace_records = TRACE_RECORDS};
    gyre_world_request request = {.size = sizeof(request),
                                  .backend = "mpi",
                                  .ranks = (uint32_t)opt->ranks,
                                  .node = (uint32_t)opt->slots,
                                  .timeout = UINT64_C(120) * 1000000000};
    gyre_error error = {0};
    uint32_t count;
    int code = cli_context(opt->cli, &more, &s.context);

    if (code >= 0)
        goto drop_out;
    gyre_status status = gyre_world_open(s.context, &request, &s.world, &error);
    if (status != GYRE_OK) {
        code = cli_fail_status(opt->cli, status, &error);
        goto drop_context;
    }
    gyre_world_size(s.world, &s.rank, &count);
    code = run_all(&s);
    if (code == CLI_GOOD)
        code = write_file(&s);
    gyre_world_close(s.world);
drop_context:
    gyre_context_destroy(s.context);
drop_out:
    json_decref(s.out);
    return code;
}
