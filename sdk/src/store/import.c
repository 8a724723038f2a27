/* SPDX-License-Identifier: Apache-2.0 */
/* In from a safetensors file, as a new generation. */
#include "config.h"

#include "store/commit.h"
#include "store/generation.h"
#include "store/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct importing {
    gyre_change change;
    gyre_st st;
    bool opened;
    uint32_t vars;               /* 1 + slots */
    const gyre_st_tensor **from; /* [tensors][vars]: NULL keeps what is there */
    bool complete;               /* every value is in the file */
    uint64_t not_a_number;
    const char *first_nan;
} importing;

/* ---- who is who ------------------------------------------------------- */

/* "NAME", else "SLOT/NAME". */
static bool find_target(const gyre_store *store, const char *name,
                        size_t *tensor, uint32_t *var)
{
    if (gyre_store_find(store, name, tensor, NULL) == GYRE_OK) {
        *var = 0;
        return true;
    }
    for (uint32_t s = 0; s < store->layout.slots; s++) {
        size_t n = strlen(store->slot_names[s]);

        if (strncmp(name, store->slot_names[s], n) != 0 || name[n] != '/' ||
            gyre_store_find(store, name + n + 1, tensor, NULL) != GYRE_OK ||
            (store->layout.tensors[*tensor].flags & GYRE_TENSOR_FROZEN))
            continue;
        *var = 1 + s;
        return true;
    }
    return false;
}

static void shape_text(uint32_t rank, const uint64_t *shape, char *text,
                       size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");

    for (uint32_t k = 0; k < rank && used < bytes; k++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%llu",
                             k > 0 ? ", " : "", (unsigned long long)shape[k]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

static gyre_status match(importing *in, const gyre_st_tensor *t,
                         gyre_error *error)
{
    const gyre_store *store = in->change.old;
    const gyre_tensor_state *want;
    char has[200], needs[200];
    size_t tensor = 0;
    uint32_t var;

    if (!find_target(store, t->name, &tensor, &var))
        return gyre_fail(error, GYRE_NOT_FOUND,
                         "%s: tensor \"%.200s\" is not in store %s",
                         in->st.path, t->name, store->path);
    want = &store->layout.tensors[tensor];
    if (!t->known)
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "%s: tensor \"%.200s\" is %s; F32, F64, BF16 or F16 "
                         "can be taken",
                         in->st.path, t->name, t->dtype);
    if (t->rank != want->rank ||
        memcmp(t->shape, want->shape, t->rank * sizeof(t->shape[0])) != 0) {
        shape_text(t->rank, t->shape, has, sizeof(has));
        shape_text(want->rank, want->shape, needs, sizeof(needs));
        return gyre_fail(error, GYRE_INVALID,
                         "%s: tensor \"%.200s\" has shape %s; in store %s it "
                         "is %s",
                         in->st.path, t->name, has, store->path, needs);
    }
    in->from[tensor * in->vars + var] = t;
    return GYRE_OK;
}

/* Parameter and every slot? */
static bool has_all(const importing *in, size_t tensor)
{
    const gyre_tensor_state *t = &in->change.old->layout.tensors[tensor];
    uint32_t vars = t->flags & GYRE_TENSOR_FROZEN ? 1 : in->vars;

    for (uint32_t v = 0; v < vars; v++)
        if (in->from[tensor * in->vars + v] == NULL)
            return false;
    return true;
}

static gyre_status match_all(importing *in, gyre_error *error)
{
    const gyre_store *store = in->change.old;
    const char *made_by = gyre_st_metadata(&in->st, "gyre.optimizer");

    in->vars = 1 + store->layout.slots;
    in->from =
        gyre_alloc_zero(store->context, store->layout.tensor_count * in->vars,
                        sizeof(*in->from));
    if (in->from == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for an import");
    for (size_t i = 0; i < in->st.count; i++) {
        gyre_status status = match(in, &in->st.tensors[i], error);

        if (status != GYRE_OK)
            return status;
    }
    in->complete = true;
    for (size_t i = 0; i < store->layout.tensor_count; i++)
        in->complete &= has_all(in, i);
    if (made_by != NULL && strcmp(made_by, store->optimizer) != 0)
        gyre_log(store->context, GYRE_LOG_WARNING,
                 "%s was exported from a store of optimizer %s; store %s has "
                 "%s",
                 in->st.path, made_by, store->path, store->optimizer);
    return GYRE_OK;
}

/* ---- steps ------------------------------------------------------------ */

static gyre_status parse_steps(const importing *in, const char *text,
                               json_t **out, gyre_error *error)
{
    json_error_t trouble;
    json_t *steps = json_loads(text, JSON_REJECT_DUPLICATES, &trouble);

    if (steps == NULL)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: metadata \"gyre.steps\", byte %d: %s",
                         in->st.path, trouble.position, trouble.text);
    if (!json_is_object(steps)) {
        json_decref(steps);
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: metadata \"gyre.steps\" must be an object of "
                         "numbers",
                         in->st.path);
    }
    *out = steps;
    return GYRE_OK;
}

/*
 * A step belongs to the state: bias corrections of step 1,000 over slots that
 * are zero would triple the first updates.  So a tensor's step is taken only
 * with all its slots, and the store's own only with that of every tensor.
 */
static gyre_status take_tensor_steps(importing *in, const json_t *steps,
                                     bool *all, gyre_error *error)
{
    gyre_layout *layout = &in->change.fresh->layout;

    *all = true;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        gyre_tensor_state *t = &layout->tensors[i];
        const json_t *step = json_object_get(steps, t->name);

        if (t->flags & GYRE_TENSOR_FROZEN)
            continue;
        if (step != NULL &&
            (!json_is_integer(step) || json_integer_value(step) < 0))
            return gyre_fail(error, GYRE_FORMAT,
                             "%s: metadata \"gyre.steps\": tensor \"%s\" must "
                             "have a whole number from 0",
                             in->st.path, t->name);
        if (step != NULL && has_all(in, i))
            t->step = (uint64_t)json_integer_value(step);
        else
            *all = false;
    }
    return GYRE_OK;
}

static gyre_status take_store_step(importing *in, gyre_error *error)
{
    const char *text = gyre_st_metadata(&in->st, "gyre.step");
    unsigned long long step;
    char *end;

    if (text == NULL)
        return GYRE_OK;
    errno = 0;
    step = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
        step > INT64_MAX)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: metadata \"gyre.step\" must be a whole number "
                         "below 2^63, not \"%.40s\"",
                         in->st.path, text);
    in->change.fresh->now.step = step;
    return GYRE_OK;
}

static gyre_status take_steps(importing *in, gyre_error *error)
{
    const char *text = gyre_st_metadata(&in->st, "gyre.steps");
    json_t *steps = NULL;
    bool all = false;
    gyre_status status;

    if (text == NULL)
        return GYRE_OK;
    status = parse_steps(in, text, &steps, error);
    if (status == GYRE_OK)
        status = take_tensor_steps(in, steps, &all, error);
    if (status == GYRE_OK && all)
        status = take_store_step(in, error);
    json_decref(steps);
    return status;
}

/* ---- values ----------------------------------------------------------- */

static gyre_status value(void *user, size_t tensor, uint32_t var,
                         uint64_t first, size_t n, float *out, bool *given,
                         gyre_error *error)
{
    importing *in = user;
    const gyre_st_tensor *from = in->from[tensor * in->vars + var];
    gyre_status status;

    if (from == NULL)
        return GYRE_OK;
    status = gyre_st_read(&in->st, from, first, n, out, error);
    for (size_t i = 0; status == GYRE_OK && i < n; i++)
        if (isnan(out[i])) {
            in->not_a_number++;
            if (in->first_nan == NULL)
                in->first_nan = from->name;
        }
    *given = true;
    return status;
}

static bool takes(void *user, size_t tensor)
{
    const importing *in = user;

    for (uint32_t v = 0; v < in->vars; v++)
        if (in->from[tensor * in->vars + v] != NULL)
            return true;
    return false;
}

static void tell_nan(const importing *in)
{
    if (in->not_a_number > 0)
        gyre_log(in->st.context, GYRE_LOG_WARNING,
                 "%s: %llu values are not a number, the first in \"%s\"",
                 in->st.path, (unsigned long long)in->not_a_number,
                 in->first_nan);
}

/*
 * Of a file that has everything nothing of the old contents is read: that is
 * the way out for a store that is dirty or damaged.
 */
static gyre_status choose(importing *in, gyre_error *error)
{
    uint64_t newest = 0;

    if (!in->complete)
        return gyre_store_settle(in->change.old, error);
    return gyre_store_choose(in->change.old, UINT64_MAX, &newest, error);
}

static gyre_status make(importing *in, const gyre_store_options *options,
                        gyre_error *error)
{
    gyre_store *old = in->change.old;
    const char *paths[GYRE_MAX_DEVICES];
    gyre_store_spec spec = {.size = sizeof(spec),
                            .devices = paths,
                            .weights = old->layout.weights,
                            .device_count = old->layout.devices,
                            .chunk_elements =
                                old->layout.chunk_grains * GYRE_GRAIN};
    gyre_status status;

    for (uint32_t d = 0; d < old->layout.devices; d++)
        paths[d] =
            strcmp(old->places[d].path, ".") == 0 ? NULL : old->places[d].path;
    status = gyre_change_inherit(&in->change, &spec, options, error);
    if (status == GYRE_OK)
        status = take_steps(in, error);
    if (status != GYRE_OK)
        return status;
    if (in->complete)
        in->change.fresh->now.salvaged = 0;
    in->change.value = value;
    in->change.takes = takes;
    in->change.value_user = in;
    return gyre_change_make(&in->change, error);
}

gyre_status gyre_store_import(gyre_context *context, const char *path,
                              const char *file,
                              const gyre_store_options *options,
                              gyre_progress progress, void *user,
                              gyre_error *error)
{
    importing in = {.change = {.progress = progress, .progress_user = user}};
    gyre_error text = {GYRE_OK, ""};
    gyre_fp saved = gyre_fp_pin();
    gyre_status status =
        gyre_change_begin(&in.change, context, path, options, &text);

    if (status == GYRE_OK && file == NULL)
        status = gyre_fail(&text, GYRE_INVALID, "an import needs a file");
    if (status == GYRE_OK) {
        status = gyre_st_open(context, file, &in.st, &text);
        in.opened = status == GYRE_OK;
    }
    if (status == GYRE_OK)
        status = match_all(&in, &text);
    if (status == GYRE_OK)
        status = choose(&in, &text);
    if (status == GYRE_OK)
        status = make(&in, options, &text);
    if (status == GYRE_OK)
        tell_nan(&in);
    if (in.from != NULL)
        gyre_free(context, in.from,
                  in.change.old->layout.tensor_count * in.vars,
                  sizeof(*in.from));
    if (in.opened)
        gyre_st_close(&in.st);
    gyre_change_end(&in.change);
    gyre_fp_restore(saved);
    if (status != GYRE_OK && error != NULL)
        *error = text;
    return status;
}
