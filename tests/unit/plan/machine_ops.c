/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <math.h>
#include <string.h>

/* (o, lse) of both into b. */
static void merge(const machine *m, double *b, const double *a)
{
    uint32_t dv = m->plan->problem.v_head_dim;
    if (m->want->mode == INTERPRET_COUNT) {
        for (uint32_t d = 0; d <= dv; d++)
            b[d] += a[d];
        return;
    }
    double most = fmax(a[dv], b[dv]);
    if (most == -INFINITY)
        return;
    double x = exp(a[dv] - most), y = exp(b[dv] - most);
    for (uint32_t d = 0; d < dv; d++)
        b[d] = (a[d] * x + b[d] * y) / (x + y);
    b[dv] = most + log(x + y);
}

static void attend(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row q[MOST_ROWS], k[MOST_ROWS], o[MOST_ROWS];
    uint64_t nq = machine_view_rows(m, rank, views[0], q);
    uint64_t nk = machine_view_rows(m, rank, views[1], k);
    const gyre_problem *p = &m->plan->problem;
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    bool count = m->want->mode == INTERPRET_COUNT;
    machine_view_rows(m, rank, views[2], o);
    for (uint64_t i = 0; i < nq; i++)
        for (uint64_t j = 0; j < nk; j++) {
            if (!gyre_mask_allows(m->plan->mask, 0, q[i].position,
                                  k[j].position))
                continue;
            for (uint32_t h = v->h0; h < v->h1; h++) {
                double *x =
                    machine_element(m, rank, machine_slot_of(m, rank, views[0]),
                                    q[i].in_slot, h);
                double *y =
                    machine_element(m, rank, machine_slot_of(m, rank, views[1]),
                                    k[j].in_slot, h / reference_share(p));
                double one[MOST_DIM + 1], s = 0;
                for (uint32_t d = 0; d < p->head_dim; d++)
                    s += x[d] * y[d];
                for (uint32_t d = 0; d < p->v_head_dim; d++)
                    one[d] = count ? 1 + 0 * s : y[p->head_dim + d];
                one[p->v_head_dim] = count ? 0 : s / sqrt(p->head_dim);
                merge(m,
                      machine_element(m, rank,
                                      machine_slot_of(m, rank, views[2]),
                                      o[i].in_slot, h),
                      one);
            }
        }
}

static void grad(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row r[6][MOST_ROWS];
    uint64_t n[6] = {0};
    for (int i = 0; i < 6; i++)
        if (views[i] != GYRE_NO_VIEW)
            n[i] = machine_view_rows(m, rank, views[i], r[i]);
    const gyre_problem *p = &m->plan->problem;
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    bool count = m->want->mode == INTERPRET_COUNT;
    uint32_t dk = p->head_dim, dv = p->v_head_dim;
    for (uint64_t i = 0; i < n[0]; i++)
        for (uint64_t j = 0; j < n[3]; j++) {
            if (!gyre_mask_allows(m->plan->mask, 0, r[0][i].position,
                                  r[3][j].position))
                continue;
            for (uint32_t h = v->h0; h < v->h1; h++) {
                double *e[6] = {NULL};
                for (int x = 0; x < 6; x++)
                    if (views[x] != GYRE_NO_VIEW)
                        e[x] = machine_element(
                            m, rank, machine_slot_of(m, rank, views[x]),
                            r[x][x == 3 || x == 5 ? j : i].in_slot,
                            x == 3 || x == 5 ? h / reference_share(p) : h);
                double s = 0, dp = 0;
                for (uint32_t d = 0; d < dk; d++)
                    s += e[0][d] * e[3][d];
                double w = exp(s / sqrt(dk) - e[2][0]);
                for (uint32_t d = 0; d < dv; d++)
                    dp += e[1][d] * e[3][dk + d];
                double ds = w * (dp - e[2][1]) / sqrt(dk);
                for (uint32_t d = 0; d < dk && e[4] != NULL; d++)
                    e[4][d] += count ? 1 + 0 * s : ds * e[3][d];
                for (uint32_t d = 0; d < dk && e[5] != NULL; d++)
                    e[5][d] += count ? 1 + 0 * s : ds * e[0][d];
                for (uint32_t d = 0; d < dv && e[5] != NULL; d++)
                    e[5][dk + d] += count ? 1 + 0 * dp : w * e[1][d];
            }
        }
}

static void reduce(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row x[MOST_ROWS], y[MOST_ROWS];
    uint64_t n = machine_view_rows(m, rank, views[0], x);
    uint32_t a, b, kind = machine_kind_of(m, rank, views[0]);
    machine_view_rows(m, rank, views[1], y);
    machine_view_heads(m, rank, views[0], &a, &b);
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = a; h < b; h++) {
            double *from = machine_element(
                m, rank, machine_slot_of(m, rank, views[0]), x[i].in_slot, h);
            double *to = machine_element(
                m, rank, machine_slot_of(m, rank, views[1]), y[i].in_slot, h);
            if (kind == GYRE_VALUE_O_SUM)
                merge(m, to, from);
            else
                for (uint32_t d = 0; d < machine_width(m, kind); d++)
                    to[d] += from[d];
        }
}

/* Also of a FIN: the first `dims` of each, and of ST the planes. */
void machine_copy(machine *m, uint32_t from_rank, uint32_t a_view,
                  uint32_t to_rank, uint32_t b_view)
{
    token_row x[MOST_ROWS], y[MOST_ROWS];
    uint64_t n = machine_view_rows(m, from_rank, a_view, x);
    uint64_t other = machine_view_rows(m, to_rank, b_view, y);
    uint32_t a, b, c, e, kind = machine_kind_of(m, to_rank, b_view);
    uint32_t planes = m->plan->programs[to_rank].views[b_view].planes;
    machine_view_heads(m, from_rank, a_view, &a, &b);
    machine_view_heads(m, to_rank, b_view, &c, &e);
    if (n != other || b - a != e - c) {
        m->failed = "what meets is of different size";
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < b - a; h++) {
            double *from = machine_element(
                m, from_rank, machine_slot_of(m, from_rank, a_view),
                x[i].in_slot, a + h);
            double *to =
                machine_element(m, to_rank, machine_slot_of(m, to_rank, b_view),
                                y[i].in_slot, c + h);
            for (uint32_t d = 0; d < machine_width(m, kind); d++)
                if (kind != GYRE_VALUE_ST || (planes >> d & 1))
                    to[d] = from[d];
        }
}

static void finish(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row x[MOST_ROWS], y[MOST_ROWS];
    uint32_t dv = m->plan->problem.v_head_dim;
    machine_copy(m, rank, views[0], rank, views[1]);
    if (views[2] == GYRE_NO_VIEW)
        return;
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    uint64_t n = machine_view_rows(m, rank, views[0], x);
    machine_view_rows(m, rank, views[2], y);
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = v->h0; h < v->h1; h++)
            *machine_element(m, rank, machine_slot_of(m, rank, views[2]),
                             y[i].in_slot, h) =
                machine_element(m, rank, machine_slot_of(m, rank, views[0]),
                                x[i].in_slot, h)[dv];
}

static void delta(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row r[3][MOST_ROWS];
    uint64_t n = 0;
    for (int i = 0; i < 3; i++)
        n = machine_view_rows(m, rank, views[i], r[i]);
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = v->h0; h < v->h1; h++) {
            double *e[3], sum = 0;
            for (int x = 0; x < 3; x++)
                e[x] =
                    machine_element(m, rank, machine_slot_of(m, rank, views[x]),
                                    r[x][i].in_slot, h);
            for (uint32_t d = 0; d < m->plan->problem.v_head_dim; d++)
                sum += e[0][d] * e[1][d];
            e[2][1] = sum;
        }
}

void machine_compute(machine *m, uint32_t rank, uint32_t o)
{
    const gyre_plan_op *op = &m->plan->programs[rank].ops[o];
    switch (op->code) {
    case GYRE_OP_ATT:
        attend(m, rank, op->view);
        break;
    case GYRE_OP_GRD:
        grad(m, rank, op->view);
        break;
    case GYRE_OP_RED:
        reduce(m, rank, op->view);
        break;
    case GYRE_OP_CPY:
        machine_copy(m, rank, op->view[0], rank, op->view[1]);
        break;
    case GYRE_OP_FIN:
        finish(m, rank, op->view);
        break;
    default:
        delta(m, rank, op->view);
    }
}
