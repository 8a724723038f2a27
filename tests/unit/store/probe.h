/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of our own on the workers of a store, for tests of their state
 * machine: every callback checks what it is given and counts.
 *
 *     probe p;
 *     probe_begin(&p, &probe_settings[0], 0);
 *     p.swap = true;                             what process does
 *     good(&p.f, probe_run(&p, GYRE_PART_STATE, &stats));
 *     probe_expect_once(&p);
 *     probe_end(&p);
 */
#ifndef GYRE_TESTS_UNIT_STORE_PROBE_H
#define GYRE_TESTS_UNIT_STORE_PROBE_H

#include "fixture.h"

#include "store/worker.h"

enum { CHUNKS = 24, DEVICES = 2, PROBE_SETTINGS = 10 };

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

typedef struct setting {
    uint32_t buffers;
    const char *io;
    const char *compute;
    double link_rate;
    gyre_placement placement;
    uint32_t lanes; /* 0: as the device has */
} setting;

extern const setting probe_settings[PROBE_SETTINGS];

/* A store of CHUNKS chunks on DEVICES devices, open; trace_records: 0 for no
 * trace. */
void probe_begin(probe *p, const setting *s, uint32_t trace_records);
void probe_end(probe *p);

/* Push each chunk once and wait for the end: the status of the stream.  Fails
 * the test when a callback saw what must not be. */
gyre_status probe_run(probe *p, uint32_t parts, gyre_worker_stats *stats);
/* In the last run each chunk was processed and delivered, and finished if it
 * was left pending, exactly once. */
void probe_expect_once(const probe *p);

/* For streams of other shapes. */
gyre_status probe_process(void *user, uint32_t device, gyre_work work,
                          uint8_t *data, gyre_work_result *result,
                          gyre_error *error);
void probe_delivered(void *user, uint32_t device, gyre_work work);

/* Bytes over the link that the callbacks speak of, of CHUNKS chunks. */
uint64_t probe_link_bytes(void);

#endif
