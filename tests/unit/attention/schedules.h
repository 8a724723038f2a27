/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for schedules, written as "2d heads=8 keep=split".  A request points
 * into its own struct: set it where it stays. */
#ifndef GYRE_TESTS_UNIT_ATTENTION_SCHEDULES_H
#define GYRE_TESTS_UNIT_ATTENTION_SCHEDULES_H

#include <gyre/plan.h>

enum { SCHEDULE_SETTINGS = 8 };

typedef struct schedule_request {
    gyre_plan_request request;
    gyre_setting settings[SCHEDULE_SETTINGS];
    char text[160];
} schedule_request;

/* Fill name and settings of out->request from words; the problem stays as it
 * is, and a first call finds it zero.  Fails the test on a wrong word. */
void schedule_set(gyre_context *context, schedule_request *out,
                  const char *words);

/* The plan of a request that can be done. */
gyre_plan *schedule_plan(gyre_context *context, const schedule_request *q);

/* Batch 1, S = 131072, P = 32, D = 128, bf16 with sums of bf16 on the wire,
 * 32 heads: one head of one rank is 1 MiB. */
void schedule_table(schedule_request *out, uint32_t kv_heads);

/* Sum over all ranks of what is sent in one phase, NULL for all phases; -1 when
 * sent and received differ in sum.  Counted op by op. */
int64_t schedule_sent(const gyre_plan *plan, const char *phase);

#endif
