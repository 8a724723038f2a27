/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a room records.  When an object is made:
 *
 *     object->name_read = gyre_trace_intern(context, "read chunk");
 *
 * and around the work, at one branch each when the trace is off:
 *
 *     uint64_t begin = gyre_trace_begin(object->name_read);
 *     ...
 *     gyre_trace_end(context, GYRE_TRACE_STORAGE_READ, object->name_read,
 *                    begin, bytes);
 *
 * With configure's --disable-trace both are empty.
 */
#ifndef GYRE_SRC_TRACE_TRACE_H
#define GYRE_SRC_TRACE_TRACE_H

#include <gyre/trace.h>

#include "base/base.h"

/* A span whose times the caller has. */
static inline void gyre_trace_span(gyre_context *context,
                                   gyre_trace_category category, uint32_t name,
                                   uint64_t begin, uint64_t end, uint64_t arg)
{
#ifdef GYRE_NO_TRACE
    (void)context, (void)category, (void)name;
    (void)begin, (void)end, (void)arg;
#else
    if (name != 0)
        gyre_trace_record(context, category, name, begin, end, arg);
#endif
}

/* Now, or 0 when the trace is off. */
static inline uint64_t gyre_trace_begin(uint32_t name)
{
#ifdef GYRE_NO_TRACE
    (void)name;
    return 0;
#else
    return name != 0 ? gyre_now() : 0;
#endif
}

/* The span from `begin` to now. */
static inline void gyre_trace_end(gyre_context *context,
                                  gyre_trace_category category, uint32_t name,
                                  uint64_t begin, uint64_t arg)
{
#ifdef GYRE_NO_TRACE
    (void)context, (void)category, (void)name, (void)begin, (void)arg;
#else
    if (name != 0)
        gyre_trace_record(context, category, name, begin, gyre_now(), arg);
#endif
}

#endif
