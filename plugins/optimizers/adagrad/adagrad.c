/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdaGrad.
 *
 * decay_in = both: as PyTorch, the decayed gradient enters sum and numerator.
 * decay_in = sum_only: as DeepSpeed and Smart-Infinity, it enters the sum, and
 * the numerator is the plain gradient.
 */
#define GY_PARAMETERS(P)                                                  \
    P(lr, GYRE_STEP, GYRE_FLOAT(1e-2, 0.0, GYRE_NO_LIMIT, "[)"),          \
      "learning rate")                                                    \
    P(lr_decay, GYRE_STEP, GYRE_FLOAT(0.0, 0.0, GYRE_NO_LIMIT, "[)"),     \
      "lr falls as 1 / (1 + (t - 1) lr_decay)")                           \
    P(weight_decay, GYRE_STEP, GYRE_FLOAT(0.0, 0.0, GYRE_NO_LIMIT, "[)"), \
      "times the parameter, added to the gradient")                       \
    P(initial_accumulator_value, GYRE_STRUCTURAL,                         \
      GYRE_FLOAT(0.0, 0.0, GYRE_NO_LIMIT, "[)"), "where the sum starts")  \
    P(eps, GYRE_STEP, GYRE_FLOAT(1e-10, 1e-38, GYRE_NO_LIMIT, "[)"),      \
      "added to the root")                                                \
    P(maximize, GYRE_STEP, GYRE_SWITCH(0), "climb instead of descend")    \
    P(decay_in, GYRE_STEP, GYRE_CHOICE(0, "both|sum_only"),               \
      "where the decayed gradient enters")
#define GY_SLOTS(S) S(sum, 0.0, "initial_accumulator_value")
#define GY_SCALARS(S)  \
    S(direction)       \
    S(weight_decay)    \
    S(numerator_decay) \
    S(eps)             \
    S(rate)
#include <gyre/plugin.h>

#include "adagrad.kernel"

enum { DECAY_IN_BOTH, DECAY_IN_SUM_ONLY };

static void adagrad_scalars(const gy_values *v, uint64_t t,
                            const gyre_math *math, gy_scalars *s)
{
    (void)math;
    s->direction = v->maximize != 0.0 ? -1.0 : 1.0;
    s->weight_decay = v->weight_decay;
    s->numerator_decay =
        (int)v->decay_in == DECAY_IN_BOTH ? v->weight_decay : 0.0;
    s->eps = v->eps;
    s->rate = v->lr / (1.0 + (double)(t - 1) * v->lr_decay);
}

GYRE_OPTIMIZER(adagrad, "1.0.0",
               "AdaGrad: a rate per element from the sum "
               "of squares",
               "Apache-2.0",
               GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT, 1,
               gy_first_variant, gy_no_check, adagrad_scalars)
GYRE_MODULE(adagrad, &gyre_plugin_adagrad)
