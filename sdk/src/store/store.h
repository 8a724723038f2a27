/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store room: state on storage, updated there.  Rules: STORE.md.
 *
 * Element space.  Trainable tensors in the order given, then frozen ones; each
 * starts on a grain of 1,024 elements.  Trainable grains are cut into chunks
 * of G grains with 1 + slots variables, frozen ones into chunks with one:
 *
 *     grains   | t0 t0 t0. | t1 t1. | t2 ... |  | f0 f0 f0. |
 *     chunks   [   0     ][   1     ][  2  ]    [    3   ]
 *
 * A store that commits the residual of its compressor has one more chunk for
 * each trainable one, numbered behind all others and on the same device: the
 * residual of the same grains, one variable, f32.  What walks parameters stops
 * at `state_chunks`; tables, records, fsck and reshard know all `chunks`.
 *
 * A device file:
 *
 *     0        superblock   4096, written once
 *     4096     manifest     JSON, a copy of DIR/manifest.json, written once
 *     area 0   record 4096 | entries | tensor steps | blob
 *     area 1   the same; commits alternate
 *     data     chunk, slot 0 | chunk, slot 1 | its gradients | next chunk ...
 *
 * The gradient region of a trainable chunk is there when spec.spill was set.
 * It has no versions, no label and no entry: what it holds matters within one
 * round, whose memory holds its checksum.
 *
 * and one version ("slot") of a chunk, moved by one transfer:
 *
 *     var 0 (parameter) | var 1 | ... | label 4096 | padding to alignment
 *
 * Each variable lies there as its codec has it, grain by grain
 * (device/state.h); the label starts on a page, after zeros if need be.
 *
 * The label repeats whose chunk this is, so that fsck can tell a stale, a
 * foreign and a damaged one apart; what is true is decided by the entries of
 * the newest record alone.
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
 */
#ifndef GYRE_SRC_STORE_STORE_H
#define GYRE_SRC_STORE_STORE_H

#include "base/base.h"
#include "device/device.h"
#include "io/io.h"
#include "registry/optimizer.h"

#include <gyre/store.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct gyre_codec gyre_codec; /* registry/compressor.h */
typedef struct gyre_birth gyre_birth; /* device/birth.h */

enum {
    GYRE_PAGE = 4096, /* unit of everything on disk */
    GYRE_LABEL = GYRE_PAGE,
    GYRE_STORE_VARS = 1 + GYRE_OPT_MAX_SLOTS
};

/* ---- layout (layout.c): pure ---------------------------------------- */

typedef struct gyre_tensor_state {
    char *name;
    uint32_t rank;
    uint32_t group;
    uint32_t flags;
    uint64_t shape[GYRE_MAX_RANK];
    uint64_t elements;
    uint64_t first_grain;
    uint64_t grains;
    uint64_t step; /* its own t */
    uint64_t committed_step;
    gyre_dtype out_dtype;
    void *out; /* bound buffer or NULL */
} gyre_tensor_state;

typedef struct gyre_chunk_place {
    uint64_t offset; /* of slot 0 in its device file */
    uint32_t device;
} gyre_chunk_place;

typedef struct gyre_layout {
    gyre_tensor_state *tensors;
    size_t tensor_count;
    size_t *order; /* tensors by first_grain; empty ones first */
    uint32_t groups;
    uint64_t elements;
    uint64_t train_grains;
    uint64_t frozen_grains;
    uint64_t chunk_grains; /* G */
    uint64_t train_chunks;
    uint64_t state_chunks;   /* trainable and frozen */
    uint64_t chunks;         /* and those of the residual */
    bool residual;           /* there are such; set before the placing */
    uint32_t gradient_grain; /* room of one grain in a gradient region; 0: no
                                regions; set before the placing */
    uint32_t slots;          /* state slots */
    gyre_state_codec codecs[GYRE_STORE_VARS]; /* parameter, slots */
    uint32_t versions;                        /* 2, or 1 in place */
    uint32_t align; /* of every offset and size on disk */
    uint32_t devices;
    double *weights;          /* [devices] */
    gyre_chunk_place *places; /* [chunks] */
    uint64_t area_bytes;
    uint64_t area_at[2];
    uint64_t data_at;
    uint64_t *device_bytes; /* [devices], whole file */
    uint64_t blob_capacity;
    uint64_t manifest_bytes; /* room for it, rounded */
} gyre_layout;

/* One tensor's run in a chunk. */
typedef struct gyre_run {
    size_t tensor;
    uint64_t index; /* first element in the tensor */
    size_t at;      /* first element in the chunk */
    size_t n;
} gyre_run;

gyre_status gyre_layout_tensors(gyre_context *context, gyre_layout *layout,
                                const gyre_tensor *tensors, size_t count,
                                gyre_error *error);
/* Choose the chunk size for `elements == 0`. */
uint64_t gyre_layout_choose_chunk(const gyre_layout *layout, uint32_t devices);
/* Cut into chunks and place them; slots, versions, align, devices, weights,
 * chunk_grains and manifest_bytes, blob_capacity are set before. */
gyre_status gyre_layout_place(gyre_context *context, gyre_layout *layout,
                              gyre_error *error);
void gyre_layout_free(gyre_context *context, gyre_layout *layout);

uint32_t gyre_layout_vars(const gyre_layout *layout, uint64_t chunk);
/* Where a variable of a chunk lies, and all of them; returns how many. */
void gyre_layout_var(const gyre_layout *layout, uint64_t chunk, uint32_t v,
                     gyre_var *var);
uint32_t gyre_layout_all_vars(const gyre_layout *layout, uint64_t chunk,
                              gyre_var vars[GYRE_STORE_VARS]);
/* Bytes of its variables, up to the label. */
uint64_t gyre_layout_data_bytes(const gyre_layout *layout, uint64_t chunk);
/* Of these, what holds elements of tensors: no padding. */
uint64_t gyre_layout_useful_bytes(const gyre_layout *layout, uint64_t chunk);
uint32_t gyre_layout_versions(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_first_grain(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_chunk_grains(const gyre_layout *layout, uint64_t chunk);
static inline size_t gyre_layout_chunk_elements(const gyre_layout *layout,
                                                uint64_t chunk)
{
    return (size_t)gyre_layout_chunk_grains(layout, chunk) * GYRE_GRAIN;
}
/* Bytes of one version, label and padding included. */
uint64_t gyre_layout_chunk_bytes(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_max_chunk_bytes(const gyre_layout *layout);
uint64_t gyre_layout_offset(const gyre_layout *layout, uint64_t chunk,
                            uint32_t version);
uint64_t gyre_layout_chunk_of(const gyre_layout *layout, uint64_t grain);
static inline bool gyre_layout_is_residual(const gyre_layout *layout,
                                           uint64_t chunk)
{
    return chunk >= layout->state_chunks;
}
/* The chunk that holds the residual of a trainable one, and back. */
static inline uint64_t gyre_layout_residual(const gyre_layout *layout,
                                            uint64_t train)
{
    return layout->state_chunks + train;
}
static inline uint64_t gyre_layout_residual_of(const gyre_layout *layout,
                                               uint64_t chunk)
{
    return chunk - layout->state_chunks;
}
/* The gradient region of a trainable chunk in its device file; bytes are a
 * multiple of the alignment, and 0 without regions.  It holds the raw f32 or
 * the wire blocks of all its runs, whichever are larger. */
uint64_t gyre_layout_gradient_offset(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_gradient_bytes(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_max_gradient_bytes(const gyre_layout *layout);
/* gradient_grain for a store that spills through `codec` (NULL: none). */
uint32_t gyre_layout_gradient_room(const gyre_codec *codec);
/* Walk the tensor runs of a chunk (a residual one has those of its trainable
 * one): *cursor starts at GYRE_RUN_FIRST; false at
 * the end. */
#define GYRE_RUN_FIRST SIZE_MAX
bool gyre_layout_next_run(const gyre_layout *layout, uint64_t chunk,
                          size_t *cursor, gyre_run *run);
/* "tensor h.0.weight [1024, 2048), ..." for messages. */
void gyre_layout_describe(const gyre_layout *layout, uint64_t chunk, char *text,
                          size_t bytes);

/* ---- what is on disk (format.c) -------------------------------------- */

typedef struct gyre_entry {
    uint64_t hash;
    uint64_t step;    /* t at which this version was written */
    uint32_t version; /* 0 or 1 */
    uint32_t pad;
} gyre_entry;

typedef struct gyre_scaler {
    double scale;
    uint32_t good_steps; /* since it last changed */
    uint32_t hysteresis; /* overflows still tolerated */
} gyre_scaler;

/* What a record says besides the entries. */
typedef struct gyre_record {
    uint64_t seq;
    uint64_t round;
    uint64_t step;
    uint64_t generation;
    uint64_t blob_bytes;
    uint32_t dirty; /* in place: a round has begun */
    uint32_t salvaged;
    gyre_scaler scaler;
    uint64_t written; /* to flash in the store's life, this record included */
    uint32_t inexact; /* some round divided or took roots inexactly */
    uint32_t pad;
} gyre_record;

typedef struct gyre_super {
    uint8_t store[16];
    uint8_t device[16];
    uint32_t index;
    uint32_t devices;
    uint64_t generation;
    uint64_t manifest_bytes; /* used */
    uint64_t manifest_hash;
    uint64_t file_bytes;
    uint64_t area_at[2];
    uint64_t area_bytes;
} gyre_super;

/* Seed of a chunk's checksum: store, generation, chunk and t. */
uint64_t gyre_format_seed(const uint8_t uuid[16], uint64_t generation,
                          uint64_t chunk, uint64_t step);
void gyre_format_super(const gyre_super *super, void *page);
gyre_status gyre_format_read_super(const void *page, const char *file,
                                   gyre_super *super, gyre_error *error);
void gyre_format_label(void *page, const uint8_t uuid[16], uint64_t generation,
                       uint64_t chunk, const gyre_entry *entry);

/* Bytes of record, entries and steps, before the blob. */
uint64_t gyre_format_head_bytes(uint64_t chunks, uint64_t tensors);
/* Fill an area image; blob bytes lie in it already.  Returns used bytes,
 * rounded to `align`. */
uint64_t gyre_format_area(void *image, const uint8_t uuid[16],
                          const gyre_record *record, const gyre_entry *entries,
                          uint64_t chunks, const uint64_t *steps,
                          uint64_t tensors, uint32_t align);
/* Check an image; on success fills record, and entries/steps/blob point into
 * the image.  FORMAT: no record; CORRUPT: torn or damaged. */
gyre_status gyre_format_read_area(const void *image, uint64_t bytes,
                                  const uint8_t uuid[16], uint64_t generation,
                                  uint64_t chunks, uint64_t tensors,
                                  gyre_record *record,
                                  const gyre_entry **entries,
                                  const uint64_t **steps, const void **blob,
                                  gyre_error *error);
/* What a chunk is by its label, when it is not what `entry` says: one word of
 * gyre_fsck_problem.what, and a sentence. */
const char *gyre_format_diagnose(const uint8_t uuid[16], uint64_t generation,
                                 uint64_t chunk, const gyre_entry *entry,
                                 const void *label, char *text, size_t bytes);

/* ---- the store -------------------------------------------------------- */

typedef struct gyre_worker gyre_worker;
typedef struct gyre_link gyre_link; /* worker.h */

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

/*
 * e of error feedback, in memory for GYRE_RESIDUAL_COMMITTED and _VOLATILE: two
 * versions of all trainable grains.  The round writes the one that `which`
 * does not name and flips on adopting; a skipped one flips nothing.
 */
typedef struct gyre_residual_memory {
    float *e[2];      /* [train_grains * GYRE_GRAIN]; NULL: none */
    uint8_t *which;   /* [train_chunks]: 0 or 1, the version in force */
    uint8_t *unsaved; /* [train_chunks]: changed since the last commit */
    float *kappa;     /* [tensors]: clip late, of the tensor's last round; what
                         the next one takes is kappa e */
    uint8_t *at;      /* [tensors]: where the version in force is, born.c */
} gyre_residual_memory;

enum {
    GYRE_E_ZERO, /* here, and zeros */
    GYRE_E_HERE, /* in e[which] */
    GYRE_E_BORN  /* where gradients are born, same version */
};

struct gyre_store {
    gyre_context *context;
    char *path;
    uint8_t uuid[16];
    char uuid_text[37];
    uint64_t generation;
    gyre_layout layout;
    gyre_place *places; /* [layout.devices] */
    int owner_lock;     /* flock on DIR/lock while open */

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
    uint64_t commit_bytes;      /* written by the last commit, all devices */
    gyre_ledger ledger;         /* all rounds since open; the sums not filled */
    pthread_mutex_t count_lock; /* of it, and of the open round's */
    /* All bytes written to devices in the store's life: what the records say,
     * and what the workers have written since.  No rollback takes it back; a
     * round's flash bytes are a difference of it. */
    _Atomic uint64_t flash;

    gyre_birth *birth;  /* where gradients are born; NULL: not yet, or not */
    bool birth_refused; /* they are compressed here, which the log was told */
    pthread_mutex_t birth_lock; /* of both, and of residual.at in a round */

    gyre_link *link; /* NULL: the link is as it is */
    gyre_round *round;
    gyre_residual_memory residual;
    float *gradients; /* train_grains * GYRE_GRAIN, kept over rounds */
    size_t gradient_count;
    bool gradients_mapped; /* by us, not by the allocator */
    uint8_t *payload;      /* wire blocks kept in memory, by chunk */
    uint64_t *payload_at;  /* [train_chunks + 1] */
    uint8_t *wire;         /* [devices][wire_bytes + 8]: of one chunk */
    size_t wire_bytes;
    uint64_t lock_wait_ns;
    uint64_t memory_limit;
    uint8_t *peek;       /* one chunk for gyre_store_read */
    uint64_t peek_chunk; /* which, or UINT64_MAX */
};

/* ---- files, lock, journal, manifest (place.c, journal.c, manifest.c) -- */

/* Make store->path absolute, so that no later change of folder matters. */
gyre_status gyre_place_resolve(gyre_store *store, gyre_error *error);
/* Take DIR/lock.  BUSY at once when a living process holds it. */
gyre_status gyre_place_lock(gyre_store *store, uint64_t wait_ns,
                            gyre_error *error);
void gyre_place_unlock(gyre_store *store);
/* Lock an opened device file on the description that goes into the ring;
 * waits for a dead owner's I/O. */
gyre_status gyre_place_lock_file(gyre_store *store, gyre_place *place,
                                 uint64_t wait_ns, gyre_error *error);
/* The folder or block file that a manifest path means. */
const char *gyre_place_folder(const gyre_store *store, const char *path);
/* Name of a device's file: the block file itself, or DIR/UUID8.gN.dNN; freed
 * with gyre_free_text. */
char *gyre_place_file_name(const gyre_store *store, const char *path,
                           uint32_t index);
bool gyre_place_is_block(const char *path);
/* Two names of one block device? */
bool gyre_place_same_block(const char *a, const char *b);

/*
 * The journal DIR/changing: names of files, one a line, that a change of
 * generation makes or removes.  Whatever it names and the manifest in force
 * does not is garbage after a crash.
 */
gyre_status gyre_journal_write(const gyre_store *store, const gyre_store *old,
                               gyre_error *error);
/* Remove what the journal in the folder of `at` names and `store` does not use,
 * then the journal.  `store` NULL: none is used. */
void gyre_journal_settle(const gyre_store *at, const gyre_store *store);

/* Text of the manifest; freed with gyre_free_text. */
gyre_status gyre_manifest_text(const gyre_store *store, char **out,
                               gyre_error *error);
/* Write DIR/manifest.json by rename: the flip of create and reshard. */
gyre_status gyre_manifest_write(gyre_store *store, gyre_error *error);
/* A device that is not exact will run rounds: say so in DIR/manifest.json, and
 * with each commit from now on.  Nothing when it is said already. */
gyre_status gyre_manifest_note_inexact(gyre_store *store, gyre_error *error);
/* Make `text` the whole of DIR/NAME by writing aside, rename and sync. */
gyre_status gyre_file_replace(const gyre_store *store, const char *name,
                              const char *text, gyre_error *error);
/* Read DIR/manifest.json into a fresh store (tensors, devices, optimizer). */
gyre_status gyre_manifest_read(gyre_store *store, gyre_error *error);
gyre_status gyre_manifest_parse(gyre_store *store, const char *text,
                                size_t bytes, const char *from,
                                gyre_error *error);

/* ---- what computes (links.c): options.compute and options.link_rate ---- */

typedef struct gyre_compute {
    const char *device; /* for gyre_device_open; lies in the text parsed */
    double read_rate;   /* bytes per second; 0: as it is */
    double write_rate;
} gyre_compute;

/* "cpu", "opencl[:N]", "cuda[:N]", "emulated:read=RATE,write=RATE". */
gyre_status gyre_compute_parse(const char *text, gyre_compute *out,
                               gyre_error *error);
/* Are compute, link_rate and placement well formed? */
gyre_status gyre_compute_check(const gyre_store_options *options,
                               gyre_error *error);
/* places[].compute, once the devices are known; options may be NULL. */
gyre_status gyre_compute_take(gyre_store *store,
                              const gyre_store_options *options,
                              gyre_error *error);

/* ---- workers (worker.c, stream.c, links.c) ---------------------------- */

/*
 * One worker per device: a thread, a queue, and recycled buffers.
 *
 *     FREE -> READING -> READY -> process -> (COMPUTING -> finish) -> WRITING
 *       ^                            |                                   |
 *       +----------------------------+-----------------------------------+
 *
 * A stream is what a worker does with chunks: read the parts asked for, call
 * `process`, write what it says.  Chunks are pushed while it runs; it ends when
 * closed and drained, or at the first error.  With one buffer a device reads,
 * processes and writes in turn; with more it reads ahead and writes behind.
 *
 * A buffer holds one version of a chunk and, behind it, room for the chunk's
 * gradient region:
 *
 *     data: variables | label | padding ...      gradient: region ...
 *
 * Emulated rates (links.c) hold a buffer in READING or WRITING until its bytes
 * would have come; nothing else knows of them.
 */
enum { GYRE_PART_STATE = 1, GYRE_PART_GRADIENT = 2 };

/* What waits in a worker's queue: two for each chunk, so it is small. */
typedef struct gyre_push {
    uint64_t at;    /* when, where something is emulated */
    uint32_t chunk; /* a layout has no more than fit */
    uint16_t version;
    uint16_t parts; /* to read */
} gyre_push;

typedef struct gyre_work {
    uint64_t chunk;
    uint32_t version;        /* as pushed; not used for reading */
    uint32_t parts;          /* that were read */
    uint64_t gradient_bytes; /* read of the gradient region */
    uint32_t buffer;   /* which of the device's buffers holds it: for scratch
                          that must last from process to finish */
    uint32_t lane;     /* of the device, its own from process to finish */
    uint8_t *gradient; /* the gradient region; NULL: the store has none */
} gyre_work;

/* What process and finish say; zeroed, with write -1, before process. */
typedef struct gyre_work_result {
    int write;               /* version to write the chunk to, or -1 */
    uint64_t write_gradient; /* bytes of the gradient region to write, from
                                its start; 0: none */
    uint64_t link_after;     /* bytes of parameters that go up the link beside
                                the writes; 0: none, or placement host */
    bool pending;            /* process: a job was submitted on work.lane, and
                                finish ends it; nothing is written before */
} gyre_work_result;

/* All callbacks run in the worker's thread. */
typedef struct gyre_stream {
    const gyre_entry *table; /* version to read; NULL: the state is not read */
    uint32_t parts;          /* what gyre_workers_push reads; a table alone
                                means GYRE_PART_STATE */
    /* Bytes of the gradient region to read; NULL: all of it. */
    uint64_t (*read_gradient)(void *user, uint64_t chunk);
    /* Bytes that come down the link before process (gradients, placement
     * near); NULL: none. */
    uint64_t (*link_before)(void *user, uint64_t chunk);
    gyre_status (*process)(void *user, uint32_t device, gyre_work work,
                           uint8_t *data, gyre_work_result *result,
                           gyre_error *error);
    /* Waits for the job that process left pending; called once for each, in
     * the order of their submission, after an error elsewhere too (what it says
     * is then ignored).  NULL when process never leaves one. */
    gyre_status (*finish)(void *user, uint32_t device, gyre_work work,
                          uint8_t *data, gyre_work_result *result,
                          gyre_error *error);
    /* The way up of the parameters is over (at once where nothing is emulated);
     * after each process or finish that succeeded, whatever it said.  May be
     * NULL. */
    void (*delivered)(void *user, uint32_t device, gyre_work work);
    /* The stream ended on this device; may be NULL. */
    void (*ended)(void *user, uint32_t device, gyre_status status);
    void *user;
} gyre_stream;

typedef struct gyre_worker_stats {
    uint64_t read_bytes;
    uint64_t write_bytes;
    uint64_t first_ns; /* 0: nothing was done */
    uint64_t last_ns;
} gyre_worker_stats;

gyre_status gyre_workers_create(gyre_store *store, gyre_error *error);
void gyre_workers_destroy(gyre_store *store);
/* Bytes of one chunk buffer: for the dry run. */
uint64_t gyre_workers_buffer_bytes(const gyre_store *store);
/* What updates the chunks of a device; NULL in a store that is read-only. */
gyre_device *gyre_workers_device(const gyre_store *store, uint32_t device);
/* Start a stream on every device.  Of one chunk at most two pushes may wait. */
void gyre_workers_start(gyre_store *store, const gyre_stream *stream);
/* Push to the chunk's device.  Any thread. */
void gyre_workers_push(gyre_store *store, uint64_t chunk, uint32_t version);
/* The same with parts of its own (0: read nothing) instead of the stream's. */
void gyre_workers_push_parts(gyre_store *store, uint64_t chunk,
                             uint32_t version, uint32_t parts);
void gyre_workers_close(gyre_store *store);
/* Wait for all; the first error by device order (STOPPED only when there is no
 * other: it says that some device gave up because of another), stats summed. */
gyre_status gyre_workers_join(gyre_store *store, gyre_worker_stats *stats,
                              gyre_error *error);
/* Start, push every chunk once (of [first, end)), close and join. */
gyre_status gyre_workers_each(gyre_store *store, const gyre_stream *stream,
                              uint64_t first, uint64_t end, gyre_error *error);
/* The same one operation on every device, awaited. */
gyre_status gyre_workers_flush(gyre_store *store, gyre_error *error);
gyre_status gyre_workers_write(gyre_store *store, const void *data,
                               uint64_t bytes, uint64_t offset,
                               gyre_error *error);
gyre_status gyre_workers_write_one(gyre_store *store, uint32_t device,
                                   const void *data, uint64_t bytes,
                                   uint64_t offset, gyre_error *error);
gyre_status gyre_workers_read(gyre_store *store, uint32_t device, void *data,
                              uint64_t bytes, uint64_t offset,
                              gyre_error *error);
/* Do all devices that compute round as IEEE 754 says? */
bool gyre_workers_exact(const gyre_store *store);
const char *gyre_workers_engine(const gyre_store *store);

/* ---- the residual (residual.c, keep.c) -------------------------------- */

/* Memory for store->residual, zeros; nothing when the store keeps none, or is
 * read-only. */
gyre_status gyre_residual_allocate(gyre_store *store, gyre_error *error);
void gyre_residual_free(gyre_store *store);
/* Write the chunks that are unsaved into their other slots and their entries
 * into `current`: the first part of every commit.  Only of a committed
 * residual. */
gyre_status gyre_residual_save(gyre_store *store, gyre_error *error);
/* ... and the last part: nothing is unsaved any more. */
void gyre_residual_saved(gyre_store *store);
/* After an open, or a rollback over several rounds: committed ones are read as
 * `current` has them and verified, volatile ones become zero (told to the log
 * when there was something).  kappa is 1 then. */
gyre_status gyre_residual_load(gyre_store *store, gyre_error *error);

/* Of a run that is GYRE_E_BORN, the residual in force to the host (born.c). */
gyre_status gyre_born_residual(gyre_store *store, uint64_t chunk,
                               const gyre_run *run, float *out,
                               gyre_error *error);

/* ---- the compressor (compressor.c) ------------------------------------ */

/* From spec: the codec, the residual's mode, and what the layout needs. */
gyre_status gyre_store_take_compressor(gyre_store *store,
                                       const gyre_store_spec *spec,
                                       gyre_error *error);
gyre_status gyre_store_inherit_compressor(gyre_store *to,
                                          const gyre_store *from,
                                          gyre_error *error);
void gyre_store_free_compressor(gyre_store *store);
/* Find what the manifest names.  Read-only, a plugin that is not there is no
 * error.  LAYOUT when it is another format. */
gyre_status gyre_store_attach_compressor(gyre_store *store, gyre_error *error);
bool gyre_residual_parse(const char *name, gyre_residual *out);

/* ---- between files ---------------------------------------------------- */

/* Where initial contents come from (create.c, generation.c). */
typedef struct gyre_source {
    /* Elements [first, first + n) of a tensor, the parameter and then each
     * slot, `vars` in all: variable v from out + v * stride on, where zeros
     * are.  Any worker thread, one call at a time per device. */
    gyre_status (*fill)(void *user, size_t tensor, uint64_t first, size_t n,
                        uint32_t vars, float *out, size_t stride,
                        gyre_error *error);
    /* The same of the residual; NULL: zeros. */
    gyre_status (*residual)(void *user, size_t tensor, uint64_t first, size_t n,
                            float *out, gyre_error *error);
    /* Called by the builder's thread while the workers fill: returns when
     * `ended` has come for every device (or sooner).  Both may be NULL. */
    void (*watch)(void *user);
    void (*ended)(void *user, uint32_t device, gyre_status status);
    void *user;
} gyre_source;

/* Allocate an empty store object with its lock not taken, path and options
 * taken over. */
gyre_status gyre_store_blank(gyre_context *context, const char *path,
                             const gyre_store_options *options,
                             gyre_store **out, gyre_error *error);
/* Free it, whatever of it is there. */
void gyre_store_free(gyre_store *store);
/* Take the device list: paths (NULL: the store's own folder), weights, count.
 */
gyre_status gyre_store_take_devices(gyre_store *store,
                                    const gyre_store_spec *spec,
                                    gyre_error *error);
/*
 * Make the device files of `store` (tensors, devices, optimizer, chunk_grains
 * and `now` are filled in), write all chunks from `source` and the first
 * record with `blob`; not the manifest.  `old` is the generation that this one
 * follows, or NULL.  What a failure leaves is named by the journal.
 */
gyre_status gyre_store_build(gyre_store *store, const gyre_store *old,
                             const gyre_source *source, const void *blob,
                             size_t blob_bytes, gyre_error *error);
/* Its first two parts, for planning: what spec says, and the layout. */
gyre_status gyre_store_prepare(gyre_store *store, const gyre_store_spec *spec,
                               gyre_error *error);
gyre_status gyre_store_lay_out(gyre_store *store, gyre_error *error);
/* Superblock and manifest copy of every device. */
gyre_status gyre_store_write_heads(gyre_store *store, gyre_error *error);
/* Choose the chunk size and the rest of the layout that `spec` leaves open. */
gyre_status gyre_store_shape(gyre_store *store, const gyre_store_spec *spec,
                             gyre_error *error);
/* Allocate tables, image, blob for the layout. */
gyre_status gyre_store_tables(gyre_store *store, gyre_error *error);

/* Of all records numbered below `below` take the newest into now, current,
 * area, steps and blob (open.c).  *newest rises to the highest number seen.
 * NOT_FOUND when there is none, FORMAT when its entries are impossible. */
gyre_status gyre_store_choose(gyre_store *store, uint64_t below,
                              uint64_t *newest, gyre_error *error);
/* Fails with `unread`: what could not be read may be the newest record. */
gyre_status gyre_store_tell_unread(const gyre_store *store, gyre_error *error);
/* The rest of an open after gyre_store_attach: choose, verify, go back if need
 * be, sweep.  A read-only store is left as it is. */
gyre_status gyre_store_settle(gyre_store *store, gyre_error *error);
/* What is in memory is what the last commit left. */
void gyre_store_take_commit(gyre_store *store);

/* RANGE for a blob that does not fit. */
gyre_status gyre_store_check_blob(const gyre_store *store, const void *blob,
                                  size_t blob_bytes, gyre_error *error);
/* Commit `now`, `current` and the blob (commit.c).  On failure the store is as
 * at the last commit, or BROKEN when that could not be made sure. */
gyre_status gyre_store_commit_now(gyre_store *store, const void *blob,
                                  size_t blob_bytes, gyre_error *error);
/* The text of a failure that took the store back to its last commit; `lost`:
 * whole rounds went (ROLLED_BACK). */
gyre_status gyre_store_tell_back(const gyre_store *store, bool lost,
                                 gyre_status cause, gyre_error *error);
/* In place: make the dirty mark durable before the first write. */
gyre_status gyre_store_mark_dirty(gyre_store *store, gyre_error *error);
/* Memory back to the last commit. */
void gyre_store_rewind(gyre_store *store);
/* Refuse when broken, or (when `idle`) when a round is open. */
gyre_status gyre_store_check(const gyre_store *store, bool idle, bool writable,
                             gyre_error *error);

/* Checksum of a chunk in memory as of `step`. */
uint64_t gyre_store_hash(const gyre_store *store, uint64_t chunk,
                         const uint8_t *data, uint64_t step);
/* Give it its label. */
void gyre_store_label(const gyre_store *store, uint64_t chunk, uint8_t *data,
                      const gyre_entry *entry);
/* Verify chunk in memory against entry; CORRUPT with device, chunk, range. */
gyre_status gyre_store_verify(const gyre_store *store, uint32_t device,
                              uint64_t chunk, const gyre_entry *entry,
                              const uint8_t *data, gyre_error *error);
/* Elements of the committed residual of a trainable tensor, all in one chunk
 * (transfer.c). */
gyre_status gyre_store_read_residual(gyre_store *store, size_t tensor,
                                     uint64_t first, size_t n, float *out,
                                     gyre_error *error);
/* Read and verify one chunk into store->peek, kept for the next call
 * (transfer.c). */
gyre_status gyre_store_peek(gyre_store *store, uint64_t chunk,
                            gyre_error *error);
/* Copy the parameter of a chunk into bound buffers (transfer.c), but for the
 * tensors that `skip` marks (NULL: none); returns the bytes delivered. */
uint64_t gyre_store_deliver(const gyre_store *store, uint64_t chunk,
                            const uint8_t *data, const bool *skip);
/* Deliver again, from current, the chunks whose byte in `which` is not 0
 * (NULL: all).  Only chunks of trainable tensors have a byte. */
gyre_status gyre_store_redeliver(gyre_store *store, const uint8_t *which,
                                 gyre_error *error);
/* Everything of an open but the choice of a record: fsck looks for itself. */
gyre_status gyre_store_attach(gyre_store *store,
                              const gyre_store_options *options,
                              gyre_error *error);
/* Reserved, all devices (info.c). */
uint64_t gyre_store_disk_bytes(const gyre_layout *layout);
/* Memory of the store's lines (plan.c), and the refusal above the limit. */
void gyre_store_lines(const gyre_store *store, gyre_store_plan *plan);
gyre_status gyre_store_check_memory(const gyre_store *store, gyre_error *error);
/* Add the parts of a ledger, and fill its sums (ledger.c). */
void gyre_ledger_add(gyre_ledger *into, const gyre_ledger *more);
void gyre_ledger_sum(gyre_ledger *ledger);
/* The store is open: of what was moved so far only the residual counts. */
void gyre_ledger_begin(gyre_store *store);
/* Count for the open round, or for the store when none is.  Any thread. */
void gyre_store_count(gyre_store *store, const gyre_ledger *more);
/* WORN when the budget is spent. */
gyre_status gyre_store_check_wear(const gyre_store *store, gyre_error *error);
/* Free what is left of an open round (close, errors); what it moved is added
 * to the store's ledger. */
void gyre_round_discard(gyre_round *round);

#endif
