/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An optimizer plugin, its variant chosen: what the store and the devices see.
 *
 * Slot 0 of every loop call is the parameter (f32 master); the plugin's state
 * slots follow in the order of the variant.  `gyre_opt_slot_*` count the state
 * slots alone.
 *
 *     structural settings --> variant (slot list, defines, loops)
 *     step settings       --> values[param_count] per group
 *     values, t           --> scalars[scalar_count], rounded once from double
 */
#ifndef GYRE_SRC_REGISTRY_OPTIMIZER_H
#define GYRE_SRC_REGISTRY_OPTIMIZER_H

#include <gyre/registry.h>

typedef struct gyre_opt gyre_opt;

enum {
    GYRE_OPT_MAX_SLOTS = 8,
    GYRE_OPT_MAX_SCALARS = 16,
    GYRE_OPT_MAX_PARAMETERS = 32,
    GYRE_OPT_TILE = 4096
};

/* Find the plugin, check the settings, choose variant and the loop of the
 * context's instruction set (scalar when the plugin lacks it), and run the
 * known-answer vector on it.  `settings` may hold structural and step
 * parameters; the latter become the defaults of gyre_opt_values. */
gyre_status gyre_opt_create(gyre_context *context, const char *name,
                            const gyre_setting *settings, size_t count,
                            gyre_opt **out, gyre_error *error);
void gyre_opt_destroy(gyre_opt *opt);
/* The instruction set of the loop in use. */
const char *gyre_opt_loop_name(const gyre_opt *opt);

const gyre_plugin *gyre_opt_plugin(const gyre_opt *opt);
const char *gyre_opt_variant(const gyre_opt *opt);
/* XXH3 of kernel text and defines; what the store keeps and checks. */
uint64_t gyre_opt_kernel_hash(const gyre_opt *opt);
uint32_t gyre_opt_state_version(const gyre_opt *opt);

/* The kernel for a device that builds its own: text, "-DGY_AMSGRAD=1 ..." for
 * every switch, the scalars' names, and every slot's name with its place in
 * slot[] (0: absent in this variant, to be read as zero and not stored). */
const char *gyre_opt_kernel_text(const gyre_opt *opt);
const char *gyre_opt_defines(const gyre_opt *opt);
size_t gyre_opt_scalar_count(const gyre_opt *opt);
const char *gyre_opt_scalar_name(const gyre_opt *opt, size_t scalar);
size_t gyre_opt_kernel_slot_count(const gyre_opt *opt);
const char *gyre_opt_kernel_slot_name(const gyre_opt *opt, size_t index,
                                      size_t *place);

size_t gyre_opt_slot_count(const gyre_opt *opt);
const char *gyre_opt_slot_name(const gyre_opt *opt, size_t slot);
float gyre_opt_slot_initial(const gyre_opt *opt, size_t slot);

/* The parameter table and the value of each at creation (structural and step),
 * index as in gyre_plugin.parameters. */
size_t gyre_opt_parameter_count(const gyre_opt *opt);
const double *gyre_opt_defaults(const gyre_opt *opt);

/* Fill values[gyre_opt_parameter_count] from the defaults and `settings`.
 * Errors: PARAMETER (unknown, out of range, values that do not go together, a
 * structural one that differs from its value at creation, or values that need
 * a variant with more state). */
gyre_status gyre_opt_values(const gyre_opt *opt, const gyre_setting *settings,
                            size_t count, double *values, gyre_error *error);

/* Scalars of applied step t (first step: 1).  scalars[GYRE_OPT_MAX_SCALARS].
 * Errors: PARAMETER when one does not fit f32. */
gyre_status gyre_opt_scalars(const gyre_opt *opt, const double *values,
                             uint64_t t, float *scalars, gyre_error *error);

/* Update n <= GYRE_OPT_TILE elements in place.  g: scaled gradient;
 * slot[1 + slot_count]; index: offset of the first element in its tensor.
 * The caller has pinned the FP control word.  Any thread. */
void gyre_opt_update(const gyre_opt *opt, size_t n, const float *g,
                     float *const *slot, const float *scalars, uint64_t index);

#endif
