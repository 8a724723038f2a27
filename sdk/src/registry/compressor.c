/* SPDX-License-Identifier: Apache-2.0 */
/* A compressor with its settings checked and its loops chosen. */
#include "config.h"

#include "registry/compressor.h"
#include "registry/registry.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

struct gyre_codec {
    gyre_context *context;
    const gyre_plugin *plugin;
    const gyre_compressor *compressor;
    const gyre_codec_kernel *kernel;
    const gyre_codec_encoder *encoder;
    const gyre_codec_loop *loop;
    int isa;
    uint32_t flags;
    uint64_t id;
    size_t bytes[GYRE_CODEC_GRAIN + 1]; /* of a payload, by elements */
    double values[GYRE_OPT_MAX_PARAMETERS];
};

/* ---- known-answer vector --------------------------------------------- */

/* A whole grain and a short one with a rest of every vector width; values from
 * zero and denormal to large, both signs, with equals among them. */
enum { SHORT_N = 1024 - 357 };

typedef struct answer {
    float kept[GYRE_CODEC_GRAIN], out[GYRE_CODEC_GRAIN];
    size_t bytes;
    int refused;
} answer;

static void fill_vector(float *x, size_t n)
{
    uint32_t seed = 1;

    for (size_t i = 0; i < n; i++) {
        int exponent;

        seed = seed * 1664525u + 1013904223u;
        exponent = (int)(seed >> 28) - 12;
        if ((seed >> 20 & 31u) == 0)
            exponent = -140;
        x[i] = ldexpf((float)(seed >> 8 & 0xffu) - 128.0f, exponent - 8);
    }
}

static void run_vector(const gyre_codec *codec, const gyre_codec_loop *loop,
                       const void *decided, const float *x, size_t n,
                       uint8_t *payload, answer *a)
{
    gyre_compress job = {.size = sizeof(job),
                         .values = codec->values,
                         .decided = decided,
                         .n = n,
                         .x = x,
                         .index = 4096,
                         .key = {1, 2},
                         .payload = payload,
                         .kept = a->kept};

    memset(a, 0, sizeof(*a));
    a->bytes = loop->compress(&job);
    if (a->bytes <= codec->bytes[n])
        a->refused =
            loop->decompress(codec->values, n, payload, a->bytes, a->out);
}

static gyre_status compare(const gyre_codec *codec, size_t n,
                           const answer *want, const answer *have,
                           gyre_error *error)
{
    const char *set = gyre_isa_name((gyre_isa)codec->isa);
    const char *name = codec->plugin->name;

    if (have->bytes > codec->bytes[n] ||
        (!(codec->flags & GYRE_CODEC_VARIABLE) &&
         have->bytes != codec->bytes[n]))
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: the %s loop wrote %zu bytes for %zu elements "
                         "where bytes() says %zu; mend the plugin",
                         name, set, have->bytes, n, codec->bytes[n]);
    if (have->refused)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: the %s loop does not decompress what it "
                         "compressed; mend the plugin",
                         name, set);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&have->kept[i], &have->out[i], sizeof(float)) != 0)
            return gyre_fail(error, GYRE_PLUGIN_BAD,
                             "%s: the %s loop says that it kept %a of element "
                             "%zu but decompresses %a; mend the plugin",
                             name, set, (double)have->kept[i], i,
                             (double)have->out[i]);
    }
    if (want->bytes == have->bytes &&
        memcmp(want->kept, have->kept, n * sizeof(float)) == 0)
        return GYRE_OK;
    return gyre_fail(error, GYRE_PLUGIN_BAD,
                     "%s: the %s loop keeps other values than the scalar "
                     "loop; rebuild the plugin with the flags of pkg-config "
                     "--cflags gyre-plugin",
                     name, set);
}

/* Survey a vector until the plugin has decided; a plugin that never does is
 * stopped. */
static gyre_status survey_vector(const gyre_codec *codec, const float *x,
                                 size_t n, void *decided, gyre_error *error)
{
    size_t bytes = gyre_codec_survey_bytes(codec);
    void *summary;
    int more = 1;

    memset(decided, 0, GYRE_CODEC_MAX_DECIDED);
    if (bytes == 0)
        return GYRE_OK;
    summary = gyre_alloc(codec->context, 1, bytes);
    if (summary == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory for a survey",
                         codec->plugin->name);
    for (uint32_t pass = 0; more && pass < 16; pass++) {
        memset(summary, 0, bytes);
        gyre_codec_survey(codec, pass, decided, x, n, 0, n, summary);
        more = gyre_codec_decide(codec, pass, summary, n, n, decided);
    }
    gyre_free(codec->context, summary, 1, bytes);
    if (more)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: has not decided after 16 passes; mend the plugin",
                         codec->plugin->name);
    return GYRE_OK;
}

typedef struct vector {
    float x[GYRE_CODEC_GRAIN];
    answer want, have;
    uint64_t decided[GYRE_CODEC_MAX_DECIDED / 8];
} vector;

static gyre_status check_vector(const gyre_codec *codec, vector *v, size_t n,
                                uint8_t *payload, uint8_t *other,
                                gyre_error *error)
{
    const gyre_codec_loop *scalar = &codec->compressor->loops[GYRE_LOOP_SCALAR];
    gyre_status status = survey_vector(codec, v->x, n, v->decided, error);

    if (status != GYRE_OK)
        return status;
    run_vector(codec, scalar, v->decided, v->x, n, payload, &v->want);
    run_vector(codec, codec->loop, v->decided, v->x, n, other, &v->have);
    status = compare(codec, n, &v->want, &v->have, error);
    if (status == GYRE_OK && memcmp(payload, other, v->want.bytes) != 0)
        status =
            gyre_fail(error, GYRE_PLUGIN_BAD,
                      "%s: the %s loop writes other bytes than the scalar "
                      "loop; mend the plugin",
                      codec->plugin->name, gyre_isa_name((gyre_isa)codec->isa));
    return status;
}

static gyre_status check_loop(const gyre_codec *codec, gyre_error *error)
{
    size_t room = codec->bytes[GYRE_CODEC_GRAIN];
    vector *v = gyre_alloc(codec->context, 1, sizeof(*v));
    uint8_t *payloads = gyre_alloc(codec->context, 2, room);
    gyre_status status = GYRE_NO_MEMORY;
    gyre_fp saved = gyre_fp_pin();

    if (v == NULL || payloads == NULL)
        gyre_fail(error, status, "%s: no memory", codec->plugin->name);
    else {
        fill_vector(v->x, GYRE_CODEC_GRAIN);
        status = check_vector(codec, v, GYRE_CODEC_GRAIN, payloads,
                              payloads + room, error);
        if (status == GYRE_OK)
            status = check_vector(codec, v, SHORT_N, payloads, payloads + room,
                                  error);
    }
    gyre_fp_restore(saved);
    gyre_free(codec->context, payloads, 2, room);
    gyre_free(codec->context, v, 1, sizeof(*v));
    return status;
}

/* ---- life ------------------------------------------------------------ */

/* Name, a NUL, then each parameter's name and value. */
static uint64_t hash_settings(const gyre_codec *codec)
{
    const gyre_plugin *plugin = codec->plugin;
    uint64_t id = XXH3_64bits(plugin->name, strlen(plugin->name) + 1);

    for (size_t i = 0; i < plugin->parameter_count; i++) {
        const char *name = plugin->parameters[i].name;

        id = XXH3_64bits_withSeed(name, strlen(name) + 1, id);
        id = XXH3_64bits_withSeed(&codec->values[i], sizeof(double), id);
    }
    return id;
}

/* bytes() is asked once for each length; the runtime trusts the table. */
static gyre_status fill_bytes(gyre_codec *codec, gyre_error *error)
{
    for (size_t n = 1; n <= GYRE_CODEC_GRAIN; n++) {
        size_t bytes = codec->compressor->bytes(codec->values, n);

        if (bytes == 0 || bytes % 4 != 0 || bytes > 16 * GYRE_CODEC_GRAIN ||
            bytes < codec->bytes[n - 1])
            return gyre_fail(error, GYRE_PLUGIN_BAD,
                             "%s: bytes() says %zu for %zu elements and %zu "
                             "for one less; want a multiple of 4 from 4 to %d "
                             "that does not fall",
                             codec->plugin->name, bytes, n, codec->bytes[n - 1],
                             16 * GYRE_CODEC_GRAIN);
        codec->bytes[n] = bytes;
    }
    return GYRE_OK;
}

static void choose_loop(gyre_codec *codec)
{
    const gyre_codec_loop *loops = codec->compressor->loops;

    codec->isa = (int)gyre_context_isa(codec->context);
    while (codec->isa > GYRE_LOOP_SCALAR && loops[codec->isa].compress == NULL)
        codec->isa--;
    codec->loop = &loops[codec->isa];
}

static gyre_status build(gyre_codec *codec, const gyre_setting *settings,
                         size_t count, gyre_error *error)
{
    const gyre_plugin *plugin = codec->plugin;
    const gyre_compressor *compressor = codec->compressor;
    const char *fault = NULL;
    gyre_status status;

    for (size_t i = 0; i < plugin->parameter_count; i++)
        codec->values[i] = plugin->parameters[i].initial;
    status =
        gyre_parameter_values(plugin, settings, count, codec->values, error);
    if (status != GYRE_OK)
        return status;
    if (compressor->check != NULL)
        fault = compressor->check(codec->values);
    if (fault != NULL)
        return gyre_fail(error, GYRE_PARAMETER, "%s: %s", plugin->name, fault);
    codec->flags = compressor->flags;
    if (compressor->flags_of != NULL)
        codec->flags |= compressor->flags_of(codec->values);
    if ((codec->flags & GYRE_CODEC_BARRIER) && compressor->survey_bytes == 0)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: claims a barrier without survey_bytes",
                         plugin->name);
    if (plugin->extension != NULL)
        codec->kernel = plugin->extension(GYRE_CODEC_KERNEL);
    if (plugin->extension != NULL)
        codec->encoder = plugin->extension(GYRE_CODEC_ENCODE);
    if (codec->encoder != NULL && codec->encoder->able != NULL &&
        !codec->encoder->able(codec->values))
        codec->encoder = NULL;
    codec->id = hash_settings(codec);
    status = fill_bytes(codec, error);
    if (status != GYRE_OK)
        return status;
    choose_loop(codec);
    return check_loop(codec, error);
}

gyre_status gyre_codec_create(gyre_context *context, const char *name,
                              const gyre_setting *settings, size_t count,
                              gyre_codec **out, gyre_error *error)
{
    const gyre_plugin *plugin = NULL;
    gyre_status status;
    gyre_codec *codec;

    status =
        gyre_plugin_find(context, GYRE_KIND_COMPRESSOR, name, &plugin, error);
    if (status != GYRE_OK)
        return status;
    codec = gyre_alloc_zero(context, 1, sizeof(*codec));
    if (codec == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory", name);
    codec->context = context;
    codec->plugin = plugin;
    codec->compressor = plugin->descriptor;
    status = build(codec, settings, count, error);
    if (status != GYRE_OK) {
        gyre_codec_destroy(codec);
        return status;
    }
    *out = codec;
    return GYRE_OK;
}

void gyre_codec_destroy(gyre_codec *codec)
{
    if (codec != NULL)
        gyre_free(codec->context, codec, 1, sizeof(*codec));
}

/* ---- what it is ------------------------------------------------------ */

const gyre_plugin *gyre_codec_plugin(const gyre_codec *codec)
{
    return codec->plugin;
}

const char *gyre_codec_name(const gyre_codec *codec)
{
    return codec->plugin->name;
}

const double *gyre_codec_values(const gyre_codec *codec)
{
    return codec->values;
}

size_t gyre_codec_parameter_count(const gyre_codec *codec)
{
    return codec->plugin->parameter_count;
}

uint32_t gyre_codec_format(const gyre_codec *codec)
{
    return codec->compressor->format;
}

uint32_t gyre_codec_flags(const gyre_codec *codec)
{
    return codec->flags;
}

uint64_t gyre_codec_id(const gyre_codec *codec)
{
    return codec->id;
}

gyre_isa gyre_codec_isa(const gyre_codec *codec)
{
    return (gyre_isa)codec->isa;
}

const gyre_codec_kernel *gyre_codec_kernel_of(const gyre_codec *codec)
{
    return codec->kernel;
}

const gyre_codec_encoder *gyre_codec_encoder_of(const gyre_codec *codec)
{
    const uint32_t apart = GYRE_CODEC_VARIABLE | GYRE_CODEC_BARRIER;

    return (codec->flags & apart) == 0 ? codec->encoder : NULL;
}

size_t gyre_codec_grain_bytes(const gyre_codec *codec, size_t n)
{
    assert(n >= 1 && n <= GYRE_CODEC_GRAIN);
    return codec->bytes[n];
}

uint64_t gyre_codec_bound(const gyre_codec *codec, uint64_t elements)
{
    uint64_t whole = elements / GYRE_CODEC_GRAIN;
    size_t rest = elements % GYRE_CODEC_GRAIN;
    uint64_t bytes = whole * codec->bytes[GYRE_CODEC_GRAIN];

    if (rest > 0)
        bytes += codec->bytes[rest];
    if (codec->flags & GYRE_CODEC_VARIABLE)
        bytes += 4 * (whole + (rest > 0));
    return gyre_round_up(GYRE_WIRE_HEAD + bytes, 8);
}

/* ---- grains ---------------------------------------------------------- */

size_t gyre_codec_compress(const gyre_codec *codec, gyre_compress *job)
{
    job->size = sizeof(*job);
    job->values = codec->values;
    return codec->loop->compress(job);
}

int gyre_codec_decode(const gyre_codec *codec, const uint8_t *payload,
                      size_t bytes, size_t n, float *out)
{
    return codec->loop->decompress(codec->values, n, payload, bytes, out);
}

int gyre_codec_accumulate(const gyre_codec *codec, const uint8_t *payload,
                          size_t bytes, size_t n, float *out)
{
    return codec->loop->accumulate(codec->values, n, payload, bytes, out);
}

size_t gyre_codec_survey_bytes(const gyre_codec *codec)
{
    if (!(codec->flags & GYRE_CODEC_BARRIER))
        return 0;
    return codec->compressor->survey_bytes;
}

size_t gyre_codec_decided_bytes(const gyre_codec *codec)
{
    if (!(codec->flags & GYRE_CODEC_BARRIER))
        return 0;
    return codec->compressor->decided_bytes;
}

void gyre_codec_survey(const gyre_codec *codec, uint32_t pass,
                       const void *decided, const float *x, size_t n,
                       uint64_t place, uint64_t elements, void *summary)
{
    gyre_survey job = {.size = sizeof(job),
                       .values = codec->values,
                       .pass = pass,
                       .decided = decided,
                       .n = n,
                       .x = x,
                       .place = place,
                       .elements = elements,
                       .summary = summary};

    codec->loop->survey(&job);
}

void gyre_codec_merge(const gyre_codec *codec, void *into, const void *from)
{
    codec->compressor->merge(into, from);
}

int gyre_codec_decide(const gyre_codec *codec, uint32_t pass,
                      const void *summary, uint64_t elements, uint64_t extent,
                      void *decided)
{
    return codec->compressor->decide(codec->values, pass, summary, elements,
                                     extent, decided);
}
