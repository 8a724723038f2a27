/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as text and as bytes: there and back, what is refused and where,
 * memory. */
#include "../unit.h"
#include "hand.h"

typedef struct bytes {
    uint8_t *at;
    size_t size, room;
    size_t fail_after; /* 0: never */
} bytes;

static gyre_status keep(void *user, const void *data, size_t size,
                        gyre_error *error)
{
    bytes *b = user;
    if (b->fail_after > 0 && b->size + size > b->fail_after)
        return gyre_fail(error, GYRE_NO_SPACE, "the test's disk is full");
    if (b->size + size + 1 > b->room) {
        b->room = 2 * (b->size + size + 1);
        b->at = realloc(b->at, b->room);
        assert_non_null(b->at);
    }
    memcpy(b->at + b->size, data, size);
    b->size += size;
    b->at[b->size] = '\0';
    return GYRE_OK;
}

static bytes text_of(const gyre_plan *plan)
{
    bytes b = {0};
    assert_int_equal(gyre_plan_write_text(plan, keep, &b, NULL), GYRE_OK);
    return b;
}

static bytes binary_of(const gyre_plan *plan)
{
    bytes b = {0};
    assert_int_equal(gyre_plan_write_binary(plan, keep, &b, NULL), GYRE_OK);
    return b;
}

static gyre_plan *make(gyre_context *context, const gyre_plan_spec *spec)
{
    gyre_plan *plan;
    gyre_error error;
    if (gyre_plan_create(context, spec, &plan, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return plan;
}

static gyre_plan *read_back(gyre_context *context, const bytes *b)
{
    gyre_plan *plan = NULL;
    gyre_error error;
    if (gyre_plan_read(context, "kept", b->at, b->size, &plan, &error) !=
        GYRE_OK)
        fail_msg("%s", error.text);
    return plan;
}

static void same_bytes(const bytes *a, const bytes *b)
{
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->at, b->at, a->size);
}

/* Text and bytes of a plan come back as the same plan. */
static void check_round_trip(gyre_context *context, const gyre_plan_spec *spec)
{
    gyre_plan *plan = make(context, spec);
    bytes text = text_of(plan), binary = binary_of(plan);
    gyre_plan *from_text = read_back(context, &text);
    gyre_plan *from_binary = read_back(context, &binary);
    bytes a = text_of(from_text), b = text_of(from_binary);
    bytes c = binary_of(from_text);
    same_bytes(&text, &a);
    same_bytes(&text, &b);
    same_bytes(&binary, &c);
    assert_true(binary.size * 2 < text.size);
    for (uint32_t r = 0; r < plan->problem.ranks; r++) {
        uint64_t want[GYRE_PLAN_MAX_PHASES] = {0}, drop[GYRE_PLAN_MAX_PHASES];
        uint64_t got[GYRE_PLAN_MAX_PHASES] = {0};
        gyre_plan_count_bytes(plan, r, want, drop);
        gyre_plan_count_bytes(from_binary, r, got, drop);
        assert_memory_equal(want, got, sizeof(want));
        assert_int_equal(plan->programs[r].op_count,
                         from_binary->programs[r].op_count);
        assert_memory_equal(plan->programs[r].ops, from_binary->programs[r].ops,
                            plan->programs[r].op_count * sizeof(gyre_plan_op));
    }
    gyre_plan_free(plan);
    gyre_plan_free(from_text);
    gyre_plan_free(from_binary);
    free(text.at), free(binary.at), free(a.at), free(b.at), free(c.at);
}

static const uint64_t bounds_one[] = {0, 7, 20}, bounds_two[] = {3, 61};
static const gyre_documents documents[] = {{bounds_one, 2, 0},
                                           {bounds_two, 1, 0}};
static const uint8_t blocks[] = {1, 0, 1, 1, 0, 1};

static const gyre_mask masks[] = {
    {.size = sizeof(gyre_mask)},
    {.size = sizeof(gyre_mask), .causal = 1},
    {.size = sizeof(gyre_mask), .causal = 1, .window = 9},
    {.size = sizeof(gyre_mask), .document_count = 2, .documents = documents},
    {.size = sizeof(gyre_mask),
     .blocks = blocks,
     .block_q = 32,
     .block_k = 21,
     .block_rows = 2,
     .block_columns = 3},
};

static void plans_come_back_as_they_were(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (size_t m = 0; m < sizeof(masks) / sizeof(*masks); m++)
        for (uint32_t ranks = 1; ranks <= 5; ranks++) {
            gyre_plan_spec spec = hand_spec(ranks, 61);
            spec.mask = &masks[m];
            spec.problem.batch = 2;
            spec.layout = (uint32_t)m % GYRE_LAYOUT_DOCUMENTS;
            check_round_trip(context, &spec);
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void the_mask_comes_back(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (size_t m = 0; m < sizeof(masks) / sizeof(*masks); m++) {
        gyre_plan_spec spec = hand_spec(2, 61);
        spec.mask = &masks[m];
        spec.problem.batch = 2;
        gyre_plan *plan = make(context, &spec);
        bytes text = text_of(plan);
        gyre_plan *back = read_back(context, &text);
        for (uint32_t b = 0; b < 2; b++)
            for (uint64_t q = 0; q < 61; q++)
                for (uint64_t k = 0; k < 61; k++)
                    assert_int_equal(gyre_mask_allows(plan->mask, b, q, k),
                                     gyre_mask_allows(back->mask, b, q, k));
        gyre_plan_free(plan);
        gyre_plan_free(back);
        free(text.at);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- what is refused ----------------------------------------------------- */

/* The first `from` of the text replaced by `to`. */
static bytes changed(const bytes *text, const char *from, const char *to)
{
    const char *all = (const char *)text->at, *at = strstr(all, from);
    bytes out = {0};
    if (at == NULL)
        fail_msg("the text has no \"%s\"", from);
    keep(&out, all, (size_t)(at - all), NULL);
    keep(&out, to, strlen(to), NULL);
    keep(&out, at + strlen(from), strlen(at + strlen(from)), NULL);
    return out;
}

static void what_is_wrong_is_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *text;
    } cases[] = {
        {"gyre-plan 1", "gyre-plan 2", "x.plan:1: a plan of version 2"},
        {"gyre-plan 1\n", "", "x.plan:1: not a plan: 'gyre-plan 1'"},
        {"name \"hand\"", "name hand", "x.plan:2: text in quotation marks"},
        {"name \"hand\"", "name \"ha", "printable characters"},
        {"pass forward", "pass sideways", "x.plan:3: pass cannot be 'sideway"},
        {"pass forward\n", "pass forward\npass forward\n", "'pass' stands twi"},
        {"pass forward\n", "", "'pass' is missing above"},
        {"batch 1", "batch", "batch cannot be 'heads'"},
        {"batch 1", "batch 4294967296", "batch cannot be '4294967296'"},
        {"batch 1", "batch 0", "batch is 0"},
        {"kv-heads 1", "kv-heads 3", "cannot share 3 KV heads"},
        {"ranks 2", "ranks 99999", "number of ranks is 99999"},
        {"dtype f32", "dtype f33", "dtype cannot be 'f33'"},
        {"tokens 16 kv-tokens", "tokens 9999999999 kv-tokens", "at most 1073"},
        {"causal 1", "causal 2", "causal is 0 or 1"},
        {"documents 0", "documents 1", "tables of documents are missing"},
        {"block-rows 0 block-columns 0", "block-rows 9999 block-columns 9999",
         "9999 x 9999 blocks"},
        {"chunk Q", "block row 0 column 0\nchunk Q", "no block in row 0"},
        {"chunk Q", "bound 3\nchunk Q", "a bound stands behind no table"},
        {"chunk Q", "documents 1\nchunk Q", "0 tables of documents"},
        {"chunk Q start 0 length 4", "chunk Q start 1 length 4", "overlaps"},
        {"chunk Q start 0 length 4", "chunk Q start 0 length 5", "overlaps"},
        {"stride 1 owner 0", "stride 1 owner 7", "belongs to rank 7 of 2"},
        {"rows Q chunks 0 3", "rows Q chunks 0 9", "chunk 9: chunks of rows"},
        {"rows Q chunks 0 3", "rows Q chunks 3 0", "ascend"},
        {"rank 0", "rank 2", "rank 2: ranks ascend and are below 2"},
        {"rank 1", "rank 0", "rank 0: ranks ascend"},
        {"rank 0", "slot Q", "'rows' is missing after 'slot'"},
        {"rank 0\n", "", "'slot' must stand behind a 'rank'"},
        {"rank 1", "rows Q chunks 0\nrank 1", "'rows' must stand above"},
        {"rank 1", "pass forward\nrank 1", "'pass' must stand above all rows"},
        {"slot Q rows 0", "slot Q rows 77", "there is no row set"},
        {"heads 0 to 2 dtype", "heads 0 to 3 dtype", "query heads"},
        {"buf 1", "buf 9", "buf 9: the next new one is 1"},
        {"view slot 1", "view slot 99", "there is no slot 99"},
        {"group lane 1", "group lane 8", "there is no lane 8"},
        {"phase \"ring\"", "phase \"a very long name\"", "1 to 15 letters"},
        {"phase \"ring\"", "phase \"\"", "1 to 15 letters"},
        {"peer 1", "peer 2", "there is no rank 2"},
        {"channel 0", "channel 65536", "above 65535"},
        {"end\n", "", "still open"},
        {"op ATT", "op PUT", "none that computes"},
        {"op ATT", "op AT", "op cannot be 'AT'"},
        {"op FIN lane 0 views", "op FIN lane 0 views 0 0 0 0 0 0 0", "too man"},
        {"op FIN lane 0 views", "op RED lane 0 views 0 #", "missing"},
        {"op ATT lane 0 views", "op ATT lane 0 views 999 1 2 #", "no view 999"},
        {"op ATT lane 0 views", "op ATT lane 0 views - 1 2 #",
         "view 0 of this op"},
        {"op ATT lane 0", "op ATT lane 0 9", "'views' is missing after 'op'"},
        {"end\n", "end now\n", "'now' is too much after 'end'"},
        {"end\n", "finish\n", "no line of a plan begins with 'finish'"},
        {"done\n", "", "ends before its last line"},
        {"done\n", "done\ndone\n", "'done' stands after 'done'"},
    };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(2, 16);
    gyre_plan *plan = make(context, &spec), *none = NULL;
    bytes text = text_of(plan);
    uint64_t before = memory.bytes;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        bytes wrong = changed(&text, cases[i].from, cases[i].to);
        gyre_error error = {0};
        if (gyre_plan_read(context, "x.plan", wrong.at, wrong.size, &none,
                           &error) != GYRE_FORMAT)
            fail_msg("\"%s\" was taken", cases[i].to);
        if (strstr(error.text, cases[i].text) == NULL ||
            strncmp(error.text, "x.plan:", 7) != 0)
            fail_msg("\"%s\" lacks \"%s\"", error.text, cases[i].text);
        assert_null(none);
        assert_int_equal(memory.bytes, before);
        free(wrong.at);
    }
    gyre_plan_free(plan);
    free(text.at);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void comments_and_spaces_are_nothing(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(2, 16);
    gyre_plan *plan = make(context, &spec);
    bytes text = text_of(plan);
    bytes loose =
        changed(&text, "rank 0\n", "\n  # the first\nrank\t 0 # 0\r\n");
    gyre_plan *back = read_back(context, &loose);
    bytes again = text_of(back);
    same_bytes(&text, &again);
    gyre_plan_free(plan);
    gyre_plan_free(back);
    free(text.at), free(loose.at), free(again.at);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void a_cut_or_changed_binary_is_refused(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(2, 16);
    gyre_plan *plan = make(context, &spec), *none = NULL;
    bytes binary = binary_of(plan);
    for (size_t n = 0; n < binary.size; n++) {
        gyre_error error = {0};
        uint8_t *exact = malloc(n + 1);
        memcpy(exact, binary.at, n);
        gyre_status status =
            gyre_plan_read(context, "x", exact, n, &none, &error);
        assert_int_equal(status, GYRE_FORMAT);
        assert_non_null(strstr(error.text, n >= 8 ? "byte" : "x:1: "));
        free(exact);
    }
    for (size_t n = 0; n < binary.size; n++) {
        binary.at[n] ^= 1;
        gyre_error error = {0};
        gyre_status status =
            gyre_plan_read(context, "x", binary.at, binary.size, &none, &error);
        assert_true(status == GYRE_FORMAT || status == GYRE_CORRUPT);
        binary.at[n] ^= 1;
    }
    assert_null(none);
    gyre_plan_free(plan);
    free(binary.at);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- memory and disks ---------------------------------------------------- */

static void check_failed_requests(gyre_context *context, unit_memory *memory,
                                  const bytes *b)
{
    uint64_t before = memory->bytes, n = 1;
    for (;; n++) {
        gyre_plan *plan = NULL;
        gyre_error error;
        memory->fail_at = memory->requests + n;
        gyre_status status =
            gyre_plan_read(context, "x", b->at, b->size, &plan, &error);
        memory->fail_at = 0;
        if (status == GYRE_OK) {
            gyre_plan_free(plan);
            break;
        }
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_null(plan);
        assert_int_equal(memory->bytes, before);
    }
    assert_true(n > 20);
    assert_int_equal(memory->bytes, before);
}

static void every_failed_request_leaves_nothing(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (size_t m = 0; m < sizeof(masks) / sizeof(*masks); m++) {
        gyre_plan_spec spec = hand_spec(3, 61);
        spec.mask = &masks[m];
        spec.problem.batch = 2;
        gyre_plan *plan = make(context, &spec);
        bytes text = text_of(plan), binary = binary_of(plan);
        check_failed_requests(context, &memory, &text);
        check_failed_requests(context, &memory, &binary);
        memory.fail_at = memory.requests + 1;
        bytes none = {0};
        assert_int_equal(gyre_plan_write_text(plan, keep, &none, NULL),
                         GYRE_NO_MEMORY);
        memory.fail_at = 0;
        gyre_plan_free(plan);
        free(text.at), free(binary.at), free(none.at);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void a_full_disk_ends_the_writing(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(5, 61);
    gyre_plan *plan = make(context, &spec);
    bytes text = text_of(plan);
    for (size_t n = 1; n < text.size; n += 997) {
        bytes out = {.fail_after = n};
        gyre_error error = {0};
        assert_int_equal(gyre_plan_write_text(plan, keep, &out, &error),
                         GYRE_NO_SPACE);
        assert_string_equal(error.text, "the test's disk is full");
        free(out.at);
    }
    bytes out = {.fail_after = 100};
    assert_int_equal(gyre_plan_write_binary(plan, keep, &out, NULL),
                     GYRE_NO_SPACE);
    gyre_plan_free(plan);
    free(text.at), free(out.at);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_come_back_as_they_were),
        cmocka_unit_test(the_mask_comes_back),
        cmocka_unit_test(what_is_wrong_is_refused_by_line),
        cmocka_unit_test(comments_and_spaces_are_nothing),
        cmocka_unit_test(a_cut_or_changed_binary_is_refused),
        cmocka_unit_test(every_failed_request_leaves_nothing),
        cmocka_unit_test(a_full_disk_ends_the_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
