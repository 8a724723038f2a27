/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_text.c - the texts of the example gpt: files, batches, and the n-gram
 * model against a recomputation that knows no tables.
 */
#include "gpt_text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- n-gram ---- */

enum { TRAIN = 500, ALL = 560, ALPHABET = 4 };

static uint8_t text[ALL];

/* Skewed and with memory, so that discounts and contexts matter. */
static void write_text(void)
{
    uint32_t seed = 5;

    for (size_t i = 0; i < ALL; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = (uint8_t)('a' + ((seed >> 24) % 7 > 2
                                       ? (i ? text[i - 1] - 'a' + 1 : 0)
                                       : (int)(seed >> 16 & 3)) %
                                      ALPHABET);
    }
}

/* Does s occur in the train part where `order` bytes precede its end? */
static size_t occurrences(const uint8_t *s, size_t n, size_t order)
{
    size_t count = 0;

    for (size_t end = order + 1; end <= TRAIN; end++)
        count += memcmp(text + end - n, s, n) == 0;
    return count;
}

/* a(s) of modified Kneser-Ney */
static size_t weight(const uint8_t *s, size_t n, size_t order)
{
    uint8_t longer[5];
    size_t kinds = 0;

    if (n == order + 1)
        return occurrences(s, n, order);
    memcpy(longer + 1, s, n);
    for (int c = 0; c < ALPHABET; c++) {
        longer[0] = (uint8_t)('a' + c);
        kinds += occurrences(longer, n + 1, order) > 0;
    }
    return kinds;
}

/* Every string of n letters, in turn. */
static void spell(uint8_t *s, size_t n, size_t number)
{
    for (size_t i = 0; i < n; i++, number /= ALPHABET)
        s[i] = (uint8_t)('a' + number % ALPHABET);
}

static void discounts(double d[4], size_t n, size_t order)
{
    double times[5] = {0}, y;
    size_t strings = 1;

    for (size_t i = 0; i < n; i++)
        strings *= ALPHABET;
    for (size_t i = 0; i < strings; i++) {
        uint8_t s[8]; /* n is at most 4; more quiets GCC */
        size_t a;

        spell(s, n, i);
        a = weight(s, n, order);
        if (a <= 4)
            times[a] += 1.0;
    }
    y = times[1] > 0 ? times[1] / (times[1] + 2 * times[2]) : 0.0;
    for (int i = 1; i <= 3; i++)
        d[i] = times[1] > 0 && times[i] > 0 && times[i + 1] > 0
                   ? fmax(0, i - (i + 1) * y * times[i + 1] / times[i])
                   : i / 2.0;
}

static double brute(const uint8_t *end, size_t order, double d[][4])
{
    double p = 1.0 / 256.0;

    for (size_t n = 1; n <= order + 1; n++) {
        double total = 0.0, freed = 0.0, a;
        uint8_t s[4];

        memcpy(s, end - n, n);
        for (int c = 0; c < ALPHABET; c++) {
            size_t other;

            s[n - 1] = (uint8_t)('a' + c);
            other = weight(s, n, order);
            total += (double)other;
            freed += other ? d[n][other < 3 ? other : 3] : 0.0;
        }
        if (total <= 0.0)
            continue;
        a = (double)weight(end - n, n, order);
        p *= freed / total;
        if (a > 0.0)
            p += (a - d[n][a < 3.0 ? (int)a : 3]) / total;
    }
    return p;
}

static void agrees_with_brute_force(void **state)
{
    char reason[200];

    (void)state;
    write_text();
    for (size_t order = 0; order <= 3; order++) {
        double d[5][4] = {{0}}, sum = 0.0, got;

        for (size_t n = 1; n <= order + 1; n++)
            discounts(d[n], n, order);
        for (size_t i = TRAIN; i < ALL; i++)
            sum -= log(brute(text + i + 1, order, d));
        got = gpt_ngram(text, ALL, TRAIN, (int)order, reason, sizeof reason);
        assert_true(fabs(got - sum / (ALL - TRAIN)) < 1e-12);
    }
}

/* Independent, uniform letters: the entropy is log(alphabet), and what the
 * model loses to chance is small and never negative by more. */
static void uniform_text(void **state)
{
    enum { N = 400000 };
    uint8_t *bytes = malloc(N);
    uint64_t x = 88172645463325252u;
    char reason[200];

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < N; i++) {
        x ^= x << 13; /* xorshift64, Marsaglia 2003 */
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (uint8_t)('A' + (x >> 40) % 10);
    }
    for (int order = 0; order <= 3; order++) {
        double nats =
            gpt_ngram(bytes, N, N / 10 * 9, order, reason, sizeof reason);

        assert_true(nats > log(10.0) - 0.002 && nats < log(10.0) + 0.02);
    }
    memset(bytes, 'z', N);
    assert_true(gpt_ngram(bytes, N, N / 2, 3, reason, sizeof reason) < 1e-3);
    free(bytes);
}

static void ngram_refuses(void **state)
{
    char reason[200] = "";

    (void)state;
    assert_true(gpt_ngram(text, ALL, TRAIN, 4, reason, sizeof reason) < 0);
    assert_true(gpt_ngram(text, ALL, ALL, 3, reason, sizeof reason) < 0);
    assert_true(gpt_ngram(text, ALL, 2, 3, reason, sizeof reason) < 0);
    assert_non_null(strstr(reason, "order 3"));
}

/* ---- files and batches ---- */

static char path[] = "test_text.XXXXXX";

static int write_file(void **state)
{
    int fd = mkstemp(path);
    bool good = fd >= 0;

    (void)state;
    for (int i = 0; good && i < 256; i++) {
        uint16_t value = (uint16_t)i;

        good = write(fd, &value, sizeof value) == sizeof value;
    }
    if (fd >= 0)
        close(fd);
    return good ? 0 : -1;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void batches(void **state)
{
    enum { B = 50, L = 9 };
    int32_t a[B * (L + 1)], b[B * (L + 1)];
    char reason[300];
    gpt_text t;

    (void)state;
    assert_int_equal(
        gpt_text_open(&t, path, GPT_TEXT_U16, 0.75, reason, sizeof reason), 0);
    assert_int_equal(t.n, 256);
    assert_int_equal(t.split, 192);
    for (int part = 0; part < 2; part++) {
        int32_t low = part ? 192 : 0, high = part ? 255 : 191;
        gpt_text_part p = (gpt_text_part)part;

        gpt_text_batch(&t, p, B, L, 1, 7, a, reason, sizeof reason);
        gpt_text_batch(&t, p, B, L, 1, 8, b, reason, sizeof reason);
        assert_memory_not_equal(a, b, sizeof a);
        gpt_text_batch(&t, p, B, L, 2, 7, b, reason, sizeof reason);
        assert_memory_not_equal(a, b, sizeof a);
        gpt_text_batch(&t, p, B, L, 1, 7, b, reason, sizeof reason);
        assert_memory_equal(a, b, sizeof a);
        for (size_t i = 0; i < B * (L + 1); i++) {
            assert_in_range(a[i], low, high);
            if (i % (L + 1))
                assert_int_equal(a[i], a[i - 1] + 1);
        }
    }
    /* The only window that fits. */
    assert_int_equal(gpt_text_batch(&t, GPT_TEXT_VALID, 1, 63, 1, 1, a, reason,
                                    sizeof reason),
                     0);
    assert_int_equal(a[0], 192);
    assert_int_equal(gpt_text_batch(&t, GPT_TEXT_VALID, 1, 64, 1, 1, a, reason,
                                    sizeof reason),
                     -1);
    assert_non_null(strstr(reason, "64 tokens"));
    assert_true(gpt_text_ngram(&t, 3, reason, sizeof reason) < 0);
    gpt_text_close(&t);
    gpt_text_close(&t);
}

/* The file counts 0 to 255, so each target tells which token it was: all but
 * the first of a part once, up to what does not fill a window. */
static void windows(void **state)
{
    enum { B = 3, L = 5 };
    int32_t out[B * (L + 1)];
    char reason[300];
    int32_t next = 193;
    gpt_text t;

    (void)state;
    assert_int_equal(
        gpt_text_open(&t, path, GPT_TEXT_U16, 0.75, reason, sizeof reason), 0);
    for (uint64_t k = 0;; k++) {
        int rows = gpt_text_windows(&t, GPT_TEXT_VALID, B, L, k, out, reason,
                                    sizeof reason);

        assert_in_range(rows, 0, B);
        if (rows == 0)
            break;
        for (int r = 0; r < rows; r++)
            for (int i = 1; i <= L; i++)
                assert_int_equal(out[r * (L + 1) + i], next++);
    }
    assert_int_equal(next, 193 + 63 / L * L);
    assert_int_equal(gpt_text_windows(&t, GPT_TEXT_VALID, B, L, UINT64_MAX, out,
                                      reason, sizeof reason),
                     0);
    assert_int_equal(gpt_text_windows(&t, GPT_TEXT_VALID, 1, 64, 0, out, reason,
                                      sizeof reason),
                     -1);
    gpt_text_close(&t);
}

static void bad_files(void **state)
{
    char reason[300] = "";
    gpt_text t;

    (void)state;
    assert_int_equal(gpt_text_open(&t, "/nonexistent", GPT_TEXT_U8, 0.9, reason,
                                   sizeof reason),
                     -1);
    assert_non_null(strstr(reason, "/nonexistent"));
    assert_int_equal(
        gpt_text_open(&t, "/", GPT_TEXT_U8, 0.9, reason, sizeof reason), -1);
    assert_int_equal(gpt_text_open(&t, path, GPT_TEXT_U8, (double)NAN, reason,
                                   sizeof reason),
                     -1);
    assert_int_equal(truncate(path, 511), 0);
    assert_int_equal(
        gpt_text_open(&t, path, GPT_TEXT_I32, 0.9, reason, sizeof reason), -1);
    assert_non_null(strstr(reason, "whole number"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_brute_force),
        cmocka_unit_test(uniform_text),
        cmocka_unit_test(ngram_refuses),
        cmocka_unit_test(batches),
        cmocka_unit_test(windows),
        cmocka_unit_test(bad_files)};

    return cmocka_run_group_tests(tests, write_file, remove_file);
}
