/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of schedules in unit tests. */
#ifndef GYRE_TESTS_UNIT_ATTENTION_TRIAL_H
#define GYRE_TESTS_UNIT_ATTENTION_TRIAL_H

#include "schedules.h"

#include <gyre/attention.h>
#include <stdbool.h>

/* A small problem that schedules of up to 8 ranks can do: zero, then what
 * differs. */
typedef struct trial_case {
    const char *words; /* of the schedule */
    uint32_t ranks;
    const char *kernel;  /* NULL: f64 */
    uint32_t dtype;      /* when kernel is given */
    uint32_t wire_dtype; /* 0: f32 */
    uint64_t tokens, kv_tokens;
    uint32_t batch;
    uint32_t heads, kv_heads;      /* 0: 8 and 4 */
    uint32_t head_dim, v_head_dim; /* 0: 8 and 4 */
    uint32_t layout;
    const gyre_mask *mask; /* NULL: causal */
    uint32_t drop;
    uint32_t tiles;
    double dropout;
    const float *slopes;
    uint64_t delay; /* ns, of messages and ops */
    const gyre_chunk *chunks;
    uint32_t chunk_count;
} trial_case;

extern const gyre_mask trial_causal, trial_full;
/* Windows of five keys: those before the query, and those on both sides. */
extern const gyre_mask trial_window, trial_band;
/* Causal, for two sequences of 33 tokens: documents of lengths that no number
 * of ranks divides, another table for each sequence, and tokens in no document:
 * rows without keys, and keys without rows. */
extern const gyre_mask trial_documents;
/* Blocks of 9 x 8, for 30 tokens: the third row of blocks has none, so its rows
 * have no key, and nothing reads the second column; and one row of blocks
 * short, the second without any, so that the last rows have none either. */
extern const gyre_mask trial_blocks, trial_blocks_short;
/* Of eight heads. */
extern const float trial_slopes[8];

/* False when the schedule's own check refuses the problem; fails the test when
 * anything else does not fit. */
bool trial_run(gyre_context *context, const trial_case *given, gyre_trial *out);
/* Also when the trial is not right. */
bool trial_good(gyre_context *context, const trial_case *given);
/* Also when fewer than at_least of one schedule of every kind, on each number
 * of ranks (0 ends the list), could do it.  Sanitizer builds take a sample. */
void trial_sweep(trial_case given, const uint32_t *ranks, uint32_t at_least);
/* The options that trial_run uses. */
typedef struct trial_options {
    schedule_request request;
    gyre_attention_options options;
    gyre_world_request world;
} trial_options;
void trial_prepare(gyre_context *context, const trial_case *given,
                   trial_options *out);

#endif
