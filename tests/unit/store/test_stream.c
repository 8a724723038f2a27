/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a worker, with streams of our own: every push is
 * processed once on its device, buffers are recycled and never shared, jobs
 * that are left pending are finished in order, and an error in any state leaves
 * a worker that takes the next stream.
 */
#include "config.h"

#include "fixture.h"

#include "store/chunk.h"
#include "store/compute.h"
#include "store/worker.h"

#include <gyre/trace.h>

enum { CHUNKS = 24, DEVICES = 2, MOST_BUFFERS = 8 };

typedef struct probe {
    fixture f;
    model m;
    gyre_store *store;
    /* what process does */
    bool pending;
    bool swap;             /* write what was read to the other version */
    uint64_t gradient;     /* bytes of it to write, to read */
    uint64_t fail_process; /* chunk that fails; UINT64_MAX: none */
    uint64_t fail_finish;
    /* what was seen; of a device only its worker writes */
    _Atomic int processed[CHUNKS], finished[CHUNKS], delivered[CHUNKS];
    _Atomic int ended[DEVICES];
    uint64_t sequence[DEVICES][CHUNKS]; /* chunks in the order of process */
    size_t count[DEVICES];
    uint64_t pending_of[DEVICES][CHUNKS]; /* a queue of chunks */
    size_t first_pending[DEVICES], last_pending[DEVICES];
    uint32_t lanes_taken[DEVICES];
    _Atomic int wrong; /* a condition that did not hold: its line */
} probe;

#define hold(p, condition)         \
    do {                           \
        if (!(condition))          \
            (p)->wrong = __LINE__; \
    } while (0)

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
    result->link_after = 1000;
}

static gyre_status process(void *user, uint32_t device, gyre_work work,
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
    return 500 + chunk;
}

static void delivered(void *user, uint32_t device, gyre_work work)
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

typedef struct setting {
    uint32_t buffers;
    const char *io;
    const char *compute;
    double link_rate;
    gyre_placement placement;
    uint32_t lanes; /* 0: as the device has */
} setting;

static const setting settings[] = {
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

enum { SETTINGS = sizeof(settings) / sizeof(*settings) };

static uint32_t trace_records;

static void take_trace(fixture *f)
{
    gyre_context_options options = unit_options(&f->memory);

    gyre_context_destroy(f->context);
    options.trace_records = trace_records;
    good(f, gyre_context_create(&options, &f->context, &f->error));
}

static void begin(probe *p, const setting *s)
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
    take_trace(&p->f);
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

static void end(probe *p)
{
    fixture_end(&p->f);
    model_free(&p->m);
}

static gyre_status run(probe *p, uint32_t parts, gyre_worker_stats *stats)
{
    gyre_stream stream = {
        .table = parts & GYRE_PART_STATE ? p->store->current : NULL,
        .parts = parts,
        .read_gradient = read_gradient,
        .link_before = link_before,
        .process = process,
        .finish = finish,
        .delivered = delivered,
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
        fail_msg("what test_stream.c:%d holds was not so", p->wrong);
    for (int d = 0; d < DEVICES; d++)
        assert_int_equal(p->ended[d], 1);
    return status;
}

/* ---- every push, once ------------------------------------------------- */

static void expect_once(probe *p)
{
    for (uint64_t c = 0; c < CHUNKS; c++) {
        assert_int_equal(p->processed[c], 1);
        assert_int_equal(p->delivered[c], 1);
        assert_int_equal(p->finished[c], p->pending);
    }
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* What is emulated takes its time at least: of a device for what it read and
 * for what it wrote, of the link for what crossed it.  Each of the two devices
 * holds half of the chunks. */
static void expect_time(const setting *s, const gyre_worker_stats *stats)
{
    double took = (double)(stats->last_ns - stats->first_ns) / 1e9, least = 0;
    double moved = (double)(stats->read_bytes + stats->write_bytes);
    gyre_compute c = {"cpu", 0, 0};

    if (s->compute != NULL)
        assert_int_equal(gyre_compute_parse(s->compute, &c, NULL), GYRE_OK);
    if (s->placement == GYRE_NEAR) /* what link_before and decide say */
        moved = CHUNKS * (500 + 1000) + CHUNKS * (CHUNKS - 1) / 2;
    if (c.read_rate > 0)
        least = most(least, (double)stats->read_bytes / DEVICES / c.read_rate);
    if (c.write_rate > 0)
        least =
            most(least, (double)stats->write_bytes / DEVICES / c.write_rate);
    if (s->link_rate > 0)
        least = most(least, moved / s->link_rate);
    assert_true(took >= least - 1e-6);
}

static void test_every_push_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < SETTINGS; i++)
        for (int k = 0; k < 4; k++) {
            gyre_worker_stats stats;
            uint64_t bytes;
            probe p;

            begin(&p, &settings[i]);
            bytes = gyre_layout_chunk_bytes(&p.store->layout, 0) * CHUNKS;
            p.pending = k & 1;
            p.swap = k & 2;
            good(&p.f, run(&p, GYRE_PART_STATE, &stats));
            expect_once(&p);
            assert_int_equal(stats.read_bytes, bytes);
            assert_int_equal(stats.write_bytes, p.swap ? bytes : 0);
            assert_true(stats.first_ns != 0 && stats.last_ns > stats.first_ns);
            expect_time(&settings[i], &stats);
            /* Without reading, too. */
            p.swap = false;
            good(&p.f, run(&p, 0, &stats));
            expect_once(&p);
            assert_int_equal(stats.read_bytes + stats.write_bytes, 0);
            end(&p);
        }
}

/* ---- what a profile sees ---------------------------------------------- */

typedef struct seen {
    const setting *s;
    gyre_compute rate;
    uint64_t read, written, link, last_link;
    int wrong;
} seen;

static int see_span(void *user, const gyre_span *span)
{
    seen *x = user;
    double rate = 0, length = (double)(span->end - span->begin);

    switch (span->category) {
    case GYRE_TRACE_STORAGE_READ:
        rate = x->rate.read_rate;
        x->read += span->arg;
        break;
    case GYRE_TRACE_STORAGE_WRITE:
        rate = x->rate.write_rate;
        x->written += span->arg;
        break;
    case GYRE_TRACE_LINK:
        /* One at a time over the one link: spans come by begin. */
        x->wrong += span->begin < x->last_link;
        x->last_link = span->end;
        rate = x->s->link_rate;
        x->link += span->arg;
        break;
    default:
        return 0;
    }
    if (rate > 0 && span->arg > 0) {
        double exact = (double)span->arg / rate * 1e9;

        /* A real device may be slower than the emulated one. */
        x->wrong += length < exact - 1;
        if (span->category == GYRE_TRACE_LINK)
            x->wrong += length > exact + 1;
    }
    return 0;
}

/* Paced transfers have spans no shorter than their bytes take; what crosses the
 * link has spans of its own. */
static void test_spans_are_those_of_the_rates(void **state)
{
    static const setting traced[] = {
        {2, NULL, "emulated:read=80M,write=70M", 60e6, GYRE_NEAR, 1},
        {3, NULL, "emulated:read=80M,write=70M", 60e6, GYRE_HOST, 1},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        seen x = {.s = &traced[i]};
        gyre_worker_stats stats;
        probe p;

        trace_records = 4096;
        begin(&p, &traced[i]);
        trace_records = 0;
        good(&p.f, gyre_compute_parse(traced[i].compute, &x.rate, NULL));
        gyre_trace_clear(p.f.context);
        p.swap = true;
        good(&p.f, run(&p, GYRE_PART_STATE, &stats));
        good(&p.f, gyre_trace_each(p.f.context, see_span, &x, &p.f.error));
        assert_int_equal(x.wrong, 0);
        assert_int_equal(x.read, stats.read_bytes);
        assert_int_equal(x.written, stats.write_bytes);
        assert_int_equal(x.link, i == 0
                                     ? CHUNKS * 1500 + CHUNKS * (CHUNKS - 1) / 2
                                     : stats.read_bytes + stats.write_bytes);
        end(&p);
    }
}

/* With one buffer chunks come in the order of their pushes, whatever the
 * engine does; with more, in the order in which they were read. */
static void test_one_buffer_keeps_the_order(void **state)
{
    gyre_worker_stats stats;
    probe p;

    (void)state;
    begin(&p, &settings[0]);
    p.swap = true;
    good(&p.f, run(&p, GYRE_PART_STATE, &stats));
    for (int d = 0; d < DEVICES; d++)
        for (size_t i = 1; i < p.count[d]; i++)
            assert_true(p.sequence[d][i - 1] < p.sequence[d][i]);
    end(&p);
}

/* The queue is a ring: chunks may come again and again while it runs. */
static void test_pushes_while_it_runs(void **state)
{
    enum { TIMES = 50 };
    gyre_stream stream;
    gyre_worker_stats stats = {0, 0, 0, 0};
    probe p;

    (void)state;
    begin(&p, &settings[1]);
    stream = (gyre_stream){.table = p.store->current,
                           .process = process,
                           .delivered = delivered,
                           .user = &p};
    gyre_workers_start(p.store, &stream);
    for (int t = 1; t <= TIMES; t++) {
        memset(p.count, 0, sizeof(p.count));
        for (uint64_t c = 0; c < CHUNKS; c++)
            if (t % 2)
                gyre_workers_push(p.store, c, 0);
            else
                gyre_workers_push_parts(p.store, c, 0, 0);
        for (uint64_t c = 0; c < CHUNKS; c++)
            while (p.delivered[c] < t)
                sched_yield();
    }
    gyre_workers_close(p.store);
    good(&p.f, gyre_workers_join(p.store, &stats, &p.f.error));
    assert_int_equal(p.wrong, 0);
    assert_int_equal(stats.read_bytes,
                     TIMES / 2 * CHUNKS *
                         gyre_layout_chunk_bytes(&p.store->layout, 0));
    end(&p);
}

/* The gradient region goes its own way: written without the state, read back
 * alone or with it, only as many bytes as are asked for. */
static void test_gradient_regions(void **state)
{
    static const uint64_t sizes[] = {4096, 1, 3000};

    (void)state;
    for (size_t i = 0; i < SETTINGS; i++) {
        uint64_t page, chunk;
        gyre_worker_stats stats;
        probe p;

        begin(&p, &settings[i]);
        page = p.store->layout.align;
        chunk = gyre_layout_chunk_bytes(&p.store->layout, 0);
        p.pending = i % 2;
        p.gradient = sizes[i % 3];
        good(&p.f, run(&p, 0, &stats));
        expect_once(&p);
        assert_int_equal(stats.read_bytes, 0);
        assert_int_equal(stats.write_bytes, CHUNKS * page);
        p.swap = true;
        good(&p.f, run(&p, GYRE_PART_STATE | GYRE_PART_GRADIENT, &stats));
        expect_once(&p);
        assert_int_equal(stats.read_bytes, CHUNKS * (page + chunk));
        assert_int_equal(stats.write_bytes, CHUNKS * chunk);
        p.swap = false;
        good(&p.f, run(&p, GYRE_PART_GRADIENT, &stats));
        assert_int_equal(stats.read_bytes, CHUNKS * page);
        assert_int_equal(stats.write_bytes, 0);
        good(&p.f, run(&p, GYRE_PART_STATE, &stats));
        end(&p);
    }
}

/* ---- errors ----------------------------------------------------------- */

/* After any error: the same store takes the next stream. */
static void expect_alive(probe *p)
{
    gyre_worker_stats stats;

    p->fail_process = p->fail_finish = UINT64_MAX;
    p->swap = false;
    good(&p->f, run(p, GYRE_PART_STATE, &stats));
    expect_once(p);
}

static void test_process_and_finish_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < SETTINGS; i++)
        for (int k = 0; k < 3; k++) {
            gyre_worker_stats stats;
            size_t pending = 0;
            probe p;

            begin(&p, &settings[i]);
            p.pending = k > 0;
            p.swap = true;
            *(k < 2 ? &p.fail_process : &p.fail_finish) = CHUNKS / 2;
            expect(&p.f, run(&p, GYRE_PART_STATE, &stats), GYRE_CORRUPT);
            unit_assert_text(&p.f.error, k < 2 ? "process" : "finish");
            assert_int_equal(p.delivered[CHUNKS / 2], 0);
            /* What was submitted was waited for. */
            for (uint64_t c = 0; c < CHUNKS; c++)
                pending += p.pending && c != p.fail_process &&
                           p.processed[c] != p.finished[c];
            assert_int_equal(pending, 0);
            /* What was written is not what `current` says. */
            expect_alive(&p);
            end(&p);
        }
}

/* The n-th operation of each queue fails, for each n. */
static void test_io_fails(void **state)
{
    static const char *const engines[] = {"faulty:posix", "faulty"};
    static const char *const computes[] = {NULL, "emulated:read=1G,write=1G"};
    int failures = 0;

    (void)state;
    for (size_t k = 0; k < 8; k++) {
        const char *compute = computes[k / 2 % 2];

        for (unsigned n = 1;; n += 1 + n / 8) {
            char io[64];
            setting s = {1 + (uint32_t)(n % 4),
                         io,
                         compute,
                         compute != NULL ? 1e9 : 0,
                         k / 4 ? GYRE_HOST : GYRE_NEAR,
                         2};
            gyre_worker_stats stats;
            gyre_status status;
            probe p;

            /* The first operations, at open, read the areas and flush. */
            snprintf(io, sizeof(io), "%s,fail=%u", engines[k % 2], n + 3);
            begin(&p, &s);
            p.pending = n % 2;
            p.swap = true;
            p.gradient = k % 3 == 0 ? 500 : 0;
            status = run(&p, GYRE_PART_STATE, &stats);
            if (status == GYRE_OK) {
                end(&p);
                break;
            }
            failures++;
            assert_int_equal(status, GYRE_IO);
            unit_assert_text(&p.f.error, "device ");
            unit_assert_text(&p.f.error, "chunk ");
            unit_assert_text(&p.f.error, "(t [");
            expect_alive(&p);
            end(&p);
        }
    }
    assert_true(failures >= 8 * 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_push_once),
        cmocka_unit_test(test_spans_are_those_of_the_rates),
        cmocka_unit_test(test_one_buffer_keeps_the_order),
        cmocka_unit_test(test_pushes_while_it_runs),
        cmocka_unit_test(test_gradient_regions),
        cmocka_unit_test(test_process_and_finish_fail),
        cmocka_unit_test(test_io_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
