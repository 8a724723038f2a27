/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_ranks.c - one attention object a layer, for the backward pass needs what
 * its own forward pass kept; all over one world.  They are made for one shape
 * of batches and made again when another shape comes.
 *
 * Where ranks are processes each result travels twice: as the schedule has it,
 * to its rank, and from there to all, since every process goes on with all
 * rows.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpt_ranks {
    gpt_config model;
    gpt_ranks_config config;
    char *schedule;
    gyre_context *context;
    gyre_world *world;
    gyre_attention **layer;          /* [layers], NULL: not made yet */
    uint32_t first, count;           /* ranks in this process */
    gyre_attention_tensors *tensors; /* [count] */
    size_t *bytes;                   /* [ranks], of one exchange */
    float *rows;                     /* what all ranks exchange, or NULL */
    size_t batch, length;            /* of the objects and the rows */
};

static int fail(char *errbuf, size_t errsize, const gyre_error *error)
{
    if (errbuf)
        snprintf(errbuf, errsize, "gpt: %s", error->text);
    return -1;
}

/* Over several processes. */
static int spread_out(const gpt_ranks *r)
{
    return r->count < r->config.ranks;
}

static void forget(gpt_ranks *r)
{
    for (size_t l = 0; r->layer && l < r->model.layers; l++) {
        gyre_attention_close(r->layer[l]);
        r->layer[l] = NULL;
    }
    free(r->rows);
    r->rows = NULL;
    r->batch = r->length = 0;
}

static const gyre_mask causal = {.size = sizeof(gyre_mask), .causal = 1};

static gyre_plan_request request_of(const gpt_ranks *r, size_t batch,
                                    size_t length)
{
    return (gyre_plan_request){
        .size = sizeof(gyre_plan_request),
        .schedule = r->schedule,
        .ranks = (uint32_t)r->config.ranks,
        .batch = (uint32_t)batch,
        .heads = (uint32_t)r->model.heads,
        .head_dim = (uint32_t)(r->model.width / r->model.heads),
        .dtype = GYRE_F32,
        .tokens = length,
        .layout = GYRE_LAYOUT_CONTIGUOUS, /* rows of a rank side by side */
        .mask = &causal};
}

static gyre_status make(gpt_ranks *r, const gpt_attention_job *job,
                        gyre_error *error)
{
    const gyre_plan_request request = request_of(r, job->batch, job->length);
    const gyre_attention_options options = {
        .size = sizeof(options),
        .request = &request,
        .kernel = "f32",
        /* One tile a token is right for any number of ranks. */
        .tiles = r->config.exact ? (uint32_t)job->length : 0};

    if (r->batch != job->batch || r->length != job->length)
        forget(r);
    r->batch = job->batch;
    r->length = job->length;
    if (spread_out(r) && !r->rows)
        r->rows = calloc(job->batch * job->length,
                         3 * r->model.width * sizeof(float));
    if (spread_out(r) && !r->rows) {
        snprintf(error->text, sizeof error->text, "no memory for rows");
        return GYRE_NO_MEMORY;
    }
    if (r->layer[job->layer])
        return GYRE_OK;
    return gyre_attention_open(r->context, r->world, &options,
                               &r->layer[job->layer], error);
}

/* Schedule and ranks are refused here, not in the first step. */
static gyre_status probe(gpt_ranks *r, gyre_error *error)
{
    const gyre_plan_request request = request_of(r, 1, r->model.context);
    gyre_plan *plan = NULL;
    gyre_status status = gyre_plan_make(r->context, &request, &plan, error);

    gyre_plan_free(plan);
    return status;
}

/* Rows from `first` on of a tensor of the gpt; rows are `stride` apart. */
static gyre_attention_tensor rows(const gpt_attention_job *job, const float *at,
                                  size_t stride, size_t first)
{
    return (gyre_attention_tensor){.at = (void *)(at + first * stride),
                                   .batch = job->length * stride,
                                   .token = stride,
                                   .head = job->dim};
}

/* The first token of a rank. */
static size_t first_of(const gpt_ranks *r, const gpt_attention_job *job,
                       size_t rank)
{
    const gyre_chunk *chunks;
    uint32_t n = gyre_attention_chunks(r->layer[job->layer], (uint32_t)rank,
                                       GYRE_SIDE_Q, &chunks);
    size_t first = 0;

    /* A schedule may cut a rank's run in neighbouring chunks. */
    for (uint32_t i = n; i-- > 0;)
        if (chunks[i].length > 0)
            first = (size_t)chunks[i].start;
    return first;
}

static void lay(gpt_ranks *r, const gpt_attention_job *job)
{
    const size_t c = job->heads * job->dim;

    for (size_t i = 0; i < r->count; i++) {
        gyre_attention_tensors *t = &r->tensors[i];
        const size_t first = first_of(r, job, r->first + i);

        *t = (gyre_attention_tensors){.q = rows(job, job->q, 3 * c, first),
                                      .k = rows(job, job->k, 3 * c, first),
                                      .v = rows(job, job->v, 3 * c, first),
                                      .o = rows(job, job->out, c, first)};
        if (!job->dout)
            continue;
        t->d_o = rows(job, job->dout, c, first);
        t->d_q = rows(job, job->dq, 3 * c, first);
        t->d_k = rows(job, job->dk, 3 * c, first);
        t->d_v = rows(job, job->dv, 3 * c, first);
    }
}

/* ---- rows of other processes ---- */

/* Results of a job: rows of c elements. */
typedef struct results {
    float *at[3];
    size_t count, stride;
} results;

static results results_of(const gpt_attention_job *job)
{
    const size_t c = job->heads * job->dim;

    if (!job->dout)
        return (results){.at = {job->out}, .count = 1, .stride = c};
    return (results){
        .at = {job->dq, job->dk, job->dv}, .count = 3, .stride = 3 * c};
}

/* The results of a rank to r->rows, or from there; `at` is their place. Returns
 * the place behind them. */
static float *copy_rows(gpt_ranks *r, const gpt_attention_job *job, size_t rank,
                        int pack, float *at)
{
    const results to = results_of(job);
    const size_t c = job->heads * job->dim, first = first_of(r, job, rank);
    const size_t count = (size_t)gyre_attention_tokens(
        r->layer[job->layer], (uint32_t)rank, GYRE_SIDE_Q);

    for (size_t b = 0; b < job->batch; b++)
        for (size_t t = first; t < first + count; t++)
            for (size_t i = 0; i < to.count; i++, at += c) {
                float *row = to.at[i] + (b * job->length + t) * to.stride;

                memcpy(pack ? at : row, pack ? row : at, c * sizeof(float));
            }
    return at;
}

/* After a pass each process has the results of its own rank: now of all. */
static gyre_status exchange(gpt_ranks *r, const gpt_attention_job *job,
                            gyre_error *error)
{
    const size_t c = job->heads * job->dim;
    const size_t row = results_of(job).count * c * sizeof(float);
    float *at = r->rows;
    size_t before = 0;
    gyre_status status;

    if (!spread_out(r))
        return GYRE_OK;
    for (size_t rank = 0; rank < r->config.ranks; rank++) {
        r->bytes[rank] = job->batch * row *
                         (size_t)gyre_attention_tokens(
                             r->layer[job->layer], (uint32_t)rank, GYRE_SIDE_Q);
        before += rank < r->first ? r->bytes[rank] : 0;
    }
    copy_rows(r, job, r->first, 1, r->rows + before / sizeof(float));
    status = gyre_world_gather(r->world, r->bytes, r->rows, error);
    for (size_t rank = 0; status == GYRE_OK && rank < r->config.ranks; rank++)
        at = copy_rows(r, job, rank, 0, at);
    return status;
}

/* ---- passes ---- */

static int forward(void *user, const gpt_attention_job *job, char *errbuf,
                   size_t errsize)
{
    gpt_ranks *r = user;
    gyre_error error = {0};
    gyre_status status = make(r, job, &error);

    if (status == GYRE_OK) {
        lay(r, job);
        status =
            gyre_attention_forward(r->layer[job->layer], r->tensors, &error);
    }
    if (status == GYRE_OK)
        status = exchange(r, job, &error);
    if (status == GYRE_OK)
        return 0;
    gyre_world_give_up(r->world, status, error.text);
    return fail(errbuf, errsize, &error);
}

static int backward(void *user, const gpt_attention_job *job, char *errbuf,
                    size_t errsize)
{
    gpt_ranks *r = user;
    gyre_error error = {0};
    gyre_status status;

    lay(r, job);
    status = gyre_attention_backward(r->layer[job->layer], r->tensors, &error);
    if (status == GYRE_OK)
        status = exchange(r, job, &error);
    return status == GYRE_OK ? 0 : fail(errbuf, errsize, &error);
}

static gyre_status open_world(gpt_ranks *r, gyre_error *error)
{
    const int mpi = r->config.backend && strcmp(r->config.backend, "mpi") == 0;
    gyre_world_request request = {.size = sizeof(request),
                                  .backend = r->config.backend,
                                  .ranks = (uint32_t)r->config.ranks,
                                  .timeout = mpi ? r->config.timeout : 0};
    gyre_status status = gyre_context_create(NULL, &r->context, error);

    if (status == GYRE_OK)
        status = gyre_world_open(r->context, &request, &r->world, error);
    if (status == GYRE_OK)
        r->config.ranks = gyre_world_size(r->world, &r->first, &r->count);
    r->config.backend = NULL; /* the caller's text */
    return status;
}

static gyre_status take_memory(gpt_ranks *r, gyre_error *error)
{
    r->layer = calloc(r->model.layers, sizeof(gyre_attention *));
    r->tensors = calloc(r->count, sizeof(gyre_attention_tensors));
    r->bytes = calloc(r->config.ranks, sizeof(size_t));
    if (r->layer && r->tensors && r->bytes)
        return GYRE_OK;
    snprintf(error->text, sizeof error->text, "no memory for ranks");
    return GYRE_NO_MEMORY;
}

gpt_ranks *gpt_ranks_create(const gpt_config *model,
                            const gpt_ranks_config *config, char *errbuf,
                            size_t errsize)
{
    gyre_error error = {.text = "no memory for ranks"};
    const size_t bytes = strlen(config->schedule) + 1;
    gpt_ranks *r = calloc(1, sizeof *r);
    gyre_status status = GYRE_NO_MEMORY;

    if (r) {
        r->model = *model;
        r->config = *config;
        r->schedule = malloc(bytes);
    }
    if (r && r->schedule) {
        r->config.schedule = memcpy(r->schedule, config->schedule, bytes);
        status = open_world(r, &error);
    }
    if (status == GYRE_OK)
        status = take_memory(r, &error);
    if (status == GYRE_OK)
        status = probe(r, &error);
    if (status == GYRE_OK)
        return r;
    fail(errbuf, errsize, &error);
    if (r && r->world)
        gyre_world_give_up(r->world, status, error.text);
    gpt_ranks_destroy(r);
    return NULL;
}

void gpt_ranks_destroy(gpt_ranks *r)
{
    if (!r)
        return;
    forget(r);
    gyre_world_close(r->world);
    gyre_context_destroy(r->context);
    free(r->schedule);
    free(r->layer);
    free(r->tensors);
    free(r->bytes);
    free(r);
}

gpt_attention_by gpt_ranks_attention(gpt_ranks *r)
{
    return (gpt_attention_by){
        .forward = forward, .backward = backward, .user = r};
}

/* ---- processes ---- */

size_t gpt_ranks_count(const gpt_ranks *r)
{
    return r->config.ranks;
}

size_t gpt_ranks_process(const gpt_ranks *r, size_t *processes)
{
    *processes = spread_out(r) ? r->config.ranks : 1;
    return r->first;
}

int gpt_ranks_gather(gpt_ranks *r, const size_t *bytes, void *all, char *errbuf,
                     size_t errsize)
{
    gyre_error error = {0};

    if (!spread_out(r) ||
        gyre_world_gather(r->world, bytes, all, &error) == GYRE_OK)
        return 0;
    return fail(errbuf, errsize, &error);
}

void gpt_ranks_give_up(gpt_ranks *r, const char *why)
{
    gyre_world_give_up(r->world, GYRE_STOPPED, why);
}
