/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the io room share: a context that can run out of memory,
 * a folder, files and engines. */
#ifndef GYRE_TESTS_UNIT_IO_COMMON_H
#define GYRE_TESTS_UNIT_IO_COMMON_H

#include "../unit.h"

#include "io/engine.h"

typedef struct io_fixture {
    gyre_context *context;
    gyre_error error;
    char folder[256];
    char log[4096]; /* all that was logged */
    unit_memory memory;
    uint64_t idle; /* bytes of the context without objects */
} io_fixture;

/* Group setup and teardown; *state becomes an io_fixture *.  Destroying asserts
 * that all memory was given back, by its right size. */
int io_setup(void **state);
int io_teardown(void **state);
io_fixture *io_fixture_create(void);
void io_fixture_destroy(io_fixture *f);

/* Path of a file in the folder; the last 4 results stay valid. */
const char *io_path(io_fixture *f, const char *name);
/* Create a file of `bytes` zeros; `direct` asks for O_DIRECT.  Returns the
 * descriptor; *align is what transfers on it need. */
int io_file_of(io_fixture *f, const char *name, size_t bytes, int direct,
               uint32_t *align);

/* Zeroed memory, aligned for any direct I/O; freed with free. */
void *io_block(size_t bytes);

/* A queue, or NULL after skip-worthy refusal of io_uring; asserts else. */
gyre_io *io_queue(io_fixture *f, const char *engine, uint32_t depth,
                  gyre_io_recorder *recorder);
/* NULL when the machine refuses io_uring and the engine needs it. */
#define IO_QUEUE_OR_SKIP(io, f, engine, depth, recorder) \
    do {                                                 \
        (io) = io_queue(f, engine, depth, recorder);     \
        if (!(io))                                       \
            skip();                                      \
    } while (0)

uint32_t io_add(io_fixture *f, gyre_io *io, int fd, const char *name);
void io_submit(io_fixture *f, gyre_io *io, const gyre_io_op *op);
/* Wait for exactly one completion. */
gyre_io_done io_wait_one(io_fixture *f, gyre_io *io);

/* Numbers that are the same in each run. */
uint64_t io_random(uint64_t *state);
void io_fill(void *data, size_t bytes, uint64_t seed);

#define assert_ok(f, call)                              \
    do {                                                \
        if ((call) != GYRE_OK)                          \
            fail_msg("%s: %s", #call, (f)->error.text); \
    } while (0)
#define assert_says(f, part) unit_assert_text(&(f)->error, part)

#endif
