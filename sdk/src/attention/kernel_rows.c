/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of scores: scalar, AVX2 and AVX-512 from one body. */
#include "config.h"

#include "attention/kernel_rows.h"

#include <math.h>
#include <string.h>

#if defined(HAVE_SLEEF) && defined(__x86_64__)
#define VECTORS 1
#include <immintrin.h>
#endif

#ifdef HAVE_SLEEF
/* The header shows these only to files compiled for their instruction set. */
float Sleef_finz_expf1_u10purecfma(float x);
#ifdef VECTORS
__m256 Sleef_finz_expf8_u10avx2(__m256 x);
__m512 Sleef_finz_expf16_u10avx512f(__m512 x);
#endif
#endif

/* ---- scalar ------------------------------------------------------------ */

#ifdef HAVE_SLEEF
#define EXP(x) Sleef_finz_expf1_u10purecfma(x)
#else
#define EXP(x) expf(x)
#endif
#define NAME(x) scalar_##x
#define TARGET
#define V float
#define W 1
#define LOT 16
#define LOAD(p) (*(p))
#define STORE(p, x) (*(p) = (x))
#define SET(x) (x)
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define HIDE(p, x) ((p) == 0.0f ? 0.0f : (x))
#include "attention/kernel_rows_body.h"

#ifdef VECTORS
/* ---- AVX2 -------------------------------------------------------------- */

#define NAME(x) avx2_##x
#define TARGET __attribute__((target("avx2,fma")))
#define V __m256
#define W 8
#define LOT 2
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, x) _mm256_storeu_ps(p, x)
#define SET(x) _mm256_set1_ps(x)
#define MAX(a, b) _mm256_max_ps(a, b)
#define ADD(a, b) _mm256_add_ps(a, b)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define HIDE(p, x) \
    _mm256_and_ps(x, _mm256_cmp_ps(p, _mm256_setzero_ps(), _CMP_NEQ_UQ))
#define EXP(x) Sleef_finz_expf8_u10avx2(x)
#include "attention/kernel_rows_body.h"

/* ---- AVX-512 ----------------------------------------------------------- */

#define NAME(x) avx512_##x
#define TARGET __attribute__((target("avx512f")))
#define V __m512
#define W 16
#define LOT 1
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, x) _mm512_storeu_ps(p, x)
#define SET(x) _mm512_set1_ps(x)
#define MAX(a, b) _mm512_max_ps(a, b)
#define ADD(a, b) _mm512_add_ps(a, b)
#define SUB(a, b) _mm512_sub_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define HIDE(p, x)       \
    _mm512_maskz_mov_ps( \
        _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_UQ), x)
#define EXP(x) Sleef_finz_expf16_u10avx512f(x)
#include "attention/kernel_rows_body.h"
#endif

/* ---- which ------------------------------------------------------------- */

gyre_isa gyre_row_isa(void)
{
#ifdef VECTORS
    if (__builtin_cpu_supports("avx512f"))
        return GYRE_ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return GYRE_ISA_AVX2;
#endif
    return GYRE_ISA_SCALAR;
}

const gyre_row_loops *gyre_row_loops_of(gyre_isa isa)
{
    gyre_isa best = gyre_row_isa();

    if (isa > best)
        isa = best;
#ifdef VECTORS
    if (isa == GYRE_ISA_AVX512)
        return &avx512_loops;
    if (isa == GYRE_ISA_AVX2)
        return &avx2_loops;
#endif
    return &scalar_loops;
}

const char *gyre_row_exponential(void)
{
#ifdef HAVE_SLEEF
    return "SLEEF";
#else
    return "libm";
#endif
}
