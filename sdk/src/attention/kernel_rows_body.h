/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of kernel_rows.h in terms of V, a vector of W floats; included once
 * for each instruction set.  A lot is 16 / W vectors.
 */

TARGET static float NAME(fold_most)(const V *x)
{
    float lanes[16];

    for (int v = 0; v < LOT; v++)
        STORE(lanes + v * W, x[v]);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
    return lanes[0];
}

TARGET static float NAME(fold_sum)(const V *x)
{
    float lanes[16];

    for (int v = 0; v < LOT; v++)
        STORE(lanes + v * W, x[v]);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

TARGET static float NAME(soften)(float *s, size_t n, float m, float *sum)
{
    V most[LOT], total[LOT];

    for (int v = 0; v < LOT; v++) {
        most[v] = SET(m);
        total[v] = SET(0.0f);
    }
    for (size_t i = 0; i < n; i += 16)
        for (int v = 0; v < LOT; v++)
            most[v] = MAX(LOAD(s + i + v * W), most[v]);
    float m2 = NAME(fold_most)(most);
    if (m2 == -INFINITY) {
        memset(s, 0, n * sizeof(float));
        *sum = 0.0f;
        return m2;
    }
    V shift = SET(m2);
    for (size_t i = 0; i < n; i += 16)
        for (int v = 0; v < LOT; v++) {
            V e = EXP(SUB(LOAD(s + i + v * W), shift));

            STORE(s + i + v * W, e);
            total[v] = ADD(total[v], e);
        }
    *sum = NAME(fold_sum)(total);
    return m2;
}

TARGET static void NAME(weigh)(float *s, size_t n, float l)
{
    V shift = SET(l);

    for (size_t i = 0; i < n; i += W)
        STORE(s + i, EXP(SUB(LOAD(s + i), shift)));
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
