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

static int report_json(plan_ask *ask, const verdict *v)
{
    json_t *out =
        json_pack("{s:s,s:b,s:I,s:I,s:i,s:f,s:b,s:b,s:O}", "schedule",
                  plan_shown(ask), "ok", v->proof.ok, "ops", (json_int_t)v->ops,
                  "peak_bytes", (json_int_t)v->peak, "cast_depth",
                  (int)v->cast_depth, "seconds", v->seconds, "quotient",
                  v->quotient, "one_lane", v->one_lane, "passes", v->passes);

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
        if (v->quotient) {
            printf("; --expanded tells what of it is of use\n");
            return CLI_GOOD;
        }
        printf("; of no use to the receiver %s",
               cli_bytes((double)v->unused, bytes));
        printf(", to anyone %s\nlargest work is %.3f of the mean\n",
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

/* Up to this every rank is proven; beyond it one for all where they are alike,
 * and a backward plan is not held against its forward plan: keeping one of all
 * ranks takes longer than the proof. */
enum { HELD_RANKS = 64 };

typedef struct prove_ask {
    plan_ask ask;
    bool expanded;
    double byte_cost;
} prove_ask;

static int prove_file(prove_ask *p, const char *path, verdict *v)
{
    gyre_proof_options options = {.size = sizeof(options),
                                  .byte_cost = p->byte_cost};
    gyre_proof proof = {.size = sizeof(proof)};
    gyre_error error = {0};
    gyre_plan *plan = NULL;
    double start = plan_now();
    int code = plan_get(&p->ask, path, GYRE_PASS_COUNT, &plan);

    if (code != -1)
        return code;
    gyre_status status = gyre_plan_prove(plan, &options, &proof, &error);
    if (status == GYRE_OK)
        add(v, &proof, gyre_plan_pass(plan), plan_now() - start);
    else
        code = cli_fail_status(&p->ask.cli, status, &error);
    gyre_plan_free(plan);
    return code;
}

/* With the schedule's own closed forms of bytes and memory. */
static int prove_pass(prove_ask *p, uint32_t pass, verdict *v)
{
    gyre_proof_options options = {
        .size = sizeof(options),
        .byte_cost = p->byte_cost,
        .expanded = p->expanded || p->ask.request.ranks <= HELD_RANKS};
    gyre_proof proof = {.size = sizeof(proof)};
    gyre_error error = {0};
    gyre_plan *forward = NULL;
    int code = -1;

    if (pass == GYRE_PASS_BACKWARD && p->ask.request.ranks <= HELD_RANKS)
        code = plan_get(&p->ask, p->ask.cli.argv[0], 0, &forward);
    if (code != -1)
        return code;
    options.forward = forward;
    p->ask.request.pass = pass;
    double start = plan_now();
    gyre_status status = gyre_plan_prove_request(
        p->ask.context, &p->ask.request, &options, &proof, &error);
    if (status == GYRE_OK)
        add(v, &proof, pass, plan_now() - start);
    else
        code = cli_fail_status(&p->ask.cli, status, &error);
    gyre_plan_free(forward);
    return code;
}

static int prove_all(prove_ask *p, verdict *v)
{
    const char *name = p->ask.cli.argv[0];
    uint32_t only = p->ask.request.pass;

    if (plan_is_file(name))
        return prove_file(p, name, v);
    int code = plan_request(&p->ask, name);
    v->proof.ok = 1;
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT && code == -1 && v->proof.ok;
         pass++)
        if (p->ask.both || pass == only)
            code = prove_pass(p, pass, v);
    return code;
}

int plan_prove(int argc, char **argv)
{
    static const cli_usage usage = {
        "NAME|FILE",
        "Show that a plan is right under every order that it allows.", NULL, 1,
        1};
    prove_ask p = {0};
    const cli_option own[] = {
        {"expanded", NULL, "prove every rank, even where all are alike",
         CLI_FLAG, &p.expanded},
        {"byte-cost", "N", "on the critical path; a (q, k) pair costs 1 [0]",
         CLI_NUMBER, &p.byte_cost},
        {0}};
    int code = plan_parse(&p.ask, &usage, own, argc, argv);

    if (code == -1 && !(p.byte_cost >= 0 && p.byte_cost <= 1e12))
        code = cli_fail(&p.ask.cli, CLI_USAGE, "--byte-cost: 0 to 1e12");
    if (code != -1)
        goto close;
    verdict v = {.one_lane = 1, .quotient = 1, .passes = json_object()};
    code = prove_all(&p, &v);
    if (code == -1)
        code = p.ask.cli.json ? report_json(&p.ask, &v) : report_text(&v);
    json_decref(v.passes);
close:
    plan_close(&p.ask);
    return code;
}
