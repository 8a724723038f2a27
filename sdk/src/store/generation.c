/* SPDX-License-Identifier: Apache-2.0 */
/* A new generation beside the old one, and the flip; reshard. */
#include "config.h"

#include "store/build.h"
#include "store/chunk.h"
#include "store/commit.h"
#include "store/generation.h"
#include "store/ledger.h"
#include "store/manifest.h"
#include "store/place.h"
#include "store/plugins.h"

#include <string.h>

/* ---- filling ---------------------------------------------------------- */

/* Elements of the tensor from `first` on that lie in one chunk of the old
 * store: all variables of such a piece come from one read. */
static size_t piece(const gyre_store *old, size_t tensor, uint64_t first,
                    size_t n)
{
    const gyre_layout *layout = &old->layout;
    const gyre_tensor_state *t = &layout->tensors[tensor];
    uint64_t grain = t->first_grain + first / GYRE_GRAIN;
    uint64_t chunk = gyre_layout_chunk_of(layout, grain);
    uint64_t end = gyre_layout_first_grain(layout, chunk) +
                   gyre_layout_chunk_grains(layout, chunk);
    uint64_t room = (end - grain) * GYRE_GRAIN - first % GYRE_GRAIN;

    return room < n ? (size_t)room : n;
}

static gyre_status fill_piece(gyre_change *change, size_t tensor,
                              uint64_t first, size_t n, uint32_t vars,
                              float *out, size_t stride, gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (uint32_t v = 0; status == GYRE_OK && v < vars; v++) {
        bool given = false;

        if (change->value != NULL)
            status = change->value(change->value_user, tensor, v, first, n,
                                   out + v * stride, &given, error);
        if (status == GYRE_OK && !given)
            status = gyre_store_read(change->old, tensor, (int)v - 1, first, n,
                                     GYRE_F32, out + v * stride, error);
    }
    return status;
}

/* In a worker of the new store.  The old store has one reader at a time: its
 * workers and its one kept chunk are shared. */
static gyre_status fill(void *user, size_t tensor, uint64_t first, size_t n,
                        uint32_t vars, float *out, size_t stride,
                        gyre_error *error)
{
    gyre_change *change = user;
    gyre_status status = GYRE_OK;

    pthread_mutex_lock(&change->lock);
    while (status == GYRE_OK && n > 0) {
        size_t m = piece(change->old, tensor, first, n);

        if (change->stop)
            status =
                gyre_fail(error, GYRE_STOPPED, "stopped; store %s is as it was",
                          change->old->path);
        else
            status =
                fill_piece(change, tensor, first, m, vars, out, stride, error);
        change->done += m * vars * sizeof(float);
        first += m;
        out += m;
        n -= m;
    }
    pthread_cond_signal(&change->moved);
    pthread_mutex_unlock(&change->lock);
    return status;
}

/* The residual goes with the values that it was left out of. */
static gyre_status fill_residual(void *user, size_t tensor, uint64_t first,
                                 size_t n, float *out, gyre_error *error)
{
    gyre_change *change = user;
    gyre_status status = GYRE_OK;

    pthread_mutex_lock(&change->lock);
    while (status == GYRE_OK && n > 0) {
        size_t m = piece(change->old, tensor, first, n);

        if (change->stop)
            status =
                gyre_fail(error, GYRE_STOPPED, "stopped; store %s is as it was",
                          change->old->path);
        else if (change->takes == NULL ||
                 !change->takes(change->value_user, tensor))
            status = gyre_store_read_residual(change->old, tensor, first, m,
                                              out, error);
        change->done += m * sizeof(float);
        first += m;
        out += m;
        n -= m;
    }
    pthread_cond_signal(&change->moved);
    pthread_mutex_unlock(&change->lock);
    return status;
}

static void fill_ended(void *user, uint32_t device, gyre_status status)
{
    gyre_change *change = user;

    (void)device;
    pthread_mutex_lock(&change->lock);
    change->ended++;
    if (status != GYRE_OK)
        change->stop = true; /* the other devices need not go on */
    pthread_cond_signal(&change->moved);
    pthread_mutex_unlock(&change->lock);
}

/* The callback runs in the thread that called us, as callers in other
 * languages need it. */
static void watch(void *user)
{
    gyre_change *change = user;
    uint64_t told = 0;

    pthread_mutex_lock(&change->lock);
    while (change->ended < change->fresh->layout.devices) {
        uint64_t done = change->done;

        if (done == told || change->progress == NULL) {
            pthread_cond_wait(&change->moved, &change->lock);
            continue;
        }
        told = done;
        pthread_mutex_unlock(&change->lock);
        if (change->progress(change->progress_user, done, change->total) != 0) {
            pthread_mutex_lock(&change->lock);
            change->stop = true;
            change->progress = NULL;
            continue;
        }
        pthread_mutex_lock(&change->lock);
    }
    pthread_mutex_unlock(&change->lock);
}

/* ---- the new store ---------------------------------------------------- */

static gyre_status inherit_tensors(gyre_store *to, const gyre_store *from,
                                   gyre_error *error)
{
    size_t n = from->layout.tensor_count;
    gyre_tensor *tensors = gyre_alloc_zero(from->context, n, sizeof(*tensors));
    gyre_status status;

    if (tensors == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        const gyre_tensor_state *t = &from->layout.tensors[i];

        tensors[i].name = t->name;
        tensors[i].rank = t->rank;
        tensors[i].group = t->group;
        tensors[i].flags = t->flags;
        memcpy(tensors[i].shape, t->shape, sizeof(t->shape));
    }
    status = gyre_layout_tensors(from->context, &to->layout, tensors, n, error);
    gyre_free(from->context, tensors, n, sizeof(*tensors));
    for (size_t i = 0; status == GYRE_OK && i < n; i++)
        to->layout.tensors[i].step = from->layout.tensors[i].step;
    return status;
}

/* Nothing can be written beside the old generation on a device that it fills.
 */
static gyre_status check_places(const gyre_store *to, const gyre_store *from,
                                gyre_error *error)
{
    for (uint32_t d = 0; d < to->layout.devices; d++)
        for (uint32_t e = 0; e < from->layout.devices; e++)
            if (gyre_place_same_block(to->places[d].file, from->places[e].file))
                return gyre_fail(
                    error, GYRE_INVALID,
                    "store %s uses block file %s, and its new generation needs "
                    "a place of its own until it is whole: give another "
                    "device, or a folder",
                    from->path, to->places[d].file);
    return GYRE_OK;
}

/* What the old store takes counts against the one limit. */
static void share_memory(gyre_store *to, const gyre_store *from)
{
    gyre_store_plan plan = {.size = sizeof(plan)};

    if (from->memory_limit == 0)
        return;
    gyre_store_lines(from, &plan);
    to->memory_limit = from->memory_limit > plan.total_bytes
                           ? from->memory_limit - plan.total_bytes
                           : 1;
}

gyre_status gyre_change_inherit(gyre_change *change,
                                const gyre_store_spec *spec,
                                const gyre_store_options *options,
                                gyre_error *error)
{
    gyre_store *from = change->old, *to;
    gyre_status status = gyre_store_blank(from->context, from->path, options,
                                          &change->fresh, error);

    if (status != GYRE_OK)
        return status;
    to = change->fresh;
    to->read_only = true; /* no rounds: no gradients to plan for */
    memcpy(to->uuid, from->uuid, sizeof(to->uuid));
    memcpy(to->uuid_text, from->uuid_text, sizeof(to->uuid_text));
    to->generation = from->generation + 1;
    to->layout.versions = from->layout.versions;
    to->layout.align = GYRE_PAGE;
    to->layout.blob_capacity = from->layout.blob_capacity;
    to->now = from->now;
    to->now.generation = to->generation;
    to->now.dirty = 0;
    atomic_store(&to->flash, atomic_load(&from->flash));
    status = gyre_store_inherit_optimizer(to, from, error);
    if (status == GYRE_OK)
        status = gyre_store_inherit_compressor(to, from, error);
    if (status == GYRE_OK)
        status = inherit_tensors(to, from, error);
    if (status == GYRE_OK)
        status = gyre_store_take_devices(to, spec, error);
    if (status == GYRE_OK)
        status = check_places(to, from, error);
    if (status == GYRE_OK)
        status = gyre_store_shape(to, spec, error);
    share_memory(to, from);
    return status;
}

/* ---- build, flip, sweep ----------------------------------------------- */

static uint64_t bytes_of(const gyre_layout *layout)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        const gyre_tensor_state *t = &layout->tensors[i];
        uint64_t vars = t->flags & GYRE_TENSOR_FROZEN
                            ? 1
                            : 1 + layout->slots + layout->residual;

        bytes += t->elements * vars * sizeof(float);
    }
    return bytes;
}

/*
 * When the rename was done and only its sync failed, either manifest may be
 * what a power failure leaves.  Then the files of both have to stay; the next
 * open knows, and the journal tells it what to sweep.
 */
static bool is_flipped(const gyre_store *fresh)
{
    gyre_store *seen;
    bool flipped = true;

    if (gyre_store_blank(fresh->context, fresh->path, NULL, &seen, NULL) !=
        GYRE_OK)
        return true;
    if (gyre_manifest_read(seen, NULL) == GYRE_OK)
        flipped = seen->generation == fresh->generation;
    gyre_store_free(seen);
    return flipped;
}

static gyre_status flip(gyre_change *change, bool *keep, gyre_error *error)
{
    gyre_status status = gyre_manifest_write(change->fresh, error);

    *keep = status == GYRE_OK || is_flipped(change->fresh);
    if (status != GYRE_OK && *keep)
        return gyre_fail_prefix(error, status,
                                "store %s: it is not known which generation "
                                "stands, and both are whole; open it",
                                change->old->path);
    return status;
}

static gyre_status last_word(gyre_change *change, gyre_error *error)
{
    if (!change->stop && (change->progress == NULL ||
                          change->progress(change->progress_user, change->total,
                                           change->total) == 0))
        return GYRE_OK;
    return gyre_fail(error, GYRE_STOPPED, "stopped; store %s is as it was",
                     change->old->path);
}

gyre_status gyre_change_make(gyre_change *change, gyre_error *error)
{
    gyre_store *old = change->old, *fresh = change->fresh;
    gyre_source source = {.fill = fill,
                          .residual = fill_residual,
                          .watch = watch,
                          .ended = fill_ended,
                          .user = change};
    bool keep = false;
    gyre_status status;

    /* What an earlier crash left would be in the way of the new files. */
    gyre_journal_settle(old, old);
    change->total = bytes_of(&fresh->layout);
    status = gyre_store_build(fresh, old, &source, old->blob, old->blob_bytes,
                              error);
    if (status == GYRE_OK)
        status = last_word(change, error);
    if (status == GYRE_OK)
        status = flip(change, &keep, error);
    if (status == GYRE_OK)
        gyre_journal_settle(old, fresh);
    else if (!keep)
        gyre_journal_settle(old, old);
    return status;
}

gyre_status gyre_change_begin(gyre_change *change, gyre_context *context,
                              const char *path,
                              const gyre_store_options *options,
                              gyre_error *error)
{
    gyre_status status;

    pthread_mutex_init(&change->lock, NULL);
    pthread_cond_init(&change->moved, NULL);
    if (options != NULL && options->read_only)
        return gyre_fail(error, GYRE_INVALID,
                         "a new generation of %s cannot be made read-only",
                         path != NULL ? path : "a store");
    status = gyre_store_blank(context, path, options, &change->old, error);
    if (status != GYRE_OK)
        return status;
    /* Only read, and so in no need of the optimizer; the lock it takes is the
     * same. */
    change->old->read_only = true;
    change->old->fast = false;
    return gyre_store_attach(change->old, options, error);
}

void gyre_change_end(gyre_change *change)
{
    if (change->fresh != NULL)
        gyre_store_free(change->fresh);
    if (change->old != NULL)
        gyre_store_free(change->old);
    pthread_cond_destroy(&change->moved);
    pthread_mutex_destroy(&change->lock);
}

/* ---- reshard ---------------------------------------------------------- */

gyre_status gyre_store_reshard(gyre_context *context, const char *path,
                               const gyre_store_spec *spec,
                               const gyre_store_options *options,
                               gyre_progress progress, void *user,
                               gyre_error *error)
{
    gyre_change change = {.progress = progress, .progress_user = user};
    gyre_error text = {GYRE_OK, ""};
    gyre_fp saved = gyre_fp_pin();
    gyre_status status =
        gyre_change_begin(&change, context, path, options, &text);

    if (status == GYRE_OK && (spec == NULL || spec->size < sizeof(*spec)))
        status = gyre_fail(&text, GYRE_INVALID,
                           "gyre_store_spec.size is too small for this "
                           "library: zero the struct and set size");
    if (status == GYRE_OK)
        status = gyre_store_settle(change.old, &text);
    if (status == GYRE_OK)
        status = gyre_change_inherit(&change, spec, options, &text);
    if (status == GYRE_OK)
        status = gyre_change_make(&change, &text);
    gyre_change_end(&change);
    gyre_fp_restore(saved);
    if (status != GYRE_OK && error != NULL)
        *error = text;
    return status;
}
