/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The faulty engine: between the queue and a real engine, it makes the faults
 * that a test asks for.
 *
 *     submit --+--> inner engine --collect--> held --release--> queue
 *              |                               ^
 *              +-- fail, zero, eintr ----------+   never reach the kernel
 *
 * A held result has a time at which it may go; `reorder` lets none go before
 * the inner engine is empty, and then picks by its seed.
 */
#include "config.h"

#include "io/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef struct held {
    gyre_io_result result;
    uint64_t due;
} held;

typedef struct faulty_engine {
    gyre_io_backend base;
    gyre_io_backend *inner;
    gyre_io_faults faults;
    gyre_io_shared *shared;
    uint32_t *alignment; /* per file: what half a transfer must keep to */
    size_t files, file_capacity;
    uint32_t depth;
    held *held;
    gyre_io_result *results;
    size_t held_count, inside; /* inside: in the inner engine */
    uint64_t operations;       /* so far; or the number of this one, of `all` */
    uint64_t random;
    char name[32];
} faulty_engine;

static const char *faulty_name(gyre_io_backend *base)
{
    faulty_engine *engine = (faulty_engine *)base;
    const char *inner = engine->inner->call->name(engine->inner);

    snprintf(engine->name, sizeof engine->name, "faulty(%.20s)", inner);
    return engine->name;
}

static gyre_status faulty_add_file(gyre_io_backend *base, int fd,
                                   uint32_t index, gyre_error *error)
{
    faulty_engine *engine = (faulty_engine *)base;
    uint32_t memory, offset;

    if (index == engine->file_capacity) {
        size_t more = index ? 2 * (size_t)index : 8;
        uint32_t *grown = gyre_grow(base->context, engine->alignment, index,
                                    more, sizeof *grown);
        if (!grown)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "table of %zu files: out of memory", more);
        engine->alignment = grown;
        engine->file_capacity = more;
    }
    gyre_io_transfer_alignment(fd, &memory, &offset);
    engine->alignment[index] = memory > offset ? memory : offset;
    return engine->inner->call->add_file(engine->inner, fd, index, error);
}

static gyre_status faulty_add_buffers(gyre_io_backend *base,
                                      void *const *blocks, size_t bytes,
                                      size_t count, gyre_error *error)
{
    gyre_io_backend *inner = ((faulty_engine *)base)->inner;

    return inner->call->add_buffers(inner, blocks, bytes, count, error);
}

/* ---- choosing -------------------------------------------------------- */

/* Is the n-th operation the one of `at`, or one of its repetitions? */
static bool chosen(const gyre_io_faults *faults, uint64_t at, uint64_t n)
{
    if (at == 0 || n < at)
        return false;
    return n == at || (faults->every && (n - at) % faults->every == 0);
}

static void hold(faulty_engine *engine, gyre_io_result result)
{
    engine->held[engine->held_count++] = (held){
        .result = result,
        .due = engine->faults.delay ? gyre_now() + engine->faults.delay : 0,
    };
}

static bool makes_result(faulty_engine *engine, const gyre_io_transfer *t,
                         int32_t *moved)
{
    const gyre_io_faults *faults = &engine->faults;
    uint64_t n = engine->operations;

    if (chosen(faults, faults->fail, n))
        *moved = -faults->fail_errno;
    /* A flush that returned 0 without flushing would be no fault but a lie
     * that no queue can notice. */
    else if (chosen(faults, faults->zero, n) && t->kind != GYRE_IO_FLUSH)
        *moved = 0;
    else if (chosen(faults, faults->eintr, n))
        *moved = -EINTR;
    else
        return false;
    return true;
}

static void halve(const faulty_engine *engine, gyre_io_transfer *t)
{
    uint32_t align = engine->alignment[t->file];
    uint32_t half = t->bytes / 2 / align * align;

    if (t->kind != GYRE_IO_FLUSH && half > 0)
        t->bytes = half;
}

/* ---- moving ---------------------------------------------------------- */

static int collect(faulty_engine *engine, size_t min)
{
    size_t count = 0;
    int err = 0;

    if (engine->inside > 0)
        err = engine->inner->call->wait(engine->inner, engine->results,
                                        engine->inside, min, &count);
    for (size_t i = 0; i < count; i++)
        hold(engine, engine->results[i]);
    engine->inside -= count;
    return err;
}

static int faulty_submit(gyre_io_backend *base, const gyre_io_transfer *asked)
{
    faulty_engine *engine = (faulty_engine *)base;
    gyre_io_transfer t = *asked;
    uint64_t shared = t.again ? 0 : gyre_io_shared_next(engine->shared);
    int32_t moved;

    if (!t.again)
        engine->operations =
            engine->faults.all ? shared : engine->operations + 1;
    if (!t.again && makes_result(engine, &t, &moved)) {
        hold(engine, (gyre_io_result){.slot = t.slot, .moved = moved});
    } else {
        if (!t.again &&
            chosen(&engine->faults, engine->faults.shorten, engine->operations))
            halve(engine, &t);
        int err = engine->inner->call->submit(engine->inner, &t);
        if (err)
            return err;
        engine->inside++;
    }
    if (shared != 0 && shared == engine->faults.kill)
        kill(getpid(), SIGKILL);
    /* Seen early, so that a delay counts from the end of the transfer.  An
     * error here comes again in wait, which can report it. */
    (void)collect(engine, 0);
    return 0;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(faulty_engine *engine)
{
    uint64_t z = engine->random += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static gyre_io_result remove_held(faulty_engine *engine, size_t i)
{
    gyre_io_result result = engine->held[i].result;

    engine->held_count--;
    for (; i < engine->held_count; i++)
        engine->held[i] = engine->held[i + 1];
    return result;
}

/* Release what is due; returns the number.  Held results lie in the order of
 * their times, so the due ones come first. */
static size_t release(faulty_engine *engine, gyre_io_result *results,
                      size_t max, size_t min)
{
    bool reorder = engine->faults.reorder;
    uint64_t now = engine->faults.delay ? gyre_now() : 0;
    size_t due = 0, n = 0;

    while (due < engine->held_count && engine->held[due].due <= now)
        due++;
    size_t limit = due < max ? due : max;
    if (reorder && limit > min)
        limit = min + (size_t)(draw(engine) % (limit - min + 1));
    for (; n < limit; n++, due--)
        results[n] =
            remove_held(engine, reorder ? (size_t)(draw(engine) % due) : 0);
    return n;
}

static void sleep_until(uint64_t time)
{
    uint64_t now = gyre_now();

    if (time > now) {
        struct timespec left = {
            .tv_sec = (time_t)((time - now) / 1000000000),
            .tv_nsec = (long)((time - now) % 1000000000),
        };
        nanosleep(&left, NULL);
    }
}

static int faulty_wait(gyre_io_backend *base, gyre_io_result *results,
                       size_t max, size_t min, size_t *count)
{
    faulty_engine *engine = (faulty_engine *)base;
    size_t n = 0;
    int err;

    for (;;) {
        size_t least = 0;
        if (min > n && engine->faults.reorder)
            least = engine->inside;
        else if (min > n && engine->held_count == 0)
            least = engine->inside < min - n ? engine->inside : min - n;
        err = collect(engine, least);
        n += release(engine, results + n, max - n, min > n ? min - n : 0);
        if (err || n >= min)
            break;
        if (engine->held_count > 0)
            sleep_until(engine->held[0].due);
    }
    *count = n;
    return err;
}

/* ---- life ------------------------------------------------------------ */

static void faulty_free(faulty_engine *engine)
{
    gyre_context *context = engine->base.context;

    gyre_free(context, engine->alignment, engine->file_capacity,
              sizeof *engine->alignment);
    gyre_free(context, engine->held, engine->depth, sizeof *engine->held);
    gyre_free(context, engine->results, engine->depth, sizeof *engine->results);
    gyre_free(context, engine, 1, sizeof *engine);
}

static void faulty_destroy(gyre_io_backend *base)
{
    faulty_engine *engine = (faulty_engine *)base;

    engine->inner->call->destroy(engine->inner);
    faulty_free(engine);
}

static const gyre_io_backend_class faulty_class = {
    .name = faulty_name,
    .add_file = faulty_add_file,
    .add_buffers = faulty_add_buffers,
    .submit = faulty_submit,
    .wait = faulty_wait,
    .destroy = faulty_destroy,
};

gyre_status gyre_io_faulty_create(gyre_context *context, uint32_t depth,
                                  const gyre_io_faults *faults,
                                  gyre_io_backend *inner, gyre_io_backend **out,
                                  gyre_error *error)
{
    faulty_engine *engine = gyre_alloc_zero(context, 1, sizeof *engine);
    gyre_status status;

    if (!engine)
        return gyre_fail(error, GYRE_NO_MEMORY, "faulty engine: out of memory");
    engine->base.call = &faulty_class;
    engine->base.context = context;
    engine->inner = inner;
    engine->faults = *faults;
    engine->random = faults->seed;
    engine->depth = depth;
    engine->held = gyre_alloc_zero(context, depth, sizeof *engine->held);
    engine->results = gyre_alloc_zero(context, depth, sizeof *engine->results);
    if (engine->held && engine->results)
        status = gyre_io_shared_get(context, &engine->shared, error);
    else
        status = gyre_fail(error, GYRE_NO_MEMORY,
                           "faulty engine of depth %u: out of memory", depth);
    if (status) {
        faulty_free(engine);
        return status;
    }
    *out = &engine->base;
    return GYRE_OK;
}
