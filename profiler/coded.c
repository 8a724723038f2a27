/* SPDX-License-Identifier: Apache-2.0 */
/* Updates and streams over slots in a state codec. */
#include "config.h"

#include "coded.h"

#include <string.h>

int coded_parse(const char *name, gyre_state_codec *codec)
{
    const char *known;

    for (int c = 0; (known = gyre_state_codec_name((gyre_state_codec)c)); c++)
        if (strcmp(name, known) == 0) {
            *codec = (gyre_state_codec)c;
            return 1;
        }
    return 0;
}

double coded_bytes(const coded *c)
{
    double grain = (double)gyre_state_grain_bytes(c->codec) / GYRE_GRAIN;

    return 4 + 8 + 2 * grain * (double)(c->arrays - 1);
}

/* The grain of slot k that starts at element `at`. */
static unsigned char *grain_of(const coded *c, float *const *x, size_t k,
                               size_t at)
{
    return (unsigned char *)x[k] +
           at / GYRE_GRAIN * gyre_state_grain_bytes(c->codec);
}

static size_t count(size_t at, size_t to)
{
    return to - at < GYRE_GRAIN ? to - at : GYRE_GRAIN;
}

void coded_touch(const coded *c, float *const *x, size_t from, size_t to)
{
    float values[GYRE_GRAIN];

    for (size_t i = 0; i < GYRE_GRAIN; i++)
        values[i] = 0.5f + 1e-4f * (float)(i % 509u);
    for (size_t at = from; at < to; at += GYRE_GRAIN) {
        memcpy(x[0] + at, values, count(at, to) * sizeof(float));
        for (size_t k = 1; k < c->arrays; k++)
            gyre_state_pack(c->context, c->codec, values, NULL, at,
                            grain_of(c, x, k, at));
    }
}

void coded_update(const coded *c, const float *g, float *const *x, size_t from,
                  size_t to)
{
    float value[STREAM_MAX][GYRE_GRAIN + 48], *slot[STREAM_MAX];
    const uint32_t key[2] = {1, 2};
    gyre_loop call = {sizeof(call), 0, NULL, slot, c->scalars, 0};

    for (size_t at = from; at < to; at += GYRE_GRAIN) {
        slot[0] = x[0] + at;
        for (size_t k = 1; k < c->arrays; k++) {
            slot[k] = value[k];
            gyre_state_unpack(c->context, c->codec, grain_of(c, x, k, at),
                              value[k]);
        }
        call.n = count(at, to);
        call.g = g + at;
        call.index = at;
        c->loop(&call);
        for (size_t k = 1; k < c->arrays; k++)
            gyre_state_pack(c->context, c->codec, value[k], key, at,
                            grain_of(c, x, k, at));
    }
}

void coded_stream(const coded *c, const float *g, float *const *x, size_t from,
                  size_t to)
{
    size_t floats = gyre_state_grain_bytes(c->codec) / sizeof(float);
    float *slot[STREAM_MAX];

    for (size_t at = from; at < to; at += GYRE_GRAIN) {
        slot[0] = x[0] + at;
        c->parameter(count(at, to), g + at, slot);
        for (size_t k = 1; k < c->arrays; k++)
            slot[k - 1] = (float *)(void *)grain_of(c, x, k, at);
        c->slots(floats, g + at, slot);
    }
}
