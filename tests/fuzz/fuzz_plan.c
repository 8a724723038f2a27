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

#include "fuzz.h"
#include "plan/plan.h"
#include "plan/record.h"

#include <string.h>

static gyre_context *context;

static void check_program(const gyre_plan *plan, uint32_t rank)
{
    const gyre_plan_program *p = &plan->programs[rank];
    uint32_t units = 0;

    for (uint32_t i = 0; i < p->slot_count; i++)
        fuzz_insist(p->slots[i].rows < plan->row_count &&
                        p->slots[i].buf < p->buf_count &&
                        p->slots[i].h1 <= plan->problem.heads,
                    "a slot is not there");
    for (uint32_t i = 0; i < p->view_count; i++)
        fuzz_insist(p->views[i].slot < p->slot_count &&
                        p->views[i].rows < plan->row_count,
                    "a view has no slot or rows");
    for (uint32_t i = 0; i < p->op_count; i++) {
        const gyre_plan_op *op = &p->ops[i];
        bool transfer = op->code <= GYRE_OP_GET;
        fuzz_insist(op->lane < GYRE_PLAN_LANES && op->code < GYRE_OP_COUNT,
                    "an op is none");
        fuzz_insist(!transfer || op->view[1] < plan->problem.ranks,
                    "a peer is not there");
        for (uint32_t v = 0; v < gyre_op_views(op->code); v++)
            fuzz_insist(op->view[v] < p->view_count ||
                            (op->view[v] == GYRE_NO_VIEW &&
                             (gyre_op_optional(op->code) >> v & 1)),
                        "an op has no view");
    }
    for (uint32_t i = 0; i < p->unit_count; i++) {
        fuzz_insist(p->units[i].first == units, "units leave ops out");
        units += p->units[i].count;
    }
    fuzz_insist(units == p->op_count, "units leave ops out");
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

    fuzz_insist(gyre_plan_write_text(plan, keep, &text, &error) == GYRE_OK,
                "cannot be written");
    if (gyre_plan_read(context, "again", text.at, text.size, &back, &error))
        fprintf(stderr, "# %s\n", error.text);
    fuzz_insist(back != NULL, "cannot be read again");
    fuzz_insist(gyre_plan_write_binary(plan, keep, &again, &error) == GYRE_OK,
                "cannot be written as bytes");
    gyre_plan_free(back);
    free(text.at);
    free(again.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gyre_plan *plan = NULL;
    gyre_error error;

    if (context == NULL && gyre_context_create(NULL, &context, NULL))
        return 0;
    gyre_status status =
        gyre_plan_read(context, "fuzz", data, size, &plan, &error);
    if (status != GYRE_OK) {
        fuzz_insist(status == GYRE_FORMAT || status == GYRE_CORRUPT,
                    "the status is not FORMAT or CORRUPT");
        fuzz_insist(strstr(error.text, "fuzz") != NULL,
                    "the file is not named");
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
    if (!keep_it)
        return fuzz_cut(data, size, at, n);
    return fuzz_insert(data, size, (size_t)(fuzz_draw() % (size + 1)), line, n);
}

static size_t mutate(uint8_t *data, size_t size)
{
    if (size == 0)
        return size;
    size_t at = (size_t)(fuzz_draw() % size);
    const char *word = words[fuzz_draw() % (sizeof(words) / sizeof(words[0]))];

    switch (fuzz_draw() % 8) {
    case 0:
        data[at] ^= (uint8_t)(1u << fuzz_draw() % 8);
        return size;
    case 1:
        return fuzz_insert(data, size, at, word, strlen(word));
    case 2:
        if (strlen(word) <= size - at)
            memcpy(data + at, word, strlen(word));
        return size;
    case 3:
        return move_line(data, size, at, 0);
    case 4:
        return move_line(data, size, at, 1);
    case 5:
        return fuzz_draw() % 8 == 0 ? at : size;
    case 6:
        data[at] = (uint8_t)fuzz_draw();
        return size;
    default:
        /* Digits for digits: ids that may not be there. */
        for (; at < size; at++)
            if (data[at] >= '0' && data[at] <= '9') {
                data[at] = (uint8_t)('0' + fuzz_draw() % 10);
                break;
            }
        return size;
    }
}

/* The sum to what is there, most of the time: else a binary plan is refused at
 * its end whatever stands above. */
static void fit_sum(uint8_t *data, size_t size)
{
    if (!gyre_binary_is(data, size) || size < 16 || fuzz_draw() % 8 == 0)
        return;
    uint64_t sum = gyre_sum_add(GYRE_SUM_START, data, size - 8);

    for (int i = 0; i < 8; i++)
        data[size - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
}

static size_t change(uint8_t *data, size_t size)
{
    for (uint64_t k = 1 + fuzz_draw() % 3; k > 0; k--)
        size = mutate(data, size);
    fit_sum(data, size);
    return size;
}

int main(int argc, char **argv)
{
    static const fuzz_target target = {
        .folder = "plan", .what = "plans", .rounds = 2000, .change = change};
    int failed = fuzz_main(&target, argc, argv);

    gyre_context_destroy(context);
    return failed;
}

#endif
