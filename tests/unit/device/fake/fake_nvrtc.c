/* SPDX-License-Identifier: Apache-2.0 */
/* The run-time compiler of fake.h. */
#define NVRTC_GET_TYPE_NAME 0
#define __DOXYGEN_ONLY__ 0
#include <nvrtc.h>

#include "fake.h"

#include <string.h>

#pragma GCC visibility push(default)

fake_nvrtc_state fake_nvrtc;

static const char code[] = "machine code";
static const char log_text[] = "line 7: this does not build";

#define TRY                                       \
    if (++fake_nvrtc.calls == fake_nvrtc.fail_at) \
    return NVRTC_ERROR_COMPILATION

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult result)
{
    return result == NVRTC_SUCCESS ? "NVRTC_SUCCESS"
                                   : "NVRTC_ERROR_COMPILATION";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source,
                               const char *name, int headers,
                               const char *const *texts,
                               const char *const *names)
{
    (void)name;
    (void)texts;
    (void)names;
    TRY;
    fake_nvrtc.wrong +=
        headers != 0 || (strstr(source, "gyre_update") == NULL &&
                         strstr(source, "gyre_encode") == NULL);
    fake_nvrtc.live++;
    *program = (nvrtcProgram)(void *)&fake_nvrtc;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    fake_nvrtc.live--;
    *program = NULL;
    return NVRTC_SUCCESS;
}

static int has(int count, const char *const *options, const char *wanted)
{
    for (int i = 0; i < count; i++)
        if (strcmp(options[i], wanted) == 0)
            return 1;
    return 0;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count,
                                const char *const *options)
{
    (void)program;
    fake_nvrtc.wrong += !has(count, options, "--fmad=false") ||
                        !has(count, options, "--prec-div=true") ||
                        !has(count, options, "--prec-sqrt=true") ||
                        !has(count, options, "--ftz=false") ||
                        !has(count, options, "--gpu-architecture=sm_90");
    TRY;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size)
{
    (void)program;
    *size = sizeof(log_text);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    (void)program;
    memcpy(log, log_text, sizeof(log_text));
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *size)
{
    (void)program;
    TRY;
    *size = sizeof(code);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin)
{
    (void)program;
    TRY;
    memcpy(cubin, code, sizeof(code));
    return NVRTC_SUCCESS;
}
