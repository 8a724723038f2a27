/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a layout: what a chunk holds, and where it lies. */
#include "config.h"

#include "store/layout.h"

#include <stdio.h>

static bool is_train(const gyre_layout *layout, uint64_t chunk)
{
    return chunk < layout->train_chunks;
}

uint32_t gyre_layout_vars(const gyre_layout *layout, uint64_t chunk)
{
    return is_train(layout, chunk) ? 1 + layout->slots : 1;
}

uint32_t gyre_layout_versions(const gyre_layout *layout, uint64_t chunk)
{
    return is_train(layout, chunk) || gyre_layout_is_residual(layout, chunk)
               ? layout->versions
               : 1;
}

/* The chunk whose grains these are. */
static uint64_t grains_of(const gyre_layout *layout, uint64_t chunk)
{
    return gyre_layout_is_residual(layout, chunk)
               ? gyre_layout_residual_of(layout, chunk)
               : chunk;
}

uint64_t gyre_layout_first_grain(const gyre_layout *layout, uint64_t chunk)
{
    chunk = grains_of(layout, chunk);
    if (is_train(layout, chunk))
        return chunk * layout->chunk_grains;
    return layout->train_grains +
           (chunk - layout->train_chunks) * layout->chunk_grains;
}

uint64_t gyre_layout_chunk_grains(const gyre_layout *layout, uint64_t chunk)
{
    uint64_t first = gyre_layout_first_grain(layout, chunk);
    uint64_t end = is_train(layout, grains_of(layout, chunk))
                       ? layout->train_grains
                       : layout->train_grains + layout->frozen_grains;
    uint64_t left = end - first;

    return left < layout->chunk_grains ? left : layout->chunk_grains;
}

static gyre_state_codec codec_of(const gyre_layout *layout, uint64_t chunk,
                                 uint32_t v)
{
    return gyre_layout_is_residual(layout, chunk) ? GYRE_STATE_F32
                                                  : layout->codecs[v];
}

void gyre_layout_var(const gyre_layout *layout, uint64_t chunk, uint32_t v,
                     gyre_var *var)
{
    size_t grains = (size_t)gyre_layout_chunk_grains(layout, chunk);

    var->codec = codec_of(layout, chunk, v);
    var->stride = gyre_state_stride(var->codec);
    var->at = 0;
    for (uint32_t i = 0; i < v; i++)
        var->at += grains * gyre_state_stride(codec_of(layout, chunk, i));
}

uint32_t gyre_layout_all_vars(const gyre_layout *layout, uint64_t chunk,
                              gyre_var vars[GYRE_STORE_VARS])
{
    uint32_t n = gyre_layout_vars(layout, chunk);

    for (uint32_t v = 0; v < n; v++)
        gyre_layout_var(layout, chunk, v, &vars[v]);
    return n;
}

/* Rounded to a page, so that a label can be written alone. */
uint64_t gyre_layout_data_bytes(const gyre_layout *layout, uint64_t chunk)
{
    uint64_t grains = gyre_layout_chunk_grains(layout, chunk);
    uint32_t vars = gyre_layout_vars(layout, chunk);
    uint64_t bytes = 0;

    for (uint32_t v = 0; v < vars; v++)
        bytes += grains * gyre_state_stride(codec_of(layout, chunk, v));
    return gyre_round_up(bytes, GYRE_PAGE);
}

uint64_t gyre_layout_useful_bytes(const gyre_layout *layout, uint64_t chunk)
{
    uint32_t vars = gyre_layout_vars(layout, chunk);
    size_t cursor = GYRE_RUN_FIRST;
    uint64_t bytes = 0;
    gyre_run run;

    while (gyre_layout_next_run(layout, chunk, &cursor, &run))
        for (uint32_t v = 0; v < vars; v++)
            bytes += gyre_state_bytes(codec_of(layout, chunk, v), run.n);
    return bytes;
}

uint64_t gyre_layout_chunk_bytes(const gyre_layout *layout, uint64_t chunk)
{
    return gyre_round_up(gyre_layout_data_bytes(layout, chunk) + GYRE_LABEL,
                         layout->align);
}

/* The first chunk of each kind is the largest of its kind. */
uint64_t gyre_layout_max_chunk_bytes(const gyre_layout *layout)
{
    uint64_t first[] = {0, layout->train_chunks, layout->state_chunks};
    uint64_t end[] = {layout->train_chunks, layout->state_chunks,
                      layout->chunks};
    uint64_t most = layout->align; /* what no chunk at all would need */

    for (int k = 0; k < 3; k++)
        if (first[k] < end[k] &&
            gyre_layout_chunk_bytes(layout, first[k]) > most)
            most = gyre_layout_chunk_bytes(layout, first[k]);
    return most;
}

uint64_t gyre_layout_offset(const gyre_layout *layout, uint64_t chunk,
                            uint32_t version)
{
    return layout->places[chunk].offset +
           version * gyre_layout_chunk_bytes(layout, chunk);
}

uint64_t gyre_layout_gradient_offset(const gyre_layout *layout, uint64_t chunk)
{
    return gyre_layout_offset(layout, chunk, layout->versions);
}

uint64_t gyre_layout_gradient_bytes(const gyre_layout *layout, uint64_t chunk)
{
    if (!is_train(layout, chunk))
        return 0;
    return gyre_round_up(gyre_layout_chunk_grains(layout, chunk) *
                             layout->gradient_grain,
                         layout->align);
}

uint64_t gyre_layout_max_gradient_bytes(const gyre_layout *layout)
{
    return gyre_layout_gradient_bytes(layout, 0);
}

uint64_t gyre_layout_chunk_of(const gyre_layout *layout, uint64_t grain)
{
    if (grain < layout->train_grains)
        return grain / layout->chunk_grains;
    return layout->train_chunks +
           (grain - layout->train_grains) / layout->chunk_grains;
}

/* Position in `order` of the first tensor that ends behind `grain`. */
static size_t first_at(const gyre_layout *layout, uint64_t grain)
{
    size_t lo = 0, hi = layout->tensor_count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const gyre_tensor_state *t = &layout->tensors[layout->order[mid]];

        if (t->first_grain + t->grains > grain)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

bool gyre_layout_next_run(const gyre_layout *layout, uint64_t chunk,
                          size_t *cursor, gyre_run *run)
{
    uint64_t from = gyre_layout_first_grain(layout, chunk);
    uint64_t to = from + gyre_layout_chunk_grains(layout, chunk);

    if (*cursor == GYRE_RUN_FIRST)
        *cursor = first_at(layout, from);
    for (; *cursor < layout->tensor_count; (*cursor)++) {
        size_t tensor = layout->order[*cursor];
        const gyre_tensor_state *t = &layout->tensors[tensor];
        uint64_t lo, hi, end;

        if (t->first_grain >= to)
            return false;
        if (t->grains == 0)
            continue;
        lo = t->first_grain > from ? t->first_grain : from;
        hi = t->first_grain + t->grains < to ? t->first_grain + t->grains : to;
        run->tensor = tensor;
        run->index = (lo - t->first_grain) * GYRE_GRAIN;
        run->at = (size_t)(lo - from) * GYRE_GRAIN;
        end = (hi - t->first_grain) * GYRE_GRAIN;
        run->n = (size_t)((end < t->elements ? end : t->elements) - run->index);
        (*cursor)++;
        return true;
    }
    return false;
}

void gyre_layout_describe(const gyre_layout *layout, uint64_t chunk, char *text,
                          size_t bytes)
{
    size_t cursor = GYRE_RUN_FIRST, used = 0, shown = 0;
    gyre_run run;

    text[0] = '\0';
    if (gyre_layout_is_residual(layout, chunk))
        used = (size_t)snprintf(text, bytes, "residual of ");
    while (gyre_layout_next_run(layout, chunk, &cursor, &run)) {
        int n;

        if (shown == 3) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        n = snprintf(text + used, bytes - used, "%s%s [%llu, %llu)",
                     shown > 0 ? ", " : "", layout->tensors[run.tensor].name,
                     (unsigned long long)run.index,
                     (unsigned long long)(run.index + run.n));
        if (n < 0 || (size_t)n >= bytes - used)
            return;
        used += (size_t)n;
        shown++;
    }
}
