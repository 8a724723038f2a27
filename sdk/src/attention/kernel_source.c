/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device program of attend and grad: words that differ, then one text.
 *
 * Numbers of words are those of kernel_device.h, written out since the text
 * knows no enum; a test holds them against each other by running.  Shared
 * memory is an argument in OpenCL: variables in the kernel itself were mixed up
 * between work-groups by PoCL 3.1.  So were a row's maximum and total kept in
 * shared memory over the loop (the second group read what the first had left,
 * while the same text with threads for work-items was right): each work-item
 * keeps its row's in variables of its own.
 */
#include "config.h"

#include "attention/kernel_device.h"
#include "device/source.h"

#include <string.h>

#define TEXT(...) #__VA_ARGS__ "\n"

#define OPENCL_WORDS                                      \
    "#define GYRE_KERNEL_ __kernel void\n"                \
    "#define GY_FN static\n"                              \
    "#define GYRE_GLOBAL_ __global\n"                     \
    "#define GYRE_LOCAL_ __local\n"                       \
    "#define GYRE_SHARED_ , __local float *gy_shared\n"   \
    "#define GYRE_SHARED_HERE_\n"                         \
    "#define gy_group() ((uint)get_group_id(0))\n"        \
    "#define gy_item() ((uint)get_local_id(0))\n"         \
    "#define gy_barrier() barrier(CLK_LOCAL_MEM_FENCE | " \
    "CLK_GLOBAL_MEM_FENCE)\n"                             \
    "#define gy_exp(x) exp(x)\n"                          \
    "#define gy_log(x) log(x)\n"                          \
    "#define gy_abs(x) fabs(x)\n"                         \
    "#define gy_float(u) as_float((uint)(u))\n"

#define CUDA_WORDS                                                     \
    "typedef unsigned char uchar;\n"                                   \
    "typedef unsigned int uint;\n"                                     \
    "#define GYRE_KERNEL_ extern \"C\" __global__ void\n"              \
    "#define GY_FN static __device__\n"                                \
    "#define GYRE_GLOBAL_\n"                                           \
    "#define GYRE_LOCAL_\n"                                            \
    "#define GYRE_SHARED_\n"                                           \
    "#define GYRE_SHARED_HERE_ extern __shared__ float gy_shared[];\n" \
    "#define gy_group() (blockIdx.x)\n"                                \
    "#define gy_item() (threadIdx.x)\n"                                \
    "#define gy_barrier() __syncthreads()\n"                           \
    "#define gy_exp(x) expf(x)\n"                                      \
    "#define gy_log(x) logf(x)\n"                                      \
    "#define gy_abs(x) fabsf(x)\n"                                     \
    "#define gy_float(u) __uint_as_float((uint)(u))\n"

#define COMMON_WORDS                                                         \
    "#define GY_NONE gy_float(0xff800000u)\n"                                \
    "#define GY_IN GYRE_GLOBAL_ const uint *in\n"                            \
    "#define gy_array(word) ((GYRE_GLOBAL_ const float *)(in + in[word]))\n" \
    "GY_FN " GYRE_HASH_TEXT "\n"

/* Shared: q [8][dim], o [8][v_dim] (DO, or the sum), k [8][dim], v [8][v_dim],
 * s [64], p [64], and three numbers a row. */
static const char helpers[] = TEXT(
    typedef struct gy_place {
        GYRE_LOCAL_ float *q;
        GYRE_LOCAL_ float *o;
        GYRE_LOCAL_ float *k;
        GYRE_LOCAL_ float *v;
        GYRE_LOCAL_ float *s;
        GYRE_LOCAL_ float *p;
        GYRE_LOCAL_ float *a;
        GYRE_LOCAL_ float *b;
        GYRE_LOCAL_ float *w;
    } gy_place;

    GY_FN gy_place gy_lay(GY_IN, GYRE_LOCAL_ float *at) {
        gy_place x;
        x.q = at;
        x.o = x.q + 8 * in[4];
        x.k = x.o + 8 * in[5];
        x.v = x.k + 8 * in[4];
        x.s = x.v + 8 * in[5];
        x.p = x.s + 64;
        x.a = x.p + 64;
        x.b = x.a + 8;
        x.w = x.b + 8;
        return x;
    }

    GY_FN int gy_sees(GY_IN, uint row, uint key) {
        GYRE_GLOBAL_ const uint *first = in + in[20] + row;
        GYRE_GLOBAL_ const uint *runs = in + in[21];
        for (uint i = first[0]; i < first[1]; i++)
            if (key < runs[2 * i + 1])
                return key >= runs[2 * i];
        return 0;
    }

    GY_FN float gy_dot(GYRE_LOCAL_ const float *x, GYRE_LOCAL_ const float *y,
                       uint n) {
        float sum = 0.0f;
        for (uint d = 0; d < n; d++)
            sum = sum + x[d] * y[d];
        return sum;
    }

    GY_FN float gy_score(GY_IN, uint head, uint row, uint key, float dot) {
        float s = dot * gy_float(in[6]);
        if (in[17] != 0u) {
            GYRE_GLOBAL_ const uint *q = in + in[18] + 2 * row;
            GYRE_GLOBAL_ const uint *k = in + in[19] + 2 * key;
            long far = (((long)q[1] << 32) | (long)q[0]) -
                       (((long)k[1] << 32) | (long)k[0]);
            s = s - gy_array(17)[head] * gy_abs((float)far);
        }
        return s;
    }

    GY_FN float gy_factor(GY_IN, uint head, uint row, uint key) {
        GYRE_GLOBAL_ const uint *q = in + in[18] + 2 * row;
        GYRE_GLOBAL_ const uint *k = in + in[19] + 2 * key;
        if (in[7] == 0u)
            return 1.0f;
        uint key0 = gyre_hash(in[9], q[1], in[10] + head);
        uint key1 = gyre_hash(in[9], in[10] + head, q[0]);
        return gyre_hash(key0, key1 + k[1], k[0]) >= in[7] ? gy_float(in[8])
                                                           : 0.0f;
    }

    GY_FN void gy_fill(GYRE_LOCAL_ float *to, GYRE_GLOBAL_ const float *from,
                       uint first, uint rows, uint dim) {
        for (uint e = gy_item(); e < 8 * dim; e += 64)
            to[e] = first + e / dim < rows ? from[first * dim + e] : 0.0f;
    });

static const char attend[] = TEXT(
    GY_FN float gy_weight(float s, float most) {
        return s == GY_NONE ? 0.0f : gy_exp(s - most);
    }

    GY_FN void gy_attend(GY_IN, GYRE_GLOBAL_ float *out, gy_place x, uint head,
                         uint tile) {
        const uint rows = in[2], keys = in[3], dim = in[4], v_dim = in[5];
        const uint item = gy_item(), r = item / 8, c = item % 8;
        const uint row = 8 * tile + r;
        GYRE_GLOBAL_ float *o = out + head * rows * v_dim;
        GYRE_GLOBAL_ float *lse = out + in[1] * rows * v_dim + head * rows;
        GYRE_GLOBAL_ const uint *reach = in + in[22] + 2 * tile;
        gy_fill(x.q, gy_array(11) + head * rows * dim, 8 * tile, rows, dim);
        for (uint e = item; e < 8 * v_dim; e += 64) {
            uint at = 8 * tile + e / v_dim;
            x.o[e] = at < rows && lse[at] != GY_NONE ? o[8 * tile * v_dim + e]
                                                     : 0.0f;
        }
        float before = row < rows ? lse[row] : GY_NONE;
        float total = before == GY_NONE ? 0.0f : 1.0f;
        const uint begin = reach[0] / 8, end = (reach[1] + 7) / 8;
        gy_barrier();
        for (uint step = begin; step < end; step++) {
            const uint k0 = 8 * step;
            gy_fill(x.k, gy_array(12), k0, keys, dim);
            gy_fill(x.v, gy_array(13), k0, keys, v_dim);
            gy_barrier();
            x.s[item] = GY_NONE;
            if (row < rows && k0 + c < keys && gy_sees(in, row, k0 + c))
                x.s[item] = gy_score(in, head, row, k0 + c,
                                     gy_dot(x.q + r * dim, x.k + c * dim, dim));
            gy_barrier();
            float most = before, sum = 0.0f;
            for (uint j = 0; j < 8; j++)
                most = x.s[8 * r + j] > most ? x.s[8 * r + j] : most;
            for (uint j = 0; j < 8; j++)
                sum = sum + gy_weight(x.s[8 * r + j], most);
            float p = gy_weight(x.s[item], most);
            if (p != 0.0f)
                p = p * gy_factor(in, head, row, k0 + c);
            x.p[item] = p;
            const float w = gy_weight(before, most);
            total = total * w + sum;
            before = most;
            if (c == 0)
                x.w[r] = w;
            gy_barrier();
            for (uint e = item; e < 8 * v_dim; e += 64) {
                uint at = e / v_dim;
                float both = x.o[e] * x.w[at];
                for (uint j = 0; j < 8; j++)
                    if (x.p[8 * at + j] != 0.0f)
                        both =
                            both + x.p[8 * at + j] * x.v[j * v_dim + e % v_dim];
                x.o[e] = both;
            }
            gy_barrier();
        }
        if (c == 0)
            x.b[r] = before == GY_NONE ? 0.0f : total;
        gy_barrier();
        for (uint e = item; e < 8 * v_dim; e += 64) {
            uint at = e / v_dim;
            if (8 * tile + at < rows && x.b[at] != 0.0f)
                o[8 * tile * v_dim + e] = x.o[e] / x.b[at];
        }
        if (c == 0 && row < rows && before != GY_NONE)
            lse[row] = before + gy_log(total);
    });

static const char grad[] = TEXT(
    GY_FN void gy_pair(GY_IN, gy_place x, uint head, uint row, uint key, uint r,
                       uint c) {
        const uint dim = in[4], v_dim = in[5], item = 8 * r + c;
        x.s[item] = 0.0f;
        x.p[item] = 0.0f;
        if (row >= in[2] || key >= in[3] || x.a[r] == GY_NONE ||
            !gy_sees(in, row, key))
            return;
        float s = gy_score(in, head, row, key,
                           gy_dot(x.q + r * dim, x.k + c * dim, dim));
        float p = gy_exp(s - x.a[r]), z = gy_factor(in, head, row, key);
        float dp = gy_dot(x.o + r * v_dim, x.v + c * v_dim, v_dim);
        if (p == 0.0f)
            return;
        x.s[item] = p * (z * dp - x.b[r]) * gy_float(in[6]);
        x.p[item] = p * z;
    }

    GY_FN void gy_queries(GY_IN, gy_place x, uint head, uint tile) {
        const uint rows = in[2], item = gy_item();
        gy_fill(x.q, gy_array(11) + head * rows * in[4], 8 * tile, rows, in[4]);
        gy_fill(x.o, gy_array(14) + head * rows * in[5], 8 * tile, rows, in[5]);
        if (item < 8 && 8 * tile + item < rows) {
            x.a[item] = gy_array(15)[head * rows + 8 * tile + item];
            x.b[item] = gy_array(16)[head * rows + 8 * tile + item];
        }
    }

    GY_FN void gy_by_rows(GY_IN, GYRE_GLOBAL_ float *out, gy_place x, uint head,
                          uint tile) {
        const uint rows = in[2], keys = in[3], dim = in[4];
        const uint item = gy_item(), r = item / 8, c = item % 8;
        GYRE_GLOBAL_ float *dq = out + (head * rows + 8 * tile) * dim;
        GYRE_GLOBAL_ const uint *reach = in + in[22] + 2 * tile;
        gy_queries(in, x, head, tile);
        const uint begin = reach[0] / 8, end = (reach[1] + 7) / 8;
        gy_barrier();
        for (uint step = begin; step < end; step++) {
            const uint k0 = 8 * step;
            gy_fill(x.k, gy_array(12), k0, keys, dim);
            gy_fill(x.v, gy_array(13), k0, keys, in[5]);
            gy_barrier();
            gy_pair(in, x, head, 8 * tile + r, k0 + c, r, c);
            gy_barrier();
            for (uint e = item; e < 8 * dim; e += 64) {
                uint at = e / dim;
                float sum = 0.0f;
                for (uint j = 0; j < 8; j++)
                    if (x.s[8 * at + j] != 0.0f)
                        sum = sum + x.s[8 * at + j] * x.k[j * dim + e % dim];
                if (8 * tile + at < rows)
                    dq[e] = dq[e] + sum;
            }
            gy_barrier();
        }
    }

    GY_FN void gy_to_keys(GYRE_GLOBAL_ float *to, GYRE_LOCAL_ const float *w,
                          GYRE_LOCAL_ const float *from, uint left, uint dim) {
        for (uint e = gy_item(); e < 8 * dim; e += 64) {
            float sum = 0.0f;
            for (uint j = 0; j < 8; j++)
                if (w[8 * j + e / dim] != 0.0f)
                    sum = sum + w[8 * j + e / dim] * from[j * dim + e % dim];
            if (e / dim < left)
                to[e] = to[e] + sum;
        }
    }

    GY_FN void gy_by_keys(GY_IN, GYRE_GLOBAL_ float *out, gy_place x,
                          uint tile) {
        const uint rows = in[2], keys = in[3], dim = in[4], v_dim = in[5];
        const uint item = gy_item(), tiles = (rows + 7) / 8, k0 = 8 * tile;
        GYRE_GLOBAL_ float *dk = out + in[1] * rows * dim;
        GYRE_GLOBAL_ float *dv = dk + keys * dim + k0 * v_dim;
        gy_fill(x.k, gy_array(12), k0, keys, dim);
        gy_fill(x.v, gy_array(13), k0, keys, v_dim);
        gy_barrier();
        for (uint i = 0; i < in[1] * tiles; i++) {
            uint head = i / tiles, of = i % tiles;
            GYRE_GLOBAL_ const uint *reach = in + in[22] + 2 * of;
            if (reach[1] <= k0 || reach[0] >= k0 + 8)
                continue;
            gy_queries(in, x, head, of);
            gy_barrier();
            gy_pair(in, x, head, 8 * of + item / 8, k0 + item % 8, item / 8,
                    item % 8);
            gy_barrier();
            gy_to_keys(dk + k0 * dim, x.s, x.q, keys - k0, dim);
            gy_to_keys(dv, x.p, x.o, keys - k0, v_dim);
            gy_barrier();
        }
    }

    GYRE_KERNEL_ gyre_update(GYRE_GLOBAL_ uchar *gy_state, GY_IN,
                             const uint gy_grains GYRE_SHARED_) {
        GYRE_SHARED_HERE_
        GYRE_GLOBAL_ float *out = (GYRE_GLOBAL_ float *)gy_state;
        const gy_place x = gy_lay(in, gy_shared);
        const uint tiles = (in[2] + 7) / 8, group = gy_group();
        if (in[0] == 0u)
            gy_attend(in, out, x, group / tiles, group % tiles);
        else if (group < in[1] * tiles)
            gy_by_rows(in, out, x, group / tiles, group % tiles);
        else
            gy_by_keys(in, out, x, group - in[1] * tiles);
    });

size_t gyre_block_shared(uint32_t head_dim, uint32_t v_head_dim)
{
    return GYRE_DEVICE_TILE * 2 * ((size_t)head_dim + v_head_dim) +
           2 * GYRE_DEVICE_TILE * GYRE_DEVICE_TILE + 3 * GYRE_DEVICE_TILE;
}

gyre_status gyre_block_source(gyre_context *context, const char *language,
                              char **out, gyre_error *error)
{
    gyre_text text = {.context = context};
    char *copy = NULL;

    gyre_text_add(&text, "%s%s%s%s%s",
                  strcmp(language, "cuda") == 0 ? CUDA_WORDS : OPENCL_WORDS,
                  COMMON_WORDS, helpers, attend, grad);
    if (!text.failed)
        copy = gyre_copy_text(context, text.at);
    gyre_text_free(&text);
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "device program of attention: no memory");
    *out = copy;
    return GYRE_OK;
}
