/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of one side: up to GYRE_TILE_MOST slots, a slot being one row.
 *
 * Running: a run of neighbouring rows of one piece; slot i is row0 + i of the
 * plane at position start + i * stride.
 * Fixed: the positions of one square of the mask; slot i is at start + i and
 * its row is rows[i], GYRE_NO_ROW where the pieces have no such position.
 */
#ifndef GYRE_SRC_ATTENTION_KERNEL_TILE_H
#define GYRE_SRC_ATTENTION_KERNEL_TILE_H

#include "attention/kernel_inner.h"

enum { GYRE_TILE_MOST = 512 };
#define GYRE_NO_ROW UINT64_MAX

typedef struct gyre_tile {
    gyre_piece span;      /* positions of the slots; row: row0 */
    uint32_t n;           /* slots */
    bool fixed, whole;    /* whole: every slot has a row */
    const uint64_t *rows; /* fixed */
} gyre_tile;

/* The tiles of a side one after the other. */
typedef struct gyre_tiles {
    const gyre_piece *pieces;
    uint32_t count;
    uint32_t most;  /* slots of a running tile */
    uint32_t fixed; /* or of a fixed one; 0: running */
    uint64_t *rows; /* room for `fixed` of them */
    uint32_t piece; /* where the next begins */
    uint64_t index; /* of a row in the piece; fixed: a position */
} gyre_tiles;
bool gyre_tiles_next(gyre_tiles *tiles, gyre_tile *out);
size_t gyre_tiles_count(gyre_tiles tiles);

/* Does the mask leave out all, none or some pairs? */
gyre_cell gyre_tile_cell(const gyre_mask *mask, uint32_t b, const gyre_tile *q,
                         const gyre_tile *kv);
/* Slots [*c0, *c1) of kv that hold all keys of q's slots r0 .. r1; false when
 * there are none. */
bool gyre_tile_columns(const gyre_mask *mask, uint32_t b, const gyre_tile *q,
                       uint32_t r0, uint32_t r1, const gyre_tile *kv,
                       uint32_t *c0, uint32_t *c1);
/* s[i] of slot c0 + i becomes -inf where the query at slot r may not look. */
void gyre_tile_mask(const gyre_mask *mask, uint32_t b, const gyre_tile *q,
                    uint32_t r, const gyre_tile *kv, uint32_t c0, uint32_t c1,
                    float *s);

/* Rows of the tile as f32 with a stride of *ld elements: in place where they
 * lie so, else in `room` [n][dim], 0 where a slot has no row. */
const float *gyre_tile_load(const gyre_tile *tile, const gyre_plane *plane,
                            uint32_t b, uint32_t h, uint32_t dim,
                            gyre_dtype dtype, float *room, size_t *ld);
static inline bool gyre_tile_has(const gyre_tile *tile, uint32_t slot)
{
    return !tile->fixed || tile->rows[slot] != GYRE_NO_ROW;
}
static inline char *gyre_tile_row(const gyre_tile *tile,
                                  const gyre_plane *plane, uint32_t b,
                                  uint32_t h, uint32_t slot)
{
    return gyre_row_at(plane, b, h,
                       tile->fixed ? tile->rows[slot] : tile->span.row + slot);
}

#endif
