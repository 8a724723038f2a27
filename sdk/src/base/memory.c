/* SPDX-License-Identifier: Apache-2.0 */
/* Memory through the context's allocator, counted to the byte. */
#include "config.h"

#include "base/context.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What malloc gives on every machine we build for. */
enum { PLAIN_ALIGN = 16 };

void *gyre_resize_default(void *user, void *block, size_t old_bytes,
                          size_t new_bytes, size_t align)
{
    void *fresh = NULL;

    (void)user;
    if (new_bytes == 0) {
        free(block);
        return NULL;
    }
    if (align <= PLAIN_ALIGN)
        return realloc(block, new_bytes);
    if (posix_memalign(&fresh, align, new_bytes) != 0)
        return NULL;
    if (block != NULL) {
        memcpy(fresh, block, old_bytes < new_bytes ? old_bytes : new_bytes);
        free(block);
    }
    return fresh;
}

/*
 * Counted after the allocator agreed, so that a refused request leaves no
 * trace in the peak.
 */
static void count_more(gyre_context *context, uint64_t bytes)
{
    uint64_t now = atomic_fetch_add_explicit(&context->memory, bytes,
                                             memory_order_relaxed) +
                   bytes;
    uint64_t peak =
        atomic_load_explicit(&context->memory_peak, memory_order_relaxed);

    while (peak < now && !atomic_compare_exchange_weak_explicit(
                             &context->memory_peak, &peak, now,
                             memory_order_relaxed, memory_order_relaxed))
        continue;
}

static void count_less(gyre_context *context, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&context->memory, bytes, memory_order_relaxed);
}

/* Zero bytes cost one, so that NULL always means failure. */
static bool size_of_block(size_t count, size_t size, size_t *bytes)
{
    uint64_t product;

    if (!gyre_mul(count, size, &product) || product > PTRDIFF_MAX)
        return false;
    *bytes = product == 0 ? 1 : (size_t)product;
    return true;
}

static void *resize(gyre_context *context, void *block, size_t old_bytes,
                    size_t new_bytes, size_t align)
{
    gyre_allocator *allocator = &context->allocator;
    void *fresh =
        allocator->resize(allocator->user, block, old_bytes, new_bytes, align);

    if (fresh == NULL)
        return NULL;
    if (new_bytes > old_bytes)
        count_more(context, new_bytes - old_bytes);
    else
        count_less(context, old_bytes - new_bytes);
    return fresh;
}

static void release(gyre_context *context, void *block, size_t bytes,
                    size_t align)
{
    gyre_allocator *allocator = &context->allocator;

    allocator->resize(allocator->user, block, bytes, 0, align);
    count_less(context, bytes);
}

void *gyre_alloc(gyre_context *context, size_t count, size_t size)
{
    size_t bytes;

    if (!size_of_block(count, size, &bytes))
        return NULL;
    return resize(context, NULL, 0, bytes, PLAIN_ALIGN);
}

void *gyre_alloc_zero(gyre_context *context, size_t count, size_t size)
{
    void *block = gyre_alloc(context, count, size);

    if (block != NULL)
        memset(block, 0, count * size);
    return block;
}

void *gyre_alloc_aligned(gyre_context *context, size_t bytes, size_t align)
{
    assert(align >= PLAIN_ALIGN && (align & (align - 1)) == 0);
    if (!size_of_block(bytes, 1, &bytes))
        return NULL;
    return resize(context, NULL, 0, bytes, align);
}

void *gyre_grow(gyre_context *context, void *block, size_t old_count,
                size_t new_count, size_t size)
{
    size_t old_bytes = 0;
    size_t new_bytes;

    if (block != NULL && !size_of_block(old_count, size, &old_bytes))
        return NULL;
    if (!size_of_block(new_count, size, &new_bytes))
        return NULL;
    return resize(context, block, old_bytes, new_bytes, PLAIN_ALIGN);
}

void gyre_free(gyre_context *context, void *block, size_t count, size_t size)
{
    size_t bytes;

    if (block != NULL && size_of_block(count, size, &bytes))
        release(context, block, bytes, PLAIN_ALIGN);
}

void gyre_free_aligned(gyre_context *context, void *block, size_t bytes,
                       size_t align)
{
    if (block != NULL && size_of_block(bytes, 1, &bytes))
        release(context, block, bytes, align);
}

char *gyre_copy_text(gyre_context *context, const char *text)
{
    size_t bytes;
    char *copy;

    if (text == NULL)
        return NULL;
    bytes = strlen(text) + 1;
    copy = gyre_alloc(context, bytes, 1);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

void gyre_free_text(gyre_context *context, char *text)
{
    if (text != NULL)
        gyre_free(context, text, strlen(text) + 1, 1);
}

uint64_t gyre_context_memory(const gyre_context *context, uint64_t *peak)
{
    if (peak != NULL)
        *peak =
            atomic_load_explicit(&context->memory_peak, memory_order_relaxed);
    return atomic_load_explicit(&context->memory, memory_order_relaxed);
}
