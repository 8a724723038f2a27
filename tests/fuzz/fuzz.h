/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share.  Each is a file with LLVMFuzzerTestOneInput
 * and, unless GYRE_LIBFUZZER is defined, a main that calls
 *
 *     fuzz_main(&target, argc, argv)
 *
 * which replays files, else the saved corpus, with seeded mutations of each
 * and prints TAP (replay.c).  GYRE_FUZZ_ROUNDS says how many of a file.
 */
#ifndef GYRE_TESTS_FUZZ_FUZZ_H
#define GYRE_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { FUZZ_MOST = 1 << 16 }; /* bytes of an input */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_insist(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "# taken, but %s\n", what);
    abort();
}

/* ---- replay.c ------------------------------------------------------------ */

typedef struct fuzz_target {
    const char *folder; /* of the corpus, below tests/fuzz */
    const char *what;   /* the name of the test */
    int rounds;         /* mutations of a file */
    /* Change an input of `size` bytes, maybe none, where it lies, in FUZZ_MOST
     * of room; returns its new size. */
    size_t (*change)(uint8_t *data, size_t size);
    /* --corpus FOLDER: write it; 0: done.  NULL: the corpus is made by hand. */
    int (*write)(const char *folder);
    /* After the saved corpus: was anything tested?  NULL: nobody asks. */
    int (*judge)(void);
} fuzz_target;

/* 0: good. */
int fuzz_main(const fuzz_target *target, int argc, char **argv);

/* The same numbers in every run. */
uint64_t fuzz_draw(void);
/* Put n bytes in at `at`; returns the new size, the old without room. */
size_t fuzz_insert(uint8_t *data, size_t size, size_t at, const void *what,
                   size_t n);
/* Take at most n bytes out at `at`; returns the new size. */
size_t fuzz_cut(uint8_t *data, size_t size, size_t at, size_t n);

#endif
