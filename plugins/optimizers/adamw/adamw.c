/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW: Adam with decay applied to the parameter itself, as PyTorch has it. */
#define GY_PARAMETERS(P)                                                   \
    P(lr, GYRE_STEP, GYRE_FLOAT(1e-3, 0.0, GYRE_NO_LIMIT, "[)"),           \
      "learning rate")                                                     \
    P(beta1, GYRE_STEP, GYRE_FLOAT(0.9, 0.0, 1.0, "[)"),                   \
      "decay rate of the first moment")                                    \
    P(beta2, GYRE_STEP, GYRE_FLOAT(0.999, 0.0, 1.0, "[)"),                 \
      "decay rate of the second moment")                                   \
    P(eps, GYRE_STEP, GYRE_FLOAT(1e-8, 1e-38, GYRE_NO_LIMIT, "[)"),        \
      "added to the root, after bias correction")                          \
    P(weight_decay, GYRE_STEP, GYRE_FLOAT(1e-2, 0.0, GYRE_NO_LIMIT, "[)"), \
      "decay of the parameter, times the learning rate")                   \
    P(amsgrad, GYRE_STRUCTURAL, GYRE_SWITCH(0),                            \
      "divide by the largest second moment so far")                        \
    P(maximize, GYRE_STEP, GYRE_SWITCH(0), "climb instead of descend")     \
    P(bias_correction, GYRE_STEP, GYRE_SWITCH(1),                          \
      "correct the moments for their start at zero")
#define GY_SLOTS(S)          \
    S(exp_avg, 0.0, NULL)    \
    S(exp_avg_sq, 0.0, NULL) \
    S(max_exp_avg_sq, 0.0, NULL)
#define GY_SCALARS(S)       \
    S(direction)            \
    S(one_minus_beta1)      \
    S(one_minus_beta2)      \
    S(inv_sqrt_correction2) \
    S(eps)                  \
    S(decay)                \
    S(step)
#define GY_SWITCHES(S) S(GY_AMSGRAD)
#define GY_VARIANTS(V)                                  \
    V(plain, GY_SLOT(exp_avg) | GY_SLOT(exp_avg_sq), 0) \
    V(amsgrad, GY_ALL, GY_ON(GY_AMSGRAD))
#include <gyre/plugin.h>

#include "adamw.kernel"

static uint32_t adamw_variant(const gy_values *v)
{
    return v->amsgrad != 0.0 ? gy_variant_amsgrad : gy_variant_plain;
}

static void adamw_scalars(const gy_values *v, uint64_t t, const gyre_math *math,
                          gy_scalars *s)
{
    double correction1 = 1.0, correction2 = 1.0;

    if (v->bias_correction != 0.0) {
        correction1 = 1.0 - math->powi(v->beta1, t);
        correction2 = 1.0 - math->powi(v->beta2, t);
    }
    s->direction = v->maximize != 0.0 ? -1.0 : 1.0;
    s->one_minus_beta1 = 1.0 - v->beta1;
    s->one_minus_beta2 = 1.0 - v->beta2;
    s->inv_sqrt_correction2 = 1.0 / math->sqrt(correction2);
    s->eps = v->eps;
    s->decay = v->lr * v->weight_decay;
    s->step = v->lr / correction1;
}

GYRE_OPTIMIZER(adamw, "1.0.0",
               "Adam with decoupled weight decay (PyTorch's AdamW)",
               "Apache-2.0",
               GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT, 1,
               adamw_variant, gy_no_check, adamw_scalars)
GYRE_MODULE(adamw, &gyre_plugin_adamw)
