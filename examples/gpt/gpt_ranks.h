/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_ranks.h - attention of a gpt by many ranks: each sequence is cut in
 * neighbouring parts, one a rank, and a schedule of libgyre says who sends what
 * to whom.
 *
 * Backend "threads": the ranks are threads of this process and their tensors
 * are rows of the gpt's own, so that nothing is copied but what the schedule
 * sends.
 *
 * Backend "mpi": each rank is a process with a whole gpt.  All of it but
 * attention is computed by every process, on all rows; attention by the ranks,
 * each on its own rows, whose results then go to all.  The gpts stay the same
 * as long as their parameters do.
 */
#ifndef GYRE_EXAMPLE_GPT_RANKS_H
#define GYRE_EXAMPLE_GPT_RANKS_H

#include "gpt.h"

#include <gyre/attention.h>

typedef struct gpt_ranks gpt_ranks;

typedef struct gpt_ranks_config {
    const char *schedule; /* plugin; see gyre plugins */
    const char *backend;  /* NULL: "threads"; "mpi" */
    size_t ranks;         /* mpi: 0, or what mpirun must have started */
    uint64_t timeout;     /* mpi: ns to wait for a message; 0: for ever */
    int exact; /* the same bits for every schedule and number of ranks */
} gpt_ranks_config;

/* For models of this configuration; until destroyed a gpt may use `by` of it.
 * NULL on failure, with the reason in errbuf. */
gpt_ranks *gpt_ranks_create(const gpt_config *model,
                            const gpt_ranks_config *config, char *errbuf,
                            size_t errsize);
void gpt_ranks_destroy(gpt_ranks *r);
gpt_attention_by gpt_ranks_attention(gpt_ranks *r);

/* How many ranks, and how many processes they are in; which is this one. */
size_t gpt_ranks_count(const gpt_ranks *r);
size_t gpt_ranks_process(const gpt_ranks *r, size_t *processes);
/* What each process holds, to all: bytes[p] of process p, one after another in
 * `all`, where one's own lie already.  All call it, with the same bytes.  0, or
 * -1 with the reason in errbuf; then the others fail as well. */
int gpt_ranks_gather(gpt_ranks *r, const size_t *bytes, void *all, char *errbuf,
                     size_t errsize);
/* This process cannot go on: the others fail, with `why`, and do not wait. */
void gpt_ranks_give_up(gpt_ranks *r, const char *why);

#endif
