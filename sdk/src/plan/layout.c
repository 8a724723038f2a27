/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tokens are cut into chunks.  N places, each of U neighbouring parts:
 *
 *     contiguous   run c of N is place c
 *     zigzag       run c and run 2N - 1 - c of 2N are place c
 *     striped      position t is place t mod N; then part (t / N) mod U
 *     documents    each document zigzag; what lies outside of them contiguous
 *
 * A run of `tokens` cut in n is [tokens * i / n, tokens * (i + 1) / n): lengths
 * differ by one at most, and there may be empty ones.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[GYRE_LAYOUT_COUNT] = {"contiguous", "zigzag",
                                                     "striped", "documents"};

const char *gyre_layout_name(uint32_t layout)
{
    return layout < GYRE_LAYOUT_COUNT ? names[layout] : NULL;
}

gyre_status gyre_layout_parse(const char *name, uint32_t *out,
                              gyre_error *error)
{
    for (uint32_t i = 0; i < GYRE_LAYOUT_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return GYRE_OK;
        }
    return gyre_fail(error, GYRE_RANGE,
                     "layout '%s' is not known: contiguous, zigzag, striped or "
                     "documents",
                     name);
}

static uint64_t cut(uint64_t tokens, uint64_t i, uint64_t n)
{
    return tokens / n * i + tokens % n * i / n;
}

typedef struct knife {
    gyre_chunks *out;
    uint32_t room;
    const uint32_t *owner; /* of place c, part p: owner[c * parts + p] */
    uint32_t places, parts;
} knife;

/* [from, to) of place c in `parts` chunks. */
static void add_run(knife *cutter, uint64_t from, uint64_t to, uint32_t place)
{
    for (uint32_t p = 0; p < cutter->parts; p++) {
        uint64_t begin = cut(to - from, p, cutter->parts);
        uint64_t end = cut(to - from, p + 1, cutter->parts);
        cutter->out->at[cutter->out->count++] =
            (gyre_chunk){.start = from + begin,
                         .length = end - begin,
                         .stride = 1,
                         .owner = cutter->owner[place * cutter->parts + p]};
    }
}

static void add_contiguous(knife *cutter, uint64_t from, uint64_t to)
{
    for (uint32_t c = 0; c < cutter->places; c++)
        add_run(cutter, from + cut(to - from, c, cutter->places),
                from + cut(to - from, c + 1, cutter->places), c);
}

static void add_zigzag(knife *cutter, uint64_t from, uint64_t to)
{
    uint32_t n = 2 * cutter->places;
    for (uint32_t i = 0; i < n; i++)
        add_run(cutter, from + cut(to - from, i, n),
                from + cut(to - from, i + 1, n),
                i < cutter->places ? i : n - 1 - i);
}

static void add_striped(knife *cutter, uint64_t tokens)
{
    uint32_t n = cutter->places * cutter->parts;
    for (uint32_t s = 0; s < n; s++) {
        uint32_t place = s % cutter->places, part = s / cutter->places;
        cutter->out->at[cutter->out->count++] =
            (gyre_chunk){.start = s,
                         .length = s < tokens ? (tokens - s - 1) / n + 1 : 0,
                         .stride = n,
                         .owner = cutter->owner[place * cutter->parts + part]};
    }
}

static void add_documents(knife *cutter, uint64_t tokens,
                          const gyre_documents *documents)
{
    uint64_t at = 0;
    for (uint32_t d = 0; d < documents->count; d++) {
        if (documents->bounds[d] > at)
            add_contiguous(cutter, at, documents->bounds[d]);
        add_zigzag(cutter, documents->bounds[d], documents->bounds[d + 1]);
        at = documents->bounds[d + 1];
    }
    if (at < tokens)
        add_contiguous(cutter, at, tokens);
}

/* Whose each (place, part) is.  INVALID when the grid is not one to one. */
static gyre_status fill_owners(const gyre_grid *grid, uint32_t ranks,
                               uint32_t *owner, gyre_error *error)
{
    for (uint32_t i = 0; i < ranks; i++)
        owner[i] = GYRE_NO_VIEW;
    for (uint32_t r = 0; r < ranks; r++) {
        const gyre_grid *g = &grid[r];
        if (g->contexts != grid->contexts || g->parts != grid->parts ||
            (uint64_t)g->contexts * g->parts != ranks ||
            g->context >= g->contexts || g->part >= g->parts)
            return gyre_fail(error, GYRE_INVALID,
                             "grid of rank %u is place %u of %u, part %u of "
                             "%u: %u ranks need every pair once",
                             r, g->context, g->contexts, g->part, g->parts,
                             ranks);
        uint32_t *at = &owner[g->context * g->parts + g->part];
        if (*at != GYRE_NO_VIEW)
            return gyre_fail(error, GYRE_INVALID,
                             "ranks %u and %u both stand at place %u, part %u",
                             *at, r, g->context, g->part);
        *at = r;
    }
    return GYRE_OK;
}

static gyre_status check_bounds(const gyre_documents *documents,
                                uint64_t tokens, gyre_error *error)
{
    if (documents == NULL || documents->count == 0)
        return gyre_fail(error, GYRE_MISSING,
                         "layout 'documents' needs documents: give a mask "
                         "docs:FILE");
    for (uint32_t d = 0; d < documents->count; d++)
        if (documents->bounds[d] > documents->bounds[d + 1] ||
            documents->bounds[d + 1] > tokens)
            return gyre_fail(error, GYRE_INVALID,
                             "document %u is [%llu, %llu) of %llu tokens", d,
                             (unsigned long long)documents->bounds[d],
                             (unsigned long long)documents->bounds[d + 1],
                             (unsigned long long)tokens);
    return GYRE_OK;
}

/* More than any layout makes. */
static uint64_t most_chunks(uint32_t layout, const gyre_documents *documents,
                            uint32_t ranks)
{
    uint64_t runs = 2;
    if (layout == GYRE_LAYOUT_DOCUMENTS)
        runs = 3 * ((uint64_t)documents->count + 1);
    return runs * ranks;
}

gyre_status gyre_layout_cut(gyre_context *context, uint32_t layout,
                            uint64_t tokens, const gyre_documents *documents,
                            const gyre_grid *grid, uint32_t ranks,
                            gyre_chunks *out, gyre_error *error)
{
    if (layout == GYRE_LAYOUT_DOCUMENTS) {
        gyre_status status = check_bounds(documents, tokens, error);
        if (status != GYRE_OK)
            return status;
    }
    gyre_status status = GYRE_NO_MEMORY;
    gyre_chunks made = {0};
    uint64_t room = most_chunks(layout, documents, ranks);
    uint32_t *owner = gyre_alloc(context, ranks, sizeof(*owner));
    if (owner == NULL || room > UINT32_MAX)
        goto no_memory;
    status = fill_owners(grid, ranks, owner, error);
    if (status != GYRE_OK)
        goto free_owner;
    made.at = gyre_alloc(context, room, sizeof(*made.at));
    if (made.at == NULL)
        goto no_memory;
    knife cutter = {&made, (uint32_t)room, owner, grid->contexts, grid->parts};
    if (layout == GYRE_LAYOUT_CONTIGUOUS)
        add_contiguous(&cutter, 0, tokens);
    else if (layout == GYRE_LAYOUT_ZIGZAG)
        add_zigzag(&cutter, 0, tokens);
    else if (layout == GYRE_LAYOUT_STRIPED)
        add_striped(&cutter, tokens);
    else
        add_documents(&cutter, tokens, documents);
    gyre_chunk *exact =
        gyre_grow(context, made.at, room, made.count, sizeof(*exact));
    if (exact == NULL) {
        gyre_free(context, made.at, room, sizeof(*made.at));
        goto no_memory;
    }
    made.at = exact;
    *out = made;
    gyre_free(context, owner, ranks, sizeof(*owner));
    return GYRE_OK;
no_memory:
    status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for the chunk table");
free_owner:
    gyre_free(context, owner, ranks, sizeof(*owner));
    return status;
}

/* ---- a table of the user's ------------------------------------------- */

static uint64_t last_position(const gyre_chunk *chunk)
{
    return chunk->start + (chunk->length - 1) * chunk->stride;
}

static gyre_status check_chunk(const gyre_chunk *chunk, uint32_t i,
                               uint64_t tokens, uint32_t ranks,
                               const char *side, gyre_error *error)
{
    if (chunk->owner >= ranks)
        return gyre_fail(error, GYRE_INVALID,
                         "%s chunk %u belongs to rank %u of %u", side, i,
                         chunk->owner, ranks);
    if (chunk->stride == 0)
        return gyre_fail(error, GYRE_INVALID, "%s chunk %u has stride 0", side,
                         i);
    uint64_t reach;
    if (chunk->length > 0 &&
        (!gyre_mul(chunk->length - 1, chunk->stride, &reach) ||
         !gyre_add(reach, chunk->start, &reach) || reach >= tokens))
        return gyre_fail(error, GYRE_INVALID,
                         "%s chunk %u reaches beyond the %llu tokens", side, i,
                         (unsigned long long)tokens);
    return GYRE_OK;
}

gyre_status gyre_chunks_check(gyre_context *context, const gyre_chunk *chunks,
                              uint32_t count, uint64_t tokens, uint32_t ranks,
                              const char *side, gyre_error *error)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        gyre_status status =
            check_chunk(&chunks[i], i, tokens, ranks, side, error);
        if (status != GYRE_OK)
            return status;
        if (!gyre_add(sum, chunks[i].length, &sum) || sum > tokens)
            return gyre_fail(error, GYRE_INVALID,
                             "%s chunk %u overlaps another: more than %llu "
                             "tokens in all",
                             side, i, (unsigned long long)tokens);
    }
    if (sum != tokens)
        return gyre_fail(error, GYRE_INVALID,
                         "%s chunks hold %llu of %llu tokens", side,
                         (unsigned long long)sum, (unsigned long long)tokens);
    if (tokens == 0)
        return GYRE_OK;
    size_t words = (size_t)(tokens / 64 + 1);
    uint64_t *seen = gyre_alloc_zero(context, words, sizeof(*seen));
    if (seen == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory to check chunks");
    gyre_status status = GYRE_OK;
    for (uint32_t i = 0; i < count && status == GYRE_OK; i++)
        for (uint64_t n = 0; n < chunks[i].length; n++) {
            uint64_t t = chunks[i].start + n * chunks[i].stride;
            if (seen[t / 64] >> t % 64 & 1) {
                status =
                    gyre_fail(error, GYRE_INVALID,
                              "%s chunk %u overlaps another at position "
                              "%llu (it ends at %llu)",
                              side, i, (unsigned long long)t,
                              (unsigned long long)last_position(&chunks[i]));
                break;
            }
            seen[t / 64] |= UINT64_C(1) << t % 64;
        }
    gyre_free(context, seen, words, sizeof(*seen));
    return status;
}
