/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of a device on which gradients are born: words of launches,
 * and the frame around payloads that come from there. */
#include "config.h"

#include "device/birth.h"

#include "device/open.h"
#include "device/source.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    STAGED = 1 << 16,   /* elements from the host at a time */
    LAUNCHED = 1 << 24, /* elements of one take */
    GROUP = GYRE_SOURCE_GROUP
};

struct gyre_birth {
    gyre_context *context;
    gyre_services services;
    const gyre_birth_driver *driver;
    void *opened;
    gyre_memory_kind kind;
    const gyre_codec *codec;
    uint64_t grains;
    size_t grain_bytes; /* of a whole grain's payload */
    pthread_mutex_t lock;
};

/* ---- open ------------------------------------------------------------ */

static void block_bytes(const gyre_codec *codec, uint64_t grains, bool residual,
                        size_t bytes[GYRE_BIRTH_BLOCKS])
{
    size_t floats = (size_t)grains * GYRE_GRAIN * sizeof(float);

    bytes[GYRE_BIRTH_GRADIENTS] = floats;
    bytes[GYRE_BIRTH_E0] = residual ? floats : 0;
    bytes[GYRE_BIRTH_E1] = residual ? floats : 0;
    bytes[GYRE_BIRTH_PAYLOADS] =
        (size_t)grains * gyre_codec_grain_bytes(codec, GYRE_GRAIN);
    bytes[GYRE_BIRTH_LEAVES] = (size_t)grains * 2 * sizeof(double);
    bytes[GYRE_BIRTH_STAGING] = STAGED * sizeof(float);
}

uint64_t gyre_birth_memory(const gyre_codec *codec, uint64_t grains,
                           bool residual)
{
    size_t bytes[GYRE_BIRTH_BLOCKS];
    uint64_t sum = 0;

    if (codec == NULL || gyre_codec_encoder_of(codec) == NULL)
        return 0;
    block_bytes(codec, grains, residual, bytes);
    for (int i = 0; i < GYRE_BIRTH_BLOCKS; i++)
        sum += bytes[i];
    return sum;
}

static gyre_status find_driver(gyre_birth *b, const char **language,
                               gyre_error *error)
{
    const char *name = b->kind == GYRE_CUDA_MEMORY ? "cuda" : "opencl";
    const gyre_plugin *plugin = NULL;
    const gyre_driver *driver;
    gyre_status status =
        gyre_plugin_find(b->context, GYRE_KIND_DEVICE, name, &plugin, error);

    if (status == GYRE_NOT_FOUND)
        return gyre_fail_prefix(error, GYRE_UNSUPPORTED,
                                "memory of kind %d needs the module %s",
                                (int)b->kind, name);
    if (status != GYRE_OK)
        return status;
    driver = plugin->descriptor;
    if (driver->size < sizeof(*driver) || driver->birth == NULL)
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "the module %s does not compress there", name);
    b->driver = driver->birth;
    *language = driver->language;
    return GYRE_OK;
}

static gyre_status set_up(gyre_birth *b, const gyre_birth_spec *spec,
                          gyre_error *error)
{
    gyre_birth_plan plan = {.size = sizeof(plan),
                            .data = spec->first->data,
                            .device = spec->first->device,
                            .group = GROUP};
    const char *language = NULL;
    char *source = NULL;
    gyre_status status = find_driver(b, &language, error);

    if (status == GYRE_OK)
        status = gyre_source_birth(b->context, language, b->codec, &source,
                                   &plan.shared_bytes, error);
    if (status != GYRE_OK)
        return status;
    block_bytes(b->codec, b->grains, spec->residual, plan.bytes);
    plan.source = source;
    status = b->driver->open(&b->services, &plan, &b->opened, error);
    gyre_free_text(b->context, source);
    if (status == GYRE_PLUGIN_BAD)
        gyre_fail_prefix(error, status,
                         "compressor %s, encoder for gradients "
                         "born on a device",
                         gyre_codec_name(b->codec));
    return status;
}

gyre_status gyre_birth_open(gyre_context *context, const gyre_birth_spec *spec,
                            gyre_birth **out, gyre_error *error)
{
    gyre_birth *b = gyre_alloc_zero(context, 1, sizeof(*b));
    gyre_status status;

    if (b == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "no memory to compress where gradients are born");
    b->context = context;
    b->kind = spec->first->kind;
    b->codec = spec->codec;
    b->grains = spec->grains;
    b->grain_bytes = gyre_codec_grain_bytes(spec->codec, GYRE_GRAIN);
    gyre_device_services(context, &b->services);
    pthread_mutex_init(&b->lock, NULL);
    status = set_up(b, spec, error);
    if (status != GYRE_OK) {
        gyre_birth_close(b);
        return status;
    }
    *out = b;
    return GYRE_OK;
}

void gyre_birth_close(gyre_birth *birth)
{
    if (birth == NULL)
        return;
    if (birth->opened != NULL)
        birth->driver->close(birth->opened);
    pthread_mutex_destroy(&birth->lock);
    gyre_free(birth->context, birth, 1, sizeof(*birth));
}

/* ---- gradients ------------------------------------------------------- */

bool gyre_birth_reaches(gyre_birth *birth, const gyre_gradient *piece,
                        uint64_t bytes)
{
    size_t size = gyre_dtype_bytes(piece->dtype);
    bool reaches;

    if (piece->kind != birth->kind || piece->offset % size != 0 ||
        (piece->kind == GYRE_CUDA_MEMORY && (uintptr_t)piece->data % size != 0))
        return false;
    pthread_mutex_lock(&birth->lock);
    reaches = birth->driver->reaches(birth->opened, piece->device, piece->data,
                                     piece->offset, bytes) != 0;
    pthread_mutex_unlock(&birth->lock);
    return reaches;
}

static void put64(uint32_t *words, uint64_t value)
{
    words[0] = (uint32_t)value;
    words[1] = (uint32_t)(value >> 32);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* One launch; `from` NULL: the staging. */
static gyre_status take_some(gyre_birth *b, const gyre_gradient *piece,
                             const void *from, uint64_t to, uint64_t offset,
                             uint64_t count, bool add, gyre_error *error)
{
    gyre_birth_launch launch = {.size = sizeof(launch),
                                .kernel = GYRE_BIRTH_TAKE,
                                .groups =
                                    (uint32_t)((count + GROUP - 1) / GROUP),
                                .from = from};

    launch.words[0] = (uint32_t)count;
    put64(launch.words + 1, to);
    put64(launch.words + 3, offset);
    put64(launch.words + 5, piece->stride != 0 ? (uint64_t)piece->stride : 1);
    launch.words[7] = (uint32_t)piece->dtype;
    launch.words[8] = add;
    return b->driver->launch(b->opened, &launch, error);
}

gyre_status gyre_birth_take(gyre_birth *birth, const gyre_gradient *piece,
                            uint64_t to, uint64_t count, bool add,
                            gyre_error *error)
{
    uint64_t step = (piece->stride != 0 ? (uint64_t)piece->stride : 1) *
                    gyre_dtype_bytes(piece->dtype);
    gyre_status status = GYRE_OK, waited;

    pthread_mutex_lock(&birth->lock);
    for (uint64_t at = 0; status == GYRE_OK && at < count; at += LAUNCHED)
        status = take_some(
            birth, piece, piece->data, to + at, piece->offset + at * step,
            count - at < LAUNCHED ? count - at : LAUNCHED, add, error);
    waited =
        birth->driver->wait(birth->opened, status == GYRE_OK ? error : NULL);
    pthread_mutex_unlock(&birth->lock);
    return status == GYRE_OK ? waited : status;
}

gyre_status gyre_birth_give(gyre_birth *birth, const float *host, uint64_t to,
                            uint64_t count, bool add, gyre_error *error)
{
    const gyre_gradient staged = {.dtype = GYRE_F32};
    gyre_status status = GYRE_OK;

    pthread_mutex_lock(&birth->lock);
    for (uint64_t at = 0; status == GYRE_OK && at < count; at += STAGED) {
        uint64_t n = count - at < STAGED ? count - at : STAGED;

        status =
            birth->driver->write(birth->opened, GYRE_BIRTH_STAGING, 0,
                                 (size_t)n * sizeof(float), host + at, error);
        if (status == GYRE_OK)
            status = take_some(birth, &staged, NULL, to + at, 0, n, add, error);
    }
    pthread_mutex_unlock(&birth->lock);
    return status;
}

static gyre_status read_leaves(gyre_birth *b, uint64_t at, uint64_t count,
                               double *out, gyre_error *error)
{
    return b->driver->read(b->opened, GYRE_BIRTH_LEAVES,
                           (size_t)at * sizeof(double),
                           (size_t)count * sizeof(double), out, error);
}

gyre_status gyre_birth_leaves(gyre_birth *birth, uint64_t grain,
                              uint64_t elements, double *out, gyre_error *error)
{
    uint64_t grains = (elements + GYRE_GRAIN - 1) / GYRE_GRAIN;
    gyre_birth_launch launch = {
        .size = sizeof(launch),
        .kernel = GYRE_BIRTH_LEAF,
        .groups = (uint32_t)((grains + GYRE_BIRTH_LEAVES_A_GROUP - 1) /
                             GYRE_BIRTH_LEAVES_A_GROUP),
    };
    gyre_status status;

    launch.words[0] = (uint32_t)grain;
    launch.words[1] = (uint32_t)grains;
    put64(launch.words + 2, elements);
    pthread_mutex_lock(&birth->lock);
    status = birth->driver->launch(birth->opened, &launch, error);
    if (status == GYRE_OK)
        status = read_leaves(birth, grain, grains, out, error);
    pthread_mutex_unlock(&birth->lock);
    return status;
}

/* ---- compression ----------------------------------------------------- */

static gyre_status run_encoder(gyre_birth *b, const gyre_feedback_job *job,
                               uint64_t grain, uint32_t version,
                               uint64_t payload, double *leaves,
                               gyre_error *error)
{
    uint64_t grains = (job->n + GYRE_GRAIN - 1) / GYRE_GRAIN;
    gyre_birth_launch launch = {.size = sizeof(launch),
                                .kernel = GYRE_BIRTH_ENCODE,
                                .groups = (uint32_t)grains,
                                .version = version};
    gyre_status status;

    launch.words[0] = (uint32_t)grain;
    launch.words[1] = (uint32_t)job->n;
    put64(launch.words + 2, job->index);
    launch.words[4] = bits_of(job->q);
    launch.words[5] = bits_of(job->kappa);
    launch.words[6] = job->key[0];
    launch.words[7] = job->key[1];
    launch.words[8] = job->e != NULL;
    launch.words[9] = (uint32_t)b->grain_bytes;
    launch.words[10] =
        (uint32_t)(payload - (grains - 1) * (uint64_t)b->grain_bytes);
    launch.words[11] = (uint32_t)b->grains;
    pthread_mutex_lock(&b->lock);
    status = b->driver->launch(b->opened, &launch, error);
    if (status == GYRE_OK)
        status = b->driver->read(
            b->opened, GYRE_BIRTH_PAYLOADS, (size_t)grain * b->grain_bytes,
            (size_t)payload, job->wire + GYRE_WIRE_HEAD, error);
    if (status == GYRE_OK)
        status = read_leaves(b, b->grains + grain, grains, leaves, error);
    pthread_mutex_unlock(&b->lock);
    return status;
}

gyre_status gyre_birth_encode(gyre_birth *birth, gyre_feedback_job *job,
                              uint64_t grain, uint32_t version,
                              gyre_error *error)
{
    uint64_t grains = (job->n + GYRE_GRAIN - 1) / GYRE_GRAIN;
    size_t last = (size_t)(job->n - (grains - 1) * GYRE_GRAIN);
    size_t last_bytes = gyre_codec_grain_bytes(birth->codec, last);
    uint64_t payload = (grains - 1) * birth->grain_bytes + last_bytes;
    gyre_wire_writer writer;
    gyre_status status =
        run_encoder(birth, job, grain, version, payload, job->leaves, error);

    if (status != GYRE_OK)
        return status;
    job->bytes = 0;
    job->finite = 1;
    for (uint64_t k = 0; k < grains; k++)
        job->finite &= !isnan(job->leaves[k]);
    if (!job->finite)
        return GYRE_OK;
    gyre_wire_begin(&writer, birth->codec, job->n, job->wire);
    for (uint64_t k = 0; k < grains; k++)
        gyre_wire_add(&writer,
                      k + 1 < grains ? birth->grain_bytes : last_bytes);
    job->bytes = gyre_wire_end(&writer);
    return GYRE_OK;
}

/* ---- residual -------------------------------------------------------- */

gyre_status gyre_birth_read(gyre_birth *birth, uint32_t version, uint64_t at,
                            uint64_t n, float *out, gyre_error *error)
{
    gyre_status status;

    pthread_mutex_lock(&birth->lock);
    status = birth->driver->read(birth->opened, GYRE_BIRTH_E0 + version,
                                 (size_t)at * sizeof(float),
                                 (size_t)n * sizeof(float), out, error);
    pthread_mutex_unlock(&birth->lock);
    return status;
}

gyre_status gyre_birth_write(gyre_birth *birth, uint32_t version, uint64_t at,
                             uint64_t n, const float *e, gyre_error *error)
{
    gyre_status status;

    pthread_mutex_lock(&birth->lock);
    status = birth->driver->write(birth->opened, GYRE_BIRTH_E0 + version,
                                  (size_t)at * sizeof(float),
                                  (size_t)n * sizeof(float), e, error);
    pthread_mutex_unlock(&birth->lock);
    return status;
}

gyre_status gyre_birth_copy(gyre_birth *birth, uint32_t version, uint64_t at,
                            uint64_t n, gyre_error *error)
{
    gyre_status status;

    pthread_mutex_lock(&birth->lock);
    status = birth->driver->copy(
        birth->opened, GYRE_BIRTH_E0 + version, GYRE_BIRTH_E1 - version,
        (size_t)at * sizeof(float), (size_t)n * sizeof(float), error);
    pthread_mutex_unlock(&birth->lock);
    return status;
}

gyre_status gyre_birth_clear(gyre_birth *birth, uint32_t version, uint64_t at,
                             uint64_t n, gyre_error *error)
{
    gyre_status status;

    pthread_mutex_lock(&birth->lock);
    status = birth->driver->clear(birth->opened, GYRE_BIRTH_E0 + version,
                                  (size_t)at * sizeof(float),
                                  (size_t)n * sizeof(float), error);
    pthread_mutex_unlock(&birth->lock);
    return status;
}
