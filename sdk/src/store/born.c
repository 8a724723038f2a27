/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients that are compressed where they are born (device/birth.h).
 *
 * Every tensor has a side in a round, which its first piece chooses: HERE, or
 * BORN when the piece lies in memory that the birthplace can read.  Pieces of
 * the other kind are brought over.  The residual in force is on one side, too:
 * before the first piece it moves to the side of the round.  So no result
 * depends on sides, and nothing but payloads and leaves moves while a tensor
 * keeps its own.
 *
 * The birthplace is opened by the first piece that comes from a device, in the
 * context of that piece, and stays until the store is closed.
 */
#include "config.h"

#include "device/birth.h"
#include "store/ledger.h"
#include "store/round.h"

/* ---- the birthplace --------------------------------------------------- */

/* Told once a store: bits are the same, the bytes on the link are not. */
static void refuse(gyre_store *store, const gyre_error *why)
{
    store->birth_refused = true;
    gyre_log(store->context, GYRE_LOG_WARNING,
             "store %s: gradients born on a device are copied whole and "
             "compressed on the host: %s",
             store->path, why->text);
}

static gyre_status open_birth(gyre_store *store, const gyre_gradient *piece,
                              gyre_error *error)
{
    gyre_birth_spec spec = {.first = piece,
                            .codec = store->codec,
                            .grains = store->layout.train_grains,
                            .residual = store->residual.kappa != NULL};
    gyre_error why = {GYRE_OK, ""};
    gyre_status status =
        gyre_birth_open(store->context, &spec, &store->birth, &why);

    if (status == GYRE_UNSUPPORTED)
        refuse(store, &why);
    /* what is wrong with the piece itself is told when it is copied */
    if (status == GYRE_UNSUPPORTED || status == GYRE_INVALID ||
        status == GYRE_NOT_FOUND)
        return GYRE_OK;
    if (status != GYRE_OK && error != NULL)
        *error = why;
    return status;
}

gyre_status gyre_born_reaches(gyre_round *round, const gyre_gradient *piece,
                              uint64_t bytes, bool *reaches, gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_status status = GYRE_OK;

    *reaches = false;
    if (store->codec == NULL)
        return GYRE_OK;
    pthread_mutex_lock(&store->birth_lock);
    if (store->birth == NULL && !store->birth_refused)
        status = open_birth(store, piece, error);
    gyre_birth *birth = store->birth;
    pthread_mutex_unlock(&store->birth_lock);
    if (status == GYRE_OK && birth != NULL)
        *reaches = gyre_birth_reaches(birth, piece, bytes);
    return status;
}

/* ---- sides ------------------------------------------------------------ */

/* The residual of a run in force: to the other side, to where it lies here. */
static gyre_status move_run(gyre_store *store, uint64_t chunk,
                            const gyre_run *run, bool born, bool zero,
                            gyre_error *error)
{
    gyre_residual_memory *r = &store->residual;
    uint32_t version = r->which[chunk];
    uint64_t at =
        gyre_layout_first_grain(&store->layout, chunk) * GYRE_GRAIN + run->at;
    gyre_ledger l = {.born_residual = run->n * sizeof(float)};
    gyre_status status;

    if (born && zero)
        return gyre_birth_clear(store->birth, version, at, run->n, error);
    if (born)
        status = gyre_birth_write(store->birth, version, at, run->n,
                                  r->e[version] + at, error);
    else
        status = gyre_birth_read(store->birth, version, at, run->n,
                                 r->e[version] + at, error);
    gyre_store_count(store, &l);
    return status;
}

/* Under birth_lock. */
static gyre_status move_residual(gyre_store *store, size_t tensor, bool born,
                                 gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    const gyre_tensor_state *t = &layout->tensors[tensor];
    uint8_t *at = &store->residual.at[tensor];
    gyre_status status = GYRE_OK;

    if ((*at == GYRE_E_BORN) == born) {
        if (!born)
            *at = GYRE_E_HERE;
        return GYRE_OK;
    }
    for (uint64_t c = gyre_layout_chunk_of(layout, t->first_grain);
         status == GYRE_OK && t->grains > 0 &&
         c <= gyre_layout_chunk_of(layout, t->first_grain + t->grains - 1);
         c++) {
        size_t cursor = GYRE_RUN_FIRST;
        gyre_run run;

        while (status == GYRE_OK &&
               gyre_layout_next_run(layout, c, &cursor, &run))
            if (run.tensor == tensor)
                status =
                    move_run(store, c, &run, born, *at == GYRE_E_ZERO, error);
    }
    if (status == GYRE_OK)
        *at = born ? GYRE_E_BORN : GYRE_E_HERE;
    return status;
}

gyre_status gyre_born_settle(gyre_round *round, size_t tensor, bool wanted,
                             bool *born, gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_status status = GYRE_OK;

    *born = false;
    if (round->side == NULL)
        return GYRE_OK;
    pthread_mutex_lock(&round->lock);
    if (round->side[tensor] == GYRE_SIDE_NONE)
        round->side[tensor] = wanted ? GYRE_SIDE_BORN : GYRE_SIDE_HERE;
    *born = round->side[tensor] == GYRE_SIDE_BORN;
    pthread_mutex_unlock(&round->lock);
    if (store->residual.kappa == NULL)
        return GYRE_OK;
    pthread_mutex_lock(&store->birth_lock);
    status = move_residual(store, tensor, *born, error);
    pthread_mutex_unlock(&store->birth_lock);
    if (status != GYRE_OK)
        return gyre_fail_prefix(error, status,
                                "tensor %s: its residual between host and "
                                "device",
                                store->layout.tensors[tensor].name);
    return GYRE_OK;
}

/* ---- pieces ----------------------------------------------------------- */

enum { ROOM = 1 << 16 }; /* elements from the host at a time */

/* From memory of the host, which may be of any dtype. */
static gyre_status give_piece(gyre_round *round, const gyre_gradient *g,
                              uint64_t to, uint64_t count, bool add,
                              float *room, gyre_error *error)
{
    size_t stride = g->stride != 0 ? (size_t)g->stride : 1;
    const char *src = (const char *)g->data + g->offset;
    gyre_ledger l = {.born_gradient = count * sizeof(float)};
    gyre_status status = GYRE_OK;

    for (uint64_t at = 0; status == GYRE_OK && at < count; at += ROOM) {
        size_t n = count - at < ROOM ? (size_t)(count - at) : (size_t)ROOM;

        gyre_to_f32(g->dtype, src, stride, room, n);
        src += n * stride * gyre_dtype_bytes(g->dtype);
        status =
            gyre_birth_give(round->store->birth, room, to + at, n, add, error);
    }
    gyre_store_count(round->store, &l);
    return status;
}

/* Leaves of whole grains, one behind the other. */
static gyre_status take_leaves(gyre_round *round, const gyre_tensor_state *t,
                               uint64_t grain, uint64_t grains,
                               gyre_error *error)
{
    gyre_store *store = round->store;
    uint64_t before = (grain - t->first_grain) * GYRE_GRAIN;
    uint64_t elements = grains * GYRE_GRAIN;
    gyre_ledger l = {.born_leaves = grains * sizeof(double)};
    gyre_status status;

    if (grains == 0)
        return GYRE_OK;
    if (elements > t->elements - before)
        elements = t->elements - before;
    status = gyre_birth_leaves(store->birth, grain, elements,
                               round->leaves + grain, error);
    if (status != GYRE_OK)
        return status;
    gyre_store_count(store, &l);
    for (uint64_t g = grain; g < grain + grains; g++)
        gyre_round_chunk_done(round, gyre_layout_chunk_of(&store->layout, g),
                              1);
    return GYRE_OK;
}

/* Of these elements all are there now: grains of which nothing is missing have
 * their leaves taken, as many at once as can be. */
static gyre_status count_piece(gyre_round *round, const gyre_tensor_state *t,
                               uint64_t first, uint64_t count,
                               gyre_error *error)
{
    const bool last = round->micro + 1 == round->micro_batches;
    gyre_status status = GYRE_OK;
    uint64_t from = 0, grains = 0;

    while (status == GYRE_OK && count > 0) {
        uint64_t grain = t->first_grain + first / GYRE_GRAIN;
        uint64_t room = GYRE_GRAIN - first % GYRE_GRAIN;
        uint64_t n = room < count ? room : count;
        bool came =
            atomic_fetch_sub_explicit(&round->grain_left[grain], (uint16_t)n,
                                      memory_order_acq_rel) == n;

        first += n;
        count -= n;
        if (came && last) {
            from = grains == 0 ? grain : from;
            grains++;
            continue;
        }
        status = take_leaves(round, t, from, grains, error);
        grains = 0;
    }
    if (status == GYRE_OK)
        status = take_leaves(round, t, from, grains, error);
    return status;
}

/* What the device did not do cannot be told from what it did: the round is
 * lost, and ends with this. */
static void lose(gyre_round *round, const gyre_error *why)
{
    pthread_mutex_lock(&round->lock);
    if (round->why.status == GYRE_OK)
        round->why = *why;
    pthread_mutex_unlock(&round->lock);
}

gyre_status gyre_born_piece(gyre_round *round, size_t tensor, uint64_t first,
                            uint64_t count, const gyre_gradient *gradient,
                            gyre_error *error)
{
    gyre_store *store = round->store;
    const gyre_tensor_state *t = &store->layout.tensors[tensor];
    const bool here = gradient->kind == GYRE_HOST_MEMORY;
    uint64_t to = t->first_grain * GYRE_GRAIN + first;
    float *room = here ? gyre_alloc(store->context, ROOM, sizeof(float)) : NULL;
    gyre_error why = {GYRE_OK, ""};
    gyre_status status;
    bool add = false;

    if (here && room == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "tensor %s: no memory to bring it to the device of "
                         "its other pieces",
                         t->name);
    status = gyre_round_claim(round, tensor, first, first + count, &add, error);
    if (status == GYRE_OK) {
        gyre_fp saved = gyre_fp_pin();

        if (here)
            status = give_piece(round, gradient, to, count, add, room, &why);
        else
            status =
                gyre_birth_take(store->birth, gradient, to, count, add, &why);
        if (status == GYRE_OK)
            status = count_piece(round, t, first, count, &why);
        gyre_fp_restore(saved);
        if (status != GYRE_OK) {
            gyre_fail_prefix(&why, status, "tensor %s", t->name);
            lose(round, &why);
            if (error != NULL)
                *error = why;
        }
    }
    gyre_free(store->context, room, ROOM, sizeof(float));
    return status;
}

void gyre_born_absent(gyre_round *round, size_t tensor)
{
    const gyre_tensor_state *t = &round->store->layout.tensors[tensor];
    gyre_error why = {GYRE_OK, ""};

    if (take_leaves(round, t, t->first_grain, t->grains, &why) != GYRE_OK) {
        gyre_fail_prefix(&why, why.status, "tensor %s", t->name);
        lose(round, &why);
    }
}

/* ---- runs, in their workers ------------------------------------------- */

gyre_status gyre_born_compress(const gyre_round *round, uint64_t chunk,
                               const gyre_run *run, gyre_feedback_job *job,
                               gyre_error *error)
{
    gyre_store *store = round->store;
    const gyre_residual_memory *r = &store->residual;
    uint64_t grain =
        gyre_layout_first_grain(&store->layout, chunk) + run->at / GYRE_GRAIN;
    uint64_t grains = (run->n + GYRE_GRAIN - 1) / GYRE_GRAIN;
    gyre_ledger l = {.born_leaves = grains * sizeof(double)};
    gyre_status status =
        gyre_birth_encode(store->birth, job, grain,
                          r->which != NULL ? r->which[chunk] : 0, error);

    if (status != GYRE_OK)
        return gyre_fail_prefix(error, status, "tensor %s",
                                store->layout.tensors[run->tensor].name);
    for (uint64_t g = 0; g < grains; g++) {
        uint64_t left = run->n - g * GYRE_GRAIN;

        l.born_payload += gyre_codec_grain_bytes(
            store->codec, left < GYRE_GRAIN ? (size_t)left : GYRE_GRAIN);
    }
    gyre_store_count(store, &l);
    return GYRE_OK;
}

gyre_status gyre_born_keep(const gyre_store *store, uint64_t chunk,
                           const gyre_run *run, gyre_error *error)
{
    return gyre_birth_copy(
        store->birth, store->residual.which[chunk],
        gyre_layout_first_grain(&store->layout, chunk) * GYRE_GRAIN + run->at,
        run->n, error);
}

gyre_status gyre_born_residual(gyre_store *store, uint64_t chunk,
                               const gyre_run *run, float *out,
                               gyre_error *error)
{
    gyre_ledger l = {.born_residual = run->n * sizeof(float)};

    gyre_store_count(store, &l);
    return gyre_birth_read(
        store->birth, store->residual.which[chunk],
        gyre_layout_first_grain(&store->layout, chunk) * GYRE_GRAIN + run->at,
        run->n, out, error);
}
