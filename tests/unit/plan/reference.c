/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <math.h>
#include <stdlib.h>

double reference_input(uint32_t kind, uint64_t position, uint32_t head,
                       uint32_t dim)
{
    uint64_t x = kind * 0x9e3779b97f4a7c15u + position * 0xff51afd7ed558ccdu +
                 head * 0xc4ceb9fe1a85ec53u + dim * 0x2545f4914f6cdd1du;
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
    return (double)(int64_t)(x ^ (x >> 33)) / 9223372036854775808.0;
}

uint32_t reference_share(const gyre_problem *p)
{
    return p->heads / p->kv_heads;
}

double reference_score(const gyre_problem *p, uint64_t q, uint64_t k,
                       uint32_t head)
{
    double sum = 0;
    for (uint32_t d = 0; d < p->head_dim; d++)
        sum += reference_input(GYRE_VALUE_Q, q, head, d) *
               reference_input(GYRE_VALUE_KV, k, head / reference_share(p), d);
    return sum / sqrt(p->head_dim);
}

static void add_row(reference *r, uint32_t h, uint64_t q)
{
    const gyre_problem *p = &r->of->problem;
    uint64_t tq = p->tokens[0], tk = p->tokens[1];
    uint32_t dv = p->v_head_dim, dk = p->head_dim, kh = h / reference_share(p);
    double *o = r->o + (h * tq + q) * dv, sum = 0, delta = 0;
    double *dq = r->dq + (h * tq + q) * dk;
    bool count = r->mode == INTERPRET_COUNT;
    for (uint64_t k = 0; k < tk; k++)
        if (gyre_mask_allows(r->of->mask, 0, q, k)) {
            double w = count ? 1 : exp(reference_score(p, q, k, h));
            sum += w;
            for (uint32_t d = 0; d < dv; d++)
                o[d] += count
                            ? 1
                            : w * reference_input(GYRE_VALUE_KV, k, kh, dk + d);
        }
    r->lse[h * tq + q] = log(sum);
    for (uint32_t d = 0; d < dv && sum > 0 && !count; d++)
        o[d] /= sum;
    for (uint32_t d = 0; d < dv; d++)
        delta += o[d] * reference_input(GYRE_VALUE_DO, q, h, d);
    for (uint64_t k = 0; k < tk; k++) {
        if (!gyre_mask_allows(r->of->mask, 0, q, k))
            continue;
        double *gk = r->dk + (kh * tk + k) * dk,
               *gv = r->dv + (kh * tk + k) * dv;
        double w = exp(reference_score(p, q, k, h)) / sum, dp = 0;
        for (uint32_t d = 0; d < dv; d++) {
            double g = reference_input(GYRE_VALUE_DO, q, h, d);
            gv[d] += count ? 1 : w * g;
            dp += g * reference_input(GYRE_VALUE_KV, k, kh, dk + d);
        }
        double ds = w * (dp - delta) / sqrt(dk);
        for (uint32_t d = 0; d < dk; d++) {
            dq[d] += count ? 1 : ds * reference_input(GYRE_VALUE_KV, k, kh, d);
            gk[d] += count ? 1 : ds * reference_input(GYRE_VALUE_Q, q, h, d);
        }
    }
}

reference reference_make(const gyre_plan *plan, int mode)
{
    const gyre_problem *p = &plan->problem;
    reference r = {.of = plan, .mode = mode};
    r.o = calloc(p->heads * p->tokens[0] * p->v_head_dim, sizeof(double));
    r.lse = calloc(p->heads * p->tokens[0], sizeof(double));
    r.dq = calloc(p->heads * p->tokens[0] * p->head_dim, sizeof(double));
    r.dk = calloc(p->kv_heads * p->tokens[1] * p->head_dim, sizeof(double));
    r.dv = calloc(p->kv_heads * p->tokens[1] * p->v_head_dim, sizeof(double));
    for (uint32_t h = 0; h < p->heads; h++)
        for (uint64_t q = 0; q < p->tokens[0]; q++)
            add_row(&r, h, q);
    return r;
}

void reference_free(reference *r)
{
    free(r->o);
    free(r->lse);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}
