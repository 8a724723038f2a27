/* SPDX-License-Identifier: Apache-2.0 */
/* A reshard between two rounds of a program that goes on. */
#include "config.h"

#include "store/compute.h"

typedef struct binding {
    void *data;
    gyre_dtype dtype;
} binding;

static void take_bindings(const gyre_store *store, binding *list)
{
    for (size_t i = 0; i < store->layout.tensor_count; i++) {
        list[i].data = store->layout.tensors[i].out;
        list[i].dtype = store->layout.tensors[i].out_dtype;
    }
}

static gyre_status give_bindings(gyre_store *store, const binding *list,
                                 gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (size_t i = 0; status == GYRE_OK && i < store->layout.tensor_count; i++)
        if (list[i].data != NULL)
            status =
                gyre_store_bind(store, i, list[i].dtype, list[i].data, error);
    return status;
}

/* Whatever became of the reshard, one generation stands. */
static gyre_status open_again(gyre_context *context, const char *path,
                              const gyre_store_options *options,
                              const binding *list, gyre_store **store,
                              gyre_error *error)
{
    gyre_store *fresh = NULL;
    gyre_status status = gyre_store_open(context, path, options, &fresh, error);

    if (status == GYRE_OK)
        status = give_bindings(fresh, list, error);
    if (status == GYRE_OK)
        *store = fresh;
    else
        gyre_store_close(fresh);
    return status;
}

static gyre_status move_store(gyre_store **store, const char *path,
                              const gyre_store_spec *spec,
                              const gyre_store_options *options,
                              const binding *list, gyre_progress progress,
                              void *user, gyre_error *error)
{
    gyre_context *context = (*store)->context;
    gyre_error why = {GYRE_OK, ""};
    gyre_status status, opened;

    gyre_store_close(*store);
    *store = NULL;
    status =
        gyre_store_reshard(context, path, spec, options, progress, user, error);
    opened = open_again(context, path, options, list, store,
                        status == GYRE_OK ? error : &why);
    if (status == GYRE_OK || opened == GYRE_OK)
        return status != GYRE_OK ? status : opened;
    return gyre_fail_prefix(error, status,
                            "store %s could not be opened again (%s) after",
                            path, why.text);
}

gyre_status gyre_store_move(gyre_store **store, const gyre_store_spec *spec,
                            const gyre_store_options *options,
                            gyre_progress progress, void *user,
                            gyre_error *error)
{
    gyre_store_options again = {.size = sizeof(again)};
    gyre_context *context;
    size_t tensors;
    binding *list;
    char *path;
    gyre_status status =
        gyre_store_check(store != NULL ? *store : NULL, true, true, error);

    if (status != GYRE_OK)
        return status;
    context = (*store)->context;
    tensors = (*store)->layout.tensor_count;
    if (options != NULL)
        again = *options;
    again.devices = NULL; /* the list of `spec` is what will be there */
    again.device_count = 0;
    status = gyre_compute_check(&again, error);
    if (status == GYRE_OK && (*store)->rounds_since > 0)
        status = gyre_store_commit(*store, (*store)->blob, (*store)->blob_bytes,
                                   error);
    if (status != GYRE_OK)
        return status;
    path = gyre_copy_text(context, (*store)->path);
    list = gyre_alloc(context, tensors, sizeof(*list));
    if (path == NULL || list == NULL) {
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for a reshard");
    } else {
        take_bindings(*store, list);
        status =
            move_store(store, path, spec, &again, list, progress, user, error);
    }
    gyre_free(context, list, tensors, sizeof(*list));
    gyre_free_text(context, path);
    return status;
}
