/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_ranks.h - attention of a gpt by many ranks: each sequence is cut in
 * neighbouring parts, one a rank, and a schedule of libgyre says who sends what
 * to whom.  The ranks are threads of this process and their tensors are rows of
 * the gpt's own, so that nothing is copied but what the schedule sends.
 */
#ifndef GYRE_EXAMPLE_GPT_RANKS_H
#define GYRE_EXAMPLE_GPT_RANKS_H

#include "gpt.h"

#include <gyre/attention.h>

typedef struct gpt_ranks gpt_ranks;

typedef struct gpt_ranks_config {
    const char *schedule; /* plugin; see gyre plugins */
    size_t ranks;
    int exact; /* the same bits for every schedule and number of ranks */
} gpt_ranks_config;

/* For models of this configuration; until destroyed a gpt may use `by` of it.
 * NULL on failure, with the reason in errbuf. */
gpt_ranks *gpt_ranks_create(const gpt_config *model,
                            const gpt_ranks_config *config, char *errbuf,
                            size_t errsize);
void gpt_ranks_destroy(gpt_ranks *r);
gpt_attention_by gpt_ranks_attention(gpt_ranks *r);

#endif
