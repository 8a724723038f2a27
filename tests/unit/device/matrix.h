/* SPDX-License-Identifier: Apache-2.0 */
/* Every optimizer in every variant that it has: what device tests go through.
 */
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

#endif
