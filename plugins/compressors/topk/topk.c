/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Top-k: keep the elements of largest magnitude, as index and value.
 *
 * scope = block: k = max(1, floor(ratio n)) of each block of n elements.
 * scope = global: k = max(1, floor(ratio N)) of all N elements of a survey,
 * found exactly by two passes over the bits of |x|, 17 and then 14.  Among
 * equals the lowest index wins; in the survey, the lowest place, found in a
 * list that the second pass makes, or by further passes over the digits of the
 * places where the list would be too long.
 *
 * Aji and Heafield, "Sparse communication for distributed gradient descent"
 * (2017); Smart-Infinity (2024) for the update beside storage.
 */
#define GY_COMPRESSOR
#define GY_PARAMETERS(P)                                                    \
    P(ratio, GYRE_STRUCTURAL, GYRE_FLOAT(0.01, 0.0, 1.0, "(]"),             \
      "part of the elements that is kept, at least one of a block")         \
    P(scope, GYRE_STRUCTURAL, GYRE_CHOICE(0, "block|global"),               \
      "the largest of each block, or of all; global waits for all of them") \
    P(block, GYRE_STRUCTURAL, GYRE_INT(1024, 32, 1024),                     \
      "elements of a block: a power of two, 32 to 1024")                    \
    P(values, GYRE_STRUCTURAL, GYRE_CHOICE(0, "f32|f16"),                   \
      "kept values as they are, or as halves times a power of two")         \
    P(indices, GYRE_STRUCTURAL, GYRE_CHOICE(0, "u32|u16"),                  \
      "width of an index within its block")
#include <gyre/plugin.h>

#include "select.h"

enum { SCOPE_BLOCK, SCOPE_GLOBAL };
enum { VALUES_F32, VALUES_F16 };
enum { INDICES_U32, INDICES_U16 };

static const gy_mini half = {10, -14, 65504.0f, -125, 112};

/* ---- payload --------------------------------------------------------- */

typedef struct shape {
    int wide, narrow; /* 32-bit indices; 16-bit values */
    size_t entry;     /* bytes of one */
    size_t block;
    int global;
} shape;

GY_INLINE_ shape shape_of(const gy_values *v)
{
    shape s;

    s.wide = (int)v->indices == INDICES_U32;
    s.narrow = (int)v->values == VALUES_F16;
    s.entry = (s.wide ? 4u : 2u) + (s.narrow ? 2u : 4u);
    s.global = (int)v->scope == SCOPE_GLOBAL;
    s.block = s.global ? (size_t)GYRE_CODEC_GRAIN : (size_t)v->block;
    return s;
}

static uint64_t part_of(double ratio, uint64_t n)
{
    uint64_t k = (uint64_t)(ratio * (double)n);

    return k < 1 ? 1 : k > n ? n : k;
}

/* Bytes of `count` entries in `blocks` blocks, without the padding. */
GY_INLINE_ size_t used_bytes(const shape *s, size_t count, size_t blocks)
{
    return count * s->entry + (s->narrow ? blocks : 0);
}

static size_t topk_bytes(const double *values, size_t n)
{
    const gy_values *v = GY_VALUES_(values);
    const shape s = shape_of(v);
    size_t blocks = n / s.block, rest = n % s.block;
    size_t count = blocks * (size_t)part_of(v->ratio, s.block);

    if (s.global)
        return gy_round4(used_bytes(&s, n, 1));
    if (rest > 0) {
        count += (size_t)part_of(v->ratio, rest);
        blocks++;
    }
    return gy_round4(used_bytes(&s, count, blocks));
}

/* Where the arrays of a payload lie. */
typedef struct arrays {
    uint8_t *index, *value, *scale;
} arrays;

GY_INLINE_ arrays arrays_of(const shape *s, size_t count, uint8_t *payload)
{
    arrays a;

    a.index = payload + (s->wide ? 0 : (s->narrow ? 2 : 4) * count);
    a.value = payload + (s->wide ? 4 * count : 0);
    a.scale = payload + s->entry * count;
    return a;
}

/* Write the chosen elements of one block behind `first` entries. */
GY_INLINE_ void put_block(const shape *s, const arrays *to, size_t first,
                          size_t block, const gyre_compress *job,
                          const uint32_t *index, size_t count)
{
    const float *x = job->x + block * s->block;
    uint32_t most = 0;
    int e = 0;

    if (s->narrow) {
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = gy_to_bits(x[index[i]]) & 0x7fffffffu;

            most = bits > most ? bits : most;
        }
        e = gy_mini_scale(half, most);
        to->scale[block] = (uint8_t)(int8_t)e;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i;
        float value = x[index[i]];

        if (s->wide)
            gy_put32(to->index + 4 * at, index[i]);
        else
            gy_put16(to->index + 2 * at, index[i]);
        if (s->narrow) {
            uint32_t sign = gy_to_bits(value) >> 31;
            float y = gy_mini_round(half, gy_abs(value) * gy_power(-e));

            gy_put16(to->value + 2 * at, gy_mini_code(half, y) | sign << 15);
            y = y * gy_power(e);
            value = sign ? -y : y;
        } else {
            gy_put32(to->value + 4 * at, gy_to_bits(value));
        }
        if (job->sparse != NULL) {
            job->sparse->index[at] = (uint32_t)(block * s->block) + index[i];
            job->sparse->kept[at] = value;
        } else {
            job->kept[block * s->block + index[i]] = value;
        }
    }
}

/* ---- global: what the survey comes to -------------------------------- */

/* Pass 0 counts the upper 17 bits of finite magnitudes, pass 1 the lower 14;
 * both, the list and the rest of a summary are to fit into 1 MiB. */
enum {
    SHIFT = 14,
    HIGH = 0x7f800000 >> SHIFT,
    LOW = 1 << SHIFT,
    LISTED = HIGH - LOW,
    DIGIT = 65536
};

typedef struct decided {
    uint32_t high, tau; /* bits 30..14; all 31 */
    uint64_t need;      /* how many are still to be taken from the rest */
    uint64_t prefix;    /* of the places that are looked at */
    uint64_t until;     /* of equals those with a place below are taken */
    uint32_t shift;     /* of the digit of this pass */
    uint32_t reserved;
} decided;

/*
 * Pass 1 counts the lower bits of those in the bin that the k-th is in, and
 * while there is room behind the counters it lists them, low bits << 48 |
 * place: with the whole list ties are decided at once.
 *
 * bound: bins below it need not be counted, for k elements are above.
 * most: no bit of a counted magnitude is missing, so none is larger.
 * seen: pass 0, counted since the bound was last raised; pass 1, those in the
 *   bin, which are not all in the list when it is above LISTED.
 */
typedef struct summary {
    uint64_t seen, listing; /* 1: pass 1 */
    uint32_t bound, most;
    uint64_t count[HIGH];
} summary;

static void topk_merge(void *into, const void *from)
{
    summary *a = into;
    const summary *b = from;
    uint64_t *list = a->count + LOW;
    const uint64_t *more = b->count + LOW;

    for (size_t i = 0; i < LOW; i++)
        a->count[i] += b->count[i];
    if (!a->listing && !b->listing)
        for (size_t i = 0; i < LISTED; i++)
            list[i] += more[i];
    else if (a->seen + b->seen <= LISTED)
        __builtin_memcpy(list + a->seen, more, b->seen * sizeof(list[0]));
    a->listing |= b->listing;
    a->most |= b->most;
    a->seen += b->seen;
}

/* Largest bin of [0, bins) at or above which `need` elements are; *need is
 * what is to be taken from that bin. */
static uint32_t bin_of(const uint64_t *count, uint32_t bins, uint64_t *need)
{
    uint32_t bin = bins;

    while (bin-- > 1) {
        if (count[bin] >= *need)
            return bin;
        *need -= count[bin];
    }
    return 0;
}

static int decide_place(const summary *s, decided *d)
{
    uint32_t digit = 0;

    while (digit < DIGIT - 1 && s->count[digit] < d->need)
        d->need -= s->count[digit++];
    d->prefix = d->prefix << 16 | digit;
    if (d->shift == 0 || s->count[digit] == d->need) {
        d->until = (d->prefix + 1) << d->shift;
        return 0;
    }
    d->shift -= 16;
    return 1;
}

/* The least place below which `need` of the listed with these low bits are. */
static uint64_t place_of(const summary *s, uint32_t low, uint64_t need)
{
    const uint64_t *list = s->count + LOW;
    uint64_t base = (uint64_t)low << 48, until = 0;

    for (uint64_t bit = (uint64_t)1 << 47; bit > 0; bit >>= 1) {
        uint64_t below = 0;

        for (size_t i = 0; i < s->seen; i++)
            below += list[i] - base < until + bit;
        if (below < need)
            until += bit;
    }
    return until + 1;
}

static int topk_decide(const double *values, uint32_t pass, const void *whole,
                       uint64_t elements, uint64_t extent, void *out)
{
    const summary *s = whole;
    decided *d = out;
    uint32_t low;

    if (pass == 0) {
        d->need = part_of(GY_VALUES_(values)->ratio, elements);
        d->high = bin_of(s->count, HIGH, &d->need);
        return 1;
    }
    if (pass > 1)
        return decide_place(s, d);
    low = bin_of(s->count, LOW, &d->need);
    d->tau = d->high << SHIFT | low;
    d->until = UINT64_MAX;
    if (s->count[low] <= d->need)
        return 0;
    if (s->seen <= LISTED) {
        d->until = place_of(s, low, d->need);
        return 0;
    }
    d->prefix = 0;
    for (d->shift = 0; d->shift < 48 && extent >> d->shift > DIGIT;)
        d->shift += 16;
    return 1;
}

/* Raise the bound while k elements of those seen lie at or above the next bin:
 * the k-th largest of all cannot be below that. */
static void raise_bound(summary *s, uint64_t k)
{
    uint64_t above = 0;
    uint32_t bin = s->most >> SHIFT;

    for (bin = bin < HIGH ? bin + 1 : HIGH; bin > s->bound;) {
        above += s->count[--bin];
        if (above >= k) {
            s->bound = bin;
            return;
        }
    }
}

/* The bound is worth raising when an eighth of k was counted under it: in the
 * end k (1 + ln(N / k)) are, a few more with every grain that it lags. */
GY_INLINE_ void survey_high(const gyre_survey *job, summary *s, int isa)
{
    uint64_t k = part_of(GY_VALUES_(job->values)->ratio, job->elements);
    uint64_t often = GYRE_CODEC_GRAIN * 16;
    _Alignas(64) uint32_t bits[ROOM], index[ROOM];
    uint32_t low = s->bound << SHIFT;
    uint32_t most = s->most;
    size_t count = gather_range(job->x, job->n, low, (HIGH << SHIFT) - low,
                                bits, index, 0, isa);

    for (size_t i = 0; i < count; i++) {
        s->count[bits[i] >> SHIFT]++;
        most |= bits[i];
    }
    s->most = most;
    s->seen += count;
    if (s->seen < often || s->seen < k / 8)
        return;
    s->seen = 0;
    raise_bound(s, k);
}

GY_INLINE_ void survey_low(const gyre_survey *job, summary *s, int isa)
{
    const decided *d = job->decided;
    _Alignas(64) uint32_t bits[ROOM], index[ROOM];
    size_t count = gather_range(job->x, job->n, d->high << SHIFT, LOW, bits,
                                index, 1, isa);

    s->listing = 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t low = bits[i] & (LOW - 1);

        s->count[low]++;
        if (s->seen < LISTED)
            s->count[LOW + s->seen] = low << 48 | (job->place + index[i]);
        s->seen++;
    }
}

/* Among those that equal tau: the next digit of the place of the last one that
 * is taken. */
GY_INLINE_ void survey_place(const gyre_survey *job, summary *s, int isa)
{
    const decided *d = job->decided;
    _Alignas(64) uint32_t bits[ROOM], index[ROOM];
    size_t count = gather_range(job->x, job->n, d->tau, 1, bits, index, 1, isa);

    for (size_t i = 0; i < count; i++) {
        uint64_t place = job->place + index[i];

        if (d->shift == 48 || place >> (d->shift + 16) == d->prefix)
            s->count[place >> d->shift & (DIGIT - 1)]++;
    }
}

GY_INLINE_ void survey(const gyre_survey *job, int isa)
{
    if (job->pass == 0)
        survey_high(job, job->summary, isa);
    else if (job->pass == 1)
        survey_low(job, job->summary, isa);
    else
        survey_place(job, job->summary, isa);
}

/* Those of a grain that the survey chose. */
GY_INLINE_ size_t choose_global(const gyre_compress *job, uint32_t *index,
                                int isa)
{
    const decided *d = job->decided;
    _Alignas(64) uint32_t bits[ROOM];
    size_t found = gather(job->x, job->n, d->tau, bits, index, isa), count = 0;

    for (size_t i = 0; i < found; i++) {
        index[count] = index[i];
        count += bits[i] > d->tau || job->place + index[i] < d->until;
    }
    return count;
}

/* ---- the loops ------------------------------------------------------- */

GY_INLINE_ size_t compress(const gyre_compress *job, int isa)
{
    const gy_values *v = GY_VALUES_(job->values);
    const shape s = shape_of(v);
    size_t whole = (size_t)part_of(v->ratio, s.block);
    uint32_t index[ROOM];
    size_t count = 0, blocks = 0;
    arrays to;

    if (job->sparse == NULL)
        __builtin_memset(job->kept, 0, job->n * sizeof(job->kept[0]));
    if (s.global)
        count = choose_global(job, index, isa);
    else {
        count = job->n / s.block * whole;
        if (job->n % s.block > 0)
            count += (size_t)part_of(v->ratio, job->n % s.block);
    }
    if (job->sparse != NULL)
        job->sparse->count = count;
    if (count == 0)
        return 0;
    to = arrays_of(&s, count, job->payload);
    if (s.global) {
        put_block(&s, &to, 0, 0, job, index, count);
        return gy_pad4(job->payload, used_bytes(&s, count, 1));
    }
    for (size_t at = 0; at < job->n; at += s.block, blocks++) {
        size_t n = job->n - at < s.block ? job->n - at : s.block;
        size_t k = n == s.block ? whole : (size_t)part_of(v->ratio, n);

        largest(job->x + at, n, k, index, isa);
        put_block(&s, &to, blocks * whole, blocks, job, index, k);
    }
    return gy_pad4(job->payload, used_bytes(&s, count, blocks));
}

/* Entries [first, first + count) are those of one block of n elements. */
GY_INLINE_ int get_block(const shape *s, const arrays *from, size_t first,
                         size_t block, size_t n, size_t count, float *out)
{
    uint32_t least = 0;
    int e = s->narrow ? (int8_t)from->scale[block] : 0;

    if (s->narrow && (e < half.scale_low || e > half.scale_high))
        return 1;
    for (size_t at = first; at < first + count; at++) {
        uint32_t place = s->wide ? gy_get32(from->index + 4 * at)
                                 : gy_get16(from->index + 2 * at);

        if (place < least || place >= n)
            return 1;
        least = place + 1;
        if (s->narrow) {
            uint32_t code = gy_get16(from->value + 2 * at);
            float y = gy_mini_value(half, code & 0x7fffu) * gy_power(e);

            if ((code & 0x7fffu) >= 0x7c00u)
                return 1;
            out[place] = code >> 15 ? -y : y;
        } else {
            uint32_t bits = gy_get32(from->value + 4 * at);

            if ((bits & 0x7f800000u) == 0x7f800000u)
                return 1;
            out[place] = gy_bits(bits);
        }
    }
    return 0;
}

GY_INLINE_ int decompress(const gy_values *v, size_t n, const uint8_t *payload,
                          size_t bytes, float *out, int isa)
{
    const shape s = shape_of(v);
    size_t blocks = s.global ? 1 : (n + s.block - 1) / s.block;
    size_t whole = (size_t)part_of(v->ratio, s.block);
    size_t scales = s.narrow ? blocks : 0, count;
    arrays from;

    (void)isa;
    __builtin_memset(out, 0, n * sizeof(out[0]));
    if (s.global && bytes == 0)
        return 0;
    if (bytes < scales + s.entry)
        return 1;
    count = (bytes - scales) / s.entry; /* padding is below an entry */
    if (bytes != gy_round4(used_bytes(&s, count, blocks)) || count > n ||
        (!s.global && bytes != topk_bytes((const double *)v, n)) ||
        !gy_padded4(payload, used_bytes(&s, count, blocks)))
        return 1;
    from = arrays_of(&s, count, (uint8_t *)(uintptr_t)payload);
    if (s.global)
        return get_block(&s, &from, 0, 0, n, count, out);
    for (size_t b = 0; b < blocks; b++) {
        size_t at = b * s.block;
        size_t k = b + 1 < blocks ? whole : count - b * whole;

        if (get_block(&s, &from, b * whole, b,
                      n - at < s.block ? n - at : s.block, k, out + at))
            return 1;
    }
    return 0;
}

/* ---- tables ---------------------------------------------------------- */

static const char *topk_check(const double *values)
{
    uint32_t block = (uint32_t)GY_VALUES_(values)->block;

    if ((block & (block - 1)) != 0)
        return "block must be a power of two";
    return NULL;
}

static uint32_t topk_flags(const double *values)
{
    if ((int)GY_VALUES_(values)->scope == SCOPE_GLOBAL)
        return GYRE_CODEC_VARIABLE | GYRE_CODEC_BARRIER;
    return 0;
}

#define GY_NAMES(N) N(GY_GLOBAL) N(GY_BLOCK) N(GY_FULL) N(GY_WIDE) N(GY_HALF)
#include "topk.kernel"
#include "topk.encode"

static void topk_constants(const gy_values *v, int32_t *out)
{
    const shape s = shape_of(v);

    out[0] = s.global;
    out[1] = (int32_t)s.block;
    out[2] = (int32_t)part_of(v->ratio, s.block);
    out[3] = s.wide;
    out[4] = s.narrow;
}

/* All of a survey at once is no work for one grain. */
static int topk_able(const double *values)
{
    return (int)GY_VALUES_(values)->scope == SCOPE_BLOCK;
}

GYRE_CODEC_TEXTS(topk_constants, gy_no_table, topk_able)
GYRE_CODEC_LOOPS(compress, decompress, survey)

static const gyre_compressor topk = {sizeof(gyre_compressor),
                                     1,
                                     GYRE_CODEC_SPARSE,
                                     sizeof(summary),
                                     sizeof(decided),
                                     gy_codec_loops_,
                                     GYRE_CODEC_LOOP_COUNT,
                                     0,
                                     topk_check,
                                     topk_flags,
                                     topk_bytes,
                                     topk_merge,
                                     topk_decide};

GYRE_COMPRESSOR(topk, "1.0.0", "the elements of largest magnitude",
                "Apache-2.0",
                GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT |
                    GYRE_CLAIM_EXACT_KEPT,
                &topk)
GYRE_MODULE(topk, &gyre_plugin_topk)
