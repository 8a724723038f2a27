/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_dump.c - writes one training step of the example gpt to a file, for a
 * second implementation to repeat (gpt_torch.py).
 *
 *   gpt_dump FILE LAYERS HEADS WIDTH CONTEXT BATCH LENGTH SEED
 *
 * Little-endian, no padding:
 *   i64 layers heads width context batch length parameters; f64 loss;
 *   i32 tokens[batch][length]; i32 targets[batch][length];
 *   each parameter: i64 name length, name, i64 rank shape0 shape1,
 *   f32 data[n], f32 grad[n]
 */
#include "gpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state = 12345;

static uint32_t next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* Fresh weights would hide a wrong bias or LayerNorm, and logits near 0 a
 * wrong softmax: add noise of up to 0.1 everywhere. */
static void disturb(gpt *g)
{
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *p = gpt_parameter_at(g, i);

        for (size_t k = 0; k < p->n; k++)
            p->data[k] += ((float)next() / 16777216.0f - 0.5f) * 0.2f;
    }
}

static int put(const void *data, size_t size, size_t n, FILE *f)
{
    return fwrite(data, size, n, f) == n ? 0 : -1;
}

static int put_i64(FILE *f, size_t value)
{
    int64_t v = (int64_t)value;

    return put(&v, sizeof v, 1, f);
}

static int put_parameter(FILE *f, const gpt_parameter *p)
{
    size_t length = strlen(p->name);

    if (put_i64(f, length) || put(p->name, 1, length, f) ||
        put_i64(f, (size_t)p->rank) || put_i64(f, p->shape[0]) ||
        put_i64(f, p->shape[1]))
        return -1;
    return put(p->data, sizeof(float), p->n, f) ||
                   put(p->grad, sizeof(float), p->n, f)
               ? -1
               : 0;
}

static int write_step(FILE *f, gpt *g, size_t batch, size_t length)
{
    const gpt_config *c = gpt_configuration(g);
    const size_t n = batch * length;
    const size_t header[] = {c->layers,
                             c->heads,
                             c->width,
                             c->context,
                             batch,
                             length,
                             gpt_parameter_count(g)};
    int32_t *tokens = calloc(2 * n, sizeof *tokens);
    double loss;
    int bad = 0;

    if (!tokens)
        return -1;
    for (size_t i = 0; i < 2 * n; i++)
        tokens[i] = (int32_t)(next() % 256);
    loss = gpt_forward_backward(g, tokens, tokens + n, batch, length, 1.0f);
    for (size_t i = 0; i < sizeof header / sizeof *header; i++)
        bad |= put_i64(f, header[i]);
    bad |= put(&loss, sizeof loss, 1, f);
    bad |= put(tokens, sizeof *tokens, 2 * n, f);
    for (size_t i = 0; i < gpt_parameter_count(g); i++)
        bad |= put_parameter(f, gpt_parameter_at(g, i));
    free(tokens);
    return bad || loss < 0.0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    size_t v[7];
    char reason[200];
    gpt_config config;
    int status;
    FILE *f;
    gpt *g;

    if (argc != 9) {
        fprintf(stderr,
                "usage: %s FILE LAYERS HEADS WIDTH CONTEXT BATCH "
                "LENGTH SEED\n",
                argv[0]);
        return 2;
    }
    for (int i = 0; i < 7; i++)
        v[i] = (size_t)strtoull(argv[i + 2], NULL, 10);
    config = (gpt_config){.layers = v[0],
                          .heads = v[1],
                          .width = v[2],
                          .context = v[3],
                          .threads = 2,
                          .seed = v[6]};
    g = gpt_create(&config, reason, sizeof reason);
    if (!g) {
        fprintf(stderr, "%s\n", reason);
        return 99;
    }
    disturb(g);
    f = fopen(argv[1], "wb");
    status = f ? write_step(f, g, v[4], v[5]) : -1;
    if (f && fclose(f) != 0)
        status = -1;
    if (status != 0)
        fprintf(stderr, "%s: %s\n", argv[1],
                *gpt_error(g) ? gpt_error(g) : "cannot write");
    gpt_destroy(g);
    return status == 0 ? 0 : 99;
}
