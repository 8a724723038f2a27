/* SPDX-License-Identifier: Apache-2.0 */
/* Lion: the sign of an interpolated momentum, decay on the parameter. */
#define GY_PARAMETERS(P)                                                  \
    P(lr, GYRE_STEP, GYRE_FLOAT(1e-4, 0.0, GYRE_NO_LIMIT, "[)"),          \
      "learning rate")                                                    \
    P(beta1, GYRE_STEP, GYRE_FLOAT(0.9, 0.0, 1.0, "[)"),                  \
      "weight of the momentum in the step's sign")                        \
    P(beta2, GYRE_STEP, GYRE_FLOAT(0.99, 0.0, 1.0, "[)"),                 \
      "decay rate of the momentum")                                       \
    P(weight_decay, GYRE_STEP, GYRE_FLOAT(0.0, 0.0, GYRE_NO_LIMIT, "[)"), \
      "decay of the parameter, times the learning rate")                  \
    P(maximize, GYRE_STEP, GYRE_SWITCH(0), "climb instead of descend")
#define GY_SLOTS(S) S(exp_avg, 0.0, NULL)
#define GY_SCALARS(S)  \
    S(direction)       \
    S(one_minus_beta1) \
    S(one_minus_beta2) \
    S(decay)           \
    S(lr)
#include <gyre/plugin.h>

#include "lion.kernel"

static void lion_scalars(const gy_values *v, uint64_t t, const gyre_math *math,
                         gy_scalars *s)
{
    (void)t;
    (void)math;
    s->direction = v->maximize != 0.0 ? -1.0 : 1.0;
    s->one_minus_beta1 = 1.0 - v->beta1;
    s->one_minus_beta2 = 1.0 - v->beta2;
    s->decay = v->lr * v->weight_decay;
    s->lr = v->lr;
}

GYRE_OPTIMIZER(lion, "1.0.0", "Lion: steps of one size, by sign", "Apache-2.0",
               GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT, 1,
               gy_first_variant, gy_no_check, lion_scalars)
GYRE_MODULE(lion, &gyre_plugin_lion)
