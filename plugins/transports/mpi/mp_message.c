/* SPDX-License-Identifier: Apache-2.0 */
/* A cargo as MPI messages. */
#include "config.h"

#include "mp.h"

#include <stdio.h>
#include <string.h>

static void *take(mp_world *world, size_t bytes)
{
    return world->services->take(world->services->user, bytes);
}

static void give(mp_world *world, void *block, size_t bytes)
{
    if (block != NULL)
        world->services->give(world->services->user, block, bytes);
}

/* ---- the table of parts ---------------------------------------------- */

/* One block: parts, statuses, requests, indices. */
static size_t table_bytes(uint32_t room)
{
    return room * (sizeof(mp_part) + sizeof(MPI_Status) + sizeof(MPI_Request) +
                   sizeof(int));
}

static bool reserve(mp_world *world, uint64_t more)
{
    mp_part *old_parts = world->parts;
    MPI_Request *old_requests = world->requests;
    uint32_t old_room = world->room;
    uint64_t want = world->count + more, room = 2 * (uint64_t)world->room;
    uint8_t *block;

    if (want <= world->room)
        return true;
    if (want > INT32_MAX / 2)
        return false;
    if (room < want)
        room = want < 64 ? 64 : want;
    block = take(world, table_bytes((uint32_t)room));
    if (block == NULL)
        return false;
    world->room = (uint32_t)room;
    world->parts = (mp_part *)(void *)block;
    world->statuses = (MPI_Status *)(void *)(world->parts + room);
    world->requests = (MPI_Request *)(void *)(world->statuses + room);
    world->indices = (int *)(void *)(world->requests + room);
    if (world->count > 0) {
        memcpy(world->parts, old_parts, world->count * sizeof(mp_part));
        memcpy(world->requests, old_requests,
               world->count * sizeof(MPI_Request));
    }
    give(world, old_parts, table_bytes(old_room));
    return true;
}

void mp_free_table(mp_world *world)
{
    give(world, world->parts, table_bytes(world->room));
    world->parts = NULL;
    world->count = world->room = 0;
}

/* ---- the end --------------------------------------------------------- */

static void remember(mp_world *world, gyre_status status, const char *text)
{
    if (world->failure.status != GYRE_OK)
        return;
    world->failure.status = (int32_t)status;
    snprintf(world->failure.text, sizeof(world->failure.text), "%s", text);
}

static void cargo_over(mp_world *world, gyre_cargo *cargo)
{
    if (cargo == &world->telling)
        return;
    cargo->next = NULL;
    *world->ended_last = cargo;
    world->ended_last = &cargo->next;
}

/* `mine` of a cargo that failed is the world, else NULL. */
static void mark(mp_world *world, gyre_cargo *cargo, gyre_status status,
                 const char *text)
{
    cargo->mine = world;
    remember(world, status, text);
}

void mp_part_over(mp_world *world, uint32_t index, gyre_status status,
                  const char *text)
{
    gyre_cargo *cargo = world->parts[index].cargo;

    world->count--;
    world->parts[index] = world->parts[world->count];
    world->requests[index] = world->requests[world->count];
    if (status != GYRE_OK)
        mark(world, cargo, status, text);
    if (--cargo->left == 0)
        cargo_over(world, cargo);
}

void mp_refuse(mp_world *world, gyre_cargo *cargo, gyre_status status,
               const char *text)
{
    mark(world, cargo, status, text);
    cargo_over(world, cargo);
}

void mp_flush(mp_world *world)
{
    const gyre_transport_services *services = world->services;
    gyre_cargo *cargo = world->ended, *next;

    world->ended = NULL;
    world->ended_last = &world->ended;
    if (world->failure.status != GYRE_OK && !world->failure_told) {
        world->failure_told = true;
        services->broken(services->user, (gyre_status)world->failure.status,
                         world->failure.text);
    }
    for (; cargo != NULL; cargo = next) {
        next = cargo->next;
        if (cargo->mine != NULL)
            services->ended(services->user, cargo,
                            (gyre_status)world->failure.status,
                            world->failure.text);
        else
            services->ended(services->user, cargo, GYRE_OK, NULL);
    }
}

/* ---- starting -------------------------------------------------------- */

/* Where a piece [at, at + bytes) of a message lies: a datatype over its
 * extents, or *single when they are one. */
typedef struct layout {
    uint32_t count;
    int *lengths;
    MPI_Aint *places;
    void *single;
} layout;

static size_t layout_bytes(uint32_t count)
{
    return count * (sizeof(MPI_Aint) + sizeof(int));
}

static void add(layout *l, void *at, size_t bytes)
{
    MPI_Aint place = (MPI_Aint)(uintptr_t)at;

    if (bytes == 0)
        return;
    if (l->count > 0 &&
        l->places[l->count - 1] + l->lengths[l->count - 1] == place) {
        l->lengths[l->count - 1] += (int)bytes;
        return;
    }
    l->places[l->count] = place;
    l->lengths[l->count++] = (int)bytes;
}

/* A piece is at most 1 GiB, so that every length fits an int. */
static void lay_out(const gyre_message *message, uint64_t from, uint64_t bytes,
                    layout *l)
{
    l->count = 0;
    for (uint32_t i = 0; i < message->extent_count && bytes > 0; i++) {
        const gyre_extent *e = &message->extents[i];
        uint64_t skip = from < e->bytes ? from : e->bytes;
        uint64_t n = e->bytes - skip < bytes ? e->bytes - skip : bytes;

        add(l, (uint8_t *)e->at + skip, n);
        from -= skip;
        bytes -= n;
    }
    l->single =
        l->count == 1 ? (void *)(uintptr_t)(uint64_t)l->places[0] : NULL;
}

static int send_or_receive(mp_world *world, const gyre_cargo *cargo, void *at,
                           int count, MPI_Datatype type, MPI_Request *request)
{
    const gyre_message *m = &cargo->message;
    MPI_Comm comm = cargo->control ? world->control : world->data;
    int tag = (cargo->control ? MP_CONTROL_TAG : MP_DATA_TAG) + (int)m->channel;

    return m->put ? world->mpi.MPI_Isend(at, count, type, (int)m->peer, tag,
                                         comm, request)
                  : world->mpi.MPI_Irecv(at, count, type, (int)m->peer, tag,
                                         comm, request);
}

static int start_piece(mp_world *world, const gyre_cargo *cargo,
                       const layout *l, uint64_t bytes, MPI_Request *request)
{
    const mp_calls *mpi = &world->mpi;
    MPI_Datatype type;
    int code;

    if (l->count <= 1)
        return send_or_receive(world, cargo, l->single, (int)bytes, mpi->byte,
                               request);
    code = mpi->MPI_Type_create_hindexed((int)l->count, l->lengths, l->places,
                                         mpi->byte, &type);
    if (code != MPI_SUCCESS)
        return code;
    code = mpi->MPI_Type_commit(&type);
    if (code == MPI_SUCCESS)
        code = send_or_receive(world, cargo, MPI_BOTTOM, 1, type, request);
    (void)mpi->MPI_Type_free(&type); /* once its message is over */
    return code;
}

void mp_post(mp_world *world, gyre_cargo *cargo)
{
    const gyre_message *m = &cargo->message;
    uint64_t pieces = m->bytes / world->piece + (m->bytes % world->piece != 0);
    uint32_t extents = m->extent_count > 0 ? m->extent_count : 1;
    layout l = {0};
    gyre_error error;
    int code = MPI_SUCCESS;

    if (pieces == 0)
        pieces = 1; /* an empty message is one as well */
    l.places = take(world, layout_bytes(extents));
    if (l.places == NULL || !reserve(world, pieces)) {
        give(world, l.places, layout_bytes(extents));
        mp_refuse(world, cargo, GYRE_NO_MEMORY, "mpi: a message: no memory");
        return;
    }
    l.lengths = (int *)(void *)(l.places + extents);
    cargo->mine = NULL;
    cargo->left = 1; /* while it is being started */
    for (uint64_t p = 0; p < pieces && code == MPI_SUCCESS; p++) {
        uint64_t at = p * world->piece;
        uint64_t bytes =
            m->bytes - at < world->piece ? m->bytes - at : world->piece;

        lay_out(m, at, bytes, &l);
        code = start_piece(world, cargo, &l, bytes,
                           &world->requests[world->count]);
        if (code == MPI_SUCCESS) {
            world->parts[world->count++] = (mp_part){cargo, bytes};
            cargo->left++;
        }
    }
    give(world, l.places, layout_bytes(extents));
    if (code != MPI_SUCCESS) {
        mp_fail(&world->mpi, &error, "a message does not start", code);
        mark(world, cargo, error.status, error.text);
    }
    if (--cargo->left == 0)
        cargo_over(world, cargo);
}

void mp_tell(mp_world *world)
{
    gyre_cargo *cargo = &world->telling;

    if (!reserve(world, world->ranks))
        return;
    cargo->message.put = true;
    for (uint32_t r = 0; r < world->ranks; r++) {
        if (r == world->rank ||
            world->mpi.MPI_Isend(&world->word, (int)sizeof(world->word),
                                 world->mpi.byte, (int)r, MP_WORD_TAG,
                                 world->control,
                                 &world->requests[world->count]) != MPI_SUCCESS)
            continue;
        world->parts[world->count++] = (mp_part){cargo, sizeof(world->word)};
        cargo->left++;
    }
}

/* ---- asking ---------------------------------------------------------- */

static void name_ends(const mp_world *world, const gyre_cargo *cargo,
                      const char *sent, uint64_t takes, char *text, size_t size)
{
    snprintf(text, size,
             "the put of rank %u has %s bytes, the get of rank %u that it "
             "meets takes %llu: channel %u, number %llu%s; both ends must "
             "agree on bytes and order",
             cargo->message.peer, sent, world->rank, (unsigned long long)takes,
             cargo->message.channel, (unsigned long long)cargo->number,
             cargo->message.bytes > world->piece
                 ? " (a piece of each; both are cut alike)"
                 : "");
}

/* What MPI says of a part that is over. */
static gyre_status judge(mp_world *world, const mp_part *part,
                         MPI_Status *status, int code, char *text, size_t size)
{
    const gyre_cargo *cargo = part->cargo;
    int klass = MPI_SUCCESS, got = 0, cancelled = 0;
    char sent[48];
    gyre_error error;

    if (world->cancelling &&
        world->mpi.MPI_Test_cancelled(status, &cancelled) == MPI_SUCCESS &&
        cancelled) {
        snprintf(text, size, "%s", world->word.text);
        return (gyre_status)world->word.status;
    }
    if (code != MPI_SUCCESS)
        (void)world->mpi.MPI_Error_class(code, &klass);
    if (code != MPI_SUCCESS && klass != MPI_ERR_TRUNCATE) {
        mp_fail(&world->mpi, &error,
                cargo->message.put ? "a put failed" : "a get failed", code);
        snprintf(text, size,
                 "%.600s: rank %u, peer %u, channel %u, number %llu",
                 error.text, world->rank, cargo->message.peer,
                 cargo->message.channel, (unsigned long long)cargo->number);
        return GYRE_IO;
    }
    if (cargo->message.put)
        return GYRE_OK;
    if (world->mpi.MPI_Get_count(status, world->mpi.byte, &got) != MPI_SUCCESS)
        got = -1;
    if (klass == MPI_SUCCESS && (uint64_t)got == part->bytes)
        return GYRE_OK;
    if (klass != MPI_SUCCESS && (got < 0 || (uint64_t)got <= part->bytes))
        snprintf(sent, sizeof(sent), "more than %llu",
                 (unsigned long long)part->bytes);
    else
        snprintf(sent, sizeof(sent), "%d", got);
    name_ends(world, cargo, sent, part->bytes, text, size);
    return GYRE_INVALID;
}

bool mp_progress(mp_world *world)
{
    int ended = 0, code;
    char text[GYRE_ERROR_TEXT];

    if (world->count == 0)
        return false;
    code = world->mpi.MPI_Testsome((int)world->count, world->requests, &ended,
                                   world->indices, world->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        gyre_error error;

        mp_fail(&world->mpi, &error, "MPI_Testsome", code);
        remember(world, error.status, error.text);
        return false;
    }
    if (ended == MPI_UNDEFINED || ended <= 0)
        return false;
    /* From the highest index down: ending one moves the last into its place,
     * and MPI gives them in ascending order. */
    for (int i = ended - 1; i >= 0; i--) {
        uint32_t at = (uint32_t)world->indices[i];
        int own = code == MPI_ERR_IN_STATUS ? world->statuses[i].MPI_ERROR
                                            : MPI_SUCCESS;
        gyre_status status =
            judge(world, &world->parts[at], &world->statuses[i], own, text,
                  sizeof(text));

        mp_part_over(world, at, status, text);
    }
    return true;
}
