/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verify the verifier.  Every schedule's plans, right and then broken in one
 * place: an op dropped, doubled, swapped, sent elsewhere, of another type, cast
 * early, on a buf that is still in use.  A prover may refuse too much, and that
 * is seen by proofs of right plans; here, what it accepts must come out right
 * on numbers and on counts, under orders drawn at random.
 */
#include "../plan/interpret.h"
#include "../unit.h"
#include "in_context.h"
#include "schedules.h"

#include "attention/make.h"

#include <stdio.h>

static uint32_t seed = 20;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return below ? (uint32_t)(((uint64_t)(seed >> 4) * below) >> 28) : 0;
}

static const char *const schedules[] = {
    "ring",
    "ring direction=descending",
    "ring hops=published",
    "double-ring window=2",
    "2d heads=2",
    "2d heads=2 keep=split",
    "2d heads=4 placement=context_first",
    "multi-ring team=2",
    "tile",
    "ulysses",
    "ulysses keep=split",
    "allgather",
    "burst",
    "tokenring",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(*schedules) };

static const uint64_t bounds[] = {0, 3, 9, 13};
static const gyre_documents documents = {bounds, 3, 0};
static const gyre_mask masks[] = {
    {.size = sizeof(gyre_mask), .causal = 1},
    {.size = sizeof(gyre_mask)},
    {.size = sizeof(gyre_mask),
     .causal = 1,
     .document_count = 1,
     .documents = &documents},
};
enum { MASKS = sizeof(masks) / sizeof(*masks), TOKENS = 13 };

/* ---- changing a program
 * ------------------------------------------------------- */

enum {
    DROP,
    DOUBLE,
    SWAP,
    DROP_PAIR,
    OTHER_VIEW,
    OTHER_PEER,
    OTHER_CHANNEL,
    OTHER_LANE,
    OTHER_ROWS,
    OTHER_HEADS,
    OTHER_DTYPE,
    CAST_EARLY,
    REUSE_BUF,
    SWAP_VIEWS,
    KINDS_OF_MUTANTS
};

static const char *const names[KINDS_OF_MUTANTS] = {
    "drop",        "double",        "swap",       "drop pair",  "other view",
    "other peer",  "other channel", "other lane", "other rows", "other heads",
    "other dtype", "cast early",    "reuse buf",  "swap views"};

/* Units in a new order, without op `drop`, with op `twice` doubled. */
typedef struct edit {
    uint32_t *order;
    uint32_t drop, twice;
} edit;

static void write_op(const gyre_plan_program *p, uint32_t o, gyre_builder *b)
{
    const gyre_plan_host *host = &gyre_plan_host_table;
    const gyre_plan_op *op = &p->ops[o];
    uint32_t views[GYRE_OP_VIEWS];
    for (uint32_t i = 0; i < gyre_op_views(op->code); i++) {
        views[i] = op->view[i];
        if (views[i] == GYRE_NO_VIEW)
            continue;
        const gyre_plan_view *v = &p->views[op->view[i]];
        views[i] = host->view(b, v->slot, v->rows, v->h0, v->h1, v->planes);
    }
    if (op->code == GYRE_OP_PUT)
        host->put(b, views[0], op->view[1], op->channel);
    else if (op->code == GYRE_OP_GET)
        host->get(b, views[0], op->view[1], op->channel);
    else
        host->op(b, op->lane, op->code, views, gyre_op_views(op->code));
}

static void rebuild(gyre_plan *plan, uint32_t rank, const edit *e)
{
    const gyre_plan_host *host = &gyre_plan_host_table;
    const gyre_plan_program *p = &plan->programs[rank];
    gyre_builder b;
    gyre_builder_open(&b, plan, rank);
    for (uint32_t s = 0; s < p->slot_count; s++) {
        gyre_plan_slot slot = p->slots[s];
        if (slot.buf == b.program.buf_count)
            slot.buf = GYRE_NEW_BUF;
        host->slot(&b, &slot);
    }
    for (uint32_t i = 0; i < p->unit_count; i++) {
        const gyre_plan_unit *unit = &p->units[e->order[i]];
        const gyre_plan_group *group =
            unit->group != GYRE_NO_VIEW ? &p->groups[unit->group] : NULL;
        if (group != NULL)
            host->begin(&b, group->lane, plan->phases[group->phase],
                        group->pattern);
        for (uint32_t o = unit->first; o < unit->first + unit->count; o++) {
            if (o != e->drop)
                write_op(p, o, &b);
            if (o == e->twice)
                write_op(p, o, &b);
        }
        if (group != NULL)
            host->end(&b);
    }
    assert_int_equal(gyre_builder_close(&b, NULL), GYRE_OK);
}

static void restructure(gyre_plan *plan, uint32_t rank, uint32_t drop,
                        uint32_t twice, bool swap)
{
    const gyre_plan_program *p = &plan->programs[rank];
    edit e = {malloc((p->unit_count + 1) * sizeof(uint32_t)), drop, twice};
    for (uint32_t u = 0; u < p->unit_count; u++)
        e.order[u] = u;
    if (swap && p->unit_count > 1) {
        uint32_t a = draw(p->unit_count), b = draw(p->unit_count);
        if (draw(2) != 0)
            b = (a + 1) % p->unit_count;
        uint32_t t = e.order[a];
        e.order[a] = e.order[b];
        e.order[b] = t;
    }
    rebuild(plan, rank, &e);
    free(e.order);
}

/* The op of the peer that meets op o: as many before it on the wire. */
static uint32_t find_mate(const gyre_plan *plan, uint32_t rank, uint32_t o)
{
    const gyre_plan_program *p = &plan->programs[rank];
    const gyre_plan_op *op = &p->ops[o];
    const gyre_plan_program *q = &plan->programs[op->view[1]];
    uint32_t before = 0;
    for (uint32_t i = 0; i < o; i++)
        before += p->ops[i].code == op->code &&
                  p->ops[i].view[1] == op->view[1] &&
                  p->ops[i].channel == op->channel;
    for (uint32_t i = 0; i < q->op_count; i++)
        if (q->ops[i].code == (op->code ^ 1u) && q->ops[i].view[1] == rank &&
            q->ops[i].channel == op->channel && before-- == 0)
            return i;
    return GYRE_NO_VIEW;
}

/* A random op that the test holds for; NO_VIEW when none was found. */
static uint32_t pick_op(const gyre_plan_program *p, bool transfer)
{
    for (int i = 0; i < 40; i++) {
        uint32_t o = draw(p->op_count);
        if (!transfer || p->ops[o].code <= GYRE_OP_GET)
            return o;
    }
    return GYRE_NO_VIEW;
}

static uint32_t *pick_view(gyre_plan_program *p)
{
    gyre_plan_op *op = &p->ops[draw(p->op_count)];
    uint32_t *view = &op->view[draw(gyre_op_views(op->code))];
    return *view == GYRE_NO_VIEW ? pick_view(p) : view;
}

/* A view of the same slot with other rows or heads. */
static void change_view(gyre_plan *plan, gyre_plan_program *p, bool heads)
{
    gyre_plan_view *v = &p->views[*pick_view(p)];
    const gyre_plan_rows *rows = &plan->rows[v->rows];
    if (heads) {
        uint32_t all = plan->problem.heads;
        v->h0 = (uint16_t)draw(all);
        v->h1 = (uint16_t)(v->h0 + 1 + draw(all - v->h0));
    } else if (draw(2) != 0 && rows->count > 1) {
        uint32_t left[64], count = 0, out = draw(rows->count);
        for (uint32_t i = 0; i < rows->count; i++)
            if (i != out)
                left[count++] = plan->row_chunks[rows->first + i];
        v->rows = gyre_plan_intern_rows(plan, rows->side, left, count);
    } else {
        uint32_t other = draw(plan->row_count);
        if (plan->rows[other].side == rows->side)
            v->rows = other;
    }
}

static void change(gyre_plan *plan, uint32_t kind)
{
    uint32_t rank = draw(plan->problem.ranks), none = GYRE_NO_VIEW, o;
    gyre_plan_program *p = &plan->programs[rank];
    uint32_t *view = pick_view(p);
    gyre_plan_slot *slot = &p->slots[draw(p->slot_count)];
    switch (kind) {
    case DROP:
        restructure(plan, rank, pick_op(p, false), none, false);
        break;
    case DOUBLE:
        restructure(plan, rank, none, pick_op(p, false), false);
        break;
    case SWAP:
        restructure(plan, rank, none, none, true);
        break;
    case DROP_PAIR:
        o = pick_op(p, true);
        if (o == none)
            break;
        uint32_t peer = p->ops[o].view[1], mate = find_mate(plan, rank, o);
        restructure(plan, rank, o, none, false);
        restructure(plan, peer, mate, none, false);
        break;
    case OTHER_VIEW:
        *view = draw(p->view_count);
        break;
    case OTHER_PEER:
    case OTHER_CHANNEL:
        o = pick_op(p, true);
        if (o != none && kind == OTHER_PEER)
            p->ops[o].view[1] = draw(plan->problem.ranks);
        else if (o != none)
            p->ops[o].channel = (uint16_t)draw(8);
        break;
    case OTHER_LANE: {
        gyre_plan_unit *unit = &p->units[draw(p->unit_count)];
        unit->lane = draw(GYRE_PLAN_LANES);
        for (o = unit->first; o < unit->first + unit->count; o++)
            p->ops[o].lane = (uint8_t)unit->lane;
        if (unit->group != none)
            p->groups[unit->group].lane = (uint8_t)unit->lane;
        break;
    }
    case OTHER_ROWS:
    case OTHER_HEADS:
        change_view(plan, p, kind == OTHER_HEADS);
        break;
    case OTHER_DTYPE:
        slot->dtype = draw(2) ? GYRE_F32 : GYRE_BF16;
        break;
    case CAST_EARLY:
        for (int i = 0; i < 20 && !gyre_value_is_sum(slot->kind); i++)
            slot = &p->slots[draw(p->slot_count)];
        if (gyre_value_is_sum(slot->kind))
            slot->dtype = GYRE_BF16;
        break;
    case REUSE_BUF:
        slot->buf = p->slots[draw(p->slot_count)].buf;
        break;
    default: {
        uint32_t *other = pick_view(p), t = *view;
        *view = *other;
        *other = t;
    }
    }
}

/* ---- plans and references
 * -------------------------------------------------------- */

typedef struct base {
    schedule_request request;
    reference want[2];
} base;

static void draw_request(base *b, uint32_t turn)
{
    static const uint32_t heads[][2] = {{4, 2}, {4, 4}, {6, 3}};
    memset(b, 0, sizeof(*b));
    gyre_plan_request *r = &b->request.request;
    uint32_t shape = turn % 3;
    r->ranks = 2 + draw(3);
    r->heads = heads[shape][0];
    r->kv_heads = heads[shape][1];
    r->head_dim = 3;
    r->v_head_dim = 2;
    r->dtype = GYRE_F32;
    r->wire_dtype = draw(2) ? GYRE_F32 : GYRE_BF16;
    r->tokens = TOKENS;
    r->pass = draw(2);
    r->drop = draw(2);
    r->mask = &masks[draw(MASKS)];
    r->layout = draw(3);
    schedule_set(context, &b->request, schedules[turn % SCHEDULES]);
}

static bool make_base(base *b, uint32_t turn)
{
    draw_request(b, turn);
    const gyre_plan_request *r = &b->request.request;
    gyre_plan *plan;
    if (gyre_plan_make(context, r, &plan, NULL) != GYRE_OK)
        return false;
    char text[256] = "";
    for (int mode = 0; mode < 2; mode++) {
        b->want[mode] = reference_make(plan, mode);
        for (int run = 0; run < 2; run++)
            if (!interpret(plan, &b->want[mode], &seed, text))
                fail_msg("%s, %u ranks, pass %u, drop %u: %s", b->request.text,
                         r->ranks, r->pass, r->drop, text);
        b->want[mode].of = NULL;
    }
    gyre_plan_free(plan);
    return true;
}

static bool is_run_right(gyre_plan *plan, base *b, char *text)
{
    bool good = true;
    for (int run = 0; run < 4 && good; run++) {
        b->want[run % 2].of = plan;
        good = interpret(plan, &b->want[run % 2], &seed, text);
    }
    return good;
}

static uint32_t tried[KINDS_OF_MUTANTS], accepted[KINDS_OF_MUTANTS];

static void try_mutant(base *b, uint32_t kind)
{
    gyre_plan *plan;
    gyre_proof proof;
    char text[256] = "";
    uint32_t at = seed;
    assert_int_equal(gyre_plan_make(context, &b->request.request, &plan, NULL),
                     GYRE_OK);
    change(plan, kind);
    assert_int_equal(gyre_plan_prove(plan, NULL, &proof, NULL), GYRE_OK);
    tried[kind]++;
    if (proof.ok) {
        accepted[kind]++;
        if (!is_run_right(plan, b, text))
            fail_msg("%s, %u ranks, pass %u, drop %u, mutant '%s' of seed %u "
                     "is proven and wrong: %s",
                     b->request.text, b->request.request.ranks,
                     b->request.request.pass, b->request.request.drop,
                     names[kind], at, text);
    } else {
        assert_int_not_equal(strlen(proof.reason), 0);
    }
    gyre_plan_free(plan);
}

static void accepted_mutants_are_right(void **state)
{
    (void)state;
    uint32_t bases = getenv("GYRE_SOAK") ? 1500 : 300, done = 0, sum = 0;
    for (uint32_t turn = 0; turn < bases; turn++) {
        base b;
        if (!make_base(&b, turn))
            continue;
        for (uint32_t kind = 0; kind < KINDS_OF_MUTANTS; kind++)
            for (int i = 0; i < 2; i++)
                try_mutant(&b, kind);
        reference_free(&b.want[0]);
        reference_free(&b.want[1]);
    }
    for (uint32_t kind = 0; kind < KINDS_OF_MUTANTS; kind++) {
        print_message("# %s: %u of %u accepted\n", names[kind], accepted[kind],
                      tried[kind]);
        done += tried[kind];
        sum += accepted[kind];
    }
    print_message("# %u mutants, %u accepted\n", done, sum);
    assert_true(done >= (getenv("GYRE_SOAK") ? 20000 : 4000));
    assert_true(sum > 0 && sum < done / 2);
}

/* ---- diff
 * ------------------------------------------------------------------------- */

typedef struct text {
    char *at;
    size_t size;
} text;

static gyre_status add_text(void *user, const void *data, size_t size,
                            gyre_error *error)
{
    text *t = user;
    (void)error;
    t->at = realloc(t->at, t->size + size);
    memcpy(t->at + t->size, data, size);
    t->size += size;
    return GYRE_OK;
}

/* The file of a plan, with views numbered in the order of their ops. */
static text canonical(const gyre_plan *plan)
{
    text saved = {NULL, 0}, out = {NULL, 0};
    gyre_plan *copy;
    assert_int_equal(gyre_plan_write_text(plan, add_text, &saved, NULL),
                     GYRE_OK);
    /* What no reader takes is like no right plan. */
    if (gyre_plan_read(context, "a plan", saved.at, saved.size, &copy, NULL) !=
        GYRE_OK)
        return saved;
    for (uint32_t r = 0; r < copy->problem.ranks; r++)
        if (copy->programs[r].slot_count > 0)
            restructure(copy, r, GYRE_NO_VIEW, GYRE_NO_VIEW, false);
    assert_int_equal(gyre_plan_write_text(copy, add_text, &out, NULL), GYRE_OK);
    gyre_plan_free(copy);
    free(saved.at);
    return out;
}

static bool diff_as_files(const gyre_plan *one, const gyre_plan *other,
                          const char *what)
{
    text a = canonical(one), b = canonical(other);
    bool same = a.size == b.size && memcmp(a.at, b.at, a.size) == 0;
    uint64_t count, back;
    assert_int_equal(gyre_plan_diff(one, other, NULL, NULL, &count, NULL),
                     GYRE_OK);
    assert_int_equal(gyre_plan_diff(other, one, NULL, NULL, &back, NULL),
                     GYRE_OK);
    if ((count == 0) != same || (back == 0) != same)
        fail_msg("%s: %u and %u differences, files %s", what, (unsigned)count,
                 (unsigned)back, same ? "equal" : "not equal");
    free(a.at);
    free(b.at);
    return same;
}

/* A group of two as two groups; the last of its program with one. */
static bool split_group(gyre_plan *plan, uint32_t rank)
{
    gyre_plan_program *p = &plan->programs[rank];
    const gyre_plan_host *host = &gyre_plan_host_table;
    gyre_builder b;
    bool done = false;
    gyre_builder_open(&b, plan, rank);
    for (uint32_t s = 0; s < p->slot_count; s++) {
        gyre_plan_slot slot = p->slots[s];
        if (slot.buf == b.program.buf_count)
            slot.buf = GYRE_NEW_BUF;
        host->slot(&b, &slot);
    }
    for (uint32_t u = 0; u < p->unit_count; u++) {
        const gyre_plan_unit *unit = &p->units[u];
        const gyre_plan_group *g =
            unit->group != GYRE_NO_VIEW ? &p->groups[unit->group] : NULL;
        for (uint32_t i = 0; i < unit->count; i++) {
            bool again = i == 1 && !done;
            if (g != NULL && again)
                host->end(&b);
            if (g != NULL && (i == 0 || again))
                host->begin(&b, g->lane, plan->phases[g->phase], g->pattern);
            done |= g != NULL && again;
            write_op(p, unit->first + i, &b);
        }
        if (g != NULL)
            host->end(&b);
    }
    assert_int_equal(gyre_builder_close(&b, NULL), GYRE_OK);
    return done;
}

/* Two plans have no differences exactly when their files are equal. */
static void a_diff_finds_every_mutant(void **state)
{
    (void)state;
    uint32_t bases = 60, changed = 0, same = 0, split = 0;
    for (uint32_t turn = 0; turn < bases; turn++) {
        base b;
        gyre_plan *one, *other;
        draw_request(&b, turn);
        const gyre_plan_request *r = &b.request.request;
        if (gyre_plan_make(context, r, &one, NULL) != GYRE_OK)
            continue;
        for (uint32_t kind = 0; kind <= KINDS_OF_MUTANTS + 1; kind++) {
            assert_int_equal(gyre_plan_make(context, r, &other, NULL), GYRE_OK);
            const char *name = "same";
            gyre_plan_program *p = &other->programs[draw(r->ranks)];
            if (kind < KINDS_OF_MUTANTS) {
                change(other, kind);
                name = names[kind];
            } else if (kind == KINDS_OF_MUTANTS && p->group_count > 0) {
                uint8_t *pattern = &p->groups[draw(p->group_count)].pattern;
                *pattern = *pattern == 0;
                name = "other pattern";
            } else {
                split += split_group(other, 0);
                name = "split group";
            }
            if (diff_as_files(one, other, name))
                same++;
            else
                changed++;
            gyre_plan_free(other);
        }
        assert_true(diff_as_files(one, one, "itself"));
        gyre_plan_free(one);
    }
    print_message("# %u mutants differ, %u do not\n", changed, same);
    assert_true(changed > 500 && same > 20 && split > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_diff_finds_every_mutant),
        cmocka_unit_test(accepted_mutants_are_right),
    };
    return in_context(tests);
}
