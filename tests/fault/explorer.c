/* SPDX-License-Identifier: Apache-2.0 */
/* The crash explorer: walks a record and lays out each state it allows. */
#include "config.h"

#include "fault/explorer.h"

#include "fault/common.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PENDING = 4096, TORN_FORMS = 5 };

typedef struct file {
    const char *path;
    size_t bytes;
    uint8_t *base;    /* before the run */
    uint8_t *durable; /* with what has landed for sure */
    size_t *stamp;    /* per sector of it: the place of the write's start */
    uint8_t *disk;    /* the file itself, mapped */
} file;

typedef struct pending {
    const gyre_io_event *event;
    size_t file, start;
    bool ended, forgotten;
    uint64_t flush; /* the id of the flush that covers it; 0: none yet */
} pending;

/* How one unflushed write landed: the seed gives the form. */
typedef struct landing {
    enum { LOST, WHOLE, FIRST, ALL_BUT_LAST, ALL_BUT_FIRST, LAST, RANDOM } how;
    uint64_t seed;
} landing;

struct explorer {
    file files[EXPLORER_FILES];
    size_t file_count;
    const gyre_io_event **events;
    size_t event_count;
    pending pending[PENDING];
    landing landing[PENDING];
    size_t pending_count;
    uint64_t mark;
    explorer_check check;
    void *user;
    explorer_counts *counts;
};

/* ---- making ----------------------------------------------------------- */

static void take_file(file *f, const char *path)
{
    struct stat info;
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    f->path = path;
    f->bytes = (size_t)info.st_size;
    f->base = malloc(f->bytes);
    f->durable = malloc(f->bytes);
    f->stamp = calloc(f->bytes / EXPLORER_SECTOR + 1, sizeof(*f->stamp));
    f->disk = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(f->disk != MAP_FAILED);
    memcpy(f->base, f->disk, f->bytes);
    close(fd);
}

explorer *explorer_create(const char *const *paths, size_t count)
{
    explorer *x = calloc(1, sizeof(*x));

    assert_true(x != NULL && count <= EXPLORER_FILES);
    for (size_t i = 0; i < count; i++)
        take_file(&x->files[i], paths[i]);
    x->file_count = count;
    return x;
}

void explorer_destroy(explorer *x)
{
    for (size_t i = 0; i < x->file_count; i++) {
        munmap(x->files[i].disk, x->files[i].bytes);
        free(x->files[i].base);
        free(x->files[i].durable);
        free(x->files[i].stamp);
    }
    free(x->events);
    free(x);
}

void explorer_reset(explorer *x)
{
    for (size_t i = 0; i < x->file_count; i++)
        memcpy(x->files[i].disk, x->files[i].base, x->files[i].bytes);
}

void explorer_take(explorer *x, const gyre_io_recorder *recorder,
                   explorer_drop drop, void *user)
{
    size_t n = gyre_io_recorder_count(recorder);
    uint64_t *dropped = calloc(n + 1, sizeof(*dropped));
    size_t drops = 0;

    free(x->events);
    x->events = calloc(n + 1, sizeof(*x->events));
    x->event_count = 0;
    assert_int_equal(gyre_io_recorder_lost(recorder), 0);
    for (size_t i = 0; i < n; i++) {
        const gyre_io_event *e = gyre_io_recorder_at(recorder, i);
        bool start =
            e->kind == GYRE_IO_WRITE_START || e->kind == GYRE_IO_FLUSH_START;
        bool gone = false;

        if (start && drop != NULL && drop(user, e)) {
            dropped[drops++] = e->id;
            gone = true;
        }
        for (size_t k = 0; !start && e->kind != GYRE_IO_MARK && k < drops; k++)
            gone |= dropped[k] == e->id;
        if (!gone)
            x->events[x->event_count++] = e;
    }
    free(dropped);
}

/* ---- one state -------------------------------------------------------- */

static bool lands(const landing *l, size_t sector, size_t sectors)
{
    uint64_t state = l->seed + sector;

    switch (l->how) {
    case LOST:
        return false;
    case WHOLE:
        return true;
    case FIRST:
        return sector == 0;
    case ALL_BUT_LAST:
        return sector + 1 < sectors;
    case ALL_BUT_FIRST:
        return sector > 0;
    case LAST:
        return sector + 1 == sectors;
    default:
        return fault_random(&state) % 2 == 0;
    }
}

/* `stamp` is changed only where `sure`. */
static void put(const pending *p, const landing *l, uint8_t *to, size_t *stamp,
                bool sure)
{
    const gyre_io_event *e = p->event;
    size_t sectors = (size_t)(e->bytes + EXPLORER_SECTOR - 1) / EXPLORER_SECTOR;
    size_t first = (size_t)e->offset / EXPLORER_SECTOR;

    for (size_t s = 0; s < sectors; s++) {
        size_t at = s * EXPLORER_SECTOR;
        size_t n = (size_t)e->bytes - at;

        if (n > EXPLORER_SECTOR)
            n = EXPLORER_SECTOR;
        if (!lands(l, s, sectors) || stamp[first + s] > p->start)
            continue;
        memcpy(to + e->offset + at, (const uint8_t *)e->data + at, n);
        if (sure)
            stamp[first + s] = p->start;
    }
}

static void judge(explorer *x, size_t place)
{
    explorer_state state = {
        .place = place, .mark = x->mark, .unflushed = x->pending_count};

    for (size_t i = 0; i < x->file_count; i++)
        memcpy(x->files[i].disk, x->files[i].durable, x->files[i].bytes);
    for (size_t i = 0; i < x->pending_count; i++) {
        file *f = &x->files[x->pending[i].file];

        put(&x->pending[i], &x->landing[i], f->disk, f->stamp, false);
        state.landed += x->landing[i].how != LOST;
        state.torn += x->landing[i].how > WHOLE;
    }
    x->counts->states++;
    if (x->check(x->user, &state))
        x->counts->bad++;
}

/* ---- the walk --------------------------------------------------------- */

static size_t file_of(const explorer *x, const gyre_io_event *e)
{
    for (size_t i = 0; i < x->file_count; i++) {
        size_t length = strlen(x->files[i].path), tail = strlen(e->file);

        if (length >= tail &&
            strcmp(x->files[i].path + length - tail, e->file) == 0)
            return i;
    }
    fail_msg("the record names %s, which is no device file", e->file);
    return 0;
}

static void begin(explorer *x)
{
    for (size_t i = 0; i < x->file_count; i++)
        memcpy(x->files[i].durable, x->files[i].base, x->files[i].bytes);
    for (size_t i = 0; i < x->file_count; i++)
        memset(x->files[i].stamp, 0,
               (x->files[i].bytes / EXPLORER_SECTOR + 1) * sizeof(size_t));
    x->pending_count = 0;
    x->mark = 0;
}

static void add_write(explorer *x, const gyre_io_event *e, size_t place)
{
    size_t f = file_of(x, e);

    assert_true(x->pending_count < PENDING);
    assert_true(e->offset + e->bytes <= x->files[f].bytes);
    x->pending[x->pending_count++] =
        (pending){.event = e, .file = f, .start = place + 1};
}

static bool has_end(const explorer *x, size_t from, uint64_t id)
{
    for (size_t i = from; i < x->event_count; i++)
        if (x->events[i]->kind == GYRE_IO_FLUSH_END && x->events[i]->id == id)
            return true;
    return false;
}

static void cover(explorer *x, const gyre_io_event *e, size_t place)
{
    size_t f = file_of(x, e);
    bool good = has_end(x, place, e->id);

    for (size_t i = 0; i < x->pending_count; i++) {
        pending *p = &x->pending[i];

        if (p->file != f || !p->ended || p->flush != 0)
            continue;
        if (!good)
            p->forgotten = true;
        else if (!p->forgotten)
            p->flush = e->id;
    }
}

static void settle(explorer *x, uint64_t flush)
{
    const landing whole = {WHOLE, 0};
    size_t kept = 0;

    for (size_t i = 0; i < x->pending_count; i++) {
        pending *p = &x->pending[i];

        if (p->flush == flush)
            put(p, &whole, x->files[p->file].durable, x->files[p->file].stamp,
                true);
        else
            x->pending[kept++] = *p;
    }
    x->pending_count = kept;
}

static void step(explorer *x, size_t place)
{
    const gyre_io_event *e = x->events[place];

    switch (e->kind) {
    case GYRE_IO_WRITE_START:
        add_write(x, e, place);
        break;
    case GYRE_IO_WRITE_END:
        for (size_t i = 0; i < x->pending_count; i++)
            x->pending[i].ended |= x->pending[i].event->id == e->id;
        break;
    case GYRE_IO_FLUSH_START:
        cover(x, e, place);
        break;
    case GYRE_IO_FLUSH_END:
        settle(x, e->id);
        break;
    case GYRE_IO_MARK:
        x->mark = e->id;
        break;
    default: /* names: crash.c */
        break;
    }
    if (x->pending_count > x->counts->most_unflushed)
        x->counts->most_unflushed = x->pending_count;
}

/* ---- all of them ------------------------------------------------------ */

/* The landed writes of `subset` whole, then torn. */
static void judge_subset(explorer *x, size_t place, const bool *subset,
                         size_t tears, uint64_t *random)
{
    for (size_t t = 0; t <= tears; t++) {
        size_t torn = 0;

        for (size_t i = 0; i < x->pending_count; i++) {
            landing *l = &x->landing[i];

            l->how = subset[i] ? WHOLE : LOST;
            if (t == 0 || !subset[i])
                continue;
            torn++;
            l->seed = fault_random(random);
            l->how = (int)(WHOLE +
                           (t <= TORN_FORMS ? t : l->seed % (TORN_FORMS + 1)));
        }
        if (t > 0 && torn == 0)
            break;
        judge(x, place);
    }
}

static void judge_place(explorer *x, size_t place, bool with_last, size_t most,
                        size_t tears, uint64_t *random)
{
    size_t n = x->pending_count - with_last;
    uint64_t count = (uint64_t)1 << (n < most ? n : most);
    bool subset[PENDING];

    for (uint64_t s = 0; s < count; s++) {
        uint64_t bits = s;

        for (size_t i = 0; i < n; i++) {
            if (n > most && i % 64 == 0)
                bits = fault_random(random);
            subset[i] = bits >> i % 64 & 1;
        }
        subset[n] = true; /* the newest one, or not looked at */
        judge_subset(x, place, subset, tears, random);
    }
}

void explorer_all(explorer *x, size_t most, size_t tears, uint64_t seed,
                  explorer_check check, void *user, explorer_counts *counts)
{
    uint64_t random = seed;

    x->check = check;
    x->user = user;
    x->counts = counts;
    begin(x);
    for (size_t i = 0; i < x->event_count; i++) {
        const gyre_io_event *e = x->events[i];

        step(x, i);
        if (e->kind == GYRE_IO_WRITE_START || e->kind == GYRE_IO_MARK)
            judge_place(x, i + 1, e->kind == GYRE_IO_WRITE_START, most, tears,
                        &random);
    }
}

/* ---- samples ---------------------------------------------------------- */

static void judge_random(explorer *x, size_t place, uint64_t *random)
{
    /* From almost nothing to almost everything landed. */
    uint64_t share = fault_random(random) % 9;
    bool tear = fault_random(random) % 2 == 0;

    for (size_t i = 0; i < x->pending_count; i++) {
        landing *l = &x->landing[i];

        l->how = fault_random(random) % 8 < share ? WHOLE : LOST;
        if (l->how == WHOLE && tear && fault_random(random) % 2 == 0)
            l->how = (int)(FIRST + fault_random(random) % TORN_FORMS);
        l->seed = fault_random(random);
    }
    judge(x, place);
}

void explorer_sample(explorer *x, uint64_t samples, uint64_t seed,
                     explorer_check check, void *user, explorer_counts *counts)
{
    uint64_t random = seed, places = 0;
    uint64_t *here = calloc(x->event_count + 1, sizeof(*here));
    bool *open = calloc(x->event_count + 1, sizeof(*open));

    x->check = check;
    x->user = user;
    x->counts = counts;
    begin(x);
    for (size_t i = 0; i < x->event_count; i++) {
        step(x, i);
        open[i] = x->pending_count > 0;
        places += open[i];
    }
    assert_true(places > 0);
    /* Which of the places: spread evenly, the rest at random. */
    for (size_t i = 0; i < x->event_count; i++)
        here[i] = open[i] ? samples / places : 0;
    for (uint64_t rest = samples % places; rest > 0;) {
        size_t i = (size_t)(fault_random(&random) % x->event_count);

        here[i] += open[i];
        rest -= open[i];
    }
    begin(x);
    for (size_t i = 0; i < x->event_count; i++) {
        step(x, i);
        for (uint64_t k = 0; k < here[i]; k++)
            judge_random(x, i + 1, &random);
    }
    free(here);
    free(open);
}
