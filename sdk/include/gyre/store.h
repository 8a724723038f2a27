/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: parameters and optimizer state on storage, updated there.
 *
 * The model is a list of tensors.  Its f32 master parameters and the
 * optimizer's state slots lie in chunks on one or more devices; each training
 * step is one *round*: gradients go in, the optimizer plugin runs beside the
 * storage, updated parameters come back.  A round ends in a commit, and after
 * any crash the store opens at the last commit or the one before, whole.
 *
 * No result depends on the number of devices, the chunk size, the number of
 * threads or the instruction set.
 *
 * Threads.  One thread drives a store and its round; gyre_round_gradient,
 * gyre_round_absent and gyre_round_release may be called from any thread
 * between gyre_round_begin and gyre_round_update.  What is said to be "any
 * thread" may run beside all of that.
 */
#ifndef GYRE_STORE_H
#define GYRE_STORE_H

#include <gyre/context.h>
#include <gyre/dtype.h>
#include <gyre/registry.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_store gyre_store;
typedef struct gyre_round gyre_round;

enum {
    GYRE_MAX_RANK = 8,
    GYRE_MAX_DEVICES = 64,
    GYRE_GRAIN = 1024,    /* elements; every tensor starts on one */
    GYRE_DIGEST_TEXT = 33 /* 32 hexadecimal digits and NUL */
};

/* ---- making and opening ---------------------------------------------- */

enum {
    GYRE_TENSOR_FROZEN = 1 /* parameter only: no slots, never updated */
};

typedef struct gyre_tensor {
    const char *name; /* unique, not empty, UTF-8 */
    uint32_t rank;    /* 0: one element */
    uint32_t group;   /* parameter group, counted from 0 */
    uint32_t flags;
    uint64_t shape[GYRE_MAX_RANK]; /* a 0 makes an empty tensor */
    gyre_dtype dtype;              /* of `data`: F32, F64, BF16 or F16 */
    const void *data;              /* initial values, contiguous; NULL: zeros */
} gyre_tensor;

/* How a variable lies on storage.  Arithmetic is f32 whatever it is; the
 * reference of each codec is in gyre-store(5). */
typedef enum gyre_state_codec {
    GYRE_STATE_F32 = 0,
    GYRE_STATE_BF16 = 1,            /* rounded to nearest even */
    GYRE_STATE_BF16_STOCHASTIC = 2, /* by a counter, not by a generator */
    GYRE_STATE_Q8 = 3               /* 8 bits, blocks of 256 with a scale; not
                                       for the parameter */
} gyre_state_codec;

typedef struct gyre_slot_codec {
    const char *slot; /* "parameter", a slot's name, or "*": all slots */
    gyre_state_codec codec;
} gyre_slot_codec;

/* The residual of error feedback: what compression left out, kept dense in f32
 * on the side of the link that compresses. */
typedef enum gyre_residual {
    GYRE_RESIDUAL_COMMITTED = 0, /* on storage with each commit: digest equality
                                    holds over a crash */
    GYRE_RESIDUAL_VOLATILE = 1,  /* in memory; starts from 0 at each open and
                                    after a rollback over several rounds */
    GYRE_RESIDUAL_OFF = 2        /* what is left out is lost */
} gyre_residual;

/* What is fixed when a store is made.  Zero it, set `size`. */
typedef struct gyre_store_spec {
    size_t size;
    const gyre_tensor *tensors;
    size_t tensor_count;
    const char *optimizer;        /* plugin name; NULL: "adamw" */
    const gyre_setting *settings; /* structural ones, and step defaults */
    size_t setting_count;
    const char *const *devices;    /* directories or block files; NULL: the
                                      store's own directory */
    const double *weights;         /* share of each device; NULL: equal */
    size_t device_count;           /* 0: 1 */
    uint64_t chunk_elements;       /* multiple of GYRE_GRAIN; 0: chosen */
    uint64_t blob_bytes;           /* room for the user's blob; 0: 64 KiB */
    int in_place;                  /* one version on disk: half the space, but
                                      a crash inside a round loses the store */
    const gyre_slot_codec *codecs; /* later entries win; the rest is f32 */
    size_t codec_count;
    const char *compressor; /* plugin that gradients go through on their way
                               down; NULL: none */
    const gyre_setting *compressor_settings;
    size_t compressor_setting_count;
    gyre_residual residual; /* of the compressor */
    int spill;              /* reserve room for gradients on storage */
    uint64_t seed;          /* of every stochastic rounding */
} gyre_store_spec;

/* Where the update runs.  Both give the same bits. */
typedef enum gyre_placement {
    GYRE_NEAR = 0, /* beside the storage: gradients down, parameters up */
    GYRE_HOST = 1  /* on the host: state travels up and down as well */
} gyre_placement;

/* What may differ at each opening.  Zero it, set `size`. */
typedef struct gyre_store_options {
    size_t size;
    const char *io;             /* engine: "auto" (default), "uring", "posix",
                                   "faulty:..." */
    uint32_t buffers;           /* chunk buffers per device; 0: 4.  With 1 a
                                   device reads, updates and writes in turn */
    uint32_t commit_every;      /* rounds per commit; 0: 1 */
    int fast;                   /* open without verifying every chunk */
    int read_only;              /* no rounds, nothing is written */
    int no_read_check;          /* do not verify chunks as rounds read them */
    uint64_t lock_wait_ns;      /* for I/O of a dead owner to end; 0: 120 s */
    uint64_t memory_limit;      /* refuse to start above it; 0: none */
    const char *const *devices; /* if not NULL, the list that must match what
                                   is on disk: place by place, in order, by
                                   whatever name */
    size_t device_count;        /* if not 0 (1 with a list), must match (LAYOUT
                                   says how to reshard) */
    void *recorder; /* tests only: gyre_io_recorder of the library */
    const char *const *compute; /* what computes beside each device: "cpu"
                                   (default), "opencl[:N]", "cuda[:N]",
                                   "emulated:read=RATE,write=RATE"; bytes per
                                   second, k, M, G allowed */
    size_t compute_count;       /* 0, 1 (for all), or one per device */
    double link_rate;           /* host link shared by all devices, both ways
                                   together, bytes per second; 0: as it is */
    gyre_placement placement;
    int gradients_in_memory; /* do not use the room that spec.spill made */
    int allow_inexact;       /* take devices whose division and root are not
                                correctly rounded; the manifest records it */
    double endurance;        /* bytes that all devices together may take in
                                their life: for the projection; 0: unknown */
    uint64_t wear_budget;    /* refuse rounds once the store has written so
                                many bytes in its life; 0: none */
} gyre_store_options;

/*
 * Make a store in directory `path` (made if it is not there, else it must not
 * hold one) and open it.  Space for everything is reserved first; on failure
 * nothing stays.  `options` may be NULL.  Errors: INVALID, RANGE, EXISTS,
 * NO_SPACE (says how much is needed and free), PARAMETER, plugin errors, IO.
 * Any thread.
 */
GYRE_API gyre_status gyre_store_create(gyre_context *context, const char *path,
                                       const gyre_store_spec *spec,
                                       const gyre_store_options *options,
                                       gyre_store **out, gyre_error *error);

/*
 * Open.  Unless `fast`, every chunk of the newest commit is verified; when one
 * is damaged, the whole store goes back to the commit before (and info says
 * so).  What cannot be read is an error instead: it may come back.
 * Errors: NOT_FOUND, BUSY (another process; names it), FORMAT, CORRUPT (names
 * device, chunk and tensor range), DIRTY, LAYOUT, plugin errors.  Any thread.
 */
GYRE_API gyre_status gyre_store_open(gyre_context *context, const char *path,
                                     const gyre_store_options *options,
                                     gyre_store **out, gyre_error *error);

/* Close; what is not committed is lost, but for whole rounds of a store that
 * works in place: these are committed, with the last blob, since there is
 * nothing to go back to.  NULL is allowed. */
GYRE_API void gyre_store_close(gyre_store *store);

/* ---- asking ---------------------------------------------------------- */

typedef struct gyre_store_info {
    size_t size;
    uint64_t round;  /* attempts, committed or not */
    uint64_t step;   /* t: applied steps */
    uint64_t commit; /* number of the last commit */
    uint64_t committed_round;
    uint64_t committed_step;
    uint64_t generation;
    uint64_t tensors;
    uint64_t elements; /* without padding */
    uint64_t chunks;
    uint64_t chunk_elements;
    uint64_t padding_bytes; /* declared: grains and labels, one version */
    uint64_t disk_bytes;    /* reserved, all devices */
    uint64_t blob_capacity;
    uint32_t devices;
    uint32_t groups;
    uint32_t slots; /* state slots per element */
    int in_place;
    int whole;        /* 0 after a salvage */
    int fell_back;    /* opened at the commit before the newest */
    const char *uuid; /* strings live as long as the store */
    const char *path;
    const char *optimizer;
    const char *optimizer_version;
    const char *variant;
    const char *io; /* engine in use */
    double loss_scale;
    const char *compressor; /* NULL: none */
    const char *compressor_version;
    gyre_residual residual; /* OFF without a compressor */
    int spill;              /* there is room for gradients on storage */
    int exact;              /* 0 after rounds with allow_inexact */
    uint64_t seed;
    uint64_t written; /* bytes to flash in the store's life, as committed */
} gyre_store_info;

GYRE_API gyre_status gyre_store_get_info(const gyre_store *store,
                                         gyre_store_info *info,
                                         gyre_error *error);

/* Tensor by index, in the order of creation (data NULL), or by name
 * (NOT_FOUND).  `step` is the tensor's own t; may be NULL. */
GYRE_API gyre_status gyre_store_tensor(const gyre_store *store, size_t index,
                                       gyre_tensor *out, uint64_t *step,
                                       gyre_error *error);
GYRE_API gyre_status gyre_store_find(const gyre_store *store, const char *name,
                                     size_t *index, gyre_error *error);
/* Device by index: its path, and the bytes reserved on it.  NULL past the
 * end. */
GYRE_API const char *gyre_store_device(const gyre_store *store, size_t index,
                                       uint64_t *bytes);
/* Name of state slot `slot` of 0..slots-1; NULL past the end. */
GYRE_API const char *gyre_store_slot(const gyre_store *store, size_t slot);
/* How a state slot lies on storage, or with slot -1 the parameter; F32 past
 * the end. */
GYRE_API gyre_state_codec gyre_store_codec(const gyre_store *store, int slot);
/* "f32", "bf16", "bf16-stochastic", "q8"; NULL for a number that is none.  Any
 * thread. */
GYRE_API const char *gyre_state_codec_name(gyre_state_codec codec);

/*
 * One grain of a variable, GYRE_GRAIN values, to the bytes of a codec and back,
 * as an update has it, by the loops of the context's instruction set; for
 * tools.  `key` and `index`, the first value's place in its tensor, draw the
 * numbers of rounding by a counter; key NULL rounds to nearest.  Any thread.
 */
GYRE_API size_t gyre_state_grain_bytes(gyre_state_codec codec); /* 0: none */
GYRE_API void gyre_state_pack(const gyre_context *context,
                              gyre_state_codec codec, const float *values,
                              const uint32_t key[2], uint64_t index,
                              void *grain);
GYRE_API void gyre_state_unpack(const gyre_context *context,
                                gyre_state_codec codec, const void *grain,
                                float *values);

/* "committed", "volatile", "off"; NULL for a number that is none.  Any
 * thread. */
GYRE_API const char *gyre_residual_name(gyre_residual residual);
/* Parameter `index` of the compressor, in the order of the manifest: its name,
 * NULL past the end. */
GYRE_API const char *gyre_store_compressor_setting(const gyre_store *store,
                                                   size_t index, double *value);

/* The blob of the last commit; *bytes 0 and NULL when there is none.  Valid
 * until the next commit or rollback. */
GYRE_API const void *gyre_store_blob(const gyre_store *store, size_t *bytes);

/* Digest of names, shapes and parameters, the same for any layout.  Reads and
 * verifies everything.  STATE while a round is open. */
GYRE_API gyre_status gyre_store_digest(gyre_store *store,
                                       char text[GYRE_DIGEST_TEXT],
                                       gyre_error *error);

/*
 * Read elements [first, first + count) of a tensor, slot -1 for the parameter
 * or a state slot, as dtype.  Chunks are verified.  STATE while a round is
 * open.
 */
GYRE_API gyre_status gyre_store_read(gyre_store *store, size_t tensor, int slot,
                                     uint64_t first, uint64_t count,
                                     gyre_dtype dtype, void *data,
                                     gyre_error *error);

/* ---- parameters back to the caller ----------------------------------- */

/*
 * Say where updated values of a tensor go: `data` holds all its elements,
 * contiguous, as `dtype`; NULL unbinds.  The caller keeps it alive while bound
 * and does not write it during a round.  STATE while a round is open.
 */
GYRE_API gyre_status gyre_store_bind(gyre_store *store, size_t tensor,
                                     gyre_dtype dtype, void *data,
                                     gyre_error *error);

/* Fill every bound buffer from the store now (after open, say). */
GYRE_API gyre_status gyre_store_pull(gyre_store *store, gyre_error *error);

/* ---- the round ------------------------------------------------------- */

typedef struct gyre_group {
    const gyre_setting *settings; /* over the defaults kept in the store */
    size_t count;
} gyre_group;

/* Zero it, set `size`. */
typedef struct gyre_round_options {
    size_t size;
    const gyre_group *groups; /* per parameter group; NULL: defaults */
    size_t group_count;       /* 0, or the store's number of groups */
    double loss_scale;        /* S, a power of two; 0: 1, or the store's when
                                 dynamic_scale (no other is taken then) */
    uint32_t micro_batches;   /* M; 0: 1 */
    double denominator;       /* D: gradients are sums to be divided by it;
                                 0: 1.  1 / (S D) must be a normal f32 */
    double clip;              /* limit c of the global norm; 0: none */
    int early;                /* update chunks as soon as their gradients are
                                 there; needs clip 0, and not in place */
    int dynamic_scale;        /* S is the store's (info's loss_scale): it
                                 doubles after 1,000 good rounds and halves
                                 when one is skipped, though the first of such
                                 skips is tolerated; at least 1 */
    int late_clip;            /* with a compressor and a clip: compress what has
                                 arrived, unclipped, and clip what comes out
                                 (STORE.md 2); else gradients are held until the
                                 norm is known */
} gyre_round_options;

/*
 * A gradient piece, where it was born.
 *
 *     GYRE_HOST_MEMORY    data: host memory
 *     GYRE_OPENCL_MEMORY  data: a cl_mem; device: place in its context's list
 *     GYRE_CUDA_MEMORY    data: a CUdeviceptr; device: ordinal of the GPU,
 * whose primary context (that of the runtime API) it is of
 *
 * What lies on a device must be complete: the caller has waited for the stream
 * or queue that wrote it.  `stride` in elements, 0 means 1; `offset` in bytes
 * from data, for a cl_mem cannot be moved.
 *
 * With a compressor that has an encoder for devices (gyre-devices(7)), what is
 * born on a device is kept, summed and compressed there, and its residual is
 * there too; payloads and partial sums of norms alone come to the host.  The
 * store holds memory there from the first such piece until it is closed, in the
 * context of that piece.  What else comes from a device is copied through host
 * memory of its size, before anything is claimed; the ledger tells the two
 * apart.  The bits are the same.
 */
typedef enum gyre_memory_kind {
    GYRE_HOST_MEMORY = 0,
    GYRE_OPENCL_MEMORY = 1,
    GYRE_CUDA_MEMORY = 2
} gyre_memory_kind;

typedef struct gyre_gradient {
    gyre_memory_kind kind;
    int32_t device;
    gyre_dtype dtype; /* F32, F64, BF16 or F16 */
    int64_t stride;
    const void *data;
    uint64_t offset;
} gyre_gradient;

/* Open a round.  Errors: STATE (one is open, read-only), PARAMETER (names
 * group and parameter), RANGE, INVALID.  The first micro-batch begins. */
GYRE_API gyre_status gyre_round_begin(gyre_store *store,
                                      const gyre_round_options *options,
                                      gyre_round **out, gyre_error *error);

/*
 * Give elements [first, first + count) of a tensor's gradient.  Within a micro-
 * batch each element comes once, in any order; the data are copied (or added)
 * before it returns.  Errors, with nothing changed: DUPLICATE, RANGE, INVALID
 * (dtype, frozen tensor), STATE; of what is born on a device also UNSUPPORTED,
 * PLUGIN_BAD (the compressor's encoder does not build), IO.  When a device that
 * compresses fails later, the IO error stays with the round, which can only be
 * given up.  Any thread.
 */
GYRE_API gyre_status gyre_round_gradient(gyre_round *round, size_t tensor,
                                         uint64_t first, uint64_t count,
                                         const gyre_gradient *gradient,
                                         gyre_error *error);

/* This tensor has no gradient in this micro-batch; if in none of the round, it
 * is left alone, its t too.  DUPLICATE when pieces of it came.  Any thread. */
GYRE_API gyre_status gyre_round_absent(gyre_round *round, size_t tensor,
                                       gyre_error *error);

/* The backward pass reads the bound buffer of this tensor no more: an early
 * update may fill it before gyre_round_update.  Any thread. */
GYRE_API gyre_status gyre_round_release(gyre_round *round, size_t tensor,
                                        gyre_error *error);

/* End a micro-batch and begin the next.  MISSING lists what has not come (the
 * micro-batch stays open).  After the last it is optional.  With gradients on
 * storage it waits until they lie there; an IO or CORRUPT error then stays with
 * the round, which can only be given up: nothing but it is lost. */
GYRE_API gyre_status gyre_round_next(gyre_round *round, gyre_error *error);

/*
 * Bytes by link, direction and reason.  The first part is what the formulas
 * count (STORE.md 4); padding and what a commit costs are lines of their own.
 * Bytes per parameter divide by `elements`: those updated in the round.
 */
typedef struct gyre_ledger {
    uint64_t rounds;
    uint64_t elements;
    /* host link, down */
    uint64_t gradient_down;
    uint64_t state_down; /* placement host */
    /* host link, up */
    uint64_t parameter_up; /* placement near */
    uint64_t gradient_up;  /* placement host, spilled */
    uint64_t state_up;     /* placement host */
    /* device */
    uint64_t state_read;
    uint64_t gradient_read;
    uint64_t state_write;
    uint64_t gradient_write;
    /* beside the formulas */
    uint64_t residual_down; /* committed residuals: host link, and flash too */
    uint64_t residual_up;   /* read at open */
    uint64_t frame_bytes;   /* headers of wire blocks, each way over a link */
    uint64_t padding_read;  /* grains, labels, alignment; device */
    uint64_t padding_write;
    uint64_t commit_write; /* records, tables, blobs; device */
    /* between the host and a device on which gradients are born, both ways */
    uint64_t born_gradient; /* copied whole: what is not compressed there */
    uint64_t born_payload;  /* compressed there */
    uint64_t born_leaves;   /* partial sums of both norms, 16 B a grain */
    uint64_t born_residual; /* committed, read back, or moved */
    /* sums of the above */
    uint64_t host_bytes;         /* down and up of the first part */
    uint64_t device_read_bytes;  /* state_read + gradient_read */
    uint64_t device_write_bytes; /* state_write + gradient_write */
    uint64_t flash_bytes;        /* everything written to devices */
} gyre_ledger;

/* Norms by name: of the unscaled average before the clip, and after it. */
typedef struct gyre_round_report {
    size_t size;
    uint64_t round;
    uint64_t step; /* t after this round */
    int skipped;   /* gradients not finite: nothing was changed */
    int committed;
    double norm;             /* before clip; NaN or infinity when skipped */
    double norm_clipped;     /* after clip */
    double clip_coefficient; /* k, 1 when nothing was clipped */
    double loss_scale;       /* of this round */
    const char *nonfinite;   /* first tensor with NaN or infinity; or NULL */
    uint64_t nonfinite_tensors;
    uint64_t gradient_bytes;  /* host link, down */
    uint64_t parameter_bytes; /* host link, up, in the dtype returned */
    uint64_t read_bytes;      /* device reads: parameters and slots */
    uint64_t write_bytes;     /* device writes: parameters and slots */
    uint64_t padding_bytes;   /* device traffic of grains and labels */
    uint64_t commit_bytes;    /* device writes: record, table, blob */
    uint64_t store_ns;        /* from the first chunk's read to the end */
    uint64_t exposed_ns;      /* of it, the caller waited inside Gyre */
    double norm_compressed;   /* of what the optimizer saw: after clip and
                                 compression; without a compressor that is
                                 norm_clipped.  NaN after gyre_round_update
                                 when the update is what compresses: with an
                                 exact clip, early, or a barrier */
    gyre_ledger ledger;       /* of this round */
} gyre_round_report;

/*
 * All gradients are in: take the norm, clip, decide on a skip, and start the
 * update.  Returns while chunks still update; the report's norms are filled
 * (bytes and times only by gyre_round_finish).  MISSING as in gyre_round_next.
 */
GYRE_API gyre_status gyre_round_update(gyre_round *round,
                                       gyre_round_report *report,
                                       gyre_error *error);

/* Block until the bound buffer of this tensor holds the new values (of a
 * skipped round: the old ones).  Between gyre_round_update and
 * gyre_round_finish; any thread. */
GYRE_API gyre_status gyre_round_wait(gyre_round *round, size_t tensor,
                                     gyre_error *error);

/*
 * Wait for the update (starting it if gyre_round_update was not called), then
 * commit with `blob` if this is the round for it.  MISSING, and RANGE for a
 * blob larger than the store has room for, leave the round as it was; after
 * anything else it is gone.  Errors: NO_MEMORY, IO, CORRUPT, ... with the store
 * as it was before the round when commit_every is 1; ROLLED_BACK names the step
 * to which the store went back (the last commit) otherwise.  Bound buffers are
 * restored in both cases.
 */
GYRE_API gyre_status gyre_round_finish(gyre_round *round, const void *blob,
                                       size_t blob_bytes,
                                       gyre_round_report *report,
                                       gyre_error *error);

/* Give the round up: as if it had not begun; delivered parameters are
 * restored.  Before gyre_round_update only, STATE afterwards. */
GYRE_API gyre_status gyre_round_abort(gyre_round *round, gyre_error *error);

/* Commit now, with a blob, between rounds (commit_every above 1, or to change
 * the blob).  Fails as gyre_round_finish does. */
GYRE_API gyre_status gyre_store_commit(gyre_store *store, const void *blob,
                                       size_t blob_bytes, gyre_error *error);

/* ---- bytes and wear -------------------------------------------------- */

/* Sum of all rounds since the store was opened.  Between rounds. */
GYRE_API gyre_status gyre_store_ledger(const gyre_store *store,
                                       gyre_ledger *ledger, gyre_error *error);

typedef struct gyre_wear {
    size_t size;
    uint64_t written;       /* to flash in the store's life, as committed */
    uint64_t budget;        /* 0: none */
    double endurance;       /* as given; 0: unknown */
    double bytes_per_round; /* mean since open; 0 before the first */
    double rounds_left;     /* until `endurance` is used; infinity: unknown */
    double budget_rounds_left; /* until the budget is; infinity: none */
} gyre_wear;

GYRE_API gyre_status gyre_store_wear(const gyre_store *store, gyre_wear *wear,
                                     gyre_error *error);

/* ---- planning -------------------------------------------------------- */

/* Peak memory of a store by line, and traffic per step, before anything is
 * allocated. */
typedef struct gyre_store_plan {
    size_t size;
    uint64_t buffer_bytes;   /* recycled chunk buffers, all devices, and one
                                for gyre_store_read */
    uint64_t gradient_bytes; /* held gradients */
    uint64_t leaf_bytes;     /* norm partials and piece counters, or leaves of
                                a digest */
    uint64_t table_bytes;    /* chunk and tensor tables, commit image */
    uint64_t other_bytes;    /* worker stacks, queues, fixed parts */
    uint64_t total_bytes;
    uint64_t disk_bytes; /* reserved, all devices */
    uint64_t chunks;
    uint64_t chunk_elements;
    uint64_t read_bytes_per_step;
    uint64_t write_bytes_per_step; /* with labels and one commit per step */
    uint64_t residual_bytes;       /* memory: two versions, f32 */
    uint64_t payload_bytes;       /* memory: wire blocks held or on their way */
    uint64_t device_memory_bytes; /* of opencl and cuda devices, all */
    uint64_t born_memory_bytes;   /* on a device whose gradients are compressed
                                     there, from the first one on; 0: they are
                                     copied whole */
    gyre_ledger model;            /* what a round will count, by the formulas;
                                     gradients, state and padding */
} gyre_store_plan;

GYRE_API gyre_status gyre_store_make_plan(gyre_context *context,
                                          const gyre_store_spec *spec,
                                          const gyre_store_options *options,
                                          gyre_store_plan *plan,
                                          gyre_error *error);

/* What a place moves, in bytes per second. */
typedef struct gyre_device_speed {
    double read_rate;  /* alone */
    double write_rate; /* alone, flushed; 0 of a block file */
    double rate;       /* reads and writes in turn, as an update has them, both
                          counted; of a block file its reads */
    double weight;     /* share for gyre_store_spec.weights; 1 in the mean */
    uint64_t bytes;    /* moved for it */
    int direct;        /* 0: through the page cache, which says little */
} gyre_device_speed;

/*
 * Measure folders and block files, all at the same time, by a short trial: on a
 * nameless file of at most `bytes` (0: 64 MiB, never more than half of what is
 * free), for about `ns` (0: 1.5 s; a slow device takes the time of 16 blocks of
 * 256 KiB).  Block files are only read, since they may hold something; then the
 * weights of all go by reads.  Errors: INVALID, RANGE, NOT_FOUND, NO_SPACE, IO,
 * which name the device.  Any thread.
 */
GYRE_API gyre_status gyre_store_measure(gyre_context *context,
                                        const char *const *devices,
                                        size_t count, uint64_t bytes,
                                        uint64_t ns, gyre_device_speed *speeds,
                                        gyre_error *error);

/* ---- care ------------------------------------------------------------ */

/* Called now and then, by the thread that called the function, with bytes done
 * and in all; nonzero stops the work, which then returns STOPPED and leaves
 * everything as it was. */
typedef int (*gyre_progress)(void *user, uint64_t done, uint64_t total);

typedef struct gyre_fsck_problem {
    const char *device; /* path of the device file */
    uint64_t chunk;     /* UINT64_MAX: of no chunk */
    const char *what;   /* of a chunk: "stale", "flipped", "foreign",
                           "misplaced", "torn", "truncated", "unreadable",
                           "label" (data whole); else "superblock",
                           "manifest", "record", "truncated", "dirty" */
    const char *text;   /* the whole finding, with the tensor range */
    int note;           /* no problem: a record that a crash inside a commit
                           left torn or behind.  All of the newest whole commit
                           is there, and commits to come write it anew */
} gyre_fsck_problem;

typedef struct gyre_fsck_report {
    size_t size;
    uint64_t chunks; /* checked */
    uint64_t problems;
    uint64_t step;      /* of the commit checked */
    int previous_whole; /* the newest commit is not whole and the one before
                           is: repair will roll back */
    int repaired;
    int salvaged;
    uint64_t notes; /* told, and not among the problems */
} gyre_fsck_report;

enum {
    GYRE_FSCK_REPAIR = 1, /* roll back to the commit before, if whole; of a
                             whole store rewrite damaged copies */
    GYRE_FSCK_SALVAGE = 2 /* where that was not possible: accept bad chunks as
                             they are, mark the store (info.whole 0) and list
                             their ranges in salvaged.json */
};

/*
 * Check a closed store; needs no optimizer.  `each` (may be NULL) is called by
 * this thread, once a problem or note.  OK also when problems were found;
 * errors are those that keep it from looking (NOT_FOUND, BUSY, NO_MEMORY) or
 * from mending (IO: a commit record, or a chunk to be salvaged, cannot be
 * read).
 */
GYRE_API gyre_status gyre_store_fsck(
    gyre_context *context, const char *path, const gyre_store_options *options,
    unsigned flags, void (*each)(void *user, const gyre_fsck_problem *),
    void *user, gyre_fsck_report *report, gyre_error *error);

/*
 * Write parameters under their names, and unless `parameters_only` each state
 * slot as "SLOT/NAME", into one safetensors file (f32; made aside, then
 * renamed).  Metadata: step, each tensor's step, optimizer, digest.  Errors:
 * STATE, DUPLICATE (a tensor's name is also some "SLOT/NAME"), CORRUPT,
 * NO_SPACE, IO, STOPPED; then the file is as it was.
 */
GYRE_API gyre_status gyre_store_export(gyre_store *store, const char *file,
                                       int parameters_only,
                                       gyre_progress progress, void *user,
                                       gyre_error *error);

/*
 * Take parameters (and slots, where the file has them) by name from a
 * safetensors file, f32, f64, bf16 or f16, into a closed store, as a new
 * generation: a crash leaves the old or the new one.  A tensor of the file
 * that the store lacks (NOT_FOUND), or another shape (INVALID), is an error;
 * one that the file lacks stays as it is.  NaN is taken, and told to the log.
 *
 * A step belongs to the state: from the metadata a tensor takes its step when
 * the file has all its slots, and the store takes its own when all tensors do.
 * A file that has every value is also the way out for a store that is dirty or
 * damaged: nothing of its old contents is then read, and it is whole again.
 */
GYRE_API gyre_status gyre_store_import(gyre_context *context, const char *path,
                                       const char *file,
                                       const gyre_store_options *options,
                                       gyre_progress progress, void *user,
                                       gyre_error *error);

/*
 * Rewrite a closed store for another device list and chunk size, as a new
 * generation (space for both is needed until the end).  From `spec`, the
 * fields devices, weights, device_count and chunk_elements are used; of
 * `devices`, NULL means the store's own folder.  All else stays, and training
 * goes on bit-equal.  On any error or crash before the end the old generation
 * stands and nothing of the new one stays.
 */
GYRE_API gyre_status gyre_store_reshard(gyre_context *context, const char *path,
                                        const gyre_store_spec *spec,
                                        const gyre_store_options *options,
                                        gyre_progress progress, void *user,
                                        gyre_error *error);

/*
 * The same of an open store, between two rounds of a program that goes on: to
 * add a device, or to leave one.  Rounds not yet committed are committed (with
 * the last blob), the store is closed, resharded, and opened with `options`
 * (`devices` there is not used); bound buffers stay bound, and training goes on
 * bit-equal, but for a volatile residual, which starts from 0.  The old handle
 * is gone: *store is the new one.  After an error *store is open as the old
 * generation, or NULL when that could not be opened again, which the text says.
 * STATE while a round is open.
 */
GYRE_API gyre_status gyre_store_move(gyre_store **store,
                                     const gyre_store_spec *spec,
                                     const gyre_store_options *options,
                                     gyre_progress progress, void *user,
                                     gyre_error *error);

#ifdef __cplusplus
}
#endif

#endif
