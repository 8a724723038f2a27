/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intake: gradients leave memory while others still come.
 *
 * SPILLED: every micro-batch is a stream of its own.  A chunk is pushed when
 * all of it came; its worker reads the region if an earlier micro-batch left
 * something there, adds or copies, takes the leaves and writes the region.  So
 * a chunk's leaves are always those of the sum so far, and a tensor that is
 * absent in the last micro-batch has its own from an earlier one.
 *
 * STREAMED: only the last micro-batch has an intake, for error feedback comes
 * once a round.  It compresses into the region, or into memory.
 *
 * Gradients lie in anonymous memory that is mapped once; a grain is a page, and
 * a page that was taken is given back.  So what is resident is what came and
 * is not yet taken, and that is bounded by making pieces wait for the devices
 * (gyre_intake_wait).
 */
#include "config.h"

#include "registry/compressor.h"
#include "store/ledger.h"
#include "store/round.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

/* ---- memory ----------------------------------------------------------- */

/* Pages can be given back only where they are ours alone. */
static bool wants_pages(const gyre_store *store)
{
    return store->codec != NULL ||
           (store->layout.gradient_grain > 0 && !store->gradients_in_memory);
}

static gyre_status hold_payload(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    uint64_t at = 0;

    if (store->payload != NULL)
        return GYRE_OK;
    if (store->payload_at == NULL) /* else left by an attempt that failed */
        store->payload_at = gyre_alloc(
            store->context, (size_t)layout->train_chunks + 1, sizeof(uint64_t));
    for (uint64_t c = 0; store->payload_at != NULL && c < layout->train_chunks;
         c++) {
        store->payload_at[c] = at;
        at += gyre_round_wire_bound(store, c);
    }
    if (store->payload_at != NULL) {
        store->payload_at[layout->train_chunks] = at;
        store->payload = gyre_alloc(store->context, (size_t)at + 8, 1);
    }
    if (store->payload != NULL)
        return GYRE_OK;
    return gyre_fail(error, GYRE_NO_MEMORY,
                     "no memory for compressed gradients (%llu bytes)",
                     (unsigned long long)at);
}

/* One chunk's wire blocks for each device, between compression and decoding. */
static gyre_status hold_wire(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;

    if (store->wire != NULL)
        return GYRE_OK;
    for (uint64_t c = 0; c < layout->train_chunks; c++) {
        uint64_t bytes = gyre_round_wire_bound(store, c);

        if (bytes > store->wire_bytes)
            store->wire_bytes = (size_t)bytes;
    }
    store->wire =
        gyre_alloc(store->context, store->wire_bytes + 8, layout->devices);
    if (store->wire != NULL)
        return GYRE_OK;
    return gyre_fail(error, GYRE_NO_MEMORY,
                     "no memory for compressed gradients (%zu bytes)",
                     store->wire_bytes);
}

gyre_status gyre_round_hold(gyre_round *round, gyre_error *error)
{
    gyre_store *store = round->store;
    size_t count = (size_t)store->layout.train_grains * GYRE_GRAIN + 1;

    if (store->gradients == NULL) {
        store->gradient_count = count;
        store->gradients_mapped = wants_pages(store);
        if (store->gradients_mapped) {
            void *at = mmap(NULL, count * sizeof(float), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

            store->gradients = at != MAP_FAILED ? at : NULL;
        } else {
            store->gradients = gyre_alloc(store->context, count, sizeof(float));
        }
    }
    if (store->gradients == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "no memory for a round (%llu gradient bytes)",
                         (unsigned long long)count * 4);
    if (round->way == GYRE_WAY_STREAMED && !round->regions)
        return hold_payload(store, error);
    if (round->way == GYRE_WAY_HELD && store->codec != NULL)
        return hold_wire(store, error);
    return GYRE_OK;
}

void gyre_store_free_gradients(gyre_store *store)
{
    uint64_t chunks = store->layout.train_chunks;

    if (store->gradients_mapped && store->gradients != NULL)
        munmap(store->gradients, store->gradient_count * sizeof(float));
    else
        gyre_free(store->context, store->gradients, store->gradient_count,
                  sizeof(float));
    if (store->payload != NULL)
        gyre_free(store->context, store->payload,
                  (size_t)store->payload_at[chunks] + 8, 1);
    gyre_free(store->context, store->payload_at, (size_t)chunks + 1,
              sizeof(uint64_t));
    gyre_free(store->context, store->wire, store->wire_bytes + 8,
              store->layout.devices);
    store->gradients = NULL;
    store->payload = NULL;
    store->payload_at = NULL;
    store->wire = NULL;
}

/* Give the pages of a run back. */
static void drop(const gyre_store *store, float *g, size_t n)
{
    if (store->gradients_mapped)
        (void)madvise(g, gyre_round_up(n, GYRE_GRAIN) * sizeof(float),
                      MADV_DONTNEED);
}

/* ---- one chunk, in its worker ----------------------------------------- */

/* Add what came of a run to the region, and take its leaves. */
static void add_run(gyre_round *round, uint64_t first, const gyre_run *run,
                    float *region, gyre_ledger *l)
{
    gyre_store *store = round->store;
    const gyre_claim *claim = &round->claims[run->tensor];
    gyre_isa isa = gyre_context_isa(store->context);
    float *g = store->gradients + first * GYRE_GRAIN + run->at;
    int finite;

    if (claim->filled)
        l->gradient_read += run->n * sizeof(float);
    if (claim->filled || !claim->absent)
        l->gradient_write += run->n * sizeof(float);
    if (claim->absent)
        return;
    l->gradient_down += run->n * sizeof(float);
    for (size_t at = 0; at < run->n; at += GYRE_GRAIN) {
        size_t n = run->n - at < GYRE_GRAIN ? run->n - at : GYRE_GRAIN;
        float *to = region + run->at + at;

        if (claim->filled) {
            gyre_device_add(to, g + at, n);
        } else {
            memcpy(to, g + at, n * sizeof(float));
            memset(to + n, 0, (GYRE_GRAIN - n) * sizeof(float));
        }
        round->leaves[first + (run->at + at) / GYRE_GRAIN] =
            gyre_device_leaf(isa, to, n, &finite);
    }
    drop(store, g, run->n);
}

gyre_status gyre_round_check_region(const gyre_round *round, gyre_work work,
                                    gyre_error *error)
{
    const gyre_store *store = round->store;
    const gyre_taken *taken = &round->taken[work.chunk];
    uint32_t device = store->layout.places[work.chunk].device;
    uint64_t hash;

    if (!store->check_reads)
        return GYRE_OK;
    hash = XXH3_64bits(work.gradient, taken->bytes);
    if (hash == taken->hash)
        return GYRE_OK;
    return gyre_fail(
        error, GYRE_CORRUPT,
        "%s: the gradients of chunk %llu at offset %llu (%llu bytes) are not "
        "those written in this round: checksum %016llx, not %016llx",
        store->places[device].file, (unsigned long long)work.chunk,
        (unsigned long long)gyre_layout_gradient_offset(&store->layout,
                                                        work.chunk),
        (unsigned long long)taken->bytes, (unsigned long long)hash,
        (unsigned long long)taken->hash);
}

static gyre_status spill_chunk(gyre_round *round, gyre_work work,
                               gyre_work_result *result, gyre_ledger *l,
                               gyre_error *error)
{
    gyre_store *store = round->store;
    const gyre_layout *layout = &store->layout;
    gyre_taken *taken = &round->taken[work.chunk];
    uint64_t first = gyre_layout_first_grain(layout, work.chunk);
    bool again = (work.parts & GYRE_PART_GRADIENT) != 0;
    size_t cursor = GYRE_RUN_FIRST;
    uint64_t before = taken->bytes;
    gyre_run run;
    gyre_status status;

    if (again) {
        status = gyre_round_check_region(round, work, error);
        if (status != GYRE_OK)
            return status;
    }
    while (gyre_layout_next_run(layout, work.chunk, &cursor, &run))
        add_run(round, first, &run, (float *)(void *)work.gradient, l);
    taken->bytes = gyre_layout_chunk_grains(layout, work.chunk) * GYRE_GRAIN *
                   sizeof(float);
    taken->hash = XXH3_64bits(work.gradient, taken->bytes);
    result->write_gradient = gyre_round_up(taken->bytes, layout->align);
    l->padding_write += result->write_gradient - l->gradient_write;
    if (again)
        l->padding_read +=
            gyre_round_up(before, layout->align) - l->gradient_read;
    return GYRE_OK;
}

/* All leaves of what is compressed are finite? */
bool gyre_round_finite(const gyre_round *round, uint64_t chunk)
{
    const gyre_layout *layout = &round->store->layout;
    uint64_t first = gyre_layout_first_grain(layout, chunk);
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    while (gyre_layout_next_run(layout, chunk, &cursor, &run))
        for (size_t at = 0; !round->skip[run.tensor] && at < run.n;
             at += GYRE_GRAIN)
            if (!isfinite(round->leaves[first + (run.at + at) / GYRE_GRAIN]))
                return false;
    return true;
}

static void drop_chunk(gyre_round *round, uint64_t chunk)
{
    gyre_store *store = round->store;
    uint64_t first = gyre_layout_first_grain(&store->layout, chunk);

    drop(store, store->gradients + first * GYRE_GRAIN,
         gyre_layout_chunk_elements(&store->layout, chunk));
}

/* A chunk with a gradient that is not finite, or that overflows, is left out:
 * the round will not be applied. */
static gyre_status stream_chunk(gyre_round *round, gyre_work work,
                                gyre_work_result *result, gyre_ledger *l,
                                gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_taken *taken = &round->taken[work.chunk];
    uint8_t *wire = round->regions
                        ? work.gradient
                        : store->payload + store->payload_at[work.chunk];
    gyre_status status;

    if (!gyre_round_finite(round, work.chunk))
        return GYRE_OK;
    status = gyre_round_compress(round, work.chunk, wire, taken, error);
    if (status != GYRE_OK) {
        taken->bytes = 0;
        return atomic_load(&round->overflown) != 0 ? GYRE_OK : status;
    }
    drop_chunk(round, work.chunk);
    if (!round->regions)
        return GYRE_OK;
    taken->hash = XXH3_64bits(wire, taken->bytes);
    result->write_gradient = gyre_round_up(taken->bytes, store->layout.align);
    memset(wire + taken->bytes, 0, result->write_gradient - taken->bytes);
    l->gradient_down = taken->payload;
    l->gradient_write = taken->payload;
    l->frame_bytes = taken->bytes - taken->payload;
    l->padding_write = result->write_gradient - taken->payload;
    return GYRE_OK;
}

static gyre_status take_chunk(void *user, uint32_t device, gyre_work work,
                              uint8_t *data, gyre_work_result *result,
                              gyre_error *error)
{
    gyre_round *round = user;
    gyre_ledger l = {0};
    gyre_status status = GYRE_OK;

    (void)device;
    (void)data;
    if (round->way == GYRE_WAY_SPILLED)
        status = spill_chunk(round, work, result, &l, error);
    else
        status = stream_chunk(round, work, result, &l, error);
    if (status != GYRE_OK)
        return status;
    if (round->store->placement == GYRE_HOST)
        l.gradient_up = l.gradient_read;
    gyre_store_count(round->store, &l);
    pthread_mutex_lock(&round->lock);
    atomic_fetch_sub(&round->waiting, 1);
    pthread_cond_broadcast(&round->taken_some);
    pthread_mutex_unlock(&round->lock);
    return GYRE_OK;
}

static uint64_t bytes_taken(void *user, uint64_t chunk)
{
    const gyre_round *round = user;

    return gyre_round_up(round->taken[chunk].bytes, round->store->layout.align);
}

/* Down the link, near: what came of the chunk, or its wire blocks. */
static uint64_t bytes_down(void *user, uint64_t chunk)
{
    const gyre_round *round = user;
    const gyre_layout *layout = &round->store->layout;
    size_t cursor = GYRE_RUN_FIRST;
    uint64_t bytes = 0;
    gyre_run run;

    if (!round->regions)
        return 0;
    while (gyre_layout_next_run(layout, chunk, &cursor, &run)) {
        if (round->way == GYRE_WAY_SPILLED)
            bytes += round->claims[run.tensor].absent ? 0 : run.n * 4;
        else if (!round->skip[run.tensor])
            bytes += gyre_codec_bound(round->store->codec, run.n);
    }
    return bytes;
}

/* ---- for the round ---------------------------------------------------- */

static bool has_intake(const gyre_round *round)
{
    return round->way == GYRE_WAY_SPILLED ||
           (round->way == GYRE_WAY_STREAMED &&
            round->micro + 1 == round->micro_batches);
}

void gyre_intake_start(gyre_round *round)
{
    const gyre_layout *layout = &round->store->layout;
    gyre_stream stream = {.read_gradient = bytes_taken,
                          .link_before = bytes_down,
                          .process = take_chunk,
                          .ended = gyre_round_stream_ended,
                          .user = round};

    if (!has_intake(round))
        return;
    for (uint64_t c = 0; c < layout->train_chunks; c++)
        atomic_store(&round->chunk_left[c],
                     gyre_layout_chunk_grains(layout, c));
    atomic_store(&round->waiting, 0);
    round->taking = round->streaming = true;
    gyre_workers_start(round->store, &stream);
}

/* Only what came in this micro-batch has to be taken; what an earlier one left
 * in the region is read when anything is added to it. */
void gyre_intake_push(gyre_round *round, uint64_t chunk)
{
    const gyre_layout *layout = &round->store->layout;
    bool came = false, before = false;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    while (gyre_layout_next_run(layout, chunk, &cursor, &run)) {
        came |= round->way == GYRE_WAY_SPILLED
                    ? !round->claims[run.tensor].absent
                    : !round->skip[run.tensor];
        before |= round->claims[run.tensor].filled;
    }
    if (!came)
        return;
    atomic_fetch_add(&round->waiting, 1);
    gyre_workers_push_parts(
        round->store, chunk, 0,
        before && round->way == GYRE_WAY_SPILLED ? GYRE_PART_GRADIENT : 0);
}

void gyre_intake_wait(gyre_round *round)
{
    const gyre_store *store = round->store;
    uint64_t room = (uint64_t)store->buffers * store->layout.devices * 2;

    if (!round->taking || atomic_load(&round->waiting) <= room)
        return;
    pthread_mutex_lock(&round->lock);
    while (!round->failed && atomic_load(&round->waiting) > room)
        pthread_cond_wait(&round->taken_some, &round->lock);
    pthread_mutex_unlock(&round->lock);
}

gyre_status gyre_intake_end(gyre_round *round, gyre_error *error)
{
    if (round->taking) {
        (void)gyre_round_end_stream(round, &round->why);
        round->failed = false;
    }
    if (round->why.status != GYRE_OK && error != NULL)
        *error = round->why;
    return round->why.status;
}
