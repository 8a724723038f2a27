/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the trace: copy and sort, count what was dropped, clear, cost. */
#include "config.h"

#include "trace/tracer.h"

static const char *const category_names[GYRE_TRACE_CATEGORY_COUNT] = {
    [GYRE_TRACE_HOST] = "host",
    [GYRE_TRACE_COMPUTE] = "compute",
    [GYRE_TRACE_STORAGE_READ] = "storage read",
    [GYRE_TRACE_STORAGE_WRITE] = "storage write",
    [GYRE_TRACE_LINK] = "link",
};

const char *gyre_trace_category_name(gyre_trace_category category)
{
    if ((unsigned)category >= GYRE_TRACE_CATEGORY_COUNT)
        return NULL;
    return category_names[category];
}

/* ---- order ----------------------------------------------------------- */

/* By begin; of two that begin together the longer is the outer one.  The rest
 * only makes the order the same each time. */
static bool before(const gyre_trace_cell *a, const gyre_trace_cell *b)
{
    if (a->begin != b->begin)
        return a->begin < b->begin;
    if (a->end != b->end)
        return a->end > b->end;
    if (a->thread != b->thread)
        return a->thread < b->thread;
    if (a->category != b->category)
        return a->category < b->category;
    if (a->name != b->name)
        return a->name < b->name;
    return a->arg < b->arg;
}

static void sift_down(gyre_trace_cell *cells, uint64_t root, uint64_t count)
{
    gyre_trace_cell moving = cells[root];

    for (;;) {
        uint64_t child = 2 * root + 1;

        if (child >= count)
            break;
        if (child + 1 < count && before(&cells[child], &cells[child + 1]))
            child++;
        if (!before(&moving, &cells[child]))
            break;
        cells[root] = cells[child];
        root = child;
    }
    cells[root] = moving;
}

/* Heap sort: in place, since the C library's may allocate behind our back. */
static void sort(gyre_trace_cell *cells, uint64_t count)
{
    for (uint64_t i = count / 2; i > 0; i--)
        sift_down(cells, i - 1, count);
    for (uint64_t last = count; last > 1; last--) {
        gyre_trace_cell top = cells[0];

        cells[0] = cells[last - 1];
        cells[last - 1] = top;
        sift_down(cells, 0, last - 1);
    }
}

/* ---- copying --------------------------------------------------------- */

/* Under the lock, which keeps tails still; heads may move on. */
static uint64_t held(const gyre_ring *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_acquire) -
           atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

static uint64_t copy_ring(const gyre_ring *ring, gyre_trace_cell *out,
                          uint64_t room)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t count = held(ring);

    if (count > room)
        count = room;
    for (uint64_t i = 0; i < count; i++)
        out[i] = ring->cells[(tail + i) % ring->capacity];
    return count;
}

gyre_status gyre_tracer_copy(gyre_tracer *tracer, gyre_trace_cell **cells,
                             uint64_t *count, uint64_t *room, gyre_error *error)
{
    uint64_t total = 0;
    uint64_t used = 0;
    gyre_trace_cell *copy = NULL;

    pthread_mutex_lock(&tracer->lock);
    for (gyre_ring *ring = tracer->rings; ring != NULL; ring = ring->next)
        total += held(ring);
    if (total > 0)
        copy = gyre_alloc(tracer->context, total, sizeof(*copy));
    for (gyre_ring *ring = tracer->rings; copy != NULL && ring != NULL;
         ring = ring->next)
        used += copy_ring(ring, copy + used, total - used);
    pthread_mutex_unlock(&tracer->lock);
    if (total > 0 && copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "trace: no memory for a copy of %llu records",
                         (unsigned long long)total);
    sort(copy, used);
    *cells = copy;
    *count = used;
    *room = total;
    return GYRE_OK;
}

/* ---- the public side ------------------------------------------------- */

gyre_status gyre_trace_each(gyre_context *context,
                            int (*each)(void *user, const gyre_span *span),
                            void *user, gyre_error *error)
{
    gyre_tracer *tracer = gyre_tracer_get(context);
    gyre_trace_cell *cells = NULL;
    uint64_t count = 0;
    uint64_t room = 0;
    gyre_status status;

    if (each == NULL)
        return gyre_fail(error, GYRE_INVALID, "gyre_trace_each: each is NULL");
    if (tracer == NULL)
        return GYRE_OK;
    status = gyre_tracer_copy(tracer, &cells, &count, &room, error);
    if (status != GYRE_OK)
        return status;
    for (uint64_t i = 0; i < count; i++) {
        const gyre_trace_cell *cell = &cells[i];
        gyre_span span = {
            .begin = cell->begin,
            .end = cell->end,
            .arg = cell->arg,
            .thread = cell->thread,
            .category = (gyre_trace_category)cell->category,
            .name = gyre_tracer_name(tracer, cell->name),
            .thread_name = gyre_tracer_thread_name(tracer, cell->thread),
        };

        if (each(user, &span) != 0)
            break;
    }
    gyre_free(context, cells, room, sizeof(*cells));
    return GYRE_OK;
}

uint64_t gyre_trace_dropped(gyre_context *context)
{
    gyre_tracer *tracer = gyre_tracer_get(context);
    uint64_t dropped;

    if (tracer == NULL)
        return 0;
    dropped = atomic_load_explicit(&tracer->dropped, memory_order_relaxed);
    pthread_mutex_lock(&tracer->lock);
    for (gyre_ring *ring = tracer->rings; ring != NULL; ring = ring->next)
        dropped += atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    pthread_mutex_unlock(&tracer->lock);
    return dropped;
}

void gyre_trace_clear(gyre_context *context)
{
    gyre_tracer *tracer = gyre_tracer_get(context);

    if (tracer == NULL)
        return;
    pthread_mutex_lock(&tracer->lock);
    for (gyre_ring *ring = tracer->rings; ring != NULL; ring = ring->next) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

        atomic_store_explicit(&ring->tail, head, memory_order_release);
        atomic_store_explicit(&ring->dropped, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&tracer->dropped, 0, memory_order_relaxed);
    pthread_mutex_unlock(&tracer->lock);
}

double gyre_trace_cost(gyre_context *context)
{
    enum { TIMES = 2000, CELLS = 256 };
    gyre_tracer *tracer = gyre_tracer_make(context);
    size_t bytes = sizeof(gyre_ring) + CELLS * sizeof(gyre_trace_cell);
    gyre_trace_cell cell = {0};
    gyre_ring *ring;
    uint64_t begin;

    if (tracer == NULL)
        return 0;
    ring = gyre_alloc_zero(context, bytes, 1);
    if (ring == NULL)
        return 0;
    ring->capacity = CELLS;
    begin = gyre_now();
    for (int i = 0; i < TIMES; i++) {
        (void)pthread_getspecific(tracer->key);
        cell.begin = gyre_now();
        cell.end = gyre_now();
        gyre_ring_put(ring, &cell);
        atomic_store_explicit(&ring->tail, ring->head, memory_order_relaxed);
    }
    begin = gyre_now() - begin;
    gyre_free(context, ring, bytes, 1);
    return (double)begin / TIMES;
}
