/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wire blocks and payloads from anywhere.
 *
 *     fuzz_wire [FILE...]      each file, then seeded mutations of it
 *     fuzz_wire --corpus DIR   write the saved corpus
 *
 * Without files the saved corpus is taken; prints TAP, so that make check runs
 * it.  For a fuzzer: clang -fsanitize=fuzzer,address -DGYRE_LIBFUZZER.
 *
 * An input: a byte that chooses codec and settings, a u16 of elements, a byte
 * (even: a wire block follows, whose checksum is made to fit; odd: one
 * payload), then the bytes.  What is taken must decode to finite numbers, and
 * what was decoded once must decode so again.
 */
#include "config.h"

#include "../unit/codecs_cases.h"
#include "fuzz.h"

#include <string.h>
#include <xxhash.h>

enum { HEAD = 4, MOST_ELEMENTS = 3 * GYRE_CODEC_GRAIN };

static gyre_context *context;
static gyre_codec *codecs[CODEC_CASES];

static int start(void)
{
    if (context != NULL)
        return 0;
    if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
        return 1;
    for (size_t c = 0; c < CODEC_CASES; c++)
        fuzz_insist(gyre_codec_create(
                        context, codec_cases[c].name, codec_cases[c].settings,
                        codec_cases[c].count, &codecs[c], NULL) == GYRE_OK,
                    "a codec cannot be made");
    return 0;
}

static void check_floats(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fuzz_insist(isfinite(x[i]), "a decoded number is not finite");
}

static void try_payload(const gyre_codec *codec, const uint8_t *bytes,
                        size_t size, size_t n)
{
    float out[GYRE_CODEC_GRAIN], sum[GYRE_CODEC_GRAIN] = {0};
    int refused = gyre_codec_decode(codec, bytes, size, n, out);

    fuzz_insist((gyre_codec_accumulate(codec, bytes, size, n, sum) != 0) ==
                    (refused != 0),
                "accumulate and decompress disagree");
    if (refused)
        return;
    check_floats(out, n);
    for (size_t i = 0; i < n; i++)
        fuzz_insist(sum[i] == out[i], "accumulate gives other numbers");
}

/* Make the checksum fit; `table` bytes stand before the payloads. */
static void seal(uint8_t *block, size_t bytes, size_t table)
{
    uint64_t all[6], hash;

    if (bytes < GYRE_WIRE_HEAD + table)
        return;
    memcpy(all, block, 32);
    block += GYRE_WIRE_HEAD;
    bytes -= GYRE_WIRE_HEAD;
    all[4] = XXH3_64bits(block + table, bytes - table);
    all[5] = table > 0 ? XXH3_64bits(block, table) : 0;
    hash = XXH3_64bits(all, sizeof(all));
    memcpy(block - 8, &hash, sizeof(hash));
}

static void try_block(const gyre_codec *codec, uint8_t *block, size_t size,
                      size_t n)
{
    static float out[MOST_ELEMENTS];
    uint64_t body = gyre_wire_bytes(block, size);

    if (body != 0 && body <= size) {
        seal(block, (size_t)body,
             gyre_codec_flags(codec) & GYRE_CODEC_VARIABLE
                 ? 4 * ((n + GYRE_CODEC_GRAIN - 1) / GYRE_CODEC_GRAIN)
                 : 0);
    }
    if (gyre_wire_check(codec, block, size, n, NULL) != GYRE_OK) {
        fuzz_insist(gyre_wire_verify(codec, block, size, n, NULL) != GYRE_OK,
                    "verify takes what check does not");
        return;
    }
    if (gyre_wire_decode(codec, block, out, NULL) != GYRE_OK)
        return;
    check_floats(out, n);
    fuzz_insist(gyre_wire_verify(codec, block, size, n, NULL) == GYRE_OK,
                "verify refuses what decodes");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const gyre_codec *codec;
    uint8_t *copy;
    size_t n;

    if (start() != 0 || size < HEAD)
        return 0;
    codec = codecs[data[0] % CODEC_CASES];
    n = 1 + (data[1] | (size_t)data[2] << 8) % MOST_ELEMENTS;
    /* Exactly as large as it is, for tools that watch the end of it. */
    copy = malloc(size - HEAD + 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, data + HEAD, size - HEAD);
    if (data[3] % 2 == 0)
        try_block(codec, copy, size - HEAD, n);
    else
        try_payload(codec, copy, size - HEAD, 1 + (n - 1) % GYRE_CODEC_GRAIN);
    free(copy);
    return 0;
}

#ifndef GYRE_LIBFUZZER

static size_t mutate(uint8_t *data, size_t size)
{
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 0x7c, 0xfe, 4};
    size_t at = size > 0 ? (size_t)(fuzz_draw() % size) : 0;
    size_t n = (size_t)(fuzz_draw() % 12);

    if (size == 0)
        return size;
    switch (fuzz_draw() % 6) {
    case 0:
        data[at] ^= (uint8_t)(1u << fuzz_draw() % 8);
        return size;
    case 1:
        data[at] = edges[fuzz_draw() % sizeof(edges)];
        return size;
    case 2:
        n = n < size - at ? n : size - at;
        memset(data + at, (int)(fuzz_draw() % 2 * 255), n);
        return size;
    case 3:
        return fuzz_cut(data, size, at, n);
    case 4: /* in the header or a table more often than elsewhere */
        data[(HEAD + fuzz_draw() % 60) % size] = (uint8_t)fuzz_draw();
        return size;
    default:
        return size - (n < size ? n : size);
    }
}

static size_t change(uint8_t *data, size_t size)
{
    for (uint64_t k = 1 + fuzz_draw() % 3; k > 0; k--)
        size = mutate(data, size);
    return size;
}

/* ---- writing the corpus ---------------------------------------------- */

/* A block of 150 elements, or of two grains and a rest for codecs whose blocks
 * have a table; then its first payload alone. */
static int write_case(const char *folder, size_t c)
{
    static uint64_t summary[(1 << 20) / 8], room[FUZZ_MOST / 8];
    static float x[MOST_ELEMENTS], kept[GYRE_CODEC_GRAIN];
    const gyre_codec *codec = codecs[c];
    size_t survey = gyre_codec_survey_bytes(codec), n = survey > 0 ? 2100 : 150;
    uint8_t head[HEAD] = {(uint8_t)c, (uint8_t)(n - 1), (uint8_t)((n - 1) >> 8),
                          0};
    uint64_t decided[32] = {0}, bytes;
    gyre_wire_writer writer;
    const uint8_t *payload;
    size_t payload_bytes;
    char path[4096];
    FILE *file;

    codec_fill(0, c, x, n);
    for (uint32_t pass = 0; survey > 0; pass++) {
        memset(summary, 0, survey);
        for (size_t at = 0; at < n; at += GYRE_CODEC_GRAIN)
            gyre_codec_survey(codec, pass, decided, x + at,
                              n - at < GYRE_CODEC_GRAIN ? n - at
                                                        : GYRE_CODEC_GRAIN,
                              at, n, summary);
        if (!gyre_codec_decide(codec, pass, summary, n, n, decided))
            break;
    }
    gyre_wire_begin(&writer, codec, n, (uint8_t *)room);
    for (size_t at = 0; at < n; at += GYRE_CODEC_GRAIN) {
        gyre_compress job = {.decided = decided,
                             .n = n - at < GYRE_CODEC_GRAIN ? n - at
                                                            : GYRE_CODEC_GRAIN,
                             .x = x + at,
                             .index = at,
                             .place = at,
                             .payload = gyre_wire_next(&writer),
                             .kept = kept};

        gyre_wire_add(&writer, gyre_codec_compress(codec, &job));
    }
    bytes = gyre_wire_end(&writer);
    for (int alone = 0; alone < 2; alone++) {
        gyre_wire_grain(codec, (uint8_t *)room, 0, &payload, &payload_bytes);
        head[3] = (uint8_t)alone;
        if (alone && n > GYRE_CODEC_GRAIN) {
            head[1] = 0xff;
            head[2] = 3;
        }
        snprintf(path, sizeof(path), "%s/%02zu-%s-%s", folder, c,
                 codec_cases[c].name, alone ? "payload" : "block");
        file = fopen(path, "wb");
        if (file == NULL)
            return 1;
        fwrite(head, 1, HEAD, file);
        if (alone)
            fwrite(payload, 1, payload_bytes, file);
        else
            fwrite(room, 1, (size_t)bytes, file);
        fclose(file);
    }
    return 0;
}

static int write_corpus(const char *folder)
{
    int failed = start();

    for (size_t c = 0; c < CODEC_CASES && !failed; c++)
        failed = write_case(folder, c);
    return failed;
}

int main(int argc, char **argv)
{
    static const fuzz_target target = {.folder = "wire",
                                       .what = "wire blocks",
                                       .rounds = 20000,
                                       .change = change,
                                       .write = write_corpus};
    int failed = fuzz_main(&target, argc, argv);

    for (size_t c = 0; c < CODEC_CASES; c++)
        gyre_codec_destroy(codecs[c]);
    gyre_context_destroy(context);
    return failed;
}

#endif
