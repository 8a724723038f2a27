/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/compress.h: the feedback service for callers without a store. */
#include "config.h"

#include <gyre/compress.h>

#include <string.h>
#include <xxhash.h>

#include "device/device.h"
#include "device/feedback.h"

struct gyre_compression {
    gyre_context *context;
    gyre_codec *codec;
};

gyre_status gyre_compression_create(gyre_context *context,
                                    const char *compressor,
                                    const gyre_setting *settings, size_t count,
                                    gyre_compression **out, gyre_error *error)
{
    gyre_compression *made;
    gyre_status status;

    if (context == NULL || compressor == NULL || out == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "compression: context, compressor and out must be "
                         "given");
    made = gyre_alloc_zero(context, 1, sizeof(*made));
    if (made == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory", compressor);
    made->context = context;
    status = gyre_codec_create(context, compressor, settings, count,
                               &made->codec, error);
    if (status != GYRE_OK) {
        gyre_compression_destroy(made);
        return status;
    }
    *out = made;
    return GYRE_OK;
}

void gyre_compression_destroy(gyre_compression *compression)
{
    if (compression == NULL)
        return;
    gyre_codec_destroy(compression->codec);
    gyre_free(compression->context, compression, 1, sizeof(*compression));
}

uint64_t gyre_compression_bound(const gyre_compression *compression,
                                uint64_t elements)
{
    return gyre_codec_bound(compression->codec, elements);
}

static gyre_status check_job(const gyre_compression *compression,
                             const gyre_compression_job *job, gyre_error *error)
{
    const char *name = gyre_codec_name(compression->codec);

    if (job == NULL || job->size < sizeof(*job))
        return gyre_fail(error, GYRE_INVALID,
                         "%s: the job is missing, or its size is not %zu", name,
                         sizeof(*job));
    if (job->elements == 0 || job->g == NULL || job->block == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "%s: elements, g and block must be given", name);
    if (job->index % GYRE_CODEC_GRAIN != 0 || (uintptr_t)job->block % 8 != 0)
        return gyre_fail(error, GYRE_INVALID,
                         "%s: index is %llu and block lies at %p; want "
                         "multiples of %d and 8",
                         name, (unsigned long long)job->index,
                         (void *)job->block, GYRE_CODEC_GRAIN);
    return GYRE_OK;
}

/* All passes over the job's own elements. */
static gyre_status survey(gyre_context *context, gyre_feedback_job *job,
                          void *decided, gyre_error *error)
{
    size_t bytes = gyre_codec_survey_bytes(job->codec);
    uint32_t pass = 0;
    void *summary;

    job->finite = 1;
    if (bytes == 0)
        return GYRE_OK;
    summary = gyre_alloc(context, 1, bytes);
    if (summary == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory for a survey",
                         gyre_codec_name(job->codec));
    do {
        memset(summary, 0, bytes);
        gyre_feedback_survey(job, pass, job->n, summary);
        job->mixed = job->e_next != NULL;
    } while (job->finite && gyre_codec_decide(job->codec, pass++, summary,
                                              job->n, job->n, decided));
    gyre_free(context, summary, 1, bytes);
    return GYRE_OK;
}

static double sum_of(const double *leaves, uint64_t count)
{
    double sum = 0;

    for (uint64_t k = 0; k < count; k++)
        sum += leaves[k];
    return sum;
}

gyre_status gyre_compression_run(const gyre_compression *compression,
                                 gyre_compression_job *job, gyre_error *error)
{
    gyre_status status = check_job(compression, job, error);
    const char *tensor;
    uint64_t decided[GYRE_FEEDBACK_DECIDED / 8] = {0}, grains;
    gyre_feedback_job inner = {0};
    double *leaves;

    if (status != GYRE_OK)
        return status;
    tensor = job->tensor == NULL ? "" : job->tensor;
    grains = (job->elements + GYRE_CODEC_GRAIN - 1) / GYRE_CODEC_GRAIN;
    leaves = gyre_alloc(compression->context, grains, sizeof(leaves[0]));
    if (leaves == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory",
                         gyre_codec_name(compression->codec));
    inner.codec = compression->codec;
    inner.isa = gyre_context_isa(compression->context);
    inner.n = job->elements;
    inner.index = job->index;
    inner.g = job->g;
    inner.e = job->e;
    inner.e_next = job->e_next;
    inner.q = job->q;
    inner.kappa = job->kappa;
    inner.decided = decided;
    inner.wire = job->block;
    inner.leaves = leaves;
    gyre_feedback_key(job->seed, XXH3_64bits(tensor, strlen(tensor)),
                      GYRE_FEEDBACK_SLOT, job->step, inner.key);
    status = survey(compression->context, &inner, decided, error);
    if (status == GYRE_OK && inner.finite)
        gyre_feedback_run(&inner);
    if (status == GYRE_OK && !inner.finite)
        status = gyre_fail(error, GYRE_RANGE,
                           "%s: tensor \"%s\": a number of g q + kappa e is "
                           "not finite; skip the step",
                           gyre_codec_name(compression->codec), tensor);
    if (status == GYRE_OK) {
        job->block_bytes = inner.bytes;
        job->sum_squares = sum_of(leaves, grains);
    }
    gyre_free(compression->context, leaves, grains, sizeof(leaves[0]));
    return status;
}

gyre_status gyre_compression_decode(const gyre_compression *compression,
                                    const uint8_t *block, uint64_t bytes,
                                    uint64_t elements, float *out,
                                    gyre_error *error)
{
    gyre_status status;

    if (block == NULL || out == NULL)
        return gyre_fail(error, GYRE_INVALID, "%s: block and out must be given",
                         gyre_codec_name(compression->codec));
    status = gyre_wire_check(compression->codec, block, bytes, elements, error);
    if (status != GYRE_OK)
        return status;
    return gyre_wire_decode(compression->codec, block, out, error);
}
