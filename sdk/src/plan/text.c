/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans as text: a line a record, its word first, then its fields, most behind
 * a label.  "#" begins a comment.
 *
 *     gyre-plan 1
 *     name "ring"
 *     slot KV rows 3 heads 0 to 8 dtype f32 buf 1 flags 3
 *     op ATT lane 0 views 0 4 2
 */
#include "plan/record.h"

#include <string.h>

/* ---- writing ------------------------------------------------------------- */

enum { LINE_BYTES = 640 };

static gyre_status put_list(gyre_sink *sink, const gyre_record *record,
                            gyre_error *error)
{
    gyre_status status = GYRE_OK;
    for (uint32_t i = 0; i < record->list_count && status == GYRE_OK; i++) {
        char text[16];
        size_t n =
            record->list[i] == GYRE_NO_VIEW
                ? gyre_print(text, sizeof(text), 0, " -")
                : gyre_print(text, sizeof(text), 0, " %u", record->list[i]);
        status = gyre_sink_put(sink, text, n, error);
    }
    return status;
}

static size_t print_field(char *line, size_t n, const gyre_record *record,
                          int i, const char *label, uint32_t type)
{
    const char *name = gyre_field_name(type, record->values[i]);
    if (label[0] != '\0')
        n = gyre_print(line, LINE_BYTES, n, " %s", label);
    if (type == GYRE_FIELD_LIST)
        return n;
    if (type == GYRE_FIELD_TEXT)
        return gyre_print(line, LINE_BYTES, n, " \"%s\"", record->text);
    if (name != NULL)
        return gyre_print(line, LINE_BYTES, n, " %s", name);
    return gyre_print(line, LINE_BYTES, n, " %llu",
                      (unsigned long long)record->values[i]);
}

static gyre_status put_record(void *user, const gyre_record *record,
                              gyre_error *error)
{
    gyre_sink *sink = user;
    const gyre_record_form *form = &gyre_record_forms[record->code];
    char line[LINE_BYTES];
    size_t n = gyre_print(line, LINE_BYTES, 0, "%s", form->word);
    bool list = false;
    for (int i = 0; form->fields[i].type != GYRE_FIELD_NONE; i++) {
        list |= form->fields[i].type == GYRE_FIELD_LIST;
        n = print_field(line, n, record, i, form->fields[i].label,
                        form->fields[i].type);
    }
    gyre_status status = gyre_sink_put(sink, line, n, error);
    if (status == GYRE_OK && list)
        status = put_list(sink, record, error);
    return status == GYRE_OK ? gyre_sink_put(sink, "\n", 1, error) : status;
}

gyre_status gyre_plan_write_text(const gyre_plan *plan, gyre_plan_write *write,
                                 void *user, gyre_error *error)
{
    gyre_sink sink = {.write = write, .user = user};
    gyre_status status = gyre_plan_save(plan, put_record, &sink, error);
    return status == GYRE_OK ? gyre_sink_flush(&sink, error) : status;
}

/* ---- reading ------------------------------------------------------------- */

typedef struct word {
    const char *at;
    size_t size;
} word;

static bool ends_word(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#';
}

/* The next word of the line; false at its end. */
static bool next_word(gyre_source *s, word *out)
{
    while (s->at < s->size &&
           (s->data[s->at] == ' ' || s->data[s->at] == '\t' ||
            s->data[s->at] == '\r'))
        s->at++;
    size_t from = s->at;
    while (s->at < s->size && !ends_word(s->data[s->at]))
        s->at++;
    *out = (word){(const char *)s->data + from, s->at - from};
    return s->at > from;
}

/* To the start of the next line. */
static void skip_line(gyre_source *s)
{
    while (s->at < s->size && s->data[s->at] != '\n')
        s->at++;
    if (s->at < s->size)
        s->at++;
}

static bool is(const word *w, const char *text)
{
    return strlen(text) == w->size && memcmp(w->at, text, w->size) == 0;
}

/* Of a word, as much as a message shows. */
static int shown(const word *w)
{
    return w->size < 32 ? (int)w->size : 32;
}

static bool read_number(const word *w, uint64_t most, uint64_t *out)
{
    uint64_t n = 0;
    for (size_t i = 0; i < w->size; i++) {
        uint64_t digit = (uint64_t)(w->at[i] - '0');
        if (w->at[i] < '0' || w->at[i] > '9' ||
            __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, digit, &n))
            return false;
    }
    *out = n;
    return w->size > 0 && n <= most;
}

static bool read_name(const word *w, uint32_t type, uint64_t *out)
{
    const char *name;
    for (uint64_t i = 0; (name = gyre_field_name(type, i)) != NULL; i++)
        if (is(w, name)) {
            *out = i;
            return true;
        }
    return false;
}

static gyre_status read_text(gyre_source *s, char *out, gyre_error *error)
{
    while (s->at < s->size && s->data[s->at] == ' ')
        s->at++;
    size_t n = 0;
    if (s->at == s->size || s->data[s->at++] != '"')
        return gyre_source_fail(s, error, "text in quotation marks is missing");
    for (;; n++) {
        uint8_t c = s->at < s->size ? s->data[s->at++] : '\n';
        if (c == '"')
            break;
        if (c < 0x20 || c >= 0x7f || n + 1 == GYRE_RECORD_TEXT)
            return gyre_source_fail(s, error,
                                    "text is up to %d printable characters in "
                                    "quotation marks",
                                    GYRE_RECORD_TEXT - 1);
        out[n] = (char)c;
    }
    out[n] = '\0';
    return GYRE_OK;
}

static gyre_status read_list(gyre_source *s, gyre_record *record,
                             gyre_error *error)
{
    word w;
    while (next_word(s, &w)) {
        uint64_t value = GYRE_NO_VIEW;
        if (!is(&w, "-") && !read_number(&w, UINT32_MAX, &value))
            return gyre_source_fail(s, error, "'%.*s' is no number", shown(&w),
                                    w.at);
        gyre_status status =
            gyre_source_append(s, record, (uint32_t)value, error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

static gyre_status read_field(gyre_source *s, uint32_t type, const char *what,
                              uint64_t *out, gyre_error *error)
{
    word w;
    if (!next_word(s, &w))
        return gyre_source_fail(s, error, "%s is missing", what);
    bool number = type == GYRE_FIELD_NUMBER || type == GYRE_FIELD_BIG;
    uint64_t most = type == GYRE_FIELD_BIG ? UINT64_MAX : UINT32_MAX;
    if (number ? read_number(&w, most, out) : read_name(&w, type, out))
        return GYRE_OK;
    return gyre_source_fail(s, error, "%s cannot be '%.*s'", what, shown(&w),
                            w.at);
}

static gyre_status read_fields(gyre_source *s, gyre_record *record,
                               gyre_error *error)
{
    const gyre_record_form *form = &gyre_record_forms[record->code];
    gyre_status status = GYRE_OK;
    for (int i = 0;
         form->fields[i].type != GYRE_FIELD_NONE && status == GYRE_OK; i++) {
        const char *label = form->fields[i].label;
        uint32_t type = form->fields[i].type;
        word w;
        if (label[0] && (!next_word(s, &w) || !is(&w, label)))
            return gyre_source_fail(s, error, "'%s' is missing after '%s'",
                                    label, form->word);
        if (type == GYRE_FIELD_TEXT)
            status = read_text(s, record->text, error);
        else if (type == GYRE_FIELD_LIST)
            status = read_list(s, record, error);
        else
            status = read_field(s, type, label[0] ? label : form->word,
                                &record->values[i], error);
    }
    return status;
}

/* To the first word of the next record; false at the end of the text. */
static bool find_record(gyre_source *s, word *w)
{
    for (;;) {
        s->line++;
        s->started = s->at;
        if (next_word(s, w))
            return true;
        if (s->at == s->size)
            return false;
        skip_line(s);
    }
}

static gyre_status next(gyre_source *s, gyre_record *record, gyre_error *error)
{
    word w;
    if (!find_record(s, &w))
        return gyre_source_fail(s, error,
                                "the plan ends before its last line, 'done'");
    uint32_t code = 0;
    while (code < GYRE_RECORD_COUNT && !is(&w, gyre_record_forms[code].word))
        code++;
    if (code == GYRE_RECORD_COUNT)
        return gyre_source_fail(
            s, error, "no line of a plan begins with '%.*s'", shown(&w), w.at);
    *record = (gyre_record){.code = code};
    gyre_status status = read_fields(s, record, error);
    if (status != GYRE_OK)
        return status;
    if (next_word(s, &w))
        return gyre_source_fail(s, error, "'%.*s' is too much after '%s'",
                                shown(&w), w.at, gyre_record_forms[code].word);
    skip_line(s);
    return GYRE_OK;
}

static gyre_status close_text(gyre_source *s, gyre_error *error)
{
    word w;
    if (!find_record(s, &w))
        return GYRE_OK;
    return gyre_source_fail(s, error, "'%.*s' stands after 'done'", shown(&w),
                            w.at);
}

void gyre_text_open(gyre_source *s)
{
    s->next = next;
    s->close = close_text;
}
