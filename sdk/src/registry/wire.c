/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire block: drawn in compressor.h.
 *
 * What is checked is what this file relies on: the length before a field is
 * read, the checksum before the table is believed, the table before an offset
 * is one.
 */
#include "config.h"

#define XXH_STATIC_LINKING_ONLY /* a state within the writer */

#include "registry/compressor.h"

#include <string.h>
#include <xxhash.h>

enum {
    AT_MAGIC = 0,
    AT_FORMAT = 4,
    AT_FLAGS = 6,
    AT_ID = 8,
    AT_ELEMENTS = 16,
    AT_BODY = 24,
    AT_HASH = 32
};

static uint64_t get(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;

    while (bytes-- > 0)
        value = value << 8 | at[bytes];
    return value;
}

static void put(uint8_t *at, size_t bytes, uint64_t value)
{
    for (size_t i = 0; i < bytes; i++, value >>= 8)
        at[i] = (uint8_t)value;
}

static uint64_t grains_of(uint64_t elements)
{
    return elements / GYRE_CODEC_GRAIN + (elements % GYRE_CODEC_GRAIN > 0);
}

static size_t grain_elements(uint64_t elements, uint64_t grain)
{
    uint64_t left = elements - grain * GYRE_CODEC_GRAIN;

    return left < GYRE_CODEC_GRAIN ? (size_t)left : (size_t)GYRE_CODEC_GRAIN;
}

static bool is_variable(const gyre_codec *codec)
{
    return (gyre_codec_flags(codec) & GYRE_CODEC_VARIABLE) != 0;
}

static uint64_t table_bytes(const gyre_codec *codec, uint64_t elements)
{
    return is_variable(codec) ? 4 * grains_of(elements) : 0;
}

/* The checksum from the payloads' own. */
static uint64_t hash_head(const uint8_t *block, uint64_t table,
                          uint64_t payloads)
{
    uint8_t all[AT_HASH + 16];

    memcpy(all, block, AT_HASH);
    put(all + AT_HASH, 8, payloads);
    put(all + AT_HASH + 8, 8,
        table > 0 ? XXH3_64bits(block + GYRE_WIRE_HEAD, (size_t)table) : 0);
    return XXH3_64bits(all, sizeof(all));
}

/* body >= table bytes. */
static uint64_t hash_block(const uint8_t *block, uint64_t table, uint64_t body)
{
    const uint8_t *payloads = block + GYRE_WIRE_HEAD + table;

    return hash_head(block, table,
                     XXH3_64bits(payloads, (size_t)(body - table)));
}

/* ---- writing --------------------------------------------------------- */

_Static_assert(sizeof(XXH3_state_t) <= GYRE_WIRE_HASH, "room for the state");
enum { HASH_STEP = 4096 }; /* few calls, and still in the first cache */

static XXH3_state_t *state_of(gyre_wire_writer *writer)
{
    return (XXH3_state_t *)(void *)writer->hash;
}

static void hash_on(gyre_wire_writer *writer, uint64_t end)
{
    (void)XXH3_64bits_update(state_of(writer), writer->block + writer->hashed,
                             (size_t)(end - writer->hashed));
    writer->hashed = end;
}

void gyre_wire_begin(gyre_wire_writer *writer, const gyre_codec *codec,
                     uint64_t elements, uint8_t *block)
{
    writer->codec = codec;
    writer->block = block;
    writer->elements = elements;
    writer->grain = 0;
    writer->payloads = GYRE_WIRE_HEAD + table_bytes(codec, elements);
    writer->at = writer->payloads;
    writer->hashed = writer->payloads;
    XXH3_INITSTATE(state_of(writer));
    (void)XXH3_64bits_reset(state_of(writer));
}

void gyre_wire_add(gyre_wire_writer *writer, size_t bytes)
{
    writer->at += bytes;
    if (writer->payloads > GYRE_WIRE_HEAD)
        put(writer->block + GYRE_WIRE_HEAD + 4 * writer->grain, 4,
            writer->at - writer->payloads);
    writer->grain++;
    if (writer->at - writer->hashed >= HASH_STEP)
        hash_on(writer, writer->at);
}

uint64_t gyre_wire_end(gyre_wire_writer *writer)
{
    uint8_t *block = writer->block;
    uint64_t end = gyre_round_up(writer->at, 8);

    memset(block + writer->at, 0, (size_t)(end - writer->at));
    hash_on(writer, end);
    put(block + AT_MAGIC, 4, GYRE_WIRE_MAGIC);
    put(block + AT_FORMAT, 2, gyre_codec_format(writer->codec));
    put(block + AT_FLAGS, 2,
        is_variable(writer->codec) ? GYRE_WIRE_VARIABLE : 0);
    put(block + AT_ID, 8, gyre_codec_id(writer->codec));
    put(block + AT_ELEMENTS, 8, writer->elements);
    put(block + AT_BODY, 8, end - GYRE_WIRE_HEAD);
    put(block + AT_HASH, 8,
        hash_head(block, writer->payloads - GYRE_WIRE_HEAD,
                  XXH3_64bits_digest(state_of(writer))));
    return end;
}

/* ---- checking -------------------------------------------------------- */

uint64_t gyre_wire_bytes(const uint8_t *head, uint64_t size)
{
    uint64_t body;

    if (size < GYRE_WIRE_HEAD || get(head + AT_MAGIC, 4) != GYRE_WIRE_MAGIC)
        return 0;
    body = get(head + AT_BODY, 8);
    if (body > UINT64_MAX - GYRE_WIRE_HEAD || body % 8 != 0)
        return 0;
    return GYRE_WIRE_HEAD + body;
}

static gyre_status refuse(gyre_error *error, const gyre_codec *codec,
                          gyre_status status, const char *field, uint64_t seen,
                          uint64_t wanted)
{
    return gyre_fail(error, status,
                     "%s: wire block: %s is %llu, but must be %llu; the block "
                     "is damaged or from elsewhere",
                     gyre_codec_name(codec), field, (unsigned long long)seen,
                     (unsigned long long)wanted);
}

static gyre_status check_head(const gyre_codec *codec, const uint8_t *block,
                              uint64_t size, uint64_t elements,
                              gyre_error *error)
{
    const struct {
        const char *name;
        size_t at, bytes;
        uint64_t want;
    } fields[] = {
        {"the magic", AT_MAGIC, 4, GYRE_WIRE_MAGIC},
        {"the codec's format", AT_FORMAT, 2, gyre_codec_format(codec)},
        {"the flag word", AT_FLAGS, 2,
         is_variable(codec) ? GYRE_WIRE_VARIABLE : 0},
        {"the id of codec and settings", AT_ID, 8, gyre_codec_id(codec)},
        {"the element count", AT_ELEMENTS, 8, elements},
    };
    uint64_t body;

    if (size < GYRE_WIRE_HEAD)
        return refuse(error, codec, GYRE_CORRUPT, "its length", size,
                      GYRE_WIRE_HEAD);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        uint64_t seen = get(block + fields[i].at, fields[i].bytes);

        if (seen != fields[i].want)
            return refuse(error, codec, GYRE_FORMAT, fields[i].name, seen,
                          fields[i].want);
    }
    body = get(block + AT_BODY, 8);
    if (body > size - GYRE_WIRE_HEAD)
        return refuse(error, codec, GYRE_CORRUPT, "the body's length", body,
                      size - GYRE_WIRE_HEAD);
    return GYRE_OK;
}

/* The ends of a variable codec's payloads; *end: of the last. */
static gyre_status check_table(const gyre_codec *codec, const uint8_t *block,
                               uint64_t elements, uint64_t *end,
                               gyre_error *error)
{
    uint64_t grains = grains_of(elements), last = 0;

    for (uint64_t k = 0; k < grains; k++) {
        uint64_t next = get(block + GYRE_WIRE_HEAD + 4 * k, 4);
        size_t most =
            gyre_codec_grain_bytes(codec, grain_elements(elements, k));

        if (next < last || next - last > most || next % 4 != 0)
            return gyre_fail(error, GYRE_CORRUPT,
                             "%s: wire block: payload %llu ends at %llu, but "
                             "must end within %zu bytes of %llu, at a multiple "
                             "of 4; the block is damaged or from elsewhere",
                             gyre_codec_name(codec), (unsigned long long)k,
                             (unsigned long long)next, most,
                             (unsigned long long)last);
        last = next;
    }
    *end = 4 * grains + last;
    return GYRE_OK;
}

gyre_status gyre_wire_check(const gyre_codec *codec, const uint8_t *block,
                            uint64_t size, uint64_t elements, gyre_error *error)
{
    uint64_t body, table, hash, end = 0;
    gyre_status status = check_head(codec, block, size, elements, error);

    if (status != GYRE_OK)
        return status;
    body = get(block + AT_BODY, 8);
    if (!is_variable(codec) &&
        body != gyre_codec_bound(codec, elements) - GYRE_WIRE_HEAD)
        return refuse(error, codec, GYRE_CORRUPT, "the body's length", body,
                      gyre_codec_bound(codec, elements) - GYRE_WIRE_HEAD);
    table = table_bytes(codec, elements);
    if (table > body)
        return refuse(error, codec, GYRE_CORRUPT, "the body's length", body,
                      table);
    hash = hash_block(block, table, body);
    if (get(block + AT_HASH, 8) != hash)
        return refuse(error, codec, GYRE_CORRUPT, "the checksum",
                      get(block + AT_HASH, 8), hash);
    if (is_variable(codec))
        status = check_table(codec, block, elements, &end, error);
    else if (elements > 0)
        end = elements / GYRE_CODEC_GRAIN *
                  gyre_codec_grain_bytes(codec, GYRE_CODEC_GRAIN) +
              (elements % GYRE_CODEC_GRAIN > 0
                   ? gyre_codec_grain_bytes(
                         codec, (size_t)(elements % GYRE_CODEC_GRAIN))
                   : 0);
    if (status != GYRE_OK)
        return status;
    if (body != gyre_round_up(end, 8))
        return refuse(error, codec, GYRE_CORRUPT, "the body's length", body,
                      gyre_round_up(end, 8));
    for (; end < body; end++)
        if (block[GYRE_WIRE_HEAD + end] != 0)
            return refuse(error, codec, GYRE_CORRUPT, "a padding byte",
                          block[GYRE_WIRE_HEAD + end], 0);
    return GYRE_OK;
}

/* ---- reading --------------------------------------------------------- */

void gyre_wire_grain(const gyre_codec *codec, const uint8_t *block,
                     uint64_t grain, const uint8_t **payload, size_t *bytes)
{
    uint64_t elements = get(block + AT_ELEMENTS, 8);
    const uint8_t *body = block + GYRE_WIRE_HEAD;
    uint64_t from, to;

    if (!is_variable(codec)) {
        *payload =
            body + grain * gyre_codec_grain_bytes(codec, GYRE_CODEC_GRAIN);
        *bytes = gyre_codec_grain_bytes(codec, grain_elements(elements, grain));
        return;
    }
    from = grain > 0 ? get(body + 4 * (grain - 1), 4) : 0;
    to = get(body + 4 * grain, 4);
    *payload = body + 4 * grains_of(elements) + from;
    *bytes = (size_t)(to - from);
}

static gyre_status decode_grain(const gyre_codec *codec, const uint8_t *block,
                                uint64_t grain, float *out, gyre_error *error)
{
    size_t n = grain_elements(get(block + AT_ELEMENTS, 8), grain);
    const uint8_t *payload;
    size_t bytes;

    gyre_wire_grain(codec, block, grain, &payload, &bytes);
    if (gyre_codec_decode(codec, payload, bytes, n, out) == 0)
        return GYRE_OK;
    return gyre_fail(error, GYRE_CORRUPT,
                     "%s: wire block: payload %llu (%zu bytes for %zu "
                     "elements) holds what the codec never writes; the block "
                     "is damaged or from elsewhere",
                     gyre_codec_name(codec), (unsigned long long)grain, bytes,
                     n);
}

gyre_status gyre_wire_decode(const gyre_codec *codec, const uint8_t *block,
                             float *out, gyre_error *error)
{
    uint64_t grains = grains_of(get(block + AT_ELEMENTS, 8));
    gyre_status status = GYRE_OK;
    gyre_fp saved = gyre_fp_pin();

    for (uint64_t k = 0; k < grains && status == GYRE_OK; k++)
        status =
            decode_grain(codec, block, k, out + k * GYRE_CODEC_GRAIN, error);
    gyre_fp_restore(saved);
    return status;
}

gyre_status gyre_wire_verify(const gyre_codec *codec, const uint8_t *block,
                             uint64_t size, uint64_t elements,
                             gyre_error *error)
{
    float out[GYRE_CODEC_GRAIN];
    gyre_status status = gyre_wire_check(codec, block, size, elements, error);
    gyre_fp saved = gyre_fp_pin();

    for (uint64_t k = 0; k < grains_of(elements) && status == GYRE_OK; k++)
        status = decode_grain(codec, block, k, out, error);
    gyre_fp_restore(saved);
    return status;
}
