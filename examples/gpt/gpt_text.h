/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_text.h - a text or token file in memory-mapped form, random batches
 * from it, and the n-gram model that a trained gpt has to beat.
 *
 * The file is one run of tokens. The first part trains, the rest validates:
 *
 *   0 ................ split .......... n
 *   |      train         |    valid     |
 *
 * The file must not be truncated while it is open. All functions but open
 * and close only read and may run on several threads at once.
 */
#ifndef GYRE_EXAMPLE_GPT_TEXT_H
#define GYRE_EXAMPLE_GPT_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef enum gpt_text_dtype {
    GPT_TEXT_U8,  /* one byte is one token */
    GPT_TEXT_U16, /* in the byte order of the machine */
    GPT_TEXT_I32
} gpt_text_dtype;

typedef enum gpt_text_part { GPT_TEXT_TRAIN, GPT_TEXT_VALID } gpt_text_part;

typedef struct gpt_text {
    void *map;
    size_t map_size; /* bytes */
    size_t n;        /* tokens */
    size_t split;    /* tokens in the train part */
    gpt_text_dtype dtype;
} gpt_text;

/* fraction: share of the train part, 0 to 1. 0, or -1 with errbuf set. */
int gpt_text_open(gpt_text *text, const char *path, gpt_text_dtype dtype,
                  double fraction, char *errbuf, size_t errsize);
void gpt_text_close(gpt_text *text);

/*
 * Batch k of a part: out[batch][length + 1], each row a window at a random
 * place. Inputs are the first `length` of a row, targets the last. A pure
 * function of the file, part, shape, seed and k. 0, or -1 with errbuf set.
 */
int gpt_text_batch(const gpt_text *text, gpt_text_part part, size_t batch,
                   size_t length, uint64_t seed, uint64_t k, int32_t *out,
                   char *errbuf, size_t errsize);

/*
 * Batch k of the part cut into windows one behind the other: out[rows]
 * [length + 1], rows up to `batch`; the last token of one is the first of the
 * next, so that each token but the part's first is a target once (what does
 * not fill a window at the end is left out). Returns rows, 0 behind the end,
 * or -1 with errbuf set.
 */
int gpt_text_windows(const gpt_text *text, gpt_text_part part, size_t batch,
                     size_t length, uint64_t k, int32_t *out, char *errbuf,
                     size_t errsize);

/*
 * Cross-entropy, in nats per byte, of the valid part under a byte model with
 * up to `order` (0 to 3) bytes of context trained on the train part, see
 * gpt_ngram.c. U8 files only. -1 with errbuf set on failure.
 */
double gpt_text_ngram(const gpt_text *text, int order, char *errbuf,
                      size_t errsize);
/* The same for bytes in memory. */
double gpt_ngram(const uint8_t *bytes, size_t n, size_t split, int order,
                 char *errbuf, size_t errsize);

#endif
