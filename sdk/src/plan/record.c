/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of records, and what both codecs need. */
#include "plan/record.h"

#include <string.h>

#define NUMBER(label)            \
    {                            \
        label, GYRE_FIELD_NUMBER \
    }
#define BIG(label)            \
    {                         \
        label, GYRE_FIELD_BIG \
    }
#define DTYPE(label)            \
    {                           \
        label, GYRE_FIELD_DTYPE \
    }
#define TEXT                \
    {                       \
        "", GYRE_FIELD_TEXT \
    }
#define LIST(label)            \
    {                          \
        label, GYRE_FIELD_LIST \
    }
#define SIDE                \
    {                       \
        "", GYRE_FIELD_SIDE \
    }
#define ROW(name, word, ...) [GYRE_RECORD_##name] = {word, {__VA_ARGS__}}

const gyre_record_form gyre_record_forms[GYRE_RECORD_COUNT] = {
    ROW(PLAN, "gyre-plan", NUMBER("")),
    ROW(NAME, "name", TEXT),
    ROW(PASS, "pass", {"", GYRE_FIELD_PASS}),
    ROW(PROBLEM, "problem", NUMBER("ranks"), NUMBER("batch"), NUMBER("heads"),
        NUMBER("kv-heads"), NUMBER("head-dim"), NUMBER("v-head-dim"),
        DTYPE("dtype"), DTYPE("wire"), BIG("tokens"), BIG("kv-tokens")),
    ROW(MASK, "mask", NUMBER("causal"), BIG("window"), NUMBER("documents"),
        BIG("block-q"), BIG("block-k"), NUMBER("block-rows"),
        NUMBER("block-columns")),
    ROW(DOCUMENTS, "documents", NUMBER("")),
    ROW(BOUND, "bound", BIG("")),
    ROW(BLOCK, "block", NUMBER("row"), NUMBER("column")),
    ROW(CHUNK, "chunk", SIDE, BIG("start"), BIG("length"), BIG("stride"),
        NUMBER("owner")),
    ROW(ROWS, "rows", SIDE, LIST("chunks")),
    ROW(RANK, "rank", NUMBER("")),
    ROW(SLOT, "slot", {"", GYRE_FIELD_KIND}, NUMBER("rows"), NUMBER("heads"),
        NUMBER("to"), DTYPE("dtype"), NUMBER("buf"), NUMBER("flags")),
    ROW(VIEW, "view", NUMBER("slot"), NUMBER("rows"), NUMBER("heads"),
        NUMBER("to"), NUMBER("planes")),
    ROW(GROUP, "group", NUMBER("lane"), {"pattern", GYRE_FIELD_PATTERN},
        {"phase", GYRE_FIELD_TEXT}),
    ROW(PUT, "put", NUMBER("view"), NUMBER("peer"), NUMBER("channel")),
    ROW(GET, "get", NUMBER("view"), NUMBER("peer"), NUMBER("channel")),
    ROW(END, "end", {NULL, GYRE_FIELD_NONE}),
    ROW(OP, "op", {"", GYRE_FIELD_OP}, NUMBER("lane"), LIST("views")),
    ROW(DONE, "done", {NULL, GYRE_FIELD_NONE}),
};

const char *gyre_field_name(uint32_t type, uint64_t value)
{
    static const char *const sides[] = {"Q", "KV"};
    static const char *const passes[] = {"forward", "backward"};
    switch (type) {
    case GYRE_FIELD_SIDE:
        return value < GYRE_SIDE_COUNT ? sides[value] : NULL;
    case GYRE_FIELD_PASS:
        return value < GYRE_PASS_COUNT ? passes[value] : NULL;
    case GYRE_FIELD_DTYPE:
        return value <= UINT8_MAX ? gyre_dtype_name((gyre_dtype)value) : NULL;
    case GYRE_FIELD_KIND:
        return value < GYRE_VALUE_COUNT ? gyre_value_name((uint32_t)value)
                                        : NULL;
    case GYRE_FIELD_OP:
        return value < GYRE_OP_COUNT ? gyre_op_name((uint32_t)value) : NULL;
    case GYRE_FIELD_PATTERN:
        return value < GYRE_PATTERN_COUNT ? gyre_pattern_name((uint32_t)value)
                                          : NULL;
    default:
        return NULL;
    }
}

/* ---- reading ------------------------------------------------------------- */

gyre_status gyre_source_fail(const gyre_source *source, gyre_error *error,
                             const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    gyre_fail_list(error, GYRE_FORMAT, format, arguments);
    va_end(arguments);
    if (error == NULL)
        return GYRE_FORMAT;
    if (source->line > 0)
        return gyre_fail_prefix(error, GYRE_FORMAT, "%s:%llu", source->file,
                                (unsigned long long)source->line);
    return gyre_fail_prefix(error, GYRE_FORMAT, "%s: record at byte %zu",
                            source->file, source->started);
}

gyre_status gyre_source_append(gyre_source *source, gyre_record *record,
                               uint32_t value, gyre_error *error)
{
    if (record->list_count == source->list_room) {
        uint32_t room = source->list_room ? source->list_room * 2 : 64;
        uint32_t *list = gyre_grow(source->context, source->list,
                                   source->list_room, room, sizeof(*list));
        if (list == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "%s: no memory for a list of %u numbers",
                             source->file, room);
        source->list = list;
        source->list_room = room;
    }
    source->list[record->list_count++] = value;
    record->list = source->list;
    return GYRE_OK;
}

/* ---- writing ------------------------------------------------------------- */

uint64_t gyre_sum_add(uint64_t sum, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
    return sum;
}

gyre_status gyre_sink_flush(gyre_sink *sink, gyre_error *error)
{
    size_t used = sink->used;
    sink->used = 0;
    return used > 0 ? sink->write(sink->user, sink->bytes, used, error)
                    : GYRE_OK;
}

gyre_status gyre_sink_put(gyre_sink *sink, const void *data, size_t size,
                          gyre_error *error)
{
    const uint8_t *from = data;
    sink->sum = gyre_sum_add(sink->sum, from, size);
    while (size > 0) {
        size_t n = sizeof(sink->bytes) - sink->used;
        n = n < size ? n : size;
        memcpy(sink->bytes + sink->used, from, n);
        sink->used += n;
        from += n;
        size -= n;
        if (sink->used < sizeof(sink->bytes))
            break;
        gyre_status status = gyre_sink_flush(sink, error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}
