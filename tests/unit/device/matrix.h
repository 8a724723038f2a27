/* SPDX-License-Identifier: Apache-2.0 */
/* Every optimizer in every variant that it has, every compressor in every form
 * of its payload: what device tests go through. */
#ifndef GYRE_TESTS_UNIT_DEVICE_MATRIX_H
#define GYRE_TESTS_UNIT_DEVICE_MATRIX_H

#include <gyre/registry.h>

typedef struct matrix_row {
    const char *name;
    size_t count;
    gyre_setting settings[3];
} matrix_row;

static const matrix_row matrix_optimizers[] = {
    {"adagrad", 0, {{0}}},
    {"adagrad", 1, {{"weight_decay", 0.01}}},
    {"adam", 1, {{"weight_decay", 0.01}}},
    {"adam", 1, {{"amsgrad", 1}}},
    {"adamw", 0, {{0}}},
    {"adamw", 1, {{"amsgrad", 1}}},
    {"lion", 0, {{0}}},
    {"sgd", 0, {{0}}},
    {"sgd", 1, {{"momentum", 0.9}}},
    {"sgd", 2, {{"momentum", 0.9}, {"nesterov", 1}}},
};
enum {
    MATRIX_OPTIMIZERS = sizeof(matrix_optimizers) / sizeof(matrix_optimizers[0])
};

static const matrix_row matrix_codecs[] = {
    {"fp8", 1, {{"format", 0}}},
    {"fp8", 2, {{"format", 1}, {"block", 64}}},
    {"quantize", 2, {{"bits", 8}, {"map", 0}}},
    {"quantize", 2, {{"bits", 8}, {"map", 1}}},
    {"quantize", 2, {{"bits", 4}, {"map", 0}}},
    {"quantize", 3, {{"bits", 4}, {"map", 1}, {"block", 128}}},
    {"quantize", 3, {{"bits", 8}, {"map", 1}, {"rounding", 1}}},
    {"sign", 0, {{0}}},
    {"topk", 1, {{"ratio", 0.01}}},
    {"topk", 3, {{"ratio", 0.05}, {"values", 1}, {"indices", 1}}},
    {"topk", 3, {{"ratio", 0.1}, {"block", 256}, {"indices", 1}}},
    {"topk", 3, {{"ratio", 0.3}, {"block", 128}, {"values", 1}}},
    {"topk", 2, {{"ratio", 0.01}, {"scope", 1}}},
};
enum { MATRIX_CODECS = sizeof(matrix_codecs) / sizeof(matrix_codecs[0]) };

#endif
