/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as a list of records, for files.
 *
 *     plan -> save.c -> records -> text.c | binary.c -> bytes
 *     bytes -> text.c | binary.c -> records -> load.c -> plan
 *
 *     plan name pass problem mask documents* bound* block* chunk*
 *     rows*  { rank slot* view* { group put|get* end | op }* }*  done
 *
 * The codecs know the fields of each record and nothing of their meaning;
 * load.c checks the meaning and nothing of bytes.  gyre-plan(5) is the manual.
 */
#ifndef GYRE_SRC_PLAN_RECORD_H
#define GYRE_SRC_PLAN_RECORD_H

#include "plan/plan.h"

enum { GYRE_PLAN_FILE_VERSION = 1 };

/* The numbers are written in binary files and never change. */
typedef enum gyre_record_code {
    GYRE_RECORD_PLAN = 0,
    GYRE_RECORD_NAME = 1,
    GYRE_RECORD_PASS = 2,
    GYRE_RECORD_PROBLEM = 3,
    GYRE_RECORD_MASK = 4,
    GYRE_RECORD_DOCUMENTS = 5,
    GYRE_RECORD_BOUND = 6,
    GYRE_RECORD_BLOCK = 7,
    GYRE_RECORD_CHUNK = 8,
    GYRE_RECORD_ROWS = 9,
    GYRE_RECORD_RANK = 10,
    GYRE_RECORD_SLOT = 11,
    GYRE_RECORD_VIEW = 12,
    GYRE_RECORD_GROUP = 13,
    GYRE_RECORD_PUT = 14,
    GYRE_RECORD_GET = 15,
    GYRE_RECORD_END = 16,
    GYRE_RECORD_OP = 17,
    GYRE_RECORD_DONE = 18,
    GYRE_RECORD_COUNT
} gyre_record_code;

/* TEXT and LIST stand last in a record.  NUMBER fits 32 bits, BIG 64; the
 * others are small numbers that have names.  LIST: 32-bit numbers, of which
 * GYRE_NO_VIEW is written "-". */
typedef enum gyre_field_type {
    GYRE_FIELD_NONE,
    GYRE_FIELD_NUMBER,
    GYRE_FIELD_BIG,
    GYRE_FIELD_SIDE,
    GYRE_FIELD_PASS,
    GYRE_FIELD_DTYPE,
    GYRE_FIELD_KIND,
    GYRE_FIELD_OP,
    GYRE_FIELD_PATTERN,
    GYRE_FIELD_TEXT,
    GYRE_FIELD_LIST
} gyre_field_type;

enum { GYRE_RECORD_VALUES = 10, GYRE_RECORD_TEXT = 256 };

typedef struct gyre_record_form {
    const char *word;
    struct {
        const char *label; /* stands before the field in text; "": nothing */
        uint8_t type;
    } fields[GYRE_RECORD_VALUES + 1];
} gyre_record_form;

extern const gyre_record_form gyre_record_forms[GYRE_RECORD_COUNT];

/* Name of a value of one of the types that have names; NULL beyond them. */
const char *gyre_field_name(uint32_t type, uint64_t value);

typedef struct gyre_record {
    uint32_t code;
    uint32_t list_count;
    uint64_t values[GYRE_RECORD_VALUES]; /* by place of the field */
    const uint32_t *list;
    char text[GYRE_RECORD_TEXT]; /* printable, no quotation mark */
} gyre_record;

typedef gyre_status gyre_record_put(void *user, const gyre_record *record,
                                    gyre_error *error);
/* Hand over every record of the plan. Errors: NO_MEMORY and what put says. */
gyre_status gyre_plan_save(const gyre_plan *plan, gyre_record_put *put,
                           void *user, gyre_error *error);

/* Where records come from: one of two codecs over bytes in memory. */
typedef struct gyre_source gyre_source;
struct gyre_source {
    gyre_context *context;
    const char *file; /* for messages */
    const uint8_t *data;
    size_t size, at;
    uint64_t line;  /* of the record at hand; 0: binary */
    size_t started; /* its first byte */
    uint32_t *list; /* of the record at hand */
    uint32_t list_room;
    /* The next one; in *record until the call after. */
    gyre_status (*next)(gyre_source *source, gyre_record *record,
                        gyre_error *error);
    /* After DONE: nothing but what may follow. */
    gyre_status (*close)(gyre_source *source, gyre_error *error);
};
void gyre_text_open(gyre_source *source);
void gyre_binary_open(gyre_source *source);
bool gyre_binary_is(const uint8_t *data, size_t size);
/* FORMAT, with the file and line or byte before the text. */
gyre_status gyre_source_fail(const gyre_source *source, gyre_error *error,
                             const char *format, ...) GYRE_PRINTF(3, 4);
/* Add to the list of the record at hand. Errors: NO_MEMORY. */
gyre_status gyre_source_append(gyre_source *source, gyre_record *record,
                               uint32_t value, gyre_error *error);

/* Gathers bytes on their way to a write callback. */
typedef struct gyre_sink {
    gyre_plan_write *write;
    void *user;
    uint64_t sum; /* FNV-1a of all bytes */
    size_t used;
    uint8_t bytes[4096];
} gyre_sink;
gyre_status gyre_sink_put(gyre_sink *sink, const void *data, size_t size,
                          gyre_error *error);
gyre_status gyre_sink_flush(gyre_sink *sink, gyre_error *error);
enum { GYRE_SUM_BYTES = 8 };
#define GYRE_SUM_START UINT64_C(0xcbf29ce484222325)
uint64_t gyre_sum_add(uint64_t sum, const uint8_t *data, size_t size);

#endif
