/* SPDX-License-Identifier: Apache-2.0 */
/* The wire block: what is written is read, and nothing else is believed. */
#include "config.h"

#include "../unit.h"

#include "../codecs.h"

#include <xxhash.h>

enum { N = 3 * GYRE_CODEC_GRAIN + 200, ROOM = 64 << 10 };

static uint64_t room[ROOM / 8];
static uint8_t *const block = (uint8_t *)room;

/* Kept values of N bell-shaped numbers; the block's bytes are returned. */
static uint64_t write_block(const gyre_codec *codec, size_t n, float *kept)
{
    static float x[N];
    static uint64_t summary[(1 << 20) / 8];
    uint64_t decided[32] = {0};
    size_t bytes = gyre_codec_survey_bytes(codec);
    gyre_wire_writer writer;

    codec_fill(0, 3, x, n);
    for (uint32_t pass = 0; bytes > 0; pass++) {
        memset(summary, 0, bytes);
        for (size_t at = 0; at < n; at += GYRE_CODEC_GRAIN)
            gyre_codec_survey(codec, pass, decided, x + at,
                              n - at < GYRE_CODEC_GRAIN ? n - at
                                                        : GYRE_CODEC_GRAIN,
                              at, n, summary);
        if (!gyre_codec_decide(codec, pass, summary, n, n, decided))
            break;
    }
    assert_true(gyre_codec_bound(codec, n) <= ROOM);
    memset(block, 0x77, ROOM);
    gyre_wire_begin(&writer, codec, n, block);
    for (size_t at = 0; at < n; at += GYRE_CODEC_GRAIN) {
        gyre_compress job = {.decided = decided,
                             .n = n - at < GYRE_CODEC_GRAIN ? n - at
                                                            : GYRE_CODEC_GRAIN,
                             .x = x + at,
                             .index = at,
                             .place = at,
                             .payload = gyre_wire_next(&writer),
                             .kept = kept + at};

        gyre_wire_add(&writer, gyre_codec_compress(codec, &job));
    }
    return gyre_wire_end(&writer);
}

static void test_blocks_come_back(void **state)
{
    static const size_t counts[] = {1, 500, 1024, 1025, 2048, N};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static float kept[N], out[N];
    gyre_error error = {0};

    (void)state;
    for (size_t c = 0; c < CODEC_CASES; c++) {
        gyre_codec *codec = codec_open(context, &codec_cases[c]);

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            size_t n = counts[i];
            uint64_t bytes = write_block(codec, n, kept);

            assert_true(bytes % 8 == 0 && bytes <= gyre_codec_bound(codec, n));
            if (!(gyre_codec_flags(codec) & GYRE_CODEC_VARIABLE))
                assert_int_equal(bytes, gyre_codec_bound(codec, n));
            assert_int_equal(block[bytes], 0x77);
            assert_int_equal(gyre_wire_bytes(block, GYRE_WIRE_HEAD), bytes);
            if (gyre_wire_verify(codec, block, bytes, n, &error) != GYRE_OK)
                fail_msg("%s", error.text);
            assert_int_equal(gyre_wire_check(codec, block, ROOM, n, NULL),
                             GYRE_OK);
            assert_int_equal(gyre_wire_decode(codec, block, out, NULL),
                             GYRE_OK);
            assert_memory_equal(out, kept, n * sizeof(float));
        }
        gyre_codec_destroy(codec);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Any one bit of a block flipped, any length cut. */
static void test_every_flipped_bit_is_seen(void **state)
{
    static const size_t cases[] = {0, 5, 9, 17, 19};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static float kept[N];

    (void)state;
    for (size_t c = 0; c < 5; c++) {
        gyre_codec *codec = codec_open(context, &codec_cases[cases[c]]);
        uint64_t bytes = write_block(codec, 1100, kept);

        for (uint64_t bit = 0; bit < 8 * bytes; bit++) {
            block[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_not_equal(
                gyre_wire_check(codec, block, bytes, 1100, NULL), GYRE_OK);
            block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (uint64_t size = 0; size < bytes; size++)
            assert_int_not_equal(
                gyre_wire_check(codec, block, size, 1100, NULL), GYRE_OK);
        gyre_codec_destroy(codec);
    }
    gyre_context_destroy(context);
}

static void seal(uint64_t bytes, uint64_t table)
{
    uint64_t all[6], hash;

    memcpy(all, block, 32);
    all[4] = XXH3_64bits(block + 40 + table, (size_t)(bytes - 40 - table));
    all[5] = table > 0 ? XXH3_64bits(block + 40, (size_t)table) : 0;
    hash = XXH3_64bits(all, sizeof(all));
    memcpy(block + 32, &hash, sizeof(hash));
}

/* With a checksum that fits: each field says what is wrong with it. */
static void test_fields_are_named(void **state)
{
    static const struct {
        size_t at;
        gyre_status status;
        const char *text;
    } fields[] = {
        {0, GYRE_FORMAT, "magic"},     {4, GYRE_FORMAT, "format"},
        {6, GYRE_FORMAT, "flag"},      {8, GYRE_FORMAT, "id of codec"},
        {16, GYRE_FORMAT, "count"},    {24, GYRE_CORRUPT, "length"},
        {33, GYRE_CORRUPT, "checksum"}};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_codec *codec = codec_open(context, &codec_cases[0]);
    gyre_codec *global = codec_open(context, &codec_cases[5]);
    static float kept[N];
    gyre_error error;
    uint64_t bytes;
    uint32_t end;

    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        bytes = write_block(codec, N, kept);
        block[fields[i].at] ^= 1;
        if (fields[i].at < 32)
            seal(bytes, 0);
        assert_int_equal(gyre_wire_check(codec, block, bytes, N, &error),
                         fields[i].status);
        unit_assert_text(&error, fields[i].text);
        unit_assert_text(&error, "topk");
    }
    bytes = write_block(global, N, kept);
    end = UINT32_MAX - 3;
    memcpy(block + 44, &end, sizeof(end));
    seal(bytes, 4 * 4);
    assert_int_equal(gyre_wire_check(global, block, bytes, N, &error),
                     GYRE_CORRUPT);
    unit_assert_text(&error, "payload 1 ends");
    bytes = write_block(global, N, kept);
    assert_int_equal(gyre_wire_check(codec, block, bytes, N, &error),
                     GYRE_FORMAT);
    gyre_codec_destroy(codec);
    gyre_codec_destroy(global);
    gyre_context_destroy(context);
}

/* With a checksum that fits, a payload that no codec writes. */
static void test_impossible_payloads_are_refused(void **state)
{
    static const struct {
        size_t codec, at;
        uint8_t value;
        const char *what;
    } bad[] = {
        {0, 40 + 1, 4, "an index beyond its block"},
        {0, 40 + 4, 0, "indices that do not ascend"},
        {0, 40 + 43, 0x7f, "a value that is no number"},
        {3, 40 + 20 * 6, 126, "a scale beyond the largest"},
        {9, 40 + 3, 0xff, "a scale that is no number"},
        {9, 40 + 16, 0x80, "a code that is not written"},
        {11, 40 + 16, 0x80, "zero with a sign"},
        {17, 40 + 0, 0x7f, "NaN in e4m3"},
        {18, 40 + 0, 0x7c, "infinity in e5m2"},
        {17, 40 + 1024, 120, "a scale beyond the largest"},
        {19, 40 + 3, 0x80, "a negative scale"},
    };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static float kept[N];
    gyre_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gyre_codec *codec = codec_open(context, &codec_cases[bad[i].codec]);
        uint64_t bytes = write_block(codec, 1024, kept);

        if (bad[i].at == 44) /* the first two indices are 0 */
            memset(block + 40, 0, 8);
        if (bad[i].at == 83) /* and all bits of the exponent are 1 */
            block[82] |= 0x80;
        block[bad[i].at] = bad[i].value;
        seal(bytes, 0);
        assert_int_equal(gyre_wire_check(codec, block, bytes, 1024, NULL),
                         GYRE_OK);
        if (gyre_wire_verify(codec, block, bytes, 1024, &error) != GYRE_CORRUPT)
            fail_msg("%s: %s is taken", codec_text(&codec_cases[bad[i].codec]),
                     bad[i].what);
        unit_assert_text(&error, "payload 0");
        gyre_codec_destroy(codec);
    }
    gyre_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_come_back),
        cmocka_unit_test(test_every_flipped_bit_is_seen),
        cmocka_unit_test(test_fields_are_named),
        cmocka_unit_test(test_impossible_payloads_are_refused),
    };

    return cmocka_run_group_tests_name("registry/wire", tests, NULL, NULL);
}
