/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What unit tests share: cmocka in its required order, and an allocator that
 * counts, checks sizes, moves on each resize and fails the n-th request.
 *
 *     unit_memory memory = {0};
 *     gyre_context *context = unit_context(&memory);
 *     memory.fail_at = memory.requests + n;
 *     ...
 *     gyre_context_destroy(context);
 *     unit_memory_check(&memory);        nothing left, no wrong size
 *
 * The loop that fails each request once ends when one run needs fewer than n:
 *
 *     for (uint64_t n = 1; ; n++) {
 *         memory.fail_at = memory.requests + n;
 *         status = what_is_tested(context);
 *         memory.fail_at = 0;
 *         if (status == GYRE_OK)
 *             break;
 *         assert_int_equal(status, GYRE_NO_MEMORY);
 *         assert_int_equal(memory.bytes, before);
 *     }
 */
#ifndef GYRE_TESTS_UNIT_UNIT_H
#define GYRE_TESTS_UNIT_UNIT_H

#include "config.h" /* GYRE_SANITIZED */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <gyre/context.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Is a sample of a long list enough?  Yes in sanitizer builds and under
 * valgrind, which look at memory and threads and take ten times as long: there
 * GYRE_SOAK runs all of it.  Numbers are for the plain run, which takes it all
 * anyway.
 */
static inline bool unit_sampled(void)
{
#ifdef GYRE_SANITIZED
    bool slow = true;
#else
    bool slow = getenv("GYRE_VALGRIND") != NULL;
#endif
    return slow && getenv("GYRE_SOAK") == NULL;
}

/*
 * End a forked child: status 0 or 1.  By exec, for valgrind would otherwise
 * report what the parent holds as lost in the child.
 */
static inline void unit_end_child(int good)
{
    execlp(good ? "true" : "false", good ? "true" : "false", (char *)NULL);
    _exit(99);
}

typedef struct unit_memory {
    uint64_t requests; /* that ask for memory, from 1 */
    uint64_t fail_at;  /* the request that fails; 0: none */
    uint64_t bytes;    /* now held */
    uint64_t blocks;
    uint64_t peak;
    uint64_t wrong; /* size or alignment unlike the one given before */
} unit_memory;

/* Stands before each block, at its end nearest to the block. */
typedef struct unit_block {
    uint64_t bytes;
    uint64_t align;
} unit_block;

static pthread_mutex_t unit_memory_lock = PTHREAD_MUTEX_INITIALIZER;

static inline size_t unit_block_room(size_t align)
{
    return align > sizeof(unit_block) ? align : sizeof(unit_block);
}

static inline void *unit_memory_take(unit_memory *memory, size_t bytes,
                                     size_t align)
{
    size_t room = unit_block_room(align);
    unit_block block = {bytes, align};
    void *base = NULL;
    char *start;

    if (++memory->requests == memory->fail_at)
        return NULL;
    if (posix_memalign(&base, align, room + bytes) != 0)
        return NULL;
    start = (char *)base + room;
    memcpy(start - sizeof(block), &block, sizeof(block));
    memset(start, 0xa5, bytes);
    memory->blocks++;
    memory->bytes += bytes;
    if (memory->bytes > memory->peak)
        memory->peak = memory->bytes;
    return start;
}

static inline void unit_memory_give(unit_memory *memory, char *start,
                                    size_t bytes, size_t align)
{
    unit_block block;

    memcpy(&block, start - sizeof(block), sizeof(block));
    if (block.bytes != bytes || block.align != align)
        memory->wrong++;
    memory->blocks--;
    memory->bytes -= block.bytes;
    memset(start, 0xdd, block.bytes);
    free(start - unit_block_room(block.align));
}

static inline void *unit_memory_resize(void *user, void *block,
                                       size_t old_bytes, size_t new_bytes,
                                       size_t align)
{
    unit_memory *memory = user;
    void *fresh = NULL;

    pthread_mutex_lock(&unit_memory_lock);
    if (block != NULL && new_bytes != 0 && align > 64)
        memory->wrong++; /* gyre/context.h: never resized */
    if (new_bytes != 0)
        fresh = unit_memory_take(memory, new_bytes, align);
    if (fresh != NULL && block != NULL)
        memcpy(fresh, block, old_bytes < new_bytes ? old_bytes : new_bytes);
    if (block != NULL && (fresh != NULL || new_bytes == 0))
        unit_memory_give(memory, block, old_bytes, align);
    pthread_mutex_unlock(&unit_memory_lock);
    return fresh;
}

static inline gyre_context_options unit_options(unit_memory *memory)
{
    gyre_context_options options = {0};

    options.size = sizeof(options);
    options.allocator.resize = unit_memory_resize;
    options.allocator.user = memory;
    return options;
}

static inline gyre_context *unit_context(unit_memory *memory)
{
    gyre_context_options options = unit_options(memory);
    gyre_context *context = NULL;

    assert_int_equal(gyre_context_create(&options, &context, NULL), GYRE_OK);
    return context;
}

static inline void unit_memory_check(const unit_memory *memory)
{
    assert_int_equal(memory->blocks, 0);
    assert_int_equal(memory->bytes, 0);
    assert_int_equal(memory->wrong, 0);
}

/* The text of an error holds this; shows the text when not. */
#define unit_assert_text(error, part)                              \
    do {                                                           \
        if (strstr((error)->text, part) == NULL)                   \
            fail_msg("\"%s\" is not in: %s", part, (error)->text); \
    } while (0)

#endif
