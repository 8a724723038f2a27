/* SPDX-License-Identifier: Apache-2.0 */
/* Run an optimizer's kernel over a job (job.h), f32 in the answer. */
#include "config.h"

#include "base/base.h"
#include "job.h"

static void check(gyre_status status, const gyre_error *error)
{
    if (status != GYRE_OK)
        job_die(error->text);
}

static void update_group(const gyre_opt *opt, const job *j, size_t group,
                         const double *vary, unsigned long t, const float *g,
                         float *const *slot)
{
    gyre_setting settings[JOB_MAX];
    double values[GYRE_OPT_MAX_PARAMETERS];
    float scalars[GYRE_OPT_MAX_SCALARS];
    float *at_slot[1 + GYRE_OPT_MAX_SLOTS];
    gyre_error error = {0};

    for (size_t i = 0; i < j->varied; i++) {
        settings[i].name = j->vary[i];
        settings[i].value = vary[group * j->varied + i];
    }
    check(gyre_opt_values(opt, settings, j->varied, values, &error), &error);
    check(gyre_opt_scalars(opt, values, t, scalars, &error), &error);
    for (size_t at = j->cuts[group]; at < j->cuts[group + 1];
         at += GYRE_OPT_TILE) {
        size_t n = j->cuts[group + 1] - at;

        for (size_t k = 0; k <= gyre_opt_slot_count(opt); k++)
            at_slot[k] = slot[k] + at;
        gyre_opt_update(opt, n < GYRE_OPT_TILE ? n : GYRE_OPT_TILE, g + at,
                        at_slot, scalars, at);
    }
}

int main(void)
{
    float *slot[1 + GYRE_OPT_MAX_SLOTS] = {0}, *g;
    gyre_context *context = NULL;
    gyre_opt *opt = NULL;
    gyre_error error = {0};
    double *vary;
    size_t n, slots;
    job j;

    job_read(&j);
    n = j.cuts[j.groups];
    check(gyre_context_create(NULL, &context, &error), &error);
    check(gyre_opt_create(context, j.optimizer, j.settings, j.count, &opt,
                          &error),
          &error);
    slots = gyre_opt_slot_count(opt);
    g = job_array(n, sizeof(float));
    vary = job_array(j.groups * j.varied, sizeof(double));
    for (size_t k = 0; k <= slots; k++) {
        slot[k] = job_array(n, sizeof(float));
        for (size_t i = 0; k > 0 && i < n; i++)
            slot[k][i] = gyre_opt_slot_initial(opt, k - 1);
    }
    job_bytes(slot[0], n * sizeof(float));
    for (unsigned long t = 1; t <= j.steps; t++) {
        job_bytes(vary, j.groups * j.varied * sizeof(double));
        job_bytes(g, n * sizeof(float));
        for (size_t group = 0; group < j.groups; group++)
            update_group(opt, &j, group, vary, t, g, slot);
        for (size_t k = 0; k <= slots; k++)
            job_answer(slot[k], n * sizeof(float));
    }
    for (size_t k = 0; k <= slots; k++)
        free(slot[k]);
    free(g);
    free(vary);
    gyre_opt_destroy(opt);
    gyre_context_destroy(context);
    return 0;
}
