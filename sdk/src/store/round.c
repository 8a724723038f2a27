/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a round's first half: hyper-parameters, micro-batches. */
#include "config.h"

#include "store/ledger.h"
#include "store/round.h"

#include "registry/compressor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- begin ------------------------------------------------------------ */

static gyre_status check_numbers(const gyre_store *store,
                                 const gyre_round_options *o, gyre_error *error)
{
    double scale = o->dynamic_scale     ? store->now.scaler.scale
                   : o->loss_scale != 0 ? o->loss_scale
                                        : 1;
    double denominator = o->denominator != 0 ? o->denominator : 1;
    int exponent;

    if (o->size < sizeof(*o))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_round_options.size is too small for this "
                         "library: zero the struct and set size");
    if (o->loss_scale != 0 && (!(o->loss_scale > 0) || isinf(o->loss_scale) ||
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
    if (!isnormal((float)(1.0 / (scale * denominator))))
        return gyre_fail(error, GYRE_RANGE,
                         "loss_scale %g times denominator %g: gradients are "
                         "multiplied by the inverse, which no f32 holds; take "
                         "a product between 1e-37 and 1e37",
                         scale, denominator);
    if (!(o->clip >= 0) || isinf(o->clip))
        return gyre_fail(error, GYRE_RANGE,
                         "clip is %g; a limit above 0, or 0 for none, is "
                         "needed",
                         o->clip);
    if (o->early && o->clip > 0)
        return gyre_fail(error, GYRE_INVALID,
                         "an early update cannot wait for the norm: give clip "
                         "0, or not early");
    if (o->early && store->codec != NULL &&
        (gyre_codec_flags(store->codec) & GYRE_CODEC_BARRIER))
        return gyre_fail(error, GYRE_INVALID,
                         "an early update cannot wait for all gradients, which "
                         "compressor %s has to see first: not early, or "
                         "another compressor",
                         store->compressor);
    if (o->late_clip && store->codec == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "late_clip is of a compressor, and this store has "
                         "none");
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
        gyre_status status =
            gyre_opt_values(store->opt, group != NULL ? group->settings : NULL,
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
            status =
                gyre_opt_scalars(store->opt, values, t->step + 1, out, error);
            if (status != GYRE_OK)
                return gyre_fail_prefix(error, status, "group %u", g);
            last = out;
            last_step = t->step + 1;
        }
    }
    return GYRE_OK;
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
                                  (uint16_t)gyre_round_grain_elements(t, g),
                                  memory_order_relaxed);
    }
}

/* A barrier needs all gradients, an exact clip their norm; and an early update
 * takes each chunk from where it came in. */
static void choose_way(gyre_round *round, const gyre_round_options *o)
{
    const gyre_store *store = round->store;
    bool regions =
        store->layout.gradient_grain > 0 && !store->gradients_in_memory;

    round->way = GYRE_WAY_HELD;
    if (store->codec != NULL) {
        round->late = o->clip > 0 && o->late_clip;
        if (!round->early && (o->clip == 0 || round->late) &&
            (gyre_codec_flags(store->codec) & GYRE_CODEC_BARRIER) == 0)
            round->way = GYRE_WAY_STREAMED;
    } else if (regions && !round->early) {
        round->way = GYRE_WAY_SPILLED;
    }
    round->regions = regions && round->way != GYRE_WAY_HELD;
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
    if (status == GYRE_OK)
        status = gyre_store_check_wear(store, error);
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
    pthread_cond_init(&round->taken_some, NULL);
    round->scale = options->loss_scale != 0 ? options->loss_scale : 1;
    if (options->dynamic_scale)
        round->scale = store->now.scaler.scale;
    round->denominator = options->denominator != 0 ? options->denominator : 1;
    round->clip = options->clip;
    round->micro_batches =
        options->micro_batches != 0 ? options->micro_batches : 1;
    round->early = options->early != 0;
    round->dynamic = options->dynamic_scale != 0;
    round->inv = (float)(1.0 / (round->scale * round->denominator));
    round->q = round->inv;
    choose_way(round, options);
    status = gyre_round_allocate(round, error);
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
    else
        gyre_intake_start(round);
    *out = round;
restore:
    gyre_fp_restore(saved);
    return status;
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
    gyre_status status = gyre_round_check_tensor(round, tensor, error);

    if (status != GYRE_OK)
        return status;
    if (round->state != GYRE_ROUND_OPEN)
        return gyre_fail(error, GYRE_STATE, "the update has begun already");
    gyre_round_release_now(round, tensor);
    return GYRE_OK;
}

/* The last micro-batch has nothing for this tensor: its leaves are those of
 * the earlier ones, or it is left alone.  An intake counts it in each. */
static void settle_absent(gyre_round *round, size_t tensor)
{
    gyre_layout *layout = &round->store->layout;
    const gyre_tensor_state *t = &layout->tensors[tensor];
    bool last = round->micro + 1 == round->micro_batches;
    bool spilled = round->way == GYRE_WAY_SPILLED; /* has its leaves */

    if (last && !round->claims[tensor].filled)
        round->skip[tensor] = true;
    if (round->claims[tensor].filled && round->side != NULL &&
        round->side[tensor] == GYRE_SIDE_BORN) {
        gyre_born_absent(round, tensor);
        return;
    }
    for (uint64_t g = t->first_grain; g < t->first_grain + t->grains; g++) {
        if (round->claims[tensor].filled && !spilled)
            gyre_round_take_leaf(round, t, g);
        else
            gyre_round_chunk_done(round, gyre_layout_chunk_of(layout, g), 1);
    }
    if (round->skip[tensor])
        gyre_round_release_now(round, tensor);
}

gyre_status gyre_round_absent(gyre_round *round, size_t tensor,
                              gyre_error *error)
{
    gyre_status status = gyre_round_check_tensor(round, tensor, error);
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
        status =
            gyre_fail(error, GYRE_STATE,
                      "tensor %s: the round takes no more gradients", t->name);
    else if (claim->got > 0 || claim->absent)
        status = gyre_fail(error, GYRE_DUPLICATE,
                           "tensor %s: %s in this micro-batch", t->name,
                           claim->absent ? "said to be absent twice"
                                         : "pieces of it came already");
    else
        claim->absent = true;
    pthread_mutex_unlock(&round->lock);
    if (status == GYRE_OK && (round->micro + 1 == round->micro_batches ||
                              round->way == GYRE_WAY_SPILLED)) {
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
    status = gyre_intake_end(round, error);
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
    gyre_intake_start(round);
    return GYRE_OK;
}
