/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: which rows, which pairs, and as which matrix. */
#include "config.h"

#include "attention/kernel_tile.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- one after the other ----------------------------------------------- */

static bool next_running(gyre_tiles *t, gyre_tile *out)
{
    while (t->piece < t->count && t->index >= t->pieces[t->piece].length) {
        t->piece++;
        t->index = 0;
    }
    if (t->piece == t->count)
        return false;
    const gyre_piece *piece = &t->pieces[t->piece];
    uint64_t left = piece->length - t->index;
    uint32_t n = left < t->most ? (uint32_t)left : t->most;
    *out = (gyre_tile){.n = n, .whole = true};
    out->span = (gyre_piece){.start = gyre_piece_position(piece, t->index),
                             .length = n,
                             .stride = piece->stride,
                             .row = piece->row + t->index};
    t->index += n;
    return true;
}

/* The least position at or after `at` that a piece has. */
static bool least_position(const gyre_tiles *t, uint64_t at, uint64_t *out)
{
    bool found = false;

    for (uint32_t p = 0; p < t->count; p++) {
        const gyre_piece *piece = &t->pieces[p];
        uint64_t i = gyre_piece_index(piece, at);

        if (i == piece->length)
            continue;
        uint64_t here = gyre_piece_position(piece, i);
        if (!found || here < *out)
            *out = here;
        found = true;
    }
    return found;
}

static bool next_fixed(gyre_tiles *t, gyre_tile *out)
{
    uint64_t first = 0, have = 0;

    if (!least_position(t, t->index, &first))
        return false;
    first -= first % t->fixed;
    for (uint32_t i = 0; i < t->fixed; i++)
        t->rows[i] = GYRE_NO_ROW;
    for (uint32_t p = 0; p < t->count; p++) {
        const gyre_piece *piece = &t->pieces[p];
        uint64_t last = gyre_piece_index(piece, first + t->fixed);

        for (uint64_t i = gyre_piece_index(piece, first); i < last; i++) {
            t->rows[gyre_piece_position(piece, i) - first] = piece->row + i;
            have++;
        }
    }
    *out = (gyre_tile){.n = t->fixed,
                       .fixed = true,
                       .whole = have == t->fixed,
                       .rows = t->rows};
    out->span = (gyre_piece){.start = first, .length = t->fixed, .stride = 1};
    t->index = first + t->fixed;
    return true;
}

bool gyre_tiles_next(gyre_tiles *tiles, gyre_tile *out)
{
    return tiles->fixed > 0 ? next_fixed(tiles, out) : next_running(tiles, out);
}

size_t gyre_tiles_count(gyre_tiles tiles)
{
    size_t count = 0;
    gyre_tile tile;

    while (gyre_tiles_next(&tiles, &tile))
        count++;
    return count;
}

/* ---- mask -------------------------------------------------------------- */

static gyre_chunk chunk_of(const gyre_piece *span)
{
    return (gyre_chunk){
        .start = span->start, .length = span->length, .stride = span->stride};
}

gyre_cell gyre_tile_cell(const gyre_mask *mask, uint32_t b, const gyre_tile *q,
                         const gyre_tile *kv)
{
    gyre_chunk rows = chunk_of(&q->span), keys = chunk_of(&kv->span);
    gyre_cell cell =
        mask == NULL ? GYRE_CELL_FULL : gyre_mask_cell(mask, b, &rows, &keys);

    if (cell == GYRE_CELL_FULL && !kv->whole)
        cell = GYRE_CELL_PARTIAL;
    return cell;
}

bool gyre_tile_columns(const gyre_mask *mask, uint32_t b, const gyre_tile *q,
                       uint32_t r0, uint32_t r1, const gyre_tile *kv,
                       uint32_t *c0, uint32_t *c1)
{
    uint64_t low = kv->n, high = 0;

    for (uint32_t r = r0; r < r1; r++) {
        uint64_t at = gyre_piece_position(&q->span, r), i0, i1;

        for (uint64_t from = 0;
             gyre_piece_run(mask, b, at, &kv->span, from, &i0, &i1);
             from = i1) {
            low = i0 < low ? i0 : low;
            high = i1 > high ? i1 : high;
        }
    }
    *c0 = (uint32_t)low;
    *c1 = (uint32_t)high;
    return low < high;
}

static void forbid(float *s, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++)
        s[i] = -INFINITY;
}

void gyre_tile_mask(const gyre_mask *mask, uint32_t b, const gyre_tile *q,
                    uint32_t r, const gyre_tile *kv, uint32_t c0, uint32_t c1,
                    float *s)
{
    uint64_t at = gyre_piece_position(&q->span, r), i0, i1, done = c0;

    for (uint64_t from = c0;
         from < c1 && gyre_piece_run(mask, b, at, &kv->span, from, &i0, &i1);
         from = i1) {
        i0 = i0 < c1 ? i0 : c1;
        i1 = i1 < c1 ? i1 : c1;
        forbid(s, done - c0, i0 - c0);
        done = i1;
    }
    forbid(s, done - c0, c1 - c0);
    for (uint32_t c = c0; !kv->whole && c < c1; c++)
        if (!gyre_tile_has(kv, c))
            s[c - c0] = -INFINITY;
}

/* ---- as a matrix ------------------------------------------------------- */

const float *gyre_tile_load(const gyre_tile *tile, const gyre_plane *plane,
                            uint32_t b, uint32_t h, uint32_t dim,
                            gyre_dtype dtype, float *room, size_t *ld)
{
    if (!tile->fixed && dtype == GYRE_F32 &&
        plane->row / sizeof(float) <= INT_MAX) {
        *ld = plane->row / sizeof(float);
        return (const float *)(const void *)gyre_tile_row(tile, plane, b, h, 0);
    }
    *ld = dim;
    for (uint32_t i = 0; i < tile->n; i++) {
        float *to = room + (size_t)i * dim;

        if (gyre_tile_has(tile, i))
            gyre_to_f32(dtype, gyre_tile_row(tile, plane, b, h, i), 1, to, dim);
        else
            memset(to, 0, dim * sizeof(float));
    }
    return room;
}
