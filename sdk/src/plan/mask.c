/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks by position.  For one query the allowed keys are runs: causal, window
 * and document each cut one interval; blocks then cut it into several.
 */
#include "plan/plan.h"

#include <string.h>

/* ---- a copy ------------------------------------------------------------ */

typedef struct mask_copy {
    gyre_mask mask; /* first: what is handed out */
    gyre_documents *documents;
    uint64_t *bounds; /* of all tables */
    uint8_t *blocks;
    size_t bound_count, block_count;
} mask_copy;

static gyre_status check(const gyre_mask *mask, uint32_t batch,
                         gyre_error *error)
{
    if (mask->document_count > 1 && mask->document_count != batch)
        return gyre_fail(error, GYRE_INVALID,
                         "mask has %u document tables for a batch of %u: give "
                         "one, or one a sequence",
                         mask->document_count, batch);
    for (uint32_t b = 0; b < mask->document_count; b++) {
        const gyre_documents *table = &mask->documents[b];
        for (uint32_t d = 0; d < table->count; d++)
            if (table->bounds[d] > table->bounds[d + 1])
                return gyre_fail(error, GYRE_INVALID,
                                 "document %u of table %u ends at %llu before "
                                 "it begins at %llu",
                                 d, b, (unsigned long long)table->bounds[d + 1],
                                 (unsigned long long)table->bounds[d]);
    }
    if (mask->blocks != NULL && (mask->block_q == 0 || mask->block_k == 0))
        return gyre_fail(error, GYRE_INVALID,
                         "mask blocks are %llu x %llu positions: at least 1",
                         (unsigned long long)mask->block_q,
                         (unsigned long long)mask->block_k);
    return GYRE_OK;
}

static bool copy_documents(gyre_context *context, mask_copy *copy)
{
    uint32_t tables = copy->mask.document_count;
    if (tables == 0) {
        copy->mask.documents = NULL;
        return true;
    }
    size_t bounds = 0;
    for (uint32_t b = 0; b < tables; b++)
        bounds += (size_t)copy->mask.documents[b].count + 1;
    copy->documents = gyre_alloc(context, tables, sizeof(gyre_documents));
    copy->bounds = gyre_alloc(context, bounds, sizeof(uint64_t));
    copy->bound_count = bounds;
    if (copy->documents == NULL || copy->bounds == NULL)
        return false;
    size_t at = 0;
    for (uint32_t b = 0; b < tables; b++) {
        const gyre_documents *from = &copy->mask.documents[b];
        copy->documents[b] =
            (gyre_documents){.bounds = copy->bounds + at, .count = from->count};
        for (uint32_t d = 0; d <= from->count; d++)
            copy->bounds[at++] = from->count ? from->bounds[d] : 0;
    }
    copy->mask.documents = copy->documents;
    return true;
}

static bool copy_blocks(gyre_context *context, mask_copy *copy)
{
    if (copy->mask.blocks == NULL)
        return true;
    copy->block_count =
        (size_t)copy->mask.block_rows * copy->mask.block_columns;
    copy->blocks = gyre_alloc_zero(context, copy->block_count + 1, 1);
    if (copy->blocks == NULL)
        return false;
    memcpy(copy->blocks, copy->mask.blocks, copy->block_count);
    copy->mask.blocks = copy->blocks;
    return true;
}

gyre_status gyre_mask_copy(gyre_context *context, const gyre_mask *mask,
                           uint32_t batch, gyre_mask **out, gyre_error *error)
{
    static const gyre_mask full = {.size = sizeof(full)};
    if (mask == NULL)
        mask = &full;
    gyre_status status = check(mask, batch, error);
    if (status != GYRE_OK)
        return status;
    mask_copy *copy = gyre_alloc_zero(context, 1, sizeof(*copy));
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the mask");
    copy->mask = *mask;
    if (!copy_documents(context, copy) || !copy_blocks(context, copy)) {
        gyre_mask_free(context, &copy->mask);
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the mask");
    }
    *out = &copy->mask;
    return GYRE_OK;
}

void gyre_mask_free(gyre_context *context, gyre_mask *mask)
{
    if (mask == NULL)
        return;
    mask_copy *copy = (mask_copy *)mask;
    gyre_free(context, copy->documents, mask->document_count,
              sizeof(gyre_documents));
    gyre_free(context, copy->bounds, copy->bound_count, sizeof(uint64_t));
    if (copy->blocks != NULL)
        gyre_free(context, copy->blocks, copy->block_count + 1, 1);
    gyre_free(context, copy, 1, sizeof(*copy));
}

/* ---- one query --------------------------------------------------------- */

static const gyre_documents *table_of(const gyre_mask *mask, uint32_t batch)
{
    return &mask->documents[mask->document_count == 1 ? 0 : batch];
}

/* The document that holds position t; false when none does. */
static bool document_of(const gyre_documents *table, uint64_t t, uint64_t *low,
                        uint64_t *high)
{
    uint32_t a = 0, b = table->count; /* the first that ends beyond t */
    while (a < b) {
        uint32_t middle = a + (b - a) / 2;
        if (table->bounds[middle + 1] > t)
            b = middle;
        else
            a = middle + 1;
    }
    if (a == table->count || table->bounds[a] > t)
        return false;
    *low = table->bounds[a];
    *high = table->bounds[a + 1];
    return true;
}

/* Everything but blocks; false when empty. */
static bool interval(const gyre_mask *mask, uint32_t batch, uint64_t q,
                     uint64_t *low, uint64_t *high)
{
    *low = 0;
    *high = UINT64_MAX;
    if (mask->document_count > 0 &&
        !document_of(table_of(mask, batch), q, low, high))
        return false;
    if (mask->window > 0) {
        uint64_t first = q >= mask->window ? q - mask->window + 1 : 0;
        if (first > *low)
            *low = first;
        if (mask->window < UINT64_MAX - q && q + mask->window < *high)
            *high = q + mask->window;
    }
    if (mask->causal && q + 1 < *high)
        *high = q + 1;
    return *low < *high;
}

static bool block_set(const gyre_mask *mask, uint64_t row, uint64_t column)
{
    return row < mask->block_rows && column < mask->block_columns &&
           mask->blocks[row * mask->block_columns + column] != 0;
}

/* Cut [*low, *high) to its first run of set blocks. */
static bool block_run(const gyre_mask *mask, uint64_t q, uint64_t *low,
                      uint64_t *high)
{
    uint64_t row = q / mask->block_q, column = *low / mask->block_k;
    uint64_t last = (*high - 1) / mask->block_k;
    if (last >= mask->block_columns)
        last = mask->block_columns; /* beyond the table nothing is set */
    while (column <= last && !block_set(mask, row, column))
        column++;
    if (column > last || column >= mask->block_columns)
        return false;
    if (column * mask->block_k > *low)
        *low = column * mask->block_k;
    while (column <= last && block_set(mask, row, column))
        column++;
    if (column * mask->block_k < *high)
        *high = column * mask->block_k;
    return *low < *high;
}

bool gyre_mask_span(const gyre_mask *mask, uint32_t batch, uint64_t q,
                    uint64_t from, uint64_t end, uint64_t *low, uint64_t *high)
{
    uint64_t a, b;
    if (!interval(mask, batch, q, &a, &b))
        return false;
    if (from > a)
        a = from;
    if (end < b)
        b = end;
    if (a >= b || (mask->blocks != NULL && !block_run(mask, q, &a, &b)))
        return false;
    *low = a;
    *high = b;
    return true;
}

bool gyre_mask_allows(const gyre_mask *mask, uint32_t batch, uint64_t q,
                      uint64_t k)
{
    uint64_t low, high;
    return gyre_mask_span(mask, batch, q, k, k + 1, &low, &high);
}

/* ---- two chunks -------------------------------------------------------- */

static uint64_t last_of(const gyre_chunk *chunk)
{
    return chunk->start + (chunk->length - 1) * chunk->stride;
}

/* Keys of the chunk at positions in [low, high). */
static uint64_t keys_within(const gyre_chunk *kv, uint64_t low, uint64_t high)
{
    uint64_t below_low =
        low <= kv->start ? 0 : (low - kv->start - 1) / kv->stride + 1;
    uint64_t below_high =
        high <= kv->start ? 0 : (high - kv->start - 1) / kv->stride + 1;
    if (below_low > kv->length)
        below_low = kv->length;
    if (below_high > kv->length)
        below_high = kv->length;
    return below_high - below_low;
}

/* Allowed keys of one query. */
static uint64_t row_area(const gyre_mask *mask, uint32_t batch, uint64_t q,
                         const gyre_chunk *kv)
{
    uint64_t area = 0, from = kv->start, end = last_of(kv) + 1, low, high;
    while (gyre_mask_span(mask, batch, q, from, end, &low, &high)) {
        area += keys_within(kv, low, high);
        from = high;
    }
    return area;
}

/* From the ends alone: every pair allowed, or none.  PARTIAL: cannot tell. */
static gyre_cell by_ends(const gyre_mask *mask, const gyre_chunk *q,
                         const gyre_chunk *kv)
{
    uint64_t q0 = q->start, q1 = last_of(q);
    uint64_t k0 = kv->start, k1 = last_of(kv);
    if (mask->causal && k0 > q1)
        return GYRE_CELL_EMPTY;
    if (mask->window > 0 && ((q0 > k1 && q0 - k1 >= mask->window) ||
                             (k0 > q1 && k0 - q1 >= mask->window)))
        return GYRE_CELL_EMPTY;
    bool near = mask->window == 0 || ((q1 <= k0 || q1 - k0 < mask->window) &&
                                      (k1 <= q0 || k1 - q0 < mask->window));
    bool past = !mask->causal || k1 <= q0;
    if (near && past && mask->document_count == 0 && mask->blocks == NULL)
        return GYRE_CELL_FULL;
    return GYRE_CELL_PARTIAL;
}

/* The ends decide emptiness when no table is asked and either only one bound
 * exists or the differences q - k are all whole numbers in a row. */
static bool ends_decide(const gyre_mask *mask, const gyre_chunk *q,
                        const gyre_chunk *kv)
{
    if (mask->document_count > 0 || mask->blocks != NULL)
        return false;
    if (mask->window == 0)
        return true;
    return (q->stride == 1 || q->length == 1) &&
           (kv->stride == 1 || kv->length == 1);
}

gyre_cell gyre_mask_cell(const gyre_mask *mask, uint32_t batch,
                         const gyre_chunk *q, const gyre_chunk *kv)
{
    if (q->length == 0 || kv->length == 0)
        return GYRE_CELL_EMPTY;
    gyre_cell cell = by_ends(mask, q, kv);
    if (cell != GYRE_CELL_PARTIAL || ends_decide(mask, q, kv))
        return cell;
    bool some = false, missing = false;
    for (uint64_t i = 0; i < q->length && !(some && missing); i++) {
        uint64_t area = row_area(mask, batch, q->start + i * q->stride, kv);
        some |= area > 0;
        missing |= area < kv->length;
    }
    return !some     ? GYRE_CELL_EMPTY
           : missing ? GYRE_CELL_PARTIAL
                     : GYRE_CELL_FULL;
}

gyre_cell gyre_mask_cells(const gyre_mask *mask, uint32_t batches,
                          const gyre_chunk *q, const gyre_chunk *kv)
{
    uint32_t tables = mask->document_count > 1 ? batches : 1;
    gyre_cell cell = gyre_mask_cell(mask, 0, q, kv);
    for (uint32_t b = 1; b < tables && cell != GYRE_CELL_PARTIAL; b++)
        if (gyre_mask_cell(mask, b, q, kv) != cell)
            cell = GYRE_CELL_PARTIAL;
    return cell;
}

uint64_t gyre_mask_area(const gyre_mask *mask, uint32_t batches,
                        const gyre_chunk *q, const gyre_chunk *kv)
{
    uint64_t area = 0;
    if (q->length == 0 || kv->length == 0)
        return 0;
    uint32_t tables = mask->document_count > 1 ? batches : 1;
    for (uint32_t b = 0; b < tables; b++)
        for (uint64_t i = 0; i < q->length; i++)
            area += row_area(mask, b, q->start + i * q->stride, kv);
    return tables == 1 ? area * batches : area;
}
