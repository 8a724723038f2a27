/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State codecs for tests/peer/state_numpy.py.  From stdin, one of
 *
 *     code CODEC RANDOM KEY0 KEY1 INDEX GRAINS\n   f32[GRAINS * 1024]
 *         answer, per grain: its bytes, then what they decode to, f32[1024]
 *     train OPTIMIZER N STEPS KEY0 KEY1 INDEX CODEC...\n
 *         set NAME VALUE\n ... go\n
 *         f32 p[N], then per step f32 g[N]
 *         answer, per step: each variable as f32[N], and its bytes
 *
 * Training is one run of N elements in a chunk; step t has the key (KEY0 + t,
 * KEY1).
 */
#include "config.h"

#include "device/device.h"
#include "job.h"

static void check(gyre_status status, const gyre_error *error)
{
    if (status != GYRE_OK)
        job_die(error->text);
}

static gyre_state_codec codec_of(const char *name)
{
    gyre_state_codec codec = GYRE_STATE_F32;

    if (!gyre_state_parse(name, &codec))
        job_die(name);
    return codec;
}

static void code(gyre_isa isa, const char *line)
{
    uint8_t bytes[GYRE_GRAIN * sizeof(float)];
    float in[GYRE_GRAIN];
    unsigned long long index;
    unsigned random, grains;
    uint32_t key[2];
    char name[64];
    gyre_state_codec codec;

    if (sscanf(line, "code %63s %u %u %u %llu %u", name, &random, &key[0],
               &key[1], &index, &grains) != 6)
        job_die(line);
    codec = codec_of(name);
    for (unsigned k = 0; k < grains; k++) {
        job_bytes(in, sizeof(in));
        gyre_state_encode(codec, isa, in, bytes, random ? key : NULL,
                          index + k * GYRE_GRAIN);
        job_answer(bytes, gyre_state_stride(codec));
        gyre_state_decode(codec, isa, bytes, in);
        job_answer(in, sizeof(in));
    }
}

/* ---- training ---------------------------------------------------------- */

typedef struct training {
    gyre_opt *opt;
    gyre_isa isa;
    size_t n, grains, var_count;
    gyre_var vars[1 + GYRE_OPT_MAX_SLOTS];
    uint8_t *data;
} training;

static void fill(const training *t, size_t v, const float *x)
{
    float in[GYRE_GRAIN];

    for (size_t k = 0; k < t->grains; k++) {
        size_t left = t->n - k * GYRE_GRAIN;
        size_t n = left < GYRE_GRAIN ? left : GYRE_GRAIN;

        memset(in, 0, sizeof(in));
        for (size_t i = 0; i < n; i++)
            in[i] = v == 0 ? x[k * GYRE_GRAIN + i]
                           : gyre_opt_slot_initial(t->opt, v - 1);
        gyre_state_encode(t->vars[v].codec, t->isa, in,
                          t->data + t->vars[v].at + k * t->vars[v].stride, NULL,
                          0);
    }
}

static void answer(const training *t)
{
    float scratch[GYRE_GRAIN];

    for (size_t v = 0; v < t->var_count; v++) {
        for (size_t at = 0, n; at < t->n; at += n) {
            const float *x;

            n = t->n - at;
            x = gyre_state_view(&t->vars[v], t->isa, t->data, at, &n, scratch);
            job_answer(x, n * sizeof(float));
        }
        job_answer(t->data + t->vars[v].at, t->grains * t->vars[v].stride);
    }
}

static void take_codecs(training *t, char *names)
{
    size_t at = 0;

    for (char *word = strtok(names, " \n"); word != NULL;
         word = strtok(NULL, " \n")) {
        gyre_var *var = &t->vars[t->var_count++];

        if (t->var_count > 1 + GYRE_OPT_MAX_SLOTS)
            job_die("too many codecs");
        var->codec = codec_of(word);
        var->stride = gyre_state_stride(var->codec);
        var->at = at;
        at += t->grains * var->stride;
    }
    t->data = job_array(at, 1);
}

static void train(gyre_context *context, char *line)
{
    training t = {.isa = gyre_context_isa(context)};
    double values[GYRE_OPT_MAX_PARAMETERS];
    float scalars[GYRE_OPT_MAX_SCALARS], *x;
    unsigned long long index;
    unsigned long steps;
    uint32_t key[2];
    char name[64];
    gyre_error error = {0};
    int used;
    job j;

    if (sscanf(line, "train %63s %zu %lu %u %u %llu %n", name, &t.n, &steps,
               &key[0], &key[1], &index, &used) != 6)
        job_die(line);
    t.grains = (t.n + GYRE_GRAIN - 1) / GYRE_GRAIN;
    job_read(&j);
    check(gyre_opt_create(context, name, j.settings, j.count, &t.opt, &error),
          &error);
    check(gyre_opt_values(t.opt, NULL, 0, values, &error), &error);
    take_codecs(&t, line + used);
    if (t.var_count != 1 + gyre_opt_slot_count(t.opt))
        job_die("a codec for each variable");
    x = job_array(t.n, sizeof(float));
    job_bytes(x, t.n * sizeof(float));
    for (size_t v = 0; v < t.var_count; v++)
        fill(&t, v, x);
    for (unsigned long step = 1; step <= steps; step++) {
        gyre_segment s = {
            0, t.n, index, x, NULL, scalars, {key[0] + (uint32_t)step, key[1]}};
        gyre_update_job update = {.opt = t.opt,
                                  .data = t.data,
                                  .vars = t.vars,
                                  .var_count = t.var_count,
                                  .elements = t.grains * GYRE_GRAIN,
                                  .segments = &s,
                                  .segment_count = 1,
                                  .q = 1,
                                  .isa = t.isa};

        check(gyre_opt_scalars(t.opt, values, step, scalars, &error), &error);
        job_bytes(x, t.n * sizeof(float));
        gyre_device_update(&update);
        answer(&t);
    }
    free(x);
    free(t.data);
    gyre_opt_destroy(t.opt);
}

int main(void)
{
    gyre_context *context = NULL;
    gyre_error error = {0};
    char line[1024];

    check(gyre_context_create(NULL, &context, &error), &error);
    if (fgets(line, sizeof(line), stdin) == NULL)
        job_die("no job");
    if (strncmp(line, "code ", 5) == 0)
        code(gyre_context_isa(context), line);
    else if (strncmp(line, "train ", 6) == 0)
        train(context, line);
    else
        job_die(line);
    gyre_context_destroy(context);
    return 0;
}
