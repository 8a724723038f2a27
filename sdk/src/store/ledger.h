/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store costs: bytes moved (ledger.c), disk (info.c), memory (plan.c).
 */
#ifndef GYRE_SRC_STORE_LEDGER_H
#define GYRE_SRC_STORE_LEDGER_H

#include "store/store.h"

/* Reserved, all devices (info.c). */
uint64_t gyre_store_disk_bytes(const gyre_layout *layout);
/* Memory of the store's lines (plan.c), and the refusal above the limit. */
void gyre_store_lines(const gyre_store *store, gyre_store_plan *plan);
gyre_status gyre_store_check_memory(const gyre_store *store, gyre_error *error);
/* Add the parts of a ledger, and fill its sums (ledger.c). */
void gyre_ledger_add(gyre_ledger *into, const gyre_ledger *more);
void gyre_ledger_sum(gyre_ledger *ledger);
/* The store is open: of what was moved so far only the residual counts. */
void gyre_ledger_begin(gyre_store *store);
/* Count for the open round, or for the store when none is.  Any thread. */
void gyre_store_count(gyre_store *store, const gyre_ledger *more);
/* WORN when the budget is spent. */
gyre_status gyre_store_check_wear(const gyre_store *store, gyre_error *error);

#endif
