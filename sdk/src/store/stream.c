/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker does with its buffers: reads ahead, processes, writes behind.
 *
 * One turn of the loop moves whatever can move and processes one chunk; it
 * rests only when nothing moved.  Where nothing is emulated no clock is asked:
 * every `end` is then 0, and 0 is over.
 *
 * What is emulated has a time line of its own: a stage begins when the one
 * before was over, not when this thread woke up to see it.  So a busy machine
 * that wakes it late does not make the emulated device slower; what is waited
 * for next is just nearer.
 */
#include "config.h"

#include "store/worker.h"
#include "trace/trace.h"

#include <time.h>

enum {
    POLL_IO_NS = 200000,    /* while an emulated time is awaited as well */
    POLL_DEVICE_NS = 50000, /* while a job runs and a lane is free */
};

static uint64_t clock_of(const gyre_worker *w)
{
    return w->paced ? gyre_now() : 0;
}

/* Of this thread's processor: an emulated device has one to itself. */
static uint64_t effort_of(const gyre_worker *w)
{
    struct timespec spent = {0, 0};

    if (w->paced)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec;
}

/* State crosses the link between storage and update. */
static bool crosses(const gyre_worker *w)
{
    return w->store->placement == GYRE_HOST && w->store->link != NULL;
}

/* The one that has been in this state the longest; of free ones the first, for
 * it is the likeliest to be in a cache. */
static gyre_buffer *find(gyre_worker *w, gyre_buffer_state state)
{
    gyre_buffer *found = NULL;

    for (uint32_t i = 0; i < w->store->buffers; i++) {
        gyre_buffer *b = &w->buffers[i];

        if (b->state != state)
            continue;
        if (found == NULL || b->order < found->order)
            found = b;
        if (state == GYRE_BUFFER_FREE)
            break;
    }
    return found;
}

static void enter(gyre_worker *w, gyre_buffer *b, gyre_buffer_state state)
{
    b->state = state;
    b->order = ++w->order;
}

/* ---- the link --------------------------------------------------------- */

static void trace_link(gyre_worker *w, uint32_t name, gyre_turn turn,
                       uint64_t bytes)
{
    if (turn.end != 0)
        gyre_trace_span(w->store->context, GYRE_TRACE_LINK, name, turn.begin,
                        turn.end, bytes);
}

static void take_link(gyre_worker *w, gyre_buffer *b, uint64_t bytes)
{
    b->link_bytes = bytes;
    b->link = gyre_link_reserve(w->store, b->at, bytes);
}

static void leave_link(gyre_worker *w, gyre_buffer *b, uint32_t name)
{
    trace_link(w, name, b->link, b->link_bytes);
    b->at = gyre_later(b->at, b->link.end);
    b->link = (gyre_turn){0, 0};
}

static void tell_delivered(gyre_worker *w, gyre_buffer *b)
{
    trace_link(w, w->name.up, b->up, b->result.link_after);
    b->at = gyre_later(b->at, b->up.end);
    b->up = (gyre_turn){0, 0};
    b->undelivered = false;
    if (w->stream.delivered != NULL)
        w->stream.delivered(w->stream.user, w->index, b->work);
}

/* ---- the way of a buffer ---------------------------------------------- */

static gyre_status start_read(gyre_worker *w, gyre_buffer *b,
                              const gyre_push *next, gyre_error *error)
{
    const gyre_stream *s = &w->stream;
    uint64_t down = 0;
    gyre_status status = GYRE_OK;
    uint64_t room = gyre_layout_gradient_bytes(&w->store->layout, next->chunk);

    b->work = (gyre_work){.chunk = next->chunk,
                          .version = next->version,
                          .parts = next->parts,
                          .buffer = (uint32_t)(b - w->buffers)};
    if (w->gradient_at != 0 && room != 0)
        b->work.gradient = b->data + w->gradient_at;
    if (next->parts & GYRE_PART_GRADIENT)
        b->work.gradient_bytes = s->read_gradient != NULL
                                     ? s->read_gradient(s->user, next->chunk)
                                     : room;
    if (s->link_before != NULL && w->store->placement == GYRE_NEAR)
        down = s->link_before(s->user, next->chunk);
    b->at = gyre_later(b->at, next->at);
    enter(w, b, GYRE_BUFFER_READING);
    if (next->parts & GYRE_PART_STATE)
        status = gyre_transfer_state(
            w, b, GYRE_IO_READ, s->table[next->chunk].version, b->at, error);
    if (status == GYRE_OK && b->work.gradient_bytes > 0)
        status = gyre_transfer_gradient(w, b, GYRE_IO_READ,
                                        b->work.gradient_bytes, b->at, error);
    take_link(w, b, down);
    return status;
}

static gyre_status start_write(gyre_worker *w, gyre_buffer *b,
                               gyre_error *error)
{
    const gyre_work_result *r = &b->result;
    uint64_t at = b->at; /* of both parts, whatever ends meanwhile */
    gyre_status status = GYRE_OK;

    enter(w, b, GYRE_BUFFER_WRITING);
    if (r->write >= 0)
        status = gyre_transfer_state(w, b, GYRE_IO_WRITE, (uint32_t)r->write,
                                     at, error);
    if (status == GYRE_OK && r->write_gradient > 0)
        status = gyre_transfer_gradient(w, b, GYRE_IO_WRITE, r->write_gradient,
                                        at, error);
    return status;
}

/* Move one buffer on as far as it goes without being processed. */
static gyre_status advance(gyre_worker *w, gyre_buffer *b, uint64_t now,
                           gyre_error *error)
{
    uint64_t bytes;

    switch (b->state) {
    case GYRE_BUFFER_READING:
        if (b->work.parts != 0) {
            if (!gyre_transfer_over(b, now) || now < b->link.end)
                return GYRE_OK;
            leave_link(w, b, w->name.down);
        }
        bytes = gyre_transfer_close(w, b, true);
        enter(w, b, GYRE_BUFFER_READY);
        if (crosses(w) && bytes > 0) {
            enter(w, b, GYRE_BUFFER_RAISING);
            take_link(w, b, bytes);
        }
        return GYRE_OK;
    case GYRE_BUFFER_RAISING:
        if (now < b->link.end)
            return GYRE_OK;
        leave_link(w, b, w->name.up);
        enter(w, b, GYRE_BUFFER_READY);
        return GYRE_OK;
    case GYRE_BUFFER_LOWERING:
        if (now < b->link.end)
            return GYRE_OK;
        leave_link(w, b, w->name.down);
        return start_write(w, b, error);
    case GYRE_BUFFER_WRITING:
        if (b->undelivered && now >= b->up.end)
            tell_delivered(w, b);
        if (b->undelivered || !gyre_transfer_over(b, now) || now < b->link.end)
            return GYRE_OK;
        leave_link(w, b, w->name.down);
        (void)gyre_transfer_close(w, b, false);
        enter(w, b, GYRE_BUFFER_FREE);
        return GYRE_OK;
    default:
        return GYRE_OK;
    }
}

static gyre_status advance_all(gyre_worker *w, bool *moved, gyre_error *error)
{
    uint64_t now = clock_of(w);

    w->seen = now;
    for (uint32_t i = 0; i < w->store->buffers; i++) {
        gyre_buffer *b = &w->buffers[i];
        uint64_t order = b->order;
        gyre_status status = advance(w, b, now, error);

        if (status != GYRE_OK)
            return status;
        *moved |= b->order != order;
    }
    return GYRE_OK;
}

/* Start reads (or make buffers ready) while there is work and room. */
static gyre_status feed(gyre_worker *w, bool *ended, bool *moved,
                        gyre_error *error)
{
    gyre_push next;
    gyre_buffer *b;

    while ((b = find(w, GYRE_BUFFER_FREE)) != NULL &&
           gyre_worker_pop(w, &next, ended)) {
        gyre_status status = start_read(w, b, &next, error);

        if (status == GYRE_OK)
            status = advance(w, b, 0, error);
        if (status != GYRE_OK)
            return status;
        *moved = true;
    }
    return GYRE_OK;
}

/* What process or finish left in the buffer goes its ways. */
static gyre_status leave(gyre_worker *w, gyre_buffer *b, gyre_error *error)
{
    const gyre_layout *layout = &w->store->layout;
    uint64_t bytes = 0;

    w->busy &= ~(1u << b->work.lane);
    b->undelivered = true;
    if (w->store->placement == GYRE_NEAR)
        b->up = gyre_link_reserve(w->store, b->at, b->result.link_after);
    if (b->up.end == 0)
        tell_delivered(w, b);
    if (crosses(w)) {
        if (b->result.write >= 0)
            bytes += gyre_layout_chunk_bytes(layout, b->work.chunk);
        bytes += b->result.write_gradient;
    }
    if (bytes > 0) {
        enter(w, b, GYRE_BUFFER_LOWERING);
        take_link(w, b, bytes);
        return GYRE_OK;
    }
    return start_write(w, b, error);
}

/* ---- arithmetic ------------------------------------------------------- */

static bool take_lane(const gyre_worker *w, uint32_t *lane)
{
    for (uint32_t i = 0; i < w->lanes; i++)
        if ((w->busy & 1u << i) == 0) {
            *lane = i;
            return true;
        }
    return false;
}

static gyre_status process(gyre_worker *w, gyre_buffer *b, gyre_error *error)
{
    uint64_t begun = gyre_trace_begin(w->name.process);
    uint64_t effort = effort_of(w);
    gyre_status status;

    b->result = (gyre_work_result){.write = -1};
    w->busy |= 1u << b->work.lane;
    status = w->stream.process(w->stream.user, w->index, b->work, b->data,
                               &b->result, error);
    gyre_trace_end(w->store->context, GYRE_TRACE_COMPUTE, w->name.process,
                   begun, b->work.chunk);
    if (status != GYRE_OK)
        return status;
    b->at = gyre_later(b->at, w->free_at) + (effort_of(w) - effort);
    w->free_at = b->at;
    if (!b->result.pending)
        return leave(w, b, error);
    enter(w, b, GYRE_BUFFER_COMPUTING);
    return GYRE_OK;
}

static gyre_status finish(gyre_worker *w, gyre_buffer *b, gyre_error *error)
{
    uint64_t begun = gyre_trace_begin(w->name.finish);
    gyre_status status = w->stream.finish(w->stream.user, w->index, b->work,
                                          b->data, &b->result, error);

    gyre_trace_end(w->store->context, GYRE_TRACE_COMPUTE, w->name.finish, begun,
                   b->work.chunk);
    enter(w, b, GYRE_BUFFER_READY); /* not to be finished again */
    b->at = clock_of(w);
    return status == GYRE_OK ? leave(w, b, error) : status;
}

/* Finish a job that is done, and process one chunk. */
static gyre_status compute(gyre_worker *w, bool *moved, gyre_error *error)
{
    gyre_buffer *b = find(w, GYRE_BUFFER_COMPUTING);
    gyre_status status = GYRE_OK;
    uint32_t lane;

    if (b != NULL &&
        (w->device == NULL || gyre_device_ready(w->device, b->work.lane))) {
        *moved = true;
        status = finish(w, b, error);
    }
    b = find(w, GYRE_BUFFER_READY);
    if (status != GYRE_OK || b == NULL || !take_lane(w, &lane))
        return status;
    *moved = true;
    b->work.lane = lane;
    return process(w, b, error);
}

/* ---- rest ------------------------------------------------------------- */

static void sooner(uint64_t *due, uint64_t end, uint64_t now)
{
    if (end > now && end < *due)
        *due = end;
}

/* The next emulated time at which something may move, and whether something is
 * late already for want of a real completion.  Seen from when buffers were last
 * looked at: what has become due since then is due, not over. */
static uint64_t next_due(const gyre_worker *w, bool *late)
{
    uint64_t due = UINT64_MAX, now = w->seen;

    *late = false;
    for (uint32_t i = 0; w->paced && i < w->store->buffers; i++) {
        const gyre_buffer *b = &w->buffers[i];

        sooner(&due, b->link.end, now);
        sooner(&due, b->up.end, now);
        for (int p = 0; p < GYRE_PARTS; p++) {
            sooner(&due, b->transfer[p].turn.end, now);
            *late |= gyre_transfer_in_flight(&b->transfer[p]) &&
                     b->transfer[p].turn.end <= now;
        }
    }
    return due;
}

/* Nothing moved: wait for what comes first. */
static gyre_status rest(gyre_worker *w, bool ended, gyre_error *error)
{
    gyre_buffer *job = find(w, GYRE_BUFFER_COMPUTING);
    bool for_work = !ended && find(w, GYRE_BUFFER_FREE) != NULL;
    bool io = gyre_io_in_flight(w->io) > 0, late;
    uint64_t due = next_due(w, &late), now = gyre_now();
    uint32_t lane;

    if (job != NULL) {
        bool alone = !io && due == UINT64_MAX && !for_work;

        /* With all lanes taken no other chunk could be processed anyway. */
        if (alone || !take_lane(w, &lane))
            return finish(w, job, error);
        sooner(&due, now + POLL_DEVICE_NS, now);
    } else if (io && due == UINT64_MAX) {
        return gyre_transfer_reap(w, 1, error);
    } else if (late) {
        sooner(&due, now + POLL_IO_NS, now);
    }
    gyre_worker_rest(w, due, for_work);
    return GYRE_OK;
}

/* ---- the stream ------------------------------------------------------- */

/* After an error: nothing may land in a buffer that is used again. */
static void drain(gyre_worker *w)
{
    gyre_error ignored;
    gyre_buffer *b;

    while (gyre_io_in_flight(w->io) > 0) {
        size_t before = gyre_io_in_flight(w->io);

        (void)gyre_transfer_reap(w, 1, &ignored);
        if (gyre_io_in_flight(w->io) == before)
            break;
    }
    while ((b = find(w, GYRE_BUFFER_COMPUTING)) != NULL) {
        (void)w->stream.finish(w->stream.user, w->index, b->work, b->data,
                               &b->result, &ignored);
        b->state = GYRE_BUFFER_FREE;
    }
}

static void begin(gyre_worker *w)
{
    gyre_bucket_restart(&w->read_rate);
    gyre_bucket_restart(&w->write_rate);
    w->busy = 0;
    w->free_at = w->looked = w->started;
    for (uint32_t i = 0; i < w->store->buffers; i++) {
        gyre_buffer *b = &w->buffers[i];

        b->state = GYRE_BUFFER_FREE;
        b->undelivered = false;
        b->at = w->started;
        b->link = b->up = (gyre_turn){0, 0};
        for (int p = 0; p < GYRE_PARTS; p++)
            b->transfer[p] = (gyre_transfer){.buffer = b};
    }
}

static bool is_idle(const gyre_worker *w)
{
    for (uint32_t i = 0; i < w->store->buffers; i++)
        if (w->buffers[i].state != GYRE_BUFFER_FREE)
            return false;
    return true;
}

gyre_status gyre_worker_stream(gyre_worker *w, gyre_error *error)
{
    gyre_status status = GYRE_OK;
    bool ended = false;

    begin(w);
    while (status == GYRE_OK && !(ended && is_idle(w))) {
        bool moved = false;

        status = feed(w, &ended, &moved, error);
        if (status == GYRE_OK)
            status = compute(w, &moved, error);
        if (status == GYRE_OK && gyre_io_in_flight(w->io) > 0)
            status = gyre_transfer_reap(w, 0, error);
        if (status == GYRE_OK)
            status = advance_all(w, &moved, error);
        if (status == GYRE_OK && !moved && !(ended && is_idle(w)))
            status = rest(w, ended, error);
    }
    if (status != GYRE_OK)
        drain(w);
    if (w->stats.first_ns != 0)
        w->stats.last_ns = gyre_now();
    if (w->stream.ended != NULL)
        w->stream.ended(w->stream.user, w->index, status);
    return status;
}
