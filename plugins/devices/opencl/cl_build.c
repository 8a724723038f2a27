/* SPDX-License-Identifier: Apache-2.0 */
/* Is the device exact, and does the program build? */
#include "config.h"

#include "cl.h"

#include <stdio.h>
#include <string.h>

/* Bits of a result are promised to be those of the CPU: f32 to nearest, with
 * denormals, division and root rounded correctly.  fma() always is. */
static const struct {
    cl_device_fp_config bit;
    const char *what;
} wanted[] = {
    {CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT,
     "correctly rounded division and root"},
    {CL_FP_DENORM, "denormals"},
    {CL_FP_ROUND_TO_NEAREST, "rounding to nearest"},
    {CL_FP_INF_NAN, "infinities and NaN"},
};

gyre_status cl_check(const cl_calls *cl, cl_device_id id, const char *name,
                     int allow_inexact, int *exact, gyre_error *error)
{
    cl_device_fp_config have = 0;
    cl_bool compiler = CL_FALSE, little = CL_FALSE;

    (void)cl->clGetDeviceInfo(id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(have),
                              &have, NULL);
    (void)cl->clGetDeviceInfo(id, CL_DEVICE_COMPILER_AVAILABLE,
                              sizeof(compiler), &compiler, NULL);
    (void)cl->clGetDeviceInfo(id, CL_DEVICE_ENDIAN_LITTLE, sizeof(little),
                              &little, NULL);
    if (!compiler || !little)
        return cl_say(error, GYRE_UNSUPPORTED,
                      "opencl: %s: %s; Gyre needs both a compiler and "
                      "little-endian memory; choose another device",
                      name, compiler ? "big-endian" : "no compiler");
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (have & wanted[i].bit)
            continue;
        if (!allow_inexact)
            return cl_say(error, GYRE_UNSUPPORTED,
                          "opencl: %s: no %s in f32, so its results would "
                          "differ from other devices'; choose another device, "
                          "or allow_inexact, which the manifest records",
                          name, wanted[i].what);
        *exact = 0;
        return GYRE_OK;
    }
    *exact = 1;
    return GYRE_OK;
}

/* The log, cut to what the error text holds. */
static gyre_status build_failed(const gyre_services *services,
                                const cl_calls *cl, cl_program program,
                                cl_device_id id, cl_int code, gyre_error *error)
{
    size_t size = 0;
    char *log;
    gyre_status status;

    (void)cl->clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, NULL,
                                    &size);
    log = size > 0 ? services->take(services->user, size + 1) : NULL;
    if (log == NULL)
        return cl_fail(error, GYRE_PLUGIN_BAD, "the program does not build",
                       code);
    (void)cl->clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, size,
                                    log, NULL);
    services->log(services->user, 0, log);
    status = cl_say(error, GYRE_PLUGIN_BAD,
                    "opencl: the program does not build (%d); build log: %s",
                    (int)code, log);
    services->give(services->user, log, size + 1);
    return status;
}

gyre_status cl_build(const gyre_services *services, const cl_calls *cl,
                     cl_context context, cl_device_id id, const char *source,
                     int exact, cl_program *out, gyre_error *error)
{
    const char *options =
        exact ? "-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt"
              : "-cl-std=CL1.2 -w";
    size_t length = strlen(source);
    cl_int code = CL_SUCCESS;
    cl_program program =
        cl->clCreateProgramWithSource(context, 1, &source, &length, &code);
    gyre_status status;

    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_NO_MEMORY, "clCreateProgramWithSource",
                       code);
    code = cl->clBuildProgram(program, 1, &id, options, NULL, NULL);
    if (code != CL_SUCCESS) {
        status = build_failed(services, cl, program, id, code, error);
        cl->clReleaseProgram(program);
        return status;
    }
    *out = program;
    return GYRE_OK;
}
