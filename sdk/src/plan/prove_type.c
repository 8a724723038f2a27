/* SPDX-License-Identifier: Apache-2.0 */
/* Each slot, view and op on its own. */
#include "plan/prove.h"

static const uint32_t NONE = GYRE_NO_VIEW;

typedef struct type_walk {
    gyre_prover *v;
    const gyre_plan *plan;
    const gyre_plan_program *program;
    uint32_t rank, op;
} type_walk;

static const char *name_of(const type_walk *w, const gyre_plan_view *view)
{
    return gyre_value_name(w->program->slots[view->slot].kind);
}

/* ---- slots --------------------------------------------------------------- */

/* What stands in the slot before the first op. */
bool gyre_prove_given(uint32_t pass, const gyre_plan_slot *slot)
{
    bool external = slot->flags & GYRE_SLOT_EXTERNAL;
    bool saved = slot->flags & GYRE_SLOT_SAVED;
    switch (slot->kind) {
    case GYRE_VALUE_Q:
    case GYRE_VALUE_KV:
        return external || (saved && pass == GYRE_PASS_BACKWARD);
    case GYRE_VALUE_DO:
        return external;
    case GYRE_VALUE_O:
    case GYRE_VALUE_ST:
        return saved && pass == GYRE_PASS_BACKWARD;
    default:
        return false;
    }
}

static bool external_kind(uint32_t pass, const gyre_plan_slot *slot)
{
    if (slot->kind == GYRE_VALUE_Q || slot->kind == GYRE_VALUE_KV)
        return true;
    if (slot->kind == GYRE_VALUE_O || slot->kind == GYRE_VALUE_ST)
        return pass == GYRE_PASS_FORWARD || (slot->flags & GYRE_SLOT_SAVED);
    return pass == GYRE_PASS_BACKWARD &&
           (slot->kind == GYRE_VALUE_DO || slot->kind == GYRE_VALUE_DQ ||
            slot->kind == GYRE_VALUE_DKV);
}

static bool slot_type(type_walk *w, uint32_t s)
{
    const gyre_plan_slot *slot = &w->program->slots[s];
    const gyre_problem *problem = &w->plan->problem;
    const char *name = gyre_value_name(slot->kind);
    uint32_t want = problem->dtype, other = problem->dtype;
    if (gyre_value_is_sum(slot->kind)) {
        want = problem->sum_dtype;
        other = problem->wire_dtype;
    } else if (slot->kind == GYRE_VALUE_ST) {
        want = other = problem->stat_dtype;
    }
    if (slot->dtype != want && slot->dtype != other)
        return gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, NONE,
                               "slot %u (%s) is %s, not %s", s, name,
                               gyre_dtype_name((gyre_dtype)slot->dtype),
                               gyre_dtype_name((gyre_dtype)want));
    if (slot->flags != 0 && gyre_value_is_sum(slot->kind))
        return gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, NONE,
                               "slot %u (%s) is a sum: nobody outside the plan "
                               "has one",
                               s, name);
    if ((slot->flags & GYRE_SLOT_EXTERNAL) &&
        (slot->rows != w->plan->owned[gyre_value_side(slot->kind)][w->rank] ||
         slot->h0 != 0 || slot->h1 != problem->heads ||
         !external_kind(w->plan->pass, slot)))
        return gyre_prove_fail(
            w->v, w->rank, NONE, NONE, NONE, NONE,
            "slot %u (%s) is external: the user has the rank's own rows with "
            "all heads of the pass's inputs and outputs",
            s, name);
    if ((slot->flags & GYRE_SLOT_SAVED) && slot->kind > GYRE_VALUE_ST)
        return gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, NONE,
                               "slot %u (%s) is no kind that is saved", s,
                               name);
    return true;
}

/* What outlives the pass has its buf for itself; one output of a kind. */
static bool buf_types(type_walk *w)
{
    const gyre_plan_program *p = w->program;
    gyre_context *context = w->v->context;
    uint32_t *tenants =
        gyre_alloc_zero(context, (size_t)p->buf_count + 1, sizeof(*tenants));
    if (tenants == NULL)
        return gyre_prove_no_memory(w->v);
    for (uint32_t s = 0; s < p->slot_count; s++)
        tenants[p->slots[s].buf]++;
    uint32_t seen[GYRE_VALUE_COUNT] = {0};
    for (uint32_t s = 0; s < p->slot_count; s++) {
        const gyre_plan_slot *slot = &p->slots[s];
        if (slot->flags != 0 && tenants[slot->buf] > 1)
            gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, NONE,
                            "slot %u (%s) outlives the pass, but another slot "
                            "has its buf %u too",
                            s, gyre_value_name(slot->kind), slot->buf);
        else if ((slot->flags & GYRE_SLOT_EXTERNAL) && seen[slot->kind]++ > 0)
            gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, NONE,
                            "slot %u is a second external %s", s,
                            gyre_value_name(slot->kind));
    }
    gyre_free(context, tenants, (size_t)p->buf_count + 1, sizeof(*tenants));
    return !w->v->failed;
}

/* ---- views --------------------------------------------------------------- */

static bool rows_within(const gyre_plan *plan, uint32_t some, uint32_t all)
{
    if (some == all)
        return true;
    const gyre_plan_rows *x = &plan->rows[some], *y = &plan->rows[all];
    if (x->side != y->side || x->count > y->count)
        return false;
    const uint32_t *a = plan->row_chunks + x->first;
    const uint32_t *b = plan->row_chunks + y->first;
    /* Lower bound for each: a view of few rows in a slot of many is cheap. */
    for (uint32_t i = 0, at = 0; i < x->count; i++) {
        uint32_t end = y->count;
        while (at < end) {
            uint32_t middle = at + (end - at) / 2;
            if (b[middle] < a[i])
                at = middle + 1;
            else
                end = middle;
        }
        if (at == y->count || b[at] != a[i])
            return false;
    }
    return true;
}

static bool view_type(type_walk *w, uint32_t id)
{
    const gyre_plan_view *view = &w->program->views[id];
    const gyre_plan_slot *slot = &w->program->slots[view->slot];
    if (!rows_within(w->plan, view->rows, slot->rows))
        return gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, NONE,
                               "view %u has rows that its slot %u lacks", id,
                               view->slot);
    if (view->h0 < slot->h0 || view->h1 > slot->h1)
        return gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, view->h0,
                               "view %u has heads %u..%u of slot %u, which has "
                               "%u..%u",
                               id, view->h0, view->h1, view->slot, slot->h0,
                               slot->h1);
    uint32_t full = gyre_value_planes(slot->kind);
    if (view->planes == 0 || (view->planes & ~full) != 0)
        return gyre_prove_fail(w->v, w->rank, NONE, NONE, NONE, NONE,
                               "view %u has planes %u of slot %u (%s)", id,
                               view->planes, view->slot,
                               gyre_value_name(slot->kind));
    return true;
}

/* ---- ops ----------------------------------------------------------------- */

static const gyre_plan_view *view_of(const type_walk *w, uint32_t i)
{
    uint32_t id = w->program->ops[w->op].view[i];
    return id == NONE ? NULL : &w->program->views[id];
}

static uint32_t kind_of(const type_walk *w, uint32_t i)
{
    const gyre_plan_view *view = view_of(w, i);
    return view ? w->program->slots[view->slot].kind : GYRE_VALUE_COUNT;
}

static bool wrong(type_walk *w, const char *what)
{
    return gyre_prove_fail(w->v, w->rank, w->op, NONE, NONE, NONE, "%s %s",
                           gyre_op_name(w->program->ops[w->op].code), what);
}

/* View i is of `kind` with planes, and has the rows and heads of view `like`.
 */
static bool is(type_walk *w, uint32_t i, uint32_t kind, uint32_t planes,
               uint32_t like)
{
    const gyre_plan_view *view = view_of(w, i), *other = view_of(w, like);
    if (view == NULL)
        return true;
    if (kind_of(w, i) != kind)
        return gyre_prove_fail(w->v, w->rank, w->op, NONE, NONE, NONE,
                               "view %u of %s is %s, not %s", i,
                               gyre_op_name(w->program->ops[w->op].code),
                               name_of(w, view), gyre_value_name(kind));
    if (view->planes != planes)
        return wrong(w, "has a view of the wrong planes of ST");
    if (other == NULL)
        return true;
    bool one_side = gyre_value_side(kind) == gyre_value_side(kind_of(w, like));
    if (one_side && view->rows != other->rows)
        return wrong(w, "has views of different rows");
    if (view->h0 != other->h0 || view->h1 != other->h1)
        return wrong(w, "has views of different heads");
    return true;
}

/* Sums that are added to have the dtype of sums. */
static bool is_wide(type_walk *w, uint32_t i)
{
    const gyre_plan_view *view = view_of(w, i);
    if (view == NULL ||
        w->program->slots[view->slot].dtype == w->plan->problem.sum_dtype)
        return true;
    return gyre_prove_fail(
        w->v, w->rank, w->op, NONE, NONE, NONE,
        "%s works on %s of %s: sums stay %s until FIN, %s is for the wire",
        gyre_op_name(w->program->ops[w->op].code), name_of(w, view),
        gyre_dtype_name((gyre_dtype)w->program->slots[view->slot].dtype),
        gyre_dtype_name((gyre_dtype)w->plan->problem.sum_dtype),
        gyre_dtype_name((gyre_dtype)w->plan->problem.wire_dtype));
}

static bool fin_type(type_walk *w)
{
    static const uint32_t final[GYRE_VALUE_COUNT + 1] = {
        [GYRE_VALUE_O_SUM] = GYRE_VALUE_O + 1,
        [GYRE_VALUE_DQ_SUM] = GYRE_VALUE_DQ + 1,
        [GYRE_VALUE_DKV_SUM] = GYRE_VALUE_DKV + 1,
    };
    uint32_t kind = kind_of(w, 0);
    if (final[kind] == 0)
        return wrong(w, "ends what is no sum");
    if (!is_wide(w, 0) || !is(w, 1, final[kind] - 1, 1, 0) ||
        !is(w, 2, GYRE_VALUE_ST, GYRE_PLANE_LSE, 0))
        return false;
    if (view_of(w, 2) != NULL && kind != GYRE_VALUE_O_SUM)
        return wrong(w, "has statistics from O* alone");
    const gyre_plan_view *view = view_of(w, 0);
    uint32_t share = w->plan->problem.heads / w->plan->problem.kv_heads;
    if (kind == GYRE_VALUE_DKV_SUM &&
        (view->h0 % share != 0 || view->h1 % share != 0))
        return wrong(w, "ends a part of the queries of a KV head");
    return true;
}

static bool copy_type(type_walk *w)
{
    const gyre_plan_view *from = view_of(w, 0), *to = view_of(w, 1);
    return is(w, 1, kind_of(w, 0), from->planes, 0) &&
           is(w, 0, kind_of(w, 1), to->planes, 1);
}

static bool kinds(type_walk *w)
{
    enum { BOTH = GYRE_PLANE_LSE | GYRE_PLANE_DELTA };
    switch (w->program->ops[w->op].code) {
    case GYRE_OP_ATT:
        return is(w, 0, GYRE_VALUE_Q, 1, 0) && is(w, 1, GYRE_VALUE_KV, 1, 0) &&
               is(w, 2, GYRE_VALUE_O_SUM, 1, 0) && is_wide(w, 2);
    case GYRE_OP_GRD:
        if (view_of(w, 4) == NULL && view_of(w, 5) == NULL)
            return wrong(w, "has no output");
        return is(w, 0, GYRE_VALUE_Q, 1, 0) && is(w, 1, GYRE_VALUE_DO, 1, 0) &&
               is(w, 2, GYRE_VALUE_ST, BOTH, 0) &&
               is(w, 3, GYRE_VALUE_KV, 1, 0) &&
               is(w, 4, GYRE_VALUE_DQ_SUM, 1, 0) &&
               is(w, 5, GYRE_VALUE_DKV_SUM, 1, 3) && is_wide(w, 4) &&
               is_wide(w, 5);
    case GYRE_OP_RED:
        if (!gyre_value_is_sum(kind_of(w, 0)))
            return wrong(w, "adds what is no sum");
        return is(w, 1, kind_of(w, 0), 1, 0) && is_wide(w, 1);
    case GYRE_OP_CPY:
        return copy_type(w);
    case GYRE_OP_FIN:
        return fin_type(w);
    case GYRE_OP_DLT:
        return is(w, 0, GYRE_VALUE_O, 1, 0) && is(w, 1, GYRE_VALUE_DO, 1, 0) &&
               is(w, 2, GYRE_VALUE_ST, GYRE_PLANE_DELTA, 0);
    default: /* PUT and GET carry anything */
        return w->program->ops[w->op].view[1] != w->rank ||
               wrong(w, "is with the rank itself: use CPY");
    }
}

/* What was given stays; but delta is written beside a given LSE. */
static bool keeps_given(type_walk *w)
{
    const gyre_plan_op *op = &w->program->ops[w->op];
    for (uint32_t i = 0; i < gyre_op_views(op->code); i++) {
        const gyre_plan_view *view = view_of(w, i);
        if (view == NULL || !(gyre_op_writes(op->code) >> i & 1))
            continue;
        const gyre_plan_slot *slot = &w->program->slots[view->slot];
        if (gyre_prove_given(w->plan->pass, slot) &&
            !(slot->kind == GYRE_VALUE_ST && view->planes == GYRE_PLANE_DELTA))
            return gyre_prove_fail(w->v, w->rank, w->op, NONE, NONE, NONE,
                                   "%s writes over slot %u (%s), which was "
                                   "given",
                                   gyre_op_name(op->code), view->slot,
                                   gyre_value_name(slot->kind));
    }
    return true;
}

static bool bufs_apart(type_walk *w)
{
    const gyre_plan_program *p = w->program;
    uint32_t count = gyre_op_views(p->ops[w->op].code);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++) {
            const gyre_plan_view *a = view_of(w, i), *b = view_of(w, j);
            if (a != NULL && b != NULL &&
                p->slots[a->slot].buf == p->slots[b->slot].buf)
                return gyre_prove_fail(w->v, w->rank, w->op, NONE, NONE, NONE,
                                       "%s has two views in buf %u",
                                       gyre_op_name(p->ops[w->op].code),
                                       p->slots[a->slot].buf);
        }
    return true;
}

bool gyre_prove_types(gyre_prover *v)
{
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        type_walk w = {v, v->plan, p, r, 0};
        for (uint32_t s = 0; s < p->slot_count; s++)
            if (!slot_type(&w, s))
                return false;
        if (!buf_types(&w))
            return false;
        for (uint32_t i = 0; i < p->view_count; i++)
            if (!view_type(&w, i))
                return false;
        for (w.op = 0; w.op < p->op_count; w.op++)
            if (!kinds(&w) || !keeps_given(&w) || !bufs_apart(&w))
                return false;
        uint32_t clash = v->rank[r].order.clash_unit;
        if (clash != NONE)
            return gyre_prove_fail(v, r, p->units[clash].first, NONE, NONE,
                                   NONE,
                                   "two transfers of one group touch the same "
                                   "rows, heads or buf");
    }
    return true;
}
