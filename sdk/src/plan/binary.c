/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans as bytes, about a third of their text.
 *
 *     8 bytes   89 47 59 50 4c 41 4e 0a   (".GYPLAN" and a line feed)
 *     records   code, then the fields as varints (7 bits a byte, low first,
 *               the top bit: more follow); a text is its length and bytes, a
 *               list its length and that many varints
 *     8 bytes   FNV-1a (64 bits) of all before, low byte first
 */
#include "plan/record.h"

#include <string.h>

static const uint8_t magic[8] = {0x89, 'G', 'Y', 'P', 'L', 'A', 'N', '\n'};
enum { VARINT_BYTES = 10 };

/* ---- writing ------------------------------------------------------------- */

static gyre_status put_varint(gyre_sink *sink, uint64_t value,
                              gyre_error *error)
{
    uint8_t bytes[VARINT_BYTES];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    return gyre_sink_put(sink, bytes, n, error);
}

static gyre_status put_field(gyre_sink *sink, const gyre_record *record, int i,
                             uint32_t type, gyre_error *error)
{
    if (type == GYRE_FIELD_TEXT) {
        size_t n = strlen(record->text);
        gyre_status status = put_varint(sink, n, error);
        return status == GYRE_OK ? gyre_sink_put(sink, record->text, n, error)
                                 : status;
    }
    if (type != GYRE_FIELD_LIST)
        return put_varint(sink, record->values[i], error);
    gyre_status status = put_varint(sink, record->list_count, error);
    for (uint32_t k = 0; k < record->list_count && status == GYRE_OK; k++)
        status = put_varint(sink, record->list[k], error);
    return status;
}

static gyre_status put_record(void *user, const gyre_record *record,
                              gyre_error *error)
{
    const gyre_record_form *form = &gyre_record_forms[record->code];
    gyre_status status = put_varint(user, record->code, error);
    for (int i = 0;
         form->fields[i].type != GYRE_FIELD_NONE && status == GYRE_OK; i++)
        status = put_field(user, record, i, form->fields[i].type, error);
    return status;
}

gyre_status gyre_plan_write_binary(const gyre_plan *plan,
                                   gyre_plan_write *write, void *user,
                                   gyre_error *error)
{
    gyre_sink sink = {.write = write, .user = user, .sum = GYRE_SUM_START};
    gyre_status status = gyre_sink_put(&sink, magic, sizeof(magic), error);
    if (status == GYRE_OK)
        status = gyre_plan_save(plan, put_record, &sink, error);
    uint8_t sum[GYRE_SUM_BYTES];
    for (int i = 0; i < GYRE_SUM_BYTES; i++)
        sum[i] = (uint8_t)(sink.sum >> 8 * i);
    if (status == GYRE_OK)
        status = gyre_sink_put(&sink, sum, sizeof(sum), error);
    return status == GYRE_OK ? gyre_sink_flush(&sink, error) : status;
}

/* ---- reading ------------------------------------------------------------- */

static gyre_status read_varint(gyre_source *s, uint64_t most, uint64_t *out,
                               gyre_error *error)
{
    uint64_t value = 0;
    for (int i = 0; i < VARINT_BYTES; i++) {
        if (s->at == s->size)
            return gyre_source_fail(s, error, "the plan ends within a record");
        uint8_t byte = s->data[s->at++];
        if (i == VARINT_BYTES - 1 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            if (value > most)
                break;
            *out = value;
            return GYRE_OK;
        }
    }
    return gyre_source_fail(s, error, "a number is above %llu",
                            (unsigned long long)most);
}

static gyre_status read_text(gyre_source *s, char *out, gyre_error *error)
{
    uint64_t n = 0;
    gyre_status status = read_varint(s, GYRE_RECORD_TEXT - 1, &n, error);
    if (status != GYRE_OK)
        return status;
    if (n > s->size - s->at)
        return gyre_source_fail(s, error, "the plan ends within a text");
    for (uint64_t i = 0; i < n; i++) {
        uint8_t c = s->data[s->at++];
        if (c < 0x20 || c >= 0x7f || c == '"')
            return gyre_source_fail(s, error,
                                    "a text holds the byte %u: only printable "
                                    "ones, no quotation mark",
                                    c);
        out[i] = (char)c;
    }
    out[n] = '\0';
    return GYRE_OK;
}

static gyre_status read_field(gyre_source *s, gyre_record *record, int i,
                              uint32_t type, gyre_error *error)
{
    if (type == GYRE_FIELD_TEXT)
        return read_text(s, record->text, error);
    bool list = type == GYRE_FIELD_LIST;
    uint64_t most = type == GYRE_FIELD_BIG ? UINT64_MAX : UINT32_MAX;
    uint64_t *value = &record->values[i];
    gyre_status status = read_varint(s, most, value, error);
    if (status != GYRE_OK)
        return status;
    bool named = !list && type != GYRE_FIELD_NUMBER && type != GYRE_FIELD_BIG;
    if (named && gyre_field_name(type, *value) == NULL)
        return gyre_source_fail(s, error, "field %d of '%s' cannot be %llu", i,
                                gyre_record_forms[record->code].word,
                                (unsigned long long)*value);
    for (uint64_t k = 0, n = list ? *value : 0; k < n && status == GYRE_OK;
         k++) {
        uint64_t one = 0;
        status = read_varint(s, UINT32_MAX, &one, error);
        if (status == GYRE_OK)
            status = gyre_source_append(s, record, (uint32_t)one, error);
    }
    return status;
}

static gyre_status next(gyre_source *s, gyre_record *record, gyre_error *error)
{
    uint64_t code = 0;
    s->started = s->at;
    gyre_status status = read_varint(s, UINT32_MAX, &code, error);
    if (status != GYRE_OK)
        return status;
    if (code >= GYRE_RECORD_COUNT)
        return gyre_source_fail(s, error, "there is no record %llu",
                                (unsigned long long)code);
    *record = (gyre_record){.code = (uint32_t)code};
    const gyre_record_form *form = &gyre_record_forms[code];
    for (int i = 0;
         form->fields[i].type != GYRE_FIELD_NONE && status == GYRE_OK; i++)
        status = read_field(s, record, i, form->fields[i].type, error);
    return status;
}

static gyre_status close_binary(gyre_source *s, gyre_error *error)
{
    s->started = s->at;
    if (s->size - s->at != GYRE_SUM_BYTES)
        return gyre_source_fail(s, error,
                                "%zu bytes follow the last record: its sum has "
                                "%d",
                                s->size - s->at, GYRE_SUM_BYTES);
    uint64_t sum = 0;
    for (int i = 0; i < GYRE_SUM_BYTES; i++)
        sum |= (uint64_t)s->data[s->at + (size_t)i] << 8 * i;
    if (sum == gyre_sum_add(GYRE_SUM_START, s->data, s->at))
        return GYRE_OK;
    return gyre_fail(error, GYRE_CORRUPT,
                     "%s: the bytes do not have the sum that stands at byte "
                     "%zu: write the plan anew",
                     s->file, s->at);
}

bool gyre_binary_is(const uint8_t *data, size_t size)
{
    return size >= sizeof(magic) && memcmp(data, magic, sizeof(magic)) == 0;
}

void gyre_binary_open(gyre_source *s)
{
    s->at = sizeof(magic);
    s->next = next;
    s->close = close_binary;
}
