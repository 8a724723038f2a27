/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store room: state on storage, updated there.  Rules: STORE.md.
 *
 *     tensors -> grains -> chunks -> device files     layout.h
 *     the bytes of a file                             format.h
 *     folders, files, locks, journal                  place.h
 *     what the store is, as JSON                      manifest.h
 *     its optimizer and compressor                    plugins.h
 *     making it                                       build.h
 *     records: which one stands, the next, back       commit.h
 *     one chunk in memory                             chunk.h
 *     one worker per device, streams of chunks        stream.h, worker.h
 *     what computes, in words                         compute.h
 *     a round                                         round.h
 *     what compression left out                       residual.h
 *     bytes, memory, disk                             ledger.h
 *     another generation; fsck; safetensors           generation.h, fsck.h,
 *                                                     safetensors.h
 *
 * A device file:
 *
 *     0        superblock   4096, written once
 *     4096     manifest     JSON, a copy of DIR/manifest.json, written once
 *     area 0   record 4096 | entries | tensor steps | blob
 *     area 1   the same; commits alternate
 *     data     chunk, slot 0 | chunk, slot 1 | its gradients | next chunk ...
 *
 * A commit, numbered by `seq`:
 *
 *     data into the other slots -> flush all devices
 *     -> record, entries, steps, blob into the other area of every device
 *     -> flush all -> only now may the previous slots be written
 *
 * Every device holds all entries, so one surviving record is enough.  The
 * area written is always the one that does not hold the record last chosen.
 *
 * In memory, per chunk, `current` is what the next round reads, `committed`
 * what a crash would leave.  With several rounds per commit the first one
 * moves a chunk to its other slot and the later ones rewrite it there.
 *
 * Threads.  A store is one thread's at a time, but for what gyre/store.h allows
 * from any during a round.  Workers read the layout and `current`, and write
 * what is theirs by chunk.  Locks: birth_lock, and inside it count_lock; the
 * round's own lock is taken alone.
 */
#ifndef GYRE_SRC_STORE_STORE_H
#define GYRE_SRC_STORE_STORE_H

#include "io/io.h"
#include "registry/optimizer.h"
#include "store/format.h"
#include "store/layout.h"
#include "store/residual.h"

#include <gyre/store.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct gyre_birth gyre_birth;   /* device/birth.h */
typedef struct gyre_worker gyre_worker; /* worker.h */
typedef struct gyre_link gyre_link;

typedef struct gyre_place {
    char *path; /* as in the manifest: "." is the store's own
                   directory, a folder, or a block file */
    char *file; /* what is opened */
    uint8_t uuid[16];
    int fd; /* -1: not open */
    int direct;
    bool made;     /* by this store object */
    char *compute; /* options.compute for this device, or "cpu" */
    gyre_worker *worker;
} gyre_place;

typedef enum gyre_store_mode {
    GYRE_STORE_READY,
    GYRE_STORE_BROKEN /* what stands on disk is not known: reopen */
} gyre_store_mode;

/* What is zero in a fresh object stands for "none"; what is not is set by
 * gyre_store_blank. */
struct gyre_store {
    gyre_context *context;
    char *path;
    uint8_t uuid[16];
    char uuid_text[37];
    uint64_t generation;
    gyre_layout layout;
    gyre_place *places; /* [layout.devices] */
    int owner_lock;     /* flock on DIR/lock while open */

    /* plugins */
    char *optimizer; /* as in the manifest */
    char *optimizer_version;
    char *variant;
    uint32_t state_version;
    uint64_t kernel_hash;
    char *slot_names[GYRE_OPT_MAX_SLOTS];
    float slot_initial[GYRE_OPT_MAX_SLOTS];
    gyre_setting *settings; /* names owned */
    size_t setting_count;
    gyre_opt *opt; /* NULL when read-only */

    char *compressor; /* as in the manifest; NULL: none */
    char *compressor_version;
    uint32_t compressor_format;
    gyre_setting *compressor_settings; /* names owned; all parameters */
    size_t compressor_setting_count;
    gyre_codec *codec; /* NULL: no compressor, or read-only and no plugin */
    gyre_residual residual_mode; /* OFF without a compressor */
    uint64_t seed;               /* of stochastic rounding */
    bool inexact; /* as in the manifest; now.inexact and this are told as one */

    /* options */
    gyre_placement placement;
    bool gradients_in_memory, allow_inexact;
    double link_rate, endurance;
    uint64_t wear_budget;
    uint32_t buffers;
    uint32_t commit_every;
    bool fast, read_only, check_reads, fell_back;
    const char *manifest; /* instead of DIR/manifest.json; or NULL */
    /* When set, a superblock that is wrong is told and the file taken for what
     * its name says (fsck). */
    void (*complain)(void *user, uint32_t device, const gyre_error *why);
    void *complain_user;
    char *io_engine;
    gyre_io_recorder *recorder; /* tests only; or NULL */
    uint64_t lock_wait_ns;
    uint64_t memory_limit;

    /* commits */
    gyre_store_mode mode;
    gyre_entry *current; /* [chunks] */
    gyre_entry *committed;
    gyre_record now;  /* round, step, scaler of memory */
    gyre_record last; /* of the last commit */
    uint64_t next_seq;
    uint32_t area;         /* the one that holds `last` */
    gyre_error unread;     /* an area that no device let us read, or OK */
    uint32_t rounds_since; /* since the last commit */
    uint64_t *steps;       /* scratch for tensor steps, [tensors] */
    void *image;           /* commit image, layout.area_bytes */
    void *blob;            /* of the last commit, blob_capacity */
    size_t blob_bytes;
    uint64_t commit_bytes; /* written by the last commit, all devices */

    /* bytes */
    gyre_ledger ledger;         /* all rounds since open; the sums not filled */
    pthread_mutex_t count_lock; /* of it, and of the open round's */
    /* All bytes written to devices in the store's life: what the records say,
     * and what the workers have written since.  No rollback takes it back; a
     * round's flash bytes are a difference of it. */
    _Atomic uint64_t flash;

    gyre_link *link; /* NULL: the link is as it is */

    /* rounds */
    gyre_round *round;
    gyre_residual_memory residual;
    gyre_birth *birth;  /* where gradients are born; NULL: not yet, or not */
    bool birth_refused; /* they are compressed here, which the log was told */
    pthread_mutex_t birth_lock; /* of both, and of residual.at in a round */
    float *gradients; /* train_grains * GYRE_GRAIN, kept over rounds */
    size_t gradient_count;
    bool gradients_mapped; /* by us, not by the allocator */
    uint8_t *payload;      /* wire blocks kept in memory, by chunk */
    uint64_t *payload_at;  /* [train_chunks + 1] */
    uint8_t *wire;         /* [devices][wire_bytes + 8]: of one chunk */
    size_t wire_bytes;

    uint8_t *peek;       /* one chunk for gyre_store_read */
    uint64_t peek_chunk; /* which, or UINT64_MAX */
};

/* ---- its life (store.c, open.c, round_memory.c) ----------------------- */

/* Allocate an empty store object with its lock not taken, path and options
 * taken over. */
gyre_status gyre_store_blank(gyre_context *context, const char *path,
                             const gyre_store_options *options,
                             gyre_store **out, gyre_error *error);
/* Free it, whatever of it is there. */
void gyre_store_free(gyre_store *store);
/* Everything of an open but the choice of a record: fsck looks for itself. */
gyre_status gyre_store_attach(gyre_store *store,
                              const gyre_store_options *options,
                              gyre_error *error);
/* Refuse when broken, or (when `idle`) when a round is open. */
gyre_status gyre_store_check(const gyre_store *store, bool idle, bool writable,
                             gyre_error *error);

/* Free what is left of an open round (close, errors); what it moved is added
 * to the store's ledger. */
void gyre_round_discard(gyre_round *round);

#endif
