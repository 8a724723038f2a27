/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stochastic gradient descent with momentum.
 *
 * averaging = torch: the buffer starts as the first gradient, undamped; later
 * b = momentum b + (1 - dampening) g.  averaging = ema: b = momentum b +
 * (1 - momentum) g from b = 0, the form that Smart-Infinity's kernel has.
 */
#define GY_PARAMETERS(P)                                                  \
    P(lr, GYRE_STEP, GYRE_FLOAT(1e-3, 0.0, GYRE_NO_LIMIT, "[)"),          \
      "learning rate")                                                    \
    P(momentum, GYRE_STEP, GYRE_FLOAT(0.0, 0.0, 1.0, "[]"),               \
      "part of the buffer that stays")                                    \
    P(dampening, GYRE_STEP, GYRE_FLOAT(0.0, 0.0, 1.0, "[]"),              \
      "part of the gradient that does not enter the buffer")              \
    P(nesterov, GYRE_STEP, GYRE_SWITCH(0), "look ahead along the buffer") \
    P(weight_decay, GYRE_STEP, GYRE_FLOAT(0.0, 0.0, GYRE_NO_LIMIT, "[)"), \
      "times the parameter, added to the gradient")                       \
    P(maximize, GYRE_STEP, GYRE_SWITCH(0), "climb instead of descend")    \
    P(averaging, GYRE_STEP, GYRE_CHOICE(0, "torch|ema"),                  \
      "buffer as PyTorch has it, or an exponential mean from zero")
#define GY_SLOTS(S) S(momentum_buffer, 0.0, NULL)
#define GY_SCALARS(S) \
    S(direction)      \
    S(weight_decay)   \
    S(keep)           \
    S(take)           \
    S(pull)           \
    S(own)            \
    S(lr)
#define GY_SWITCHES(S) S(GY_MOMENTUM)
#define GY_VARIANTS(V) \
    V(plain, 0, 0)     \
    V(momentum, GY_ALL, GY_ON(GY_MOMENTUM))
#include <gyre/plugin.h>

#include "sgd.kernel"

enum { AVERAGING_TORCH, AVERAGING_EMA };

static uint32_t sgd_variant(const gy_values *v)
{
    return v->momentum > 0.0 ? gy_variant_momentum : gy_variant_plain;
}

static const char *sgd_check(const gy_values *v)
{
    if (v->nesterov == 0.0)
        return NULL;
    if (v->momentum <= 0.0 || v->dampening != 0.0)
        return "nesterov needs momentum above 0 and dampening 0";
    if ((int)v->averaging == AVERAGING_EMA)
        return "nesterov needs averaging = torch";
    return NULL;
}

static void sgd_scalars(const gy_values *v, uint64_t t, const gyre_math *math,
                        gy_scalars *s)
{
    (void)math;
    s->direction = v->maximize != 0.0 ? -1.0 : 1.0;
    s->weight_decay = v->weight_decay;
    s->lr = v->lr;
    s->keep = v->momentum;
    s->pull = 1.0;
    s->own = 0.0;
    if ((int)v->averaging == AVERAGING_EMA) {
        s->take = 1.0 - v->momentum;
        return;
    }
    s->take = 1.0 - v->dampening;
    if (v->momentum == 0.0) { /* PyTorch does not touch the buffer then */
        s->keep = 1.0;
        s->take = 0.0;
        s->pull = 0.0;
        s->own = 1.0;
    } else if (t == 1) {
        s->keep = 0.0;
        s->take = 1.0;
    }
    if (v->nesterov != 0.0) {
        s->pull = v->momentum;
        s->own = 1.0;
    }
}

GYRE_OPTIMIZER(sgd, "1.0.0", "stochastic gradient descent with momentum",
               "Apache-2.0",
               GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT, 1,
               sgd_variant, sgd_check, sgd_scalars)
GYRE_MODULE(sgd, &gyre_plugin_sgd)
