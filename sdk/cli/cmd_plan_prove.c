/* SPDX-License-Identifier: Apache-2.0 */
/* gyre plan prove: forward, backward, or a file. */
#include "config.h"

#include "cmd_plan.h"

#include <string.h>

typedef struct verdict {
    gyre_proof proof; /* of the pass that fails, or the last */
    uint32_t pass;
    uint64_t ops, peak, sent, unused, dead;
    uint32_t cast_depth, one_lane, quotient;
    double seconds, balance;
    json_t *passes;
} verdict;

static json_t *place(uint32_t id)
{
    return id == GYRE_NO_VIEW ? json_null() : json_integer(id);
}

static json_t *cell_object(const gyre_proof *p)
{
    if (p->q_chunk == GYRE_NO_VIEW && p->kv_chunk == GYRE_NO_VIEW)
        return json_null();
    return json_pack("{s:o,s:o,s:o}", "q", place(p->q_chunk), "kv",
                     place(p->kv_chunk), "head", place(p->head));
}

static void set_failure(json_t *out, const gyre_proof *p)
{
    json_object_set_new(out, "rank", place(p->rank));
    json_object_set_new(out, "op", place(p->op));
    json_object_set_new(out, "cell", cell_object(p));
    json_object_set_new(out, "reason", json_string(p->reason));
}

static json_t *proof_object(const gyre_proof *p, double seconds)
{
    json_t *out = json_pack(
        "{s:b,s:I,s:I,s:i,s:f,s:b,s:b,s:I,s:I,s:I}", "ok", p->ok, "ops",
        (json_int_t)p->ops, "peak_bytes", (json_int_t)p->peak_bytes,
        "cast_depth", (int)p->cast_depth, "seconds", seconds, "quotient",
        p->quotient, "one_lane", p->one_lane, "sent_bytes",
        (json_int_t)p->sent_bytes, "unused_bytes", (json_int_t)p->unused_bytes,
        "dead_bytes", (json_int_t)p->dead_bytes);

    if (p->ok) {
        json_object_set_new(out, "balance", json_real(p->balance));
        json_object_set_new(out, "work", json_real(p->work));
        json_object_set_new(out, "critical_path", json_real(p->critical_path));
    } else {
        set_failure(out, p);
    }
    return out;
}

static void add(verdict *v, const gyre_proof *p, uint32_t pass, double seconds)
{
    v->proof = *p;
    v->pass = pass;
    v->ops += p->ops;
    v->peak = p->peak_bytes > v->peak ? p->peak_bytes : v->peak;
    v->sent += p->sent_bytes;
    v->unused += p->unused_bytes;
    v->dead += p->dead_bytes;
    v->cast_depth =
        p->cast_depth > v->cast_depth ? p->cast_depth : v->cast_depth;
    v->one_lane &= p->one_lane;
    v->quotient &= p->quotient;
    v->balance = p->balance > v->balance ? p->balance : v->balance;
    v->seconds += seconds;
    json_object_set_new(v->passes, plan_pass_name(pass),
                        proof_object(p, seconds));
}

static int report_json(const plan_ask *ask, const verdict *v)
{
    json_t *out = json_pack(
        "{s:s,s:b,s:I,s:I,s:i,s:f,s:b,s:b,s:O}", "schedule", ask->cli.argv[0],
        "ok", v->proof.ok, "ops", (json_int_t)v->ops, "peak_bytes",
        (json_int_t)v->peak, "cast_depth", (int)v->cast_depth, "seconds",
        v->seconds, "quotient", v->quotient, "one_lane", v->one_lane, "passes",
        v->passes);

    if (!v->proof.ok) {
        json_object_set_new(out, "pass", json_string(plan_pass_name(v->pass)));
        set_failure(out, &v->proof);
    }
    int code = cli_print_json(out);
    return code != CLI_GOOD ? code : v->proof.ok ? CLI_GOOD : CLI_WRONG;
}

static void print_place(const char *name, uint32_t id)
{
    if (id != GYRE_NO_VIEW)
        printf(", %s %u", name, id);
}

static int report_text(const verdict *v)
{
    const gyre_proof *p = &v->proof;
    char bytes[16];

    if (p->ok) {
        printf(
            "right: %llu ops in %.3f s%s, largest rank %s, cast depth %u%s\n",
            (unsigned long long)v->ops, v->seconds,
            v->quotient ? " (one rank for all)" : "",
            cli_bytes((double)v->peak, bytes), v->cast_depth,
            v->one_lane ? "" : ", needs more than one communication lane");
        printf("sent %s", cli_bytes((double)v->sent, bytes));
        printf("; of no use to the receiver %s",
               cli_bytes((double)v->unused, bytes));
        printf(", to anyone %s; work is uneven by %.3f\n",
               cli_bytes((double)v->dead, bytes), v->balance);
        return CLI_GOOD;
    }
    printf("wrong: %s", plan_pass_name(v->pass));
    print_place("rank", p->rank);
    print_place("op", p->op);
    print_place("Q chunk", p->q_chunk);
    print_place("KV chunk", p->kv_chunk);
    print_place("head", p->head);
    printf(": %s\n", p->reason);
    return CLI_WRONG;
}

/* ---- what is proven ------------------------------------------------------ */

typedef struct formula {
    plan_ask *ask;
    gyre_status status;
    gyre_error error;
} formula;

/* The schedule's own closed forms. */
static uint32_t expect(void *user, uint32_t rank, gyre_phase_bytes *phases,
                       uint64_t *memory)
{
    formula *f = user;
    uint32_t count = 0;

    *memory = UINT64_MAX;
    if (f->status == GYRE_OK)
        f->status = gyre_plan_formula(f->ask->context, &f->ask->request, rank,
                                      phases, &count, memory, &f->error);
    return count;
}

static int prove_one(plan_ask *ask, const gyre_plan *plan,
                     const gyre_plan *forward, double start, verdict *v)
{
    gyre_error error = {0};
    gyre_proof proof = {.size = sizeof(proof)};
    formula f = {.ask = ask};
    gyre_proof_options options = {.size = sizeof(options), .forward = forward};
    bool file = plan_is_file(ask->cli.argv[0]);

    if (!file && ask->request.drop == GYRE_DROP_NONE) {
        options.expect = expect;
        options.user = &f;
    }
    gyre_status status = gyre_plan_prove(plan, &options, &proof, &error);
    if (status == GYRE_OK && f.status != GYRE_OK)
        return cli_fail_status(&ask->cli, f.status, &f.error);
    if (status != GYRE_OK)
        return cli_fail_status(&ask->cli, status, &error);
    add(v, &proof, gyre_plan_pass(plan), plan_now() - start);
    return -1;
}

static int prove_all(plan_ask *ask, verdict *v)
{
    const char *name = ask->cli.argv[0];
    gyre_plan *plans[GYRE_PASS_COUNT] = {NULL, NULL};
    uint32_t first = ask->both ? 0 : ask->request.pass;
    uint32_t last = ask->both ? GYRE_PASS_BACKWARD : ask->request.pass;
    bool file = plan_is_file(name);
    int code = -1;

    v->proof.ok = 1;
    for (uint32_t pass = file ? last : first;
         pass <= last && code == -1 && v->proof.ok; pass++) {
        double start = plan_now();

        code = plan_get(ask, name, file ? GYRE_PASS_COUNT : pass, &plans[pass]);
        if (code == -1)
            code = prove_one(ask, plans[pass], pass > 0 ? plans[0] : NULL,
                             start, v);
    }
    gyre_plan_free(plans[0]);
    gyre_plan_free(plans[1]);
    return code;
}

int plan_prove(int argc, char **argv)
{
    static const cli_usage usage = {
        "NAME|FILE",
        "Show that a plan is right under every order that it allows.", NULL, 1,
        1};
    plan_ask ask = {0};
    int code = plan_parse(&ask, &usage, NULL, argc, argv);

    if (code != -1)
        return code;
    verdict v = {.one_lane = 1, .quotient = 1, .passes = json_object()};
    code = prove_all(&ask, &v);
    if (code == -1)
        code = ask.cli.json ? report_json(&ask, &v) : report_text(&v);
    json_decref(v.passes);
    plan_close(&ask);
    return code;
}
