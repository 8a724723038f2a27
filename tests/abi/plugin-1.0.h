/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plugin gives to Gyre: the only header that a plugin includes.
 *
 *     gyre_module_entry() -> gyre_module -> gyre_plugin ... -> descriptor
 *
 * A plugin is a shared object that exports one function, or the same file
 * compiled with GYRE_STATIC_MODULE and linked in.  Everything that it returns
 * is static and constant.  It links to the C library and libm, nothing else.
 *
 * Growth.  Every struct starts with its size and grows at its end only; a
 * reader takes a field as absent when the size does not reach it.  The stride
 * of an array of structs is the size of its first element.  A new capability
 * is an extension, asked for by a string "name/revision".  Only a change of
 * the major number breaks old plugins.
 *
 * An optimizer is written by defining four lists and including this header,
 * then the kernel; see "Writing an optimizer" below.  A compressor defines
 * GY_COMPRESSOR and its parameters; see "Writing a compressor".  A
 * schedule defines GY_SCHEDULE and its parameters; see "Writing a schedule".
 */
#ifndef GYRE_PLUGIN_H
#define GYRE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GYRE_PLUGIN_MAGIC UINT64_C(0x3145525947204447) /* "GD GYRE1" */
#define GYRE_PLUGIN_ABI_MAJOR 1
#define GYRE_PLUGIN_ABI_MINOR 0

#define GYRE_KIND_OPTIMIZER "gyre.optimizer/1"
#define GYRE_KIND_COMPRESSOR "gyre.compressor/1"

/* ---- how it was built -------------------------------------------------- */

/* Instruction sets of a loop table, in this order.  New ones are appended. */
enum { GYRE_LOOP_SCALAR, GYRE_LOOP_AVX2, GYRE_LOOP_AVX512, GYRE_LOOP_COUNT };

/* out[i] = a[i] * b[i] + c[i], written plainly: the host runs it at load to
 * find out whether the compiler fuses what the source keeps apart. */
typedef void (*gyre_probe_function)(size_t n, const float *a, const float *b,
                                    const float *c, float *out);

enum {
    GYRE_BUILT_NO_MATH_ERRNO = 1u << 0, /* -fno-math-errno */
    GYRE_BUILT_FAST_MATH = 1u << 1,     /* -ffast-math or a part of it */
    GYRE_BUILT_OPTIMIZED = 1u << 2      /* -O1 or more */
};

typedef struct gyre_build {
    size_t size;
    const char *compiler;
    uint32_t flags; /* GYRE_BUILT_... */
    uint32_t pointer_bytes;
    uint32_t byte_order; /* 1234 little, 4321 big */
    uint32_t probe_count;
    const gyre_probe_function *probes; /* by instruction set, NULL: none */
} gyre_build;

/* ---- plugin and parameters --------------------------------------------- */

typedef enum gyre_parameter_type {
    GYRE_TYPE_SWITCH = 0, /* 0 or 1 */
    GYRE_TYPE_INT = 1,    /* a whole number */
    GYRE_TYPE_FLOAT = 2,
    GYRE_TYPE_CHOICE = 3 /* index of one of `words` */
} gyre_parameter_type;

typedef enum gyre_parameter_class {
    GYRE_STRUCTURAL = 0, /* fixed when the state is created */
    GYRE_STEP = 1        /* per parameter group, may change every step */
} gyre_parameter_class;

/* Values are doubles, always finite.  `ends` tells whether the limits belong
 * to the range: "[]", "[)", "(]" or "()"; an infinite limit is no limit. */
typedef struct gyre_parameter {
    size_t size;
    const char *name; /* [a-z][a-z0-9_]* */
    const char *doc;  /* one line */
    uint32_t klass;   /* gyre_parameter_class */
    uint32_t type;    /* gyre_parameter_type */
    double initial;   /* the default */
    double min, max;
    const char *ends;
    const char *words; /* of a choice: "torch|ema"; else NULL */
} gyre_parameter;

/* Claims.  The verifier tries to refute every one that is set. */
enum {
    GYRE_CLAIM_DETERMINISTIC = 1u << 0,   /* same input, same bits */
    GYRE_CLAIM_CHUNK_INVARIANT = 1u << 1, /* cut anywhere, same bits */
    GYRE_CLAIM_EXACT_KEPT = 1u << 2,      /* compressor: kept values exact */
    GYRE_CLAIM_UNBIASED = 1u << 3         /* compressor: mean is the input */
};

typedef struct gyre_plugin {
    size_t size;
    const char *kind;    /* GYRE_KIND_... */
    const char *name;    /* [a-z0-9][a-z0-9_-]* */
    const char *version; /* of the plugin: "1.0.0" */
    const char *summary; /* one line */
    const char *licence; /* SPDX expression */
    const gyre_parameter *parameters;
    uint32_t parameter_count;
    uint32_t flags; /* GYRE_CLAIM_... */
    const gyre_build *build;
    const void *descriptor; /* by kind: gyre_optimizer, ... */
    /* What `id` ("reduce/1") names, or NULL.  May be NULL.  Any thread. */
    const void *(*extension)(const char *id);
} gyre_plugin;

typedef struct gyre_module {
    uint64_t magic;
    size_t size;
    uint32_t abi_major;
    uint32_t abi_minor;
    const gyre_build *build;
    const gyre_plugin *const *plugins;
    size_t count;
} gyre_module;

/* The exported function.  No side effects; any thread; never NULL. */
typedef const gyre_module *(*gyre_module_entry_function)(void);

/* ---- optimizer --------------------------------------------------------- */

/* The host's arithmetic for step scalars: the same bits on every machine. */
typedef struct gyre_math {
    size_t size;
    double (*sqrt)(double x);
    double (*powi)(double x, uint64_t n); /* x to the n-th */
    double (*exp)(double x);
    double (*log)(double x);
    double (*pow)(double x, double y);
} gyre_math;

/*
 * One call updates n <= 4096 neighbouring elements of one tensor in place.
 * g is the gradient, scaled, and is not written.  slot[0] is the parameter;
 * the variant's state slots follow in the order of the slot list.  The arrays
 * do not overlap and are aligned to 4 bytes only.  Any thread; the host has
 * pinned rounding and denormals.
 */
typedef struct gyre_loop {
    size_t size;
    size_t n;
    const float *g;
    float *const *slot;
    const float *scalar;
    uint64_t index; /* of the first element in its tensor */
} gyre_loop;

typedef void (*gyre_loop_function)(const gyre_loop *loop);

typedef struct gyre_slot {
    size_t size;
    const char *name; /* a C identifier, PyTorch's where it has one */
    double initial;
    const char *parameter; /* the parameter that gives it instead, or NULL */
} gyre_slot;

/* A subset of the slots with the loops compiled for it.  Every slot, scalar
 * and switch name is known in every variant's kernel; an absent slot reads as
 * zero and is not stored. */
typedef struct gyre_variant {
    size_t size;
    const char *name;
    uint32_t slots;                  /* bit k: slot k is there */
    uint32_t switches;               /* bit k: switch k is 1 */
    const gyre_loop_function *loops; /* by instruction set; NULL: none */
    uint32_t loop_count;             /* at least 1: scalar is a must */
} gyre_variant;

/*
 * values[] is indexed as the parameter table.  All functions: any thread, no
 * allocation, no side effects.
 *
 * select: index of the variant for these values.  A later variant must also do
 *   what an earlier one does, when only step-class values tell them apart.
 * check: NULL, or one sentence about values that do not go together.
 * scalars: out[scalar_count] of the t-th applied step (first: 1), in double;
 *   the host rounds each once to f32.
 */
typedef struct gyre_optimizer {
    size_t size;
    uint32_t state_version; /* raised when old state means something else */
    uint32_t slot_count;
    uint32_t scalar_count;
    uint32_t switch_count;
    uint32_t variant_count;
    uint32_t reserved;
    const gyre_slot *slots;
    const char *const *scalar_names;
    const char *const *switch_names;
    const gyre_variant *variants;
    const char *kernel; /* the text between the brackets of GY_KERNEL */
    uint32_t (*select)(const double *values);
    const char *(*check)(const double *values);
    void (*scalars)(const double *values, uint64_t t, const gyre_math *math,
                    double *out);
} gyre_optimizer;

/* ---- compressor -------------------------------------------------------- */

/*
 * A compressor makes few bytes of many floats.  Its unit is a **grain**: n <=
 * 1,024 neighbouring elements of one tensor, from a multiple of 1,024 on (only
 * a tensor's last grain is shorter).  Grains know nothing of each other, and a
 * codec's own blocks divide 1,024, so no cut of a tensor changes a payload.
 *
 *     x[n] --compress--> payload --decompress--> out[n] == kept[n]
 *
 * A payload has exactly bytes(values, n) bytes, a multiple of 4; with
 * GYRE_CODEC_VARIABLE at most that, and may be empty.  It is little-endian and
 * says the same on every machine.
 */
enum { GYRE_CODEC_GRAIN = 1024 };
enum {
    GYRE_CODEC_VARIABLE = 1u << 0,   /* payloads differ in length */
    GYRE_CODEC_BARRIER = 1u << 1,    /* every element is surveyed before any is
                                        compressed */
    GYRE_CODEC_STOCHASTIC = 1u << 2, /* rounds by gyre_hash of key and index */
    GYRE_CODEC_SPARSE = 1u << 3 /* can list what it kept, see gyre_compress */
};

/* What a SPARSE codec kept of a grain, the rest being +0: index ascending. */
typedef struct gyre_sparse {
    size_t count;
    uint32_t index[GYRE_CODEC_GRAIN];
    float kept[GYRE_CODEC_GRAIN];
} gyre_sparse;

/* Compress one grain.  x is finite (the host skips a round that is not). */
typedef struct gyre_compress {
    size_t size;
    const double *values; /* of the parameter table */
    const void *decided;  /* BARRIER: what the survey came to; else NULL */
    size_t n;
    const float *x;
    uint64_t index;   /* of x[0] in its tensor */
    uint64_t place;   /* of x[0] among all elements of the survey, tensors one
                         behind the other; 0 without a survey */
    uint32_t key[2];  /* seed, tensor and step, mixed */
    uint8_t *payload; /* room for bytes(values, n), aligned to 4 */
    float *kept;      /* n floats: what decompress will give, bit for bit;
                         NULL with sparse */
    gyre_sparse
        *sparse; /* of a SPARSE codec that may list instead; else NULL */
} gyre_compress;

/* Look at one grain before compressing. */
typedef struct gyre_survey {
    size_t size;
    const double *values;
    uint32_t pass;       /* from 0 */
    uint32_t reserved;   /* 0 */
    const void *decided; /* after the passes before; zeros in pass 0 */
    size_t n;
    const float *x;
    uint64_t place;    /* as in gyre_compress */
    uint64_t elements; /* of the whole survey */
    void *summary; /* survey_bytes, zeros at the start of a pass; add to it */
} gyre_survey;

/*
 * The loops of one instruction set; the bits are the scalar set's.  All: any
 * thread, no allocation, no side effects, rounding and denormals pinned.
 *
 * compress: returns the bytes written.
 * decompress: out[n] from any `bytes` bytes; nonzero when they are impossible
 *   (length, index out of range or not ascending, reserved bits, a scale that
 *   is no number), with out in any state.  Never reads or writes beyond.
 * accumulate: out[i] += decompressed[i], the plain f32 sum of every element
 *   (so that -0 + 0 is 0 whatever is left out); else as decompress.
 * survey: not called without GYRE_CODEC_BARRIER.
 */
typedef struct gyre_codec_loop {
    size_t size;
    size_t (*compress)(const gyre_compress *job);
    int (*decompress)(const double *values, size_t n, const uint8_t *payload,
                      size_t bytes, float *out);
    int (*accumulate)(const double *values, size_t n, const uint8_t *payload,
                      size_t bytes, float *out);
    void (*survey)(const gyre_survey *job);
} gyre_codec_loop;

/*
 * check: NULL, or one sentence about values that do not go together.
 * flags: GYRE_CODEC_... for these values; or'ed with those of the descriptor.
 * bytes: of a payload of n elements; n = 1..1024; not falling with n.
 * merge: into += from, two summaries of one pass; commutative and associative
 *   (integers, no floats), so that threads may survey in any order.
 * decide: fill decided[decided_bytes] from the whole summary of a pass over
 *   `elements` elements in places below `extent`; 1: another pass, 0: done.
 */
typedef struct gyre_compressor {
    size_t size;
    uint32_t format; /* raised when the same payload would mean something else
                      */
    uint32_t flags;
    uint32_t survey_bytes;        /* BARRIER, else 0; at most 1 MiB */
    uint32_t decided_bytes;       /* BARRIER, else 0; at most 256 */
    const gyre_codec_loop *loops; /* by instruction set; an entry without
                                     compress: none; scalar is a must */
    uint32_t loop_count;
    uint32_t reserved;
    const char *(*check)(const double *values);
    uint32_t (*flags_of)(const double *values); /* NULL: those above */
    size_t (*bytes)(const double *values, size_t n);
    void (*merge)(void *into, const void *from);
    int (*decide)(const double *values, uint32_t pass, const void *summary,
                  uint64_t elements, uint64_t extent, void *decided);
} gyre_compressor;

/*
 * Extension "gyre.compressor.kernel/1": the decoder as text in the common
 * subset of C, OpenCL C and CUDA C, for a device that decodes beside its
 * update.  It sees
 *
 *     int gy_n, gy_bytes               elements and payload bytes of the grain
 *     gy_u8(at) gy_u16(at) gy_u32(at)  payload readers: uint; `at` in bytes,
 *     gy_f32(at)                       aligned to the size read
 *     gy_bits(u)                       the float with these bits
 *     gy_table(i)                      element of `table`
 *     every name of `names`            an int constant
 *
 * and may use int, uint and float locals, + - * / % & | ^ << >> (unsigned for
 * the last four), comparison, if, ?:, for, while.  Sums and products of floats
 * stand in statements of their own where one follows the other.
 *
 * DECODE: statements for one element gy_i that set the float g.
 * SCATTER: statements for one of gy_lanes workers, gy_lane; they call
 *   gy_put(i, value) for what is not zero, no element twice.  gy_put ignores
 *   an i outside 0..gy_n - 1.
 *
 * Bytes that decompress would refuse may decode to anything, but reads must
 * stay within gy_bytes.
 */
#define GYRE_CODEC_KERNEL "gyre.compressor.kernel/1"

enum { GYRE_KERNEL_DECODE = 0, GYRE_KERNEL_SCATTER = 1 };

typedef struct gyre_codec_kernel {
    size_t size;
    uint32_t form; /* GYRE_KERNEL_... */
    uint32_t name_count;
    uint32_t reserved;
    const char *text;
    const char *const *names;
    void (*constants)(const double *values, int32_t *out); /* out[name_count] */
    const float *(*table)(const double *values, size_t *count); /* or NULL */
} gyre_codec_kernel;

/* ---- schedule ---------------------------------------------------------- */

/*
 * A schedule says which rank holds which rows when, as a plan: per rank a list
 * of ops over slots.  It holds no transport, kernel, mask or random numbers.
 * sdk/man/gyre-plan.5 is the manual of plans; in short:
 *
 *     chunk   a run of token positions with one owner; rows are sets of chunks
 *     buf     storage of a rank
 *     slot    a value in a buf: kind, rows, query heads, dtype
 *     view    rows, heads and planes of a slot
 *     op      PUT GET ATT GRD RED CPY FIN DLT on views, on a lane
 *
 * Heads are always query heads: a KV view of query heads h0..h1 holds the KV
 * heads floor(h0 / g) .. ceil(h1 / g), g = heads / kv_heads.
 */
#define GYRE_KIND_SCHEDULE "gyre.schedule/1"

enum { GYRE_SIDE_Q = 0, GYRE_SIDE_KV = 1, GYRE_SIDE_COUNT = 2 };
enum { GYRE_PASS_FORWARD = 0, GYRE_PASS_BACKWARD = 1, GYRE_PASS_COUNT = 2 };

typedef struct gyre_chunk {
    uint64_t start;  /* position of the first token */
    uint64_t length; /* tokens; may be 0 */
    uint64_t stride; /* from one position to the next, at least 1 */
    uint32_t owner;  /* rank */
    uint32_t reserved;
} gyre_chunk;

/* What is to be computed.  In check and grid the chunks are not known yet
 * (count 0). */
typedef struct gyre_problem {
    size_t size;
    uint32_t ranks, batch;
    uint32_t heads, kv_heads;      /* heads % kv_heads == 0 */
    uint32_t head_dim, v_head_dim; /* of Q and K; of V and O */
    uint32_t dtype;                /* of Q, KV, O, DO, DQ, DKV: gyre_dtype */
    uint32_t wire_dtype;           /* of sums in a PUT */
    uint32_t sum_dtype;            /* of sums that are computed on */
    uint32_t stat_dtype;           /* of LSE and delta */
    uint32_t dtype_bytes, wire_bytes, sum_bytes, stat_bytes;
    uint64_t tokens[GYRE_SIDE_COUNT]; /* of one sequence */
    const gyre_chunk *chunks[GYRE_SIDE_COUNT];
    uint32_t chunk_count[GYRE_SIDE_COUNT];
    const uint64_t *rank_tokens[GYRE_SIDE_COUNT]; /* of each rank; as chunks,
                                                     NULL in check and grid */
} gyre_problem;

/* Kinds of values.  KV and DKV hold K and V together, ST the planes LSE and
 * delta.  The last three are sums ("O*"): partial O with its LSE, and partial
 * gradients; they are born as the identity. */
enum {
    GYRE_VALUE_Q,
    GYRE_VALUE_KV,
    GYRE_VALUE_O,
    GYRE_VALUE_DO,
    GYRE_VALUE_ST,
    GYRE_VALUE_DQ,
    GYRE_VALUE_DKV,
    GYRE_VALUE_O_SUM,
    GYRE_VALUE_DQ_SUM,
    GYRE_VALUE_DKV_SUM,
    GYRE_VALUE_COUNT
};
enum {
    GYRE_PLANE_LSE =
        1u << 0, /* of ST; every other kind has the plane 1 alone */
    GYRE_PLANE_DELTA = 1u << 1
};

/* Ops with their views, in this order; [] may be GYRE_NO_VIEW.  PUT and GET
 * are written by put and get of the host. */
enum {
    GYRE_OP_PUT, /* a */
    GYRE_OP_GET, /* a */
    GYRE_OP_ATT, /* Q KV O* : adds every cell of rows(Q) x rows(KV) */
    GYRE_OP_GRD, /* Q DO ST KV [DQ*] [DKV*] : likewise */
    GYRE_OP_RED, /* a* b* : b += a */
    GYRE_OP_CPY, /* a b : b = a, for sums also a change of dtype */
    GYRE_OP_FIN, /* a* b [ST] : the one normalise and cast; ST.LSE from O* */
    GYRE_OP_DLT, /* O DO ST : delta = rowsum(DO * O) */
    GYRE_OP_COUNT
};
enum { GYRE_OP_VIEWS = 6, GYRE_PLAN_LANES = 8 };
#define GYRE_NO_VIEW UINT32_MAX
#define GYRE_NEW_BUF UINT32_MAX

/* What the members of a group are together. */
enum {
    GYRE_PATTERN_NONE,
    GYRE_PATTERN_A2A, /* all to all */
    GYRE_PATTERN_AG,  /* all-gather */
    GYRE_PATTERN_RS,  /* reduce-scatter: every member carries sums */
    GYRE_PATTERN_COUNT
};

enum {
    GYRE_SLOT_EXTERNAL = 1u << 0, /* the user's own buffer, at its owner */
    GYRE_SLOT_SAVED = 1u << 1     /* forward: kept for the backward pass;
                                     backward: bound to what forward kept */
};

typedef struct gyre_plan_slot {
    uint32_t kind; /* GYRE_VALUE_... */
    uint32_t rows; /* from owned, rows or join; on the kind's side */
    uint32_t h0, h1;
    uint32_t dtype;
    uint32_t buf; /* GYRE_NEW_BUF, or one to be reused */
    uint32_t flags;
    uint32_t reserved;
} gyre_plan_slot;

typedef struct gyre_builder gyre_builder;

/*
 * The mixed radix: one emitter behind most schedules.  A rank's number has five
 * digits, each with its size and stride (which digit stands for neighbours);
 * the strides are 1 and the products of the sizes below.  Digits of size 1 are
 * not there.  Forward, with Q and KV blocks by the four digits that are not
 * heads:
 *
 *     heads      all to all: fewer heads, the rows of all ranks of this digit
 *     q_gather   all-gather of Q rows, reduce-scatter of O*
 *     kv_gather  all-gather of KV rows
 *     outer,     ring of `moves`: `inner` steps, then one of outer, and so on;
 *     inner      the next transfer is under way while this block is computed
 *
 * so that each rank computes q_gather Q blocks by the other KV blocks.  In the
 * backward pass gathers are repeated and gradients scattered; what moves takes
 * its gradient along as a sum of its own, whose first hop is after step 1 and
 * whose own part never leaves home (hops = PUBLISHED: the sum begins at home
 * and makes as many hops as there are ranks in the ring).
 */
typedef struct gyre_radix_digit {
    uint32_t count, stride;
} gyre_radix_digit;

enum {
    GYRE_RADIX_DESCENDING = 1u << 0, /* rings pass on to the rank below */
    GYRE_RADIX_PUBLISHED = 1u << 1,
    GYRE_RADIX_KEEP_SPLIT = 1u << 2, /* keep Q, KV, O by heads for backward */
    GYRE_RADIX_MOVE_Q = 1u << 3,     /* the ring moves Q's side; KV stays */
    GYRE_RADIX_STRAIGHT = 1u << 4,   /* sums go straight home at each step */
    GYRE_RADIX_NESTED = 1u << 5 /* phases "inner" and "outer", not "ring" */
};

typedef struct gyre_radix {
    size_t size;
    gyre_radix_digit heads, q_gather, kv_gather, outer, inner;
    uint32_t flags;
    uint32_t strides; /* do it for so many parts of the KV heads in turn; at
                         least 1; more only without heads and rings */
} gyre_radix;

/*
 * What a schedule calls while it emits one rank.  Ids are of that rank and that
 * call; the same input gives the same id.  The first error is kept and ends the
 * plan, the functions go on returning harmless ids: no check is needed in
 * between.
 *
 * owned: the rows that `rank` owns.  rows: any chunks, sorted here, none twice.
 * join: union of two disjoint row sets of one side.
 * view: part of a slot; whole: all of it.
 * begin..end: one group; its puts and gets start together.  `phase` is a short
 *   name ("ring") under which bytes are counted.
 * put, get: the k-th put to a peer on a channel meets its k-th get from here.
 * op: any other op.
 * refuse: end the plan with this sentence.
 * radix: the whole program of this rank and pass, by the mixed radix.
 */
typedef struct gyre_plan_host {
    size_t size;
    const gyre_problem *(*problem)(const gyre_builder *builder);
    uint32_t (*owned)(gyre_builder *builder, uint32_t side, uint32_t rank);
    uint32_t (*rows)(gyre_builder *builder, uint32_t side,
                     const uint32_t *chunks, uint32_t count);
    uint32_t (*join)(gyre_builder *builder, uint32_t rows, uint32_t others);
    uint64_t (*row_tokens)(const gyre_builder *builder, uint32_t rows);
    uint32_t (*slot)(gyre_builder *builder, const gyre_plan_slot *slot);
    uint32_t (*view)(gyre_builder *builder, uint32_t slot, uint32_t rows,
                     uint32_t h0, uint32_t h1, uint32_t planes);
    uint32_t (*whole)(gyre_builder *builder, uint32_t slot);
    void (*begin)(gyre_builder *builder, uint32_t lane, const char *phase,
                  uint32_t pattern);
    void (*put)(gyre_builder *builder, uint32_t view, uint32_t peer,
                uint32_t channel);
    void (*get)(gyre_builder *builder, uint32_t view, uint32_t peer,
                uint32_t channel);
    void (*end)(gyre_builder *builder);
    void (*op)(gyre_builder *builder, uint32_t lane, uint32_t code,
               const uint32_t *views, uint32_t count);
    void (*refuse)(gyre_builder *builder, const char *text);
    void (*radix)(gyre_builder *builder, const gyre_radix *radix);
} gyre_plan_host;

/* Where a rank stands on the sequence: the host cuts it for `contexts` places
 * by the layout asked for (contiguous, zigzag, ...), then each place's pieces
 * evenly in `parts` neighbours.  context < contexts, part < parts, and every
 * pair belongs to one rank. */
typedef struct gyre_grid {
    uint32_t context, contexts;
    uint32_t part, parts;
} gyre_grid;

enum { GYRE_PLAN_PHASES = 8 };

/* Bytes of one rank in one phase of one pass. */
typedef struct gyre_phase_bytes {
    const char *phase;
    uint64_t sent, received;
} gyre_phase_bytes;

/*
 * values: of the parameter table.  All: any thread, no side effects.
 *
 * check: 0 when the schedule can do the problem; else nonzero and a sentence
 *   that says what is wrong and which numbers would work.  The others are only
 *   called after it.
 * grid: NULL: rank r is place r of `ranks`.
 * emit: the ops of one rank in one pass.
 * bytes: the closed form; fills out[GYRE_PLAN_PHASES], returns how many; phases
 *   without bytes are left out.
 * memory: the closed form of the bytes of all bufs of a rank, the user's own
 *   included.
 */
typedef struct gyre_schedule {
    size_t size;
    int (*check)(const double *values, const gyre_problem *problem, char *text,
                 size_t size);
    void (*grid)(const double *values, const gyre_problem *problem,
                 uint32_t rank, gyre_grid *out);
    void (*emit)(const double *values, uint32_t pass, uint32_t rank,
                 const gyre_plan_host *host, gyre_builder *builder);
    uint32_t (*bytes)(const double *values, const gyre_problem *problem,
                      uint32_t pass, uint32_t rank, gyre_phase_bytes *out);
    uint64_t (*memory)(const double *values, const gyre_problem *problem,
                       uint32_t pass, uint32_t rank);
} gyre_schedule;

/*
 * Extension "gyre.compressor.encode/1": the compressor as text in the same
 * subset, for a device on which gradients are born.  gy_lanes workers run it
 * for one grain, each as gy_lane.  Names, constants and table are those of the
 * decoder, which must be there too.  It sees
 *
 *     int gy_n, gy_bytes           elements, and bytes(values, gy_n)
 *     gy_x(i)                      element i: finite, never -0
 *     gy_keep(i, x)                what decompress will give for it
 *     gy_put8(at, u) gy_put16(at, u) gy_put32(at, u)
 *                                  payload writers; `at` as for the readers
 *     gy_word(i)                   uint, i < 1024, shared by the workers
 *     gy_wide(i)                   double, i < 512, in the same memory
 *     gy_barrier()                 all workers wait for each other: none may
 *                                  come by a way that another does not take
 *     uint gy_index, gy_index_high place of element 0 in its tensor
 *     uint gy_key, gy_key_high     as key[2] of gyre_compress
 *     gyre_hash(key0, key1, counter), gy_to_bits(x)
 *     gy_bits, gy_table and the names as the decoder does
 *
 * and may use double locals for sums.  Every element is kept by one worker and
 * every byte written, zeros at the end too.  gy_n and gy_bytes are the same for
 * all workers, shared words hold anything at the start, gy_lanes is not known.
 * Payload and kept values are those of `compress`, bit for bit.
 */
#define GYRE_CODEC_ENCODE "gyre.compressor.encode/1"

typedef struct gyre_codec_encoder {
    size_t size;
    const char *text;
    int (*able)(const double *values); /* of these too?  NULL: of all */
} gyre_codec_encoder;

/*
 * A random word for each counter: 32-bit integer operations alone, so that
 * every device has the same.  Two rounds of a multiply-and-shift mix with a key
 * word before each; every input bit flips every output bit about half the time.
 * GYRE_HASH_TEXT is the function as text for a device, over `uint`.
 */
#define GY_HASH_(kind, U)                            \
    kind U gyre_hash(U key0, U key1, U counter)      \
    {                                                \
        U x = (counter ^ key0) * 0x9e3779b1u + key1; \
        x = (x ^ (x >> 16)) * 0x7feb352du;           \
        x = (x ^ (x >> 15)) * 0x846ca68bu;           \
        x = (x ^ (x >> 16)) + key0;                  \
        x = (x ^ (x >> 17)) * 0xed5ad4bbu;           \
        x = (x ^ (x >> 11)) * 0xac4c1b51u;           \
        x = (x ^ (x >> 15)) * 0x31848babu;           \
        return x ^ (x >> 14);                        \
    }
#define GY_TEXT_(...) #__VA_ARGS__
#define GY_TEXT_OF_(...) GY_TEXT_(__VA_ARGS__)
#define GYRE_HASH_TEXT GY_TEXT_OF_(GY_HASH_(, uint))
GY_HASH_(__attribute__((unused)) static inline, uint32_t)

/* ---- writing a module -------------------------------------------------- */

#ifdef __cplusplus
#define GY_EXTERN_ extern "C"
#else
#define GY_EXTERN_ extern
#endif

#ifdef __NO_MATH_ERRNO__
#define GY_BUILT_ERRNO_ GYRE_BUILT_NO_MATH_ERRNO
#else
#define GY_BUILT_ERRNO_ 0u
#endif
#ifdef __FAST_MATH__
#define GY_BUILT_FAST_ GYRE_BUILT_FAST_MATH
#else
#define GY_BUILT_FAST_ 0u
#endif
#ifdef __OPTIMIZE__
#define GY_BUILT_OPTIMIZED_ GYRE_BUILT_OPTIMIZED
#else
#define GY_BUILT_OPTIMIZED_ 0u
#endif
#define GY_BUILD_(count, probes)                                    \
    {                                                               \
        sizeof(gyre_build), __VERSION__,                            \
            GY_BUILT_ERRNO_ | GY_BUILT_FAST_ | GY_BUILT_OPTIMIZED_, \
            sizeof(void *), __BYTE_ORDER__, count, probes           \
    }

/*
 * GYRE_MODULE(name, &gyre_plugin_a, ...) defines the exported function.  With
 * GYRE_STATIC_MODULE defined it is gyre_module_entry_<name> instead, to be
 * handed to gyre_plugin_add() or put into the library's own table.
 */
#ifdef GYRE_STATIC_MODULE
#define GY_ENTRY_(name) gyre_module_entry_##name
#define GY_ENTRY_VISIBILITY_ "hidden"
#else
#define GY_ENTRY_(name) gyre_module_entry
#define GY_ENTRY_VISIBILITY_ "default"
#endif

#define GYRE_MODULE(name, ...)                                                 \
    static const gyre_build gy_module_build_ = GY_BUILD_(0, NULL);             \
    static const gyre_plugin *const gy_module_plugins_[] = {__VA_ARGS__};      \
    static const gyre_module gy_module_ = {GYRE_PLUGIN_MAGIC,                  \
                                           sizeof(gyre_module),                \
                                           GYRE_PLUGIN_ABI_MAJOR,              \
                                           GYRE_PLUGIN_ABI_MINOR,              \
                                           &gy_module_build_,                  \
                                           gy_module_plugins_,                 \
                                           sizeof(gy_module_plugins_) /        \
                                               sizeof(gy_module_plugins_[0])}; \
    GY_EXTERN_ __attribute__((visibility(GY_ENTRY_VISIBILITY_)))               \
    const gyre_module *GY_ENTRY_(name)(void);                                  \
    GY_EXTERN_ const gyre_module *GY_ENTRY_(name)(void)                        \
    {                                                                          \
        return &gy_module_;                                                    \
    }

/* Parameter table entries: P(name, class, one of these, "doc"). */
#define GYRE_NO_LIMIT __builtin_inf()
#define GYRE_SWITCH(initial) GYRE_TYPE_SWITCH, (initial), 0.0, 1.0, "[]", NULL
#define GYRE_INT(initial, min, max) \
    GYRE_TYPE_INT, (initial), (min), (max), "[]", NULL
#define GYRE_FLOAT(initial, min, max, ends) \
    GYRE_TYPE_FLOAT, (initial), (min), (max), (ends), NULL
#define GYRE_CHOICE(initial, words) \
    GYRE_TYPE_CHOICE, (initial), 0.0, GYRE_NO_LIMIT, "[)", (words)

/* ---- writing an optimizer ---------------------------------------------- */

/*
 * Before including this header, define
 *
 *     #define GY_PARAMETERS(P) P(lr, GYRE_STEP, GYRE_FLOAT(...), "doc") ...
 *     #define GY_SLOTS(S)      S(exp_avg, 0.0, NULL) ...      (may be empty)
 *     #define GY_SCALARS(S)    S(step) ...
 *     #define GY_SWITCHES(S)   S(GY_AMSGRAD) ...              (optional)
 *     #define GY_VARIANTS(V)   V(name, slot mask, switch mask) ...  (optional)
 *
 * A mask is an OR of GY_SLOT(exp_avg) or GY_ON(GY_AMSGRAD), GY_ALL, or 0.
 * Then include "name.kernel", which holds one GY_KERNEL( statements ): the
 * update of one element in the common subset of C, OpenCL C and CUDA C.  It
 * sees g, p, every slot and scalar as floats and every switch as 0 or 1, and
 * may use + - * /, comparison, if, float locals, f-suffixed literals and
 *
 *     gy_fma(a, b, c)  a * b + c, rounded once     gy_sqrt(a)   gy_abs(a)
 *     gy_min(a, b)     a < b ? a : b
 *     gy_max(a, b)     a > b ? a : b       gy_select(c, a, b)   c ? a : b
 *
 * No preprocessor line may stand between the brackets.  Then define functions
 * over gy_values (a struct of the parameters) and gy_scalars and end with
 *
 *     GYRE_OPTIMIZER(name, "1.0.0", "summary", "licence", claims,
 *                    state version, select, check, scalars)
 *     GYRE_MODULE(name, &gyre_plugin_name)
 *
 * gy_first_variant and gy_no_check serve where there is nothing to say.
 */
#if defined(GY_SCALARS) || defined(GY_COMPRESSOR) || defined(GY_SCHEDULE)

#define GY_INLINE_ static inline __attribute__((always_inline, unused))

/* The parameters as a struct of doubles. */
#define GY_VALUE_FIELD_(name, klass, spec, doc) double name;
typedef struct gy_values {
    GY_PARAMETERS(GY_VALUE_FIELD_)
} gy_values;
#define GY_VALUES_(values) ((const gy_values *)(const void *)(values))
#define GY_PARAMETER_ENTRY_(name, klass, spec, doc) \
    {sizeof(gyre_parameter), #name, doc, klass, spec},

#endif

#if defined(GY_SCALARS) || defined(GY_COMPRESSOR)

#ifndef __NO_MATH_ERRNO__
#error "gyre: without -fno-math-errno no root is vectorised; compile with \
-O3 -fno-math-errno -fno-trapping-math -ffp-contract=off \
(pkg-config --cflags gyre-plugin)"
#endif
#if defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__) ||        \
    defined(__ASSOCIATIVE_MATH__) || defined(__NO_SIGNED_ZEROS__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "gyre: -ffast-math and its parts change results; compile with \
-O3 -fno-math-errno -fno-trapping-math -ffp-contract=off \
(pkg-config --cflags gyre-plugin)"
#endif
/* 16: each type in itself, half precision too. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && \
    __FLT_EVAL_METHOD__ != 16
#error "gyre: float arithmetic must not be widened; on 32-bit x86 compile \
with -msse2 -mfpmath=sse"
#endif

GY_INLINE_ float gy_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
GY_INLINE_ float gy_sqrt(float a)
{
    return __builtin_sqrtf(a);
}
GY_INLINE_ float gy_abs(float a)
{
    return __builtin_fabsf(a);
}
GY_INLINE_ float gy_min(float a, float b)
{
    return a < b ? a : b;
}
GY_INLINE_ float gy_max(float a, float b)
{
    return a > b ? a : b;
}
GY_INLINE_ float gy_select(int c, float a, float b)
{
    return c ? a : b;
}

GY_INLINE_ const char *gy_no_check(const gy_values *values)
{
    (void)values;
    return NULL;
}

/* One body, inlined into a function per instruction set. */
#if defined(__x86_64__)
#define GY_AVX2_ __attribute__((target("avx2,fma")))
#define GY_AVX512_ \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")))
#define GY_BY_ISA_(X, name, ...)          \
    X(name##_scalar, , __VA_ARGS__)       \
    X(name##_avx2, GY_AVX2_, __VA_ARGS__) \
    X(name##_avx512, GY_AVX512_, __VA_ARGS__)
#define GY_ISA_LIST_(name)                        \
    {                                             \
        name##_scalar, name##_avx2, name##_avx512 \
    }
#else
#define GY_BY_ISA_(X, name, ...) X(name##_scalar, , __VA_ARGS__)
#define GY_ISA_LIST_(name)        \
    {                             \
        name##_scalar, NULL, NULL \
    }
#endif
#if defined(__clang__)
/* A debug or sanitizer build vectorises nothing; that is no fault. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define GY_NO_ALIAS_ _Pragma("clang loop vectorize(assume_safety)")
#else
#define GY_NO_ALIAS_ _Pragma("GCC ivdep")
#endif

#define GY_PROBE_(name, target, ...)                                  \
    target static void name(size_t n, const float *a, const float *b, \
                            const float *c, float *out)               \
    {                                                                 \
        GY_NO_ALIAS_                                                  \
        for (size_t i = 0; i < n; i++)                                \
            out[i] = a[i] * b[i] + c[i];                              \
    }
GY_BY_ISA_(GY_PROBE_, gy_probe, )
static const gyre_probe_function gy_probes_[] = GY_ISA_LIST_(gy_probe);
static const gyre_build gy_build_ = GY_BUILD_(GYRE_LOOP_COUNT, gy_probes_);

#endif /* GY_SCALARS or GY_COMPRESSOR */

#ifdef GY_SCALARS

#ifndef GY_SWITCHES
#define GY_SWITCHES(S)
#endif
#ifndef GY_VARIANTS
#define GY_VARIANTS(V) V(plain, GY_ALL, 0)
#endif

/* The tables and structs behind the lists. */
#define GY_SCALAR_FIELD_(name) double name;
#define GY_NAME_(name) #name,
typedef struct gy_scalars {
    GY_SCALARS(GY_SCALAR_FIELD_)
} gy_scalars;

#define GY_SLOT_ENUM_(name, initial, parameter) gy_slot_##name##_,
#define GY_SCALAR_ENUM_(name) gy_scalar_##name##_,
#define GY_SWITCH_ENUM_(name) gy_switch_##name##_,
#define GY_VARIANT_ENUM_(name, slots, switches) gy_variant_##name,
enum { GY_SLOTS(GY_SLOT_ENUM_) gy_slot_count_ };
enum { GY_SCALARS(GY_SCALAR_ENUM_) gy_scalar_count_ };
enum { GY_SWITCHES(GY_SWITCH_ENUM_) gy_switch_count_ };
enum { GY_VARIANTS(GY_VARIANT_ENUM_) gy_variant_count_ };
#define GY_SLOT(name) (1u << gy_slot_##name##_)
#define GY_ON(name) (1u << gy_switch_##name##_)
#define GY_ALL ((1u << gy_slot_count_) - 1u)

GY_INLINE_ uint32_t gy_first_variant(const gy_values *values)
{
    (void)values;
    return 0;
}
/* Loops: one body, inlined with constant masks into a function per variant and
 * instruction set, so that an absent slot costs nothing. */
#define GY_COUNT_BITS_(mask) ((unsigned)__builtin_popcount(mask))
#define GY_SLOT_POINTER_(name, initial, parameter)                          \
    float *gy_at_##name =                                                   \
        (gy_slots & GY_SLOT(name))                                          \
            ? gy->slot[1 + GY_COUNT_BITS_(gy_slots & (GY_SLOT(name) - 1u))] \
            : NULL;                                                         \
    (void)gy_at_##name;
#define GY_SLOT_LOAD_(name, initial, parameter) \
    float name = (gy_slots & GY_SLOT(name)) ? gy_at_##name[gy_i] : 0.0f;
#define GY_SLOT_STORE_(name, initial, parameter) \
    if (gy_slots & GY_SLOT(name))                \
        gy_at_##name[gy_i] = name;
#define GY_SCALAR_LOAD_(name)                           \
    const float name = gy->scalar[gy_scalar_##name##_]; \
    (void)name;
#define GY_SWITCH_LOAD_(name)                          \
    const int name = (gy_switches & GY_ON(name)) != 0; \
    (void)name;
#define GY_LOOP_(name, target, slots, switches)  \
    target static void name(const gyre_loop *gy) \
    {                                            \
        gy_body_(gy, slots, switches);           \
    }
#define GY_VARIANT_LOOPS_(name, slots, switches)          \
    GY_BY_ISA_(GY_LOOP_, gy_loop_##name, slots, switches) \
    static const gyre_loop_function gy_loops_##name[] =   \
        GY_ISA_LIST_(gy_loop_##name);

/*
 * Lines are fetched AHEAD elements before their turn, also past the tile's end,
 * where the next tile usually is: division and root fill the processor's
 * window, so that it sees less far ahead by itself than a plain copy does.
 * Fetching harms nothing where there is no memory.
 */
enum { GY_BLOCK_ = 64, GY_LINE_ = 16, GY_AHEAD_ = 256 };
#define GY_FETCH_(array) \
    __builtin_prefetch(  \
        (const void *)((uintptr_t)(array) + gy_next * sizeof(float)));
#define GY_SLOT_FETCH_(name, initial, parameter) \
    if (gy_slots & GY_SLOT(name))                \
    GY_FETCH_(gy_at_##name)
#define GY_ELEMENTS_(from, to, ...)                   \
    GY_NO_ALIAS_                                      \
    for (size_t gy_i = (from); gy_i < (to); gy_i++) { \
        float g = gy_at_g[gy_i];                      \
        float p = gy_at_p[gy_i];                      \
        GY_SLOTS(GY_SLOT_LOAD_){__VA_ARGS__}(void)g;  \
        gy_at_p[gy_i] = p;                            \
        GY_SLOTS(GY_SLOT_STORE_)                      \
    }

#define GY_KERNEL(...)                                                     \
    static const char gy_kernel_[] = #__VA_ARGS__;                         \
    GY_INLINE_ void gy_body_(const gyre_loop *gy, const uint32_t gy_slots, \
                             const uint32_t gy_switches)                   \
    {                                                                      \
        const size_t gy_n = gy->n;                                         \
        size_t gy_block = 0;                                               \
        const float *gy_at_g = gy->g;                                      \
        float *gy_at_p = gy->slot[0];                                      \
        GY_SLOTS(GY_SLOT_POINTER_)                                         \
        GY_SCALARS(GY_SCALAR_LOAD_)                                        \
        GY_SWITCHES(GY_SWITCH_LOAD_)                                       \
        (void)gy_slots;                                                    \
        (void)gy_switches;                                                 \
        for (; gy_block + GY_BLOCK_ <= gy_n; gy_block += GY_BLOCK_) {      \
            for (size_t gy_line = 0; gy_line < GY_BLOCK_;                  \
                 gy_line += GY_LINE_) {                                    \
                const size_t gy_next = gy_block + gy_line + GY_AHEAD_;     \
                GY_FETCH_(gy_at_g)                                         \
                GY_FETCH_(gy_at_p)                                         \
                GY_SLOTS(GY_SLOT_FETCH_)                                   \
            }                                                              \
            GY_ELEMENTS_(gy_block, gy_block + GY_BLOCK_, __VA_ARGS__)      \
        }                                                                  \
        GY_ELEMENTS_(gy_block, gy_n, __VA_ARGS__)                          \
    }                                                                      \
    GY_VARIANTS(GY_VARIANT_LOOPS_)

#define GY_SLOT_ENTRY_(name, initial, parameter) \
    {sizeof(gyre_slot), #name, initial, parameter},
#define GY_VARIANT_ENTRY_(name, slots, switches)            \
    {sizeof(gyre_variant), #name,          slots, switches, \
     gy_loops_##name,      GYRE_LOOP_COUNT},

#define GYRE_OPTIMIZER(id, version, summary, licence, claims, state, select,   \
                       check, scalars)                                         \
    static uint32_t gy_select_(const double *v)                                \
    {                                                                          \
        return select((const gy_values *)(const void *)v);                     \
    }                                                                          \
    static const char *gy_check_(const double *v)                              \
    {                                                                          \
        return check((const gy_values *)(const void *)v);                      \
    }                                                                          \
    static void gy_scalars_(const double *v, uint64_t t,                       \
                            const gyre_math *math, double *out)                \
    {                                                                          \
        scalars((const gy_values *)(const void *)v, t, math,                   \
                (gy_scalars *)(void *)out);                                    \
    }                                                                          \
    static const gyre_parameter gy_parameter_table_[] = {                      \
        GY_PARAMETERS(GY_PARAMETER_ENTRY_)};                                   \
    static const gyre_slot gy_slot_table_[] = {                                \
        GY_SLOTS(GY_SLOT_ENTRY_){sizeof(gyre_slot), NULL, 0.0, NULL}};         \
    static const char *const gy_scalar_names_[] = {GY_SCALARS(GY_NAME_) NULL}; \
    static const char *const gy_switch_names_[] = {GY_SWITCHES(GY_NAME_)       \
                                                       NULL};                  \
    static const gyre_variant gy_variant_table_[] = {                          \
        GY_VARIANTS(GY_VARIANT_ENTRY_)};                                       \
    static const gyre_optimizer gy_optimizer_ = {sizeof(gyre_optimizer),       \
                                                 state,                        \
                                                 gy_slot_count_,               \
                                                 gy_scalar_count_,             \
                                                 gy_switch_count_,             \
                                                 gy_variant_count_,            \
                                                 0,                            \
                                                 gy_slot_table_,               \
                                                 gy_scalar_names_,             \
                                                 gy_switch_names_,             \
                                                 gy_variant_table_,            \
                                                 gy_kernel_,                   \
                                                 gy_select_,                   \
                                                 gy_check_,                    \
                                                 gy_scalars_};                 \
    GY_EXTERN_ __attribute__((visibility("hidden")))                           \
    const gyre_plugin gyre_plugin_##id;                                        \
    const gyre_plugin gyre_plugin_##id = {sizeof(gyre_plugin),                 \
                                          GYRE_KIND_OPTIMIZER,                 \
                                          #id,                                 \
                                          version,                             \
                                          summary,                             \
                                          licence,                             \
                                          gy_parameter_table_,                 \
                                          sizeof(gy_parameter_table_) /        \
                                              sizeof(gy_parameter_table_[0]),  \
                                          claims,                              \
                                          &gy_build_,                          \
                                          &gy_optimizer_,                      \
                                          NULL};

#endif /* GY_SCALARS */

/* ---- writing a compressor ---------------------------------------------- */

/*
 * Before including this header, define GY_COMPRESSOR and
 *
 *     #define GY_PARAMETERS(P) P(ratio, GYRE_STRUCTURAL, ...) ...
 *
 * all of them structural and at least one.  Then write, with `isa` a constant
 * in each copy (GYRE_LOOP_...), so that a body may branch to faster code,
 *
 *     GY_INLINE_ size_t compress(const gyre_compress *job, int isa)
 *     GY_INLINE_ int decompress(const gy_values *v, size_t n,
 *                               const uint8_t *payload, size_t bytes,
 *                               float *out, int isa)
 *     GY_INLINE_ void survey(const gyre_survey *job, int isa)
 *
 * and functions over gy_values, and end with
 *
 *     GY_DECODE(statements)  or  GY_SCATTER(statements), from "name.kernel",
 *         after defining GY_NAMES(N) as N(GY_ONE) N(GY_TWO) ..., with
 *     GYRE_CODEC_TEXT(constants, table)  where constants(v, out) fills one
 *         int32_t for each name and table(v, &count) returns floats; or, with
 *         GY_ENCODE(statements), from "name.encode", before it,
 *     GYRE_CODEC_TEXTS(constants, table, able)
 *     GYRE_CODEC_LOOPS(compress, decompress, survey)
 *     static const gyre_compressor name = {... gy_codec_loops_ ...};
 *     GYRE_COMPRESSOR(id, "1.0.0", "summary", "licence", claims, &name)
 *     GYRE_MODULE(id, &gyre_plugin_id)
 *
 * gy_no_survey, gy_no_table serve where there is nothing to say.
 */
#ifdef GY_COMPRESSOR

/* A float's bits and back; payload words, little-endian, aligned or not. */
GY_INLINE_ uint32_t gy_to_bits(float x)
{
    uint32_t u;

    __builtin_memcpy(&u, &x, sizeof(u));
    return u;
}
GY_INLINE_ float gy_bits(uint32_t u)
{
    float x;

    __builtin_memcpy(&x, &u, sizeof(x));
    return x;
}
GY_INLINE_ uint32_t gy_get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}
GY_INLINE_ uint32_t gy_get16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}
GY_INLINE_ void gy_put32(uint8_t *at, uint32_t u)
{
    at[0] = (uint8_t)u;
    at[1] = (uint8_t)(u >> 8);
    at[2] = (uint8_t)(u >> 16);
    at[3] = (uint8_t)(u >> 24);
}
GY_INLINE_ void gy_put16(uint8_t *at, uint32_t u)
{
    at[0] = (uint8_t)u;
    at[1] = (uint8_t)(u >> 8);
}
/* Bits of the largest |x|. */
GY_INLINE_ uint32_t gy_largest(const float *x, size_t n)
{
    int32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)(gy_to_bits(x[i]) & 0x7fffffffu);

        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}
/* Grows a payload's size to a multiple of 4. */
GY_INLINE_ size_t gy_round4(size_t bytes)
{
    return (bytes + 3) / 4 * 4;
}
/* Zeros from `used` to the multiple of 4 that it returns; and are they? */
GY_INLINE_ size_t gy_pad4(uint8_t *payload, size_t used)
{
    size_t bytes = gy_round4(used);

    while (used < bytes)
        payload[used++] = 0;
    return bytes;
}
GY_INLINE_ int gy_padded4(const uint8_t *payload, size_t used)
{
    size_t bytes = gy_round4(used);
    uint8_t any = 0;

    while (used < bytes)
        any |= payload[used++];
    return any == 0;
}

/*
 * A small float: `mantissa` bits behind the point, smallest normal exponent
 * `low`, largest value `most`.  gy_mini_round rounds y >= 0 to the nearest,
 * even for ties, and saturates: adding and taking off a number whose last bit
 * is the one to round to.  gy_mini_code numbers the rounded value.
 */
typedef struct gy_mini {
    int mantissa, low;
    float most;
    int scale_low, scale_high; /* exponents of a block's power-of-two scale */
} gy_mini;

GY_INLINE_ float gy_power(int e) /* 2^e, e = -126 .. 127 */
{
    return gy_bits((uint32_t)(e + 127) << 23);
}
GY_INLINE_ float gy_mini_round(const gy_mini mini, float y)
{
    uint32_t exponent = gy_to_bits(y) & 0x7f800000u;
    uint32_t low = (uint32_t)(mini.low + 127) << 23;
    float big;

    exponent = exponent > low ? exponent : low;
    big = gy_bits((exponent + ((uint32_t)(23 - mini.mantissa) << 23)) |
                  0x400000u);
    y = gy_min(y, 2.0f * mini.most);
    y = (y + big) - big;
    return gy_min(y, mini.most);
}
GY_INLINE_ uint32_t gy_mini_code(const gy_mini mini, float y)
{
    uint32_t normal = (gy_to_bits(y) >> (23 - mini.mantissa)) -
                      ((uint32_t)(126 + mini.low) << mini.mantissa);
    uint32_t small = (uint32_t)(int32_t)(gy_min(y, gy_power(mini.low)) *
                                         gy_power(mini.mantissa - mini.low));

    return y >= gy_power(mini.low) ? normal : small;
}
GY_INLINE_ float gy_mini_value(const gy_mini mini, uint32_t code)
{
    uint32_t exponent = code >> mini.mantissa;
    uint32_t part = code & ((1u << mini.mantissa) - 1u);

    if (exponent == 0)
        return (float)(int32_t)part * gy_power(mini.low - mini.mantissa);
    return gy_bits(((uint32_t)(126 + mini.low) + exponent) << 23 |
                   part << (23 - mini.mantissa));
}
/* Exponent of the smallest scale at which a block whose largest |x| has these
 * bits does not saturate, within the limits. */
GY_INLINE_ int gy_mini_scale(const gy_mini mini, uint32_t largest)
{
    int top = (int)(gy_to_bits(mini.most) >> 23) - 127;
    int e = (int)(largest >> 23) - 127 - top;

    e = e < mini.scale_low ? mini.scale_low : e;
    e = e > mini.scale_high ? mini.scale_high : e;
    if (gy_bits(largest) * gy_power(-e) > mini.most && e < mini.scale_high)
        e++;
    return e;
}

GY_INLINE_ void gy_no_survey(const gyre_survey *job, int isa)
{
    (void)job;
    (void)isa;
}
GY_INLINE_ const float *gy_no_table(const gy_values *values, size_t *count)
{
    (void)values;
    *count = 0;
    return NULL;
}

/* Rounding loops are bound by the processor, so that the widest vectors pay. */
#if defined(__clang__)
#define GY_AVX512_WIDE_ GY_AVX512_
#else
#define GY_AVX512_WIDE_                                                  \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw," \
                          "prefer-vector-width=512")))
#endif

#define GY_CODEC_FACE_(suffix, isa, target, C, D, S)                         \
    target static size_t gy_compress_##suffix(const gyre_compress *job)      \
    {                                                                        \
        return C(job, isa);                                                  \
    }                                                                        \
    target static int gy_decompress_##suffix(const double *values, size_t n, \
                                             const uint8_t *payload,         \
                                             size_t bytes, float *out)       \
    {                                                                        \
        return D(GY_VALUES_(values), n, payload, bytes, out, isa);           \
    }                                                                        \
    target static int gy_accumulate_##suffix(const double *values, size_t n, \
                                             const uint8_t *payload,         \
                                             size_t bytes, float *out)       \
    {                                                                        \
        float more[GYRE_CODEC_GRAIN];                                        \
                                                                             \
        if (D(GY_VALUES_(values), n, payload, bytes, more, isa) != 0)        \
            return 1;                                                        \
        for (size_t i = 0; i < n; i++)                                       \
            out[i] += more[i];                                               \
        return 0;                                                            \
    }                                                                        \
    target static void gy_survey_##suffix(const gyre_survey *job)            \
    {                                                                        \
        S(job, isa);                                                         \
    }
#define GY_CODEC_ROW_(suffix)                                                  \
    {                                                                          \
        sizeof(gyre_codec_loop), gy_compress_##suffix, gy_decompress_##suffix, \
            gy_accumulate_##suffix, gy_survey_##suffix                         \
    }
#if defined(__x86_64__)
#define GYRE_CODEC_LOOPS(C, D, S)                                      \
    GY_CODEC_FACE_(scalar, GYRE_LOOP_SCALAR, , C, D, S)                \
    GY_CODEC_FACE_(avx2, GYRE_LOOP_AVX2, GY_AVX2_, C, D, S)            \
    GY_CODEC_FACE_(avx512, GYRE_LOOP_AVX512, GY_AVX512_WIDE_, C, D, S) \
    static const gyre_codec_loop gy_codec_loops_[] = {                 \
        GY_CODEC_ROW_(scalar), GY_CODEC_ROW_(avx2), GY_CODEC_ROW_(avx512)};
#else
#define GYRE_CODEC_LOOPS(C, D, S)                       \
    GY_CODEC_FACE_(scalar, GYRE_LOOP_SCALAR, , C, D, S) \
    static const gyre_codec_loop gy_codec_loops_[] = {GY_CODEC_ROW_(scalar)};
#endif
#define GYRE_CODEC_LOOP_COUNT \
    ((uint32_t)(sizeof(gy_codec_loops_) / sizeof(gy_codec_loops_[0])))

#define GY_DECODE(...)                                  \
    static const char gy_decode_text_[] = #__VA_ARGS__; \
    enum { gy_decode_form_ = GYRE_KERNEL_DECODE };
#define GY_SCATTER(...)                                 \
    static const char gy_decode_text_[] = #__VA_ARGS__; \
    enum { gy_decode_form_ = GYRE_KERNEL_SCATTER };

#define GY_CONSTANT_NAME_(name) #name,
#define GY_ENCODE(...) static const char gy_encode_text_[] = #__VA_ARGS__;
#define GYRE_CODEC_TEXTS(constants, table, able)            \
    static const gyre_codec_encoder gy_codec_encoder_ = {   \
        sizeof(gyre_codec_encoder), gy_encode_text_, able}; \
    GY_CODEC_TEXTS_(constants, table, &gy_codec_encoder_)
#define GYRE_CODEC_TEXT(constants, table) \
    GY_CODEC_TEXTS_(constants, table, NULL)
#define GY_CODEC_TEXTS_(constants, table, encoder)                        \
    static void gy_constants_(const double *values, int32_t *out)         \
    {                                                                     \
        constants(GY_VALUES_(values), out);                               \
    }                                                                     \
    static const float *gy_table_of_(const double *values, size_t *count) \
    {                                                                     \
        return table(GY_VALUES_(values), count);                          \
    }                                                                     \
    static const char *const gy_constant_names_[] = {                     \
        GY_NAMES(GY_CONSTANT_NAME_)};                                     \
    static const gyre_codec_kernel gy_codec_kernel_ = {                   \
        sizeof(gyre_codec_kernel),                                        \
        gy_decode_form_,                                                  \
        sizeof(gy_constant_names_) / sizeof(gy_constant_names_[0]),       \
        0,                                                                \
        gy_decode_text_,                                                  \
        gy_constant_names_,                                               \
        gy_constants_,                                                    \
        gy_table_of_};                                                    \
    static const void *gy_extension_(const char *id)                      \
    {                                                                     \
        if (__builtin_strcmp(id, GYRE_CODEC_ENCODE) == 0)                 \
            return encoder;                                               \
        return __builtin_strcmp(id, GYRE_CODEC_KERNEL) == 0               \
                   ? &gy_codec_kernel_                                    \
                   : NULL;                                                \
    }

#define GYRE_COMPRESSOR(id, version, summary, licence, claims, descriptor)    \
    static const gyre_parameter gy_parameter_table_[] = {                     \
        GY_PARAMETERS(GY_PARAMETER_ENTRY_)};                                  \
    GY_EXTERN_ __attribute__((visibility("hidden")))                          \
    const gyre_plugin gyre_plugin_##id;                                       \
    const gyre_plugin gyre_plugin_##id = {sizeof(gyre_plugin),                \
                                          GYRE_KIND_COMPRESSOR,               \
                                          #id,                                \
                                          version,                            \
                                          summary,                            \
                                          licence,                            \
                                          gy_parameter_table_,                \
                                          sizeof(gy_parameter_table_) /       \
                                              sizeof(gy_parameter_table_[0]), \
                                          claims,                             \
                                          &gy_build_,                         \
                                          descriptor,                         \
                                          gy_extension_};

#endif /* GY_COMPRESSOR */

/* ---- writing a schedule ------------------------------------------------ */

/*
 * Before including this header, define GY_SCHEDULE and GY_PARAMETERS, all of
 * them structural and at least one.  Then write the functions of gyre_schedule
 * (GY_VALUES_(values) turns values into a gy_values) and end with
 *
 *     static const gyre_schedule name = {sizeof(gyre_schedule), check, ...};
 *     GYRE_SCHEDULE(id, "name", "1.0.0", "summary", "licence", claims, &name)
 *     GYRE_MODULE(id, &gyre_plugin_id)
 */
#ifdef GY_SCHEDULE

#define GYRE_SCHEDULE(id, name, version, summary, licence, claims, descriptor) \
    static const gyre_build gy_build_ = GY_BUILD_(0, NULL);                    \
    static const gyre_parameter gy_parameter_table_[] = {                      \
        GY_PARAMETERS(GY_PARAMETER_ENTRY_)};                                   \
    GY_EXTERN_ __attribute__((visibility("hidden")))                           \
    const gyre_plugin gyre_plugin_##id;                                        \
    const gyre_plugin gyre_plugin_##id = {sizeof(gyre_plugin),                 \
                                          GYRE_KIND_SCHEDULE,                  \
                                          name,                                \
                                          version,                             \
                                          summary,                             \
                                          licence,                             \
                                          gy_parameter_table_,                 \
                                          sizeof(gy_parameter_table_) /        \
                                              sizeof(gy_parameter_table_[0]),  \
                                          claims,                              \
                                          &gy_build_,                          \
                                          descriptor,                          \
                                          NULL};

#endif /* GY_SCHEDULE */

#ifdef __cplusplus
}
#endif

#endif
