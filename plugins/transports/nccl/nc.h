/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport module for NCCL, inside.  The driver and NCCL are opened at run
 * time.  All ranks are in this process, rank r on GPU r.
 *
 *     nc_load.c   libcuda, libnccl; messages when they are missing
 *     nc_pair.c   do both ends of a pair say the same?
 *     nc_comm.c   the communicator of a rank: made, waited for, given back
 *     nc_rank.c   a rank's thread: one group after the other
 *     nccl.c      the carrier's table
 *
 * NCCL knows neither channels nor sizes of the other end: the i-th send of a
 * pair of ranks meets the i-th receive, and ends that disagree hang.  So all
 * lanes are folded to one, a group is sorted by peer and channel at both ends,
 * and before a message is given to NCCL its end is compared, on the host, with
 * the other end of the same number.
 *
 *     host memory --> staging on the GPU -- ncclGroup --> staging --> host
 *
 * The staging memory of a rank holds one group; it grows up to a bound.
 *
 * A communicator is its rank's thread's alone, from its making to its end: NCCL
 * frees it in ncclCommAbort, whoever is in a call with it then.  So that this
 * thread is never kept in a call by a peer that does not come, communicators
 * do not block: what a call begins is asked for (nc_settle), and the thread
 * sees between two questions that the world is broken.
 */
#ifndef GYRE_PLUGINS_NCCL_NC_H
#define GYRE_PLUGINS_NCCL_NC_H

#include <cuda.h>
#include <nccl.h>

#include "transport/module.h"

#include <pthread.h>

#define NC_CUDA_CALLS(X)         \
    X(cuInit)                    \
    X(cuGetErrorName)            \
    X(cuDeviceGetCount)          \
    X(cuDeviceGet)               \
    X(cuDevicePrimaryCtxRetain)  \
    X(cuDevicePrimaryCtxRelease) \
    X(cuCtxSetCurrent)           \
    X(cuStreamCreate)            \
    X(cuStreamDestroy)           \
    X(cuStreamQuery)             \
    X(cuStreamSynchronize)       \
    X(cuMemAlloc)                \
    X(cuMemFree)                 \
    X(cuMemcpyHtoDAsync)         \
    X(cuMemcpyDtoHAsync)

#define NC_NCCL_CALLS(X)      \
    X(ncclGetErrorString)     \
    X(ncclGetUniqueId)        \
    X(ncclCommInitRankConfig) \
    X(ncclCommFinalize)       \
    X(ncclCommDestroy)        \
    X(ncclCommAbort)          \
    X(ncclCommGetAsyncError)  \
    X(ncclGroupStart)         \
    X(ncclGroupEnd)           \
    X(ncclSend)               \
    X(ncclRecv)

typedef struct nc_calls {
#define NC_POINTER(name) __typeof__(&name) name;
    NC_CUDA_CALLS(NC_POINTER)
    NC_NCCL_CALLS(NC_POINTER)
#undef NC_POINTER
} nc_calls;

/* One end of a message that the other end has not announced yet. */
typedef struct nc_notice {
    struct nc_notice *next;
    uint32_t channel;
    uint64_t number, bytes;
} nc_notice;

/* All messages from one rank to another. */
typedef struct nc_pair {
    nc_notice *first, *last; /* ahead of the other end */
    bool puts;               /* whose they are */
} nc_pair;

typedef struct nc_world nc_world;

typedef struct nc_rank {
    nc_world *world;
    uint32_t rank;
    bool started;
    pthread_t thread;
    CUdevice device;
    CUcontext context; /* NULL: not retained */
    ncclComm_t comm;   /* the thread's alone; NULL: not made, or aborted */
    CUstream stream;
    CUdeviceptr staging;
    uint64_t staging_bytes;
    gyre_cargo *first, *last; /* groups; a group ends where `left` is 1 */
    pthread_cond_t changed;
} nc_rank;

struct nc_world {
    const gyre_transport_services *services;
    nc_calls calls;
    uint32_t ranks;
    uint64_t staging; /* at most, per rank */
    nc_rank *rank;
    ncclUniqueId id;
    nc_pair *pairs;       /* [from * ranks + to] */
    pthread_mutex_t lock; /* of the queues, pairs and what follows */
    pthread_cond_t came;  /* up changed */
    uint32_t up;          /* threads that have made a communicator, or failed */
    bool stop, aborted;
    gyre_status status;
    char text[GYRE_ERROR_TEXT];
};

gyre_status nc_say(gyre_error *error, gyre_status status, const char *format,
                   ...) GYRE_PRINTF(3, 4);
gyre_status nc_cuda_fail(const nc_calls *calls, gyre_error *error,
                         const char *what, CUresult code);
gyre_status nc_nccl_fail(const nc_calls *calls, gyre_error *error,
                         const char *what, ncclResult_t code);

/* ---- nc_load.c ------------------------------------------------------- */

/* Both libraries, the driver started; *gpus: how many it sees. */
gyre_status nc_load(nc_calls *calls, int *gpus, gyre_error *error);

/* ---- nc_pair.c ------------------------------------------------------- */

/* Announce one end, or compare it with the other's.  Locks. */
gyre_status nc_announce(nc_world *world, const gyre_cargo *cargo,
                        gyre_error *error);
void nc_forget_pairs(nc_world *world);

/* ---- nc_comm.c; but for the first two, the rank's thread alone --------- */

/* Break the world; the first call's reason stays.  Locks. */
void nc_abort(nc_world *world, gyre_status status, const char *text);
/* STOPPED when the world is broken.  Locks. */
gyre_status nc_check(nc_world *world, gyre_error *error);
gyre_status nc_comm_open(nc_rank *rank, gyre_error *error);
/* *busy: NCCL is still at what the last call began.  Fails when that failed,
 * and when the world is broken. */
gyre_status nc_comm_look(nc_rank *rank, bool *busy, gyre_error *error);
/* Until it is not. */
gyre_status nc_settle(nc_rank *rank, gyre_error *error);
void nc_nap(void);
/* Without waiting for anybody; what was under way is given up. */
void nc_comm_abort(nc_rank *rank);
/* With all other ranks, unless the world is broken. */
void nc_comm_close(nc_rank *rank);

/* ---- nc_rank.c ------------------------------------------------------- */

gyre_status nc_rank_open(nc_rank *rank, gyre_error *error);
/* After its thread was joined. */
void nc_rank_close(nc_rank *rank);
void *nc_rank_main(void *rank);

#endif
