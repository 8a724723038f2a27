/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a plugin's compiler keep a product and a sum apart?
 *
 * GCC fuses a*b+c by default wherever the target has FMA, clang within one
 * expression, and neither says so in a predefined macro.  The header compiles
 * a bare a*b+c per instruction set with the plugin's own flags; here it runs
 * on values for which the fused result differs in its last bit.
 */
#include "config.h"

#include "registry/registry.h"

#include <string.h>

enum { PROBE_N = 67 };

static const char *const loop_names[GYRE_LOOP_COUNT] = {"scalar", "AVX2",
                                                        "AVX-512"};

bool gyre_loop_runs_here(int loop)
{
    switch (loop) {
    case GYRE_LOOP_SCALAR:
        return true;
#if defined(__x86_64__)
    case GYRE_LOOP_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case GYRE_LOOP_AVX512:
        return gyre_loop_runs_here(GYRE_LOOP_AVX2) &&
               __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw");
#endif
    default:
        return false;
    }
}

/* a = 1 + i 2^-12: a*a has 24 bits too many for f32 and c cancels its head, so
 * that the fused sum keeps what the rounded product lost. */
static void make_values(float *a, float *c)
{
    for (int i = 0; i < PROBE_N; i++) {
        volatile float product;

        a[i] = 1.0f + (float)(2 * i + 1) * 0x1p-12f;
        product = a[i] * a[i];
        c[i] = -product;
    }
}

gyre_status gyre_probe_run(const gyre_build *build, const char *where,
                           gyre_error *error)
{
    float a[PROBE_N], c[PROBE_N], out[PROBE_N];
    gyre_fp saved = gyre_fp_pin();
    int fused = -1;

    make_values(a, c);
    for (int k = 0; k < GYRE_LOOP_COUNT && k < (int)build->probe_count; k++) {
        if (build->probes[k] == NULL || !gyre_loop_runs_here(k))
            continue;
        memset(out, 0xff, sizeof(out));
        build->probes[k](PROBE_N, a, a, c, out);
        for (int i = 0; i < PROBE_N && fused < 0; i++) {
            if (!(out[i] == 0.0f))
                fused = k;
        }
    }
    gyre_fp_restore(saved);
    if (fused >= 0)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: init: the compiler (%s) fused a*b+c in the %s "
                         "loop, which changes results; compile with "
                         "-O3 -fno-math-errno -fno-trapping-math "
                         "-ffp-contract=off (pkg-config --cflags gyre-plugin)",
                         where, build->compiler, loop_names[fused]);
    return GYRE_OK;
}
