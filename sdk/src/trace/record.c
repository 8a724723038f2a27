/* SPDX-License-Identifier: Apache-2.0 */
/* Names, rings, and putting a record into one. */
#include "config.h"

#include "trace/tracer.h"

#include <stddef.h>
#include <string.h>

uint64_t gyre_trace_clock(void)
{
    return gyre_now();
}

/* ---- rings ----------------------------------------------------------- */

static size_t ring_bytes(uint32_t capacity)
{
    return sizeof(gyre_ring) + (size_t)capacity * sizeof(gyre_trace_cell);
}

/* The newest is dropped, not the oldest: see gyre/trace.h. */
void gyre_ring_put(gyre_ring *ring, const gyre_trace_cell *cell)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);

    if (head - tail == ring->capacity) {
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return;
    }
    ring->cells[ring->slot] = *cell;
    ring->slot = ring->slot + 1 == ring->capacity ? 0 : ring->slot + 1;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* Destructor of the key: the thread ends, its records stay to be read. */
static void give_ring_back(void *value)
{
    gyre_ring *ring = value;
    gyre_tracer *tracer = ring->tracer;

    pthread_mutex_lock(&tracer->lock);
    ring->owned = false;
    pthread_mutex_unlock(&tracer->lock);
}

/* Under the lock: a new thread's number; 0 when out of memory. */
static uint32_t number_thread(gyre_tracer *tracer)
{
    if (tracer->thread_count == tracer->thread_room) {
        uint32_t room = tracer->thread_room == 0 ? 16 : tracer->thread_room * 2;
        uint32_t *grown = gyre_grow(tracer->context, tracer->thread_names,
                                    tracer->thread_room, room, sizeof(*grown));

        if (grown == NULL)
            return 0;
        tracer->thread_names = grown;
        tracer->thread_room = room;
    }
    tracer->thread_names[tracer->thread_count] = 0;
    return ++tracer->thread_count;
}

/* Under the lock: one that a thread left, else a fresh one. */
static gyre_ring *free_ring(gyre_tracer *tracer)
{
    gyre_ring *ring;

    for (ring = tracer->rings; ring != NULL; ring = ring->next) {
        if (!ring->owned)
            return ring;
    }
    ring = gyre_alloc_zero(tracer->context, ring_bytes(tracer->capacity), 1);
    if (ring == NULL)
        return NULL;
    ring->tracer = tracer;
    ring->capacity = tracer->capacity;
    ring->next = tracer->rings;
    tracer->rings = ring;
    return ring;
}

static gyre_ring *take_ring(gyre_tracer *tracer)
{
    gyre_ring *ring;
    uint32_t thread;

    pthread_mutex_lock(&tracer->lock);
    ring = free_ring(tracer);
    thread = ring == NULL ? 0 : number_thread(tracer);
    if (thread == 0 || pthread_setspecific(tracer->key, ring) != 0) {
        ring = NULL;
    } else {
        ring->owned = true;
        ring->thread = thread;
    }
    pthread_mutex_unlock(&tracer->lock);
    return ring;
}

static gyre_ring *ring_of_thread(gyre_tracer *tracer)
{
    gyre_ring *ring = pthread_getspecific(tracer->key);

    return ring != NULL ? ring : take_ring(tracer);
}

/* ---- life ------------------------------------------------------------ */

static void destroy_tracer(gyre_context *context, void *state)
{
    gyre_tracer *tracer = state;

    /* After this no thread that ends later calls give_ring_back. */
    pthread_key_delete(tracer->key);
    while (tracer->rings != NULL) {
        gyre_ring *ring = tracer->rings;

        tracer->rings = ring->next;
        gyre_free(context, ring, ring_bytes(ring->capacity), 1);
    }
    for (uint32_t i = 0; i < tracer->name_count; i++)
        gyre_free_text(context, tracer->names[i]);
    gyre_free(context, tracer->names, tracer->name_room,
              sizeof(*tracer->names));
    gyre_free(context, tracer->thread_names, tracer->thread_room,
              sizeof(*tracer->thread_names));
    pthread_mutex_destroy(&tracer->lock);
    gyre_free(context, tracer, 1, sizeof(*tracer));
}

static gyre_tracer *create_tracer(gyre_context *context)
{
    gyre_tracer *tracer = gyre_alloc_zero(context, 1, sizeof(*tracer));

    if (tracer == NULL)
        return NULL;
    tracer->context = context;
    tracer->capacity = gyre_context_trace_records(context);
    if (pthread_mutex_init(&tracer->lock, NULL) != 0)
        goto free_tracer;
    if (pthread_key_create(&tracer->key, give_ring_back) != 0)
        goto destroy_lock;
    gyre_context_set_room(context, GYRE_ROOM_TRACE, tracer, destroy_tracer);
    return tracer;

destroy_lock:
    pthread_mutex_destroy(&tracer->lock);
free_tracer:
    gyre_free(context, tracer, 1, sizeof(*tracer));
    return NULL;
}

gyre_tracer *gyre_tracer_get(gyre_context *context)
{
    return gyre_context_room(context, GYRE_ROOM_TRACE);
}

gyre_tracer *gyre_tracer_make(gyre_context *context)
{
    gyre_tracer *tracer = gyre_tracer_get(context);

#ifdef GYRE_NO_TRACE
    return NULL;
#endif
    if (tracer != NULL || gyre_context_trace_records(context) == 0)
        return tracer;
    gyre_context_lock(context);
    tracer = gyre_tracer_get(context);
    if (tracer == NULL)
        tracer = create_tracer(context);
    gyre_context_unlock(context);
    if (tracer == NULL)
        gyre_log(context, GYRE_LOG_WARNING,
                 "trace: out of memory or thread keys; nothing is recorded");
    return tracer;
}

/* ---- names ----------------------------------------------------------- */

/* Under the lock.  0 when out of memory or numbers. */
static uint32_t add_name(gyre_tracer *tracer, const char *name)
{
    char *copy;

    if (tracer->name_count == GYRE_TRACE_MAX_NAMES)
        return 0;
    if (tracer->name_count == tracer->name_room) {
        uint32_t room = tracer->name_room == 0 ? 32 : tracer->name_room * 2;
        char **grown = gyre_grow(tracer->context, tracer->names,
                                 tracer->name_room, room, sizeof(*grown));

        if (grown == NULL)
            return 0;
        tracer->names = grown;
        tracer->name_room = room;
    }
    copy = gyre_copy_text(tracer->context, name);
    if (copy == NULL)
        return 0;
    tracer->names[tracer->name_count] = copy;
    return ++tracer->name_count;
}

static uint32_t find_name(const gyre_tracer *tracer, const char *name)
{
    for (uint32_t i = 0; i < tracer->name_count; i++) {
        if (strcmp(tracer->names[i], name) == 0)
            return i + 1;
    }
    return 0;
}

uint32_t gyre_trace_intern(gyre_context *context, const char *name)
{
    gyre_tracer *tracer = gyre_tracer_make(context);
    uint32_t number;

    if (tracer == NULL || name == NULL)
        return 0;
    pthread_mutex_lock(&tracer->lock);
    number = find_name(tracer, name);
    if (number == 0)
        number = add_name(tracer, name);
    pthread_mutex_unlock(&tracer->lock);
    if (number == 0)
        gyre_log(context, GYRE_LOG_WARNING,
                 "trace: no room for the name \"%s\"; not recorded", name);
    return number;
}

const char *gyre_tracer_name(gyre_tracer *tracer, uint32_t name)
{
    const char *text = "?";

    pthread_mutex_lock(&tracer->lock);
    if (name >= 1 && name <= tracer->name_count)
        text = tracer->names[name - 1];
    pthread_mutex_unlock(&tracer->lock);
    return text;
}

const char *gyre_tracer_thread_name(gyre_tracer *tracer, uint32_t thread)
{
    uint32_t name = 0;

    pthread_mutex_lock(&tracer->lock);
    if (thread >= 1 && thread <= tracer->thread_count)
        name = tracer->thread_names[thread - 1];
    pthread_mutex_unlock(&tracer->lock);
    return name == 0 ? NULL : gyre_tracer_name(tracer, name);
}

void gyre_trace_name_thread(gyre_context *context, const char *name)
{
    uint32_t number = gyre_trace_intern(context, name);
    gyre_tracer *tracer = gyre_tracer_get(context);
    gyre_ring *ring;

    if (number == 0)
        return;
    ring = ring_of_thread(tracer);
    if (ring == NULL)
        return;
    pthread_mutex_lock(&tracer->lock);
    tracer->thread_names[ring->thread - 1] = number;
    pthread_mutex_unlock(&tracer->lock);
}

/* ---- recording ------------------------------------------------------- */

void gyre_trace_record(gyre_context *context, gyre_trace_category category,
                       uint32_t name, uint64_t begin, uint64_t end,
                       uint64_t arg)
{
    gyre_tracer *tracer;
    gyre_trace_cell cell;
    gyre_ring *ring;

    if (name == 0)
        return;
    tracer = gyre_tracer_get(context);
    if (tracer == NULL)
        return;
    ring = ring_of_thread(tracer);
    if (ring == NULL) {
        atomic_fetch_add_explicit(&tracer->dropped, 1, memory_order_relaxed);
        return;
    }
    cell.begin = begin;
    cell.end = end < begin ? begin : end;
    cell.arg = arg;
    cell.thread = ring->thread;
    cell.name = (uint16_t)name;
    cell.category = (unsigned)category < GYRE_TRACE_CATEGORY_COUNT
                        ? (uint8_t)category
                        : (uint8_t)GYRE_TRACE_HOST;
    cell.reserved = 0;
    gyre_ring_put(ring, &cell);
}
