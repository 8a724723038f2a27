/* SPDX-License-Identifier: Apache-2.0 */
/* Planes into the arrays of a launch and back. */
#include "config.h"

#include "attention/kernel_device_pack.h"

#include <string.h>

/* ---- sizes ------------------------------------------------------------- */

bool gyre_pack_room(const gyre_device_room *room, uint64_t *words,
                    uint64_t *floats)
{
    uint64_t dims = (uint64_t)room->head_dim + room->v_head_dim;
    uint64_t queries, keys, lists, tiles = room->rows / GYRE_DEVICE_TILE + 1;

    /* Q and DO, L and D; K and V; positions, runs and reach. */
    if (!gyre_mul(room->rows, room->group, &queries) ||
        !gyre_mul(queries, dims + 2, &queries) ||
        !gyre_mul(room->keys, dims + 2, &keys) ||
        !gyre_mul(room->runs, 2, &lists) ||
        !gyre_add(lists, 3 * room->rows + 2 * tiles + room->group, &lists) ||
        !gyre_add(queries, keys, words) || !gyre_add(*words, lists, words) ||
        !gyre_add(*words, GYRE_WORDS + 1, words))
        return false;
    /* The larger of O, LSE and DQ, DK, DV. */
    return gyre_add(queries, keys, floats) && *words < UINT32_MAX &&
           *floats < UINT32_MAX;
}

static uint64_t rows_of(const gyre_piece *pieces, uint32_t count)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < count; i++)
        rows += pieces[i].length;
    return rows;
}

/* ---- runs -------------------------------------------------------------- */

/* The runs of one row, as numbers of keys counted over all pieces; written
 * where `runs` is not NULL. */
static uint64_t row_runs(const gyre_block *block, uint32_t b, uint64_t q,
                         uint32_t *runs)
{
    uint64_t n = 0, before = 0, i0, i1;

    for (uint32_t p = 0; p < block->kv_count; p++) {
        for (uint64_t from = 0;
             gyre_piece_run(block->mask, block->params.batch0 + b, q,
                            &block->kv[p], from, &i0, &i1);
             from = i1, n++) {
            if (runs == NULL)
                continue;
            runs[2 * n] = (uint32_t)(before + i0);
            runs[2 * n + 1] = (uint32_t)(before + i1);
        }
        before += block->kv[p].length;
    }
    return n;
}

gyre_pack gyre_pack_count(const gyre_block *block)
{
    gyre_pack pack = {.block = block};

    pack.rows = rows_of(block->q, block->q_count);
    pack.keys = rows_of(block->kv, block->kv_count);
    for (uint32_t b = 0; b < block->batch; b++) {
        uint64_t runs = 0;

        for (uint32_t p = 0; p < block->q_count; p++)
            for (uint64_t i = 0; i < block->q[p].length; i++)
                runs += row_runs(block, b, gyre_piece_position(&block->q[p], i),
                                 NULL);
        pack.runs = runs > pack.runs ? runs : pack.runs;
    }
    return pack;
}

/* ---- input -------------------------------------------------------------- */

/* The next `words` of the input, as array `word`. */
static uint32_t *take(gyre_pack *pack, int word, uint64_t words)
{
    uint32_t *here = pack->input + pack->words;

    pack->input[word] = (uint32_t)pack->words;
    pack->words += (size_t)words;
    return here;
}

static void put_rows(float *to, const gyre_plane *plane, uint32_t b, uint32_t h,
                     const gyre_piece *pieces, uint32_t count, uint32_t dim,
                     gyre_dtype dtype)
{
    for (uint32_t p = 0; p < count; p++)
        for (uint64_t i = 0; i < pieces[p].length; i++, to += dim)
            gyre_to_f32(dtype, gyre_row_at(plane, b, h, pieces[p].row + i), 1,
                        to, dim);
}

/* Rows of every head of the launch; returns what is behind them. */
static float *put_heads(const gyre_pack *pack, float *to,
                        const gyre_plane *plane, uint32_t dim, gyre_dtype dtype)
{
    for (uint32_t h = pack->h0; h < pack->h1; h++, to += pack->rows * dim)
        put_rows(to, plane, pack->b, h, pack->block->q, pack->block->q_count,
                 dim, dtype);
    return to;
}

static void put_positions(gyre_pack *pack, int word, const gyre_piece *pieces,
                          uint32_t count, uint64_t rows)
{
    uint32_t *to = take(pack, word, 2 * rows);

    for (uint32_t p = 0; p < count; p++)
        for (uint64_t i = 0; i < pieces[p].length; i++, to += 2) {
            uint64_t at = gyre_piece_position(&pieces[p], i);

            to[0] = (uint32_t)at;
            to[1] = (uint32_t)(at >> 32);
        }
}

static void put_runs(gyre_pack *pack)
{
    const gyre_block *block = pack->block;
    uint64_t tiles = (pack->rows + GYRE_DEVICE_TILE - 1) / GYRE_DEVICE_TILE;
    uint32_t *first = take(pack, GYRE_WORD_AT_FIRST, pack->rows + 1);
    uint32_t *reach = take(pack, GYRE_WORD_AT_REACH, 2 * tiles);
    uint32_t *runs = take(pack, GYRE_WORD_AT_RUNS, 2 * pack->runs);
    uint64_t row = 0, n = 0;

    for (uint64_t t = 0; t < tiles; t++) {
        reach[2 * t] = (uint32_t)pack->keys;
        reach[2 * t + 1] = 0;
    }
    for (uint32_t p = 0; p < block->q_count; p++)
        for (uint64_t i = 0; i < block->q[p].length; i++, row++) {
            uint64_t more =
                row_runs(block, pack->b, gyre_piece_position(&block->q[p], i),
                         runs + 2 * n);
            uint32_t *tile = reach + 2 * (row / GYRE_DEVICE_TILE);

            first[row] = (uint32_t)n;
            n += more;
            if (more > 0 && runs[2 * (n - more)] < tile[0])
                tile[0] = runs[2 * (n - more)];
            if (more > 0 && runs[2 * n - 1] > tile[1])
                tile[1] = runs[2 * n - 1];
        }
    first[row] = (uint32_t)n;
}

static void put_head(gyre_pack *pack)
{
    const gyre_block *block = pack->block;
    const gyre_kernel_params *params = &block->params;
    uint32_t *in = pack->input;
    float scale = (float)gyre_block_scale(block);
    gyre_drop_key drop = gyre_drop_row(params, 0, 0, 0);

    memset(in, 0, GYRE_WORDS * sizeof(in[0]));
    pack->words = GYRE_WORDS;
    in[GYRE_WORD_GRAD] = pack->grad;
    in[GYRE_WORD_HEADS] = pack->h1 - pack->h0;
    in[GYRE_WORD_ROWS] = (uint32_t)pack->rows;
    in[GYRE_WORD_KEYS] = (uint32_t)pack->keys;
    in[GYRE_WORD_DIM] = block->head_dim;
    in[GYRE_WORD_V_DIM] = block->v_head_dim;
    memcpy(&in[GYRE_WORD_SCALE], &scale, sizeof(scale));
    in[GYRE_WORD_BELOW] = drop.below;
    memcpy(&in[GYRE_WORD_KEEP], &drop.keep, sizeof(drop.keep));
    in[GYRE_WORD_KEY] =
        gyre_hash((uint32_t)params->seed, (uint32_t)(params->seed >> 32),
                  params->batch0 + pack->b);
    in[GYRE_WORD_HEAD] = pack->h0;
}

void gyre_pack_fill(gyre_pack *pack)
{
    const gyre_block *block = pack->block;
    uint32_t dim = block->head_dim, v_dim = block->v_head_dim;
    uint64_t queries = pack->rows * (pack->h1 - pack->h0);
    gyre_dtype dtype = pack->dtype;

    put_head(pack);
    put_heads(pack, (float *)take(pack, GYRE_WORD_AT_Q, queries * dim),
              &block->Q, dim, dtype);
    put_rows((float *)take(pack, GYRE_WORD_AT_K, pack->keys * dim), &block->K,
             pack->b, pack->kv_head, block->kv, block->kv_count, dim, dtype);
    put_rows((float *)take(pack, GYRE_WORD_AT_V, pack->keys * v_dim), &block->V,
             pack->b, pack->kv_head, block->kv, block->kv_count, v_dim, dtype);
    if (pack->grad) {
        put_heads(pack, (float *)take(pack, GYRE_WORD_AT_DO, queries * v_dim),
                  &block->DO, v_dim, dtype);
        put_heads(pack, (float *)take(pack, GYRE_WORD_AT_L, queries), &block->L,
                  1, GYRE_F32);
        put_heads(pack, (float *)take(pack, GYRE_WORD_AT_D, queries), &block->D,
                  1, GYRE_F32);
    }
    if (block->params.slopes != NULL)
        memcpy(take(pack, GYRE_WORD_AT_SLOPES, pack->h1 - pack->h0),
               block->params.slopes + pack->h0,
               (pack->h1 - pack->h0) * sizeof(float));
    put_positions(pack, GYRE_WORD_AT_ROW_AT, block->q, block->q_count,
                  pack->rows);
    put_positions(pack, GYRE_WORD_AT_KEY_AT, block->kv, block->kv_count,
                  pack->keys);
    put_runs(pack);
    pack->floats = (size_t)(queries * (pack->grad ? dim : v_dim + 1) +
                            (pack->grad ? pack->keys * (dim + v_dim) : 0));
    /* Gradients of this launch alone: they are added on the host. */
    memset(pack->state, 0, pack->floats * sizeof(float));
    if (!pack->grad) {
        float *to = put_heads(pack, pack->state, &block->O, v_dim, GYRE_F32);

        put_heads(pack, to, &block->LSE, 1, GYRE_F32);
    }
}

/* ---- state --------------------------------------------------------------- */

static const float *give_rows(const gyre_pack *pack, const float *from,
                              const gyre_plane *plane, uint32_t h,
                              const gyre_piece *pieces, uint32_t count,
                              uint32_t dim)
{
    for (uint32_t p = 0; p < count; p++)
        for (uint64_t i = 0; i < pieces[p].length; i++, from += dim) {
            float *to = (float *)(void *)gyre_row_at(plane, pack->b, h,
                                                     pieces[p].row + i);

            for (uint32_t d = 0; d < dim; d++)
                to[d] = pack->grad ? to[d] + from[d] : from[d];
        }
    return from;
}

static const float *give_heads(const gyre_pack *pack, const float *from,
                               const gyre_plane *plane, uint32_t dim)
{
    const gyre_block *block = pack->block;

    if (plane->at == NULL)
        return from + pack->rows * (pack->h1 - pack->h0) * dim;
    for (uint32_t h = pack->h0; h < pack->h1; h++)
        from = give_rows(pack, from, plane, h, block->q, block->q_count, dim);
    return from;
}

void gyre_pack_give(const gyre_pack *pack)
{
    const gyre_block *block = pack->block;
    const float *from = pack->state;

    if (!pack->grad) {
        from = give_heads(pack, from, &block->O, block->v_head_dim);
        give_heads(pack, from, &block->LSE, 1);
        return;
    }
    from = give_heads(pack, from, &block->DQ, block->head_dim);
    if (block->DK.at == NULL)
        return;
    from = give_rows(pack, from, &block->DK, pack->kv_head, block->kv,
                     block->kv_count, block->head_dim);
    give_rows(pack, from, &block->DV, pack->kv_head, block->kv, block->kv_count,
              block->v_head_dim);
}

uint32_t gyre_pack_groups(const gyre_pack *pack)
{
    uint64_t tile = GYRE_DEVICE_TILE;
    uint64_t groups = (pack->rows + tile - 1) / tile * (pack->h1 - pack->h0);

    return (uint32_t)(pack->grad ? groups + (pack->keys + tile - 1) / tile
                                 : groups);
}
