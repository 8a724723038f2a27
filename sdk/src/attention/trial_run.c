/* SPDX-License-Identifier: Apache-2.0 */
/* A run on tensors made for it, and its results brought together. */
#include "attention/trial.h"

#include <string.h>

/* Tensors of a rank lie [batch][token][head][dim], unlike anything inside. */
typedef struct local_tensor {
    char *at;
    size_t bytes;
} local_tensor;

typedef struct local_rank {
    uint32_t rank;
    local_tensor tensor[GYRE_WHOLE_COUNT]; /* no LSE */
    double *packed;
    size_t packed_count;
} local_rank;

typedef struct trial_run {
    gyre_attention *attention;
    gyre_whole *whole;
    local_rank *ranks; /* [attention->count] */
    gyre_attention_tensors *tensors;
} trial_run;

static uint32_t side_of(uint32_t which)
{
    return which == GYRE_WHOLE_K || which == GYRE_WHOLE_V ||
                   which == GYRE_WHOLE_DK || which == GYRE_WHOLE_DV
               ? GYRE_SIDE_KV
               : GYRE_SIDE_Q;
}

static gyre_dtype dtype_of(const trial_run *t)
{
    return (gyre_dtype)t->attention->plans[0]->problem.dtype;
}

static double read_element(gyre_dtype dtype, const char *at)
{
    double wide;
    float value;
    memcpy(&wide, at, dtype == GYRE_F64 ? sizeof(wide) : 0);
    if (dtype == GYRE_F64)
        return wide;
    gyre_to_f32(dtype, at, 1, &value, 1);
    return (double)value;
}

static void write_element(gyre_dtype dtype, char *at, double wide)
{
    float value = (float)wide;
    if (dtype == GYRE_F64)
        memcpy(at, &wide, sizeof(wide));
    else
        gyre_from_f32(dtype, &value, at, 1);
}

/* ---- walks
 * ------------------------------------------------------------------- */

/* Where element (b, h, row of a rank, 0) is in a whole tensor and, packed or
 * local, in the rank's: calls each(...) for every row. */
typedef void (*row_each)(void *user, double *whole, size_t packed, size_t local,
                         uint32_t dim);

static void each_row(const gyre_attention *a, gyre_whole *whole, uint32_t rank,
                     uint32_t which, row_each each, void *user)
{
    const gyre_shape *s = &whole->shape[which];
    uint32_t side = side_of(which);
    uint64_t rows = gyre_attention_tokens(a, rank, side);
    const gyre_chunk *chunks;
    uint32_t count = gyre_attention_chunks(a, rank, side, &chunks);
    size_t packed = 0;
    for (uint32_t b = 0; b < whole->batch; b++)
        for (uint32_t h = 0; h < s->heads; h++) {
            uint64_t row = 0;
            for (uint32_t c = 0; c < count; c++)
                for (uint64_t i = 0; i < chunks[c].length; i++, row++) {
                    uint64_t at = chunks[c].start + i * chunks[c].stride;
                    size_t global =
                        (((size_t)b * s->heads + h) * s->rows + at) * s->dim;
                    size_t local =
                        (((size_t)b * rows + row) * s->heads + h) * s->dim;
                    each(user, whole->at[which] + global, packed, local,
                         s->dim);
                    packed += s->dim;
                }
        }
}

static size_t packed_size(const gyre_attention *a, const gyre_whole *whole,
                          uint32_t rank, uint32_t which)
{
    const gyre_shape *s = &whole->shape[which];
    return (size_t)whole->batch * s->heads * s->dim *
           gyre_attention_tokens(a, rank, side_of(which));
}

typedef struct row_copy {
    gyre_dtype dtype;
    char *local;
    double *packed;
} row_copy;

static void fill_row(void *user, double *whole, size_t packed, size_t local,
                     uint32_t dim)
{
    row_copy *c = user;
    (void)packed;
    for (uint32_t d = 0; d < dim; d++)
        write_element(c->dtype,
                      c->local + (local + d) * gyre_dtype_bytes(c->dtype),
                      whole[d]);
}

static void pack_row(void *user, double *whole, size_t packed, size_t local,
                     uint32_t dim)
{
    row_copy *c = user;
    (void)whole;
    for (uint32_t d = 0; d < dim; d++)
        c->packed[packed + d] = read_element(
            c->dtype, c->local + (local + d) * gyre_dtype_bytes(c->dtype));
}

static void unpack_row(void *user, double *whole, size_t packed, size_t local,
                       uint32_t dim)
{
    row_copy *c = user;
    (void)local;
    memcpy(whole, c->packed + packed, dim * sizeof(double));
}

/* ---- LSE: wherever the forward plan keeps it
 * ------------------------------------ */

/* Calls for every kept row of LSE: its place in the whole, its number among the
 * packed. Returns how many. */
static size_t each_lse(const gyre_attention *a, gyre_whole *whole,
                       uint32_t rank, const gyre_slot_place *places,
                       double *packed, bool to_whole)
{
    const gyre_plan *plan = a->plans[0];
    const gyre_plan_program *p = &plan->programs[rank];
    const gyre_chunk *chunks = plan->problem.chunks[GYRE_SIDE_Q];
    size_t n = 0;
    for (uint32_t i = 0; i < p->slot_count; i++) {
        const gyre_plan_slot *s = &p->slots[i];
        if (s->kind != GYRE_VALUE_ST || !(s->flags & GYRE_SLOT_SAVED))
            continue;
        const uint32_t *list = gyre_plan_row_list(plan, s->rows);
        for (uint32_t b = 0; b < whole->batch; b++)
            for (uint32_t h = s->h0; h < s->h1; h++) {
                uint64_t row = 0;
                for (uint32_t c = 0; c < plan->rows[s->rows].count; c++)
                    for (uint64_t t = 0; t < chunks[list[c]].length;
                         t++, row++, n++) {
                        uint64_t at =
                            chunks[list[c]].start + t * chunks[list[c]].stride;
                        size_t global = ((size_t)b * plan->problem.heads + h) *
                                            plan->problem.tokens[GYRE_SIDE_Q] +
                                        at;
                        if (to_whole)
                            whole->at[GYRE_WHOLE_LSE][global] = packed[n];
                        if (places == NULL)
                            continue;
                        const gyre_part *part = &places[i].part[0];
                        packed[n] = read_element(
                            part->dtype,
                            part->plane.at + b * part->plane.batch +
                                (h - part->plane.head0) * part->plane.head +
                                row * part->plane.row);
                    }
            }
    }
    return n;
}

/* ---- tensors of a rank
 * ------------------------------------------------------------ */

static gyre_attention_tensor tensor_of(const trial_run *t, const local_rank *r,
                                       uint32_t which)
{
    const gyre_shape *s = &t->whole->shape[which];
    size_t token = (size_t)s->heads * s->dim;
    uint64_t rows =
        gyre_attention_tokens(t->attention, r->rank, side_of(which));
    return (gyre_attention_tensor){.at = r->tensor[which].at,
                                   .batch = rows * token,
                                   .token = token,
                                   .head = s->dim};
}

static const uint32_t results[] = {GYRE_WHOLE_O, GYRE_WHOLE_DQ, GYRE_WHOLE_DK,
                                   GYRE_WHOLE_DV};
enum { RESULTS = 4 };

/* Doubles that a rank packs: its results, then LSE. */
static size_t packed_total(const trial_run *t, uint32_t rank)
{
    size_t total = each_lse(t->attention, t->whole, rank, NULL, NULL, false);
    for (uint32_t i = 0; i < RESULTS; i++)
        total += packed_size(t->attention, t->whole, rank, results[i]);
    return total;
}

static bool take_rank(trial_run *t, local_rank *r,
                      gyre_attention_tensors *tensors)
{
    gyre_context *context = t->whole->context;
    gyre_dtype dtype = dtype_of(t);
    for (uint32_t w = 0; w < GYRE_WHOLE_COUNT; w++) {
        if (w == GYRE_WHOLE_LSE)
            continue;
        local_tensor *l = &r->tensor[w];
        l->bytes = packed_size(t->attention, t->whole, r->rank, w) *
                       gyre_dtype_bytes(dtype) +
                   64; /* never none */
        l->at = gyre_alloc_zero(context, l->bytes, 1);
        if (l->at == NULL)
            return false;
        row_copy copy = {.dtype = dtype, .local = l->at};
        if (w <= GYRE_WHOLE_DO)
            each_row(t->attention, t->whole, r->rank, w, fill_row, &copy);
    }
    r->packed_count = packed_total(t, r->rank);
    r->packed = gyre_alloc_zero(context, r->packed_count + 1, sizeof(double));
    *tensors = (gyre_attention_tensors){.q = tensor_of(t, r, GYRE_WHOLE_Q),
                                        .k = tensor_of(t, r, GYRE_WHOLE_K),
                                        .v = tensor_of(t, r, GYRE_WHOLE_V),
                                        .o = tensor_of(t, r, GYRE_WHOLE_O),
                                        .d_o = tensor_of(t, r, GYRE_WHOLE_DO),
                                        .d_q = tensor_of(t, r, GYRE_WHOLE_DQ),
                                        .d_k = tensor_of(t, r, GYRE_WHOLE_DK),
                                        .d_v = tensor_of(t, r, GYRE_WHOLE_DV)};
    return r->packed != NULL;
}

static void free_rank(const trial_run *t, local_rank *r)
{
    gyre_context *context = t->whole->context;
    for (uint32_t w = 0; w < GYRE_WHOLE_COUNT; w++)
        gyre_free(context, r->tensor[w].at, r->tensor[w].bytes, 1);
    gyre_free(context, r->packed, r->packed_count + 1, sizeof(double));
}

static void pack(trial_run *t, local_rank *r)
{
    const gyre_attention *a = t->attention;
    double *at = r->packed;
    for (uint32_t i = 0; i < RESULTS; i++) {
        row_copy copy = {.dtype = dtype_of(t),
                         .local = r->tensor[results[i]].at,
                         .packed = at};
        each_row(a, t->whole, r->rank, results[i], pack_row, &copy);
        at += packed_size(a, t->whole, r->rank, results[i]);
    }
    each_lse(a, t->whole, r->rank,
             a->executors[GYRE_PASS_FORWARD][r->rank - a->first]->places, at,
             false);
}

/* Into the whole; returns rows of LSE. */
static size_t unpack(trial_run *t, uint32_t rank, double *packed)
{
    for (uint32_t i = 0; i < RESULTS; i++) {
        row_copy copy = {.packed = packed};
        each_row(t->attention, t->whole, rank, results[i], unpack_row, &copy);
        packed += packed_size(t->attention, t->whole, rank, results[i]);
    }
    return each_lse(t->attention, t->whole, rank, NULL, packed, true);
}

/* ---- together
 * ---------------------------------------------------------------------- */

/* Rank 0 of several processes asks the others. */
static gyre_status gather(trial_run *t, size_t *lse_rows,
                          gyre_link_count *ledger, gyre_error *error)
{
    gyre_attention *a = t->attention;
    gyre_endpoint *endpoint = a->executors[GYRE_PASS_FORWARD][0]->endpoint;
    gyre_context *context = t->whole->context;
    uint32_t ranks = a->plans[0]->problem.ranks;
    size_t counts = (size_t)a->phases * a->classes, total = 0;
    bool root = a->first == 0;
    double *all = NULL;
    size_t *sizes = gyre_alloc(context, ranks, sizeof(*sizes));
    for (uint32_t r = 0; sizes != NULL && r < ranks; r++) {
        sizes[r] = packed_total(t, r) * sizeof(double);
        total += sizes[r];
    }
    if (root)
        all = gyre_alloc(context, total + 1, 1);
    gyre_status status = GYRE_OK;
    if (sizes == NULL || (root && all == NULL)) {
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for results");
        gyre_transport_abort(endpoint, status, "no memory for results");
    }
    if (status == GYRE_OK)
        status =
            gyre_transport_gather(endpoint, 0, t->ranks[0].packed,
                                  t->ranks[0].packed_count * sizeof(double),
                                  root ? sizes : NULL, all, error);
    double *at = all;
    for (uint32_t r = 0; root && status == GYRE_OK && r < ranks; r++) {
        *lse_rows += unpack(t, r, at);
        at += sizes[r] / sizeof(double);
    }
    for (uint32_t pass = 0; pass < 2 && status == GYRE_OK; pass++)
        if (a->moved[pass] != NULL)
            status = gyre_transport_gather(
                endpoint, 0, a->moved[pass], counts * sizeof(*ledger), NULL,
                root ? ledger + pass * ranks * counts : NULL, error);
    gyre_free(context, all, total + 1, 1);
    gyre_free(context, sizes, ranks, sizeof(*sizes));
    return status;
}

static gyre_status collect(trial_run *t, bool *lse, gyre_link_count *ledger,
                           gyre_error *error)
{
    gyre_attention *a = t->attention;
    uint32_t ranks = a->plans[0]->problem.ranks;
    size_t counts = (size_t)a->phases * a->classes, lse_rows = 0;
    gyre_status status = GYRE_OK;
    for (uint32_t i = 0; i < a->count; i++)
        pack(t, &t->ranks[i]);
    if (a->count < ranks) {
        status = gather(t, &lse_rows, ledger, error);
    } else {
        for (uint32_t r = 0; r < ranks; r++)
            lse_rows += unpack(t, r, t->ranks[r].packed);
        for (uint32_t pass = 0; pass < 2; pass++)
            if (a->moved[pass] != NULL && ledger != NULL)
                memcpy(ledger + pass * ranks * counts, a->moved[pass],
                       ranks * counts * sizeof(*ledger));
    }
    *lse = lse_rows >= t->whole->elements[GYRE_WHOLE_LSE];
    return status;
}

gyre_status gyre_trial_run(gyre_attention *a, gyre_whole *whole, bool *lse,
                           gyre_link_count *ledger, gyre_error *error)
{
    trial_run t = {.attention = a, .whole = whole};
    gyre_context *context = whole->context;
    gyre_status status = GYRE_OK;
    t.ranks = gyre_alloc_zero(context, a->count, sizeof(*t.ranks));
    t.tensors = gyre_alloc_zero(context, a->count, sizeof(*t.tensors));
    bool good = t.ranks != NULL && t.tensors != NULL;
    for (uint32_t i = 0; good && i < a->count; i++) {
        t.ranks[i].rank = a->first + i;
        good = take_rank(&t, &t.ranks[i], &t.tensors[i]);
    }
    if (!good) {
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for tensors");
        gyre_transport_abort(a->executors[0][0]->endpoint, status,
                             "no memory for tensors");
    }
    if (status == GYRE_OK)
        status = gyre_attention_forward(a, t.tensors, error);
    if (status == GYRE_OK && a->plans[GYRE_PASS_BACKWARD] != NULL)
        status = gyre_attention_backward(a, t.tensors, error);
    if (status == GYRE_OK)
        status = collect(&t, lse, ledger, error);
    for (uint32_t i = 0; t.ranks != NULL && i < a->count; i++)
        free_rank(&t, &t.ranks[i]);
    gyre_free(context, t.ranks, a->count, sizeof(*t.ranks));
    gyre_free(context, t.tensors, a->count, sizeof(*t.tensors));
    return status;
}
