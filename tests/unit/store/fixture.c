/* SPDX-License-Identifier: Apache-2.0 */
/* Folders, models and rounds for the tests of the store. */
#include "config.h"

#include "fixture.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- numbers ---------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t random_next(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15u;
    return mix(*seed);
}

float gradient_at(uint64_t seed, size_t tensor, uint64_t index)
{
    uint64_t r = mix(mix(mix(seed + 1) + tensor) + index);
    float value = (float)(int32_t)(uint32_t)r * 0x1p-31f;

    return ldexpf(value, -(int)((r >> 32) % 21));
}

void gradient_fill(uint64_t seed, size_t tensor, uint64_t first, size_t n,
                   float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gradient_at(seed, tensor, first + i);
}

/* ---- a model ---------------------------------------------------------- */

void model_add(model *m, const char *name, uint64_t elements, uint32_t group,
               uint32_t flags)
{
    gyre_tensor *t = &m->tensors[m->count];
    float *data = malloc(elements * sizeof(float) + 1);

    assert_true(m->count < MODEL_MOST);
    assert_non_null(data);
    snprintf(m->names[m->count], sizeof(m->names[0]), "%s", name);
    gradient_fill(0x1717, m->count, 0, elements, data);
    memset(t, 0, sizeof(*t));
    t->name = m->names[m->count];
    t->rank = 1;
    t->shape[0] = elements;
    t->group = group;
    t->flags = flags;
    t->dtype = GYRE_F32;
    t->data = data;
    m->elements[m->count++] = elements;
}

void model_mixed(model *m)
{
    model_add(m, "wte", 5000, 0, 0);
    model_add(m, "frozen.a", 3001, 0, GYRE_TENSOR_FROZEN);
    model_add(m, "empty", 0, 1, 0);
    model_add(m, "bias", 1, 1, 0);
    model_add(m, "h.0.w", 4096, 0, 0);
    model_add(m, "temperature", 1, 0, 0);
    m->tensors[m->count - 1].rank = 0;
    model_add(m, "h.0.b", 1023, 1, 0);
    model_add(m, "frozen.b", 1, 1, GYRE_TENSOR_FROZEN);
    model_add(m, "h.1.w", 9217, 0, 0);
    model_add(m, "h.1.b", 1025, 1, 0);
}

void model_free(model *m)
{
    for (size_t i = 0; i < m->count; i++)
        free((void *)(uintptr_t)m->tensors[i].data);
    m->count = 0;
}

uint64_t model_trainable(const model *m)
{
    uint64_t n = 0;

    for (size_t i = 0; i < m->count; i++)
        if (!(m->tensors[i].flags & GYRE_TENSOR_FROZEN))
            n += m->elements[i];
    return n;
}

/* ---- a folder --------------------------------------------------------- */

static void remove_all(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char inner[512];

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        if (unlink(inner) != 0)
            remove_all(inner);
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(path);
}

bool fixture_begin_on(fixture *f, const char *instruction_set)
{
    const char *base = getenv("TMPDIR");
    gyre_context_options options;

    memset(f, 0, sizeof(*f));
    options = unit_options(&f->memory);
    options.instruction_set = instruction_set;
    if (gyre_context_create(&options, &f->context, &f->error) != GYRE_OK)
        return false;
    snprintf(f->root, sizeof(f->root), "%s/gyre-store-XXXXXX",
             base != NULL && strlen(base) < 90 ? base : "/tmp");
    assert_non_null(mkdtemp(f->root));
    snprintf(f->path, sizeof(f->path), "%s/store", f->root);
    for (size_t d = 0; d < DEVICES_MOST; d++) {
        snprintf(f->device[d], sizeof(f->device[d]), "%s/d%02zu", f->root, d);
        f->devices[d] = f->device[d];
    }
    return true;
}

void fixture_begin(fixture *f)
{
    assert_true(fixture_begin_on(f, NULL));
}

void fixture_end(fixture *f)
{
    fixture_close(f);
    gyre_context_destroy(f->context);
    remove_all(f->root);
    unit_memory_check(&f->memory);
}

void fixture_devices(fixture *f, gyre_store_spec *spec, size_t n)
{
    for (size_t d = 0; d < n; d++)
        (void)mkdir(f->device[d], 0700);
    spec->devices = f->devices;
    spec->device_count = n;
}

gyre_store_spec spec_of(const model *m)
{
    gyre_store_spec spec = {.size = sizeof(spec)};

    spec.tensors = m->tensors;
    spec.tensor_count = m->count;
    return spec;
}

gyre_store_options plain_options(void)
{
    gyre_store_options options = {.size = sizeof(options)};

    return options;
}

gyre_round_options round_options(void)
{
    gyre_round_options options = {.size = sizeof(options)};

    return options;
}

void fixture_create(fixture *f, const model *m, const gyre_store_spec *spec,
                    const gyre_store_options *options)
{
    gyre_store_spec plain = spec_of(m);

    good(f, gyre_store_create(f->context, f->path, spec != NULL ? spec : &plain,
                              options, &f->store, &f->error));
}

void fixture_open(fixture *f, const gyre_store_options *options)
{
    good(f,
         gyre_store_open(f->context, f->path, options, &f->store, &f->error));
}

void fixture_close(fixture *f)
{
    gyre_store_close(f->store);
    f->store = NULL;
}

/* ---- rounds ----------------------------------------------------------- */

gyre_round *fixture_open_round(fixture *f, const gyre_round_options *options)
{
    gyre_round *round = NULL;

    good(f, gyre_round_begin(f->store, options, &round, &f->error));
    assert_non_null(round);
    return round;
}

gyre_status give(fixture *f, gyre_round *round, size_t tensor, uint64_t first,
                 uint64_t count, const float *data)
{
    gyre_gradient gradient = {.dtype = GYRE_F32, .data = data};

    return gyre_round_gradient(round, tensor, first, count, &gradient,
                               &f->error);
}

void give_tensor(fixture *f, gyre_round *round, const model *m, size_t tensor,
                 uint64_t seed)
{
    size_t n = (size_t)m->elements[tensor];
    float *g = malloc(n * sizeof(float) + 1);

    assert_non_null(g);
    gradient_fill(seed, tensor, 0, n, g);
    good(f, give(f, round, tensor, 0, n, g));
    free(g);
}

void give_all(fixture *f, gyre_round *round, const model *m, uint64_t seed)
{
    for (size_t i = 0; i < m->count; i++)
        if (!(m->tensors[i].flags & GYRE_TENSOR_FROZEN))
            give_tensor(f, round, m, i, seed);
}

void fixture_round(fixture *f, const model *m, uint64_t seed,
                   const gyre_round_options *options, gyre_round_report *report)
{
    gyre_round *round = fixture_open_round(f, options);

    give_all(f, round, m, seed);
    if (report != NULL)
        report->size = sizeof(*report);
    good(f, gyre_round_finish(round, NULL, 0, report, &f->error));
}

gyre_store_info info_of(fixture *f)
{
    gyre_store_info info = {.size = sizeof(info)};

    good(f, gyre_store_get_info(f->store, &info, &f->error));
    return info;
}

uint64_t step_of(fixture *f, size_t tensor)
{
    gyre_tensor t;
    uint64_t step;

    good(f, gyre_store_tensor(f->store, tensor, &t, &step, &f->error));
    return step;
}

snapshot snapshot_of(fixture *f, const model *m)
{
    gyre_store_info info = info_of(f);
    snapshot s = {.round = info.round, .step = info.step};

    good(f, gyre_store_digest(f->store, s.digest, &f->error));
    for (size_t i = 0; i < m->count; i++) {
        size_t n = (size_t)m->elements[i];
        uint32_t *bits = malloc(n * sizeof(*bits) + 1);

        assert_non_null(bits);
        s.slots = mix(s.slots + step_of(f, i));
        for (int k = 0; k < (int)info.slots; k++) {
            if (m->tensors[i].flags & GYRE_TENSOR_FROZEN)
                break;
            good(f, gyre_store_read(f->store, i, k, 0, n, GYRE_F32, bits,
                                    &f->error));
            for (size_t e = 0; e < n; e++)
                s.slots = mix(s.slots + bits[e]);
        }
        free(bits);
    }
    return s;
}

void expect_same_contents(const snapshot *a, const snapshot *b)
{
    assert_string_equal(a->digest, b->digest);
    assert_int_equal(a->slots, b->slots);
    assert_int_equal(a->step, b->step);
}
