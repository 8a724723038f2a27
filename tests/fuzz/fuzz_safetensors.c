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

#include "store/safetensors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 };

static gyre_context *context;

static void insist(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "# taken, but %s\n", what);
    abort();
}

static void check_tensor(const gyre_st_tensor *t, uint64_t *at)
{
    uint64_t n = 1;

    insist(t->name[0] != '\0', "a name is empty");
    insist(t->rank <= GYRE_MAX_RANK, "a rank is too large");
    for (uint32_t k = 0; k < t->rank; k++)
        if (t->shape[k] == 0)
            n = 0;
    for (uint32_t k = 0; k < t->rank && n > 0; k++)
        insist(!__builtin_mul_overflow(n, t->shape[k], &n),
               "a shape overflows");
    insist(n == t->elements, "elements are not the shape's");
    insist(t->begin == *at && t->end == t->begin + n * t->item,
           "data overlap or have a gap");
    *at = t->end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
        insist(status == GYRE_FORMAT, "the status is not FORMAT");
        insist(strstr(error.text, "fuzz") != NULL, "the file is not named");
        return 0;
    }
    at = GYRE_ST_HEAD + bytes;
    for (size_t i = 0; i < st.count; i++)
        check_tensor(&st.tensors[i], &at);
    insist(at == size, "data are left over");
    (void)gyre_st_metadata(&st, "gyre.steps");
    gyre_st_close(&st);
    return 0;
}

#ifndef GYRE_LIBFUZZER

static uint64_t seed = 1;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

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

static size_t insert(uint8_t *data, size_t size, size_t at, const void *what,
                     size_t n)
{
    if (size + n > MOST)
        return size;
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, what, n);
    return size + n;
}

static size_t mutate(uint8_t *data, size_t size)
{
    size_t at = size > 0 ? (size_t)(draw() % size) : 0;
    const char *word = words[draw() % (sizeof(words) / sizeof(words[0]))];
    size_t n = (size_t)(draw() % 16);

    switch (draw() % 6) {
    case 0:
        if (size > 0)
            data[at] ^= (uint8_t)(1u << draw() % 8);
        return size;
    case 1:
        return insert(data, size, at, word, strlen(word));
    case 2:
        if (strlen(word) <= size - at)
            memcpy(data + at, word, strlen(word));
        return size;
    case 3:
        n = n < size - at ? n : size - at;
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 4:
        return size - (n < size ? n : size);
    default:
        if (size > 0)
            data[at] = (uint8_t)('0' + draw() % 10);
        return size;
    }
}

/* Header length to what is there, most of the time: else nothing else would
 * ever be reached. */
static void fit_length(uint8_t *data, size_t size, uint64_t tail)
{
    uint64_t bytes;

    if (size < GYRE_ST_HEAD + tail || draw() % 8 == 0)
        return;
    bytes = size - GYRE_ST_HEAD - tail;
    memcpy(data, &bytes, GYRE_ST_HEAD);
}

static void run(const uint8_t *data, size_t size, int rounds)
{
    static uint8_t changed[MOST];
    uint64_t header = 0, tail = 0;

    LLVMFuzzerTestOneInput(data, size);
    if (size >= GYRE_ST_HEAD)
        memcpy(&header, data, GYRE_ST_HEAD);
    if (size >= GYRE_ST_HEAD && header <= size - GYRE_ST_HEAD)
        tail = size - GYRE_ST_HEAD - header;
    while (rounds-- > 0) {
        size_t n = size;

        memcpy(changed, data, size);
        for (uint64_t k = 1 + draw() % 4; k > 0; k--)
            n = mutate(changed, n);
        fit_length(changed, n, tail);
        /* Exactly as large as it is, for tools that watch the end of it. */
        uint8_t *exact = malloc(n > 0 ? n : 1);
        if (exact == NULL)
            return;
        memcpy(exact, changed, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
}

static int run_file(const char *path, int rounds)
{
    static uint8_t data[MOST];
    FILE *file = fopen(path, "rb");
    size_t n;

    if (file == NULL)
        return 1;
    n = fread(data, 1, sizeof(data), file);
    fclose(file);
    run(data, n, rounds);
    return 0;
}

static int run_corpus(const char *top, int rounds)
{
    char folder[2048], path[4096];
    struct dirent **entries = NULL;
    int n, failed = 0, count = 0;

    snprintf(folder, sizeof(folder), "%s/tests/fuzz/safetensors", top);
    n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
            failed |= run_file(path, rounds);
            count++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("# %d files\n", count);
    return failed || count == 0;
}

int main(int argc, char **argv)
{
    const char *top = getenv("GYRE_TOP_SRC");
    const char *more = getenv("GYRE_FUZZ_ROUNDS");
    int rounds = more != NULL ? atoi(more) : 4000;
    int failed = 0;

    for (int i = 1; i < argc; i++)
        failed |= run_file(argv[i], rounds);
    if (argc < 2)
        failed = run_corpus(top != NULL ? top : ".", rounds);
    gyre_context_destroy(context);
    printf("1..1\n%s 1 - safetensors headers\n", failed ? "not ok" : "ok");
    return failed;
}

#endif
