/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors headers from anywhere.
 *
 *     fuzz_safetensors [FILE...]      each file, then seeded mutations of it
 *
 * Without files the saved corpus is taken; prints TAP, so that make check runs
 * it.  For a fuzzer: clang -fsanitize=fuzzer,address -DGYRE_LIBFUZZER.
 *
 * What is taken must be consistent, as a reader of the data relies on it.
 */
#include "config.h"

#include "fuzz.h"
#include "store/safetensors.h"

#include <string.h>

static gyre_context *context;

static void check_tensor(const gyre_st_tensor *t, uint64_t *at)
{
    uint64_t n = 1;

    fuzz_insist(t->name[0] != '\0', "a name is empty");
    fuzz_insist(t->rank <= GYRE_MAX_RANK, "a rank is too large");
    for (uint32_t k = 0; k < t->rank; k++)
        if (t->shape[k] == 0)
            n = 0;
    for (uint32_t k = 0; k < t->rank && n > 0; k++)
        fuzz_insist(!__builtin_mul_overflow(n, t->shape[k], &n),
                    "a shape overflows");
    fuzz_insist(n == t->elements, "elements are not the shape's");
    fuzz_insist(t->begin == *at && t->end == t->begin + n * t->item,
                "data overlap or have a gap");
    *at = t->end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t bytes = 0, at;
    gyre_error error;
    gyre_st st;
    gyre_status status;

    if (context == NULL && gyre_context_create(NULL, &context, NULL))
        return 0;
    if (size < GYRE_ST_HEAD)
        return 0;
    memcpy(&bytes, data, GYRE_ST_HEAD);
    if (bytes > size - GYRE_ST_HEAD)
        bytes = size - GYRE_ST_HEAD;
    status = gyre_st_parse(context, "fuzz", data + GYRE_ST_HEAD, (size_t)bytes,
                           size, &st, &error);
    if (status != GYRE_OK) {
        fuzz_insist(status == GYRE_FORMAT, "the status is not FORMAT");
        fuzz_insist(strstr(error.text, "fuzz") != NULL,
                    "the file is not named");
        return 0;
    }
    at = GYRE_ST_HEAD + bytes;
    for (size_t i = 0; i < st.count; i++)
        check_tensor(&st.tensors[i], &at);
    fuzz_insist(at == size, "data are left over");
    (void)gyre_st_metadata(&st, "gyre.steps");
    gyre_st_close(&st);
    return 0;
}

#ifndef GYRE_LIBFUZZER

/* Pieces that headers are made of, so that a mutation gets past the JSON. */
static const char *const words[] = {
    "\"dtype\":",
    "\"shape\":",
    "\"data_offsets\":",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\"F32\"",
    "\"BF16\"",
    "\"U8\"",
    "\"a\"",
    "0",
    "1",
    "4",
    "-1",
    "9223372036854775807",
    "4294967296",
    "18446744073709551615",
    "1e9",
    "[0,4]",
    "[0,0]",
    "[]",
    "null",
    "true",
    "\"__metadata__\":{}",
    "\\u0000",
    "\xff",
    "\xc3\xa9",
    "     ",
};

static size_t mutate(uint8_t *data, size_t size)
{
    size_t at = size > 0 ? (size_t)(fuzz_draw() % size) : 0;
    const char *word = words[fuzz_draw() % (sizeof(words) / sizeof(words[0]))];
    size_t n = (size_t)(fuzz_draw() % 16);

    switch (fuzz_draw() % 6) {
    case 0:
        if (size > 0)
            data[at] ^= (uint8_t)(1u << fuzz_draw() % 8);
        return size;
    case 1:
        return fuzz_insert(data, size, at, word, strlen(word));
    case 2:
        if (strlen(word) <= size - at)
            memcpy(data + at, word, strlen(word));
        return size;
    case 3:
        return fuzz_cut(data, size, at, n);
    case 4:
        return size - (n < size ? n : size);
    default:
        if (size > 0)
            data[at] = (uint8_t)('0' + fuzz_draw() % 10);
        return size;
    }
}

/* Header length to what is there, most of the time: else nothing else would
 * ever be reached. */
static void fit_length(uint8_t *data, size_t size, uint64_t tail)
{
    uint64_t bytes;

    if (size < GYRE_ST_HEAD + tail || fuzz_draw() % 8 == 0)
        return;
    bytes = size - GYRE_ST_HEAD - tail;
    memcpy(data, &bytes, GYRE_ST_HEAD);
}

static size_t change(uint8_t *data, size_t size)
{
    uint64_t header = 0, tail = 0;

    if (size >= GYRE_ST_HEAD)
        memcpy(&header, data, GYRE_ST_HEAD);
    if (size >= GYRE_ST_HEAD && header <= size - GYRE_ST_HEAD)
        tail = size - GYRE_ST_HEAD - header;
    for (uint64_t k = 1 + fuzz_draw() % 4; k > 0; k--)
        size = mutate(data, size);
    fit_length(data, size, tail);
    return size;
}

int main(int argc, char **argv)
{
    static const fuzz_target target = {.folder = "safetensors",
                                       .what = "safetensors headers",
                                       .rounds = 4000,
                                       .change = change};
    int failed = fuzz_main(&target, argc, argv);

    gyre_context_destroy(context);
    return failed;
}

#endif
