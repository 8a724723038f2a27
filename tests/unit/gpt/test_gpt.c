/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the example gpt computes: the same bits in every process and for every
 * number of threads, gradients against finite differences, sampling, and its
 * exponential.
 *
 * Called as "test_gpt --hash THREADS" it prints a hash of one step instead;
 * the test of equal bits starts itself that way.
 */
#include "small_gpt.h"

/* Sees the exponential itself. */
#include "gpt_math.h"

#include <math.h>
#include <stdio.h>

static uint64_t mix_bits(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t hash_step(size_t threads)
{
    gpt_config config = odd;
    uint64_t hash = UINT64_C(14695981039346656037);
    double loss;
    gpt *g;

    config.threads = threads;
    g = make(config);
    loss = train_step(g, 1.0f);
    hash = mix_bits(hash, &loss, sizeof loss);
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *p = gpt_parameter_at(g, i);

        hash = mix_bits(hash, p->data, p->n * sizeof(float));
        hash = mix_bits(hash, p->grad, p->n * sizeof(float));
    }
    gpt_destroy(g);
    return hash;
}

static const char *self;

static uint64_t hash_in_process(size_t threads)
{
    char command[4200];
    unsigned long long hash = 0;
    FILE *pipe;

    snprintf(command, sizeof command, "'%s' --hash %zu", self, threads);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%llx", &hash), 1);
    assert_int_equal(pclose(pipe), 0);
    return hash;
}

static void same_bits_everywhere(void **state)
{
    const uint64_t wanted = hash_step(2);

    (void)state;
    for (size_t threads = 1; threads <= 5; threads++)
        assert_int_equal(hash_step(threads), wanted);
    if (in_valgrind())
        return;
    for (int run = 0; run < 3; run++)
        assert_int_equal(hash_in_process(2), wanted);
    assert_int_equal(hash_in_process(3), wanted);
}

/* A second, smaller batch must not see what the first left behind. */
static void gradients_are_overwritten(void **state)
{
    gpt *used = make(odd), *fresh = make(odd);
    int32_t tokens[40];

    (void)state;
    fill(tokens, 40, 8);
    train_step(used, 1.0f);
    assert_true(gpt_forward_backward(used, tokens, tokens + 20, 2, 10, 1.0f) ==
                gpt_forward_backward(fresh, tokens, tokens + 20, 2, 10, 1.0f));
    expect_same_gradients(used, fresh);
    gpt_destroy(fresh);
    gpt_destroy(used);
}

/* A power of two scales every gradient exactly. */
static void scale_is_exact(void **state)
{
    gpt *g = make(odd), *scaled = make(odd);
    double loss = train_step(g, 1.0f);

    (void)state;
    assert_true(train_step(scaled, 1024.0f) == loss);
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *a = gpt_parameter_at(g, i);
        const gpt_parameter *b = gpt_parameter_at(scaled, i);

        for (size_t k = 0; k < a->n; k++)
            assert_true(a->grad[k] * 1024.0f == b->grad[k]);
    }
    gpt_destroy(scaled);
    gpt_destroy(g);
}

/*
 * Along its own gradient, L(w + h g) - L(w - h g) = 2 h |g|^2 + O(h^3). The
 * loss carries about 1e-7 of rounding; h is chosen so that the difference is
 * 4e-3, which leaves 1e-4 of noise and a cubic term below 1e-2.
 */
static void finite_differences(void **state)
{
    int32_t tokens[2 * BATCH * LENGTH];
    gpt *g;

    (void)state;
    if (in_valgrind())
        skip();
    g = make(odd);
    fill(tokens, 2 * BATCH * LENGTH, 3);
    train_step(g, 1.0f);
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *p = gpt_parameter_at(g, i);
        float *saved = malloc(p->n * sizeof(float));
        double square = 0.0, loss[2], h;

        assert_non_null(saved);
        memcpy(saved, p->data, p->n * sizeof(float));
        for (size_t k = 0; k < p->n; k++)
            square += (double)p->grad[k] * (double)p->grad[k];
        assert_true(square > 0.0);
        h = 2e-3 / square;
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < p->n; k++)
                p->data[k] = (float)((double)saved[k] +
                                     (side ? -h : h) * (double)p->grad[k]);
            loss[side] =
                gpt_loss(g, tokens, tokens + BATCH * LENGTH, BATCH, LENGTH);
        }
        memcpy(p->data, saved, p->n * sizeof(float));
        free(saved);
        if (fabs((loss[0] - loss[1]) / 4e-3 - 1.0) > 1e-2)
            fail_msg("%s: difference %g, wanted %g", p->name, loss[0] - loss[1],
                     4e-3);
    }
    gpt_destroy(g);
}

/* Longer than the context, so that the window slides. */
static void generation_repeats(void **state)
{
    gpt_config config = odd;
    uint8_t a[150], b[150];
    gpt *g = make(odd), *other;

    (void)state;
    config.threads = 1;
    other = make(config);
    train_step(other, 1.0f); /* dirty workspace */
    assert_int_equal(
        gpt_generate(g, (const uint8_t *)"ab", 2, sizeof a, 0.9, 20, 5, a), 0);
    assert_int_equal(
        gpt_generate(other, (const uint8_t *)"ab", 2, sizeof b, 0.9, 20, 5, b),
        0);
    assert_memory_equal(a, b, sizeof a);
    gpt_generate(g, (const uint8_t *)"ab", 2, sizeof b, 0.9, 20, 6, b);
    assert_memory_not_equal(a, b, sizeof a);
    gpt_generate(g, NULL, 0, 20, 0.0, 0, 1, a);
    gpt_generate(g, (const uint8_t *)"x\n", 1, 0, 0.0, 0, 1, NULL);
    gpt_generate(g, (const uint8_t *)"\n", 1, 20, 1.0, 1, 9, b);
    assert_memory_equal(a, b, 20); /* top_k 1 is greedy */
    gpt_destroy(other);
    gpt_destroy(g);
}

/*
 * One byte at a time must agree with the whole sequence: the greedy byte
 * after each prefix has the smallest loss as a target.
 */
static void generation_follows_the_loss(void **state)
{
    uint8_t text[17] = {'q'};
    int32_t tokens[17], targets[17];
    gpt *g;

    (void)state;
    if (in_valgrind())
        skip();
    g = make(odd);
    for (size_t i = 0; i < gpt_parameter_count(g); i++)
        for (size_t k = 0; k < gpt_parameter_at(g, i)->n; k++)
            gpt_parameter_at(g, i)->data[k] *= 3.0f;
    assert_int_equal(gpt_generate(g, text, 1, 16, 0.0, 0, 1, text + 1), 0);
    for (size_t n = 1; n <= 16; n += 5) {
        double best = INFINITY;
        int32_t chosen = -1;

        for (int32_t byte = 0; byte < 256; byte++) {
            double loss;

            for (size_t i = 0; i < n; i++) {
                tokens[i] = text[i];
                targets[i] = text[i + 1];
            }
            targets[n - 1] = byte;
            loss = gpt_loss(g, tokens, targets, 1, n);
            if (loss < best) {
                best = loss;
                chosen = byte;
            }
        }
        assert_int_equal(chosen, text[n]);
    }
    gpt_destroy(g);
}

/* Against exp in double over the whole range in steps of 2^-9 and a bit. */
static void exponential(void **state)
{
    double worst = 0.0;

    (void)state;
    if (in_valgrind())
        skip();
    for (float x = -87.0f; x <= 88.0f; x += 0.0019543f) {
        double exact = exp((double)x);
        int exponent;
        double ulp, error;

        frexp(exact, &exponent);
        ulp = ldexp(1.0, exponent - 24);
        error = fabs((double)gpt_expf(x) - exact) / ulp;
        worst = error > worst ? error : worst;
    }
    if (worst > 1.5)
        fail_msg("gpt_expf is %.2f ulp off", worst);
    assert_true(isnan(gpt_expf(NAN)));
    assert_true(gpt_expf(-1000.0f) > 0.0f && isfinite(gpt_expf(1000.0f)));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(gradients_are_overwritten),
        cmocka_unit_test(scale_is_exact),
        cmocka_unit_test(finite_differences),
        cmocka_unit_test(generation_repeats),
        cmocka_unit_test(generation_follows_the_loss),
        cmocka_unit_test(exponential)};

    if (argc == 3 && strcmp(argv[1], "--hash") == 0) {
        printf("%llx\n", (unsigned long long)hash_step(
                             (size_t)strtoull(argv[2], NULL, 10)));
        return 0;
    }
    self = argv[0];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
