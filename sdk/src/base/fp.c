/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point control word of a thread, and the clock. */
#include "config.h"

#include "base/base.h"

#include <time.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

/* All exceptions masked, round to nearest, FTZ and DAZ off: the word a process
 * starts with. */
enum { MXCSR_PINNED = 0x1f80 };

gyre_fp gyre_fp_pin(void)
{
    gyre_fp saved = {_mm_getcsr()};

    _mm_setcsr(MXCSR_PINNED);
    return saved;
}

void gyre_fp_restore(gyre_fp saved)
{
    _mm_setcsr(saved.word);
}

#else
#include <fenv.h>

/* C11 knows of rounding alone; flushing to zero has no portable switch. */
gyre_fp gyre_fp_pin(void)
{
    gyre_fp saved = {(uint32_t)fegetround()};

    fesetround(FE_TONEAREST);
    return saved;
}

void gyre_fp_restore(gyre_fp saved)
{
    fesetround((int)saved.word);
}
#endif

uint64_t gyre_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
