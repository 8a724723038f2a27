/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fault tests share: a small model, a run of rounds that depends on
 * the number of the round alone, and pictures of a store to compare with.
 *
 * A run has every kind of round: two micro-batches, a skipped one (NaN), one
 * with an absent tensor; a frozen tensor rests in it; each commit has a blob.
 * Whoever crashes, fails or dies in between opens the store, reads the number
 * of the round from it, goes on, and must end with the same picture.
 */
#ifndef GYRE_TESTS_FAULT_COMMON_H
#define GYRE_TESTS_FAULT_COMMON_H

#include "unit/unit.h"

#include <gyre/store.h>
#include <stdbool.h>

enum {
    FAULT_TENSORS = 5,
    FAULT_FROZEN = 1, /* index of the frozen one */
    FAULT_ABSENT = 4, /* absent in round 4 */
    FAULT_SKIPPED_ROUND = 3,
    FAULT_ABSENT_ROUND = 4,
    FAULT_ROUNDS = 6,
    FAULT_DEVICES = 3, /* at most */
    FAULT_PATH = 512,
    FAULT_BLOB = 2048 /* room; blobs end in several sectors */
};

/* What a store has besides: fault_create reads it from the model. */
enum {
    FAULT_CODED = 1,   /* parameter and slots in bf16 and 8 bits */
    FAULT_FED = 2,     /* topk with a committed residual */
    FAULT_SPILLED = 4, /* gradients on storage */
    FAULT_LATE = 8     /* with a clip: late */
};

/* Tensors of 1,500, 700 (frozen), 2,000 x scale, 1 and 1,024 elements. */
typedef struct fault_model {
    gyre_tensor tensor[FAULT_TENSORS];
    uint64_t elements[FAULT_TENSORS];
    float *data[FAULT_TENSORS];
    void *bound[FAULT_TENSORS];  /* what rounds return: f32, but bf16 for 2 */
    void *before[FAULT_TENSORS]; /* a copy, to see whether it was restored */
    bool in_place;
    unsigned with; /* FAULT_CODED ... */
} fault_model;

void fault_model_make(fault_model *model, uint64_t scale);
void fault_model_free(fault_model *model);
size_t fault_bound_bytes(const fault_model *model, size_t tensor);

/* A folder for a store and one for each device.  `disk`: not in memory, so
 * that direct I/O takes part. */
typedef struct fault_place {
    char root[FAULT_PATH];
    char store[FAULT_PATH];
    char device[FAULT_DEVICES][FAULT_PATH];
    const char *devices[FAULT_DEVICES];
    size_t count;
} fault_place;

void fault_place_make(fault_place *place, size_t devices, bool disk);
void fault_place_remove(fault_place *place);
/* Remove the store and all that is in the device folders, not those. */
void fault_place_clear(fault_place *place);
/* Entries of a folder, "." and ".." not counted; -1 when it is not there. */
int fault_entries(const char *folder);
/* The files of a closed store, in memory, and put back as they were. */
typedef struct fault_saved {
    char *path[16];
    void *data[16];
    size_t bytes[16];
    size_t count;
} fault_saved;
void fault_save(const fault_place *place, fault_saved *saved);
void fault_restore(const fault_saved *saved);
void fault_saved_free(fault_saved *saved);

gyre_store_options fault_options(const char *io);
gyre_status fault_create(gyre_context *context, const fault_model *model,
                         const fault_place *place,
                         const gyre_store_options *options, gyre_store **out,
                         gyre_error *error);
gyre_status fault_open(gyre_context *context, const fault_place *place,
                       const gyre_store_options *options, gyre_store **out,
                       gyre_error *error);
/* Bind every tensor but the one-element one, and fill the buffers. */
gyre_status fault_bind(const fault_model *model, gyre_store *store,
                       gyre_error *error);

/* One round: the next one of the store.  `early` has no clip.  On an error the
 * round is gone and, with `model` bound, its buffers are as before. */
gyre_status fault_round(const fault_model *model, gyre_store *store, bool early,
                        gyre_round_report *report, gyre_error *error);
size_t fault_blob(uint64_t round, char blob[FAULT_BLOB]);

typedef struct fault_picture {
    uint64_t round, step;
    char digest[GYRE_DIGEST_TEXT];
    uint64_t slots; /* hash of parameters and state of all tensors */
    uint64_t steps[FAULT_TENSORS];
    uint64_t blob;     /* hash */
    uint64_t residual; /* hash of kappa e, by tensor; 0: none */
    double scale;
} fault_picture;

gyre_status fault_look(gyre_store *store, fault_picture *picture,
                       gyre_error *error);
/* NULL when equal, or the name of the first difference. */
const char *fault_differs(const fault_picture *a, const fault_picture *b,
                          bool blob);

/* Pictures of an uninterrupted run, [0] before round 1, and norms. */
typedef struct fault_history {
    fault_picture picture[FAULT_ROUNDS + 1];
    double norm[FAULT_ROUNDS + 1];
    bool early;
} fault_history;

/* Runs up to FAULT_ROUNDS and closes. */
void fault_record(const fault_model *model, gyre_store *store, bool early,
                  fault_history *history);

/* Say why a test does nothing here, and return from it.  (cmocka's skip() is
 * "not ok # SKIP" in TAP, which counts as a failure.) */
void fault_skip(const char *why);

/* splitmix64. */
uint64_t fault_random(uint64_t *state);
/* GYRE_SOAK is set, and not to 0: the long run. */
bool fault_long(void);
/* Every n-th of many cases: 1 in the long run, `usual` otherwise, seven times
 * that in a sanitizer build. */
unsigned fault_stride(unsigned usual);
/* Sanitizer builds, where opening a store takes most of the time, open every
 * fourth state of a long list: is the n-th, from 0, not one of them? */
bool fault_passes_over(uint64_t n);

#define fault_ok(call, error)                                             \
    do {                                                                  \
        (error)->text[0] = '\0';                                          \
        gyre_status fault_status = (call);                                \
        if (fault_status != GYRE_OK)                                      \
            fail_msg("%s: %s: %s", #call, gyre_status_name(fault_status), \
                     (error)->text);                                      \
    } while (0)

#endif
