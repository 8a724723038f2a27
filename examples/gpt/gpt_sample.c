/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_sample.c - text from the model, one byte at a time.
 *
 * The activations of the workspace are the cache: position t is computed as
 * row t of a batch of one, and attention reads the keys and values that the
 * earlier rows left in qkv.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_STREAM = 0x5a };

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

static size_t most_likely(const float *logits)
{
    size_t best = 0;

    for (size_t i = 1; i < GPT_VOCABULARY; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Bytes as likely as the k-th all stay, so ties do not depend on order. */
static uint8_t choose(const float *logits, double temperature, size_t top_k,
                      double uniform)
{
    double weight[GPT_VOCABULARY], sum = 0.0;
    size_t best = most_likely(logits), last = best;
    float floor = -INFINITY;

    if (temperature <= 0.0)
        return (uint8_t)best;
    if (top_k > 0 && top_k < GPT_VOCABULARY) {
        float sorted[GPT_VOCABULARY];

        memcpy(sorted, logits, sizeof sorted);
        qsort(sorted, GPT_VOCABULARY, sizeof *sorted, descending);
        floor = sorted[top_k - 1];
    }
    for (size_t i = 0; i < GPT_VOCABULARY; i++) {
        double gap = (double)logits[i] - (double)logits[best];

        weight[i] = logits[i] >= floor ? exp(gap / temperature) : 0.0;
        sum += weight[i];
    }
    uniform *= sum;
    for (size_t i = 0; i < GPT_VOCABULARY; i++) {
        if (weight[i] <= 0.0)
            continue;
        last = i;
        uniform -= weight[i];
        if (uniform < 0.0)
            break;
    }
    return (uint8_t)last;
}

/* The last `keep` tokens of the window move to its front. */
static size_t slide(int32_t *window, size_t used, size_t keep)
{
    memmove(window, window + used - keep, keep * sizeof *window);
    return keep;
}

static void continue_text(gpt *g, int32_t *window, size_t used, size_t n,
                          double temperature, size_t top_k, uint64_t seed,
                          uint8_t *out)
{
    const size_t context = g->config.context;
    gpt_pass pass = {.g = g, .tokens = window, .batch = 1, .length = context};

    for (size_t i = 0; i < n; i++) {
        double uniform = gpt_random_uniform(seed, SAMPLE_STREAM, i);

        if (used == context + 1) {
            used = slide(window, used, (context + 1) / 2);
            pass.row0 = 0;
        }
        pass.row1 = used;
        gpt_forward(&pass);
        pass.row0 = used;
        out[i] = choose(g->ws.logits + (used - 1) * GPT_VOCABULARY, temperature,
                        top_k, uniform);
        window[used++] = out[i];
    }
}

int gpt_generate(gpt *g, const uint8_t *prompt, size_t prompt_length, size_t n,
                 double temperature, size_t top_k, uint64_t seed, uint8_t *out)
{
    static const uint8_t newline = '\n';
    const size_t context = g->config.context;
    int32_t *window;

    if (g->busy) {
        gpt_fail(g, "gpt: called from its own callback");
        return -1;
    }
    if ((prompt_length && !prompt) || (n && !out) || isnan(temperature)) {
        gpt_fail(g, "gpt: generate needs a prompt, room for the result and "
                    "a temperature that is a number");
        return -1;
    }
    if (prompt_length == 0) {
        prompt = &newline;
        prompt_length = 1;
    }
    if (prompt_length > context) {
        prompt += prompt_length - context;
        prompt_length = context;
    }
    if (gpt_reserve(g, 1) != 0)
        return -1;
    window = calloc(context + 1, sizeof *window);
    if (!window) {
        gpt_fail(g, "gpt: no memory for a window of %zu tokens", context);
        return -1;
    }
    for (size_t i = 0; i < prompt_length; i++)
        window[i] = prompt[i];
    g->busy = true;
    continue_text(g, window, prompt_length, n, temperature, top_k, seed, out);
    g->busy = false;
    free(window);
    return 0;
}
