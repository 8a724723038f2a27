/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compress and decompress for compressors_numpy.py.  On stdin, any number of
 *
 *     compressor NAME
 *     set NAME VALUE
 *     tensor NAME, seed S, step T, index I
 *     elements N
 *     go
 *     f32 x[N]
 *
 * The answer on stdout is u64 bytes, the wire block, f32 decoded[N], f32 left
 * out[N], f64 sum of squares.
 */
#include "config.h"

#include <gyre/gyre.h>

#include "job.h"

typedef struct request {
    char compressor[JOB_NAME], tensor[JOB_NAME];
    char names[JOB_MAX][JOB_NAME];
    gyre_setting settings[JOB_MAX];
    size_t count;
    unsigned long seed, step, elements, index;
} request;

static int read_request(request *r)
{
    char line[1024];

    memset(r, 0, sizeof(*r));
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strcmp(line, "go\n") == 0)
            return 1;
        if (r->count < JOB_MAX &&
            sscanf(line, "set %63s %lf", r->names[r->count],
                   &r->settings[r->count].value) == 2) {
            r->settings[r->count].name = r->names[r->count];
            r->count++;
        } else if (sscanf(line, "compressor %63s", r->compressor) != 1 &&
                   sscanf(line, "tensor %63s", r->tensor) != 1 &&
                   sscanf(line, "seed %lu", &r->seed) != 1 &&
                   sscanf(line, "step %lu", &r->step) != 1 &&
                   sscanf(line, "index %lu", &r->index) != 1 &&
                   sscanf(line, "elements %lu", &r->elements) != 1) {
            job_die(line);
        }
    }
    return 0;
}

static void serve(gyre_context *context, const request *r)
{
    size_t n = r->elements;
    float *x = job_array(n, sizeof(float)), *left = job_array(n, sizeof(float));
    float *decoded = job_array(n, sizeof(float));
    gyre_compression *compression = NULL;
    gyre_compression_job one = {.size = sizeof(one)};
    gyre_error error = {0};

    if (gyre_compression_create(context, r->compressor, r->settings, r->count,
                                &compression, &error) != GYRE_OK)
        job_die(error.text);
    job_bytes(x, n * sizeof(float));
    one.elements = n;
    one.index = r->index;
    one.g = x;
    one.e_next = left;
    one.q = 1.0f;
    one.tensor = r->tensor;
    one.seed = r->seed;
    one.step = r->step;
    one.block = job_array(gyre_compression_bound(compression, n), 1);
    if (gyre_compression_run(compression, &one, &error) != GYRE_OK ||
        gyre_compression_decode(compression, one.block, one.block_bytes, n,
                                decoded, &error) != GYRE_OK)
        job_die(error.text);
    job_answer(&one.block_bytes, sizeof(one.block_bytes));
    job_answer(one.block, one.block_bytes);
    job_answer(decoded, n * sizeof(float));
    job_answer(left, n * sizeof(float));
    job_answer(&one.sum_squares, sizeof(one.sum_squares));
    fflush(stdout);
    free(one.block);
    free(x);
    free(left);
    free(decoded);
    gyre_compression_destroy(compression);
}

int main(void)
{
    gyre_context *context = NULL;
    request r;

    if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
        job_die("no context");
    while (read_request(&r))
        serve(context, &r);
    gyre_context_destroy(context);
    return 0;
}
