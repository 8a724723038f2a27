/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row sets: sorted chunk lists, each kept once a plan.
 *
 *     row_table[hash] -> rows[id].next -> ...      chains by id + 1, 0 ends
 *     rows[id] = {side, first, count, tokens}  ->  row_chunks[first ..]
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_list(uint32_t side, const uint32_t *chunks, uint32_t count)
{
    uint64_t h = side + 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < count; i++)
        h = gyre_plan_mix(h, chunks[i]);
    return (uint32_t)h;
}

static uint32_t find(const gyre_plan *plan, uint32_t hash, uint32_t side,
                     const uint32_t *chunks, uint32_t count)
{
    if (plan->row_table_size == 0)
        return GYRE_NO_VIEW;
    uint32_t id = plan->row_table[hash & (plan->row_table_size - 1)];
    for (; id != 0; id = plan->rows[id - 1].next) {
        const gyre_plan_rows *rows = &plan->rows[id - 1];
        if (rows->side == side && rows->count == count &&
            (count == 0 || memcmp(plan->row_chunks + rows->first, chunks,
                                  count * sizeof(*chunks)) == 0))
            return id - 1;
    }
    return GYRE_NO_VIEW;
}

/* Hash anew into a table twice as large. */
static bool grow_table(gyre_plan *plan)
{
    uint32_t size = plan->row_table_size ? plan->row_table_size * 2 : 64;
    uint32_t *table = gyre_alloc_zero(plan->context, size, sizeof(*table));
    if (table == NULL)
        return false;
    for (uint32_t id = 0; id < plan->row_count; id++) {
        gyre_plan_rows *rows = &plan->rows[id];
        uint32_t at =
            hash_list(rows->side, plan->row_chunks + rows->first, rows->count) &
            (size - 1);
        rows->next = table[at];
        table[at] = id + 1;
    }
    gyre_free(plan->context, plan->row_table, plan->row_table_size,
              sizeof(*table));
    plan->row_table = table;
    plan->row_table_size = size;
    return true;
}

static bool make_room(gyre_plan *plan, uint32_t count)
{
    if (plan->row_count == plan->row_room) {
        uint32_t room = plan->row_room ? plan->row_room * 2 : 64;
        gyre_plan_rows *rows = gyre_grow(plan->context, plan->rows,
                                         plan->row_room, room, sizeof(*rows));
        if (rows == NULL)
            return false;
        plan->rows = rows;
        plan->row_room = room;
    }
    uint64_t need = (uint64_t)plan->row_chunk_count + count;
    if (need > plan->row_chunk_room) {
        uint64_t room = need + plan->row_chunk_room + 256;
        if (room > UINT32_MAX)
            return false;
        uint32_t *chunks =
            gyre_grow(plan->context, plan->row_chunks, plan->row_chunk_room,
                      room, sizeof(*chunks));
        if (chunks == NULL)
            return false;
        plan->row_chunks = chunks;
        plan->row_chunk_room = (uint32_t)room;
    }
    return plan->row_count < plan->row_table_size || grow_table(plan);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool is_sorted(const uint32_t *chunks, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (chunks[i - 1] >= chunks[i])
            return false;
    return true;
}

static uint32_t add(gyre_plan *plan, uint32_t side, const uint32_t *chunks,
                    uint32_t count)
{
    uint32_t hash = hash_list(side, chunks, count);
    uint32_t found = find(plan, hash, side, chunks, count);
    if (found != GYRE_NO_VIEW)
        return found;
    if (!make_room(plan, count))
        return GYRE_NO_VIEW;
    uint32_t id = plan->row_count++;
    gyre_plan_rows *rows = &plan->rows[id];
    *rows = (gyre_plan_rows){
        .side = side, .first = plan->row_chunk_count, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        plan->row_chunks[plan->row_chunk_count++] = chunks[i];
        rows->tokens += plan->problem.chunks[side][chunks[i]].length;
    }
    uint32_t at = hash & (plan->row_table_size - 1);
    rows->next = plan->row_table[at];
    plan->row_table[at] = id + 1;
    return id;
}

uint32_t gyre_plan_intern_rows(gyre_plan *plan, uint32_t side,
                               const uint32_t *chunks, uint32_t count)
{
    if (is_sorted(chunks, count))
        return add(plan, side, chunks, count);
    uint32_t *sorted = gyre_alloc(plan->context, count, sizeof(*sorted));
    if (sorted == NULL)
        return GYRE_NO_VIEW;
    memcpy(sorted, chunks, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare);
    uint32_t id = add(plan, side, sorted, count);
    gyre_free(plan->context, sorted, count, sizeof(*sorted));
    return id;
}
