/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl.so.2, as far as module nccl uses it. */
#include "fake_gpu.h"

#include <cuda.h>
#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The header declares them without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

extern fake_nccl_state fake_nccl;
EXPORT fake_nccl_state fake_nccl;

struct ncclComm {
    int rank, dead;
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
static _Thread_local op *group, **group_last;

static int fails(void)
{
    return ++fake_nccl.calls == fake_nccl.fail_at;
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

EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count,
                                    const int *devices)
{
    (void)devices;
    if (fails())
        return ncclSystemError;
    for (int i = 0; i < count; i++) {
        comms[i] = calloc(1, sizeof(*comms[i]));
        comms[i]->rank = i;
        fake_nccl.live++;
    }
    return ncclSuccess;
}

/* Its operations vanish; the memory stays, to see who uses it. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    op **at = &waiting, *gone;

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
    comm->dead = 1;
    comm->next = dead;
    dead = comm;
    fake_nccl.live--;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm->dead)
        fake_nccl.wrong++;
    fake_nccl.live--;
    free(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (comm->dead)
        fake_nccl.wrong++;
    *state = fails() ? ncclSystemError : ncclSuccess;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    group = NULL;
    group_last = &group;
    return fails() ? ncclSystemError : ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    int failed = fails();
    op *next;

    pthread_mutex_lock(&lock);
    for (op *o = group; o != NULL; o = next) {
        next = o->next;
        if (failed || o->comm->dead)
            over(o);
        else
            post(o);
    }
    pthread_mutex_unlock(&lock);
    group = NULL;
    return failed ? ncclSystemError : ncclSuccess;
}

static ncclResult_t add(int send, void *data, size_t bytes, int peer,
                        ncclComm_t comm, cudaStream_t stream)
{
    op *o;

    if (fails())
        return ncclSystemError;
    o = calloc(1, sizeof(*o));
    o->comm = comm;
    o->stream = (fake_stream *)(void *)stream;
    o->send = send;
    o->peer = peer;
    o->data = data;
    o->bytes = bytes;
    o->stream->pending++;
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
