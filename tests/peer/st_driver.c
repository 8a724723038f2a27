/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store for the peer test of safetensors.
 *
 *     st_driver export DIR FILE     make a store in DIR, train, export
 *     st_driver import DIR FILE     import into the store in DIR
 *
 * Then prints what the store holds, one key a line:
 *
 *     KEY SHAPE STEP HEX            f32, little-endian
 */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 4, MOST = 6000 };

static const gyre_tensor model[TENSORS] = {
    {.name = "layer.0/weight", .rank = 2, .shape = {60, 100}},
    {.name = "layer.0.bias \"\xc3\xa9\\", .rank = 1, .shape = {7}, .group = 1},
    {.name = "frozen",
     .rank = 3,
     .shape = {2, 3, 5},
     .flags = GYRE_TENSOR_FROZEN},
    {.name = "scalar", .rank = 0},
};

static gyre_error error;

static void must(gyre_status status)
{
    if (status == GYRE_OK)
        return;
    fprintf(stderr, "st_driver: %s\n", error.text);
    exit(1);
}

static uint64_t elements(const gyre_tensor *t)
{
    uint64_t n = 1;

    for (uint32_t k = 0; k < t->rank; k++)
        n *= t->shape[k];
    return n;
}

static void fill(float *out, uint64_t n, uint32_t seed)
{
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)seed / 2147483648.0f;
    }
}

static void train(gyre_store *store, uint32_t seed)
{
    static float g[MOST];
    gyre_round_options options = {.size = sizeof(options), .clip = 1};
    gyre_round *round;

    must(gyre_round_begin(store, &options, &round, &error));
    for (size_t i = 0; i < TENSORS; i++) {
        gyre_gradient gradient = {.dtype = GYRE_F32, .data = g};
        uint64_t n = elements(&model[i]);

        if (model[i].flags & GYRE_TENSOR_FROZEN)
            continue;
        if (i == 1 && seed == 2) {
            must(gyre_round_absent(round, i, &error));
            continue;
        }
        fill(g, n, seed * 100 + (uint32_t)i);
        must(gyre_round_gradient(round, i, 0, n, &gradient, &error));
    }
    must(gyre_round_finish(round, NULL, 0, NULL, &error));
}

static gyre_store *make(gyre_context *context, const char *path)
{
    static float values[TENSORS][MOST];
    gyre_tensor tensors[TENSORS];
    gyre_store_spec spec = {.size = sizeof(spec),
                            .tensors = tensors,
                            .tensor_count = TENSORS,
                            .device_count = 2,
                            .chunk_elements = 2048};
    gyre_store *store;

    memcpy(tensors, model, sizeof(tensors));
    for (size_t i = 0; i < TENSORS; i++) {
        fill(values[i], elements(&model[i]), (uint32_t)i + 1);
        tensors[i].data = values[i];
    }
    must(gyre_store_create(context, path, &spec, NULL, &store, &error));
    for (uint32_t k = 1; k <= 3; k++)
        train(store, k);
    return store;
}

static void print_values(gyre_store *store, size_t tensor, int slot)
{
    static float values[MOST];
    gyre_tensor t;
    uint64_t step, n;

    must(gyre_store_tensor(store, tensor, &t, &step, &error));
    n = elements(&t);
    must(gyre_store_read(store, tensor, slot, 0, n, GYRE_F32, values, &error));
    printf("%s%s%s\t", slot >= 0 ? gyre_store_slot(store, (size_t)slot) : "",
           slot >= 0 ? "/" : "", t.name);
    for (uint32_t k = 0; k < t.rank; k++)
        printf("%s%llu", k > 0 ? "," : "", (unsigned long long)t.shape[k]);
    printf("\t%llu\t", (unsigned long long)step);
    for (size_t i = 0; i < n * sizeof(float); i++)
        printf("%02x", ((const unsigned char *)values)[i]);
    printf("\n");
}

static void print_all(gyre_store *store)
{
    gyre_store_info info = {.size = sizeof(info)};
    char digest[GYRE_DIGEST_TEXT];

    must(gyre_store_get_info(store, &info, &error));
    must(gyre_store_digest(store, digest, &error));
    printf("%s\t%llu\t%s\n", digest, (unsigned long long)info.step,
           info.optimizer);
    for (size_t i = 0; i < TENSORS; i++)
        for (int s = -1; s < (int)info.slots; s++)
            if (s < 0 || !(model[i].flags & GYRE_TENSOR_FROZEN))
                print_values(store, i, s);
}

int main(int argc, char **argv)
{
    gyre_context *context;
    gyre_store *store;

    if (argc != 4)
        return 2;
    must(gyre_context_create(NULL, &context, &error));
    if (strcmp(argv[1], "export") == 0) {
        store = make(context, argv[2]);
        must(gyre_store_export(store, argv[3], 0, NULL, NULL, &error));
    } else {
        must(gyre_store_import(context, argv[2], argv[3], NULL, NULL, NULL,
                               &error));
        must(gyre_store_open(context, argv[2], NULL, &store, &error));
    }
    print_all(store);
    gyre_store_close(store);
    gyre_context_destroy(context);
    return 0;
}
