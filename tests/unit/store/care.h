/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of fsck, reshard, import and export share: a small model with
 * every kind of tensor, rounds whose gradients depend on (round, tensor,
 * element) alone, and one number for all that a store holds.
 */
#ifndef GYRE_TESTS_STORE_CARE_H
#define GYRE_TESTS_STORE_CARE_H

#include "../unit.h"

#include <gyre/gyre.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CARE_TENSORS = 8, CARE_CHUNK = 4096, CARE_BIG = 40 * 1024 };

static const gyre_tensor care_model[CARE_TENSORS] = {
    {.name = "emb", .rank = 2, .shape = {300, 10}},
    {.name = "frozen.pos",
     .rank = 1,
     .shape = {2000},
     .flags = GYRE_TENSOR_FROZEN},
    {.name = "h.0.weight", .rank = 2, .shape = {64, 64}},
    {.name = "h.0.bias", .rank = 1, .shape = {64}, .group = 1},
    {.name = "scale", .rank = 0},
    {.name = "nothing", .rank = 2, .shape = {0, 3}},
    {.name = "big", .rank = 2, .shape = {40, 1024}},
    {.name = "frozen.tail",
     .rank = 1,
     .shape = {5000},
     .flags = GYRE_TENSOR_FROZEN},
};

static float care_values[CARE_TENSORS][CARE_BIG];

static inline uint64_t care_elements(const gyre_tensor *t)
{
    uint64_t n = 1;

    for (uint32_t k = 0; k < t->rank; k++)
        n *= t->shape[k];
    return n;
}

static inline float care_number(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u +
                 c * 0x94d049bb133111ebu;

    z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9u;
    return (float)(int32_t)(z >> 40) / 8388608.0f - 1.0f;
}

/* ---- folders ---------------------------------------------------------- */

static inline int care_remove_one(const char *path, const struct stat *info,
                                  int flag, struct FTW *at)
{
    (void)info;
    (void)flag;
    (void)at;
    return remove(path);
}

static inline void care_remove(const char *path)
{
    nftw(path, care_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A fresh folder of this test program; `path` has room for 256. */
static inline void care_folder(char *path, const char *name)
{
    const char *base = getenv("TMPDIR");

    snprintf(path, 256, "%s/gyre-%s.XXXXXX", base != NULL ? base : "/tmp",
             name);
    assert_non_null(mkdtemp(path));
}

static inline size_t care_files(const char *path)
{
    DIR *folder = opendir(path);
    size_t n = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n - 2;
}

/* A small file system on `path`, which ends with this process at the latest;
 * false where that is not allowed. */
static inline bool care_small_disk(const char *path, const char *size)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", path, "tmpfs", 0, size) == 0;
}

/* ---- stores ----------------------------------------------------------- */

static inline gyre_status care_try_create(gyre_context *context,
                                          const char *path, uint32_t devices,
                                          uint64_t chunk, int in_place,
                                          gyre_store **out, gyre_error *error)
{
    gyre_tensor tensors[CARE_TENSORS];
    gyre_store_spec spec = {.size = sizeof(spec),
                            .tensors = tensors,
                            .tensor_count = CARE_TENSORS,
                            .device_count = devices,
                            .chunk_elements = chunk,
                            .blob_bytes = 256,
                            .in_place = in_place};
    gyre_store_options options = {
        .size = sizeof(options), .io = "posix", .buffers = 2};

    memcpy(tensors, care_model, sizeof(tensors));
    for (size_t i = 0; i < CARE_TENSORS; i++) {
        for (uint64_t k = 0; k < care_elements(&tensors[i]); k++)
            care_values[i][k] = care_number(i, k, 7);
        tensors[i].data = care_values[i];
        tensors[i].dtype = GYRE_F32;
    }
    return gyre_store_create(context, path, &spec, &options, out, error);
}

static inline gyre_store *care_create(gyre_context *context, const char *path,
                                      uint32_t devices, int in_place)
{
    gyre_store *store = NULL;
    gyre_error error = {GYRE_OK, ""};

    if (care_try_create(context, path, devices, CARE_CHUNK, in_place, &store,
                        &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return store;
}

static inline gyre_store *care_open(gyre_context *context, const char *path)
{
    gyre_store_options options = {
        .size = sizeof(options), .io = "posix", .buffers = 2};
    gyre_store *store = NULL;
    gyre_error error = {GYRE_OK, ""};

    if (gyre_store_open(context, path, &options, &store, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return store;
}

/* One round; h.0.bias is absent in every third. */
static inline gyre_status care_try_round(gyre_store *store, gyre_error *error)
{
    static float g[CARE_BIG];
    gyre_round_options options = {.size = sizeof(options), .clip = 1.0};
    gyre_store_info info = {.size = sizeof(info)};
    gyre_round *round = NULL;
    char blob[32];
    gyre_status status;

    gyre_store_get_info(store, &info, NULL);
    status = gyre_round_begin(store, &options, &round, error);
    for (size_t i = 0; status == GYRE_OK && i < CARE_TENSORS; i++) {
        uint64_t n = care_elements(&care_model[i]);
        gyre_gradient gradient = {.dtype = GYRE_F32, .data = g};

        if (care_model[i].flags & GYRE_TENSOR_FROZEN)
            continue;
        if (i == 3 && info.round % 3 == 1) {
            status = gyre_round_absent(round, i, error);
            continue;
        }
        for (uint64_t k = 0; k < n; k++)
            g[k] = care_number(info.round + 100, i, k);
        status = gyre_round_gradient(round, i, 0, n, &gradient, error);
    }
    if (status != GYRE_OK)
        return status;
    snprintf(blob, sizeof(blob), "after round %llu",
             (unsigned long long)info.round);
    return gyre_round_finish(round, blob, strlen(blob), NULL, error);
}

static inline void care_rounds(gyre_store *store, int n)
{
    gyre_error error = {GYRE_OK, ""};

    while (n-- > 0)
        if (care_try_round(store, &error) != GYRE_OK)
            fail_msg("%s", error.text);
}

/* ---- all that a store holds, as text ---------------------------------- */

typedef struct care_state {
    char text[512];
} care_state;

static inline uint64_t care_hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

/* Digest, hash of every slot and tensor step, round, step, scale and blob. */
static inline care_state care_state_of(gyre_store *store)
{
    static float values[CARE_BIG];
    gyre_store_info info = {.size = sizeof(info)};
    char digest[GYRE_DIGEST_TEXT];
    uint64_t h = 0xcbf29ce484222325u;
    care_state state;
    size_t blob;
    const char *text;

    assert_int_equal(gyre_store_get_info(store, &info, NULL), GYRE_OK);
    assert_int_equal(gyre_store_digest(store, digest, NULL), GYRE_OK);
    for (size_t i = 0; i < info.tensors; i++) {
        gyre_tensor t;
        uint64_t step;

        assert_int_equal(gyre_store_tensor(store, i, &t, &step, NULL), GYRE_OK);
        h = care_hash(h, &step, sizeof(step));
        for (int s = -1; s < (int)info.slots; s++) {
            uint64_t n = care_elements(&t);

            if (s >= 0 && (t.flags & GYRE_TENSOR_FROZEN))
                continue;
            assert_int_equal(
                gyre_store_read(store, i, s, 0, n, GYRE_F32, values, NULL),
                GYRE_OK);
            h = care_hash(h, values, n * sizeof(float));
        }
    }
    text = gyre_store_blob(store, &blob);
    snprintf(state.text, sizeof(state.text),
             "%s %016llx round %llu step %llu scale %g blob %.*s", digest,
             (unsigned long long)h, (unsigned long long)info.round,
             (unsigned long long)info.step, info.loss_scale, (int)blob,
             text != NULL ? text : "");
    return state;
}

/* Open, take, close. */
static inline care_state care_state_at(gyre_context *context, const char *path)
{
    gyre_store *store = care_open(context, path);
    care_state state = care_state_of(store);

    gyre_store_close(store);
    return state;
}

/* After `rounds` rounds and no interruption. */
static inline care_state care_reference(gyre_context *context, int rounds,
                                        int in_place)
{
    char path[256];
    gyre_store *store;
    care_state state;

    care_folder(path, "reference");
    store = care_create(context, path, 1, in_place);
    care_rounds(store, rounds);
    state = care_state_of(store);
    gyre_store_close(store);
    care_remove(path);
    return state;
}

#endif
