/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signum, an optimizer plugin in one page: steps of one size along the sign of
 * the momentum.
 *
 *     cc -shared -fPIC $(pkg-config --cflags gyre-plugin) signum.c \
 *         -o signum.so $(pkg-config --libs gyre-plugin)
 *     gyre plugins signum --plugin-path .
 */
#define GY_PARAMETERS(P)                                         \
    P(lr, GYRE_STEP, GYRE_FLOAT(1e-3, 0.0, GYRE_NO_LIMIT, "[)"), \
      "learning rate")                                           \
    P(momentum, GYRE_STEP, GYRE_FLOAT(0.9, 0.0, 1.0, "[)"),      \
      "decay rate of the momentum")
#define GY_SLOTS(S) S(momentum_buffer, 0.0, NULL)
#define GY_SCALARS(S) S(rest) S(lr)
#include <gyre/plugin.h>

#include "signum.kernel"

/* Once per step and group, in double; each is rounded once to float. */
static void signum_scalars(const gy_values *v, uint64_t t,
                           const gyre_math *math, gy_scalars *s)
{
    (void)t;
    (void)math;
    s->rest = 1.0 - v->momentum;
    s->lr = v->lr;
}

GYRE_OPTIMIZER(signum, "1.0.0", "Steps of one size, by the momentum's sign",
               "Apache-2.0",
               GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT, 1,
               gy_first_variant, gy_no_check, signum_scalars)
GYRE_MODULE(signum, &gyre_plugin_signum)
