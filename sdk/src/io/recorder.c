/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder: what a crash could leave, as a list of events.
 *
 * The list must never claim more durability than is true.  So a start is
 * written before the operation goes to the kernel and an end after its
 * completion was seen: a write may land from its start on, and is claimed to
 * have landed only from its end on; a flush covers the writes whose end stands
 * before its start, and those had completed before the kernel saw the flush.
 * What failed has no end: a write that may have landed in part at any time, a
 * flush that covers nothing.
 *
 * Events stay where they are while others are added, in segments of 64, 128,
 * 256, ... events; so that `at` may be called at any time.
 */
#include "config.h"

#include "io/engine.h"

#include <pthread.h>
#include <string.h>

#define FIRST_SEGMENT 64
#define SEGMENTS 40

struct gyre_io_recorder {
    gyre_context *context;
    pthread_mutex_t lock;
    gyre_io_event *segments[SEGMENTS];
    unsigned segment_count;
    size_t count, capacity;
    size_t open; /* ends still to come, each with a place kept for it */
    size_t lost; /* marks and names */
    uint64_t next_id;
    uint64_t asked, refuse; /* steps with names; which of them fails */
    int refuse_errno;
};

static gyre_io_event *event_at(const gyre_io_recorder *recorder, size_t index)
{
    size_t first = 0, size = FIRST_SEGMENT;
    unsigned s = 0;

    while (index - first >= size) {
        first += size;
        size *= 2;
        s++;
    }
    return &recorder->segments[s][index - first];
}

/* Make room for `more` events beside the ends to come. */
static bool keep_room(gyre_io_recorder *recorder, size_t more)
{
    while (recorder->capacity - recorder->count - recorder->open < more) {
        unsigned s = recorder->segment_count;
        if (s == SEGMENTS)
            return false;
        size_t size = (size_t)FIRST_SEGMENT << s;
        recorder->segments[s] =
            gyre_alloc_zero(recorder->context, size, sizeof(gyre_io_event));
        if (!recorder->segments[s])
            return false;
        recorder->segment_count++;
        recorder->capacity += size;
    }
    return true;
}

/* The end of a path tells files apart better than its start. */
static void append(gyre_io_recorder *recorder, gyre_io_event_kind kind,
                   const gyre_io_op *op, const char *file, uint64_t id,
                   const void *data)
{
    gyre_io_event *event = event_at(recorder, recorder->count++);
    size_t length = strlen(file), most = sizeof event->file - 1;

    event->kind = kind;
    memcpy(event->file, length > most ? file + length - most : file,
           (length > most ? most : length) + 1);
    event->id = id;
    if (op && op->kind == GYRE_IO_WRITE) {
        event->offset = op->offset;
        event->bytes = op->bytes;
    }
    event->data = data;
}

gyre_status gyre_io_recorder_start(gyre_io_recorder *recorder,
                                   const gyre_io_op *op, const char *file,
                                   uint64_t *id, gyre_error *error)
{
    bool write = op->kind == GYRE_IO_WRITE;
    void *copy = NULL;

    if (op->kind == GYRE_IO_READ)
        return GYRE_OK;
    if (write) {
        copy = gyre_alloc(recorder->context, op->bytes, 1);
        if (!copy)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "I/O recorder: no memory for %llu bytes",
                             (unsigned long long)op->bytes);
        memcpy(copy, op->data, op->bytes);
    }
    pthread_mutex_lock(&recorder->lock);
    bool room = keep_room(recorder, 2);
    if (room) {
        *id = recorder->next_id++;
        append(recorder, write ? GYRE_IO_WRITE_START : GYRE_IO_FLUSH_START, op,
               file, *id, copy);
        recorder->open++;
    }
    pthread_mutex_unlock(&recorder->lock);
    if (room)
        return GYRE_OK;
    if (write)
        gyre_free(recorder->context, copy, op->bytes, 1);
    return gyre_fail(error, GYRE_NO_MEMORY,
                     "I/O recorder: no memory for another event");
}

void gyre_io_recorder_end(gyre_io_recorder *recorder, const gyre_io_op *op,
                          const char *file, uint64_t id, bool whole)
{
    if (op->kind == GYRE_IO_READ)
        return;
    pthread_mutex_lock(&recorder->lock);
    recorder->open--;
    if (whole)
        append(recorder,
               op->kind == GYRE_IO_WRITE ? GYRE_IO_WRITE_END
                                         : GYRE_IO_FLUSH_END,
               op, file, id, NULL);
    pthread_mutex_unlock(&recorder->lock);
}

gyre_status gyre_io_recorder_create(gyre_context *context,
                                    gyre_io_recorder **out, gyre_error *error)
{
    gyre_io_recorder *recorder = gyre_alloc_zero(context, 1, sizeof *recorder);

    if (!recorder)
        return gyre_fail(error, GYRE_NO_MEMORY, "I/O recorder: out of memory");
    int err = pthread_mutex_init(&recorder->lock, NULL);
    if (err) {
        gyre_free(context, recorder, 1, sizeof *recorder);
        return gyre_fail_errno(error, GYRE_SYSTEM, err, "I/O recorder: lock");
    }
    recorder->context = context;
    recorder->next_id = 1;
    *out = recorder;
    return GYRE_OK;
}

void gyre_io_recorder_destroy(gyre_io_recorder *recorder)
{
    if (!recorder)
        return;
    gyre_context *context = recorder->context;
    for (size_t i = 0; i < recorder->count; i++) {
        gyre_io_event *event = event_at(recorder, i);
        if (event->data)
            gyre_free(context, (void *)(uintptr_t)event->data,
                      event->kind == GYRE_IO_RENAMED ? strlen(event->data) + 1
                                                     : event->bytes,
                      1);
    }
    for (unsigned s = 0; s < recorder->segment_count; s++)
        gyre_free(context, recorder->segments[s], (size_t)FIRST_SEGMENT << s,
                  sizeof(gyre_io_event));
    pthread_mutex_destroy(&recorder->lock);
    gyre_free(context, recorder, 1, sizeof *recorder);
}

void gyre_io_recorder_mark(gyre_io_recorder *recorder, uint64_t value)
{
    pthread_mutex_lock(&recorder->lock);
    if (keep_room(recorder, 1))
        append(recorder, GYRE_IO_MARK, NULL, "", value, NULL);
    else
        recorder->lost++;
    pthread_mutex_unlock(&recorder->lock);
}

int gyre_io_recorder_asks(gyre_io_recorder *recorder)
{
    int err = 0;

    if (!recorder)
        return 0;
    pthread_mutex_lock(&recorder->lock);
    if (++recorder->asked == recorder->refuse)
        err = recorder->refuse_errno;
    pthread_mutex_unlock(&recorder->lock);
    return err;
}

void gyre_io_recorder_note(gyre_io_recorder *recorder, gyre_io_event_kind kind,
                           const char *file, const char *from, uint64_t bytes)
{
    char *copy = NULL;

    if (!recorder)
        return;
    if (from)
        copy = gyre_copy_text(recorder->context, from);
    pthread_mutex_lock(&recorder->lock);
    if ((!from || copy) && keep_room(recorder, 1)) {
        size_t index = recorder->count;
        append(recorder, kind, NULL, file, recorder->next_id++, copy);
        event_at(recorder, index)->bytes = bytes;
        copy = NULL;
    } else {
        recorder->lost++;
    }
    pthread_mutex_unlock(&recorder->lock);
    gyre_free_text(recorder->context, copy);
}

void gyre_io_recorder_refuse(gyre_io_recorder *recorder, uint64_t n, int err)
{
    pthread_mutex_lock(&recorder->lock);
    recorder->asked = 0;
    recorder->refuse = n;
    recorder->refuse_errno = err;
    pthread_mutex_unlock(&recorder->lock);
}

/* The lock is no part of what a reader sees as constant. */
static gyre_io_recorder *unlocked(const gyre_io_recorder *recorder)
{
    return (gyre_io_recorder *)(uintptr_t)recorder;
}

size_t gyre_io_recorder_lost(const gyre_io_recorder *recorder)
{
    pthread_mutex_lock(&unlocked(recorder)->lock);
    size_t lost = recorder->lost;
    pthread_mutex_unlock(&unlocked(recorder)->lock);
    return lost;
}

uint64_t gyre_io_recorder_asked(const gyre_io_recorder *recorder)
{
    pthread_mutex_lock(&unlocked(recorder)->lock);
    uint64_t asked = recorder->asked;
    pthread_mutex_unlock(&unlocked(recorder)->lock);
    return asked;
}

size_t gyre_io_recorder_count(const gyre_io_recorder *recorder)
{
    pthread_mutex_lock(&unlocked(recorder)->lock);
    size_t count = recorder->count;
    pthread_mutex_unlock(&unlocked(recorder)->lock);
    return count;
}

const gyre_io_event *gyre_io_recorder_at(const gyre_io_recorder *recorder,
                                         size_t index)
{
    const gyre_io_event *event = NULL;

    pthread_mutex_lock(&unlocked(recorder)->lock);
    if (index < recorder->count)
        event = event_at(recorder, index);
    pthread_mutex_unlock(&unlocked(recorder)->lock);
    return event;
}
