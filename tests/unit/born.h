/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device, for gradients that are born there: of the first OpenCL
 * device, or with GYRE_TEST_COMPUTE=cuda of the first GPU.  Prototypes are our
 * own, so that no driver's header is needed.
 */
#ifndef GYRE_TESTS_UNIT_BORN_H
#define GYRE_TESTS_UNIT_BORN_H

#include "unit.h"

#include <gyre/registry.h>
#include <gyre/store.h>

#include "device/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BORN_CONTEXTS = 2 }; /* of CUDA there is one, whatever is asked for */

typedef struct born_api {
    gyre_memory_kind kind;
    void *device, *context[BORN_CONTEXTS];
    int32_t (*platforms)(uint32_t room, void **ids, uint32_t *count);
    int32_t (*devices)(void *platform, uint64_t type, uint32_t room, void **ids,
                       uint32_t *count);
    void *(*create_context)(const void *properties, uint32_t count,
                            void *const *devices, void *told, void *user,
                            int32_t *code);
    int32_t (*release_context)(void *context);
    void *(*create_buffer)(void *context, uint64_t flags, size_t bytes,
                           void *host, int32_t *code);
    int32_t (*release_buffer)(void *buffer);
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*take)(uint64_t *at, size_t bytes);
    int (*copy)(uint64_t to, const void *from, size_t bytes);
    int (*give)(uint64_t at);
} born_api;

static born_api born;

static inline int born_symbol(void *library, const char *name, void *out)
{
    void *at = dlsym(library, name);

    memcpy(out, &at, sizeof(at));
    return at != NULL;
}

static inline const char *born_open_opencl(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    void *platform;
    int32_t code = 0;

    born.kind = GYRE_OPENCL_MEMORY;
    if (library == NULL ||
        !born_symbol(library, "clGetPlatformIDs", &born.platforms) ||
        !born_symbol(library, "clGetDeviceIDs", &born.devices) ||
        !born_symbol(library, "clCreateContext", &born.create_context) ||
        !born_symbol(library, "clReleaseContext", &born.release_context) ||
        !born_symbol(library, "clCreateBuffer", &born.create_buffer) ||
        !born_symbol(library, "clReleaseMemObject", &born.release_buffer))
        return "no libOpenCL.so.1";
    if (born.platforms(1, &platform, NULL) != 0 ||
        born.devices(platform, 0xffffffffu, 1, &born.device, NULL) != 0)
        return "no OpenCL device";
    for (int i = 0; i < BORN_CONTEXTS; i++)
        born.context[i] =
            born.create_context(NULL, 1, &born.device, NULL, NULL, &code);
    return born.context[1] != NULL ? NULL : "no OpenCL context";
}

static inline const char *born_open_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    born.kind = GYRE_CUDA_MEMORY;
    if (library == NULL || !born_symbol(library, "cuInit", &born.init) ||
        !born_symbol(library, "cuDevicePrimaryCtxRetain", &born.retain) ||
        !born_symbol(library, "cuCtxPushCurrent_v2", &born.push) ||
        !born_symbol(library, "cuCtxPopCurrent_v2", &born.pop) ||
        !born_symbol(library, "cuMemAlloc_v2", &born.take) ||
        !born_symbol(library, "cuMemcpyHtoD_v2", &born.copy) ||
        !born_symbol(library, "cuMemFree_v2", &born.give))
        return "no libcuda.so.1";
    if (born.init(0) != 0 || born.retain(&born.context[0], 0) != 0)
        return "no CUDA device";
    return NULL;
}

/* NULL, or what is missing: driver, device, or our module for it. */
static inline const char *born_open(void)
{
    const char *compute = getenv("GYRE_TEST_COMPUTE");
    const int cuda = compute != NULL && strcmp(compute, "cuda") == 0;
    const gyre_plugin *plugin = NULL;
    gyre_context *context = NULL;
    gyre_status status = gyre_context_create(NULL, &context, NULL);

    if (status == GYRE_OK)
        status = gyre_plugin_find(context, GYRE_KIND_DEVICE,
                                  cuda ? "cuda" : "opencl", &plugin, NULL);
    gyre_context_destroy(context);
    if (status != GYRE_OK)
        return "no device module";
    return cuda ? born_open_cuda() : born_open_opencl();
}

/* What gyre_gradient.data is for memory with these bytes, in a context. */
static inline void *born_make(int where, size_t bytes, const void *from)
{
    void *made = NULL, *popped;
    uint64_t at = 0;
    int32_t code = 0;

    if (born.kind == GYRE_OPENCL_MEMORY) {
        made = born.create_buffer(born.context[where], 1u | 1u << 5, bytes,
                                  (void *)(uintptr_t)from, &code);
        assert_int_equal(code, 0);
        return made;
    }
    assert_int_equal(born.push(born.context[0]), 0);
    assert_int_equal(born.take(&at, bytes), 0);
    assert_int_equal(born.copy(at, from, bytes), 0);
    born.pop(&popped);
    return (void *)(uintptr_t)at;
}

static inline void born_drop(void *made)
{
    void *popped;

    if (born.kind == GYRE_OPENCL_MEMORY) {
        born.release_buffer(made);
        return;
    }
    assert_int_equal(born.push(born.context[0]), 0);
    born.give((uint64_t)(uintptr_t)made);
    born.pop(&popped);
}

/* Says so where a device is missing: nothing is to be run. */
static inline int born_missing(void)
{
    const char *missing = born_open();

    if (missing != NULL)
        printf("1..0 # SKIP %s\n", missing);
    return missing != NULL;
}

static inline int born_close(int failed)
{
    for (int i = 0; i < BORN_CONTEXTS; i++)
        if (born.kind == GYRE_OPENCL_MEMORY && born.context[i] != NULL)
            born.release_context(born.context[i]);
    return failed;
}

/* What main returns. */
#define born_run(name, tests) \
    (born_missing()           \
         ? 0                  \
         : born_close(cmocka_run_group_tests_name(name, tests, NULL, NULL)))

#endif
