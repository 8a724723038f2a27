/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where gradients are born: blocks and kernels in a GPU's primary context, to
 * which the caller's memory belongs as well.  The stream is our own.
 */
#include "config.h"

#include "cu.h"

#include <string.h>

typedef struct cu_birth {
    const gyre_services *services;
    cu_calls cu;
    CUdevice id;
    int32_t index;
    CUcontext context; /* NULL: not retained */
    CUstream stream;
    CUmodule module;
    CUfunction kernels[GYRE_BIRTH_KERNELS];
    CUdeviceptr blocks[GYRE_BIRTH_BLOCKS]; /* 0: none */
    uint32_t group;
    size_t shared_bytes;
} cu_birth;

static const char *const kernel_names[GYRE_BIRTH_KERNELS] = {
    "gyre_take", "gyre_leaf", "gyre_encode"};

static void birth_close(void *opaque)
{
    cu_birth *b = opaque;
    const gyre_services *services = b->services;
    const cu_calls *cu = &b->cu;
    CUcontext popped;

    if (b->context != NULL &&
        cu->cuCtxPushCurrent(b->context) == CUDA_SUCCESS) {
        if (b->stream != NULL)
            (void)cu->cuStreamSynchronize(b->stream);
        for (int i = 0; i < GYRE_BIRTH_BLOCKS; i++)
            if (b->blocks[i] != 0)
                (void)cu->cuMemFree(b->blocks[i]);
        if (b->module != NULL)
            (void)cu->cuModuleUnload(b->module);
        if (b->stream != NULL)
            (void)cu->cuStreamDestroy(b->stream);
        (void)cu->cuCtxPopCurrent(&popped);
    }
    if (b->context != NULL)
        (void)cu->cuDevicePrimaryCtxRelease(b->id);
    services->give(services->user, b, sizeof(*b));
}

static gyre_status load_program(cu_birth *b, const char *source,
                                gyre_error *error)
{
    const gyre_services *services = b->services;
    char target[16];
    void *code = NULL;
    size_t bytes = 0;
    CUresult result;
    gyre_status status = cu_target(&b->cu, b->id, target, error);

    if (status == GYRE_OK)
        status = cu_build(services, source, target, &code, &bytes, error);
    if (status != GYRE_OK)
        return status;
    result = b->cu.cuModuleLoadData(&b->module, code);
    services->give(services->user, code, bytes);
    for (int i = 0; result == CUDA_SUCCESS && i < GYRE_BIRTH_KERNELS; i++)
        result = b->cu.cuModuleGetFunction(&b->kernels[i], b->module,
                                           kernel_names[i]);
    if (result != CUDA_SUCCESS)
        return cu_fail(&b->cu, error, GYRE_PLUGIN_BAD,
                       "the driver does not take the program", result);
    return GYRE_OK;
}

/* No room is no failure: the host can do it. */
static gyre_status take_blocks(cu_birth *b, const gyre_birth_plan *plan,
                               gyre_error *error)
{
    CUresult code = b->cu.cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING);

    if (code != CUDA_SUCCESS)
        return cu_fail(&b->cu, error, GYRE_UNSUPPORTED, "cuStreamCreate", code);
    for (int i = 0; i < GYRE_BIRTH_BLOCKS; i++) {
        if (plan->bytes[i] == 0)
            continue;
        code = b->cu.cuMemAlloc(&b->blocks[i], plan->bytes[i]);
        if (code != CUDA_SUCCESS)
            return cu_fail(&b->cu, error, GYRE_UNSUPPORTED,
                           "memory beside the gradients", code);
    }
    return GYRE_OK;
}

static gyre_status set_up(cu_birth *b, const gyre_birth_plan *plan,
                          gyre_error *error)
{
    char name[160];
    CUcontext popped;
    CUresult code;
    gyre_status status = cu_load(&b->cu, error);

    if (status == GYRE_OK)
        status = cu_pick(&b->cu, (uint32_t)plan->device, &b->id, name,
                         sizeof(name), error);
    if (status != GYRE_OK)
        return status;
    code = b->cu.cuDevicePrimaryCtxRetain(&b->context, b->id);
    if (code != CUDA_SUCCESS) {
        b->context = NULL;
        return cu_fail(&b->cu, error, GYRE_UNSUPPORTED,
                       "cuDevicePrimaryCtxRetain", code);
    }
    code = b->cu.cuCtxPushCurrent(b->context);
    if (code != CUDA_SUCCESS)
        return cu_fail(&b->cu, error, GYRE_UNSUPPORTED, "cuCtxPushCurrent",
                       code);
    status = load_program(b, plan->source, error);
    if (status == GYRE_OK)
        status = take_blocks(b, plan, error);
    (void)b->cu.cuCtxPopCurrent(&popped);
    return status;
}

static gyre_status birth_open(const gyre_services *services,
                              const gyre_birth_plan *plan, void **out,
                              gyre_error *error)
{
    cu_birth *b = services->take(services->user, sizeof(*b));
    gyre_status status;

    if (b == NULL)
        return cu_say(error, GYRE_NO_MEMORY, "cuda: no memory");
    b->services = services;
    b->index = plan->device;
    b->group = plan->group;
    b->shared_bytes = plan->shared_bytes;
    status = set_up(b, plan, error);
    if (status != GYRE_OK) {
        birth_close(b);
        return status;
    }
    *out = b;
    return GYRE_OK;
}

/* A kernel that reads beyond memory spoils the context for everybody, so what
 * the driver does not vouch for is left to a copy, which fails by itself. */
static int birth_reaches(void *opaque, int32_t device, const void *data,
                         uint64_t offset, uint64_t bytes)
{
    cu_birth *b = opaque;
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)data;
    CUdeviceptr first = 0;
    size_t size = 0;
    int ordinal = -1;
    CUcontext popped;
    CUresult code;

    if (device != b->index ||
        b->cu.cuCtxPushCurrent(b->context) != CUDA_SUCCESS)
        return 0;
    code = b->cu.cuPointerGetAttribute(&ordinal,
                                       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    if (code == CUDA_SUCCESS)
        code = b->cu.cuPointerGetAttribute(
            &first, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
    if (code == CUDA_SUCCESS)
        code = b->cu.cuPointerGetAttribute(&size,
                                           CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
    (void)b->cu.cuCtxPopCurrent(&popped);
    if (code != CUDA_SUCCESS || ordinal != (int)device || at < first ||
        at - first > size)
        return 0;
    size -= (size_t)(at - first);
    return offset <= size && bytes <= size - offset;
}

/* ---- the stream ------------------------------------------------------- */

/* Between these the context is current. */
static gyre_status enter(cu_birth *b, gyre_error *error)
{
    CUresult code = b->cu.cuCtxPushCurrent(b->context);

    if (code == CUDA_SUCCESS)
        return GYRE_OK;
    return cu_fail(&b->cu, error, GYRE_IO, "cuCtxPushCurrent", code);
}

static gyre_status leave(cu_birth *b, const char *what, CUresult code,
                         gyre_error *error)
{
    CUcontext popped;

    (void)b->cu.cuCtxPopCurrent(&popped);
    if (code == CUDA_SUCCESS)
        return GYRE_OK;
    return cu_fail(&b->cu, error, GYRE_IO, what, code);
}

static gyre_status birth_launch(void *opaque, const gyre_birth_launch *launch,
                                gyre_error *error)
{
    enum { POINTERS = 6 };
    cu_birth *b = opaque;
    CUdeviceptr list[POINTERS] = {b->blocks[GYRE_BIRTH_GRADIENTS],
                                  b->blocks[GYRE_BIRTH_E0 + launch->version],
                                  b->blocks[GYRE_BIRTH_E1 - launch->version],
                                  b->blocks[GYRE_BIRTH_PAYLOADS],
                                  b->blocks[GYRE_BIRTH_LEAVES],
                                  launch->from != NULL
                                      ? (CUdeviceptr)(uintptr_t)launch->from
                                      : b->blocks[GYRE_BIRTH_STAGING]};
    uint32_t words[GYRE_BIRTH_MOST_WORDS];
    void *arguments[POINTERS + GYRE_BIRTH_MOST_WORDS];
    CUresult code;
    gyre_status status = enter(b, error);

    if (status != GYRE_OK)
        return status;
    memcpy(words, launch->words, sizeof(words));
    for (int i = 0; i < POINTERS; i++)
        arguments[i] = &list[i];
    for (int i = 0; i < GYRE_BIRTH_MOST_WORDS; i++)
        arguments[POINTERS + i] = &words[i];
    code = b->cu.cuLaunchKernel(b->kernels[launch->kernel], launch->groups, 1,
                                1, b->group, 1, 1, (unsigned)b->shared_bytes,
                                b->stream, arguments, NULL);
    return leave(b, kernel_names[launch->kernel], code, error);
}

static gyre_status birth_read(void *opaque, uint32_t block, size_t at,
                              size_t bytes, void *host, gyre_error *error)
{
    cu_birth *b = opaque;
    CUresult code, waited;
    gyre_status status = enter(b, error);

    if (status != GYRE_OK)
        return status;
    code =
        b->cu.cuMemcpyDtoHAsync(host, b->blocks[block] + at, bytes, b->stream);
    /* Nothing may touch the caller's memory once a failure is told. */
    waited = b->cu.cuStreamSynchronize(b->stream);
    return leave(b, "reading from the gradients' device",
                 code == CUDA_SUCCESS ? waited : code, error);
}

static gyre_status birth_write(void *opaque, uint32_t block, size_t at,
                               size_t bytes, const void *host,
                               gyre_error *error)
{
    cu_birth *b = opaque;
    CUresult code, waited;
    gyre_status status = enter(b, error);

    if (status != GYRE_OK)
        return status;
    code =
        b->cu.cuMemcpyHtoDAsync(b->blocks[block] + at, host, bytes, b->stream);
    waited = b->cu.cuStreamSynchronize(b->stream);
    return leave(b, "writing to the gradients' device",
                 code == CUDA_SUCCESS ? waited : code, error);
}

static gyre_status birth_copy(void *opaque, uint32_t from, uint32_t to,
                              size_t at, size_t bytes, gyre_error *error)
{
    cu_birth *b = opaque;
    gyre_status status = enter(b, error);

    if (status != GYRE_OK)
        return status;
    return leave(b, "copying a residual",
                 b->cu.cuMemcpyDtoDAsync(b->blocks[to] + at,
                                         b->blocks[from] + at, bytes,
                                         b->stream),
                 error);
}

static gyre_status birth_clear(void *opaque, uint32_t block, size_t at,
                               size_t bytes, gyre_error *error)
{
    cu_birth *b = opaque;
    gyre_status status = enter(b, error);

    if (status != GYRE_OK)
        return status;
    return leave(b, "clearing a residual",
                 b->cu.cuMemsetD32Async(b->blocks[block] + at, 0,
                                        bytes / sizeof(uint32_t), b->stream),
                 error);
}

static gyre_status birth_wait(void *opaque, gyre_error *error)
{
    cu_birth *b = opaque;
    gyre_status status = enter(b, error);

    if (status != GYRE_OK)
        return status;
    return leave(b, "the gradients' device",
                 b->cu.cuStreamSynchronize(b->stream), error);
}

const gyre_birth_driver cu_birth_driver = {
    .size = sizeof(cu_birth_driver),
    .open = birth_open,
    .close = birth_close,
    .reaches = birth_reaches,
    .launch = birth_launch,
    .read = birth_read,
    .write = birth_write,
    .copy = birth_copy,
    .clear = birth_clear,
    .wait = birth_wait,
};
