/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gyre inside a C program: fit y = a x + b with AdamW on storage.
 *
 *     cc embed.c $(pkg-config --cflags --libs gyre) -o embed && ./embed DIR
 *
 * Run it again: it goes on where the last commit left it.
 */
#include <gyre/gyre.h>
#include <stdio.h>

static const float target_a = 3.0f, target_b = -1.0f;

static int fail(const char *what, const gyre_error *error)
{
    fprintf(stderr, "embed: %s: %s\n", what, error->text);
    return 1;
}

/* Of the mean of (a x + b - y)^2 / 2 over x = -1, -0.5, ... 1. */
static void gradient(const float p[2], float g[2])
{
    g[0] = g[1] = 0;
    for (int i = -2; i <= 2; i++) {
        float x = 0.5f * (float)i;
        float miss = p[0] * x + p[1] - (target_a * x + target_b);

        g[0] += miss * x / 5, g[1] += miss / 5;
    }
}

static int train(gyre_store *store, float p[2], gyre_error *error)
{
    for (int step = 0; step < 200; step++) {
        gyre_round_report report = {.size = sizeof(report)};
        float g[2];
        gyre_gradient piece = {.dtype = GYRE_F32, .data = g};
        gyre_round *round;

        gradient(p, g);
        if (gyre_round_begin(store, NULL, &round, error) != GYRE_OK ||
            gyre_round_gradient(round, 0, 0, 2, &piece, error) != GYRE_OK ||
            gyre_round_finish(round, "note", 4, &report, error) != GYRE_OK)
            return fail("step", error);
        if (report.step % 100 == 0)
            printf("step %3llu  norm %.6f  a %.4f  b %.4f\n",
                   (unsigned long long)report.step, report.norm, p[0], p[1]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "embed.store";
    float p[2] = {0, 0};
    gyre_error error;
    gyre_context *context;
    gyre_store *store;
    gyre_status status;
    gyre_setting lr = {"lr", 0.05};
    gyre_tensor line = {.name = "line", .rank = 1, .shape = {2}};
    gyre_store_spec spec = {.size = sizeof(spec), .optimizer = "adamw"};

    if (gyre_context_create(NULL, &context, &error) != GYRE_OK)
        return fail("context", &error);
    spec.tensors = &line, spec.tensor_count = 1;
    spec.settings = &lr, spec.setting_count = 1;
    status = gyre_store_open(context, path, NULL, &store, &error);
    if (status == GYRE_NOT_FOUND)
        status = gyre_store_create(context, path, &spec, NULL, &store, &error);
    if (status != GYRE_OK)
        return fail("store", &error);
    if (gyre_store_bind(store, 0, GYRE_F32, p, &error) != GYRE_OK ||
        gyre_store_pull(store, &error) != GYRE_OK)
        return fail("parameters", &error);
    status = train(store, p, &error) == 0 ? GYRE_OK : error.status;
    gyre_store_close(store);
    gyre_context_destroy(context);
    return status != GYRE_OK;
}
