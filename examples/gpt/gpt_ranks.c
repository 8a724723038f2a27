/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_ranks.c - one attention object a layer, for the backward pass needs what
 * its own forward pass kept; all over one world.  They are made for one shape
 * of batches and made again when another shape comes.
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
    gyre_attention_tensors *tensors; /* [ranks] */
    size_t batch, length;            /* of the objects */
};

static int fail(char *errbuf, size_t errsize, const gyre_error *error)
{
    if (errbuf)
        snprintf(errbuf, errsize, "gpt: %s", error->text);
    return -1;
}

static void forget(gpt_ranks *r)
{
    for (size_t l = 0; r->layer && l < r->model.layers; l++) {
        gyre_attention_close(r->layer[l]);
        r->layer[l] = NULL;
    }
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

static void lay(gpt_ranks *r, const gpt_attention_job *job)
{
    const size_t c = job->heads * job->dim;

    for (size_t rank = 0; rank < r->config.ranks; rank++) {
        const gyre_chunk *chunks;
        uint32_t n = gyre_attention_chunks(r->layer[job->layer], (uint32_t)rank,
                                           GYRE_SIDE_Q, &chunks);
        size_t first = 0;

        /* A schedule may cut a rank's run in neighbouring chunks. */
        for (uint32_t i = n; i-- > 0;)
            if (chunks[i].length > 0)
                first = (size_t)chunks[i].start;
        r->tensors[rank] =
            (gyre_attention_tensors){.q = rows(job, job->q, 3 * c, first),
                                     .k = rows(job, job->k, 3 * c, first),
                                     .v = rows(job, job->v, 3 * c, first),
                                     .o = rows(job, job->out, c, first)};
        if (!job->dout)
            continue;
        r->tensors[rank].d_o = rows(job, job->dout, c, first);
        r->tensors[rank].d_q = rows(job, job->dq, 3 * c, first);
        r->tensors[rank].d_k = rows(job, job->dk, 3 * c, first);
        r->tensors[rank].d_v = rows(job, job->dv, 3 * c, first);
    }
}

static int forward(void *user, const gpt_attention_job *job, char *errbuf,
                   size_t errsize)
{
    gpt_ranks *r = user;
    gyre_error error = {0};

    if (make(r, job, &error) != GYRE_OK)
        return fail(errbuf, errsize, &error);
    lay(r, job);
    if (gyre_attention_forward(r->layer[job->layer], r->tensors, &error) !=
        GYRE_OK)
        return fail(errbuf, errsize, &error);
    return 0;
}

static int backward(void *user, const gpt_attention_job *job, char *errbuf,
                    size_t errsize)
{
    gpt_ranks *r = user;
    gyre_error error = {0};

    lay(r, job);
    if (gyre_attention_backward(r->layer[job->layer], r->tensors, &error) !=
        GYRE_OK)
        return fail(errbuf, errsize, &error);
    return 0;
}

gpt_ranks *gpt_ranks_create(const gpt_config *model,
                            const gpt_ranks_config *config, char *errbuf,
                            size_t errsize)
{
    gyre_error error = {.text = "no memory for ranks"};
    gyre_world_request request = {.size = sizeof(request),
                                  .ranks = (uint32_t)config->ranks};
    gpt_ranks *r = calloc(1, sizeof *r);
    const size_t bytes = strlen(config->schedule) + 1;

    if (r) {
        r->model = *model;
        r->config = *config;
        r->schedule = malloc(bytes);
        r->layer = calloc(model->layers, sizeof *r->layer);
        r->tensors = calloc(config->ranks, sizeof *r->tensors);
    }
    if (r && r->schedule)
        r->config.schedule = memcpy(r->schedule, config->schedule, bytes);
    if (!r || !r->schedule || !r->layer || !r->tensors ||
        gyre_context_create(NULL, &r->context, &error) != GYRE_OK ||
        gyre_world_open(r->context, &request, &r->world, &error) != GYRE_OK ||
        probe(r, &error) != GYRE_OK) {
        fail(errbuf, errsize, &error);
        gpt_ranks_destroy(r);
        return NULL;
    }
    return r;
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
    free(r);
}

gpt_attention_by gpt_ranks_attention(gpt_ranks *r)
{
    return (gpt_attention_by){
        .forward = forward, .backward = backward, .user = r};
}
