/* SPDX-License-Identifier: Apache-2.0 */
/* Making a layout: grains for tensors, chunks of grains, devices for chunks. */
#include "config.h"

#include "store/format.h"
#include "store/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gyre_status count_elements(const gyre_tensor *tensor, uint64_t *out,
                                  gyre_error *error)
{
    uint64_t n = 1;

    if (tensor->rank > GYRE_MAX_RANK)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %s: rank %u, at most %d allowed", tensor->name,
                         tensor->rank, GYRE_MAX_RANK);
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] > INT64_MAX || /* JSON has no more */
            !gyre_mul(n, tensor->shape[i], &n) || n > UINT64_MAX / 4096)
            return gyre_fail(error, GYRE_RANGE,
                             "tensor %s: its shape has too many elements",
                             tensor->name);
    *out = n;
    return GYRE_OK;
}

static int by_name(const void *a, const void *b)
{
    const gyre_tensor_state *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static gyre_status check_names(gyre_context *context, gyre_layout *layout,
                               gyre_error *error)
{
    size_t n = layout->tensor_count;
    const gyre_tensor_state **sorted = gyre_alloc(context, n, sizeof(*sorted));
    gyre_status status = GYRE_OK;

    if (sorted == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for tensor names");
    for (size_t i = 0; i < n; i++)
        sorted[i] = &layout->tensors[i];
    qsort(sorted, n, sizeof(*sorted), by_name);
    for (size_t i = 1; i < n && status == GYRE_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status =
                gyre_fail(error, GYRE_DUPLICATE,
                          "tensor name \"%s\" is given twice", sorted[i]->name);
    gyre_free(context, sorted, n, sizeof(*sorted));
    return status;
}

static gyre_status take_tensor(gyre_context *context, gyre_layout *layout,
                               const gyre_tensor *tensor, size_t index,
                               gyre_error *error)
{
    gyre_tensor_state *state = &layout->tensors[index];
    gyre_status status;

    if (tensor->name == NULL || tensor->name[0] == '\0')
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %zu has no name; every tensor needs one",
                         index);
    status = count_elements(tensor, &state->elements, error);
    if (status != GYRE_OK)
        return status;
    if (tensor->group > 65535)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %s: group %u, at most 65535 allowed",
                         tensor->name, tensor->group);
    if (layout->elements > UINT64_MAX / 4096 - state->elements)
        return gyre_fail(error, GYRE_RANGE, "too many elements in all");
    state->name = gyre_copy_text(context, tensor->name);
    if (state->name == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for tensor names");
    state->rank = tensor->rank;
    state->group = tensor->group;
    state->flags = tensor->flags & GYRE_TENSOR_FROZEN;
    memcpy(state->shape, tensor->shape, tensor->rank * sizeof(uint64_t));
    state->grains = (state->elements + GYRE_GRAIN - 1) / GYRE_GRAIN;
    layout->elements += state->elements;
    if (tensor->group >= layout->groups)
        layout->groups = tensor->group + 1;
    return GYRE_OK;
}

/* Give grains to the tensors of one kind, in order. */
static void lay_grains(gyre_layout *layout, uint32_t frozen, uint64_t *grain,
                       size_t *rank)
{
    for (size_t i = 0; i < layout->tensor_count; i++) {
        gyre_tensor_state *state = &layout->tensors[i];

        if ((state->flags & GYRE_TENSOR_FROZEN) != frozen)
            continue;
        state->first_grain = *grain;
        *grain += state->grains;
        layout->order[(*rank)++] = i;
    }
}

gyre_status gyre_layout_tensors(gyre_context *context, gyre_layout *layout,
                                const gyre_tensor *tensors, size_t count,
                                gyre_error *error)
{
    uint64_t grain = 0;
    size_t rank = 0;
    gyre_status status;

    if (count == 0 || tensors == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "a store needs at least one tensor");
    layout->tensors =
        gyre_alloc_zero(context, count, sizeof(gyre_tensor_state));
    if (layout->tensors != NULL) {
        layout->tensor_count = count; /* what both are freed with */
        layout->order = gyre_alloc_zero(context, count, sizeof(size_t));
    }
    if (layout->order == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %zu tensors",
                         count);
    layout->groups = 1;
    for (size_t i = 0; i < count; i++) {
        status = take_tensor(context, layout, &tensors[i], i, error);
        if (status != GYRE_OK)
            return status;
    }
    status = check_names(context, layout, error);
    if (status != GYRE_OK)
        return status;
    lay_grains(layout, 0, &grain, &rank);
    layout->train_grains = grain;
    lay_grains(layout, GYRE_TENSOR_FROZEN, &grain, &rank);
    layout->frozen_grains = grain - layout->train_grains;
    return GYRE_OK;
}

/*
 * Eight chunks per device keep read, update and write busy; below 16 Ki
 * elements a transfer is all overhead, above 256 Ki it gains nothing and
 * buffers cost memory.
 */
uint64_t gyre_layout_choose_chunk(const gyre_layout *layout, uint32_t devices)
{
    uint64_t grains = layout->train_grains + layout->frozen_grains;
    uint64_t chunk = 256;

    while (chunk > 16 && chunk * devices * 8 > grains)
        chunk /= 2;
    return chunk * GYRE_GRAIN;
}

/*
 * Of the devices that have less than their share of the first c + 1 chunks, c
 * goes to the one whose share first reaches one more chunk; lowest index wins
 * ties.  So each has its share to less than one chunk at any point (the quota
 * method).  With equal weights that is c mod N, so that any run of chunks, as a
 * backward pass completes them, keeps all devices busy.
 */
static uint32_t choose_device(const gyre_layout *layout, const uint64_t *given,
                              uint64_t chunk, double total)
{
    uint32_t best = 0;
    double least = HUGE_VAL;

    for (uint32_t d = 0; d < layout->devices; d++) {
        double share = layout->weights[d] / total * (double)(chunk + 1);
        double when = (double)(given[d] + 1) / layout->weights[d];

        if (share > (double)given[d] && when < least) {
            least = when;
            best = d;
        }
    }
    return best;
}

static gyre_status place_chunks(gyre_context *context, gyre_layout *layout,
                                gyre_error *error)
{
    uint64_t *given =
        gyre_alloc_zero(context, layout->devices, sizeof(uint64_t));
    double total = 0;

    if (given == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the layout");
    for (uint32_t d = 0; d < layout->devices; d++) {
        total += layout->weights[d];
        layout->device_bytes[d] = layout->data_at;
    }
    for (uint64_t c = 0; c < layout->chunks; c++) {
        uint32_t d =
            gyre_layout_is_residual(layout, c)
                ? layout->places[gyre_layout_residual_of(layout, c)].device
                : choose_device(layout, given, c, total);

        given[d]++;
        layout->places[c].device = d;
        layout->places[c].offset = layout->device_bytes[d];
        layout->device_bytes[d] += gyre_layout_chunk_bytes(layout, c) *
                                       gyre_layout_versions(layout, c) +
                                   gyre_layout_gradient_bytes(layout, c);
    }
    gyre_free(context, given, layout->devices, sizeof(uint64_t));
    return GYRE_OK;
}

gyre_status gyre_layout_place(gyre_context *context, gyre_layout *layout,
                              gyre_error *error)
{
    uint64_t g = layout->chunk_grains;
    uint64_t align = layout->align;

    layout->train_chunks = (layout->train_grains + g - 1) / g;
    layout->state_chunks =
        layout->train_chunks + (layout->frozen_grains + g - 1) / g;
    layout->chunks = layout->state_chunks;
    if (layout->residual)
        layout->chunks += layout->train_chunks;
    if (layout->chunks > UINT32_MAX)
        return gyre_fail(error, GYRE_RANGE,
                         "%llu chunks, at most %u allowed: take larger ones",
                         (unsigned long long)layout->chunks, UINT32_MAX);
    layout->area_room =
        gyre_format_head_bytes(layout->chunks, layout->tensor_count) +
        layout->blob_capacity;
    layout->area_bytes = gyre_round_up(layout->area_room, align);
    layout->area_at[0] =
        gyre_round_up(GYRE_PAGE + layout->manifest_bytes, align);
    layout->area_at[1] = layout->area_at[0] + layout->area_bytes;
    layout->data_at = layout->area_at[1] + layout->area_bytes;
    layout->places =
        gyre_alloc_zero(context, layout->chunks, sizeof(gyre_chunk_place));
    layout->device_bytes =
        gyre_alloc_zero(context, layout->devices, sizeof(uint64_t));
    if ((layout->places == NULL && layout->chunks > 0) ||
        layout->device_bytes == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %llu chunks",
                         (unsigned long long)layout->chunks);
    return place_chunks(context, layout, error);
}

void gyre_layout_free(gyre_context *context, gyre_layout *layout)
{
    for (size_t i = 0; i < layout->tensor_count; i++)
        gyre_free_text(context, layout->tensors[i].name);
    gyre_free(context, layout->tensors, layout->tensor_count,
              sizeof(gyre_tensor_state));
    gyre_free(context, layout->order, layout->tensor_count, sizeof(size_t));
    gyre_free(context, layout->places, layout->chunks,
              sizeof(gyre_chunk_place));
    gyre_free(context, layout->device_bytes, layout->devices, sizeof(uint64_t));
    gyre_free(context, layout->weights, layout->devices, sizeof(double));
    memset(layout, 0, sizeof(*layout));
}
