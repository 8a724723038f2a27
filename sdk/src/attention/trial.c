/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan against the definition.
 *
 *     seed --> values of every element, by position --> each rank's tensors
 *     run: forward, backward --> packed rows --> rank 0 --> whole tensors
 *     whole tensors  <-- compare -->  naive reference (f64)
 *                    bound: the same kernel on one rank, no schedule
 *
 * Whole tensors are f64, [batch][head][position][dim].
 */
#include "attention/trial.h"

#include <math.h>
#include <string.h>

/* ---- whole tensors ---------------------------------------------------------
 */

static const char *const names[GYRE_TRIAL_TENSORS] = {"O", "LSE", "DQ", "DK",
                                                      "DV"};

const char *gyre_trial_name(uint32_t tensor)
{
    return names[tensor];
}

bool gyre_whole_make(gyre_context *context, const gyre_problem *p,
                     gyre_whole *out)
{
    uint64_t q = p->tokens[GYRE_SIDE_Q], kv = p->tokens[GYRE_SIDE_KV];
    const gyre_shape shapes[GYRE_WHOLE_COUNT] = {
        [GYRE_WHOLE_Q] = {p->heads, q, p->head_dim},
        [GYRE_WHOLE_K] = {p->kv_heads, kv, p->head_dim},
        [GYRE_WHOLE_V] = {p->kv_heads, kv, p->v_head_dim},
        [GYRE_WHOLE_DO] = {p->heads, q, p->v_head_dim},
        [GYRE_WHOLE_O] = {p->heads, q, p->v_head_dim},
        [GYRE_WHOLE_LSE] = {p->heads, q, 1},
        [GYRE_WHOLE_DQ] = {p->heads, q, p->head_dim},
        [GYRE_WHOLE_DK] = {p->kv_heads, kv, p->head_dim},
        [GYRE_WHOLE_DV] = {p->kv_heads, kv, p->v_head_dim},
    };
    *out = (gyre_whole){.context = context, .batch = p->batch};
    for (uint32_t i = 0; i < GYRE_WHOLE_COUNT; i++) {
        const gyre_shape *s = &shapes[i];
        out->shape[i] = *s;
        out->elements[i] = (size_t)p->batch * s->heads * s->rows * s->dim;
        out->at[i] = gyre_alloc_zero(context, out->elements[i], sizeof(double));
        if (out->at[i] == NULL) {
            gyre_whole_free(out);
            return false;
        }
    }
    return true;
}

void gyre_whole_free(gyre_whole *whole)
{
    for (uint32_t i = 0; i < GYRE_WHOLE_COUNT; i++) {
        if (whole->context != NULL)
            gyre_free(whole->context, whole->at[i], whole->elements[i],
                      sizeof(double));
        whole->at[i] = NULL;
    }
}

/* Between -1 and 1, rounded to the dtype: what every rank computes for itself
 * without asking. */
static double draw(uint64_t seed, uint32_t which, uint64_t index,
                   gyre_dtype dtype)
{
    uint32_t word = gyre_hash((uint32_t)seed ^ (which * 0x9e3779b9u),
                              (uint32_t)(seed >> 32) + (uint32_t)(index >> 32),
                              (uint32_t)index);
    float value = (float)((int32_t)word) * 0x1p-31f;
    if (dtype != GYRE_F64 && dtype != GYRE_F32) {
        uint16_t narrow;
        gyre_from_f32(dtype, &value, &narrow, 1);
        gyre_to_f32(dtype, &narrow, 1, &value, 1);
    }
    return (double)value;
}

void gyre_whole_fill(gyre_whole *whole, uint64_t seed, gyre_dtype dtype)
{
    for (uint32_t which = GYRE_WHOLE_Q; which <= GYRE_WHOLE_DO; which++)
        for (size_t i = 0; i < whole->elements[which]; i++)
            whole->at[which][i] = draw(seed, which, i, dtype);
}

gyre_status gyre_whole_reference(gyre_whole *w, const gyre_plan *plan,
                                 const gyre_kernel_params *params, bool count,
                                 bool backward, gyre_error *error)
{
    size_t keys = (size_t)plan->problem.tokens[GYRE_SIDE_KV];
    double *row = gyre_alloc(w->context, keys, sizeof(double));
    if (row == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a reference");
    gyre_naive naive = {.problem = &plan->problem,
                        .mask = plan->mask,
                        .params = *params,
                        .count = count,
                        .q = w->at[GYRE_WHOLE_Q],
                        .k = w->at[GYRE_WHOLE_K],
                        .v = w->at[GYRE_WHOLE_V],
                        .d_o = w->at[GYRE_WHOLE_DO],
                        .o = w->at[GYRE_WHOLE_O],
                        .lse = w->at[GYRE_WHOLE_LSE],
                        .d_q = backward ? w->at[GYRE_WHOLE_DQ] : NULL,
                        .d_k = w->at[GYRE_WHOLE_DK],
                        .d_v = w->at[GYRE_WHOLE_DV],
                        .row = row};
    gyre_naive_run(&naive);
    gyre_free(w->context, row, keys, sizeof(double));
    return GYRE_OK;
}

/* ---- comparison
 * ---------------------------------------------------------------- */

/* Largest |a - b|, infinities of one sign being equal; NaN: infinity. */
static double farthest(const double *a, const double *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i])
            continue;
        double apart = fabs(a[i] - b[i]);
        if (!(apart <= most))
            most = isnan(apart) ? INFINITY : apart;
    }
    return most;
}

static double largest(const double *a, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(a[i]) && fabs(a[i]) > most)
            most = fabs(a[i]);
    return most;
}

static uint64_t hash_of(const double *a, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &a[i], sizeof(bits));
        hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

/* LSE is in f32 whatever the tensors have, on the wire as well. */
static double bound_of(const gyre_trial_rule *rule, uint32_t tensor,
                       double reference, double alone)
{
    bool lse = tensor == GYRE_TRIAL_LSE;
    double epsilon = rule->dtype == GYRE_F64 ? 0x1p-52 : 0x1p-23;
    if (rule->dtype == GYRE_BF16 && !lse)
        epsilon = 0x1p-7;
    if (rule->count)
        return 0;
    if (rule->dtype == GYRE_F64)
        return 1e-12 * reference;
    double bound = fmax(2 * alone, 4 * epsilon * reference);
    /* A sum over more ranks than 8 is rounded more often than that: half an
     * eps for each rank's part. */
    bound = fmax(bound, rule->ranks * 0x1p-24 * reference);
    if (rule->narrow_wire && !lse)
        bound = fmax(bound, (1 + rule->casts[tensor]) * 0x1p-8 * reference);
    return bound;
}

void gyre_whole_compare(const gyre_whole *got, const gyre_whole *reference,
                        const gyre_whole *alone, const gyre_trial_rule *rule,
                        gyre_trial *out)
{
    out->ok = 1;
    for (uint32_t i = 0; i < GYRE_TRIAL_TENSORS; i++) {
        uint32_t which = GYRE_WHOLE_O + i;
        size_t n = got->elements[which];
        gyre_trial_tensor *t = &out->tensor[i];
        *t = (gyre_trial_tensor){.name = names[i]};
        if (!rule->compared[i])
            continue;
        double most = largest(reference->at[which], n);
        t->compared = 1;
        t->max_abs_error = farthest(got->at[which], reference->at[which], n);
        t->max_rel_error =
            most > 0 ? t->max_abs_error / most : t->max_abs_error;
        double own = farthest(alone->at[which], reference->at[which], n);
        t->bound = bound_of(rule, i, most, own);
        /* A NaN of the kernel's own is no measure for another. */
        t->ok = isfinite(own) && isfinite(t->max_abs_error) &&
                t->max_abs_error <= t->bound;
        t->hash = hash_of(got->at[which], n);
        out->ok &= t->ok;
    }
}
