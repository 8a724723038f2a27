/* SPDX-License-Identifier: Apache-2.0 */
/* The first half of a round: hyper-parameters, gradients, norm partials. */
#include "config.h"

#include "store/round.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- begin ------------------------------------------------------------ */

static gyre_status check_numbers(const gyre_store *store,
                                 const gyre_round_options *o,
                                 gyre_error *error)
{
    int exponent;

    if (o->size < sizeof(*o))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_round_options.size is too small for this "
                         "library: zero the struct and set size");
    if (o->loss_scale != 0 &&
        (!(o->loss_scale > 0) || isinf(o->loss_scale) ||
         frexp(o->loss_scale, &exponent) != 0.5))
        return gyre_fail(error, GYRE_RANGE,
                         "loss_scale is %g; a power of two is needed",
                         o->loss_scale);
    if (o->dynamic_scale && o->loss_scale != 0 &&
        o->loss_scale != store->now.scaler.scale)
        return gyre_fail(error, GYRE_INVALID,
                         "loss_scale is %g, but with dynamic_scale the store's "
                         "is used, now %g (gyre_store_info.loss_scale): scale "
                         "the loss by that, and give it or 0",
                         o->loss_scale, store->now.scaler.scale);
    if (!(o->denominator >= 0) || isinf(o->denominator))
        return gyre_fail(error, GYRE_RANGE,
                         "denominator is %g; it must be above 0",
                         o->denominator);
    if (!(o->clip >= 0) || isinf(o->clip))
        return gyre_fail(error, GYRE_RANGE,
                         "clip is %g; a limit above 0, or 0 for none, is "
                         "needed", o->clip);
    if (o->early && o->clip > 0)
        return gyre_fail(error, GYRE_INVALID,
                         "an early update cannot wait for the norm: give clip "
                         "0, or not early");
    if (o->early && store->layout.versions == 1)
        return gyre_fail(error, GYRE_INVALID,
                         "an early update cannot be undone in a store that "
                         "works in place");
    if (o->groups != NULL ? o->group_count != store->layout.groups
                          : o->group_count != 0)
        return gyre_fail(error, GYRE_INVALID,
                         "%s and group_count is %zu; the store has %u groups",
                         o->groups != NULL ? "groups are given"
                                           : "no groups are given",
                         o->group_count, store->layout.groups);
    return GYRE_OK;
}

/* Scalars of every tensor, for its group and its own next step. */
static gyre_status take_scalars(gyre_round *round, const gyre_round_options *o,
                                gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_layout *layout = &store->layout;

    for (uint32_t g = 0; g < layout->groups; g++) {
        double values[GYRE_OPT_MAX_PARAMETERS];
        const gyre_group *group = o->group_count > 0 ? &o->groups[g] : NULL;
        const float *last = NULL;
        uint64_t last_step = 0;
        gyre_status status = gyre_opt_values(
            store->opt, group != NULL ? group->settings : NULL,
            group != NULL ? group->count : 0, values, error);

        if (status != GYRE_OK)
            return gyre_fail_prefix(error, status, "group %u", g);
        for (size_t i = 0; i < layout->tensor_count; i++) {
            gyre_tensor_state *t = &layout->tensors[i];
            float *out = round->scalars + i * GYRE_OPT_MAX_SCALARS;

            if (t->group != g || (t->flags & GYRE_TENSOR_FROZEN))
                continue;
            if (last != NULL && last_step == t->step + 1) {
                memcpy(out, last, GYRE_OPT_MAX_SCALARS * sizeof(float));
                continue;
            }
            status = gyre_opt_scalars(store->opt, values, t->step + 1, out,
                                      error);
            if (status != GYRE_OK)
                return gyre_fail_prefix(error, status, "group %u", g);
            last = out;
            last_step = t->step + 1;
        }
    }
    return GYRE_OK;
}

static size_t grain_elements(const gyre_tensor_state *t, uint64_t grain)
{
    uint64_t left = t->elements - (grain - t->first_grain) * GYRE_GRAIN;

    return left < GYRE_GRAIN ? (size_t)left : GYRE_GRAIN;
}

static void reset_micro_batch(gyre_round *round)
{
    gyre_layout *layout = &round->store->layout;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        gyre_tensor_state *t = &layout->tensors[i];
        gyre_claim *claim = &round->claims[i];

        claim->count = 0;
        claim->got = 0;
        claim->absent = false;
        if (t->flags & GYRE_TENSOR_FROZEN)
            continue;
        for (uint64_t g = t->first_grain; g < t->first_grain + t->grains; g++)
            atomic_store_explicit(&round->grain_left[g],
                                  (uint16_t)grain_elements(t, g),
                                  memory_order_relaxed);
    }
}

static void count_chunks(gyre_round *round)
{
    gyre_layout *layout = &round->store->layout;

    for (uint64_t c = 0; c < layout->train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST, runs = 0;
        uint64_t left = gyre_layout_chunk_grains(layout, c);
        gyre_run run;

        while (gyre_layout_next_run(layout, c, &cursor, &run)) {
            gyre_tensor_state *t = &layout->tensors[run.tensor];

            runs++;
            if (t->out == NULL)
                continue;
            left += round->early;
            atomic_fetch_add(&round->tensor_left[run.tensor], 1);
        }
        atomic_init(&round->chunk_left[c], left);
        if (runs > round->max_runs)
            round->max_runs = runs;
    }
}

static gyre_status allocate(gyre_round *round, gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_context *context = store->context;
    gyre_layout *layout = &store->layout;
    size_t tensors = layout->tensor_count;
    size_t grains = (size_t)layout->train_grains + 1;
    size_t chunks = (size_t)layout->train_chunks + 1;

    round->claims = gyre_alloc_zero(context, tensors, sizeof(gyre_claim));
    round->skip = gyre_alloc_zero(context, tensors, sizeof(bool));
    round->scalars = gyre_alloc_zero(
        context, tensors, GYRE_OPT_MAX_SCALARS * sizeof(float));
    round->tensor_left = gyre_alloc_zero(context, tensors, sizeof(uint64_t));
    round->grain_left = gyre_alloc_zero(context, grains, sizeof(uint16_t));
    round->leaves = gyre_alloc_zero(context, grains, sizeof(double));
    round->chunk_left = gyre_alloc_zero(context, chunks, sizeof(uint64_t));
    round->chunk_state = gyre_alloc_zero(context, chunks, sizeof(uint8_t));
    round->fresh = gyre_alloc_zero(context, chunks, sizeof(gyre_entry));
    if (store->gradients == NULL) {
        store->gradient_count = (size_t)layout->train_grains * GYRE_GRAIN + 1;
        store->gradients = gyre_alloc(context, store->gradient_count,
                                      sizeof(float));
    }
    if (round->claims == NULL || round->skip == NULL ||
        round->scalars == NULL || round->tensor_left == NULL ||
        round->grain_left == NULL || round->leaves == NULL ||
        round->chunk_left == NULL || round->chunk_state == NULL ||
        round->fresh == NULL || store->gradients == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "no memory for a round (%llu gradient bytes)",
                         (unsigned long long)store->gradient_count * 4);
    count_chunks(round);
    round->segments = gyre_alloc(context,
                                 (round->max_runs + 1) * layout->devices,
                                 sizeof(gyre_segment));
    if (round->segments == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a round");
    return GYRE_OK;
}

void gyre_round_discard(gyre_round *round)
{
    gyre_store *store = round->store;
    gyre_context *context = store->context;
    gyre_layout *layout = &store->layout;
    size_t tensors = layout->tensor_count;
    size_t grains = (size_t)layout->train_grains + 1;
    size_t chunks = (size_t)layout->train_chunks + 1;

    if (round->streaming) {
        gyre_workers_close(store);
        (void)gyre_workers_join(store, NULL, NULL);
    }
    for (size_t i = 0; round->claims != NULL && i < tensors; i++)
        gyre_free(context, round->claims[i].ends,
                  round->claims[i].capacity * 2, sizeof(uint64_t));
    gyre_free(context, round->claims, tensors, sizeof(gyre_claim));
    gyre_free(context, round->skip, tensors, sizeof(bool));
    gyre_free(context, round->scalars, tensors,
              GYRE_OPT_MAX_SCALARS * sizeof(float));
    gyre_free(context, round->tensor_left, tensors, sizeof(uint64_t));
    gyre_free(context, round->grain_left, grains, sizeof(uint16_t));
    gyre_free(context, round->leaves, grains, sizeof(double));
    gyre_free(context, round->chunk_left, chunks, sizeof(uint64_t));
    gyre_free(context, round->chunk_state, chunks, sizeof(uint8_t));
    gyre_free(context, round->fresh, chunks, sizeof(gyre_entry));
    gyre_free(context, round->segments,
              (round->max_runs + 1) * layout->devices, sizeof(gyre_segment));
    pthread_cond_destroy(&round->moved);
    pthread_mutex_destroy(&round->lock);
    store->round = NULL;
    gyre_free(context, round, 1, sizeof(*round));
}

gyre_status gyre_round_begin(gyre_store *store,
                             const gyre_round_options *options,
                             gyre_round **out, gyre_error *error)
{
    static const gyre_round_options none = {.size = sizeof(none)};
    gyre_round *round;
    gyre_fp saved = gyre_fp_pin();
    gyre_status status = gyre_store_check(store, true, true, error);

    if (options == NULL)
        options = &none;
    if (status == GYRE_OK)
        status = check_numbers(store, options, error);
    if (status != GYRE_OK)
        goto restore;
    round = gyre_alloc_zero(store->context, 1, sizeof(*round));
    if (round == NULL) {
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for a round");
        goto restore;
    }
    round->store = store;
    store->round = round;
    store->peek_chunk = UINT64_MAX;
    pthread_mutex_init(&round->lock, NULL);
    pthread_cond_init(&round->moved, NULL);
    round->scale = options->loss_scale != 0 ? options->loss_scale : 1;
    if (options->dynamic_scale)
        round->scale = store->now.scaler.scale;
    round->denominator = options->denominator != 0 ? options->denominator : 1;
    round->clip = options->clip;
    round->micro_batches = options->micro_batches != 0
                               ? options->micro_batches
                               : 1;
    round->early = options->early != 0;
    round->dynamic = options->dynamic_scale != 0;
    round->q = (float)(1.0 / (round->scale * round->denominator));
    status = allocate(round, error);
    if (status == GYRE_OK)
        status = take_scalars(round, options, error);
    if (status != GYRE_OK) {
        gyre_round_discard(round);
        goto restore;
    }
    for (size_t i = 0; i < store->layout.tensor_count; i++)
        round->skip[i] = store->layout.tensors[i].flags & GYRE_TENSOR_FROZEN;
    reset_micro_batch(round);
    if (round->early)
        gyre_round_start(round);
    *out = round;
restore:
    gyre_fp_restore(saved);
    return status;
}

/* ---- claims ----------------------------------------------------------- */

/* Position of the first range that ends behind `first`. */
static size_t claim_find(const gyre_claim *claim, uint64_t first)
{
    size_t lo = 0, hi = claim->count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (claim->ends[2 * mid + 1] > first)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static gyre_status claim_room(gyre_context *context, gyre_claim *claim,
                              gyre_error *error)
{
    size_t more = claim->capacity == 0 ? 4 : claim->capacity * 2;
    uint64_t *grown;

    if (claim->count < claim->capacity)
        return GYRE_OK;
    grown = gyre_grow(context, claim->ends, claim->capacity * 2, more * 2,
                      sizeof(uint64_t));
    if (grown == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a piece");
    claim->ends = grown;
    claim->capacity = more;
    return GYRE_OK;
}

/* Add [first, end), merging with neighbours it touches. */
static void claim_add(gyre_claim *claim, size_t at, uint64_t first,
                      uint64_t end)
{
    uint64_t *e = claim->ends;
    bool left = at > 0 && e[2 * at - 1] == first;
    bool right = at < claim->count && e[2 * at] == end;

    claim->got += end - first;
    if (left && right) {
        e[2 * at - 1] = e[2 * at + 1];
        memmove(e + 2 * at, e + 2 * at + 2,
                (claim->count - at - 1) * 2 * sizeof(*e));
        claim->count--;
    } else if (left) {
        e[2 * at - 1] = end;
    } else if (right) {
        e[2 * at] = first;
    } else {
        memmove(e + 2 * at + 2, e + 2 * at,
                (claim->count - at) * 2 * sizeof(*e));
        e[2 * at] = first;
        e[2 * at + 1] = end;
        claim->count++;
    }
}

/* Claim a range under the lock; *add says that earlier micro-batches left
 * something to add to. */
static gyre_status claim_range(gyre_round *round, size_t tensor,
                               uint64_t first, uint64_t end, bool *add,
                               gyre_error *error)
{
    const gyre_tensor_state *t = &round->store->layout.tensors[tensor];
    gyre_claim *claim = &round->claims[tensor];
    size_t at = claim_find(claim, first);
    gyre_status status;

    if (round->state != GYRE_ROUND_OPEN || round->ended)
        return gyre_fail(error, GYRE_STATE,
                         "tensor %s: the round takes no more gradients",
                         t->name);
    if (claim->absent)
        return gyre_fail(error, GYRE_DUPLICATE,
                         "tensor %s was said to be absent in this micro-batch",
                         t->name);
    if (at < claim->count && claim->ends[2 * at] < end)
        return gyre_fail(error, GYRE_DUPLICATE,
                         "tensor %s: elements [%llu, %llu) overlap [%llu, "
                         "%llu), which came already in this micro-batch",
                         t->name, (unsigned long long)first,
                         (unsigned long long)end,
                         (unsigned long long)claim->ends[2 * at],
                         (unsigned long long)claim->ends[2 * at + 1]);
    status = claim_room(round->store->context, claim, error);
    if (status != GYRE_OK)
        return status;
    claim_add(claim, at, first, end);
    *add = claim->filled;
    return GYRE_OK;
}

/* ---- pieces ----------------------------------------------------------- */

static void take_leaf(gyre_round *round, const gyre_tensor_state *t,
                      uint64_t grain)
{
    gyre_store *store = round->store;
    int finite;

    round->leaves[grain] = gyre_device_leaf(
        gyre_context_isa(store->context),
        store->gradients + grain * GYRE_GRAIN, grain_elements(t, grain),
        &finite);
    gyre_round_chunk_done(round, gyre_layout_chunk_of(&store->layout, grain),
                          1);
}

/* Convert or add a piece, one grain at a time, so that what a leaf needs is
 * still in cache when its last element has come. */
static void take_piece(gyre_round *round, const gyre_tensor_state *t,
                       uint64_t first, uint64_t count,
                       const gyre_gradient *gradient, bool add)
{
    size_t stride = gradient->stride != 0 ? (size_t)gradient->stride : 1;
    size_t size = gyre_dtype_bytes(gradient->dtype) * stride;
    const char *src = gradient->data;
    float *base = round->store->gradients + t->first_grain * GYRE_GRAIN;
    bool last = round->micro + 1 == round->micro_batches;
    float temp[GYRE_GRAIN];

    while (count > 0) {
        uint64_t grain = t->first_grain + first / GYRE_GRAIN;
        size_t room = GYRE_GRAIN - first % GYRE_GRAIN;
        size_t n = room < count ? room : (size_t)count;

        if (add) {
            gyre_to_f32(gradient->dtype, src, stride, temp, n);
            gyre_device_add(base + first, temp, n);
        } else {
            gyre_to_f32(gradient->dtype, src, stride, base + first, n);
        }
        if (atomic_fetch_sub_explicit(&round->grain_left[grain], (uint16_t)n,
                                      memory_order_acq_rel) == n &&
            last)
            take_leaf(round, t, grain);
        src += size * n;
        first += n;
        count -= n;
    }
}

static gyre_status check_tensor(gyre_round *round, size_t tensor,
                                gyre_error *error)
{
    gyre_layout *layout;

    if (round == NULL)
        return gyre_fail(error, GYRE_INVALID, "no round was given");
    layout = &round->store->layout;
    if (tensor >= layout->tensor_count)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %zu does not exist: the store has %zu", tensor,
                         layout->tensor_count);
    return GYRE_OK;
}

static gyre_status check_piece(const gyre_tensor_state *t, uint64_t first,
                               uint64_t count, const gyre_gradient *g,
                               gyre_error *error)
{
    if (t->flags & GYRE_TENSOR_FROZEN)
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %s is frozen and takes no gradient", t->name);
    if (first > t->elements || count > t->elements - first)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %s has %llu elements; a gradient for "
                         "[%llu, +%llu) is outside", t->name,
                         (unsigned long long)t->elements,
                         (unsigned long long)first, (unsigned long long)count);
    if (g == NULL || (g->data == NULL && count > 0))
        return gyre_fail(error, GYRE_INVALID, "tensor %s: no gradient data",
                         t->name);
    if (g->kind != GYRE_HOST_MEMORY)
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "tensor %s: gradients in memory of kind %d are not "
                         "supported; copy them to the host first", t->name,
                         (int)g->kind);
    if (g->dtype != GYRE_F32 && g->dtype != GYRE_F64 &&
        g->dtype != GYRE_BF16 && g->dtype != GYRE_F16)
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %s: gradients come as f32, f64, bf16 or f16, "
                         "not %s", t->name,
                         gyre_dtype_name(g->dtype) != NULL
                             ? gyre_dtype_name(g->dtype)
                             : "an unknown dtype");
    if (g->stride < 0)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %s: stride %lld; at least 1 is needed",
                         t->name, (long long)g->stride);
    return GYRE_OK;
}

gyre_status gyre_round_gradient(gyre_round *round, size_t tensor,
                                uint64_t first, uint64_t count,
                                const gyre_gradient *gradient,
                                gyre_error *error)
{
    gyre_status status = check_tensor(round, tensor, error);
    const gyre_tensor_state *t;
    gyre_fp saved;
    bool add = false;

    if (status != GYRE_OK)
        return status;
    t = &round->store->layout.tensors[tensor];
    status = check_piece(t, first, count, gradient, error);
    if (status != GYRE_OK || count == 0)
        return status;
    pthread_mutex_lock(&round->lock);
    status = claim_range(round, tensor, first, first + count, &add, error);
    pthread_mutex_unlock(&round->lock);
    if (status != GYRE_OK)
        return status;
    saved = gyre_fp_pin();
    take_piece(round, t, first, count, gradient, add);
    gyre_fp_restore(saved);
    return GYRE_OK;
}

/* ---- absent, release, next -------------------------------------------- */

void gyre_round_release_now(gyre_round *round, size_t tensor)
{
    gyre_layout *layout = &round->store->layout;
    const gyre_tensor_state *t = &layout->tensors[tensor];
    gyre_claim *claim = &round->claims[tensor];
    bool before;

    pthread_mutex_lock(&round->lock);
    before = claim->released;
    claim->released = true;
    pthread_mutex_unlock(&round->lock);
    if (before || !round->early || t->out == NULL || t->grains == 0 ||
        (t->flags & GYRE_TENSOR_FROZEN))
        return;
    for (uint64_t c = gyre_layout_chunk_of(layout, t->first_grain);
         c <= gyre_layout_chunk_of(layout, t->first_grain + t->grains - 1); c++)
        gyre_round_chunk_done(round, c, 1);
}

gyre_status gyre_round_release(gyre_round *round, size_t tensor,
                               gyre_error *error)
{
    gyre_status status = check_tensor(round, tensor, error);

    if (status != GYRE_OK)
        return status;
    if (round->state != GYRE_ROUND_OPEN)
        return gyre_fail(error, GYRE_STATE, "the update has begun already");
    gyre_round_release_now(round, tensor);
    return GYRE_OK;
}

/* The last micro-batch has nothing for this tensor: its leaves are those of
 * the earlier ones, or it is left alone. */
static void settle_absent(gyre_round *round, size_t tensor)
{
    gyre_layout *layout = &round->store->layout;
    const gyre_tensor_state *t = &layout->tensors[tensor];

    if (!round->claims[tensor].filled)
        round->skip[tensor] = true;
    for (uint64_t g = t->first_grain; g < t->first_grain + t->grains; g++) {
        if (round->claims[tensor].filled)
            take_leaf(round, t, g);
        else
            gyre_round_chunk_done(round, gyre_layout_chunk_of(layout, g), 1);
    }
    if (round->skip[tensor])
        gyre_round_release_now(round, tensor);
}

gyre_status gyre_round_absent(gyre_round *round, size_t tensor,
                              gyre_error *error)
{
    gyre_status status = check_tensor(round, tensor, error);
    const gyre_tensor_state *t;
    gyre_claim *claim;

    if (status != GYRE_OK)
        return status;
    t = &round->store->layout.tensors[tensor];
    claim = &round->claims[tensor];
    if (t->flags & GYRE_TENSOR_FROZEN)
        return GYRE_OK;
    pthread_mutex_lock(&round->lock);
    if (round->state != GYRE_ROUND_OPEN || round->ended)
        status = gyre_fail(error, GYRE_STATE,
                           "tensor %s: the round takes no more gradients",
                           t->name);
    else if (claim->got > 0 || claim->absent)
        status = gyre_fail(error, GYRE_DUPLICATE,
                           "tensor %s: %s in this micro-batch", t->name,
                           claim->absent ? "said to be absent twice"
                                         : "pieces of it came already");
    else
        claim->absent = true;
    pthread_mutex_unlock(&round->lock);
    if (status == GYRE_OK && round->micro + 1 == round->micro_batches) {
        gyre_fp saved = gyre_fp_pin();

        settle_absent(round, tensor);
        gyre_fp_restore(saved);
    }
    return status;
}

gyre_status gyre_round_complete(gyre_round *round, gyre_error *error)
{
    gyre_layout *layout = &round->store->layout;
    char list[400] = "";
    size_t used = 0, missing = 0;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        const gyre_tensor_state *t = &layout->tensors[i];
        const gyre_claim *claim = &round->claims[i];
        uint64_t gap = 0;

        if (round->ended || claim->absent || claim->got == t->elements ||
            (t->flags & GYRE_TENSOR_FROZEN))
            continue;
        if (claim->count > 0 && claim->ends[0] == 0)
            gap = claim->ends[1];
        if (missing++ < 4 && used < sizeof(list)) {
            int n = snprintf(list + used, sizeof(list) - used,
                             "%s%s (%llu of %llu, first gap at %llu)",
                             missing > 1 ? ", " : "", t->name,
                             (unsigned long long)claim->got,
                             (unsigned long long)t->elements,
                             (unsigned long long)gap);

            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (missing == 0)
        return GYRE_OK;
    return gyre_fail(error, GYRE_MISSING,
                     "%zu tensor%s without a whole gradient in micro-batch %u "
                     "of %u: %s%s; give the rest, or say gyre_round_absent",
                     missing, missing == 1 ? "" : "s", round->micro + 1,
                     round->micro_batches, list, missing > 4 ? ", ..." : "");
}

gyre_status gyre_round_next(gyre_round *round, gyre_error *error)
{
    gyre_status status;

    if (round == NULL)
        return gyre_fail(error, GYRE_INVALID, "no round was given");
    if (round->state != GYRE_ROUND_OPEN || round->ended)
        return gyre_fail(error, GYRE_STATE,
                         "all %u micro-batches of this round have ended",
                         round->micro_batches);
    status = gyre_round_complete(round, error);
    if (status != GYRE_OK)
        return status;
    if (round->micro + 1 == round->micro_batches) {
        round->ended = true;
        return GYRE_OK;
    }
    /* An empty tensor is given by not being absent. */
    for (size_t i = 0; i < round->store->layout.tensor_count; i++)
        round->claims[i].filled |= !round->claims[i].absent;
    round->micro++;
    reset_micro_batch(round);
    return GYRE_OK;
}
