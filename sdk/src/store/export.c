/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out into a safetensors file: parameters, then slot by slot.
 *
 * The store is walked chunk by chunk and each run goes to its place in the
 * file, so that every chunk is read once and one chunk is all that lies in
 * memory.
 */
#include "config.h"

#include "store/chunk.h"
#include "store/safetensors.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct exporting {
    gyre_store *store;
    const char *file;
    char *aside;
    int fd;
    uint32_t vars;           /* 1 + slots, or 1 */
    uint64_t *at;            /* [tensors][vars]: place in the file */
    uint64_t data_at, bytes; /* of the data */
    uint64_t done;
    gyre_progress progress;
    void *user;
} exporting;

/* ---- header ----------------------------------------------------------- */

static bool has_var(const gyre_tensor_state *t, uint32_t var)
{
    return var == 0 || !(t->flags & GYRE_TENSOR_FROZEN);
}

/* A key that is there already: "SLOT/NAME" is a tensor's name too. */
static gyre_status add_entry(json_t *root, const char *key, json_t *entry,
                             gyre_error *error)
{
    if (json_object_get(root, key) != NULL ||
        strcmp(key, "__metadata__") == 0) {
        json_decref(entry);
        return gyre_fail(error, GYRE_DUPLICATE,
                         "two tensors would be called \"%s\" in a safetensors "
                         "file; export parameters only",
                         key);
    }
    if (json_object_set_new(root, key, entry) != 0)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for \"%s\"", key);
    return GYRE_OK;
}

static gyre_status put_tensor(exporting *e, json_t *root, size_t tensor,
                              uint32_t var, gyre_error *error)
{
    const gyre_tensor_state *t = &e->store->layout.tensors[tensor];
    const char *slot = var > 0 ? e->store->slot_names[var - 1] : "";
    size_t room = strlen(slot) + 1 + strlen(t->name) + 1;
    char *key = gyre_alloc(e->store->context, room, 1);
    uint64_t bytes = t->elements * sizeof(float);
    json_t *shape = json_array();
    gyre_status status;

    if (key == NULL) {
        json_decref(shape);
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a name");
    }
    snprintf(key, room, "%s%s%s", slot, var > 0 ? "/" : "", t->name);
    for (uint32_t k = 0; k < t->rank; k++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[k]));
    status =
        add_entry(root, key,
                  json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape",
                            shape, "data_offsets", (json_int_t)e->bytes,
                            (json_int_t)(e->bytes + bytes)),
                  error);
    gyre_free(e->store->context, key, room, 1);
    e->at[tensor * e->vars + var] = e->bytes;
    e->bytes += bytes;
    return status;
}

/* Each tensor's own step, as JSON inside a text: metadata holds texts only. */
static char *steps_text(const gyre_store *store)
{
    json_t *steps = json_object();
    char *text = NULL;

    for (size_t i = 0; i < store->layout.tensor_count; i++) {
        const gyre_tensor_state *t = &store->layout.tensors[i];

        if (!(t->flags & GYRE_TENSOR_FROZEN))
            json_object_set_new(steps, t->name,
                                json_integer((json_int_t)t->step));
    }
    text = json_dumps(steps, JSON_COMPACT);
    json_decref(steps);
    return text;
}

static gyre_status put_metadata(exporting *e, json_t *root, gyre_error *error)
{
    const gyre_store *store = e->store;
    char digest[GYRE_DIGEST_TEXT], step[24];
    char *steps;
    json_t *metadata;
    gyre_status status = gyre_store_digest(e->store, digest, error);

    if (status != GYRE_OK)
        return status;
    snprintf(step, sizeof(step), "%llu", (unsigned long long)store->now.step);
    steps = steps_text(store);
    metadata =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "format", "pt", "gyre.step",
                  step, "gyre.steps", steps != NULL ? steps : "",
                  "gyre.optimizer", store->optimizer, "gyre.digest", digest);
    if (steps == NULL || metadata == NULL)
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for metadata");
    free(steps);
    if (json_object_set_new(root, "__metadata__", metadata) != 0 &&
        status == GYRE_OK)
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for metadata");
    return status;
}

static gyre_status write_header(exporting *e, const char *text,
                                gyre_error *error)
{
    static const char blanks[8] = "        ";
    size_t length = strlen(text);
    /* Data begin on a multiple of 8, as readers that map the file like. */
    uint64_t padded = gyre_round_up(length, 8);
    unsigned char head[GYRE_ST_HEAD];
    gyre_status status;

    if (padded > GYRE_ST_MOST)
        return gyre_fail(error, GYRE_RANGE,
                         "the header of %s would have %llu bytes; readers take "
                         "at most %d",
                         e->file, (unsigned long long)padded, GYRE_ST_MOST);
    e->data_at = GYRE_ST_HEAD + padded;
    for (int i = 0; i < GYRE_ST_HEAD; i++)
        head[i] = (unsigned char)(padded >> 8 * i);
    status = gyre_io_reserve(e->fd, e->aside, e->data_at + e->bytes, error);
    if (status == GYRE_OK)
        status = gyre_io_write_all(e->fd, e->aside, head, sizeof(head), error);
    if (status == GYRE_OK)
        status = gyre_io_write_all(e->fd, e->aside, text, length, error);
    if (status == GYRE_OK)
        status =
            gyre_io_write_all(e->fd, e->aside, blanks, padded - length, error);
    return status;
}

static gyre_status put_header(exporting *e, gyre_error *error)
{
    size_t count = e->store->layout.tensor_count;
    json_t *root = json_object();
    char *text = NULL;
    gyre_status status = put_metadata(e, root, error);

    for (uint32_t v = 0; v < e->vars; v++)
        for (size_t i = 0; status == GYRE_OK && i < count; i++)
            if (has_var(&e->store->layout.tensors[i], v))
                status = put_tensor(e, root, i, v, error);
    if (status == GYRE_OK) {
        text = json_dumps(root, JSON_COMPACT);
        if (text == NULL)
            status =
                gyre_fail(error, GYRE_NO_MEMORY, "no memory for the header");
    }
    json_decref(root);
    if (status == GYRE_OK)
        status = write_header(e, text, error);
    free(text);
    return status;
}

/* ---- data ------------------------------------------------------------- */

static gyre_status write_at(const exporting *e, const void *data, size_t bytes,
                            uint64_t offset, gyre_error *error)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = pwrite(e->fd, at, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return gyre_fail_errno(error, GYRE_IO, errno, "cannot write %s",
                                   e->aside);
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return GYRE_OK;
}

/* One variable of a run to its place. */
static gyre_status put_run(exporting *e, uint64_t chunk, const gyre_run *run,
                           uint32_t v, gyre_error *error)
{
    const gyre_store *store = e->store;
    uint64_t to = e->data_at + e->at[run->tensor * e->vars + v] +
                  run->index * sizeof(float);
    gyre_status status = GYRE_OK;
    float scratch[GYRE_GRAIN];
    gyre_var var;
    size_t n;

    gyre_layout_var(&store->layout, chunk, v, &var);
    for (size_t at = 0; status == GYRE_OK && at < run->n; at += n) {
        const float *values;

        n = run->n - at;
        values = gyre_state_view(&var, gyre_context_isa(store->context),
                                 store->peek, run->at + at, &n, scratch);
        status = write_at(e, values, n * sizeof(float), to + at * sizeof(float),
                          error);
    }
    e->done += run->n * sizeof(float);
    return status;
}

static gyre_status put_chunk(exporting *e, uint64_t chunk, gyre_error *error)
{
    gyre_store *store = e->store;
    const gyre_layout *layout = &store->layout;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_status status = gyre_store_peek(store, chunk, error);
    gyre_run run;

    while (status == GYRE_OK &&
           gyre_layout_next_run(layout, chunk, &cursor, &run))
        for (uint32_t v = 0; status == GYRE_OK && v < e->vars; v++)
            if (has_var(&layout->tensors[run.tensor], v))
                status = put_run(e, chunk, &run, v, error);
    if (status == GYRE_OK && e->progress != NULL &&
        e->progress(e->user, e->done, e->bytes) != 0)
        status = gyre_fail(error, GYRE_STOPPED, "stopped; %s was not written",
                           e->file);
    return status;
}

static gyre_status put_all(exporting *e, gyre_error *error)
{
    gyre_status status = put_header(e, error);

    for (uint64_t c = 0; status == GYRE_OK && c < e->store->layout.state_chunks;
         c++)
        status = put_chunk(e, c, error);
    if (status == GYRE_OK && fsync(e->fd) != 0)
        status =
            gyre_fail_errno(error, GYRE_IO, errno, "cannot sync %s", e->aside);
    return status;
}

/* ---- the file --------------------------------------------------------- */

static gyre_status write_file(exporting *e, gyre_error *error)
{
    gyre_status status;

    e->fd = open(e->aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (e->fd < 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "cannot make %s",
                               e->aside);
    status = put_all(e, error);
    close(e->fd);
    if (status == GYRE_OK && rename(e->aside, e->file) != 0)
        status = gyre_fail_errno(error, GYRE_IO, errno,
                                 "cannot rename %s to %s", e->aside, e->file);
    if (status != GYRE_OK) {
        unlink(e->aside);
        return status;
    }
    return gyre_io_sync_parent(NULL, e->file, error);
}

gyre_status gyre_store_export(gyre_store *store, const char *file,
                              int parameters_only, gyre_progress progress,
                              void *user, gyre_error *error)
{
    exporting e = {
        .store = store, .file = file, .progress = progress, .user = user};
    gyre_status status = gyre_store_check(store, true, false, error);
    size_t count, room;
    gyre_fp saved;

    if (status == GYRE_OK && (file == NULL || file[0] == '\0'))
        status = gyre_fail(error, GYRE_INVALID, "an export needs a file");
    if (status != GYRE_OK)
        return status;
    e.vars = parameters_only ? 1 : 1 + store->layout.slots;
    count = store->layout.tensor_count * e.vars;
    room = strlen(file) + sizeof(".partial");
    e.at = gyre_alloc_zero(store->context, count, sizeof(*e.at));
    e.aside = gyre_alloc(store->context, room, 1);
    if (e.at == NULL || e.aside == NULL) {
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for an export");
    } else {
        snprintf(e.aside, room, "%s.partial", file);
        saved = gyre_fp_pin(); /* codecs are decoded in this thread */
        status = write_file(&e, error);
        gyre_fp_restore(saved);
    }
    gyre_free(store->context, e.aside, room, 1);
    gyre_free(store->context, e.at, count, sizeof(*e.at));
    return status;
}
