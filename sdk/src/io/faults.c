/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults as text, names of errnos, and the count of operations that all
 * faulty queues of a context share.
 */
#include "config.h"

#include "io/engine.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* ---- errnos ---------------------------------------------------------- */

static const struct {
    const char *name;
    int number;
} errnos[] = {
#define ERRNO(name) \
    {               \
#name, name \
    }
    ERRNO(EIO),       ERRNO(ENOSPC),    ERRNO(EINVAL),     ERRNO(EAGAIN),
    ERRNO(EINTR),     ERRNO(ENOMEM),    ERRNO(EPERM),      ERRNO(EACCES),
    ERRNO(EROFS),     ERRNO(EDQUOT),    ERRNO(EFBIG),      ERRNO(EBADF),
    ERRNO(EFAULT),    ERRNO(ENODEV),    ERRNO(ENXIO),      ERRNO(ETIMEDOUT),
    ERRNO(EREMOTEIO), ERRNO(ENODATA),   ERRNO(EOPNOTSUPP), ERRNO(EBUSY),
    ERRNO(ENOSYS),    ERRNO(EMFILE),    ERRNO(ENFILE),     ERRNO(EOVERFLOW),
    ERRNO(ESTALE),    ERRNO(ECANCELED),
#undef ERRNO
};

#define ERRNO_COUNT (sizeof errnos / sizeof errnos[0])

const char *gyre_io_errno_name(int err)
{
    for (size_t i = 0; i < ERRNO_COUNT; i++)
        if (errnos[i].number == err)
            return errnos[i].name;
    return "errno";
}

int gyre_io_errno_number(const char *name, size_t length)
{
    for (size_t i = 0; i < ERRNO_COUNT; i++)
        if (strlen(errnos[i].name) == length &&
            memcmp(errnos[i].name, name, length) == 0)
            return errnos[i].number;
    return 0;
}

/* ---- parsing --------------------------------------------------------- */

/* Decimal digits only: strtoull would take signs and blanks. */
static bool parse_number(const char *text, size_t length, uint64_t *out)
{
    uint64_t n = 0;

    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || !gyre_mul(n, 10, &n) ||
            !gyre_add(n, (uint64_t)(text[i] - '0'), &n))
            return false;
    }
    *out = n;
    return true;
}

static gyre_status fail_item(gyre_error *error, const char *item, size_t length,
                             const char *wrong)
{
    return gyre_fail(error, GYRE_INVALID,
                     "faulty engine: '%.*s' %s; allowed are fail=N[/ERRNO], "
                     "short=N, zero=N, eintr=N, delay=MICROSECONDS, "
                     "reorder=SEED, kill=N, every=N, all, with N from 1",
                     (int)length, item, wrong);
}

static gyre_status parse_fail(const char *item, size_t length,
                              const char *value, size_t value_length,
                              gyre_io_faults *faults, gyre_error *error)
{
    const char *slash = memchr(value, '/', value_length);
    size_t digits = slash ? (size_t)(slash - value) : value_length;

    faults->fail_errno = EIO;
    if (slash) {
        faults->fail_errno =
            gyre_io_errno_number(slash + 1, value_length - digits - 1);
        if (faults->fail_errno == 0)
            return fail_item(error, item, length,
                             "has no known errno (such as EIO, ENOSPC)");
    }
    if (!parse_number(value, digits, &faults->fail) || faults->fail == 0)
        return fail_item(error, item, length, "has no count from 1");
    return GYRE_OK;
}

static gyre_status parse_item(const char *item, size_t length,
                              gyre_io_faults *faults, gyre_error *error)
{
    const struct {
        const char *name;
        uint64_t *value;
        bool zero; /* may be 0 */
    } keys[] = {
        {"short", &faults->shorten, false}, {"zero", &faults->zero, false},
        {"eintr", &faults->eintr, false},   {"delay", &faults->delay, true},
        {"reorder", &faults->seed, true},   {"kill", &faults->kill, false},
        {"every", &faults->every, false},
    };
    const char *equals = memchr(item, '=', length);

    if (length == 3 && memcmp(item, "all", 3) == 0) {
        faults->all = true;
        return GYRE_OK;
    }
    if (!equals)
        return fail_item(error, item, length, "is no NAME=VALUE");
    size_t name = (size_t)(equals - item), rest = length - name - 1;
    if (name == 4 && memcmp(item, "fail", 4) == 0)
        return parse_fail(item, length, equals + 1, rest, faults, error);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strlen(keys[i].name) != name ||
            memcmp(keys[i].name, item, name) != 0)
            continue;
        if (!parse_number(equals + 1, rest, keys[i].value))
            return fail_item(error, item, length, "has no plain number");
        if (*keys[i].value == 0 && !keys[i].zero)
            return fail_item(error, item, length, "counts from 1");
        if (keys[i].value == &faults->seed)
            faults->reorder = true;
        return GYRE_OK;
    }
    return fail_item(error, item, length, "is unknown");
}

static gyre_status parse_inner(const char *text, size_t length,
                               gyre_io_faults *faults, gyre_error *error)
{
    static const char *const names[] = {"auto", "posix", "uring"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0) {
            memcpy(faults->inner, names[i], length + 1);
            return GYRE_OK;
        }
    }
    return gyre_fail(error, GYRE_INVALID,
                     "faulty engine: cannot wrap '%.*s'; write "
                     "faulty:posix or faulty:uring, then faults after commas",
                     (int)length, text);
}

gyre_status gyre_io_faults_parse(const char *text, gyre_io_faults *out,
                                 gyre_error *error)
{
    gyre_io_faults faults = {.inner = "auto", .fail_errno = EIO};
    gyre_status status = GYRE_OK;
    const char *item = text + strlen("faulty");

    if (*item == ':') {
        size_t length = strcspn(++item, ",");
        status = parse_inner(item, length, &faults, error);
        item += length;
    }
    while (!status && *item == ',') {
        size_t length = strcspn(++item, ",");
        status = parse_item(item, length, &faults, error);
        item += length;
    }
    if (status)
        return status;
    if (faults.every && !faults.fail && !faults.shorten && !faults.zero &&
        !faults.eintr)
        return gyre_fail(error, GYRE_INVALID,
                         "faulty engine: every=%llu has no fault to repeat; "
                         "give fail, short, zero or eintr too",
                         (unsigned long long)faults.every);
    if (!gyre_mul(faults.delay, 1000, &faults.delay) ||
        faults.delay > INT64_MAX)
        return gyre_fail(error, GYRE_RANGE, "faulty engine: delay too long");
    *out = faults;
    return GYRE_OK;
}

/* ---- the shared count ------------------------------------------------ */

struct gyre_io_shared {
    atomic_uint_fast64_t submitted;
};

static void shared_release(gyre_context *context, void *state)
{
    gyre_free(context, state, 1, sizeof(gyre_io_shared));
}

gyre_status gyre_io_shared_get(gyre_context *context, gyre_io_shared **out,
                               gyre_error *error)
{
    gyre_io_shared *shared;

    gyre_context_lock(context);
    shared = gyre_context_room(context, GYRE_ROOM_IO);
    if (!shared) {
        shared = gyre_alloc_zero(context, 1, sizeof *shared);
        if (shared) {
            atomic_init(&shared->submitted, 0);
            gyre_context_set_room(context, GYRE_ROOM_IO, shared,
                                  shared_release);
        }
    }
    gyre_context_unlock(context);
    if (!shared)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "count of faulty operations: out of memory");
    *out = shared;
    return GYRE_OK;
}

uint64_t gyre_io_shared_next(gyre_io_shared *shared)
{
    return atomic_fetch_add(&shared->submitted, 1) + 1;
}

uint64_t gyre_io_submitted(gyre_context *context)
{
    gyre_context_lock(context);
    gyre_io_shared *shared = gyre_context_room(context, GYRE_ROOM_IO);
    gyre_context_unlock(context);
    return shared ? atomic_load(&shared->submitted) : 0;
}
