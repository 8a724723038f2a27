/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of fake.h. */
#include <cuda.h>

#include "fake.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

fake_cuda_state fake_cuda = {.devices = 1, .free_bytes = (size_t)1 << 30};

/* A block of "device" memory: its bytes follow. */
typedef struct block {
    size_t bytes;
    uint64_t magic;
    struct block *before, *next; /* of the context's objects */
} block;
#define ALIVE UINT64_C(0x616c697665212121)

/* A thread's, from push to pop: contexts are by thread, the counts are not. */
static pthread_mutex_t inside = PTHREAD_MUTEX_INITIALIZER;

static block *objects;
static int pinned;

static int passes(const char *name)
{
    if (++fake_cuda.calls != fake_cuda.fail_at)
        return 1;
    fake_cuda.failed = name;
    return 0;
}

#define TRY                \
    if (!passes(__func__)) \
    return CUDA_ERROR_LAUNCH_FAILED
/* Destroying is done even when it is said to fail. */
#define GIVEN_BACK \
    return passes(__func__) ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED
#define IN_CONTEXT fake_cuda.wrong += fake_cuda.depth != 1

static void *take(size_t bytes)
{
    block *b = calloc(1, sizeof(*b) + bytes);

    b->bytes = bytes;
    b->magic = ALIVE;
    b->next = objects;
    if (objects != NULL)
        objects->before = b;
    objects = b;
    fake_cuda.live++;
    return b + 1;
}

static void give(void *at)
{
    block *b = (block *)at - 1;

    if (b->magic != ALIVE) {
        fake_cuda.wrong++;
        return;
    }
    b->magic = 0;
    if (b->next != NULL)
        b->next->before = b->before;
    if (b->before != NULL)
        b->before->next = b->next;
    else
        objects = b->next;
    fake_cuda.live--;
    free(b);
}

static void holds(const void *at, size_t bytes)
{
    for (const block *b = objects; b != NULL; b = b->next) {
        uintptr_t from = (uintptr_t)at - (uintptr_t)(b + 1);

        if (from <= b->bytes && bytes <= b->bytes - from)
            return;
    }
    fake_cuda.wrong++;
}

/* ---- driver and device ----------------------------------------------- */

CUresult cuInit(unsigned flags)
{
    (void)flags;
    TRY;
    return (CUresult)fake_cuda.init_result;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name)
{
    *name = code == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                             : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    TRY;
    *count = fake_cuda.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int index)
{
    TRY;
    *device = index;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    (void)device;
    strncpy(name, "Fake GPU", (size_t)size);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what,
                              CUdevice device)
{
    (void)device;
    TRY;
    *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = fake_cuda.free_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    TRY;
    fake_cuda.retained++;
    *context = (CUcontext)(void *)&fake_cuda;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    /* With the last reference goes all that is the context's. */
    if (--fake_cuda.retained == 0) {
        fake_cuda.abandoned += fake_cuda.live;
        fake_cuda.live -= pinned;
        pinned = 0;
        while (objects != NULL)
            give(objects + 1);
    }
    GIVEN_BACK;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    TRY;
    pthread_mutex_lock(&inside);
    fake_cuda.wrong += (void *)context != (void *)&fake_cuda;
    fake_cuda.depth++;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    IN_CONTEXT;
    fake_cuda.depth--;
    pthread_mutex_unlock(&inside);
    *context = (CUcontext)(void *)&fake_cuda;
    return CUDA_SUCCESS;
}

/* ---- program --------------------------------------------------------- */

/* A function is one of these names. */
static const char *const kernels[] = {"gyre_update", "gyre_take", "gyre_leaf",
                                      "gyre_encode"};
enum { KERNELS = sizeof(kernels) / sizeof(kernels[0]) };

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    IN_CONTEXT;
    TRY;
    fake_cuda.wrong += strcmp(image, "machine code") != 0;
    *module = take(1);
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    IN_CONTEXT;
    give(module);
    GIVEN_BACK;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    TRY;
    holds(module, 1);
    for (size_t i = 0; i < KERNELS; i++)
        if (strcmp(name, kernels[i]) == 0) {
            *function = (CUfunction)(void *)&kernels[i];
            return CUDA_SUCCESS;
        }
    fake_cuda.wrong++;
    return CUDA_ERROR_NOT_FOUND;
}

/* Six pointers and twelve words. */
static void launch_birth(const char *name, unsigned groups, void **arguments)
{
    enum { POINTERS = 6, WORDS = 12 };
    void *blocks[POINTERS];
    unsigned words[WORDS];

    for (int i = 0; i < POINTERS; i++) {
        CUdeviceptr at;

        memcpy(&at, arguments[i], sizeof(at));
        blocks[i] = (void *)(uintptr_t)at;
        if (i < POINTERS - 1 && at != 0)
            holds(blocks[i], 1);
    }
    for (int i = 0; i < WORDS; i++)
        memcpy(&words[i], arguments[POINTERS + i], sizeof(words[i]));
    if (fake_cuda.birth != NULL)
        fake_cuda.birth(name, groups, blocks, words);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy,
                        unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **arguments,
                        void **extra)
{
    CUdeviceptr state, input;
    unsigned grains;

    IN_CONTEXT;
    TRY;
    holds(stream, 1);
    fake_cuda.wrong += gy != 1 || gz != 1 ||
                       bx != (fake_cuda.group != 0 ? fake_cuda.group : 256) ||
                       by != 1 || bz != 1 || extra != NULL;
    fake_cuda.launches++;
    fake_cuda.shared = shared;
    if ((const char *const *)(void *)function != &kernels[0]) {
        launch_birth(*(const char *const *)(void *)function, gx, arguments);
        return CUDA_SUCCESS;
    }
    memcpy(&state, arguments[0], sizeof(state));
    memcpy(&input, arguments[1], sizeof(input));
    memcpy(&grains, arguments[2], sizeof(grains));
    holds((void *)(uintptr_t)state, 1);
    holds((void *)(uintptr_t)input, 1);
    fake_cuda.wrong += gx != grains;
    if (fake_cuda.kernel != NULL)
        fake_cuda.kernel((void *)(uintptr_t)state,
                         (const void *)(uintptr_t)input, grains);
    return CUDA_SUCCESS;
}

/* ---- memory ---------------------------------------------------------- */

CUresult cuMemGetInfo(size_t *available, size_t *total)
{
    IN_CONTEXT;
    TRY;
    *available = *total = fake_cuda.free_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *at, size_t bytes)
{
    IN_CONTEXT;
    TRY;
    *at = (CUdeviceptr)(uintptr_t)take(bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr at)
{
    IN_CONTEXT;
    give((void *)(uintptr_t)at);
    GIVEN_BACK;
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    IN_CONTEXT;
    TRY;
    *at = take(bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *at)
{
    IN_CONTEXT;
    give(at);
    GIVEN_BACK;
}

CUresult cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
    (void)at;
    (void)bytes;
    (void)flags;
    IN_CONTEXT;
    TRY;
    pinned++;
    fake_cuda.live++;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *at)
{
    (void)at;
    IN_CONTEXT;
    if (pinned == 0)
        return CUDA_ERROR_INVALID_VALUE;
    pinned--;
    fake_cuda.live--;
    GIVEN_BACK;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    IN_CONTEXT;
    TRY;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
                           CUstream stream)
{
    IN_CONTEXT;
    TRY;
    holds(stream, 1);
    holds((void *)(uintptr_t)to, bytes);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes,
                           CUstream stream)
{
    IN_CONTEXT;
    TRY;
    holds(stream, 1);
    holds((void *)(uintptr_t)from, bytes);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

/* As the first of a block is; beyond blocks nothing is known. */
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute what,
                               CUdeviceptr at)
{
    IN_CONTEXT;
    TRY;
    for (const block *b = objects; b != NULL; b = b->next) {
        CUdeviceptr first = (CUdeviceptr)(uintptr_t)(b + 1);

        if (at < first || at - first > b->bytes)
            continue;
        if (what == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            memset(data, 0, sizeof(int));
        else if (what == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            memcpy(data, &first, sizeof(first));
        else
            memcpy(data, &b->bytes, sizeof(b->bytes));
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                           CUstream stream)
{
    IN_CONTEXT;
    TRY;
    holds(stream, 1);
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count,
                          CUstream stream)
{
    IN_CONTEXT;
    TRY;
    holds(stream, 1);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)(uintptr_t)at + 4 * i, &value, 4);
    return CUDA_SUCCESS;
}

/* ---- streams and events ---------------------------------------------- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    IN_CONTEXT;
    TRY;
    *stream = take(1);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    IN_CONTEXT;
    give(stream);
    GIVEN_BACK;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    IN_CONTEXT;
    holds(stream, 1);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    IN_CONTEXT;
    TRY;
    *event = take(1);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    IN_CONTEXT;
    give(event);
    GIVEN_BACK;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    IN_CONTEXT;
    TRY;
    holds(event, 1);
    holds(stream, 1);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    IN_CONTEXT;
    holds(event, 1);
    if (fake_cuda.pending > 0) {
        fake_cuda.pending--;
        return CUDA_ERROR_NOT_READY;
    }
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    IN_CONTEXT;
    TRY;
    holds(event, 1);
    return CUDA_SUCCESS;
}
