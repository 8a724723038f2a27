/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What computes the ATT and GRD of an executor: a kernel of this process, or
 * one opened on a device for this rank alone.  All else stays with the host's
 * kernel of the same dtypes.
 */
#include "attention/executor.h"

#include <string.h>

/* "opencl" or "cuda", then nothing or ":" and a number. */
static bool is_device(const char *name, const char **module, uint32_t *index)
{
    static const char *const modules[] = {"opencl", "cuda"};

    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        size_t length = strlen(modules[i]);
        if (strncmp(name, modules[i], length) != 0)
            continue;
        *module = modules[i];
        *index = 0;
        if (name[length] == '\0')
            return true;
        const char *at = name + length + 1;
        size_t digits = strspn(at, "0123456789");
        if (name[length] != ':' || digits == 0 || digits > 4 ||
            at[digits] != '\0')
            return false;
        for (size_t d = 0; d < digits; d++)
            *index = *index * 10 + (uint32_t)(at[d] - '0');
        return true;
    }
    return false;
}

/* Devices compute in f32 what is f32 or bf16, as the host's kernels do. */
static gyre_status choose_device(gyre_executor *x, const char *name,
                                 gyre_error *error)
{
    const gyre_problem *p = &x->plan->problem;
    gyre_dtype dtype = (gyre_dtype)p->dtype;

    if (dtype != GYRE_F32 && dtype != GYRE_BF16)
        return gyre_fail(error, GYRE_INVALID,
                         "kernel %s is for dtype f32 or bf16, the plan has %s",
                         name, gyre_dtype_name(dtype));
    x->kernel = gyre_kernel_find(gyre_dtype_name(dtype));
    x->room = (gyre_device_room){.head_dim = p->head_dim,
                                 .v_head_dim = p->v_head_dim,
                                 .group = p->heads / p->kv_heads,
                                 .dtype = dtype};
    return GYRE_OK;
}

gyre_status gyre_executor_choose(gyre_executor *x, gyre_error *error)
{
    const gyre_problem *p = &x->plan->problem;
    const char *name = x->options.kernel;

    if (is_device(name, &x->module, &x->module_index))
        return choose_device(x, name, error);
    x->module = NULL;
    x->kernel = gyre_kernel_find(name);
    if (x->kernel == NULL)
        return gyre_fail(error, GYRE_NOT_FOUND,
                         "there is no attention kernel '%s' here: f32, bf16, "
                         "f64, count, opencl, cuda, or a device of the latter "
                         "two as in cuda:1",
                         name);
    if ((uint32_t)x->kernel->dtype != p->dtype)
        return gyre_fail(error, GYRE_INVALID,
                         "kernel %s is for dtype %s, the plan has %s", name,
                         gyre_dtype_name(x->kernel->dtype),
                         gyre_dtype_name((gyre_dtype)p->dtype));
    return GYRE_OK;
}

gyre_status gyre_executor_largest(gyre_executor *x, const gyre_plan_op *op,
                                  const gyre_block *block, gyre_error *error)
{
    (void)op, (void)error;
    if (x->module != NULL) {
        gyre_device_room_hold(&x->room, block);
        return GYRE_OK;
    }
    size_t bytes = x->kernel->scratch(block);
    if (bytes > x->scratch_bytes)
        x->scratch_bytes = bytes;
    return GYRE_OK;
}

gyre_status gyre_executor_open_device(gyre_executor *x, gyre_error *error)
{
    /* Nothing is computed where ops sleep instead. */
    if (x->module == NULL || x->options.flops > 0)
        return GYRE_OK;
    gyre_error own;
    gyre_status status = gyre_block_device_open(
        x->context, x->module, x->module_index, &x->room, &x->device, &own);
    return status == GYRE_OK
               ? GYRE_OK
               : gyre_fail(error, status, "plan '%s', rank %u, kernel %s: %s",
                           x->plan->name, x->rank, x->options.kernel, own.text);
}

gyre_status gyre_executor_compute(gyre_executor *x, const gyre_plan_op *op,
                                  const gyre_block *block, gyre_error *error)
{
    gyre_kernel_run run = {
        .workers = 1, .scratch = x->scratch, .scratch_bytes = x->scratch_bytes};
    bool grad = op->code == GYRE_OP_GRD;

    if (x->device != NULL)
        return grad ? gyre_block_device_grad(x->device, block, error)
                    : gyre_block_device_attend(x->device, block, error);
    return grad ? x->kernel->grad(block, &run, error)
                : x->kernel->attend(block, &run, error);
}
