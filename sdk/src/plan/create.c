/* SPDX-License-Identifier: Apache-2.0 */
/* From a specification to a plan: check, lay out, emit each rank. */
#include "plan/plan.h"

#include <string.h>

enum { MAX_RANKS = 65536, MAX_HEADS = 65535, MAX_DIM = 65536 };

static gyre_status between(const char *what, uint64_t value, uint64_t most,
                           gyre_error *error)
{
    if (value >= 1 && value <= most)
        return GYRE_OK;
    return gyre_fail(error, GYRE_INVALID, "%s is %llu: 1 to %llu", what,
                     (unsigned long long)value, (unsigned long long)most);
}

static gyre_status check_counts(const gyre_problem *p, gyre_error *error)
{
    const struct {
        const char *what;
        uint64_t value, most;
    } counts[] = {
        {"number of ranks", p->ranks, MAX_RANKS},
        {"batch", p->batch, UINT32_MAX},
        {"number of heads", p->heads, MAX_HEADS},
        {"number of KV heads", p->kv_heads, MAX_HEADS},
        {"head dim", p->head_dim, MAX_DIM},
        {"head dim of V", p->v_head_dim, MAX_DIM},
        {"number of Q tokens", p->tokens[GYRE_SIDE_Q], UINT64_C(1) << 48},
        {"number of KV tokens", p->tokens[GYRE_SIDE_KV], UINT64_C(1) << 48},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        gyre_status status =
            between(counts[i].what, counts[i].value, counts[i].most, error);
        if (status != GYRE_OK)
            return status;
    }
    if (p->heads % p->kv_heads != 0)
        return gyre_fail(error, GYRE_INVALID,
                         "%u heads cannot share %u KV heads evenly: the number "
                         "of heads must be a multiple",
                         p->heads, p->kv_heads);
    return GYRE_OK;
}

/* a *= b; false beyond 2^62. */
static bool times(uint64_t *a, uint64_t b)
{
    return gyre_mul(*a, b, a) && *a <= UINT64_C(1) << 62;
}

/* So that no sum of bytes over all ranks, and no count of (q, k) pairs, can
 * overflow later. */
static gyre_status check_size(const gyre_problem *p, gyre_error *error)
{
    uint64_t most = p->tokens[GYRE_SIDE_Q] > p->tokens[GYRE_SIDE_KV]
                        ? p->tokens[GYRE_SIDE_Q]
                        : p->tokens[GYRE_SIDE_KV];
    uint64_t bytes = most, pairs = p->tokens[GYRE_SIDE_Q];
    if (times(&bytes, p->batch) && times(&bytes, p->heads) &&
        times(&bytes, (uint64_t)p->head_dim + p->v_head_dim) &&
        times(&bytes, 8) && times(&bytes, p->ranks) &&
        times(&pairs, p->tokens[GYRE_SIDE_KV]) && times(&pairs, p->batch) &&
        times(&pairs, p->heads))
        return GYRE_OK;
    return gyre_fail(error, GYRE_INVALID,
                     "%llu tokens, batch %u, %u heads of %u and %u, %u ranks: "
                     "more than 2^62 bytes or pairs in all",
                     (unsigned long long)most, p->batch, p->heads, p->head_dim,
                     p->v_head_dim, p->ranks);
}

gyre_status gyre_problem_complete(gyre_problem *problem, gyre_error *error)
{
    gyre_status status = check_counts(problem, error);
    if (status == GYRE_OK)
        status = check_size(problem, error);
    if (status != GYRE_OK)
        return status;
    uint32_t dtype = problem->dtype;
    if (dtype != GYRE_F64 && dtype != GYRE_F32 && dtype != GYRE_BF16 &&
        dtype != GYRE_F16)
        return gyre_fail(error, GYRE_INVALID,
                         "attention has dtype f64, f32, bf16 or f16, not %s",
                         gyre_dtype_name((gyre_dtype)dtype)
                             ? gyre_dtype_name((gyre_dtype)dtype)
                             : "this number");
    problem->size = sizeof(*problem);
    problem->sum_dtype = dtype == GYRE_F64 ? GYRE_F64 : GYRE_F32;
    problem->stat_dtype = problem->sum_dtype;
    if (dtype == GYRE_F64 && problem->wire_dtype == GYRE_F32)
        problem->wire_dtype = GYRE_F64; /* f32 is what it is by default */
    uint32_t wire = problem->wire_dtype;
    bool narrow = wire == GYRE_BF16 || wire == GYRE_F16;
    if (wire != problem->sum_dtype && (dtype == GYRE_F64 || !narrow))
        return gyre_fail(error, GYRE_INVALID, "wire dtype must be %s%s",
                         gyre_dtype_name((gyre_dtype)problem->sum_dtype),
                         dtype == GYRE_F64 ? " as the tensors are"
                                           : ", bf16 or f16");
    problem->dtype_bytes = (uint32_t)gyre_dtype_bytes((gyre_dtype)dtype);
    problem->wire_bytes = (uint32_t)gyre_dtype_bytes((gyre_dtype)wire);
    problem->sum_bytes =
        (uint32_t)gyre_dtype_bytes((gyre_dtype)problem->sum_dtype);
    problem->stat_bytes = problem->sum_bytes;
    return GYRE_OK;
}

/* ---- tables -------------------------------------------------------------- */

static gyre_status copy_chunks(gyre_plan *plan, const gyre_plan_spec *spec,
                               uint32_t side, gyre_error *error)
{
    const gyre_problem *given = &spec->problem;
    uint32_t count = given->chunk_count[side];
    gyre_status status = gyre_chunks_check(
        plan->context, given->chunks[side], count, given->tokens[side],
        given->ranks, side == GYRE_SIDE_Q ? "Q" : "KV", error);
    if (status != GYRE_OK)
        return status;
    gyre_chunk *copy = gyre_alloc(plan->context, count, sizeof(*copy));
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %u chunks",
                         count);
    memcpy(copy, given->chunks[side], count * sizeof(*copy));
    plan->problem.chunks[side] = copy;
    plan->problem.chunk_count[side] = count;
    return GYRE_OK;
}

static gyre_status cut_chunks(gyre_plan *plan, const gyre_plan_spec *spec,
                              uint32_t side, gyre_error *error)
{
    uint32_t ranks = plan->problem.ranks;
    gyre_grid *plain = NULL;
    if (spec->grid == NULL) {
        plain = gyre_alloc(plan->context, ranks, sizeof(*plain));
        if (plain == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %u ranks",
                             ranks);
        for (uint32_t r = 0; r < ranks; r++)
            plain[r] = (gyre_grid){r, ranks, 0, 1};
    }
    const gyre_documents *documents =
        plan->mask->document_count ? plan->mask->documents : NULL;
    gyre_chunks cut = {0};
    gyre_status status = gyre_layout_cut(
        plan->context, spec->layout, plan->problem.tokens[side], documents,
        plain ? plain : spec->grid, ranks, &cut, error);
    gyre_free(plan->context, plain, ranks, sizeof(*plain));
    plan->problem.chunks[side] = cut.at;
    plan->problem.chunk_count[side] = cut.count;
    return status;
}

/* Row set of each rank's own chunks, in one walk. */
static gyre_status find_owned(gyre_plan *plan, uint32_t side, gyre_error *error)
{
    uint32_t ranks = plan->problem.ranks;
    uint32_t count = plan->problem.chunk_count[side];
    const gyre_chunk *chunks = plan->problem.chunks[side];
    gyre_status status = GYRE_NO_MEMORY;
    plan->owned[side] = gyre_alloc(plan->context, ranks, sizeof(uint32_t));
    uint32_t *first =
        gyre_alloc_zero(plan->context, (size_t)ranks + 1, sizeof(*first));
    uint32_t *list = gyre_alloc(plan->context, count, sizeof(*list));
    uint64_t *tokens = gyre_alloc(plan->context, ranks, sizeof(*tokens));
    plan->problem.rank_tokens[side] = tokens;
    if (plan->owned[side] == NULL || first == NULL || list == NULL ||
        tokens == NULL)
        goto done;
    for (uint32_t i = 0; i < count; i++)
        first[chunks[i].owner]++;
    for (uint32_t r = 0, at = 0; r <= ranks; r++) {
        uint32_t n = first[r];
        first[r] = at;
        at += n;
    }
    for (uint32_t i = 0; i < count; i++)
        list[first[chunks[i].owner]++] = i;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t from = r > 0 ? first[r - 1] : 0;
        plan->owned[side][r] =
            gyre_plan_intern_rows(plan, side, list + from, first[r] - from);
        if (plan->owned[side][r] == GYRE_NO_VIEW)
            goto done;
        tokens[r] = plan->rows[plan->owned[side][r]].tokens;
    }
    status = GYRE_OK;
done:
    gyre_free(plan->context, first, (size_t)ranks + 1, sizeof(*first));
    gyre_free(plan->context, list, count, sizeof(*list));
    if (status != GYRE_OK)
        gyre_fail(error, status, "no memory for the rows of %u ranks", ranks);
    return status;
}

static gyre_status fill(gyre_plan *plan, const gyre_plan_spec *spec,
                        gyre_error *error)
{
    gyre_status status = gyre_problem_complete(&plan->problem, error);
    if (status == GYRE_OK)
        status = gyre_mask_copy(plan->context, spec->mask, plan->problem.batch,
                                &plan->mask, error);
    for (uint32_t side = 0; side < GYRE_SIDE_COUNT && status == GYRE_OK; side++)
        status = spec->problem.chunk_count[side] > 0
                     ? copy_chunks(plan, spec, side, error)
                     : cut_chunks(plan, spec, side, error);
    for (uint32_t side = 0; side < GYRE_SIDE_COUNT && status == GYRE_OK; side++)
        status = find_owned(plan, side, error);
    if (status != GYRE_OK)
        return status;
    plan->name = gyre_copy_text(plan->context, spec->name);
    plan->programs = gyre_alloc_zero(plan->context, plan->problem.ranks,
                                     sizeof(*plan->programs));
    if (plan->name == NULL || plan->programs == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %u ranks",
                         plan->problem.ranks);
    return GYRE_OK;
}

/* ---- the plan ------------------------------------------------------------ */

gyre_status gyre_plan_begin(gyre_context *context, const gyre_plan_spec *spec,
                            gyre_plan **out, gyre_error *error)
{
    gyre_plan *plan = gyre_alloc_zero(context, 1, sizeof(*plan));
    if (plan == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a plan");
    plan->context = context;
    plan->pass = spec->pass;
    plan->problem = spec->problem;
    for (int side = 0; side < GYRE_SIDE_COUNT; side++) {
        plan->problem.chunks[side] = NULL;
        plan->problem.chunk_count[side] = 0;
        plan->problem.rank_tokens[side] = NULL;
    }
    gyre_status status = fill(plan, spec, error);
    if (status != GYRE_OK) {
        gyre_plan_free(plan);
        return gyre_fail_prefix(error, status, "plan '%s'", spec->name);
    }
    *out = plan;
    return GYRE_OK;
}

gyre_status gyre_plan_emit(gyre_plan *plan, const gyre_plan_spec *spec,
                           uint32_t rank, gyre_error *error)
{
    gyre_builder builder;
    gyre_builder_open(&builder, plan, rank);
    spec->emit(spec->user, spec->pass, rank, &gyre_plan_host_table, &builder);
    return gyre_builder_close(&builder, error);
}

gyre_status gyre_plan_create(gyre_context *context, const gyre_plan_spec *spec,
                             gyre_plan **out, gyre_error *error)
{
    gyre_plan *plan;
    gyre_status status = gyre_plan_begin(context, spec, &plan, error);
    if (status != GYRE_OK)
        return status;
    for (uint32_t rank = 0; rank < plan->problem.ranks; rank++) {
        status = gyre_plan_emit(plan, spec, rank, error);
        if (status != GYRE_OK) {
            gyre_plan_free(plan);
            return status;
        }
    }
    *out = plan;
    return GYRE_OK;
}

void gyre_plan_clear(gyre_plan *plan, uint32_t rank)
{
    gyre_program_free(plan->context, &plan->programs[rank]);
}

void gyre_plan_free(gyre_plan *plan)
{
    if (plan == NULL)
        return;
    gyre_context *context = plan->context;
    uint32_t ranks = plan->problem.ranks;
    for (uint32_t r = 0; plan->programs != NULL && r < ranks; r++)
        gyre_plan_clear(plan, r);
    gyre_free(context, plan->programs, ranks, sizeof(*plan->programs));
    for (int side = 0; side < GYRE_SIDE_COUNT; side++) {
        gyre_free(context, plan->owned[side], ranks, sizeof(uint32_t));
        gyre_free(context, (void *)plan->problem.rank_tokens[side], ranks,
                  sizeof(uint64_t));
        gyre_free(context, (void *)plan->problem.chunks[side],
                  plan->problem.chunk_count[side], sizeof(gyre_chunk));
    }
    gyre_free(context, plan->rows, plan->row_room, sizeof(*plan->rows));
    gyre_free(context, plan->row_chunks, plan->row_chunk_room,
              sizeof(uint32_t));
    gyre_free(context, plan->row_table, plan->row_table_size, sizeof(uint32_t));
    gyre_mask_free(context, plan->mask);
    gyre_free_text(context, plan->name);
    gyre_free(context, plan, 1, sizeof(*plan));
}
