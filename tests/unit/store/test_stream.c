/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a worker, with streams of our own: every push is
 * processed once on its device, buffers are recycled and never shared, jobs
 * that are left pending are finished in order, and an error in any state leaves
 * a worker that takes the next stream.
 */
#include "config.h"

#include "probe.h"

#include "store/compute.h"

#include <gyre/trace.h>

/* ---- every push, once ------------------------------------------------- */

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
        moved = (double)probe_link_bytes();
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
    for (size_t i = 0; i < PROBE_SETTINGS; i++)
        for (int k = 0; k < 4; k++) {
            gyre_worker_stats stats;
            uint64_t bytes;
            probe p;

            probe_begin(&p, &probe_settings[i], 0);
            bytes = gyre_layout_chunk_bytes(&p.store->layout, 0) * CHUNKS;
            p.pending = k & 1;
            p.swap = k & 2;
            good(&p.f, probe_run(&p, GYRE_PART_STATE, &stats));
            probe_expect_once(&p);
            assert_int_equal(stats.read_bytes, bytes);
            assert_int_equal(stats.write_bytes, p.swap ? bytes : 0);
            assert_true(stats.first_ns != 0 && stats.last_ns > stats.first_ns);
            expect_time(&probe_settings[i], &stats);
            /* Without reading, too. */
            p.swap = false;
            good(&p.f, probe_run(&p, 0, &stats));
            probe_expect_once(&p);
            assert_int_equal(stats.read_bytes + stats.write_bytes, 0);
            probe_end(&p);
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

        probe_begin(&p, &traced[i], 4096);
        good(&p.f, gyre_compute_parse(traced[i].compute, &x.rate, NULL));
        gyre_trace_clear(p.f.context);
        p.swap = true;
        good(&p.f, probe_run(&p, GYRE_PART_STATE, &stats));
        good(&p.f, gyre_trace_each(p.f.context, see_span, &x, &p.f.error));
        assert_int_equal(x.wrong, 0);
        assert_int_equal(x.read, stats.read_bytes);
        assert_int_equal(x.written, stats.write_bytes);
        assert_int_equal(x.link, i == 0 ? probe_link_bytes()
                                        : stats.read_bytes + stats.write_bytes);
        probe_end(&p);
    }
}

/* With one buffer chunks come in the order of their pushes, whatever the
 * engine does; with more, in the order in which they were read. */
static void test_one_buffer_keeps_the_order(void **state)
{
    gyre_worker_stats stats;
    probe p;

    (void)state;
    probe_begin(&p, &probe_settings[0], 0);
    p.swap = true;
    good(&p.f, probe_run(&p, GYRE_PART_STATE, &stats));
    for (int d = 0; d < DEVICES; d++)
        for (size_t i = 1; i < p.count[d]; i++)
            assert_true(p.sequence[d][i - 1] < p.sequence[d][i]);
    probe_end(&p);
}

/* The queue is a ring: chunks may come again and again while it runs. */
static void test_pushes_while_it_runs(void **state)
{
    enum { TIMES = 50 };
    gyre_stream stream;
    gyre_worker_stats stats = {0, 0, 0, 0};
    probe p;

    (void)state;
    probe_begin(&p, &probe_settings[1], 0);
    stream = (gyre_stream){.table = p.store->current,
                           .process = probe_process,
                           .delivered = probe_delivered,
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
    probe_end(&p);
}

/* The gradient region goes its own way: written without the state, read back
 * alone or with it, only as many bytes as are asked for. */
static void test_gradient_regions(void **state)
{
    static const uint64_t sizes[] = {4096, 1, 3000};

    (void)state;
    for (size_t i = 0; i < PROBE_SETTINGS; i++) {
        uint64_t page, chunk;
        gyre_worker_stats stats;
        probe p;

        probe_begin(&p, &probe_settings[i], 0);
        page = p.store->layout.align;
        chunk = gyre_layout_chunk_bytes(&p.store->layout, 0);
        p.pending = i % 2;
        p.gradient = sizes[i % 3];
        good(&p.f, probe_run(&p, 0, &stats));
        probe_expect_once(&p);
        assert_int_equal(stats.read_bytes, 0);
        assert_int_equal(stats.write_bytes, CHUNKS * page);
        p.swap = true;
        good(&p.f, probe_run(&p, GYRE_PART_STATE | GYRE_PART_GRADIENT, &stats));
        probe_expect_once(&p);
        assert_int_equal(stats.read_bytes, CHUNKS * (page + chunk));
        assert_int_equal(stats.write_bytes, CHUNKS * chunk);
        p.swap = false;
        good(&p.f, probe_run(&p, GYRE_PART_GRADIENT, &stats));
        assert_int_equal(stats.read_bytes, CHUNKS * page);
        assert_int_equal(stats.write_bytes, 0);
        good(&p.f, probe_run(&p, GYRE_PART_STATE, &stats));
        probe_end(&p);
    }
}

/* ---- errors ----------------------------------------------------------- */

/* After any error: the same store takes the next stream. */
static void expect_alive(probe *p)
{
    gyre_worker_stats stats;

    p->fail_process = p->fail_finish = UINT64_MAX;
    p->swap = false;
    good(&p->f, probe_run(p, GYRE_PART_STATE, &stats));
    probe_expect_once(p);
}

static void test_process_and_finish_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < PROBE_SETTINGS; i++)
        for (int k = 0; k < 3; k++) {
            gyre_worker_stats stats;
            size_t pending = 0;
            probe p;

            probe_begin(&p, &probe_settings[i], 0);
            p.pending = k > 0;
            p.swap = true;
            *(k < 2 ? &p.fail_process : &p.fail_finish) = CHUNKS / 2;
            expect(&p.f, probe_run(&p, GYRE_PART_STATE, &stats), GYRE_CORRUPT);
            unit_assert_text(&p.f.error, k < 2 ? "process" : "finish");
            assert_int_equal(p.delivered[CHUNKS / 2], 0);
            /* What was submitted was waited for. */
            for (uint64_t c = 0; c < CHUNKS; c++)
                pending += p.pending && c != p.fail_process &&
                           p.processed[c] != p.finished[c];
            assert_int_equal(pending, 0);
            /* What was written is not what `current` says. */
            expect_alive(&p);
            probe_end(&p);
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
            probe_begin(&p, &s, 0);
            p.pending = n % 2;
            p.swap = true;
            p.gradient = k % 3 == 0 ? 500 : 0;
            status = probe_run(&p, GYRE_PART_STATE, &stats);
            if (status == GYRE_OK) {
                probe_end(&p);
                break;
            }
            failures++;
            assert_int_equal(status, GYRE_IO);
            unit_assert_text(&p.f.error, "device ");
            unit_assert_text(&p.f.error, "chunk ");
            unit_assert_text(&p.f.error, "(t [");
            expect_alive(&p);
            probe_end(&p);
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
