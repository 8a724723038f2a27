/* SPDX-License-Identifier: Apache-2.0 */
/* From text to machine code. */
#include "config.h"

#include "cu.h"

#include <stdio.h>
#include <string.h>

/* What keeps the bits: no contraction, IEEE division and root, denormals; and a
 * log of errors alone. */
enum { OPTIONS = 6 };

static gyre_status rtc_fail(const nvrtc_calls *rtc, gyre_error *error,
                            const char *what, nvrtcResult code)
{
    return cu_say(error, GYRE_PLUGIN_BAD, "cuda: %s: %s", what,
                  rtc->nvrtcGetErrorString(code));
}

/* The log, cut to what the error text holds; whole in the log callback. */
static gyre_status build_failed(const gyre_services *services,
                                const nvrtc_calls *rtc, nvrtcProgram program,
                                const char *target, nvrtcResult code,
                                gyre_error *error)
{
    size_t size = 0;
    char *log = NULL;
    int major = 0, minor = 0;
    gyre_status status;

    (void)rtc->nvrtcVersion(&major, &minor);
    if (rtc->nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS &&
        size > 0)
        log = services->take(services->user, size + 1);
    if (log == NULL)
        return rtc_fail(rtc, error, "the program does not build", code);
    (void)rtc->nvrtcGetProgramLog(program, log);
    services->log(services->user, 0, log);
    status = cu_say(error,
                    code == NVRTC_ERROR_INVALID_OPTION ? GYRE_UNSUPPORTED
                                                       : GYRE_PLUGIN_BAD,
                    "cuda: the program does not build for %s (NVRTC %d.%d: "
                    "%s); build log: %s",
                    target, major, minor, rtc->nvrtcGetErrorString(code), log);
    services->give(services->user, log, size + 1);
    return status;
}

static gyre_status take_code(const gyre_services *services,
                             const nvrtc_calls *rtc, nvrtcProgram program,
                             void **code, size_t *bytes, gyre_error *error)
{
    size_t size = 0;
    nvrtcResult result = rtc->nvrtcGetCUBINSize(program, &size);
    void *image;

    if (result != NVRTC_SUCCESS || size == 0)
        return rtc_fail(rtc, error, "nvrtcGetCUBINSize", result);
    image = services->take(services->user, size);
    if (image == NULL)
        return cu_say(error, GYRE_NO_MEMORY, "cuda: no memory for the program");
    result = rtc->nvrtcGetCUBIN(program, image);
    if (result != NVRTC_SUCCESS) {
        services->give(services->user, image, size);
        return rtc_fail(rtc, error, "nvrtcGetCUBIN", result);
    }
    *code = image;
    *bytes = size;
    return GYRE_OK;
}

gyre_status cu_build(const gyre_services *services, const char *source,
                     const char *target, void **code, size_t *bytes,
                     gyre_error *error)
{
    char architecture[64];
    const char *const options[OPTIONS] = {architecture,      "--fmad=false",
                                          "--prec-div=true", "--prec-sqrt=true",
                                          "--ftz=false",     "-w"};
    nvrtc_calls rtc;
    nvrtcProgram program = NULL;
    nvrtcResult result;
    gyre_status status = nvrtc_load(&rtc, error);

    if (status != GYRE_OK)
        return status;
    snprintf(architecture, sizeof(architecture), "--gpu-architecture=%.40s",
             target);
    result = rtc.nvrtcCreateProgram(&program, source, "gyre.cu", 0, NULL, NULL);
    if (result != NVRTC_SUCCESS)
        return rtc_fail(&rtc, error, "nvrtcCreateProgram", result);
    result = rtc.nvrtcCompileProgram(program, OPTIONS, options);
    if (result != NVRTC_SUCCESS)
        status = build_failed(services, &rtc, program, target, result, error);
    else
        status = take_code(services, &rtc, program, code, bytes, error);
    (void)rtc.nvrtcDestroyProgram(&program);
    return status;
}
