/* SPDX-License-Identifier: Apache-2.0 */
/* Reading safetensors: a header that may be hostile, then plain arrays. */
#include "config.h"

#include "io/io.h"
#include "store/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint32_t bytes;
    int known;
    gyre_dtype as;
} dtypes[] = {
    {"F32", 4, 1, GYRE_F32},     {"F64", 8, 1, GYRE_F64},
    {"BF16", 2, 1, GYRE_BF16},   {"F16", 2, 1, GYRE_F16},
    {"I64", 8, 0, GYRE_I32},     {"U64", 8, 0, GYRE_I32},
    {"I32", 4, 0, GYRE_I32},     {"U32", 4, 0, GYRE_I32},
    {"I16", 2, 0, GYRE_I32},     {"U16", 2, 0, GYRE_I32},
    {"I8", 1, 0, GYRE_I32},      {"U8", 1, 0, GYRE_I32},
    {"BOOL", 1, 0, GYRE_I32},    {"F8_E4M3", 1, 0, GYRE_I32},
    {"F8_E5M2", 1, 0, GYRE_I32},
};

/* ---- one tensor ------------------------------------------------------- */

typedef struct parser {
    gyre_st *st;
    uint64_t data_at; /* first byte behind the header */
    uint64_t data_bytes;
    gyre_error *error;
} parser;

static gyre_status bad(const parser *p, const char *name, const char *field,
                       const char *want)
{
    return gyre_fail(p->error, GYRE_FORMAT,
                     "%s: tensor \"%.200s\": field \"%s\" must be %s",
                     p->st->path, name, field, want);
}

static gyre_status read_dtype(const parser *p, const char *name,
                              const json_t *value, gyre_st_tensor *out)
{
    const char *text = json_string_value(value);

    for (size_t i = 0; text != NULL && i < sizeof(dtypes) / sizeof(dtypes[0]);
         i++) {
        if (strcmp(text, dtypes[i].name) != 0)
            continue;
        snprintf(out->dtype, sizeof(out->dtype), "%s", text);
        out->item = dtypes[i].bytes;
        out->known = dtypes[i].known;
        out->as = dtypes[i].as;
        return GYRE_OK;
    }
    return bad(p, name, "dtype", "a dtype of the format, such as \"F32\"");
}

static gyre_status read_shape(const parser *p, const char *name,
                              const json_t *value, gyre_st_tensor *out)
{
    size_t rank = json_array_size(value);

    if (!json_is_array(value))
        return bad(p, name, "shape", "an array of numbers");
    if (rank > GYRE_MAX_RANK)
        return bad(p, name, "shape", "of at most 8 dimensions");
    out->rank = (uint32_t)rank;
    out->elements = 1;
    for (size_t k = 0; k < rank; k++) {
        const json_t *n = json_array_get(value, k);

        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return bad(p, name, "shape", "an array of whole numbers from 0");
        out->shape[k] = (uint64_t)json_integer_value(n);
    }
    /* A 0 makes it empty, however large the other dimensions are. */
    for (size_t k = 0; k < rank; k++)
        if (out->shape[k] == 0)
            out->elements = 0;
    for (size_t k = 0; k < rank && out->elements > 0; k++)
        if (!gyre_mul(out->elements, out->shape[k], &out->elements))
            return bad(p, name, "shape", "of less than 2^64 elements");
    return GYRE_OK;
}

static gyre_status read_offsets(const parser *p, const char *name,
                                const json_t *value, gyre_st_tensor *out)
{
    const json_t *begin = json_array_get(value, 0);
    const json_t *end = json_array_get(value, 1);
    uint64_t bytes = UINT64_MAX; /* said when the product overflows */

    if (json_array_size(value) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin))
        return bad(p, name, "data_offsets", "two numbers, begin and end");
    out->begin = (uint64_t)json_integer_value(begin);
    out->end = (uint64_t)json_integer_value(end);
    if (out->end > p->data_bytes)
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: tensor \"%.200s\": field \"data_offsets\" ends "
                         "at %llu, and the file has %llu bytes of data: it is "
                         "truncated, or its header is wrong",
                         p->st->path, name, (unsigned long long)out->end,
                         (unsigned long long)p->data_bytes);
    if (!gyre_mul(out->elements, out->item, &bytes) ||
        bytes != out->end - out->begin)
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: tensor \"%.200s\": field \"data_offsets\" spans "
                         "%llu bytes, its shape and dtype need %llu",
                         p->st->path, name,
                         (unsigned long long)(out->end - out->begin),
                         (unsigned long long)bytes);
    return GYRE_OK;
}

static gyre_status read_tensor(const parser *p, const char *name,
                               const json_t *value)
{
    gyre_st *st = p->st;
    gyre_st_tensor *t = &st->tensors[st->count];
    gyre_status status;

    if (name[0] == '\0')
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: a tensor has an empty name", st->path);
    if (!json_is_object(value))
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: tensor \"%.200s\" must be an object with dtype, "
                         "shape, data_offsets",
                         st->path, name);
    status = read_dtype(p, name, json_object_get(value, "dtype"), t);
    if (status == GYRE_OK)
        status = read_shape(p, name, json_object_get(value, "shape"), t);
    if (status == GYRE_OK)
        status =
            read_offsets(p, name, json_object_get(value, "data_offsets"), t);
    if (status != GYRE_OK)
        return status;
    t->name = gyre_copy_text(st->context, name);
    if (t->name == NULL)
        return gyre_fail(p->error, GYRE_NO_MEMORY, "%s: no memory", st->path);
    st->count++;
    return GYRE_OK;
}

/* ---- metadata --------------------------------------------------------- */

static gyre_status read_pair(const parser *p, const char *key,
                             const json_t *value)
{
    gyre_st *st = p->st;
    gyre_st_pair *pair = &st->pairs[st->pair_count];

    if (!json_is_string(value))
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: field \"__metadata__\": \"%.200s\" must be a "
                         "text",
                         st->path, key);
    pair->key = gyre_copy_text(st->context, key);
    pair->value = gyre_copy_text(st->context, json_string_value(value));
    st->pair_count++;
    if (pair->key == NULL || pair->value == NULL)
        return gyre_fail(p->error, GYRE_NO_MEMORY, "%s: no memory", st->path);
    return GYRE_OK;
}

static gyre_status read_metadata(const parser *p, json_t *object)
{
    gyre_st *st = p->st;
    gyre_status status = GYRE_OK;
    const char *key;
    json_t *value;

    if (object == NULL)
        return GYRE_OK;
    if (!json_is_object(object))
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: field \"__metadata__\" must be an object",
                         st->path);
    st->pair_room = json_object_size(object);
    st->pairs = gyre_alloc_zero(st->context, st->pair_room, sizeof(*st->pairs));
    if (st->pairs == NULL)
        return gyre_fail(p->error, GYRE_NO_MEMORY, "%s: no memory", st->path);
    json_object_foreach(object, key, value)
    {
        status = read_pair(p, key, value);
        if (status != GYRE_OK)
            break;
    }
    return status;
}

/* ---- all of them ------------------------------------------------------ */

static int by_place(const void *a, const void *b)
{
    const gyre_st_tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Neither overlaps nor gaps: what no tensor covers could hide anything. */
static gyre_status check_places(const parser *p)
{
    gyre_st *st = p->st;
    uint64_t at = 0;

    qsort(st->tensors, st->count, sizeof(*st->tensors), by_place);
    for (size_t i = 0; i < st->count; i++) {
        gyre_st_tensor *t = &st->tensors[i];

        if (t->begin != at)
            return gyre_fail(p->error, GYRE_FORMAT,
                             "%s: tensor \"%.200s\": field \"data_offsets\" "
                             "begins at %llu, which %s; wanted is %llu",
                             st->path, t->name, (unsigned long long)t->begin,
                             t->begin < at ? "overlaps another tensor"
                                           : "leaves a gap",
                             (unsigned long long)at);
        at = t->end;
        t->begin += p->data_at;
        t->end += p->data_at;
    }
    if (at != p->data_bytes)
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: %llu bytes behind the last tensor belong to "
                         "none",
                         st->path, (unsigned long long)(p->data_bytes - at));
    return GYRE_OK;
}

static gyre_status read_root(const parser *p, json_t *root)
{
    gyre_st *st = p->st;
    gyre_status status;
    const char *key;
    json_t *value;

    if (!json_is_object(root))
        return gyre_fail(p->error, GYRE_FORMAT,
                         "%s: the header must be a JSON object", st->path);
    status = read_metadata(p, json_object_get(root, "__metadata__"));
    if (status != GYRE_OK)
        return status;
    st->room = json_object_size(root);
    st->tensors = gyre_alloc_zero(st->context, st->room, sizeof(*st->tensors));
    if (st->tensors == NULL)
        return gyre_fail(p->error, GYRE_NO_MEMORY, "%s: no memory", st->path);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        status = read_tensor(p, key, value);
        if (status != GYRE_OK)
            return status;
    }
    return check_places(p);
}

gyre_status gyre_st_parse(gyre_context *context, const char *path,
                          const void *header, size_t bytes, uint64_t file_bytes,
                          gyre_st *out, gyre_error *error)
{
    gyre_st st = {.context = context, .fd = -1};
    parser p = {&st, GYRE_ST_HEAD + (uint64_t)bytes, 0, error};
    json_error_t trouble;
    json_t *root;
    gyre_status status;

    if (bytes > GYRE_ST_MOST || p.data_at > file_bytes)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: a header of %zu bytes does not fit", path, bytes);
    p.data_bytes = file_bytes - p.data_at;
    /* So the format says; it also keeps other JSON files out. */
    if (bytes == 0 || *(const char *)header != '{')
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: not a safetensors file (the header does not "
                         "begin with \"{\")",
                         path);
    st.path = gyre_copy_text(context, path);
    if (st.path == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory", path);
    root = json_loadb(header, bytes, JSON_REJECT_DUPLICATES, &trouble);
    if (root != NULL)
        status = read_root(&p, root);
    else
        status = gyre_fail(error, GYRE_FORMAT, "%s: header, byte %d: %s", path,
                           trouble.position, trouble.text);
    json_decref(root);
    if (status != GYRE_OK)
        gyre_st_close(&st);
    else
        *out = st;
    return status;
}

/* ---- the file --------------------------------------------------------- */

static gyre_status read_header(gyre_context *context, int fd, const char *path,
                               gyre_st *out, gyre_error *error)
{
    unsigned char head[GYRE_ST_HEAD];
    struct stat info;
    uint64_t bytes = 0, room;
    char *header;
    gyre_status status;

    if (fstat(fd, &info) != 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "cannot read %s", path);
    if (!S_ISREG(info.st_mode) || info.st_size < GYRE_ST_HEAD)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: not a safetensors file (no header)", path);
    status = gyre_io_read_at(fd, path, head, sizeof(head), 0, error);
    if (status != GYRE_OK)
        return status;
    for (int i = GYRE_ST_HEAD - 1; i >= 0; i--)
        bytes = bytes << 8 | head[i];
    room = (uint64_t)info.st_size - GYRE_ST_HEAD;
    if (bytes > room || bytes > GYRE_ST_MOST)
        return gyre_fail(
            error, GYRE_FORMAT,
            "%s: its header would have %llu bytes; at most %llu "
            "are allowed here: not a safetensors file, or "
            "truncated",
            path, (unsigned long long)bytes,
            (unsigned long long)(room < GYRE_ST_MOST ? room : GYRE_ST_MOST));
    header = gyre_alloc(context, (size_t)bytes, 1);
    if (header == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "%s: no memory for a header of %llu bytes", path,
                         (unsigned long long)bytes);
    status =
        gyre_io_read_at(fd, path, header, (size_t)bytes, GYRE_ST_HEAD, error);
    if (status == GYRE_OK)
        status = gyre_st_parse(context, path, header, (size_t)bytes,
                               (uint64_t)info.st_size, out, error);
    gyre_free(context, header, (size_t)bytes, 1);
    return status;
}

gyre_status gyre_st_open(gyre_context *context, const char *path, gyre_st *out,
                         gyre_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    gyre_status status;

    if (fd < 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "cannot open %s", path);
    status = read_header(context, fd, path, out, error);
    if (status == GYRE_OK)
        out->fd = fd;
    else
        close(fd);
    return status;
}

void gyre_st_close(gyre_st *st)
{
    if (st->fd >= 0)
        close(st->fd);
    for (size_t i = 0; i < st->count; i++)
        gyre_free_text(st->context, st->tensors[i].name);
    gyre_free(st->context, st->tensors, st->room, sizeof(*st->tensors));
    for (size_t i = 0; i < st->pair_count; i++) {
        gyre_free_text(st->context, st->pairs[i].key);
        gyre_free_text(st->context, st->pairs[i].value);
    }
    gyre_free(st->context, st->pairs, st->pair_room, sizeof(*st->pairs));
    gyre_free_text(st->context, st->path);
    memset(st, 0, sizeof(*st));
    st->fd = -1;
}

const char *gyre_st_metadata(const gyre_st *st, const char *key)
{
    for (size_t i = 0; i < st->pair_count; i++)
        if (strcmp(st->pairs[i].key, key) == 0)
            return st->pairs[i].value;
    return NULL;
}

gyre_status gyre_st_read(const gyre_st *st, const gyre_st_tensor *tensor,
                         uint64_t first, size_t n, float *out,
                         gyre_error *error)
{
    uint64_t offset = tensor->begin + first * tensor->item;
    double block[4096];

    while (n > 0) {
        size_t room = sizeof(block) / tensor->item;
        size_t m = room < n ? room : n;
        gyre_status status = gyre_io_read_at(st->fd, st->path, block,
                                             m * tensor->item, offset, error);

        if (status != GYRE_OK)
            return gyre_fail_prefix(error, status, "tensor \"%.200s\"",
                                    tensor->name);
        gyre_to_f32(tensor->as, block, 1, out, m);
        offset += m * tensor->item;
        out += m;
        n -= m;
    }
    return GYRE_OK;
}
