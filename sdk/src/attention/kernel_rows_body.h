/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of kernel_rows.h in terms of V, a vector of W floats; included once
 * for each instruction set.  A lot is 16 / W vectors.
 */

/* Lanes of the first 16 with those of the others of x[4]. */
TARGET static float NAME(fold_most)(V x[4][LOT])
{
    float lanes[16];

    for (int v = 0; v < LOT; v++)
        STORE(lanes + v * W, MAX(MAX(x[0][v], x[1][v]), MAX(x[2][v], x[3][v])));
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
    return lanes[0];
}

TARGET static float NAME(fold_sum)(V x[4][LOT])
{
    float lanes[16];

    for (int v = 0; v < LOT; v++)
        STORE(lanes + v * W, ADD(ADD(x[0][v], x[1][v]), ADD(x[2][v], x[3][v])));
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Four lots side by side, so that one does not wait for the other. */
TARGET static float NAME(most)(const float *s, size_t n, float m)
{
    V x[4][LOT];
    size_t i = 0;

    for (int v = 0; v < 4 * LOT; v++)
        x[v / LOT][v % LOT] = SET(m);
    for (; i + 64 <= n; i += 64)
        for (int v = 0; v < 4 * LOT; v++)
            x[v / LOT][v % LOT] = MAX(LOAD(s + i + v * W), x[v / LOT][v % LOT]);
    for (; i < n; i += 16)
        for (int v = 0; v < LOT; v++)
            x[0][v] = MAX(LOAD(s + i + v * W), x[0][v]);
    return NAME(fold_most)(x);
}

TARGET static float NAME(total)(const float *s, size_t n)
{
    V x[4][LOT];
    size_t i = 0;

    for (int v = 0; v < 4 * LOT; v++)
        x[v / LOT][v % LOT] = SET(0.0f);
    for (; i + 64 <= n; i += 64)
        for (int v = 0; v < 4 * LOT; v++)
            x[v / LOT][v % LOT] = ADD(x[v / LOT][v % LOT], LOAD(s + i + v * W));
    for (; i < n; i += 16)
        for (int v = 0; v < LOT; v++)
            x[0][v] = ADD(x[0][v], LOAD(s + i + v * W));
    return NAME(fold_sum)(x);
}

TARGET static void NAME(weigh)(float *s, size_t n, float l)
{
    V shift = SET(l);

    for (size_t i = 0; i < n; i += W)
        STORE(s + i, EXP(SUB(LOAD(s + i), shift)));
}

/* The sum is a pass of its own: the exponential is a call, which would push
 * a running sum out of its registers each time. */
TARGET static float NAME(soften)(float *s, size_t n, float m, float *sum)
{
    float m2 = NAME(most)(s, n, m);

    if (m2 == -INFINITY) {
        memset(s, 0, n * sizeof(float));
        *sum = 0.0f;
        return m2;
    }
    NAME(weigh)(s, n, m2);
    *sum = NAME(total)(s, n);
    return m2;
}

TARGET static void NAME(slope)(const float *p, float *dp, size_t n, float delta,
                               float scale)
{
    V d = SET(delta), w = SET(scale);

    for (size_t i = 0; i < n; i += W)
        STORE(dp + i, HIDE(LOAD(p + i),
                           MUL(MUL(LOAD(p + i), SUB(LOAD(dp + i), d)), w)));
}

TARGET static void NAME(scale)(float *x, size_t n, float w)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= w;
}

TARGET static float NAME(exponential)(float x)
{
    float lanes[16];

    STORE(lanes, EXP(SET(x)));
    return lanes[0];
}

static const gyre_row_loops NAME(loops) = {
    NAME(soften), NAME(weigh), NAME(slope), NAME(scale), NAME(exponential)};

#undef NAME
#undef TARGET
#undef V
#undef W
#undef LOT
#undef LOAD
#undef STORE
#undef SET
#undef MAX
#undef ADD
#undef SUB
#undef MUL
#undef HIDE
#undef EXP
