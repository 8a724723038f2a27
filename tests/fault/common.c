/* SPDX-License-Identifier: Apache-2.0 */
/* The model, the run and the pictures that the fault tests share. */
#include "config.h"

#include "fault/common.h"

#include "base/base.h"
#include "store/store.h"

#include <math.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t fault_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

bool fault_long(void)
{
    const char *text = getenv("GYRE_SOAK");

    return text != NULL && text[0] != '\0' && strcmp(text, "0") != 0;
}

void fault_skip(const char *why)
{
    printf("# skipped: %s\n", why);
    fflush(stdout);
}

unsigned fault_stride(unsigned usual)
{
    if (fault_long())
        return 1;
#ifdef GYRE_SANITIZED
    return 7 * usual;
#else
    return usual;
#endif
}

bool fault_passes_over(uint64_t n)
{
    return fault_stride(1) > 1 && n % 4 != 0;
}

/* ---- the model -------------------------------------------------------- */

static float value(uint64_t *state)
{
    return (float)((double)(fault_random(state) >> 40) / 0x1p23 - 1.0);
}

size_t fault_bound_bytes(const fault_model *model, size_t tensor)
{
    return (size_t)model->elements[tensor] * (tensor == 2 ? 2 : 4);
}

void fault_model_make(fault_model *model, uint64_t scale)
{
    static const char *const names[FAULT_TENSORS] = {
        "first.weight", "frozen.weight", "second.weight", "gain",
        "sometimes.weight"};
    const uint64_t rows[FAULT_TENSORS] = {1500, 700, 40 * scale, 1, 1024};
    uint64_t state = 7;

    memset(model, 0, sizeof(*model));
    for (size_t i = 0; i < FAULT_TENSORS; i++) {
        gyre_tensor *t = &model->tensor[i];

        model->elements[i] = i == 2 ? rows[i] * 50 : rows[i];
        model->data[i] = malloc((size_t)model->elements[i] * sizeof(float));
        model->bound[i] = malloc((size_t)model->elements[i] * sizeof(float));
        model->before[i] = malloc((size_t)model->elements[i] * sizeof(float));
        for (uint64_t e = 0; e < model->elements[i]; e++)
            model->data[i][e] = value(&state);
        t->name = names[i];
        t->rank = i == 3 ? 0 : i == 2 ? 2 : 1;
        t->shape[0] = rows[i];
        t->shape[1] = i == 2 ? 50 : 0;
        t->group = i == 2;
        t->flags = i == FAULT_FROZEN ? GYRE_TENSOR_FROZEN : 0;
        t->dtype = GYRE_F32;
        t->data = model->data[i];
    }
}

void fault_model_free(fault_model *model)
{
    for (size_t i = 0; i < FAULT_TENSORS; i++) {
        free(model->data[i]);
        free(model->bound[i]);
        free(model->before[i]);
    }
}

gyre_store_options fault_options(const char *io)
{
    gyre_store_options options = {.size = sizeof(options)};

    options.io = io;
    options.buffers = 2;
    return options;
}

gyre_status fault_create(gyre_context *context, const fault_model *model,
                         const fault_place *place,
                         const gyre_store_options *options, gyre_store **out,
                         gyre_error *error)
{
    static const gyre_slot_codec codecs[] = {
        {"*", GYRE_STATE_Q8},
        {"parameter", GYRE_STATE_BF16_STOCHASTIC},
        {"exp_avg", GYRE_STATE_BF16},
    };
    static const gyre_setting topk[] = {{"ratio", 0.125}};
    gyre_store_spec spec = {.size = sizeof(spec)};

    spec.codecs = codecs;
    spec.codec_count = model->with & FAULT_CODED ? 3 : 0;
    spec.seed = 9;
    if (model->with & FAULT_FED) {
        spec.compressor = "topk";
        spec.compressor_settings = topk;
        spec.compressor_setting_count = 1;
    }
    spec.spill = (model->with & FAULT_SPILLED) != 0;
    spec.tensors = model->tensor;
    spec.tensor_count = FAULT_TENSORS;
    spec.devices = place->devices;
    spec.device_count = place->count;
    spec.chunk_elements = GYRE_GRAIN;
    spec.blob_bytes = FAULT_BLOB;
    spec.in_place = model->in_place;
    return gyre_store_create(context, place->store, &spec, options, out, error);
}

gyre_status fault_open(gyre_context *context, const fault_place *place,
                       const gyre_store_options *options, gyre_store **out,
                       gyre_error *error)
{
    return gyre_store_open(context, place->store, options, out, error);
}

gyre_status fault_bind(const fault_model *model, gyre_store *store,
                       gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (size_t i = 0; i < FAULT_TENSORS && status == GYRE_OK; i++)
        if (i != 3)
            status = gyre_store_bind(store, i, i == 2 ? GYRE_BF16 : GYRE_F32,
                                     model->bound[i], error);
    if (status == GYRE_OK)
        status = gyre_store_pull(store, error);
    return status;
}

/* ---- a round ---------------------------------------------------------- */

/* Gradient of one tensor in one micro-batch, and its two pieces, last first:
 * the cut is no multiple of anything. */
static gyre_status give_tensor(const fault_model *model, gyre_round *round,
                               size_t tensor, uint64_t number, unsigned micro,
                               gyre_error *error)
{
    uint64_t n = model->elements[tensor], cut = n / 3;
    uint64_t state = number * 1000 + tensor * 10 + micro;
    float *g = malloc((size_t)n * sizeof(float));
    gyre_gradient piece = {.dtype = GYRE_F32};
    gyre_status status = GYRE_OK;

    for (uint64_t e = 0; e < n; e++)
        g[e] = value(&state);
    if (number == FAULT_SKIPPED_ROUND && tensor == 2)
        g[n / 2] = NAN;
    piece.data = g + cut;
    status = gyre_round_gradient(round, tensor, cut, n - cut, &piece, error);
    piece.data = g;
    if (status == GYRE_OK)
        status = gyre_round_gradient(round, tensor, 0, cut, &piece, error);
    free(g);
    return status;
}

static gyre_status give_batch(const fault_model *model, gyre_round *round,
                              uint64_t number, unsigned micro,
                              gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (size_t i = 0; i < FAULT_TENSORS && status == GYRE_OK; i++) {
        if (i == FAULT_FROZEN)
            continue;
        if (i == FAULT_ABSENT && number == FAULT_ABSENT_ROUND)
            status = gyre_round_absent(round, i, error);
        else
            status = give_tensor(model, round, i, number, micro, error);
        if (status == GYRE_OK && micro == number % 2)
            status = gyre_round_release(round, i, error);
    }
    return status;
}

size_t fault_blob(uint64_t round, char blob[FAULT_BLOB])
{
    size_t n = (size_t)(round * 397 % 1500) + 8;

    for (size_t i = 0; i < n; i++)
        blob[i] = (char)(round * 31 + i);
    return n;
}

gyre_status fault_round(const fault_model *model, gyre_store *store, bool early,
                        gyre_round_report *report, gyre_error *error)
{
    gyre_round_options options = {.size = sizeof(options)};
    gyre_store_info info = {.size = sizeof(info)};
    gyre_round *round;
    char blob[FAULT_BLOB];
    unsigned micros;
    gyre_status status = gyre_store_get_info(store, &info, error);

    if (status != GYRE_OK)
        return status;
    micros = (unsigned)(info.round + 1) % 2 + 1; /* two in rounds 1, 3, 5 */
    options.micro_batches = micros;
    options.denominator = micros;
    options.clip = early ? 0 : 0.5;
    options.early = early;
    options.late_clip = !early && (model->with & FAULT_LATE) != 0;
    options.dynamic_scale = 1;
    status = gyre_round_begin(store, &options, &round, error);
    if (status != GYRE_OK)
        return status;
    for (unsigned m = 0; m < micros && status == GYRE_OK; m++) {
        status = give_batch(model, round, info.round + 1, m, error);
        if (status == GYRE_OK && m + 1 < micros)
            status = gyre_round_next(round, error);
    }
    if (status != GYRE_OK) {
        gyre_error ignored;

        (void)gyre_round_abort(round, &ignored);
        return status;
    }
    memset(report, 0, sizeof(*report));
    report->size = sizeof(*report);
    return gyre_round_finish(round, blob, fault_blob(info.round + 1, blob),
                             report, error);
}

/* ---- pictures --------------------------------------------------------- */

/* Grain by grain and not slot by slot: the store keeps the last chunk. */
static gyre_status hash_tensor(gyre_store *store, size_t tensor, uint64_t n,
                               int slots, uint64_t *hash, gyre_error *error)
{
    float data[GYRE_GRAIN];
    gyre_status status = GYRE_OK;

    for (uint64_t first = 0; first < n; first += GYRE_GRAIN) {
        size_t k = (size_t)(n - first < GYRE_GRAIN ? n - first : GYRE_GRAIN);

        for (int s = -1; s < slots && status == GYRE_OK; s++) {
            status = gyre_store_read(store, tensor, s, first, k, GYRE_F32, data,
                                     error);
            *hash = XXH3_64bits_withSeed(data, k * sizeof(float), *hash + 1);
        }
    }
    return status;
}

static gyre_status hash_slots(gyre_store *store, uint32_t slots,
                              fault_picture *picture, gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (size_t i = 0; i < FAULT_TENSORS && status == GYRE_OK; i++) {
        gyre_tensor t;
        uint64_t n = 1;

        status = gyre_store_tensor(store, i, &t, &picture->steps[i], error);
        if (status != GYRE_OK)
            break;
        for (uint32_t k = 0; k < t.rank; k++)
            n *= t.shape[k];
        status = hash_tensor(store, i, n,
                             t.flags & GYRE_TENSOR_FROZEN ? 0 : (int)slots,
                             &picture->slots, error);
    }
    return status;
}

/* As the next round will add it, wherever its grains lie. */
static uint64_t hash_residual(const gyre_store *store)
{
    const gyre_residual_memory *r = &store->residual;
    const gyre_layout *layout = &store->layout;
    uint64_t hash = 0;

    for (uint64_t c = 0; r->which != NULL && c < layout->train_chunks; c++) {
        const float *e =
            r->e[r->which[c]] + gyre_layout_first_grain(layout, c) * GYRE_GRAIN;
        size_t cursor = GYRE_RUN_FIRST;
        gyre_run run;

        while (gyre_layout_next_run(layout, c, &cursor, &run))
            for (size_t i = 0; i < run.n; i++) {
                float x = r->kappa[run.tensor] * e[run.at + i];

                hash = XXH3_64bits_withSeed(&x, sizeof(x), hash + 1);
            }
    }
    return hash;
}

gyre_status fault_look(gyre_store *store, fault_picture *picture,
                       gyre_error *error)
{
    gyre_store_info info = {.size = sizeof(info)};
    size_t bytes;
    const void *blob;
    gyre_status status = gyre_store_get_info(store, &info, error);

    memset(picture, 0, sizeof(*picture));
    if (status == GYRE_OK)
        status = gyre_store_digest(store, picture->digest, error);
    if (status == GYRE_OK)
        status = hash_slots(store, info.slots, picture, error);
    if (status != GYRE_OK)
        return status;
    picture->round = info.round;
    picture->step = info.step;
    picture->scale = info.loss_scale;
    picture->residual = hash_residual(store);
    blob = gyre_store_blob(store, &bytes);
    picture->blob = bytes > 0 ? XXH3_64bits(blob, bytes) : 0;
    return GYRE_OK;
}

const char *fault_differs(const fault_picture *a, const fault_picture *b,
                          bool blob)
{
    if (a->round != b->round)
        return "round";
    if (a->step != b->step)
        return "step";
    if (strcmp(a->digest, b->digest) != 0)
        return "digest";
    if (a->slots != b->slots)
        return "slots";
    if (memcmp(a->steps, b->steps, sizeof(a->steps)) != 0)
        return "tensor steps";
    if (a->scale != b->scale)
        return "loss scale";
    if (a->residual != b->residual)
        return "residual";
    if (blob && a->blob != b->blob)
        return "blob";
    return NULL;
}

void fault_record(const fault_model *model, gyre_store *store, bool early,
                  fault_history *history)
{
    gyre_error error = {GYRE_OK, ""};

    memset(history, 0, sizeof(*history));
    history->early = early;
    fault_ok(fault_look(store, &history->picture[0], &error), &error);
    for (int r = 1; r <= FAULT_ROUNDS; r++) {
        gyre_round_report report;

        fault_ok(fault_round(model, store, early, &report, &error), &error);
        fault_ok(fault_look(store, &history->picture[r], &error), &error);
        history->norm[r] = report.norm;
        assert_int_equal(report.skipped, r == FAULT_SKIPPED_ROUND);
        assert_int_equal(history->picture[r].round, r);
        assert_true((history->picture[r].residual != 0) ==
                    ((model->with & FAULT_FED) != 0));
    }
    gyre_store_close(store);
}
