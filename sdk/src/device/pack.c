/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering what a device needs of a job into one run of bytes. */
#include "config.h"

#include "device/pack.h"

#include "registry/compressor.h"

#include <assert.h>
#include <string.h>

size_t gyre_pack_bound(const gyre_codec *codec, size_t grains)
{
    size_t gradient = GYRE_GRAIN * sizeof(float);

    if (codec != NULL && gyre_codec_grain_bytes(codec, GYRE_GRAIN) > gradient)
        gradient = gyre_codec_grain_bytes(codec, GYRE_GRAIN);
    return grains * (GYRE_RECORD_WORDS * sizeof(uint32_t) +
                     GYRE_OPT_MAX_SCALARS * sizeof(float) + gradient);
}

/* One grain of a segment: its gradient goes to out[at]; returns its words. */
static size_t pack_gradient(const gyre_update_job *job,
                            const gyre_segment *segment, size_t done,
                            uint32_t *record, uint32_t *to)
{
    size_t bytes = record[GYRE_RECORD_N] * sizeof(float);
    const uint8_t *from = NULL;

    if (segment->wire != NULL) {
        gyre_wire_grain(job->codec, segment->wire, done / GYRE_GRAIN, &from,
                        &bytes);
        record[GYRE_RECORD_WIRE] = 1;
        record[GYRE_RECORD_BYTES] = (uint32_t)bytes;
    } else {
        from = (const uint8_t *)(segment->g + done);
    }
    memcpy(to, from, bytes);
    return bytes / sizeof(uint32_t);
}

/* Returns the words in use afterwards. */
static size_t pack_segment(const gyre_update_job *job,
                           const gyre_segment *segment, uint32_t *out,
                           size_t used)
{
    size_t scalars = used;
    size_t count = gyre_opt_scalar_count(job->opt);

    memcpy(out + used, segment->scalars, count * sizeof(float));
    used += count;
    for (size_t done = 0; done < segment->n; done += GYRE_GRAIN) {
        size_t left = segment->n - done;
        uint32_t *record =
            out + (segment->at + done) / GYRE_GRAIN * (size_t)GYRE_RECORD_WORDS;

        record[GYRE_RECORD_N] =
            (uint32_t)(left < GYRE_GRAIN ? left : GYRE_GRAIN);
        record[GYRE_RECORD_SCALARS] = (uint32_t)scalars;
        record[GYRE_RECORD_GRADIENT] = (uint32_t)used;
        record[GYRE_RECORD_INDEX] = (uint32_t)(segment->index + done);
        record[GYRE_RECORD_INDEX_HIGH] =
            (uint32_t)((segment->index + done) >> 32);
        memcpy(&record[GYRE_RECORD_Q], &job->q, sizeof(job->q));
        memcpy(&record[GYRE_RECORD_KEY], segment->key, sizeof(segment->key));
        used += pack_gradient(job, segment, done, record, out + used);
    }
    return used;
}

size_t gyre_pack_job(const gyre_update_job *job, uint32_t *out)
{
    size_t used = job->elements / GYRE_GRAIN * GYRE_RECORD_WORDS;

    memset(out, 0, used * sizeof(uint32_t));
    for (size_t i = 0; i < job->segment_count; i++) {
        const gyre_segment *segment = &job->segments[i];

        assert(segment->at % GYRE_GRAIN == 0);
        if (segment->g != NULL || segment->wire != NULL)
            used = pack_segment(job, segment, out, used);
    }
    return used * sizeof(uint32_t);
}
