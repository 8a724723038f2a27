/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients born on a device, without a compressor: the store that is given
 * these ends where the one does that is given host memory, what the driver
 * refuses changes nothing, and the ledger tells what was copied.  Skips without
 * a device.
 */
#include "config.h"

#include "../born.h"
#include "fixture.h"

enum { BEFORE = 16, STRIDE = 3 };

/* A tensor's gradient as f32, every third element, from byte 16 on. */
static gyre_status give_born(fixture *f, gyre_round *round, const model *m,
                             size_t tensor, uint64_t seed, size_t short_by)
{
    size_t n = (size_t)m->elements[tensor];
    size_t bytes = BEFORE + ((n - 1) * STRIDE + 1) * sizeof(float) - short_by;
    float *plain = calloc(n, sizeof(float));
    float *spread = calloc(1, bytes + short_by);
    gyre_gradient g = {.kind = born.kind,
                       .dtype = GYRE_F32,
                       .stride = STRIDE,
                       .offset = BEFORE};
    void *buffer;
    gyre_status status;

    gradient_fill(seed, tensor, 0, n, plain);
    for (size_t i = 0; i < n; i++)
        spread[BEFORE / sizeof(float) + i * STRIDE] = plain[i];
    buffer = born_make(0, bytes, spread);
    g.data = buffer;
    status = gyre_round_gradient(round, tensor, 0, n, &g, &f->error);
    born_drop(buffer);
    free(spread);
    free(plain);
    return status;
}

static void one_round(fixture *f, const model *m, uint64_t seed, bool away)
{
    gyre_round_report report = {.size = sizeof(report)};
    gyre_round *round = fixture_open_round(f, NULL);

    for (size_t i = 0; i < m->count; i++) {
        if ((m->tensors[i].flags & GYRE_TENSOR_FROZEN) || m->elements[i] == 0)
            continue;
        if (!away) {
            give_tensor(f, round, m, i, seed);
            continue;
        }
        /* a buffer that ends too soon, then the whole one, then once more */
        assert_int_equal(give_born(f, round, m, i, seed, 4), GYRE_IO);
        unit_assert_text(&f->error, m->names[i]);
        unit_assert_text(&f->error, "reading the gradient");
        good(f, give_born(f, round, m, i, seed, 0));
        assert_int_equal(give_born(f, round, m, i, seed, 0), GYRE_DUPLICATE);
    }
    good(f, gyre_round_finish(round, NULL, 0, &report, &f->error));
    assert_int_equal(report.skipped, 0);
}

static snapshot run(const model *m, bool away)
{
    snapshot end;
    fixture f;

    fixture_begin(&f);
    fixture_create(&f, m, NULL, NULL);
    for (uint64_t r = 1; r <= 2; r++)
        one_round(&f, m, r, away);
    end = snapshot_of(&f, m);
    fixture_end(&f);
    return end;
}

static void test_same_end(void **state)
{
    snapshot want, have;
    model m = {0};

    (void)state;
    model_mixed(&m);
    want = run(&m, false);
    have = run(&m, true);
    expect_same_contents(&want, &have);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_end),
    };

    return born_run("store: born on a device", tests);
}
