/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "probe.h"

#include "store/chunk.h"

#define hold(p, condition)         \
    do {                           \
        if (!(condition))          \
            (p)->wrong = __LINE__; \
    } while (0)

enum { LINK_BEFORE = 500, LINK_AFTER = 1000 };

uint64_t probe_link_bytes(void)
{
    return CHUNKS * (LINK_BEFORE + LINK_AFTER) + CHUNKS * (CHUNKS - 1) / 2;
}

/* ---- callbacks -------------------------------------------------------- */

static gyre_worker *worker_of(const probe *p, uint32_t device)
{
    return p->store->places[device].worker;
}

static void check_buffer(probe *p, uint32_t device, gyre_work work,
                         const uint8_t *data)
{
    const gyre_worker *w = worker_of(p, device);
    const gyre_buffer *b = &w->buffers[work.buffer];

    hold(p, p->store->layout.places[work.chunk].device == device);
    hold(p, work.buffer < p->store->buffers);
    hold(p, b->data == data && b->work.chunk == work.chunk);
    hold(p, gyre_io_in_flight(w->io) <= p->store->buffers * GYRE_PARTS);
    for (uint32_t i = 0; i < p->store->buffers; i++)
        if (i != work.buffer && w->buffers[i].state != GYRE_BUFFER_FREE)
            hold(p, w->buffers[i].work.chunk != work.chunk);
    /* Strictly in turn: nothing else is under way. */
    if (p->store->buffers == 1)
        hold(p, gyre_io_in_flight(w->io) == 0);
}

static void check_contents(probe *p, gyre_work work, const uint8_t *data)
{
    if (work.parts & GYRE_PART_STATE)
        hold(p, gyre_store_verify(p->store, 0, work.chunk,
                                  &p->store->current[work.chunk], data,
                                  NULL) == GYRE_OK);
    if (work.parts & GYRE_PART_GRADIENT) {
        hold(p, work.gradient_bytes == p->gradient);
        for (uint64_t i = 0; i < work.gradient_bytes; i++)
            hold(p, work.gradient[i] == (uint8_t)(work.chunk + i));
    }
}

static void decide(probe *p, gyre_work work, gyre_work_result *result)
{
    if (p->swap)
        result->write = 1 - (int)p->store->current[work.chunk].version;
    if (p->gradient > 0 && (work.parts & GYRE_PART_GRADIENT) == 0) {
        for (uint64_t i = 0; i < p->gradient; i++)
            work.gradient[i] = (uint8_t)(work.chunk + i);
        result->write_gradient = p->gradient;
    }
    result->link_after = LINK_AFTER;
}

gyre_status probe_process(void *user, uint32_t device, gyre_work work,
                          uint8_t *data, gyre_work_result *result,
                          gyre_error *error)
{
    probe *p = user;
    uint32_t lane = 1u << work.lane;

    check_buffer(p, device, work, data);
    check_contents(p, work, data);
    p->sequence[device][p->count[device]++] = work.chunk;
    p->processed[work.chunk]++;
    hold(p, result->write == -1 && result->write_gradient == 0 &&
                !result->pending);
    if (work.chunk == p->fail_process)
        return gyre_fail(error, GYRE_CORRUPT, "process fails");
    if (!p->pending) {
        decide(p, work, result);
        return GYRE_OK;
    }
    hold(p, (p->lanes_taken[device] & lane) == 0);
    p->lanes_taken[device] |= lane;
    p->pending_of[device][p->last_pending[device]++] = work.chunk;
    result->pending = true;
    return GYRE_OK;
}

static gyre_status finish(void *user, uint32_t device, gyre_work work,
                          uint8_t *data, gyre_work_result *result,
                          gyre_error *error)
{
    probe *p = user;

    check_buffer(p, device, work, data);
    check_contents(p, work, data);
    hold(p, p->pending_of[device][p->first_pending[device]++] == work.chunk);
    hold(p, p->lanes_taken[device] & 1u << work.lane);
    p->lanes_taken[device] &= ~(1u << work.lane);
    p->finished[work.chunk]++;
    if (work.chunk == p->fail_finish)
        return gyre_fail(error, GYRE_CORRUPT, "finish fails");
    decide(p, work, result);
    return GYRE_OK;
}

static uint64_t read_gradient(void *user, uint64_t chunk)
{
    const probe *p = user;

    (void)chunk;
    return p->gradient;
}

static uint64_t link_before(void *user, uint64_t chunk)
{
    (void)user;
    return LINK_BEFORE + chunk;
}

void probe_delivered(void *user, uint32_t device, gyre_work work)
{
    probe *p = user;

    hold(p, p->processed[work.chunk] == p->delivered[work.chunk] + 1);
    hold(p, p->store->layout.places[work.chunk].device == device);
    p->delivered[work.chunk]++;
}

static void ended(void *user, uint32_t device, gyre_status status)
{
    probe *p = user;

    (void)status;
    hold(p, gyre_io_in_flight(worker_of(p, device)->io) == 0);
    hold(p, p->lanes_taken[device] == 0);
    p->ended[device]++;
}

/* ---- a store with streams --------------------------------------------- */

const setting probe_settings[PROBE_SETTINGS] = {
    {1, "posix", NULL, 0, GYRE_NEAR, 0},
    {2, NULL, NULL, 0, GYRE_NEAR, 2},
    {4, "faulty:posix,reorder=3", NULL, 0, GYRE_NEAR, 3},
    {8, "faulty,delay=300,reorder=9", NULL, 0, GYRE_NEAR, 8},
    {1, NULL, "emulated:read=20M,write=10M", 30e6, GYRE_NEAR, 1},
    {1, NULL, "emulated:read=20M,write=10M", 30e6, GYRE_HOST, 1},
    {2, "posix", "emulated:read=40M,write=40M", 30e6, GYRE_HOST, 2},
    {4, NULL, "emulated:read=40M", 0, GYRE_NEAR, 2},
    {4, NULL, NULL, 50e6, GYRE_HOST, 3},
    {5, "faulty,delay=500", "emulated:write=50M", 20e6, GYRE_NEAR, 4},
};

static void take_trace(fixture *f, uint32_t trace_records)
{
    gyre_context_options options = unit_options(&f->memory);

    gyre_context_destroy(f->context);
    options.trace_records = trace_records;
    good(f, gyre_context_create(&options, &f->context, &f->error));
}

void probe_begin(probe *p, const setting *s, uint32_t trace_records)
{
    gyre_store_options options = plain_options();
    gyre_store_spec spec;

    memset(p, 0, sizeof(*p));
    p->fail_process = p->fail_finish = UINT64_MAX;
    model_add(&p->m, "t", CHUNKS * 1024, 0, 0);
    spec = spec_of(&p->m);
    spec.chunk_elements = 1024;
    spec.spill = 1;
    fixture_begin(&p->f);
    take_trace(&p->f, trace_records);
    fixture_devices(&p->f, &spec, DEVICES);
    fixture_create(&p->f, &p->m, &spec, NULL);
    fixture_close(&p->f);
    options.buffers = s->buffers;
    options.io = s->io;
    options.compute = &s->compute;
    options.compute_count = s->compute != NULL;
    options.link_rate = s->link_rate;
    options.placement = s->placement;
    options.fast = 1;
    fixture_open(&p->f, &options);
    p->store = p->f.store;
    assert_int_equal(p->store->layout.chunks, CHUNKS);
    for (uint32_t d = 0; d < DEVICES && s->lanes != 0; d++)
        worker_of(p, d)->lanes = s->lanes;
}

void probe_end(probe *p)
{
    fixture_end(&p->f);
    model_free(&p->m);
}

gyre_status probe_run(probe *p, uint32_t parts, gyre_worker_stats *stats)
{
    gyre_stream stream = {
        .table = parts & GYRE_PART_STATE ? p->store->current : NULL,
        .parts = parts,
        .read_gradient = read_gradient,
        .link_before = link_before,
        .process = probe_process,
        .finish = finish,
        .delivered = probe_delivered,
        .ended = ended,
        .user = p,
    };
    gyre_status status;

    memset(p->processed, 0, sizeof(p->processed));
    memset(p->finished, 0, sizeof(p->finished));
    memset(p->delivered, 0, sizeof(p->delivered));
    memset(p->count, 0, sizeof(p->count));
    memset(p->first_pending, 0, sizeof(p->first_pending));
    memset(p->last_pending, 0, sizeof(p->last_pending));
    for (int d = 0; d < DEVICES; d++)
        p->ended[d] = 0;
    memset(stats, 0, sizeof(*stats));
    gyre_workers_start(p->store, &stream);
    for (uint64_t c = 0; c < CHUNKS; c++)
        gyre_workers_push(p->store, c, 0);
    gyre_workers_close(p->store);
    p->f.error.text[0] = '\0';
    status = gyre_workers_join(p->store, stats, &p->f.error);
    if (p->wrong != 0)
        fail_msg("what probe.c:%d holds was not so", p->wrong);
    for (int d = 0; d < DEVICES; d++)
        assert_int_equal(p->ended[d], 1);
    return status;
}

void probe_expect_once(const probe *p)
{
    for (uint64_t c = 0; c < CHUNKS; c++) {
        assert_int_equal(p->processed[c], 1);
        assert_int_equal(p->delivered[c], 1);
        assert_int_equal(p->finished[c], p->pending);
    }
}
