/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of chunks as bits, counted by user: a transfer shares, a write owns. */
#include "plan/prove.h"

#include <string.h>

void gyre_sets_free(gyre_sets *sets)
{
    size_t words = (size_t)GYRE_SET_BLOCK * sets->words;
    for (uint32_t i = 0; i < sets->block_count; i++)
        gyre_free(sets->context, sets->blocks[i], words, sizeof(uint64_t));
    gyre_free(sets->context, sets->blocks, sets->block_room,
              sizeof(*sets->blocks));
    gyre_free(sets->context, sets->users, sets->user_room, sizeof(uint32_t));
    *sets = (gyre_sets){.context = sets->context, .words = sets->words};
}

/* One block more; what grew before a failure stays for the next try. */
static bool grow(gyre_sets *sets)
{
    uint32_t need = (sets->block_count + 1) * GYRE_SET_BLOCK;
    if (sets->user_room < need) {
        uint32_t *users = gyre_grow(sets->context, sets->users, sets->user_room,
                                    (size_t)need * 2, sizeof(*users));
        if (users == NULL)
            return false;
        sets->users = users;
        sets->user_room = need * 2;
    }
    if (sets->block_room == sets->block_count) {
        uint32_t room = sets->block_room * 2 + 4;
        uint64_t **list = gyre_grow(sets->context, sets->blocks,
                                    sets->block_room, room, sizeof(*list));
        if (list == NULL)
            return false;
        sets->blocks = list;
        sets->block_room = room;
    }
    uint64_t *block = gyre_alloc(
        sets->context, (size_t)GYRE_SET_BLOCK * sets->words, sizeof(*block));
    if (block == NULL)
        return false;
    sets->blocks[sets->block_count++] = block;
    if (sets->count == 0)
        sets->count = 1; /* 0 is the empty one */
    return true;
}

static uint32_t take(gyre_sets *sets)
{
    uint32_t set = sets->free;
    if (set != 0) {
        sets->free = sets->users[set];
    } else {
        if (sets->count >= sets->block_count * GYRE_SET_BLOCK && !grow(sets))
            return 0;
        set = sets->count++;
    }
    sets->users[set] = 1;
    return set;
}

void gyre_set_keep(gyre_sets *sets, uint32_t set)
{
    if (set != 0)
        sets->users[set]++;
}

void gyre_set_drop(gyre_sets *sets, uint32_t set)
{
    if (set == 0 || --sets->users[set] > 0)
        return;
    sets->users[set] = sets->free;
    sets->free = set;
}

uint32_t gyre_set_own(gyre_sets *sets, uint32_t set)
{
    if (set != 0 && sets->users[set] == 1)
        return set;
    uint32_t fresh = take(sets);
    if (fresh == 0)
        return 0;
    size_t bytes = sets->words * sizeof(uint64_t);
    if (set == 0) {
        memset(gyre_set_bits(sets, fresh), 0, bytes);
    } else {
        memcpy(gyre_set_bits(sets, fresh), gyre_set_bits(sets, set), bytes);
        gyre_set_drop(sets, set);
    }
    return fresh;
}
