/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every compressor in every setting that changes what it does, every
 * instruction set of the machine, and numbers of every kind.
 */
#ifndef GYRE_TESTS_UNIT_CODECS_CASES_H
#define GYRE_TESTS_UNIT_CODECS_CASES_H

#include "registry/compressor.h"

#include <math.h>
#include <stdio.h>

typedef struct codec_case {
    const char *name;
    gyre_setting settings[5];
    size_t count;
    int exact; /* D(c) + e' = a bit for bit */
} codec_case;

#define CASE(name, exact, ...)                                            \
    {                                                                     \
        name, {__VA_ARGS__},                                              \
            sizeof((gyre_setting[]){__VA_ARGS__}) / sizeof(gyre_setting), \
            exact                                                         \
    }
static const codec_case codec_cases[] = {
    CASE("topk", 1, {"ratio", 0.01}),
    CASE("topk", 1, {"ratio", 1.0}, {"block", 256}),
    CASE("topk", 1, {"ratio", 0.3}, {"block", 128}, {"indices", 1}),
    CASE("topk", 1, {"ratio", 0.02}, {"values", 1}),
    CASE("topk", 1, {"ratio", 0.05}, {"block", 64}, {"values", 1},
         {"indices", 1}),
    CASE("topk", 1, {"ratio", 0.01}, {"scope", 1}),
    CASE("topk", 1, {"ratio", 0.1}, {"scope", 1}, {"values", 1}),
    CASE("topk", 1, {"ratio", 0.2}, {"scope", 1}, {"values", 1},
         {"indices", 1}),
    CASE("topk", 1, {"ratio", 0.003}, {"scope", 1}, {"indices", 1}),
    CASE("quantize", 1, {"bits", 8}),
    CASE("quantize", 1, {"bits", 4}, {"block", 64}),
    CASE("quantize", 1, {"bits", 8}, {"map", 1}),
    CASE("quantize", 1, {"bits", 4}, {"map", 1}, {"block", 1024}),
    CASE("quantize", 0, {"bits", 8}, {"rounding", 1}),
    CASE("quantize", 0, {"bits", 4}, {"rounding", 1}),
    CASE("quantize", 0, {"bits", 8}, {"rounding", 1}, {"map", 1}),
    CASE("quantize", 0, {"bits", 4}, {"rounding", 1}, {"map", 1}),
    CASE("fp8", 1, {"format", 0}),
    CASE("fp8", 1, {"format", 1}, {"block", 32}),
    CASE("sign", 0, {"block", 1024}),
    CASE("sign", 0, {"block", 32}),
};
enum { CODEC_CASES = sizeof(codec_cases) / sizeof(codec_cases[0]) };

static inline const char *codec_text(const codec_case *c)
{
    static char text[256];
    int at = snprintf(text, sizeof(text), "%s", c->name);

    for (size_t i = 0; i < c->count; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, " %s=%g",
                       c->settings[i].name, c->settings[i].value);
    return text;
}

/* One context per instruction set that the machine has; index 0 is scalar. */
static inline size_t codec_contexts(gyre_context *contexts[GYRE_ISA_COUNT])
{
    size_t count = 0;

    for (int isa = 0; isa < GYRE_ISA_COUNT; isa++) {
        gyre_context_options options = {.size = sizeof(options)};

        options.instruction_set = gyre_isa_name((gyre_isa)isa);
        if (gyre_context_create(&options, &contexts[count], NULL) == GYRE_OK)
            count++;
    }
    return count;
}

/* Numbers of one kind; NUMBER_KINDS of them. */
enum { NUMBER_KINDS = 10 };
static inline uint32_t codec_draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

static inline float codec_any(uint64_t *seed)
{
    union {
        uint32_t bits;
        float value;
    } u;

    do
        u.bits = codec_draw(seed);
    while (!isfinite(u.value));
    return u.value;
}

static inline float codec_bell(uint64_t *seed)
{
    float sum = -6.0f;

    for (int i = 0; i < 12; i++)
        sum += (float)(codec_draw(seed) >> 8) * 0x1p-24f;
    return sum;
}

static inline void codec_fill(int kind, uint64_t seed, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t r = codec_draw(&seed);

        switch (kind) {
        case 0:
            x[i] = codec_bell(&seed) * 1e-3f;
            break;
        case 1: /* every exponent */
            x[i] = codec_any(&seed);
            break;
        case 2:
            x[i] = 0.0f;
            break;
        case 3: /* denormal */
            x[i] = ldexpf((float)(r >> 20) - 2048.0f, -149);
            break;
        case 4: /* equals, zeros of both signs */
            x[i] = (float)(int)(r % 5) - 2.0f;
            if (x[i] == 0.0f && r >> 31)
                x[i] = -0.0f;
            break;
        case 5: /* the largest there are */
            x[i] = r % 3 == 0 ? 3.40282347e38f : -3.3e38f;
            break;
        case 6: /* one large, all else tiny */
            x[i] = i == 17 % n ? 1e30f : codec_bell(&seed) * 1e-20f;
            break;
        case 7: /* around half a step of 127 */
            x[i] = i % 256 == 0 ? 127.0f
                                : 0.5f + (float)(int)(r % 9 - 4) * 0x1p-24f;
            break;
        case 8: /* around the normal numbers' end */
            x[i] = ldexpf(codec_bell(&seed), -120 - (int)(r % 32));
            break;
        default: /* ties of quantisation and of halves */
            x[i] = ldexpf((float)(int)(r % 8192) - 4096.0f, -5);
            break;
        }
    }
}

#endif
