/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport module for Open MPI, inside.  libmpi is opened at run time, for
 * all symbols (its components need them) and for ever.
 *
 *     mp_load.c     libmpi: functions, start and end of MPI
 *     mp_message.c  a cargo as MPI messages: cutting, sending, ending
 *     mp_thread.c   the loop that owns all MPI calls; failure
 *     mpi.c         the carrier's table
 *
 * Open MPI 4 makes progress in its own calls only, so that one thread per world
 * does nothing else:
 *
 *     begin --> queue --> Isend/Irecv --> Testsome ... --> ended
 *
 * It asks again at once after something came, then with naps, since two CPUs
 * may have to serve eight ranks.  Worlds of one process take turns by one lock:
 * MPI_THREAD_SERIALIZED is enough.
 *
 * A cargo of more than `piece` bytes is several messages, cut alike at both
 * ends as sizes must agree.  Extents that do not touch are an MPI datatype: no
 * staging memory, whose bound could stop a plan that is free of deadlock.
 *
 * Failure travels as a message of its own (`mp_word`) on the control
 * communicator, for which every rank always has a receive.
 *
 * Open MPI installs signal handlers and writes to stderr by itself.
 */
#ifndef GYRE_PLUGINS_MPI_MP_H
#define GYRE_PLUGINS_MPI_MP_H

#include <mpi.h>

#include "transport/module.h"

#include <pthread.h>

#ifndef OPEN_MPI
#error "mpi.h is not Open MPI's: its handles are found by their names there"
#endif

#define MP_CALLS(X)             \
    X(MPI_Initialized)          \
    X(MPI_Finalized)            \
    X(MPI_Init_thread)          \
    X(MPI_Query_thread)         \
    X(MPI_Finalize)             \
    X(MPI_Comm_dup)             \
    X(MPI_Comm_split_type)      \
    X(MPI_Comm_free)            \
    X(MPI_Comm_rank)            \
    X(MPI_Comm_size)            \
    X(MPI_Comm_set_errhandler)  \
    X(MPI_Error_string)         \
    X(MPI_Error_class)          \
    X(MPI_Isend)                \
    X(MPI_Irecv)                \
    X(MPI_Test)                 \
    X(MPI_Testsome)             \
    X(MPI_Cancel)               \
    X(MPI_Get_count)            \
    X(MPI_Test_cancelled)       \
    X(MPI_Type_create_hindexed) \
    X(MPI_Type_commit)          \
    X(MPI_Type_free)

typedef struct mp_calls {
#define MP_POINTER(name) __typeof__(&name) name;
    MP_CALLS(MP_POINTER)
#undef MP_POINTER
    MPI_Comm world;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;
    MPI_Info no_info;
} mp_calls;

/* A failure, told to all. */
typedef struct mp_word {
    int32_t status;
    char text[GYRE_ERROR_TEXT];
} mp_word;

enum { MP_WORD_TAG = 1, MP_CONTROL_TAG = 2, MP_DATA_TAG = 3 };

/* One MPI message under way. */
typedef struct mp_part {
    gyre_cargo *cargo;
    uint64_t bytes;
} mp_part;

typedef struct mp_world {
    const gyre_transport_services *services;
    mp_calls mpi;
    MPI_Comm data, control;
    uint32_t rank, ranks, host; /* host: ranks on this machine */
    uint64_t piece;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    gyre_cargo *first, *last; /* begun, not yet with MPI */
    bool started, ready, stop, close_broken;
    gyre_status open_status;
    gyre_error *open_error;
    bool aborted;
    mp_word word; /* what broke the world */

    /* The thread's alone. */
    mp_part *parts; /* with the next three, one block */
    MPI_Status *statuses;
    MPI_Request *requests; /* of each part */
    int *indices;
    uint32_t count, room;
    gyre_cargo *ended, **ended_last; /* to be given back by mp_flush */
    mp_word failure;                 /* the first seen here; status 0: none */
    bool failure_told;
    bool cancelling;    /* gets were taken back */
    bool heard;         /* the failure came from another rank */
    bool over;          /* the failure was dealt with; no more calls of MPI */
    bool told;          /* that MPI is held */
    gyre_cargo telling; /* stands for the words under way */
    MPI_Request listening;
    mp_word incoming;
} mp_world;

gyre_status mp_say(gyre_error *error, gyre_status status, const char *format,
                   ...) GYRE_PRINTF(3, 4);
/* "mpi: WHAT: text of MPI (n)". */
gyre_status mp_fail(const mp_calls *mpi, gyre_error *error, const char *what,
                    int code);

/* ---- mp_load.c ------------------------------------------------------- */

/* All calls of MPI by all worlds of this process. */
void mp_lock(void);
void mp_unlock(void);
gyre_status mp_load(mp_calls *mpi, gyre_error *error);
/* Start MPI unless it runs; count this world.  Locked. */
gyre_status mp_start(const mp_calls *mpi, gyre_error *error);
/* MPI keeps a message that it cannot give back.  Its memory is the caller's
 * again once nobody calls MPI any more, for any call might move it: all worlds
 * of the process break, and none can be made.  Locked, as are the next. */
void mp_hold(void);
bool mp_is_held(void);
/* This world will not call MPI any more; does another? */
void mp_leave(void);
bool mp_is_called(void);
/* The last world ends MPI, if a world started it and nothing is held. */
void mp_finish(const mp_calls *mpi);

/* ---- mp_message.c; MPI is locked, but for mp_flush -------------------- */

/* Start the messages of a cargo. */
void mp_post(mp_world *world, gyre_cargo *cargo);
/* Start to tell all other ranks world->word. */
void mp_tell(mp_world *world);
/* Ask MPI what has ended; true: something has. */
bool mp_progress(mp_world *world);
/* A part is over: its cargo, too, if it was the last. */
void mp_part_over(mp_world *world, uint32_t index, gyre_status status,
                  const char *text);
/* A cargo that is not with MPI is over. */
void mp_refuse(mp_world *world, gyre_cargo *cargo, gyre_status status,
               const char *text);
/* Give the host what is over.  Its callbacks run here: no lock is held. */
void mp_flush(mp_world *world);
void mp_free_table(mp_world *world);

/* ---- mp_thread.c ----------------------------------------------------- */

void *mp_main(void *world);

#endif
