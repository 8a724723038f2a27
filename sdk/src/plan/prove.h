/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a plan is proven.  A prover runs the plan once on sets instead of
 * numbers:
 *
 *     prove_type.c     each op on its own: kinds, rows, heads, dtypes, bufs
 *     prove_match.c    the k-th PUT and the k-th GET of (src, dst, channel)
 *     prove_pattern.c  the declared patterns of groups
 *     prove_run.c      events: which unit can start and end; stuck or not
 *     prove_state.c    what each row and head of a slot holds
 *     prove_op.c       what each op does to it
 *     prove_move.c     what a transfer does to it
 *     prove_set.c      sets of chunks, shared until written
 *     prove_quotient.c equal ranks: one program, peers by coordinates
 *     prove.c          all of it, outputs at home, sums over the plan
 *
 * One linear run says it for every order: ops in conflict are ordered by lanes
 * and waits, a transfer happens after both of its groups have started and
 * before either ends, and what is left free touches different values.
 *
 * What a cell of a slot (row, head atom, plane) holds:
 *     a sum     the set of chunks of the other side that were added, with a
 *               mark when nobody has read it since
 *     others    the piece that was written there: 0 none, 1 given from outside,
 *               else one row of one op.  Every piece of a kind, row and head
 *               has the same value; which it is decides whose bytes were needed
 * Head atoms are the query heads cut at every range of the plan: keyed by KV
 * heads, two parts of one KV head would look added twice.
 */
#ifndef GYRE_SRC_PLAN_PROVE_H
#define GYRE_SRC_PLAN_PROVE_H

#include "plan/plan.h"

/* ---- sets (prove_set.c) ---------------------------------------------- */

/* Set 0 is empty.  A set with one user may be written. */
typedef struct gyre_sets {
    gyre_context *context;
    uint64_t **blocks; /* of BLOCK sets each */
    uint32_t *users;   /* by set; of a free one the next free */
    uint32_t words;    /* of a set */
    uint32_t count, free;
    uint32_t block_count, block_room, user_room;
} gyre_sets;
enum { GYRE_SET_BLOCK = 256 };

void gyre_sets_free(gyre_sets *sets);
static inline uint64_t *gyre_set_bits(const gyre_sets *sets, uint32_t set)
{
    return sets->blocks[set / GYRE_SET_BLOCK] +
           (size_t)(set % GYRE_SET_BLOCK) * sets->words;
}
void gyre_set_keep(gyre_sets *sets, uint32_t set);
void gyre_set_drop(gyre_sets *sets, uint32_t set);
/* The same set for its one user to write; 0 gives a new one.  0: no memory. */
uint32_t gyre_set_own(gyre_sets *sets, uint32_t set);

/* ---- the prover ------------------------------------------------------- */

typedef struct gyre_prove_transfer {
    uint32_t rank, op, unit;
    uint32_t mate; /* transfer; NO_VIEW until matched */
} gyre_prove_transfer;

/* Of one rank. */
typedef struct gyre_prove_rank {
    gyre_plan_order order;
    uint32_t **cells;   /* by slot; NULL before birth, &gone after the end */
    uint32_t *tenant;   /* by buf */
    uint8_t *depth;     /* by slot: narrowings behind it */
    uint32_t unit_base; /* of unit numbers over all ranks */
    uint32_t op_base;
    uint32_t *first_transfer; /* by unit */
    double work;
} gyre_prove_rank;

/* What became of a row that one op wrote. */
enum {
    GYRE_PIECE_USED = 1,  /* by a cell or output of the rank that holds it */
    GYRE_PIECE_NEEDED = 2 /* there or after further moves */
};
enum { GYRE_PIECE_NONE = 0, GYRE_PIECE_GIVEN = 1 };
#define GYRE_CELL_UNREAD (UINT32_C(1) << 31)

typedef struct gyre_shift gyre_shift; /* prove_quotient.c */

typedef struct gyre_prover {
    const gyre_plan *plan;
    gyre_context *context;
    const gyre_proof_options *options;
    gyre_proof *proof;
    bool failed, out_of_memory;
    uint32_t ranks;          /* all, or 1 in a quotient */
    const gyre_shift *shift; /* of a quotient */
    gyre_prove_rank *rank;
    uint32_t unit_count, op_count;
    gyre_prove_transfer *transfers;
    uint32_t transfer_count;
    uint32_t *atom;                   /* [heads + 1]: atoms below a head */
    uint64_t **need[GYRE_SIDE_COUNT]; /* by chunk: cells with the other side */
    uint64_t *scratch;                /* four sets */
    gyre_sets sets;
    /* Pieces: flags, and (piece, piece it was copied from) pairs. */
    uint8_t *pieces;
    uint32_t piece_count, piece_room;
    uint32_t *edges;
    uint32_t edge_count, edge_room;
    uint32_t *made; /* by op over all ranks: its first piece, by row of view */
} gyre_prover;

/* Say what is wrong; the first one is kept.  Always false. */
bool gyre_prove_fail(gyre_prover *v, uint32_t rank, uint32_t op, uint32_t q,
                     uint32_t kv, uint32_t head, const char *format, ...)
    GYRE_PRINTF(7, 8);
bool gyre_prove_no_memory(gyre_prover *v);

/* What stands in a slot before the first op. */
bool gyre_prove_given(uint32_t pass, const gyre_plan_slot *slot);

/* Each returns false after gyre_prove_fail or without memory. */
bool gyre_prove_types(gyre_prover *v);
bool gyre_prove_match(gyre_prover *v);
bool gyre_prove_patterns(gyre_prover *v);
bool gyre_prove_run(gyre_prover *v);
bool gyre_prove_one_lane(gyre_prover *v); /* sets proof->one_lane */
bool gyre_prove_home(gyre_prover *v);

/* Run all on a plan; the prover stays filled for prune.  Free it in any case.
 */
gyre_status gyre_prover_run(gyre_prover *v, const gyre_plan *plan,
                            const gyre_proof_options *options,
                            const gyre_shift *shift, gyre_proof *proof,
                            gyre_error *error);
void gyre_prover_free(gyre_prover *v);

/* ---- cells and states (prove_state.c) ---------------------------------- */

/* Bits of the chunks of the other side whose cell with this one is not empty;
 * NULL without memory. */
const uint64_t *gyre_prove_need(gyre_prover *v, uint32_t side, uint32_t chunk);
static inline uint32_t gyre_prove_atoms(const gyre_prover *v, uint32_t h0,
                                        uint32_t h1)
{
    return v->atom[h1] - v->atom[h0];
}
/* The first head of an atom. */
uint32_t gyre_prove_head(const gyre_prover *v, uint32_t atom);

/* A view with its cells at hand.  Cell of (row i of the view, atom, plane):
 * cells[((size_t)at(i) * atoms + first_atom + atom) * planes + plane]. */
typedef struct gyre_prove_view {
    const gyre_plan_view *view;
    const gyre_plan_slot *slot;
    const uint32_t *rows, *all; /* chunks of the view and of the slot */
    uint32_t count, all_count;
    uint32_t *cells;
    uint32_t slot_atoms, first_atom, atoms;
    uint32_t planes; /* of the slot: 2 for ST */
} gyre_prove_view;
/* Enter the slot: evicts the tenant before it and is born when new. */
bool gyre_prove_open(gyre_prover *v, uint32_t rank, uint32_t op, uint32_t view,
                     gyre_prove_view *out);
/* The first cell of row i; `from` is where the row before stood in the slot. */
uint32_t *gyre_prove_row(const gyre_prove_view *view, uint32_t i,
                         uint32_t *from);
/* Sums that nobody read when the tenant of a buf ends. */
bool gyre_prove_leave(gyre_prover *v, uint32_t rank, uint32_t op,
                      uint32_t slot);
bool gyre_prove_states_make(gyre_prover *v);
void gyre_prove_states_free(gyre_prover *v);
bool gyre_prove_gone(const uint32_t *cells);

/* `count` new pieces; returns the first, 0 without memory. */
uint32_t gyre_prove_pieces(gyre_prover *v, uint32_t count);
bool gyre_prove_edge(gyre_prover *v, uint32_t piece, uint32_t from);
/* Needed pieces make those they were copied from needed. */
void gyre_prove_trace_back(gyre_prover *v);

/* ---- effects (prove_op.c, prove_move.c) --------------------------------- */

bool gyre_prove_compute(gyre_prover *v, uint32_t rank, uint32_t op);
bool gyre_prove_move(gyre_prover *v, uint32_t put, uint32_t get);
/* Work of an op: allowed pairs x heads, of ATT and GRD. */
double gyre_prove_work(const gyre_prover *v, uint32_t rank, uint32_t op);

/* ---- coordinates (prove_quotient.c) ---------------------------------------
 */

/*
 * Rank r is a vector in a mixed radix.  Moving by r adds it digit by digit to
 * ranks, takes chunk j of an owner to chunk j of the moved owner, and adds
 * head_step x digit to heads.
 */
enum { GYRE_SHIFT_DIGITS = 5 };
struct gyre_shift {
    gyre_context *context;
    const gyre_plan *plan;
    uint32_t digits, radix[GYRE_SHIFT_DIGITS]; /* lowest first */
    uint32_t head_digit;                       /* or NO_VIEW */
    uint32_t head_step;
    uint32_t *place[GYRE_SIDE_COUNT]; /* of a chunk among its owner's */
};
uint32_t gyre_shift_add(const gyre_shift *shift, uint32_t a, uint32_t b);
uint32_t gyre_shift_negate(const gyre_shift *shift, uint32_t a);
uint32_t gyre_shift_chunk(const gyre_shift *shift, uint32_t side,
                          uint32_t chunk, uint32_t by);
uint32_t gyre_shift_heads(const gyre_shift *shift, uint32_t by);

#endif
