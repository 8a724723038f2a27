/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl.so.2, as far as module nccl uses it. */
#include "fake_gpu.h"

#include <cuda.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The header declares them without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

extern fake_nccl_state fake_nccl;
EXPORT fake_nccl_state fake_nccl;

enum { POLLS = 2 }; /* questions until something is done */

/* All communicators of one ncclUniqueId. */
typedef struct clique {
    struct clique *next; /* kept, until the process ends */
    _Atomic int ranks, joined, finalized;
} clique;

struct ncclComm {
    int rank, dead, finalizing;
    clique *of;
    int polls;             /* still to be asked */
    struct op *begun;      /* not on its stream yet */
    _Atomic int inside;    /* calls */
    struct ncclComm *next; /* among the dead */
};

typedef struct op {
    struct op *next;
    struct ncclComm *comm;
    fake_stream *stream;
    int send, peer;
    void *data;
    size_t bytes;
} op;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static op *waiting; /* in order */
static struct ncclComm *dead;
static clique *cliques;
static _Thread_local op *group, **group_last;

static int fails(void)
{
    return ++fake_nccl.calls == fake_nccl.fail_at;
}

static void enter(struct ncclComm *comm)
{
    if (comm->inside++ > 0 || comm->dead)
        fake_nccl.wrong++;
}

static void leave(struct ncclComm *comm)
{
    comm->inside--;
}

static void over(op *o)
{
    o->stream->pending--;
    free(o);
}

/* Lock held: meet the first other end, or wait. */
static void post(op *o)
{
    op **at = &waiting;

    for (; *at != NULL; at = &(*at)->next) {
        op *other = *at;

        if (other->send == o->send || other->comm->rank != o->peer ||
            other->peer != o->comm->rank)
            continue;
        if (other->bytes != o->bytes)
            fake_nccl.wrong++;
        else if (o->send)
            memcpy(other->data, o->data, o->bytes);
        else
            memcpy(o->data, other->data, o->bytes);
        *at = other->next;
        over(other);
        over(o);
        fake_nccl.moved++;
        return;
    }
    o->next = NULL;
    *at = o;
}

EXPORT const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclSystemError ? "fake system error" : "fake error";
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    clique *c;

    if (fails())
        return ncclSystemError;
    c = calloc(1, sizeof(*c));
    pthread_mutex_lock(&lock);
    c->next = cliques;
    cliques = c;
    pthread_mutex_unlock(&lock);
    memcpy(id->internal, &c, sizeof(c));
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks,
                                           ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    struct ncclComm *comm;

    if (fails())
        return ncclSystemError;
    if (config->blocking != 0)
        fake_nccl.wrong++;
    comm = calloc(1, sizeof(*comm));
    memcpy(&comm->of, id.internal, sizeof(comm->of));
    comm->rank = rank;
    comm->polls = POLLS;
    comm->of->ranks = ranks;
    comm->of->joined++;
    fake_nccl.live++;
    *out = comm;
    return ncclInProgress;
}

/* Its operations vanish; the memory stays, to see who uses it. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    op **at = &waiting, *gone;

    enter(comm);
    pthread_mutex_lock(&lock);
    while (*at != NULL) {
        gone = *at;
        if (gone->comm == comm) {
            *at = gone->next;
            over(gone);
        } else {
            at = &gone->next;
        }
    }
    while (comm->begun != NULL) {
        gone = comm->begun;
        comm->begun = gone->next;
        free(gone);
    }
    comm->dead = 1;
    comm->next = dead;
    dead = comm;
    fake_nccl.live--;
    pthread_mutex_unlock(&lock);
    leave(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t code = ncclSystemError;

    enter(comm);
    if (!fails()) {
        comm->finalizing = 1;
        comm->polls = POLLS;
        comm->of->finalized++;
        code = ncclInProgress;
    }
    leave(comm);
    return code;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    enter(comm);
    if (!comm->finalizing || comm->of->finalized < comm->of->ranks)
        fake_nccl.wrong++;
    fake_nccl.live--;
    free(comm);
    return ncclSuccess;
}

/* Lock held: what a group has begun goes to its stream. */
static void launch(struct ncclComm *comm)
{
    op *next;

    for (op *o = comm->begun; o != NULL; o = next) {
        next = o->next;
        o->stream->pending++;
        post(o);
    }
    comm->begun = NULL;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    const clique *of = comm->of;

    enter(comm);
    if (fails()) {
        *state = ncclSystemError;
    } else if (of->joined < of->ranks ||
               (comm->finalizing && of->finalized < of->ranks)) {
        *state = ncclInProgress;
    } else if (comm->polls > 0) {
        comm->polls--;
        *state = ncclInProgress;
    } else {
        pthread_mutex_lock(&lock);
        launch(comm);
        pthread_mutex_unlock(&lock);
        *state = ncclSuccess;
    }
    leave(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    group = NULL;
    group_last = &group;
    return fails() ? ncclSystemError : ncclSuccess;
}

/* A group here has one communicator. */
EXPORT ncclResult_t ncclGroupEnd(void)
{
    struct ncclComm *comm = group != NULL ? group->comm : NULL;
    int failed = fails();
    op *next;

    if (comm == NULL)
        return failed ? ncclSystemError : ncclSuccess;
    enter(comm);
    fake_nccl.inside++;
    while (fake_nccl.gate)
        sched_yield();
    fake_nccl.inside--;
    if (failed) {
        for (op *o = group; o != NULL; o = next) {
            next = o->next;
            free(o);
        }
    } else {
        comm->begun = group;
        comm->polls = POLLS;
    }
    group = NULL;
    leave(comm);
    return failed ? ncclSystemError : ncclInProgress;
}

static ncclResult_t add(int send, void *data, size_t bytes, int peer,
                        ncclComm_t comm, cudaStream_t stream)
{
    op *o;

    enter(comm);
    leave(comm);
    if (fails())
        return ncclSystemError;
    o = calloc(1, sizeof(*o));
    o->comm = comm;
    o->stream = (fake_stream *)(void *)stream;
    o->send = send;
    o->peer = peer;
    o->data = data;
    o->bytes = bytes;
    *group_last = o;
    group_last = &o->next;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void *data, size_t count,
                             ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    (void)type;
    return add(1, (void *)(uintptr_t)data, count, peer, comm, stream);
}

EXPORT ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t comm, cudaStream_t stream)
{
    (void)type;
    return add(0, data, count, peer, comm, stream);
}
