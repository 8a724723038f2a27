/* SPDX-License-Identifier: Apache-2.0 */
/* What a program sees: strides, LSE, what backward uses, masked rows, memory,
 * and complaints of users of other systems (tests/README.md). */
#include "../unit.h"
#include "trial.h"

#include <math.h>

enum { TOKENS = 12, HEADS = 4, DIM = 4, RANKS = 3, ROOM = 4096 };

/* Tensors of all ranks in one array a kind; each rank has its part. */
typedef struct stage {
    unit_memory memory;
    gyre_context *context;
    gyre_world *world;
    gyre_attention *attention;
    gyre_attention_tensors tensors[RANKS];
    double q[ROOM], k[ROOM], v[ROOM], o[ROOM], lse[ROOM];
    double d_o[ROOM], d_q[ROOM], d_k[ROOM], d_v[ROOM];
} stage;

typedef enum axis { TOKEN_FIRST, HEAD_FIRST } axis;

static gyre_attention_tensor tensor(double *at, size_t rank, uint64_t rows,
                                    size_t dim, axis outer)
{
    /* Room for all rows at each rank, and gaps between them. */
    size_t token = outer == TOKEN_FIRST ? HEADS * dim + 1 : dim + 2;
    size_t head = outer == TOKEN_FIRST ? dim : rows * (dim + 2) + 3;
    return (gyre_attention_tensor){
        .at = at + rank * (ROOM / RANKS), .token = token, .head = head};
}

static void stage_open_with(stage *s, const trial_case *c, axis outer,
                            double flops)
{
    trial_options t;
    gyre_error error = {0};
    memset(s, 0, sizeof(*s));
    s->context = unit_context(&s->memory);
    trial_prepare(s->context, c, &t);
    t.options.flops = flops;
    if (gyre_world_open(s->context, &t.world, &s->world, &error) != GYRE_OK ||
        gyre_attention_open(s->context, s->world, &t.options, &s->attention,
                            &error) != GYRE_OK)
        fail_msg("%s", error.text);
    for (uint32_t r = 0; r < c->ranks; r++) {
        uint64_t rows = gyre_attention_tokens(s->attention, r, GYRE_SIDE_Q);
        s->tensors[r] = (gyre_attention_tensors){
            .q = tensor(s->q, r, rows, DIM, outer),
            .k = tensor(s->k, r, rows, DIM, outer),
            .v = tensor(s->v, r, rows, DIM, outer),
            .o = tensor(s->o, r, rows, DIM, outer),
            .lse = tensor(s->lse, r, rows, 1, outer),
            .d_o = tensor(s->d_o, r, rows, DIM, outer),
            .d_q = tensor(s->d_q, r, rows, DIM, outer),
            .d_k = tensor(s->d_k, r, rows, DIM, outer),
            .d_v = tensor(s->d_v, r, rows, DIM, outer)};
    }
}

static void stage_open(stage *s, const trial_case *c, axis outer)
{
    stage_open_with(s, c, outer, 0);
}

static void stage_close(stage *s)
{
    gyre_attention_close(s->attention);
    gyre_world_close(s->world);
    gyre_context_destroy(s->context);
    unit_memory_check(&s->memory);
}

/* Element of a tensor by global position; dims of one head. */
static double *element(const stage *s, size_t offset, uint64_t position,
                       uint32_t head)
{
    for (uint32_t r = 0; r < gyre_world_size(s->world, NULL, NULL); r++) {
        const gyre_chunk *chunks;
        uint32_t n =
            gyre_attention_chunks(s->attention, r, GYRE_SIDE_Q, &chunks);
        uint64_t row = 0;
        for (uint32_t c = 0; c < n; c++)
            for (uint64_t i = 0; i < chunks[c].length; i++, row++)
                if (chunks[c].start + i * chunks[c].stride == position) {
                    const gyre_attention_tensor *t =
                        (const gyre_attention_tensor
                             *)((const char *)&s->tensors[r] + offset);
                    return (double *)t->at + row * t->token + head * t->head;
                }
    }
    fail_msg("position %llu has no owner", (unsigned long long)position);
    return NULL;
}
#define AT(s, name, position, head) \
    element(s, offsetof(gyre_attention_tensors, name), position, head)

static void stage_fill(stage *s)
{
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t d = 0; d < DIM; d++) {
                double x = t * 1.37 + h * 0.71 + d * 0.33;
                AT(s, q, t, h)[d] = sin(x);
                AT(s, k, t, h)[d] = sin(2 * x + 1);
                AT(s, v, t, h)[d] = sin(3 * x + 2);
                AT(s, d_o, t, h)[d] = sin(5 * x + 3);
            }
}

static void good(gyre_status status, const gyre_error *error)
{
    if (status != GYRE_OK)
        fail_msg("%s", error->text);
}

static const trial_case plain = {.words = "ring",
                                 .ranks = RANKS,
                                 .tokens = TOKENS,
                                 .heads = HEADS,
                                 .kv_heads = HEADS,
                                 .head_dim = DIM,
                                 .v_head_dim = DIM,
                                 .layout = GYRE_LAYOUT_ZIGZAG};

static void run(stage *s)
{
    gyre_error error = {0};
    good(gyre_attention_forward(s->attention, s->tensors, &error), &error);
    good(gyre_attention_backward(s->attention, s->tensors, &error), &error);
}

/* ---- tests -----------------------------------------------------------------
 */

static void same_results(const stage *a, const stage *b)
{
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_true(*AT(a, lse, t, h) == *AT(b, lse, t, h));
            for (uint32_t d = 0; d < DIM; d++) {
                assert_true(AT(a, o, t, h)[d] == AT(b, o, t, h)[d]);
                assert_true(AT(a, d_q, t, h)[d] == AT(b, d_q, t, h)[d]);
                assert_true(AT(a, d_k, t, h)[d] == AT(b, d_k, t, h)[d]);
                assert_true(AT(a, d_v, t, h)[d] == AT(b, d_v, t, h)[d]);
            }
        }
}

static void strides_change_nothing(void **state)
{
    (void)state;
    static stage a, b;
    stage_open(&a, &plain, TOKEN_FIRST);
    stage_open(&b, &plain, HEAD_FIRST);
    stage_fill(&a);
    stage_fill(&b);
    run(&a);
    run(&b);
    same_results(&a, &b);
    assert_true(fabs(AT(&a, o, 5, 1)[0]) > 1e-3);
    /* The first token sees itself alone. */
    double score = 0;
    for (uint32_t d = 0; d < DIM; d++)
        score += AT(&a, q, 0, 2)[d] * AT(&a, k, 0, 2)[d] / 2;
    assert_true(fabs(*AT(&a, lse, 0, 2) - score) < 1e-14);
    assert_true(AT(&a, o, 0, 2)[3] == AT(&a, v, 0, 2)[3]);
    stage_close(&a);
    stage_close(&b);
}

/* diffusers #14265: backward used another KV than forward.  Ours reads where
 * forward read, whatever it is given, in every step of the ring; and each
 * forward replaces what is kept. */
static void backward_uses_what_forward_saved(void **state)
{
    (void)state;
    static stage a, b;
    gyre_error error = {0};
    stage_open(&a, &plain, TOKEN_FIRST);
    stage_open(&b, &plain, TOKEN_FIRST);
    stage_fill(&a);
    stage_fill(&b);
    run(&a);
    gyre_attention_tensors first[RANKS], other[RANKS];
    static double poison[ROOM];
    for (uint32_t r = 0; r < RANKS; r++) {
        first[r] = other[r] = b.tensors[r];
        first[r].k.at = first[r].v.at = poison;
        other[r].q.at = other[r].k.at = other[r].v.at = other[r].o.at = NULL;
    }
    good(gyre_attention_forward(b.attention, first, &error), &error);
    good(gyre_attention_forward(b.attention, b.tensors, &error), &error);
    good(gyre_attention_backward(b.attention, other, &error), &error);
    good(gyre_attention_backward(b.attention, other, &error), &error);
    same_results(&a, &b);
    stage_close(&a);
    stage_close(&b);
}

static void backward_needs_a_forward(void **state)
{
    (void)state;
    static stage s;
    gyre_error error = {0};
    stage_open(&s, &plain, TOKEN_FIRST);
    stage_fill(&s);
    assert_int_equal(gyre_attention_backward(s.attention, s.tensors, &error),
                     GYRE_STATE);
    assert_non_null(strstr(error.text, "without a forward"));
    run(&s);
    void *keep = s.tensors[1].v.at;
    s.tensors[1].v.at = NULL;
    assert_int_equal(gyre_attention_forward(s.attention, s.tensors, &error),
                     GYRE_MISSING);
    assert_non_null(strstr(error.text, "rank 1: tensor v"));
    assert_int_equal(gyre_attention_backward(s.attention, s.tensors, &error),
                     GYRE_STATE);
    s.tensors[1].v.at = (char *)keep + 1;
    assert_int_equal(gyre_attention_forward(s.attention, s.tensors, &error),
                     GYRE_INVALID);
    s.tensors[1].v.at = keep;
    run(&s); /* nothing broke */
    stage_close(&s);
}

/* Megatron-LM #1764, NVIDIA-NeMo/Speech #14488, TensorAuto/OpenTau #300: NaN
 * where a row, or all rows of a rank, are masked, and where two such partial
 * results merge. */
static void fully_masked_rows_are_defined(void **state)
{
    (void)state;
    static stage s;
    static const uint64_t bounds[] = {4, 9}; /* rank 0 is in no document */
    const gyre_documents table = {.bounds = bounds, .count = 1};
    const gyre_mask mask = {.size = sizeof(mask),
                            .causal = 1,
                            .documents = &table,
                            .document_count = 1};
    static const char *const words[] = {"ring", "tile a=3", "ulysses",
                                        "allgather", "tokenring"};
    for (int i = 0; i < 5; i++) {
        trial_case c = plain;
        c.words = words[i];
        c.mask = &mask;
        c.heads = c.kv_heads = HEADS;
        c.layout = GYRE_LAYOUT_CONTIGUOUS;
        c.ranks = strcmp(words[i], "ulysses") == 0 ? 2 : RANKS;
        stage_open(&s, &c, TOKEN_FIRST);
        if (i > 0)
            for (uint32_t r = 0; r < c.ranks; r++)
                s.tensors[r].lse.at = NULL;
        stage_fill(&s);
        run(&s);
        for (uint32_t t = 0; t < TOKENS; t++)
            for (uint32_t h = 0; h < HEADS; h++) {
                bool masked = t < 4 || t >= 9;
                assert_true(isfinite(AT(&s, o, t, h)[0]));
                assert_true((AT(&s, o, t, h)[0] == 0) == masked);
                assert_true(!masked || AT(&s, d_k, t, h)[1] == 0);
                assert_true(!masked || AT(&s, d_q, t, h)[2] == 0);
                assert_true(!masked || AT(&s, d_v, t, h)[3] == 0);
                assert_true(isfinite(AT(&s, d_v, t, h)[0]));
                if (i == 0)
                    assert_true((*AT(&s, lse, t, h) == -INFINITY) == masked);
            }
        stage_close(&s);
    }
}

/* Megatron-LM #5100, VeOmni PR #1085, ring-attention-pytorch #9: rings of an
 * odd number of ranks, and of two, hang.  Puts of everybody come first here,
 * and messages are not buffered. */
static void rings_of_two_and_of_odd_numbers(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static const char *const words[] = {"ring", "ring direction=descending",
                                        "double-ring", "burst", "tokenring"};
    static const uint32_t ranks[] = {2, 3, 5, 7, 9, 16};
    for (int i = 0; i < 5; i++)
        for (int r = 0; r < 6; r++) {
            trial_case c = {.words = words[i],
                            .ranks = ranks[r],
                            .tokens = 2 * ranks[r] + 1,
                            .delay = 50000};
            assert_true(trial_good(context, &c));
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ring-flash-attention #42, #22: the error grows with the ring, for partial
 * results are rounded on the way.  Here it stays where one rank has it. */
static void errors_do_not_grow_with_the_ring(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    double first = 0;
    for (uint32_t ranks = 1; ranks <= 16; ranks *= 4) {
        trial_case c = {.words = "ring",
                        .ranks = ranks,
                        .kernel = "bf16",
                        .dtype = GYRE_BF16,
                        .tokens = 64,
                        .heads = 2,
                        .kv_heads = 2,
                        .head_dim = 32,
                        .v_head_dim = 32};
        gyre_trial trial;
        assert_true(trial_run(context, &c, &trial));
        assert_int_equal(trial.ok, 1);
        if (ranks == 1)
            first = trial.tensor[GYRE_TRIAL_DV].max_rel_error;
        assert_true(trial.tensor[GYRE_TRIAL_DV].max_rel_error <= 1.5 * first);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* deepspeed #4674, verl #1226: more ranks than KV heads; TransformerEngine
 * #2868: K and V of different dims; DeepSpeed PR #6392: uneven heads. */
static void degrees_beyond_the_kv_heads(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static const struct {
        const char *words;
        uint32_t ranks, heads, kv_heads;
    } cases[] = {{"ulysses", 8, 8, 2},    {"ulysses", 6, 6, 1},
                 {"2d heads=4", 8, 8, 2}, {"ulysses", 4, 10, 5},
                 {"ulysses", 4, 7, 7},    {"2d heads=3", 6, 7, 7}};
    for (int i = 0; i < 6; i++) {
        trial_case c = {.words = cases[i].words,
                        .ranks = cases[i].ranks,
                        .heads = cases[i].heads,
                        .kv_heads = cases[i].kv_heads,
                        .head_dim = 6,
                        .v_head_dim = 10,
                        .tokens = 29};
        assert_true(trial_good(context, &c));
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* What the plan says is what is taken. */
static void memory_is_known_before(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    trial_case c = {.words = "double-ring window=2",
                    .ranks = 4,
                    .tokens = 512,
                    .head_dim = 64,
                    .v_head_dim = 64};
    trial_options t;
    gyre_world *world;
    gyre_attention *attention;
    gyre_plan *plans[2];
    gyre_error error = {0};
    uint64_t sum = 0;
    trial_prepare(context, &c, &t);
    for (uint32_t pass = 0; pass < 2; pass++) {
        t.request.request.pass = pass;
        good(gyre_plan_make(context, &t.request.request, &plans[pass], &error),
             &error);
    }
    for (uint32_t r = 0; r < 4; r++) {
        gyre_attention_cost cost = {.size = sizeof(cost)};
        good(gyre_attention_measure(context, &t.options, r, &cost, &error),
             &error);
        for (uint32_t pass = 0; pass < 2; pass++) {
            uint64_t bytes, external;
            good(gyre_plan_rank_memory(plans[pass], r, &bytes, &external,
                                       &error),
                 &error);
            assert_int_equal(cost.bufs[pass], bytes);
            assert_int_equal(cost.external[pass], external);
            assert_int_equal(cost.leaves[pass], 0);
            sum += bytes - external + cost.scratch[pass];
        }
        sum -= cost.saved;
    }
    good(gyre_world_open(context, &t.world, &world, &error), &error);
    uint64_t before = memory.bytes;
    good(gyre_attention_open(context, world, &t.options, &attention, &error),
         &error);
    uint64_t taken = memory.bytes - before;
    assert_true(taken >= sum);
    assert_true(taken < sum + sum / 16); /* ops, views, queues */
    gyre_attention_close(attention);
    gyre_world_close(world);
    gyre_plan_free(plans[0]);
    gyre_plan_free(plans[1]);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static int add_link(void *user, const gyre_attention_link *link)
{
    uint64_t *sums = user;
    sums[0] += link->sent;
    sums[1] += link->received;
    sums[2] += link->planned_sent;
    sums[3] += link->planned_received;
    return 0;
}

/* Blocks slept through: bytes travel, and nothing is computed. */
static void sleeping_moves_bytes_and_computes_nothing(void **state)
{
    (void)state;
    static stage s;
    gyre_error error = {0};
    trial_options t;
    memset(&s, 0, sizeof(s));
    s.context = unit_context(&s.memory);
    trial_prepare(s.context, &plain, &t);
    t.options.flops = -1;
    assert_int_equal(gyre_world_open(s.context, &t.world, &s.world, &error),
                     GYRE_OK);
    assert_int_equal(gyre_attention_open(s.context, s.world, &t.options,
                                         &s.attention, &error),
                     GYRE_RANGE);
    gyre_world_close(s.world);
    gyre_context_destroy(s.context);

    stage_open_with(&s, &plain, TOKEN_FIRST, 1e9);
    stage_fill(&s);
    run(&s);
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t pass = 0; pass < 2; pass++) {
            uint64_t sums[4] = {0};
            good(gyre_attention_ledger(s.attention, pass, r, add_link, sums,
                                       &error),
                 &error);
            assert_true(sums[0] > 0);
            assert_int_equal(sums[0], sums[2]);
            assert_int_equal(sums[1], sums[3]);
        }
    for (uint32_t p = 0; p < TOKENS; p++)
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_true(*AT(&s, lse, p, h) == -INFINITY);
            for (uint32_t d = 0; d < DIM; d++) {
                assert_true(AT(&s, o, p, h)[d] == 0);
                assert_true(AT(&s, d_q, p, h)[d] == 0);
                assert_true(AT(&s, d_k, p, h)[d] == 0);
                assert_true(AT(&s, d_v, p, h)[d] == 0);
            }
        }
    stage_close(&s);
}

/* All ranks are here: what they hold is where it goes. */
static void a_world_gathers(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_world *world = NULL;
    gyre_error error = {0};
    size_t bytes[RANKS] = {4, 0, 2};
    char all[] = "abcdef";
    good(
        gyre_world_open(context,
                        &(gyre_world_request){
                            .size = sizeof(gyre_world_request), .ranks = RANKS},
                        &world, &error),
        &error);
    good(gyre_world_gather(world, bytes, all, &error), &error);
    assert_string_equal(all, "abcdef");
    assert_int_equal(gyre_world_gather(world, NULL, all, &error), GYRE_INVALID);
    assert_non_null(strstr(error.text, "each of the 3 ranks"));
    assert_int_equal(gyre_world_gather(world, bytes, NULL, &error),
                     GYRE_INVALID);
    assert_non_null(strstr(error.text, "6 bytes"));
    bytes[1] = SIZE_MAX - 1;
    assert_int_equal(gyre_world_gather(world, bytes, all, &error), GYRE_RANGE);
    assert_non_null(strstr(error.text, "rank 1"));
    bytes[1] = 0;
    gyre_world_give_up(world, GYRE_NO_SPACE, "no more");
    gyre_world_give_up(world, GYRE_INVALID, "too late");
    assert_int_equal(gyre_world_gather(world, bytes, all, &error),
                     GYRE_NO_SPACE);
    assert_string_equal(error.text, "rank 0 gave up: no more");
    gyre_world_close(world);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_world_gathers),
        cmocka_unit_test(strides_change_nothing),
        cmocka_unit_test(backward_uses_what_forward_saved),
        cmocka_unit_test(backward_needs_a_forward),
        cmocka_unit_test(fully_masked_rows_are_defined),
        cmocka_unit_test(rings_of_two_and_of_odd_numbers),
        cmocka_unit_test(errors_do_not_grow_with_the_ring),
        cmocka_unit_test(degrees_beyond_the_kv_heads),
        cmocka_unit_test(memory_is_known_before),
        cmocka_unit_test(sleeping_moves_bytes_and_computes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
