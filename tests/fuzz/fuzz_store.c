/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What open reads of a store before it trusts a checksum: manifests,
 * superblocks and commit records from anywhere.
 *
 *     fuzz_store [FILE...]      each file, then seeded mutations of it
 *     fuzz_store --corpus DIR   write the saved corpus
 *
 * Without files the saved corpus is taken; prints TAP, so that make check runs
 * it.  For a fuzzer: clang -fsanitize=fuzzer,address -DGYRE_LIBFUZZER.
 *
 * An input: one byte that says what it is (m, s or r), then the bytes.  The
 * checksums of superblocks and records are made to fit, as a hostile file's
 * would.  A manifest that is taken must give a layout without contradictions,
 * and be written again as it was understood.
 */
#include "config.h"

#include "fuzz.h"
#include "store/build.h"
#include "store/manifest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    AREA = 24 * 1024,
    CHUNKS = 7,
    TENSORS = 3,
    MEMORY = 8 << 20 /* a manifest may ask for any number of chunks */
};

static gyre_context *context;
static size_t taken_bytes;
static size_t taken, tried; /* inputs */

/* ---- memory with an end ----------------------------------------------- */

static void *take(void *user, void *old, size_t old_bytes, size_t new_bytes,
                  size_t align)
{
    void *now = NULL;

    (void)user;
    if (new_bytes > 0) {
        if (taken_bytes + new_bytes > MEMORY ||
            posix_memalign(&now,
                           align < sizeof(void *) ? sizeof(void *) : align,
                           new_bytes) != 0)
            return NULL;
        taken_bytes += new_bytes;
        if (old != NULL)
            memcpy(now, old, old_bytes < new_bytes ? old_bytes : new_bytes);
    }
    if (old != NULL)
        taken_bytes -= old_bytes;
    free(old);
    return now;
}

static int start(void)
{
    gyre_context_options options = {.size = sizeof(options),
                                    .allocator = {.resize = take}};

    return context == NULL &&
           gyre_context_create(&options, &context, NULL) != GYRE_OK;
}

/* ---- manifests -------------------------------------------------------- */

static void check_layout(const gyre_layout *l)
{
    uint64_t behind[GYRE_MAX_DEVICES];

    fuzz_insist(l->devices >= 1 && l->devices <= GYRE_MAX_DEVICES,
                "no devices");
    fuzz_insist(l->area_at[1] >= l->area_at[0] + l->area_bytes,
                "areas overlap");
    for (uint32_t d = 0; d < l->devices; d++)
        behind[d] = l->data_at;
    for (uint64_t c = 0; c < l->chunks; c++) {
        uint32_t d = l->places[c].device;

        fuzz_insist(d < l->devices, "a chunk lies on no device");
        fuzz_insist(l->places[c].offset == behind[d], "chunks overlap");
        behind[d] += gyre_layout_chunk_bytes(l, c) * gyre_layout_versions(l, c);
        behind[d] += gyre_layout_gradient_bytes(l, c);
        fuzz_insist(behind[d] >= l->places[c].offset, "an offset overflows");
    }
    for (uint32_t d = 0; d < l->devices; d++)
        fuzz_insist(l->device_bytes[d] == behind[d], "a file is too short");
}

static gyre_status parse(const void *text, size_t bytes, gyre_store **out)
{
    gyre_error error = {GYRE_OK, ""};
    gyre_status status = gyre_store_blank(context, "/fuzz", NULL, out, &error);

    fuzz_insist(status == GYRE_OK, "no store could be made");
    status = gyre_manifest_parse(*out, text, bytes, "fuzz", &error);
    fuzz_insist(status == GYRE_OK || error.text[0] != '\0',
                "there is no message");
    return status;
}

static int try_manifest(const uint8_t *data, size_t size)
{
    char *text = NULL, *again = NULL;
    gyre_store *store, *second;
    int good = parse(data, size, &store) == GYRE_OK;

    if (good) {
        check_layout(&store->layout);
        if (gyre_manifest_text(store, &text, NULL) == GYRE_OK) {
            fuzz_insist(parse(text, strlen(text), &second) == GYRE_OK,
                        "it cannot be read again");
            fuzz_insist(gyre_manifest_text(second, &again, NULL) == GYRE_OK &&
                            strcmp(text, again) == 0,
                        "it is read otherwise the second time");
            gyre_store_free(second);
        }
    }
    gyre_free_text(context, text);
    gyre_free_text(context, again);
    gyre_store_free(store);
    return good;
}

/* ---- superblocks and records ------------------------------------------ */

static void fit(uint8_t *at, const void *from, size_t bytes, uint64_t seed)
{
    uint64_t sum = XXH3_64bits_withSeed(from, bytes, seed);

    memcpy(at, &sum, sizeof(sum));
}

static int try_super(const uint8_t *data, size_t size)
{
    static uint8_t page[GYRE_PAGE];
    gyre_super super;

    memset(page, 0, sizeof(page));
    memcpy(page, data, size < sizeof(page) ? size : sizeof(page));
    fit(page + GYRE_PAGE - 8, page, GYRE_PAGE - 8, 0);
    return gyre_format_read_super(page, "fuzz", &super, NULL) == GYRE_OK;
}

/* Where the sums of a record lie (format.c). */
enum {
    RECORD_AT = 40,
    BODY_SUM_AT = RECORD_AT + sizeof(gyre_record),
    SUM_AT = BODY_SUM_AT + 8
};

static void fit_record(uint8_t *image)
{
    uint64_t used = gyre_format_head_bytes(CHUNKS, TENSORS);
    gyre_record record;

    memcpy(&record, image + RECORD_AT, sizeof(record));
    if (record.blob_bytes <= AREA - used)
        fit(image + BODY_SUM_AT, image + GYRE_PAGE,
            used + record.blob_bytes - GYRE_PAGE, record.seq);
    fit(image + SUM_AT, image, SUM_AT, 0);
}

static int try_record(const uint8_t *data, size_t size)
{
    static const uint8_t uuid[16] = "0123456789abcdef";
    uint8_t *image = malloc(AREA);
    const gyre_entry *entries;
    const uint64_t *steps;
    const void *blob;
    gyre_record record;
    int good;

    fuzz_insist(image != NULL, "there is no memory");
    memset(image, 0, AREA);
    memcpy(image, data, size < AREA ? size : AREA);
    fit_record(image);
    good = gyre_format_read_area(image, AREA, uuid, 3, CHUNKS, TENSORS, &record,
                                 &entries, &steps, &blob, NULL) == GYRE_OK;
    if (good) {
        const uint8_t *end = (const uint8_t *)blob + record.blob_bytes;

        fuzz_insist(end >= image && end <= image + AREA, "the blob is outside");
        fuzz_insist((const uint8_t *)(entries + CHUNKS) <=
                            (const uint8_t *)steps &&
                        (const void *)(steps + TENSORS) <= blob,
                    "tables overlap");
    }
    free(image);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int good;

    if (start() != 0 || size < 1)
        return 0;
    if (data[0] == 'm')
        good = try_manifest(data + 1, size - 1);
    else if (data[0] == 's')
        good = try_super(data + 1, size - 1);
    else
        good = try_record(data + 1, size - 1);
    taken += (size_t)good;
    tried++;
    fuzz_insist(gyre_context_memory(context, NULL) < 1 << 16,
                "memory was lost");
    return 0;
}

#ifndef GYRE_LIBFUZZER

/* ---- mutations -------------------------------------------------------- */

static const char *const words[] = {
    "null",
    "true",
    "false",
    "{}",
    "[]",
    "\"\"",
    "0",
    "1",
    "-1",
    "1e300",
    "1024",
    "4096",
    "1048576",
    "9223372036854775807",
    "18446744073709551615",
    "\"q8\"",
    "\"bf16\"",
    "\"off\"",
    "\"volatile\"",
    "\"ffffffffffffffff\"",
    "\"shape\": [",
    "\"frozen\": true",
    "\"codec\": \"q8\"",
    "\"compressor\": null",
    ",",
    "\xff\xff\xff\xff\xff\xff\xff\xff",
};

static size_t mutate(uint8_t *data, size_t size)
{
    size_t at = 1 + (size_t)(fuzz_draw() % (size > 1 ? size - 1 : 1));
    const char *word = words[fuzz_draw() % (sizeof(words) / sizeof(words[0]))];
    size_t n = strlen(word), cut = (size_t)(fuzz_draw() % 24);

    if (at >= size)
        return size;
    switch (fuzz_draw() % 6) {
    case 0:
        data[at] ^= (uint8_t)(1u << fuzz_draw() % 8);
        return size;
    case 1:
        data[at] = (uint8_t)('0' + fuzz_draw() % 10);
        return size;
    case 2:
        if (n <= size - at)
            memcpy(data + at, word, n);
        return size;
    case 3:
        return fuzz_insert(data, size, at, word, n);
    case 4:
        return fuzz_cut(data, size, at, cut);
    default:
        memset(data + at, (int)(fuzz_draw() % 256), cut < size - at ? cut : 1);
        return size;
    }
}

/* Numbers of a manifest matter more than its letters: put another one in the
 * place of one that is there. */
static size_t renumber(uint8_t *data, size_t size)
{
    static const char digits[] = "0123456789";
    size_t at = (size_t)(fuzz_draw() % size), end;

    while (at < size && strchr(digits, data[at]) == NULL)
        at++;
    for (end = at;
         end < size && data[end] != 0 && strchr(digits, data[end]) != NULL;)
        end++;
    for (size_t k = at; k < end; k++)
        data[k] = (uint8_t)digits[fuzz_draw() % 10];
    return size;
}

static size_t change(uint8_t *data, size_t size)
{
    for (uint64_t k = 1 + fuzz_draw() % 4; k > 0 && size > 0; k--)
        size = fuzz_draw() % 3 == 0 ? renumber(data, size) : mutate(data, size);
    return size;
}

/* Nothing would be tested when all were refused. */
static int judge(void)
{
    printf("# %zu of %zu inputs taken\n", taken, tried);
    return taken >= tried / 20;
}

/* ---- the corpus ------------------------------------------------------- */

static int save(const char *folder, const char *name, char what,
                const void *data, size_t size)
{
    char path[4096];
    FILE *file;
    int failed;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "wb");
    if (file == NULL)
        return 1;
    failed = fputc(what, file) == EOF || fwrite(data, 1, size, file) != size;
    return fclose(file) != 0 || failed;
}

static int save_manifest(const char *folder, const char *name,
                         const gyre_store_spec *spec)
{
    gyre_store *store = NULL;
    char *text = NULL;
    int failed =
        gyre_store_blank(context, "/fuzz", NULL, &store, NULL) != GYRE_OK ||
        gyre_store_prepare(store, spec, NULL) != GYRE_OK ||
        gyre_store_lay_out(store, NULL) != GYRE_OK ||
        gyre_manifest_text(store, &text, NULL) != GYRE_OK ||
        save(folder, name, 'm', text, strlen(text));

    gyre_free_text(context, text);
    if (store != NULL)
        gyre_store_free(store);
    return failed;
}

static int save_pages(const char *folder)
{
    static uint8_t page[GYRE_PAGE], image[AREA];
    static const gyre_entry entries[CHUNKS];
    static const uint64_t steps[TENSORS] = {1, 2, 3};
    const gyre_super super = {.devices = 2, .generation = 3};
    const gyre_record record = {.seq = 9, .generation = 3, .blob_bytes = 100};
    uint64_t used;

    gyre_format_super(&super, page);
    used = gyre_format_area(image, (const uint8_t *)"0123456789abcdef", &record,
                            entries, CHUNKS, steps, TENSORS, GYRE_PAGE);
    return save(folder, "super", 's', page, 256) ||
           save(folder, "record", 'r', image, used);
}

static int write_corpus(const char *folder)
{
    const gyre_tensor tensors[] = {
        {.name = "emb", .rank = 2, .shape = {300, 100}},
        {.name = "pos",
         .rank = 1,
         .shape = {2000},
         .flags = GYRE_TENSOR_FROZEN},
        {.name = "scale", .group = 1},
        {.name = "nothing", .rank = 2, .shape = {0, 3}}};
    const gyre_slot_codec codecs[] = {{"parameter", GYRE_STATE_BF16_STOCHASTIC},
                                      {"*", GYRE_STATE_Q8}};
    const gyre_setting ratio = {"ratio", 0.125};
    const double weights[] = {1, 2.5, 3};
    gyre_store_spec plain = {
        .size = sizeof(plain), .tensors = tensors, .tensor_count = 4};
    gyre_store_spec near = plain, wide = plain;

    near.chunk_elements = 4096;
    near.codecs = codecs;
    near.codec_count = 2;
    near.compressor = "topk";
    near.compressor_settings = &ratio;
    near.compressor_setting_count = 1;
    near.spill = 1;
    near.seed = 0x123456789abcdef0u;
    wide.optimizer = "sgd";
    wide.in_place = 1;
    wide.weights = weights;
    wide.device_count = 3;
    wide.compressor = "sign";
    wide.residual = GYRE_RESIDUAL_VOLATILE;
    return start() || save_manifest(folder, "plain", &plain) ||
           save_manifest(folder, "near", &near) ||
           save_manifest(folder, "wide", &wide) || save_pages(folder);
}

int main(int argc, char **argv)
{
    static const fuzz_target target = {.folder = "store",
                                       .what =
                                           "manifests, superblocks and records",
                                       .rounds = 4000,
                                       .change = change,
                                       .write = write_corpus,
                                       .judge = judge};
    int failed = fuzz_main(&target, argc, argv);

    gyre_context_destroy(context);
    return failed;
}

#endif
