/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks in several processes must run the same: each process says in numbers
 * what it was given, and all hold them against those of rank 0.  Without, one
 * would wait for what another does not send, or results would be wrong.
 */
#include "attention/face.h"

#include <string.h>

gyre_status gyre_attention_agree(gyre_context *context, gyre_world *world,
                                 const uint64_t *numbers,
                                 const char *const *names, uint32_t count,
                                 gyre_error *error)
{
    uint32_t ranks = gyre_transport_ranks(world), first, here;
    gyre_transport_local(world, &first, &here);
    if (here == ranks)
        return GYRE_OK;
    size_t *sizes = gyre_alloc(context, ranks, sizeof(*sizes));
    uint64_t *all =
        gyre_alloc(context, (size_t)ranks * count, sizeof(*numbers));
    gyre_status status = GYRE_OK;
    if (sizes == NULL || all == NULL)
        status = gyre_attention_give_up(world,
                                        gyre_fail(error, GYRE_NO_MEMORY,
                                                  "no memory to ask %u ranks",
                                                  ranks),
                                        error);
    for (uint32_t r = 0; r < ranks && status == GYRE_OK; r++) {
        sizes[r] = count * sizeof(*numbers);
        if (r >= first && r < first + here)
            memcpy(all + (size_t)r * count, numbers, sizes[r]);
    }
    if (status == GYRE_OK)
        status = gyre_world_gather(world, sizes, all, error);
    for (size_t i = 0; status == GYRE_OK && i < (size_t)ranks * count; i++)
        if (all[i] != all[i % count])
            status = gyre_fail(error, GYRE_INVALID,
                               "rank %u was given another %s than rank 0: "
                               "every rank needs the same",
                               (uint32_t)(i / count), names[i % count]);
    gyre_free(context, all, (size_t)ranks * count, sizeof(*numbers));
    gyre_free(context, sizes, ranks, sizeof(*sizes));
    return status;
}

/* ---- what attention was given ---------------------------------------------
 */

/* A plan's bytes end with a sum of them: the last eight, however they come. */
static gyre_status keep_end(void *user, const void *data, size_t size,
                            gyre_error *error)
{
    (void)error;
    char *end = user;
    size_t whole = sizeof(uint64_t), n = size < whole ? size : whole;
    memmove(end, end + n, whole - n);
    memcpy(end + whole - n, (const char *)data + size - n, n);
    return GYRE_OK;
}

static uint64_t of_number(uint64_t sum, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return gyre_plan_mix(sum, bits);
}

/* All that decides results beside the plans; what a device computes, another
 * rank's host may. */
static uint64_t of_options(const gyre_attention *a,
                           const gyre_attention_options *options)
{
    const gyre_kernel *kernel = a->executors[0][0]->kernel;
    uint64_t sum = gyre_plan_mix(options->seed, options->tiles);
    sum = of_number(of_number(sum, options->scale), options->dropout);
    for (const char *c = kernel->name; *c != '\0'; c++)
        sum = gyre_plan_mix(sum, (uint64_t)*c);
    for (uint32_t h = 0; a->slopes && h < a->plans[0]->problem.heads; h++)
        sum = of_number(sum, (double)a->slopes[h]);
    return gyre_plan_mix(sum, options->flops > 0);
}

gyre_status gyre_attention_same(const gyre_attention *a,
                                const gyre_attention_options *options,
                                gyre_error *error)
{
    static const char *const names[] = {
        "forward plan", "backward plan (or none)",
        "kernel, scale, dropout, seed, slopes or number of tiles"};
    uint64_t numbers[3] = {0, 0, of_options(a, options)};
    if (a->count == gyre_transport_ranks(a->world))
        return GYRE_OK;
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        gyre_status status = GYRE_OK;
        if (a->plans[pass] != NULL)
            status = gyre_plan_write_binary(a->plans[pass], keep_end,
                                            &numbers[pass], error);
        if (status != GYRE_OK)
            return status;
    }
    return gyre_attention_agree(a->context, a->world, numbers, names, 3, error);
}
