/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k largest magnitudes of a block without sorting it.
 *
 *     columns: largest of each of 64 columns    1 pass
 *     bound:   k columns reach it, so at least k elements do
 *     gather:  the few elements that reach it   1 pass
 *     tau:     bisection on their bits; k or more reach it, fewer exceed it
 *
 * Magnitudes compare as their bits do.  Every step is integer work, so the
 * instruction sets differ in speed alone.
 */
#ifndef TOPK_SELECT_H
#define TOPK_SELECT_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* A grain and one vector of slack; a grain ahead, where most often the next
 * one lies. */
enum {
    ROOM = GYRE_CODEC_GRAIN + 16,
    AHEAD = 1024,
    COLUMNS = 64,
    MAGNITUDE = 0x7fffffff
};

/* ---- gather ---------------------------------------------------------- */

/* Elements whose |x| bits are low .. low + width - 1, ascending; bits and index
 * have ROOM. */
static size_t gather_scalar(const float *x, size_t first, size_t n,
                            uint32_t low, uint32_t width, uint32_t *bits,
                            uint32_t *index, size_t count)
{
    for (size_t i = first; i < n; i++) {
        uint32_t u = gy_to_bits(x[i]) & MAGNITUDE;

        bits[count] = u;
        index[count] = (uint32_t)i;
        count += u - low < width;
    }
    return count;
}

#if defined(__x86_64__)
/* By way of a general register: gcc 12 widens a mask where it lies, spills its
 * two bytes and counts in four (seen with -O3 -fsanitize=thread). */
GY_AVX512_ static inline size_t members(__mmask16 m)
{
    unsigned bits = m;

    __asm__("" : "+r"(bits));
    return (size_t)__builtin_popcount(bits);
}

/*
 * Without a branch, for whether a vector holds one is a toss even where one
 * element in a hundred is wanted.  `rare`: where it is not, so that vectors
 * without one, nearly all, are passed over.
 */
GY_AVX512_ static size_t gather_avx512(const float *x, size_t n, uint32_t low,
                                       uint32_t width, uint32_t *bits,
                                       uint32_t *index, int rare)
{
    const __m512i mask = _mm512_set1_epi32(MAGNITUDE);
    const __m512i least = _mm512_set1_epi32((int)low);
    const __m512i wide = _mm512_set1_epi32((int)width);
    const __m512i step = _mm512_set1_epi32(16);
    __m512i at =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t count = 0, i = 0;

    for (; i + 16 <= n; i += 16, at = _mm512_add_epi32(at, step)) {
        __m512i u = _mm512_and_epi32(_mm512_loadu_si512(x + i), mask);
        __mmask16 m = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(u, least), wide);

        __builtin_prefetch(x + i + AHEAD);
        if (rare && m == 0)
            continue;
        _mm512_storeu_si512(bits + count, _mm512_maskz_compress_epi32(m, u));
        _mm512_storeu_si512(index + count, _mm512_maskz_compress_epi32(m, at));
        count += members(m);
    }
    return gather_scalar(x, i, n, low, width, bits, index, count);
}

GY_AVX2_ static size_t gather_avx2(const float *x, size_t n, uint32_t low,
                                   uint32_t width, uint32_t *bits,
                                   uint32_t *index)
{
    const __m256i mask = _mm256_set1_epi32(MAGNITUDE);
    const __m256i least = _mm256_set1_epi32((int)low);
    const __m256i last = _mm256_set1_epi32((int)(width - 1));
    size_t count = 0, i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_and_si256(
            _mm256_loadu_si256((const __m256i *)(const void *)(x + i)), mask);
        __m256i over = _mm256_sub_epi32(u, least);
        unsigned m = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(
            _mm256_cmpeq_epi32(_mm256_min_epu32(over, last), over)));

        __builtin_prefetch(x + i + AHEAD);
        while (m != 0) {
            size_t at = i + (size_t)__builtin_ctz(m);

            bits[count] = gy_to_bits(x[at]) & MAGNITUDE;
            index[count++] = (uint32_t)at;
            m &= m - 1;
        }
    }
    return gather_scalar(x, i, n, low, width, bits, index, count);
}
#endif

GY_INLINE_ size_t gather_range(const float *x, size_t n, uint32_t low,
                               uint32_t width, uint32_t *bits, uint32_t *index,
                               int rare, int isa)
{
#if defined(__x86_64__)
    if (isa == GYRE_LOOP_AVX512)
        return gather_avx512(x, n, low, width, bits, index, rare);
    if (isa == GYRE_LOOP_AVX2)
        return gather_avx2(x, n, low, width, bits, index);
#endif
    (void)isa;
    (void)rare;
    return gather_scalar(x, 0, n, low, width, bits, index, 0);
}

/* Those with |x| bits >= bound. */
GY_INLINE_ size_t gather(const float *x, size_t n, uint32_t bound,
                         uint32_t *bits, uint32_t *index, int isa)
{
    return gather_range(x, n, bound, MAGNITUDE + 1u - bound, bits, index, 0,
                        isa);
}

/* ---- bound and tau --------------------------------------------------- */

/* Column maxima of the first n / 64 * 64 elements. */
#if defined(__x86_64__)
GY_AVX512_ static void columns_avx512(const float *x, size_t n, int32_t *most)
{
    const __m512i mask = _mm512_set1_epi32(MAGNITUDE);
    __m512i m[4];

    for (int c = 0; c < 4; c++)
        m[c] = _mm512_setzero_si512();
    for (size_t i = 0; i + COLUMNS <= n; i += COLUMNS)
        for (int c = 0; c < 4; c++)
            m[c] = _mm512_max_epi32(
                m[c],
                _mm512_and_epi32(_mm512_loadu_si512(x + i + 16 * c), mask));
    for (int c = 0; c < 4; c++)
        _mm512_storeu_si512(most + 16 * c, m[c]);
}

GY_AVX2_ static void columns_avx2(const float *x, size_t n, int32_t *most)
{
    const __m256i mask = _mm256_set1_epi32(MAGNITUDE);
    __m256i m[8];

    for (int c = 0; c < 8; c++)
        m[c] = _mm256_setzero_si256();
    for (size_t i = 0; i + COLUMNS <= n; i += COLUMNS)
        for (int c = 0; c < 8; c++)
            m[c] = _mm256_max_epi32(
                m[c], _mm256_and_si256(
                          _mm256_loadu_si256(
                              (const __m256i *)(const void *)(x + i + 8 * c)),
                          mask));
    for (int c = 0; c < 8; c++)
        _mm256_storeu_si256((__m256i *)(void *)(most + 8 * c), m[c]);
}
#endif

static void columns_scalar(const float *x, size_t n, int32_t *most)
{
    for (int c = 0; c < COLUMNS; c++)
        most[c] = 0;
    for (size_t i = 0; i + COLUMNS <= n; i += COLUMNS)
        for (int c = 0; c < COLUMNS; c++) {
            int32_t u = (int32_t)(gy_to_bits(x[i + (size_t)c]) & MAGNITUDE);

            most[c] = u > most[c] ? u : most[c];
        }
}

GY_INLINE_ size_t reach(const int32_t *bits, size_t n, int32_t bound)
{
    int32_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += bits[i] >= bound;
    return (size_t)count;
}

/*
 * With reach(low) >= k and reach(high) < k: the largest low for which the
 * first still holds, or an earlier one at which at most k + slack reach it.
 * *reached is how many do.
 */
GY_INLINE_ int32_t bisect(const int32_t *bits, size_t n, size_t k, size_t slack,
                          int32_t low, int32_t high, size_t *reached)
{
    *reached = n;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        size_t count = reach(bits, n, middle);

        if (count < k) {
            high = middle;
            continue;
        }
        low = middle;
        *reached = count;
        if (count <= k + slack)
            break;
    }
    return low;
}

/* A bound that at least k elements reach, few more if it can be had cheaply.
 * *most: bits of the largest column. */
GY_INLINE_ int32_t cheap_bound(const float *x, size_t n, size_t k,
                               int32_t *most, int isa)
{
    int32_t column[COLUMNS], least = MAGNITUDE;
    size_t reached;

    if (k > COLUMNS / 2 || n < 4 * (size_t)COLUMNS) {
        *most = (int32_t)gy_largest(x, n);
        return 0;
    }
#if defined(__x86_64__)
    if (isa == GYRE_LOOP_AVX512)
        columns_avx512(x, n, column);
    else if (isa == GYRE_LOOP_AVX2)
        columns_avx2(x, n, column);
    else
#endif
        columns_scalar(x, n, column);
    (void)isa;
    *most = 0;
    for (int c = 0; c < COLUMNS; c++) {
        least = column[c] < least ? column[c] : least;
        *most = column[c] > *most ? column[c] : *most;
    }
    if (n % COLUMNS != 0) { /* elements beside the columns may be larger */
        uint32_t rest = gy_largest(x + n / COLUMNS * COLUMNS, n % COLUMNS);

        *most = (int32_t)rest > *most ? (int32_t)rest : *most;
    }
    return bisect(column, COLUMNS, k, 2 + k / 4, least, *most + 1, &reached);
}

/* index[k]: the k largest, ascending; of equals the lowest first.  Room for
 * ROOM of them. */
GY_INLINE_ void largest(const float *x, size_t n, size_t k, uint32_t *index,
                        int isa)
{
    uint32_t bits[ROOM];
    int32_t most, tau = cheap_bound(x, n, k, &most, isa);
    size_t found = gather(x, n, (uint32_t)tau, bits, index, isa);
    size_t padded = (found + 15) / 16 * 16, reached, equal, count = 0;

    for (size_t i = found; i < padded; i++)
        bits[i] = UINT32_MAX; /* as signed below every bound */
    if (found == k)
        return;
    tau = bisect((const int32_t *)bits, padded, k, 0, tau, most + 1, &reached);
    equal = k - reach((const int32_t *)bits, padded, tau + 1);
    for (size_t i = 0; i < found; i++) {
        int over = (int32_t)bits[i] > tau;
        int take = over || ((int32_t)bits[i] == tau && equal > 0);

        equal -= (size_t)(take && !over);
        index[count] = index[i];
        count += (size_t)take;
    }
}

#endif
