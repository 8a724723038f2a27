/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans from anywhere, as text and as bytes.
 *
 *     fuzz_plan [FILE...]      each file, then seeded mutations of it
 *
 * Without files the saved corpus is taken; prints TAP, so that make check runs
 * it.  For a fuzzer: clang -fsanitize=fuzzer,address -DGYRE_LIBFUZZER.
 *
 * What is taken must have ids that exist, count, order, and be written and read
 * back as the same.
 */
#include "config.h"

#include "plan/plan.h"
#include "plan/record.h"

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

static void check_program(const gyre_plan *plan, uint32_t rank)
{
    const gyre_plan_program *p = &plan->programs[rank];
    uint32_t units = 0;

    for (uint32_t i = 0; i < p->slot_count; i++)
        insist(p->slots[i].rows < plan->row_count &&
                   p->slots[i].buf < p->buf_count &&
                   p->slots[i].h1 <= plan->problem.heads,
               "a slot is not there");
    for (uint32_t i = 0; i < p->view_count; i++)
        insist(p->views[i].slot < p->slot_count &&
                   p->views[i].rows < plan->row_count,
               "a view has no slot or rows");
    for (uint32_t i = 0; i < p->op_count; i++) {
        const gyre_plan_op *op = &p->ops[i];
        bool transfer = op->code <= GYRE_OP_GET;
        insist(op->lane < GYRE_PLAN_LANES && op->code < GYRE_OP_COUNT,
               "an op is none");
        insist(!transfer || op->view[1] < plan->problem.ranks,
               "a peer is not there");
        for (uint32_t v = 0; v < gyre_op_views(op->code); v++)
            insist(op->view[v] < p->view_count ||
                       (op->view[v] == GYRE_NO_VIEW &&
                        (gyre_op_optional(op->code) >> v & 1)),
                   "an op has no view");
    }
    for (uint32_t i = 0; i < p->unit_count; i++) {
        insist(p->units[i].first == units, "units leave ops out");
        units += p->units[i].count;
    }
    insist(units == p->op_count, "units leave ops out");
}

typedef struct copy {
    uint8_t *at;
    size_t size;
} copy;

static gyre_status keep(void *user, const void *data, size_t size,
                        gyre_error *error)
{
    copy *c = user;
    uint8_t *more = realloc(c->at, c->size + size);

    if (more == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    memcpy(more + c->size, data, size);
    c->at = more;
    c->size += size;
    return GYRE_OK;
}

static void check_again(const gyre_plan *plan)
{
    copy text = {0}, again = {0};
    gyre_plan *back = NULL;
    gyre_error error;

    insist(gyre_plan_write_text(plan, keep, &text, &error) == GYRE_OK,
           "cannot be written");
    if (gyre_plan_read(context, "again", text.at, text.size, &back, &error))
        fprintf(stderr, "# %s\n", error.text);
    insist(back != NULL, "cannot be read again");
    insist(gyre_plan_write_binary(plan, keep, &again, &error) == GYRE_OK,
           "cannot be written as bytes");
    gyre_plan_free(back);
    free(text.at);
    free(again.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gyre_plan *plan = NULL;
    gyre_error error;

    if (context == NULL && gyre_context_create(NULL, &context, NULL))
        return 0;
    gyre_status status =
        gyre_plan_read(context, "fuzz", data, size, &plan, &error);
    if (status != GYRE_OK) {
        insist(status == GYRE_FORMAT || status == GYRE_CORRUPT,
               "the status is not FORMAT or CORRUPT");
        insist(strstr(error.text, "fuzz") != NULL, "the file is not named");
        return 0;
    }
    for (uint32_t r = 0; r < plan->problem.ranks; r++) {
        uint64_t sent[GYRE_PLAN_MAX_PHASES], got[GYRE_PLAN_MAX_PHASES];
        uint64_t bytes, external;
        gyre_plan_order order = {0};

        check_program(plan, r);
        gyre_plan_count_bytes(plan, r, sent, got);
        gyre_plan_count_memory(plan, r, &bytes, &external, NULL);
        if (plan->programs[r].unit_count > 0 &&
            gyre_plan_order_make(plan, r, &order, &error) == GYRE_OK)
            gyre_plan_order_free(&order);
    }
    check_again(plan);
    gyre_plan_free(plan);
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

/* Pieces that plans are made of, so that a mutation gets past the words. */
static const char *const words[] = {
    "0",
    "1",
    "2",
    "4",
    "4294967295",
    "-",
    "\n",
    "\"",
    "#",
    " ",
    "KV",
    "Q",
    "O*",
    "DKV*",
    "ST",
    "f64",
    "bf16",
    "u8",
    "end\n",
    "done\n",
    "rank 1\n",
    "rows Q\n",
    "views 0 1 2",
    "heads 0 to 1",
    "ATT",
    "op RED lane 0 views 0 0\n",
    "group lane 0 pattern rs phase \"x\"\n",
    "put view 0 peer 0 channel 0\n",
    "get view 1 peer 1 channel 65535\n",
    "bound 18446744073709551615\n",
    "documents 1\n",
    "block row 0 column 0\n",
    "chunk KV start 0 length 0 stride 1 owner 0\n",
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

/* A line or a piece of one somewhere else in it, or away. */
static size_t move_line(uint8_t *data, size_t size, size_t at, int keep_it)
{
    uint8_t line[256];
    size_t n = 0;

    while (n < sizeof(line) && at + n < size) {
        line[n] = data[at + n];
        if (line[n++] == '\n')
            break;
    }
    if (!keep_it) {
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    }
    return insert(data, size, (size_t)(draw() % (size + 1)), line, n);
}

static size_t mutate(uint8_t *data, size_t size)
{
    if (size == 0)
        return size;
    size_t at = (size_t)(draw() % size);
    const char *word = words[draw() % (sizeof(words) / sizeof(words[0]))];

    switch (draw() % 8) {
    case 0:
        data[at] ^= (uint8_t)(1u << draw() % 8);
        return size;
    case 1:
        return insert(data, size, at, word, strlen(word));
    case 2:
        if (strlen(word) <= size - at)
            memcpy(data + at, word, strlen(word));
        return size;
    case 3:
        return move_line(data, size, at, 0);
    case 4:
        return move_line(data, size, at, 1);
    case 5:
        return draw() % 8 == 0 ? at : size;
    case 6:
        data[at] = (uint8_t)draw();
        return size;
    default:
        /* Digits for digits: ids that may not be there. */
        for (; at < size; at++)
            if (data[at] >= '0' && data[at] <= '9') {
                data[at] = (uint8_t)('0' + draw() % 10);
                break;
            }
        return size;
    }
}

/* The sum to what is there, most of the time: else a binary plan is refused at
 * its end whatever stands above. */
static void fit_sum(uint8_t *data, size_t size)
{
    if (!gyre_binary_is(data, size) || size < 16 || draw() % 8 == 0)
        return;
    uint64_t sum = gyre_sum_add(GYRE_SUM_START, data, size - 8);

    for (int i = 0; i < 8; i++)
        data[size - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
}

static void run(const uint8_t *data, size_t size, int rounds)
{
    static uint8_t changed[MOST];

    LLVMFuzzerTestOneInput(data, size);
    while (rounds-- > 0) {
        size_t n = size;

        memcpy(changed, data, size);
        for (uint64_t k = 1 + draw() % 3; k > 0; k--)
            n = mutate(changed, n);
        fit_sum(changed, n);
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

    snprintf(folder, sizeof(folder), "%s/tests/fuzz/plan", top);
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
    int rounds = more != NULL ? atoi(more) : 2000;
    int failed = 0;

    for (int i = 1; i < argc; i++)
        failed |= run_file(argv[i], rounds);
    if (argc < 2)
        failed = run_corpus(top != NULL ? top : ".", rounds);
    gyre_context_destroy(context);
    printf("1..1\n%s 1 - plans\n", failed ? "not ok" : "ok");
    return failed;
}

#endif
