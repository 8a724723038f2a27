/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal ranks.  If moving by r (prove.h) takes rank 0's program to rank r's for
 * every r, the moves are symmetries of the plan: they add up digit by digit,
 * so the k-th GET of any rank meets the moved k-th PUT, and all ranks reach the
 * same events together or never.  One rank run against itself, with what it
 * receives moved, is then all of them.
 *
 * A mask knows positions, not coordinates, so cells are those of the full mask;
 * a plan that computes each of those once does so for the cells of any mask.
 *
 * Which radix it is nobody says: all ordered factorizations of the number of
 * ranks are tried, and nearly all fail at rank 1.  Programs are compared field
 * by field; a hash would only be probable.
 */
#include "plan/prove.h"

#include <string.h>

static const uint32_t NONE = GYRE_NO_VIEW;

/* ---- moving ---------------------------------------------------------------
 */

uint32_t gyre_shift_add(const gyre_shift *shift, uint32_t a, uint32_t b)
{
    if (shift->digits == 1) {
        uint32_t sum = a + b;
        return sum >= shift->radix[0] ? sum - shift->radix[0] : sum;
    }
    uint32_t sum = 0, unit = 1;
    for (uint32_t d = 0; d < shift->digits; d++) {
        uint32_t radix = shift->radix[d];
        sum += (a + b) % radix * unit;
        /* No carry. */
        a /= radix;
        b /= radix;
        unit *= radix;
    }
    return sum;
}

uint32_t gyre_shift_negate(const gyre_shift *shift, uint32_t a)
{
    uint32_t out = 0, unit = 1;
    for (uint32_t d = 0; d < shift->digits; d++) {
        uint32_t radix = shift->radix[d];
        out += (radix - a % radix) % radix * unit;
        a /= radix;
        unit *= radix;
    }
    return out;
}

uint32_t gyre_shift_chunk(const gyre_shift *shift, uint32_t side,
                          uint32_t chunk, uint32_t by)
{
    const gyre_plan *plan = shift->plan;
    uint32_t owner =
        gyre_shift_add(shift, plan->problem.chunks[side][chunk].owner, by);
    return gyre_plan_row_list(
        plan, plan->owned[side][owner])[shift->place[side][chunk]];
}

uint32_t gyre_shift_heads(const gyre_shift *shift, uint32_t by)
{
    if (shift->head_digit == NONE)
        return 0;
    for (uint32_t d = 0; d < shift->head_digit; d++)
        by /= shift->radix[d];
    return by % shift->radix[shift->head_digit] * shift->head_step;
}

/* ---- comparing two programs -------------------------------------------------
 */

/* Row sets of rank 0 already found moved, for the rank at hand. */
typedef struct row_memo {
    uint64_t *seen; /* by row set: stamp << 32 | the moved set */
    uint32_t room, stamp;
} row_memo;

typedef struct compare_walk {
    const gyre_plan *plan;
    const gyre_shift *shift;
    row_memo *memo;
    uint32_t rank, heads;
} compare_walk;

static bool rows_moved(const compare_walk *w, uint32_t a, uint32_t b)
{
    uint64_t *seen = &w->memo->seen[a];
    if (*seen >> 32 == w->memo->stamp)
        return (uint32_t)*seen == b;
    const gyre_plan_rows *x = &w->plan->rows[a], *y = &w->plan->rows[b];
    if (x->side != y->side || x->count != y->count)
        return false;
    const uint32_t *from = gyre_plan_row_list(w->plan, a);
    const uint32_t *to = gyre_plan_row_list(w->plan, b);
    for (uint32_t i = 0; i < x->count; i++) {
        uint32_t chunk = gyre_shift_chunk(w->shift, x->side, from[i], w->rank);
        uint32_t low = 0, high = y->count;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (to[middle] < chunk)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == y->count || to[low] != chunk)
            return false;
    }
    *seen = (uint64_t)w->memo->stamp << 32 | b;
    return true;
}

/* All heads stay all heads; a part moves. */
static bool heads_moved(const compare_walk *w, uint32_t a0, uint32_t a1,
                        uint32_t b0, uint32_t b1)
{
    uint32_t heads = w->plan->problem.heads;
    if (a1 - a0 == heads)
        return b1 - b0 == heads;
    return (a0 + w->heads) % heads == b0 && a1 - a0 == b1 - b0;
}

static bool slots_moved(const compare_walk *w, const gyre_plan_program *a,
                        const gyre_plan_program *b)
{
    for (uint32_t i = 0; i < a->slot_count; i++) {
        const gyre_plan_slot *x = &a->slots[i], *y = &b->slots[i];
        if (x->kind != y->kind || x->dtype != y->dtype || x->buf != y->buf ||
            x->flags != y->flags ||
            !heads_moved(w, x->h0, x->h1, y->h0, y->h1) ||
            !rows_moved(w, x->rows, y->rows))
            return false;
    }
    for (uint32_t i = 0; i < a->view_count; i++) {
        const gyre_plan_view *x = &a->views[i], *y = &b->views[i];
        if (x->slot != y->slot || x->planes != y->planes ||
            !heads_moved(w, x->h0, x->h1, y->h0, y->h1) ||
            !rows_moved(w, x->rows, y->rows))
            return false;
    }
    return true;
}

static bool ops_moved(const compare_walk *w, const gyre_plan_program *a,
                      const gyre_plan_program *b)
{
    for (uint32_t i = 0; i < a->op_count; i++) {
        const gyre_plan_op *x = &a->ops[i], *y = &b->ops[i];
        uint32_t peer = x->view[1];
        if (x->code <= GYRE_OP_GET)
            peer = gyre_shift_add(w->shift, peer, w->rank);
        if (x->code != y->code || x->lane != y->lane ||
            x->channel != y->channel || x->group != y->group ||
            x->view[0] != y->view[0] || peer != y->view[1] ||
            memcmp(x->view + 2, y->view + 2, 4 * sizeof(uint32_t)) != 0)
            return false;
    }
    return true;
}

static bool program_moved(const compare_walk *w)
{
    const gyre_plan_program *a = &w->plan->programs[0];
    const gyre_plan_program *b = &w->plan->programs[w->rank];
    if (a->slot_count != b->slot_count || a->view_count != b->view_count ||
        a->op_count != b->op_count || a->group_count != b->group_count ||
        a->buf_count != b->buf_count)
        return false;
    for (uint32_t g = 0; g < a->group_count; g++) {
        const gyre_plan_group *x = &a->groups[g], *y = &b->groups[g];
        if (x->first != y->first || x->count != y->count ||
            x->lane != y->lane || x->phase != y->phase ||
            x->pattern != y->pattern)
            return false;
    }
    return slots_moved(w, a, b) && ops_moved(w, a, b);
}

/* ---- the search
 * -------------------------------------------------------------- */

typedef struct search {
    gyre_context *context;
    gyre_plan *plan;
    gyre_shift base;   /* places, without a radix */
    gyre_shift *tries; /* still possible */
    uint32_t count, room;
    row_memo memo;
    gyre_plan_program spare; /* arrays to be filled again */
    bool out_of_memory;
} search;

static bool add_try(search *s, const gyre_shift *shift)
{
    if (s->count == s->room) {
        uint32_t room = s->room * 2 + 16;
        gyre_shift *grown =
            gyre_grow(s->context, s->tries, s->room, room, sizeof(*grown));
        if (grown == NULL) {
            s->out_of_memory = true;
            return false;
        }
        s->tries = grown;
        s->room = room;
    }
    s->tries[s->count++] = *shift;
    return true;
}

/* Heads with any digit, if whole KV heads move; and without. */
static bool add_radix(search *s, gyre_shift *shift)
{
    const gyre_problem *p = &s->plan->problem;
    shift->head_digit = NONE;
    shift->head_step = 0;
    bool good = add_try(s, shift);
    for (uint32_t d = 0; good && d < shift->digits; d++) {
        uint32_t step = p->heads / shift->radix[d];
        if (p->heads % shift->radix[d] != 0 ||
            step % (p->heads / p->kv_heads) != 0)
            continue;
        shift->head_digit = d;
        shift->head_step = step;
        good = add_try(s, shift);
    }
    return good;
}

/* All ordered factorizations of what is left, fewest digits first. */
static bool add_digits(search *s, gyre_shift *shift, uint32_t left,
                       uint32_t digits)
{
    if (digits == 1) {
        shift->radix[shift->digits++] = left;
        bool good = add_radix(s, shift);
        shift->digits--;
        return good;
    }
    for (uint32_t f = 2; f <= left / 2; f++) {
        if (left % f != 0)
            continue;
        shift->radix[shift->digits++] = f;
        bool good = add_digits(s, shift, left / f, digits - 1);
        shift->digits--;
        if (!good)
            return false;
    }
    return true;
}

/* Where each chunk stands among its owner's; false when owners differ. */
static bool find_places(search *s, uint32_t side)
{
    const gyre_plan *plan = s->plan;
    const gyre_problem *p = &plan->problem;
    const gyre_plan_rows *first = &plan->rows[plan->owned[side][0]];
    uint32_t *place = gyre_alloc(s->context, (size_t)p->chunk_count[side] + 1,
                                 sizeof(*place));
    s->base.place[side] = place;
    if (place == NULL) {
        s->out_of_memory = true;
        return false;
    }
    for (uint32_t r = 0; r < p->ranks; r++) {
        const gyre_plan_rows *rows = &plan->rows[plan->owned[side][r]];
        if (rows->count != first->count)
            return false;
        for (uint32_t j = 0; j < rows->count; j++) {
            uint32_t chunk = plan->row_chunks[rows->first + j];
            uint32_t like = plan->row_chunks[first->first + j];
            place[chunk] = j;
            if (p->chunks[side][chunk].length != p->chunks[side][like].length)
                return false;
        }
    }
    return true;
}

static void drop(search *s)
{
    gyre_program_free(s->context, &s->spare);
    for (uint32_t side = 0; side < GYRE_SIDE_COUNT; side++)
        gyre_free(s->context, s->base.place[side],
                  (size_t)s->plan->problem.chunk_count[side] + 1,
                  sizeof(uint32_t));
    gyre_free(s->context, s->tries, s->room, sizeof(*s->tries));
    gyre_free(s->context, s->memo.seen, s->memo.room, sizeof(*s->memo.seen));
}

/* Keep the tries under which this rank is like rank 0. */
static bool sift(search *s, uint32_t rank)
{
    uint32_t kept = 0;
    if (s->memo.room < s->plan->row_count) {
        uint32_t room = s->plan->row_count + s->memo.room;
        uint64_t *grown = gyre_grow(s->context, s->memo.seen, s->memo.room,
                                    room, sizeof(*grown));
        if (grown == NULL) {
            s->out_of_memory = true;
            return false;
        }
        memset(grown + s->memo.room, 0, (room - s->memo.room) * sizeof(*grown));
        s->memo.seen = grown;
        s->memo.room = room;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        s->memo.stamp++;
        compare_walk w = {s->plan, &s->tries[i], &s->memo, rank,
                          gyre_shift_heads(&s->tries[i], rank)};
        if (program_moved(&w))
            s->tries[kept++] = s->tries[i];
    }
    s->count = kept;
    return kept > 0;
}

static gyre_status emit_all(gyre_plan *plan, const gyre_plan_spec *spec,
                            uint32_t from, gyre_error *error)
{
    gyre_status status = GYRE_OK;
    for (uint32_t r = from; r < plan->problem.ranks && status == GYRE_OK; r++)
        status = gyre_plan_emit(plan, spec, r, error);
    return status;
}

/* As gyre_plan_emit, into the arrays of the rank before: fresh ones of this
 * size would be fresh pages each time. */
static gyre_status emit_again(search *s, const gyre_plan_spec *spec,
                              uint32_t rank, gyre_error *error)
{
    gyre_builder b;
    gyre_plan_program *p = &b.program;
    gyre_builder_open(&b, s->plan, rank);
    *p = s->spare;
    s->spare = (gyre_plan_program){0};
    p->slot_count = p->view_count = p->op_count = 0;
    p->group_count = p->unit_count = p->buf_count = 0;
    if (p->view_table != NULL)
        memset(p->view_table, 0, p->view_table_size * sizeof(*p->view_table));
    spec->emit(spec->user, spec->pass, rank, &gyre_plan_host_table, &b);
    return gyre_builder_close(&b, error);
}

/* *found: all ranks are alike, s->tries[0] says how. */
static gyre_status look(search *s, const gyre_plan_spec *spec, bool *found,
                        gyre_error *error)
{
    uint32_t ranks = s->plan->problem.ranks;
    *found = false;
    s->base.plan = s->plan;
    bool good = find_places(s, GYRE_SIDE_Q) && find_places(s, GYRE_SIDE_KV);
    for (uint32_t digits = 1; good && digits <= GYRE_SHIFT_DIGITS; digits++) {
        gyre_shift shift = s->base;
        good = add_digits(s, &shift, ranks, digits);
    }
    gyre_status status = GYRE_OK;
    for (uint32_t r = 0; good && r < ranks && status == GYRE_OK; r++) {
        status = emit_again(s, spec, r, error);
        if (status == GYRE_OK && r > 0) {
            good = sift(s, r);
            s->spare = s->plan->programs[r];
            s->plan->programs[r] = (gyre_plan_program){0};
        }
    }
    if (s->out_of_memory)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "plan '%s': no memory to compare %u ranks",
                         s->plan->name, ranks);
    *found = good && status == GYRE_OK;
    return status;
}

static gyre_status prove_one(search *s, const gyre_proof_options *options,
                             gyre_proof *proof, gyre_error *error)
{
    gyre_prover v;
    gyre_status status =
        gyre_prover_run(&v, s->plan, options, &s->tries[0], proof, error);
    gyre_prover_free(&v);
    return status;
}

gyre_status gyre_plan_prove_spec(gyre_context *context,
                                 const gyre_plan_spec *spec,
                                 const gyre_proof_options *options,
                                 gyre_proof *out, gyre_error *error)
{
    search s = {.context = context};
    gyre_status status = gyre_plan_begin(context, spec, &s.plan, error);
    if (status != GYRE_OK)
        return status;
    bool alike = false;
    gyre_proof proof = {0};
    if (s.plan->problem.ranks > 1 &&
        (options == NULL || (!options->expanded && options->forward == NULL)))
        status = look(&s, spec, &alike, error);
    if (status == GYRE_OK && alike)
        status = prove_one(&s, options, &proof, error);
    drop(&s);
    /* What is wrong under the full mask may be right under the plan's. */
    if (status == GYRE_OK && !proof.ok) {
        status = emit_all(s.plan, spec, 0, error);
        if (status == GYRE_OK)
            status = gyre_plan_prove(s.plan, options, &proof, error);
    }
    gyre_plan_free(s.plan);
    if (status == GYRE_OK)
        *out = proof;
    return status;
}
