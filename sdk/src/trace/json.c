/* SPDX-License-Identifier: Apache-2.0 */
/* The trace as Chrome trace events. */
#include "config.h"

#include "trace/tracer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- text ------------------------------------------------------------ */

/* Bytes of the well-formed UTF-8 character at text, or 0. */
static int utf8_bytes(const unsigned char *text)
{
    int bytes = text[0] < 0x80                       ? 1
                : text[0] >= 0xc2 && text[0] <= 0xdf ? 2
                : text[0] >= 0xe0 && text[0] <= 0xef ? 3
                : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                     : 0;

    for (int i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((text[0] == 0xe0 && text[1] < 0xa0) ||  /* overlong */
        (text[0] == 0xed && text[1] >= 0xa0) || /* surrogate */
        (text[0] == 0xf0 && text[1] < 0x90) ||  /* overlong */
        (text[0] == 0xf4 && text[1] >= 0x90))   /* beyond U+10FFFF */
        return 0;
    return bytes;
}

/* A JSON string; bytes that are not UTF-8 become U+FFFD. */
static void put_text(FILE *file, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;

    fputc('"', file);
    while (*c != '\0') {
        int bytes = utf8_bytes(c);

        if (bytes == 0) {
            fputs("\\ufffd", file);
            c++;
        } else if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c++);
        } else if (*c < 0x20) {
            fprintf(file, "\\u%04x", *c++);
        } else {
            fwrite(c, 1, (size_t)bytes, file);
            c += bytes;
        }
    }
    fputc('"', file);
}

/* Nanoseconds as microseconds, without a double that would round them. */
static void put_micro(FILE *file, const char *key, uint64_t ns)
{
    fprintf(file, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000,
            (unsigned)(ns % 1000));
}

/* ---- events ---------------------------------------------------------- */

static void put_cell(FILE *file, gyre_tracer *tracer,
                     const gyre_trace_cell *cell, uint64_t base, long pid)
{
    const char *category =
        gyre_trace_category_name((gyre_trace_category)cell->category);

    fputs("{\"name\":", file);
    put_text(file, gyre_tracer_name(tracer, cell->name));
    fputs(",\"cat\":", file);
    put_text(file, category != NULL ? category : "unknown");
    fputs(",\"ph\":\"X\"", file);
    put_micro(file, "ts", cell->begin - base);
    put_micro(file, "dur", cell->end - cell->begin);
    fprintf(file,
            ",\"pid\":%ld,\"tid\":%" PRIu32 ",\"args\":{\"arg\":%" PRIu64 "}}",
            pid, cell->thread, cell->arg);
}

static void put_threads(FILE *file, gyre_tracer *tracer, long pid,
                        const char **comma)
{
    uint32_t count;

    pthread_mutex_lock(&tracer->lock);
    count = tracer->thread_count;
    pthread_mutex_unlock(&tracer->lock);
    for (uint32_t thread = 1; thread <= count; thread++) {
        const char *name = gyre_tracer_thread_name(tracer, thread);

        if (name == NULL)
            continue;
        fprintf(file,
                "%s\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%ld,"
                "\"tid\":%" PRIu32 ",\"args\":{\"name\":",
                *comma, pid, thread);
        put_text(file, name);
        fputs("}}", file);
        *comma = ",";
    }
}

static void put_all(FILE *file, gyre_tracer *tracer,
                    const gyre_trace_cell *cells, uint64_t count)
{
    uint64_t base = count > 0 ? cells[0].begin : 0;
    long pid = (long)getpid();
    const char *comma = "";

    fputs("{\"traceEvents\":[", file);
    put_threads(file, tracer, pid, &comma);
    for (uint64_t i = 0; i < count; i++) {
        fprintf(file, "%s\n", comma);
        put_cell(file, tracer, &cells[i], base, pid);
        comma = ",";
    }
    fprintf(file,
            "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{"
            "\"producer\":\"gyre %s\",\"records\":%" PRIu64
            ",\"dropped\":%" PRIu64 ",\"clock_base_ns\":%" PRIu64
            ",\"record_cost_ns\":%.1f}}\n",
            gyre_version(), count, gyre_trace_dropped(tracer->context), base,
            gyre_trace_cost(tracer->context));
}

/* ---- the file -------------------------------------------------------- */

/* Written beside and renamed, so that nobody reads half a file; a pipe or a
 * terminal is written as it is. */
static gyre_status write_file(gyre_tracer *tracer, const char *path,
                              const gyre_trace_cell *cells, uint64_t count,
                              gyre_error *error)
{
    size_t bytes = strlen(path) + sizeof(".tmp");
    char *beside = gyre_alloc(tracer->context, bytes, 1);
    const char *target = beside;
    struct stat there;
    gyre_status status = GYRE_OK;
    FILE *file;
    int failed;

    if (beside == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "trace: no memory to write");
    snprintf(beside, bytes, "%s.tmp", path);
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        target = path;
    file = fopen(target, "we");
    if (file == NULL) {
        status =
            gyre_fail_errno(error, GYRE_IO, errno, "trace: open %s", target);
        goto free_beside;
    }
    put_all(file, tracer, cells, count);
    failed = ferror(file) ? EIO : 0;
    if (fclose(file) != 0)
        failed = errno;
    if (failed == 0 && target == beside && rename(beside, path) != 0)
        failed = errno;
    if (failed != 0) {
        status =
            gyre_fail_errno(error, GYRE_IO, failed, "trace: write %s", path);
        if (target == beside)
            unlink(beside);
    }

free_beside:
    gyre_free(tracer->context, beside, bytes, 1);
    return status;
}

gyre_status gyre_trace_write_json(gyre_context *context, const char *path,
                                  gyre_error *error)
{
    gyre_tracer *tracer;
    gyre_trace_cell *cells = NULL;
    uint64_t count = 0;
    uint64_t room = 0;
    gyre_status status;

    if (path == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_trace_write_json: path is NULL");
#ifdef GYRE_NO_TRACE
    return gyre_fail(error, GYRE_UNSUPPORTED,
                     "trace: this library was configured with "
                     "--disable-trace");
#endif
    if (gyre_context_trace_records(context) == 0)
        return gyre_fail(error, GYRE_STATE,
                         "trace: off; set option trace_records above 0");
    tracer = gyre_tracer_make(context);
    if (tracer == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "trace: no memory");
    status = gyre_tracer_copy(tracer, &cells, &count, &room, error);
    if (status != GYRE_OK)
        return status;
    status = write_file(tracer, path, cells, count, error);
    gyre_free(context, cells, room, sizeof(*cells));
    return status;
}
