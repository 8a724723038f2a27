/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradients pair by pair in arithmetic T, for NAME. */

static kernel_values NAME(const kernel_case *c)
{
    const kernel_shape *s = &c->shape;
    size_t rows = s->q_rows, keys = s->kv_rows, dim = s->dim, v_dim = s->v_dim;
    size_t group = s->heads / s->kv_heads;
    kernel_values out = values_new(s);
    T *weight = calloc(keys, sizeof(T)), *z = calloc(keys, sizeof(T));
    T scale =
        (T)(s->params.scale != 0.0 ? s->params.scale : 1.0 / sqrt((double)dim));
    T keep = (T)(1.0 / (1.0 - s->params.dropout));

    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t i = 0; i < rows; i++) {
                size_t at = (b * s->heads + h) * rows + i;
                size_t first = (b * s->kv_heads + h / group) * keys;
                uint64_t q = position_of(c->q, c->q_count, i);
                gyre_drop_key drop =
                    gyre_drop_row(&s->params, (uint32_t)b, (uint32_t)h, q);
                T most = -(T)INFINITY, sum = 0, delta = 0;
                T *o = calloc(v_dim, sizeof(T));

                for (size_t j = 0; j < keys; j++) {
                    uint64_t k = position_of(c->kv, c->kv_count, j);

                    weight[j] = -(T)INFINITY;
                    z[j] = gyre_keeps(&drop, k) ? keep : 0;
                    if (!gyre_mask_allows(&s->mask, (uint32_t)b, q, k))
                        continue;
                    T x = 0;
                    for (size_t d = 0; d < dim; d++)
                        x += (T)c->q_in[at * dim + d] *
                             (T)c->k_in[(first + j) * dim + d];
                    x *= scale;
                    if (s->params.slopes != NULL)
                        x -=
                            (T)s->params.slopes[h] * (T)(q > k ? q - k : k - q);
                    weight[j] = x;
                    most = x > most ? x : most;
                }
                out.lse[at] = -INFINITY;
                for (size_t j = 0; j < keys && most > -(T)INFINITY; j++)
                    sum += EXP(weight[j] - most);
                if (sum > 0) {
                    T lse = most + LOG(sum);
                    out.lse[at] = (double)lse;
                    for (size_t j = 0; j < keys; j++) {
                        weight[j] = EXP(weight[j] - lse);
                        for (size_t d = 0; d < v_dim && weight[j] > 0; d++)
                            o[d] += z[j] * weight[j] *
                                    (T)c->v_in[(first + j) * v_dim + d];
                    }
                }
                for (size_t d = 0; d < v_dim; d++) {
                    out.o[at * v_dim + d] = (double)o[d];
                    if (sum > 0)
                        delta += o[d] * (T)c->do_in[at * v_dim + d];
                }
                free(o);
                for (size_t j = 0; j < keys && sum > 0; j++) {
                    T dp = 0, *dq = (T *)out.dq + at * dim;
                    T *dk = (T *)out.dk + (first + j) * dim;
                    T *dv = (T *)out.dv + (first + j) * v_dim;

                    if (!(weight[j] > 0))
                        continue;
                    for (size_t d = 0; d < v_dim; d++)
                        dp += (T)c->do_in[at * v_dim + d] *
                              (T)c->v_in[(first + j) * v_dim + d];
                    T ds = weight[j] * (z[j] * dp - delta) * scale;
                    for (size_t d = 0; d < dim; d++) {
                        dq[d] += ds * (T)c->k_in[(first + j) * dim + d];
                        dk[d] += ds * (T)c->q_in[at * dim + d];
                    }
                    for (size_t d = 0; d < v_dim; d++)
                        dv[d] += z[j] * weight[j] * (T)c->do_in[at * v_dim + d];
                }
            }
    WIDEN(out.dq, out.dq_n);
    WIDEN(out.dk, out.dk_n);
    WIDEN(out.dv, out.dv_n);
    free(weight);
    free(z);
    return out;
}
