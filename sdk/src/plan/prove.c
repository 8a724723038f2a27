/* SPDX-License-Identifier: Apache-2.0 */
/* A proof from end to end. */
#include "plan/prove.h"

#include <string.h>

static const uint32_t NONE = GYRE_NO_VIEW;
enum { SCRATCH_SETS = 4 };

bool gyre_prove_fail(gyre_prover *v, uint32_t rank, uint32_t op, uint32_t q,
                     uint32_t kv, uint32_t head, const char *format, ...)
{
    if (v->failed)
        return false;
    gyre_error error;
    va_list arguments;
    va_start(arguments, format);
    gyre_fail_list(&error, GYRE_PLAN, format, arguments);
    va_end(arguments);
    v->failed = true;
    gyre_proof *proof = v->proof;
    proof->rank = rank;
    proof->op = op;
    proof->q_chunk = q;
    proof->kv_chunk = kv;
    proof->head = head;
    size_t length = strlen(error.text);
    if (length >= sizeof(proof->reason))
        length = sizeof(proof->reason) - 1;
    memcpy(proof->reason, error.text, length);
    proof->reason[length] = '\0';
    return false;
}

bool gyre_prove_no_memory(gyre_prover *v)
{
    v->out_of_memory = true;
    return false;
}

/* ---- tables ----------------------------------------------------------------
 */

static bool index_ranks(gyre_prover *v)
{
    const gyre_plan *plan = v->plan;
    v->rank = gyre_alloc_zero(v->context, v->ranks, sizeof(*v->rank));
    if (v->rank == NULL)
        return gyre_prove_no_memory(v);
    uint64_t units = 0, ops = 0, transfers = 0;
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gyre_plan_program *p = &plan->programs[r];
        v->rank[r].unit_base = (uint32_t)units;
        v->rank[r].op_base = (uint32_t)ops;
        units += p->unit_count;
        ops += p->op_count;
        for (uint32_t g = 0; g < p->group_count; g++)
            transfers += p->groups[g].count;
        if (ops >= GYRE_CELL_UNREAD)
            return gyre_prove_no_memory(v);
    }
    v->unit_count = (uint32_t)units;
    v->op_count = (uint32_t)ops;
    v->proof->ops = v->shift ? ops * plan->problem.ranks : ops;
    v->transfer_count = (uint32_t)transfers;
    v->transfers =
        gyre_alloc(v->context, (size_t)transfers + 1, sizeof(*v->transfers));
    v->made = gyre_alloc_zero(v->context, (size_t)ops + 1, sizeof(*v->made));
    return (v->transfers != NULL && v->made != NULL) || gyre_prove_no_memory(v);
}

static bool index_transfers(gyre_prover *v)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        uint32_t *first =
            gyre_alloc(v->context, (size_t)p->unit_count + 1, sizeof(*first));
        if (first == NULL)
            return gyre_prove_no_memory(v);
        v->rank[r].first_transfer = first;
        for (uint32_t u = 0; u < p->unit_count; u++) {
            const gyre_plan_unit *unit = &p->units[u];
            first[u] = count;
            for (uint32_t i = 0; unit->group != NONE && i < unit->count; i++)
                v->transfers[count++] =
                    (gyre_prove_transfer){r, unit->first + i, u, NONE};
        }
    }
    return true;
}

static bool make_orders(gyre_prover *v)
{
    for (uint32_t r = 0; r < v->ranks; r++)
        if (gyre_plan_order_make(v->plan, r, &v->rank[r].order, NULL) !=
            GYRE_OK)
            return gyre_prove_no_memory(v);
    return true;
}

static void cut(uint32_t *cuts, uint32_t share, uint32_t h0, uint32_t h1)
{
    /* A range that parts a KV head: its other queries are asked for, too. */
    cuts[h0] = cuts[h1] = 1;
    if (h0 % share != 0 || h1 % share != 0) {
        cuts[h0 - h0 % share] = 1;
        cuts[(h1 + share - 1) / share * share] = 1;
    }
}

/* Atoms: the query heads cut at all ranges; of a quotient over heads, each. */
static bool make_atoms(gyre_prover *v)
{
    const gyre_problem *problem = &v->plan->problem;
    uint32_t heads = problem->heads, share = heads / problem->kv_heads;
    uint32_t *cuts =
        gyre_alloc_zero(v->context, (size_t)heads + 1, sizeof(*cuts));
    if (cuts == NULL)
        return gyre_prove_no_memory(v);
    v->atom = cuts;
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        for (uint32_t s = 0; s < p->slot_count; s++)
            cut(cuts, share, p->slots[s].h0, p->slots[s].h1);
        for (uint32_t i = 0; i < p->view_count; i++)
            cut(cuts, share, p->views[i].h0, p->views[i].h1);
    }
    if (v->shift != NULL && v->shift->head_digit != NONE)
        for (uint32_t h = 0; h < heads; h++)
            cuts[h] = 1;
    cuts[0] = 0;
    cuts[heads] = 1;
    for (uint32_t h = 1; h <= heads; h++)
        cuts[h] += cuts[h - 1];
    return true;
}

static bool make_sets(gyre_prover *v)
{
    const gyre_problem *p = &v->plan->problem;
    uint32_t most = 1;
    for (int side = 0; side < GYRE_SIDE_COUNT; side++) {
        uint32_t count = p->chunk_count[side];
        if (count > most)
            most = count;
        v->need[side] = gyre_alloc_zero(v->context, (size_t)count + 1,
                                        sizeof(*v->need[side]));
        if (v->need[side] == NULL)
            return gyre_prove_no_memory(v);
    }
    v->sets = (gyre_sets){.context = v->context, .words = most / 64 + 1};
    v->scratch = gyre_alloc(v->context, SCRATCH_SETS * (size_t)v->sets.words,
                            sizeof(*v->scratch));
    return v->scratch != NULL || gyre_prove_no_memory(v);
}

void gyre_prover_free(gyre_prover *v)
{
    gyre_context *context = v->context;
    gyre_prove_states_free(v);
    for (uint32_t r = 0; v->rank != NULL && r < v->ranks; r++) {
        if (v->rank[r].order.first != NULL)
            gyre_plan_order_free(&v->rank[r].order);
        gyre_free(context, v->rank[r].first_transfer,
                  (size_t)v->plan->programs[r].unit_count + 1,
                  sizeof(uint32_t));
    }
    gyre_free(context, v->rank, v->ranks, sizeof(*v->rank));
    gyre_free(context, v->transfers, (size_t)v->transfer_count + 1,
              sizeof(*v->transfers));
    gyre_free(context, v->made, (size_t)v->op_count + 1, sizeof(*v->made));
    gyre_free(context, v->atom, (size_t)v->plan->problem.heads + 1,
              sizeof(*v->atom));
    for (int side = 0; side < GYRE_SIDE_COUNT; side++) {
        uint32_t count = v->plan->problem.chunk_count[side];
        for (uint32_t i = 0; v->need[side] != NULL && i < count; i++)
            gyre_free(context, v->need[side][i], v->sets.words,
                      sizeof(uint64_t));
        gyre_free(context, v->need[side], (size_t)count + 1,
                  sizeof(*v->need[side]));
    }
    gyre_free(context, v->scratch, SCRATCH_SETS * (size_t)v->sets.words,
              sizeof(*v->scratch));
    gyre_sets_free(&v->sets);
    gyre_free(context, v->pieces, v->piece_room, 1);
    gyre_free(context, v->edges, v->edge_room, 2 * sizeof(uint32_t));
}

/* ---- at the end ------------------------------------------------------------
 */

/* All cells of a slot are there; its pieces are needed by who has it. */
static bool slot_full(gyre_prover *v, uint32_t rank, uint32_t s,
                      const char *what)
{
    const gyre_plan_slot *slot = &v->plan->programs[rank].slots[s];
    const uint32_t *cells = v->rank[rank].cells[s];
    const gyre_plan_rows *rows = &v->plan->rows[slot->rows];
    uint32_t planes = slot->kind == GYRE_VALUE_ST ? 2 : 1; /* LSE alone */
    uint32_t atoms = gyre_prove_atoms(v, slot->h0, slot->h1);
    bool q = gyre_value_side(slot->kind) == GYRE_SIDE_Q;
    for (size_t i = 0; i < (size_t)rows->count * atoms; i++) {
        uint32_t piece = cells == NULL || gyre_prove_gone(cells)
                             ? GYRE_PIECE_NONE
                             : cells[i * planes];
        if (piece == GYRE_PIECE_NONE) {
            uint32_t chunk = v->plan->row_chunks[rows->first + i / atoms];
            return gyre_prove_fail(
                v, rank, NONE, q ? chunk : NONE, q ? NONE : chunk,
                gyre_prove_head(v, v->atom[slot->h0] + (uint32_t)(i % atoms)),
                "%s slot %u (%s) is not written at the end", what, s,
                gyre_value_name(slot->kind));
        }
        if (piece > GYRE_PIECE_GIVEN)
            v->pieces[piece] |= GYRE_PIECE_USED | GYRE_PIECE_NEEDED;
    }
    return true;
}

/* The rank has its output of a kind, whole. */
static bool output_there(gyre_prover *v, uint32_t rank, uint32_t kind)
{
    const gyre_plan_program *p = &v->plan->programs[rank];
    uint32_t owned = v->plan->owned[gyre_value_side(kind)][rank];
    for (uint32_t s = 0; s < p->slot_count; s++)
        if (p->slots[s].kind == kind &&
            (p->slots[s].flags & GYRE_SLOT_EXTERNAL))
            return slot_full(v, rank, s, "output");
    if (v->plan->rows[owned].count == 0)
        return true;
    return gyre_prove_fail(v, rank, NONE, NONE, NONE, NONE,
                           "has no external slot of %s for its rows",
                           gyre_value_name(kind));
}

bool gyre_prove_home(gyre_prover *v)
{
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        for (uint32_t b = 0; b < p->buf_count; b++)
            if (v->rank[r].tenant[b] != NONE &&
                !gyre_prove_leave(v, r, NONE, v->rank[r].tenant[b]))
                return false;
        if (v->plan->pass == GYRE_PASS_BACKWARD) {
            if (!output_there(v, r, GYRE_VALUE_DQ) ||
                !output_there(v, r, GYRE_VALUE_DKV))
                return false;
            continue;
        }
        if (!output_there(v, r, GYRE_VALUE_O))
            return false;
        for (uint32_t s = 0; s < p->slot_count; s++) {
            const gyre_plan_slot *slot = &p->slots[s];
            if (slot->flags != 0 && !gyre_prove_given(v->plan->pass, slot) &&
                !slot_full(v, r, s,
                           slot->flags & GYRE_SLOT_SAVED ? "saved" : "output"))
                return false;
        }
    }
    return true;
}

/* Received rows that the rank did not use, and that nobody did. */
static void count_unneeded(gyre_prover *v)
{
    const gyre_plan *plan = v->plan;
    for (uint32_t t = 0; t < v->transfer_count; t++) {
        const gyre_prove_transfer *at = &v->transfers[t];
        const gyre_plan_program *p = &plan->programs[at->rank];
        const gyre_plan_view *view = &p->views[p->ops[at->op].view[0]];
        uint64_t bytes = gyre_view_bytes(plan, p, p->ops[at->op].view[0]);
        if (p->ops[at->op].code == GYRE_OP_PUT) {
            v->proof->sent_bytes += bytes;
            continue;
        }
        const gyre_plan_slot *slot = &p->slots[view->slot];
        const gyre_plan_rows *rows = &plan->rows[view->rows];
        uint32_t first = v->made[v->rank[at->rank].op_base + at->op];
        uint32_t side = gyre_value_side(slot->kind);
        for (uint32_t i = 0; i < rows->count && v->shift == NULL; i++) {
            uint8_t flags = v->pieces[first + i];
            if (flags == (GYRE_PIECE_USED | GYRE_PIECE_NEEDED))
                continue;
            uint32_t chunk = plan->row_chunks[rows->first + i];
            bytes = gyre_value_bytes(&plan->problem, slot->kind, slot->dtype,
                                     plan->problem.chunks[side][chunk].length,
                                     view->h0, view->h1, view->planes);
            if (!(flags & GYRE_PIECE_USED))
                v->proof->unused_bytes += bytes;
            if (!(flags & GYRE_PIECE_NEEDED))
                v->proof->dead_bytes += bytes;
        }
    }
    if (v->shift != NULL)
        v->proof->sent_bytes *= plan->problem.ranks;
}

static void count_work(gyre_prover *v)
{
    double sum = 0;
    for (uint32_t r = 0; r < v->ranks; r++) {
        sum += v->rank[r].work;
        if (v->rank[r].work > v->proof->work)
            v->proof->work = v->rank[r].work;
    }
    v->proof->balance = sum > 0 ? v->proof->work * v->ranks / sum : 1;
}

/* ---- closed forms ----------------------------------------------------------
 */

/* The program that stands for a rank. */
static uint32_t program_of(const gyre_prover *v, uint32_t rank)
{
    return v->shift != NULL ? 0 : rank;
}

/* What was counted, by phase: of all links, or of those between nodes. */
typedef struct counted {
    uint64_t sent[GYRE_PLAN_MAX_PHASES], received[GYRE_PLAN_MAX_PHASES];
} counted;

static bool same_flow(gyre_prover *v, uint32_t rank, const char *phase,
                      const char *links, const uint64_t got[2],
                      const uint64_t want[2])
{
    if (got[0] == want[0] && got[1] == want[1])
        return true;
    return gyre_prove_fail(
        v, rank, NONE, NONE, NONE, NONE,
        "phase '%s' sends %llu and receives %llu bytes%s, "
        "by the schedule's formula %llu and %llu",
        phase, (unsigned long long)got[0], (unsigned long long)got[1], links,
        (unsigned long long)want[0], (unsigned long long)want[1]);
}

static bool same_bytes(gyre_prover *v, uint32_t rank, counted bytes,
                       const counted *outer, const gyre_phase_bytes *forms,
                       uint32_t count)
{
    const gyre_plan *plan = v->plan;
    for (uint32_t i = 0; i < count; i++) {
        const gyre_phase_bytes *form = &forms[i];
        uint64_t got[2] = {0, 0}, between[2] = {0, 0};
        for (uint32_t p = 0; p < plan->phase_count; p++)
            if (strcmp(plan->phases[p], form->phase) == 0) {
                got[0] = bytes.sent[p];
                got[1] = bytes.received[p];
                between[0] = outer->sent[p];
                between[1] = outer->received[p];
                bytes.sent[p] = bytes.received[p] = 0;
            }
        if (!same_flow(v, rank, form->phase, "", got,
                       (uint64_t[]){form->sent, form->received}) ||
            !same_flow(v, rank, form->phase, " between nodes", between,
                       (uint64_t[]){form->outer_sent, form->outer_received}))
            return false;
    }
    for (uint32_t p = 0; p < plan->phase_count; p++)
        if (bytes.sent[p] != 0 || bytes.received[p] != 0)
            return gyre_prove_fail(v, rank, NONE, NONE, NONE, NONE,
                                   "phase '%s' sends %llu and receives %llu "
                                   "bytes, the schedule's formula has none",
                                   plan->phases[p],
                                   (unsigned long long)bytes.sent[p],
                                   (unsigned long long)bytes.received[p]);
    return true;
}

/* Memory of every rank; both against the formulas when there are any. */
static bool count_bytes(gyre_prover *v)
{
    const gyre_proof_options *options = v->options;
    uint64_t bytes = 0, external;
    counted sums = {{0}, {0}}, outer = {{0}, {0}};
    for (uint32_t r = 0; r < v->plan->problem.ranks; r++) {
        uint64_t memory = UINT64_MAX;
        if (program_of(v, r) == r &&
            gyre_plan_count_memory(v->plan, r, &bytes, &external, NULL) !=
                GYRE_OK)
            return gyre_prove_no_memory(v);
        if (bytes > v->proof->peak_bytes)
            v->proof->peak_bytes = bytes;
        if (options->expect == NULL)
            continue;
        if (program_of(v, r) == r)
            gyre_plan_count_bytes(v->plan, r, sums.sent, sums.received);
        gyre_plan_count_outer(v->plan, r, v->shift, outer.sent, outer.received);
        gyre_phase_bytes forms[GYRE_PLAN_PHASES] = {{0}};
        uint32_t count = options->expect(options->user, r, forms, &memory);
        if (!same_bytes(v, r, sums, &outer, forms, count))
            return false;
        if (memory != UINT64_MAX && memory != bytes)
            return gyre_prove_fail(v, r, NONE, NONE, NONE, NONE,
                                   "takes %llu bytes of memory, by the "
                                   "schedule's formula %llu",
                                   (unsigned long long)bytes,
                                   (unsigned long long)memory);
    }
    return true;
}

/* ---- the saved set ----------------------------------------------------------
 */

static bool same_list(const gyre_plan *a, uint32_t x, const gyre_plan *b,
                      uint32_t y)
{
    const gyre_plan_rows *p = &a->rows[x], *q = &b->rows[y];
    return p->side == q->side && p->count == q->count &&
           (p->count == 0 ||
            memcmp(gyre_plan_row_list(a, x), gyre_plan_row_list(b, y),
                   p->count * sizeof(uint32_t)) == 0);
}

static bool is_kept(const gyre_plan *plan, const gyre_plan_slot *slot,
                    const gyre_plan *forward, uint32_t rank)
{
    const gyre_plan_program *f = &forward->programs[rank];
    for (uint32_t i = 0; i < f->slot_count; i++) {
        const gyre_plan_slot *kept = &f->slots[i];
        if ((kept->flags & GYRE_SLOT_SAVED) && kept->kind == slot->kind &&
            kept->dtype == slot->dtype && kept->h0 == slot->h0 &&
            kept->h1 == slot->h1 &&
            same_list(plan, slot->rows, forward, kept->rows))
            return true;
    }
    return false;
}

/* Every slot that the backward binds was kept by the forward. */
static bool saved_agree(gyre_prover *v)
{
    const gyre_plan *forward = v->options->forward;
    if (forward == NULL || v->plan->pass != GYRE_PASS_BACKWARD)
        return true;
    if (!gyre_plan_same_problem(forward, v->plan))
        return gyre_prove_fail(v, 0, NONE, NONE, NONE, NONE,
                               "the forward plan is of another problem");
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        for (uint32_t s = 0; s < p->slot_count; s++)
            if ((p->slots[s].flags & GYRE_SLOT_SAVED) &&
                !(p->slots[s].flags & GYRE_SLOT_EXTERNAL) &&
                !is_kept(v->plan, &p->slots[s], forward, r))
                return gyre_prove_fail(v, r, NONE, NONE, NONE, NONE,
                                       "slot %u (%s) is bound to what the "
                                       "forward plan does not keep",
                                       s, gyre_value_name(p->slots[s].kind));
    }
    return true;
}

/* ---- all of it
 * --------------------------------------------------------------- */

static bool prove(gyre_prover *v)
{
    bool good = index_ranks(v) && index_transfers(v) && make_orders(v) &&
                make_atoms(v) && make_sets(v) && gyre_prove_types(v) &&
                gyre_prove_match(v) && gyre_prove_patterns(v) &&
                gyre_prove_states_make(v) && gyre_prove_run(v) &&
                gyre_prove_home(v) && saved_agree(v);
    if (!good)
        return false;
    gyre_prove_trace_back(v);
    count_unneeded(v);
    count_work(v);
    return count_bytes(v) && gyre_prove_one_lane(v);
}

gyre_status gyre_prover_run(gyre_prover *v, const gyre_plan *plan,
                            const gyre_proof_options *options,
                            const gyre_shift *shift, gyre_proof *proof,
                            gyre_error *error)
{
    static const gyre_proof_options plain = {.size = sizeof(plain)};
    *proof = (gyre_proof){.size = sizeof(*proof),
                          .quotient = shift != NULL,
                          .rank = NONE,
                          .op = NONE,
                          .q_chunk = NONE,
                          .kv_chunk = NONE,
                          .head = NONE};
    *v = (gyre_prover){.plan = plan,
                       .context = plan->context,
                       .options = options ? options : &plain,
                       .proof = proof,
                       .ranks = shift ? 1 : plan->problem.ranks,
                       .shift = shift};
    bool good = prove(v);
    if (v->out_of_memory)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "plan '%s': no memory to prove %u ranks", plan->name,
                         plan->problem.ranks);
    proof->ok = good;
    return GYRE_OK;
}

gyre_status gyre_plan_prove(const gyre_plan *plan,
                            const gyre_proof_options *options, gyre_proof *out,
                            gyre_error *error)
{
    gyre_prover v;
    gyre_proof proof;
    gyre_status status =
        gyre_prover_run(&v, plan, options, NULL, &proof, error);
    gyre_prover_free(&v);
    if (status == GYRE_OK)
        *out = proof;
    return status;
}
