/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of interpret.c: values in bufs (machine.c), ops (machine_ops.c), and
 * what they should be (reference.c). */
#ifndef GYRE_TESTS_UNIT_PLAN_MACHINE_H
#define GYRE_TESTS_UNIT_PLAN_MACHINE_H

#include "interpret.h"

enum { MOST_DIM = 16, MOST_ROWS = 512 };

/* ---- reference.c -------------------------------------------------------- */

/* In [-1, 1), by what it is. */
double reference_input(uint32_t kind, uint64_t position, uint32_t head,
                       uint32_t dim);
/* Query heads to a KV head. */
uint32_t reference_share(const gyre_problem *p);
double reference_score(const gyre_problem *p, uint64_t q, uint64_t k,
                       uint32_t head);

/* ---- machine.c ---------------------------------------------------------- */

typedef struct rank_state {
    gyre_plan_order order;
    double **buf;
    uint32_t *tenant;
    uint8_t *phase; /* by unit: 0 waits, 1 started, 2 ended */
    uint32_t *left; /* by unit: transfers not done */
    uint32_t ended;
} rank_state;

typedef struct message {
    uint32_t src, dst, channel;
    uint32_t put, get; /* ops, or GYRE_NO_VIEW */
    uint32_t put_unit, get_unit;
    bool done;
} message;

typedef struct machine {
    const gyre_plan *plan;
    const reference *want;
    rank_state *rank;
    message *messages;
    uint32_t message_count;
    uint32_t *seed;
    const char *failed;
} machine;

/* Numbers to a row and head of a kind. */
uint32_t machine_width(const machine *m, uint32_t kind);
/* Heads of a slot, of KV where it is. */
void machine_slot_heads(const machine *m, const gyre_plan_slot *slot,
                        uint32_t *a, uint32_t *b);
size_t machine_slot_size(const machine *m, const gyre_plan_slot *slot);
/* Of token `row` (over all chunks of the slot). */
double *machine_element(const machine *m, uint32_t rank, uint32_t s,
                        uint64_t row, uint32_t head);
uint64_t machine_position(const gyre_chunk *chunk, uint64_t i);
/* What the reference or the user has of a value. */
void machine_known(const machine *m, uint32_t kind, uint64_t t, uint32_t head,
                   double *out);
/* Does it come from outside? */
bool machine_given(const machine *m, const gyre_plan_slot *slot);
/* A new tenant: identities, what was given, or nothing that can be used. */
void machine_enter(machine *m, uint32_t rank, uint32_t s);

typedef struct token_row {
    uint64_t in_slot, position;
} token_row;

/* Tokens of a view; returns how many. */
uint64_t machine_view_rows(machine *m, uint32_t rank, uint32_t id,
                           token_row *out);
void machine_view_heads(const machine *m, uint32_t rank, uint32_t id,
                        uint32_t *a, uint32_t *b);
uint32_t machine_slot_of(const machine *m, uint32_t rank, uint32_t id);
uint32_t machine_kind_of(const machine *m, uint32_t rank, uint32_t id);

/* ---- machine_ops.c ------------------------------------------------------ */

void machine_copy(machine *m, uint32_t from_rank, uint32_t a_view,
                  uint32_t to_rank, uint32_t b_view);
void machine_compute(machine *m, uint32_t rank, uint32_t o);

#endif
