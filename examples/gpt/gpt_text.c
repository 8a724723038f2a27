/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_text.c - maps a file of tokens and draws batches from it.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_text.h"
#include "gpt_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t token_size[] = {1, 2, 4};

static int map_file(gpt_text *text, const char *path, char *errbuf,
                    size_t errsize)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &info) != 0) {
        snprintf(errbuf, errsize, "%s: %s", path, strerror(errno));
        goto close_fd;
    }
    if (!S_ISREG(info.st_mode) || info.st_size <= 0 ||
        (uintmax_t)info.st_size > SIZE_MAX) {
        snprintf(errbuf, errsize, "%s: not a regular file with content", path);
        goto close_fd;
    }
    text->map_size = (size_t)info.st_size;
    text->map = mmap(NULL, text->map_size, PROT_READ, MAP_SHARED, fd, 0);
    if (text->map == MAP_FAILED) {
        snprintf(errbuf, errsize, "%s: cannot map %zu bytes: %s", path,
                 text->map_size, strerror(errno));
        text->map = NULL;
    }
close_fd:
    if (fd >= 0)
        close(fd);
    return text->map ? 0 : -1;
}

int gpt_text_open(gpt_text *text, const char *path, gpt_text_dtype dtype,
                  double fraction, char *errbuf, size_t errsize)
{
    gpt_text opened = {.dtype = dtype};
    const size_t size = token_size[dtype];

    if (!(fraction >= 0.0 && fraction <= 1.0)) {
        snprintf(errbuf, errsize, "split is %g, must be 0 to 1", fraction);
        return -1;
    }
    if (map_file(&opened, path, errbuf, errsize) != 0)
        return -1;
    if (opened.map_size % size != 0) {
        snprintf(errbuf, errsize,
                 "%s: %zu bytes is not a whole number of %zu-byte tokens", path,
                 opened.map_size, size);
        gpt_text_close(&opened);
        return -1;
    }
    opened.n = opened.map_size / size;
    opened.split = (size_t)((double)opened.n * fraction);
    if (opened.split > opened.n)
        opened.split = opened.n;
    *text = opened;
    return 0;
}

void gpt_text_close(gpt_text *text)
{
    if (text->map)
        munmap(text->map, text->map_size);
    *text = (gpt_text){0};
}

static void copy_tokens(const gpt_text *text, size_t from, size_t n,
                        int32_t *out)
{
    const uint8_t *bytes = text->map;
    const uint16_t *shorts = text->map;

    if (text->dtype == GPT_TEXT_I32)
        memcpy(out, (const int32_t *)text->map + from, n * sizeof *out);
    else if (text->dtype == GPT_TEXT_U16)
        for (size_t i = 0; i < n; i++)
            out[i] = shorts[from + i];
    else
        for (size_t i = 0; i < n; i++)
            out[i] = bytes[from + i];
}

/* Where a part lies; -1 when no window of it has `length` + 1 tokens. */
static int find_part(const gpt_text *text, gpt_text_part part, size_t length,
                     size_t *begin, size_t *end, char *errbuf, size_t errsize)
{
    *begin = part == GPT_TEXT_TRAIN ? 0 : text->split;
    *end = part == GPT_TEXT_TRAIN ? text->split : text->n;
    if (text->map && length > 0 && *end - *begin > length)
        return 0;
    snprintf(errbuf, errsize,
             "the %s part has %zu tokens, a window needs %zu + 1",
             part == GPT_TEXT_TRAIN ? "train" : "valid", *end - *begin, length);
    return -1;
}

int gpt_text_windows(const gpt_text *text, gpt_text_part part, size_t batch,
                     size_t length, uint64_t k, int32_t *out, char *errbuf,
                     size_t errsize)
{
    size_t begin, end, windows;
    int rows = 0;

    if (find_part(text, part, length, &begin, &end, errbuf, errsize) != 0)
        return -1;
    windows = (end - begin - 1) / length;
    if (k > windows / (batch > 0 ? batch : 1))
        return 0;
    for (size_t w = (size_t)k * batch; w < windows && (size_t)rows < batch;
         w++, rows++)
        copy_tokens(text, begin + w * length, length + 1,
                    out + (size_t)rows * (length + 1));
    return rows;
}

int gpt_text_batch(const gpt_text *text, gpt_text_part part, size_t batch,
                   size_t length, uint64_t seed, uint64_t k, int32_t *out,
                   char *errbuf, size_t errsize)
{
    /* Streams of the two parts never meet: k has its lowest bit shifted. */
    const uint64_t stream = 2 * k + (uint64_t)part;
    size_t begin, end, places;

    if (find_part(text, part, length, &begin, &end, errbuf, errsize) != 0)
        return -1;
    places = end - begin - length;
    for (size_t b = 0; b < batch; b++) {
        /* The bias of the remainder is below places / 2^64. */
        size_t at = (size_t)(gpt_random_bits(seed, stream, b) % places);

        copy_tokens(text, begin + at, length + 1, out + b * (length + 1));
    }
    return 0;
}

double gpt_text_ngram(const gpt_text *text, int order, char *errbuf,
                      size_t errsize)
{
    if (text->dtype != GPT_TEXT_U8 || !text->map) {
        snprintf(errbuf, errsize, "the n-gram model needs an open u8 file");
        return -1.0;
    }
    return gpt_ngram(text->map, text->n, text->split, order, errbuf, errsize);
}
