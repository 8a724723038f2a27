/* SPDX-License-Identifier: Apache-2.0 */
/* The crash explorer over names: a small model of folders and files. */
#include "config.h"

#include "fault/crash.h"

#include "fault/common.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 64, PENDING = 2048, SECTOR = 512, NAMES = 6 };

/* A file, whatever its name. */
typedef struct file {
    uint8_t *data; /* as has landed for sure */
    size_t bytes, room;
    size_t *stamp; /* per sector: the event that wrote it */
} file;

typedef struct name {
    size_t folder;
    char text[64];
    size_t file;
} name;

/* What has happened or not. */
typedef struct pending {
    const gyre_io_event *event;
    size_t order; /* of the event */
    bool is_name;
    name to, from; /* of names */
    size_t file;
    bool ended, forgotten;
    uint64_t flush; /* id of the flush that covers it; 0: none yet */
    bool landed;
    uint64_t tear; /* 0: whole, else a seed */
} pending;

struct crash {
    char folder[CRASH_FOLDERS][FAULT_PATH];
    size_t folders;
    bool first_there; /* the first folder, for sure */
    file base[FILES];
    size_t base_count;
    name base_names[FILES];
    size_t base_name_count;
    bool base_first_there;
    file files[FILES];
    size_t file_count;
    name names[FILES]; /* for sure */
    size_t name_count;
    name live[FILES]; /* as the run sees them */
    size_t live_count;
    const gyre_io_event **events;
    size_t event_count;
    pending pending[PENDING];
    size_t pending_count;
    uint64_t mark;
    crash_check check;
    void *user;
    crash_counts *counts;
};

/* ---- names ------------------------------------------------------------ */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

/* The record keeps the last 47 bytes of a name. */
static bool same_path(const char *path, const char *tail)
{
    return strlen(tail) < 47 ? strcmp(path, tail) == 0 : ends_with(path, tail);
}

static name split(const crash *x, const char *tail)
{
    const char *slash = strrchr(tail, '/');
    char part[FAULT_PATH];
    name n = {.file = FILES};

    assert_non_null(slash);
    snprintf(part, sizeof(part), "%.*s", (int)(slash - tail), tail);
    snprintf(n.text, sizeof(n.text), "%.63s", slash + 1);
    for (n.folder = 0; n.folder < x->folders; n.folder++)
        if (ends_with(x->folder[n.folder], part))
            return n;
    fail_msg("the record names %s, in none of the folders", tail);
    return n;
}

static bool same_name(const name *a, const name *b)
{
    return a->folder == b->folder && strcmp(a->text, b->text) == 0;
}

static void take_name(name *names, size_t *count, const name *gone)
{
    for (size_t i = 0; i < *count; i++)
        if (same_name(&names[i], gone)) {
            names[i] = names[--*count];
            return;
        }
}

static void put_name(name *names, size_t *count, const name *come)
{
    take_name(names, count, come);
    assert_true(*count < FILES);
    names[(*count)++] = *come;
}

static void step_names(name *names, size_t *count, const pending *p)
{
    switch (p->event->kind) {
    case GYRE_IO_MADE:
        put_name(names, count, &p->to);
        break;
    case GYRE_IO_RENAMED:
        take_name(names, count, &p->from);
        put_name(names, count, &p->to);
        break;
    case GYRE_IO_REMOVED:
        take_name(names, count, &p->to);
        break;
    default: /* a folder */
        break;
    }
}

static size_t find_live(const crash *x, const char *tail)
{
    name wanted = split(x, tail);

    for (size_t i = 0; i < x->live_count; i++)
        if (same_name(&x->live[i], &wanted))
            return x->live[i].file;
    fail_msg("the record writes to %s, which is not there", tail);
    return 0;
}

/* ---- contents --------------------------------------------------------- */

static void grow(file *f, size_t bytes)
{
    size_t room = (bytes + SECTOR - 1) / SECTOR * SECTOR;

    if (room > f->room) {
        f->data = realloc(f->data, room);
        f->stamp = realloc(f->stamp, room / SECTOR * sizeof(*f->stamp));
        memset(f->data + f->room, 0, room - f->room);
        memset(f->stamp + f->room / SECTOR, 0,
               (room - f->room) / SECTOR * sizeof(*f->stamp));
        f->room = room;
    }
    if (bytes > f->bytes)
        f->bytes = bytes;
}

static void copy_file(file *to, const file *from)
{
    memset(to, 0, sizeof(*to));
    grow(to, from->bytes);
    if (from->bytes > 0)
        memcpy(to->data, from->data, from->bytes);
    if (from->room > 0)
        memcpy(to->stamp, from->stamp, from->room / SECTOR * sizeof(size_t));
}

static void free_file(file *f)
{
    free(f->data);
    free(f->stamp);
}

static void put(const pending *p, uint64_t tear, file *to)
{
    const gyre_io_event *e = p->event;
    uint64_t state = tear;

    if (e->kind == GYRE_IO_SIZED) {
        grow(to, (size_t)e->bytes);
        return;
    }
    for (size_t at = 0; at < e->bytes; at += SECTOR) {
        size_t n =
            (size_t)e->bytes - at < SECTOR ? (size_t)e->bytes - at : SECTOR;
        size_t sector = (size_t)(e->offset + at) / SECTOR;

        if (tear != 0 && fault_random(&state) % 2 == 0)
            continue;
        grow(to, (size_t)e->offset + at + n);
        if (p->order < to->stamp[sector])
            continue;
        memcpy(to->data + e->offset + at, (const uint8_t *)e->data + at, n);
        to->stamp[sector] = p->order;
    }
}

/* ---- one state -------------------------------------------------------- */

static void clear_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    char path[FAULT_PATH + 260];

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        assert_int_equal(unlink(path), 0);
    }
    closedir(dir);
}

static void lay_file(const crash *x, const name *n)
{
    char path[FAULT_PATH + 260];
    file f;
    int fd;

    copy_file(&f, &x->files[n->file]);
    for (size_t i = 0; i < x->pending_count; i++) {
        const pending *p = &x->pending[i];

        if (!p->is_name && p->file == n->file && p->landed)
            put(p, p->tear, &f);
    }
    snprintf(path, sizeof(path), "%s/%s", x->folder[n->folder], n->text);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    if (f.bytes > 0)
        assert_int_equal(pwrite(fd, f.data, f.bytes, 0), f.bytes);
    close(fd);
    free_file(&f);
}

static void judge(crash *x, size_t place)
{
    crash_state state = {.place = place, .mark = x->mark};
    name names[FILES];
    size_t count = x->name_count;
    bool first = x->first_there;

    memcpy(names, x->names, sizeof(names));
    for (size_t i = 0; i < x->pending_count; i++) {
        const pending *p = &x->pending[i];

        state.names += p->is_name;
        state.writes += !p->is_name;
        if (p->is_name && p->landed) {
            step_names(names, &count, p);
            first |= p->event->kind == GYRE_IO_FOLDER_MADE;
        }
    }
    for (size_t d = 0; d < x->folders; d++)
        clear_folder(x->folder[d]);
    rmdir(x->folder[0]);
    if (first)
        assert_int_equal(mkdir(x->folder[0], 0777), 0);
    for (size_t i = 0; i < count; i++)
        if (first || names[i].folder != 0)
            lay_file(x, &names[i]);
    if (state.names > x->counts->most_names)
        x->counts->most_names = state.names;
    x->counts->states++;
    if (x->check(x->user, &state))
        x->counts->bad++;
}

/* ---- the walk --------------------------------------------------------- */

static bool is_name(gyre_io_event_kind kind)
{
    return kind == GYRE_IO_MADE || kind == GYRE_IO_RENAMED ||
           kind == GYRE_IO_REMOVED || kind == GYRE_IO_FOLDER_MADE;
}

static void add_name(crash *x, pending *p)
{
    const gyre_io_event *e = p->event;

    p->is_name = true;
    if (e->kind == GYRE_IO_FOLDER_MADE) {
        assert_true(same_path(x->folder[0], e->file));
        return;
    }
    p->to = split(x, e->file);
    if (e->kind == GYRE_IO_MADE) {
        assert_true(x->file_count < FILES);
        p->to.file = x->file_count++;
        memset(&x->files[p->to.file], 0, sizeof(file));
    }
    if (e->kind == GYRE_IO_RENAMED) {
        p->from = split(x, e->data);
        p->to.file = find_live(x, e->data);
    }
    step_names(x->live, &x->live_count, p);
}

static void add(crash *x, const gyre_io_event *e, size_t order)
{
    pending *p = &x->pending[x->pending_count++];

    assert_true(x->pending_count < PENDING);
    *p = (pending){.event = e, .order = order};
    if (is_name(e->kind))
        add_name(x, p);
    else
        p->file = find_live(x, e->file);
    p->ended = e->kind == GYRE_IO_SIZED;
}

static bool has_end(const crash *x, size_t from, uint64_t id)
{
    for (size_t i = from; i < x->event_count; i++)
        if (x->events[i]->kind == GYRE_IO_FLUSH_END && x->events[i]->id == id)
            return true;
    return false;
}

static void cover(crash *x, size_t place, const gyre_io_event *e)
{
    size_t f = find_live(x, e->file);
    bool good = has_end(x, place, e->id);

    for (size_t i = 0; i < x->pending_count; i++) {
        pending *p = &x->pending[i];

        if (p->is_name || p->file != f || !p->ended || p->flush != 0)
            continue;
        if (!good)
            p->forgotten = true;
        else if (!p->forgotten)
            p->flush = e->id;
    }
}

static void settle_flush(crash *x, uint64_t flush)
{
    size_t kept = 0;

    for (size_t i = 0; i < x->pending_count; i++) {
        pending *p = &x->pending[i];

        if (!p->is_name && p->flush == flush)
            put(p, 0, &x->files[p->file]);
        else
            x->pending[kept++] = *p;
    }
    x->pending_count = kept;
}

/* Does the name of this step stand in the folder? */
static bool stands_in(const crash *x, const pending *p, const char *folder)
{
    char part[FAULT_PATH];

    snprintf(
        part, sizeof(part), "%s",
        x->folder[p->event->kind == GYRE_IO_FOLDER_MADE ? 0 : p->to.folder]);
    if (p->event->kind == GYRE_IO_FOLDER_MADE)
        *strrchr(part, '/') = '\0';
    return same_path(part, folder);
}

static void settle_folder(crash *x, const char *folder)
{
    size_t kept = 0;

    for (size_t i = 0; i < x->pending_count; i++) {
        const pending *p = &x->pending[i];

        if (p->is_name && stands_in(x, p, folder)) {
            step_names(x->names, &x->name_count, p);
            x->first_there |= p->event->kind == GYRE_IO_FOLDER_MADE;
        } else {
            x->pending[kept++] = *p;
        }
    }
    x->pending_count = kept;
}

/* True when there are states that were not there before. */
static bool step(crash *x, size_t place)
{
    const gyre_io_event *e = x->events[place];

    switch (e->kind) {
    case GYRE_IO_WRITE_END:
        for (size_t i = 0; i < x->pending_count; i++)
            x->pending[i].ended |= x->pending[i].event->id == e->id;
        return false;
    case GYRE_IO_FLUSH_START:
        cover(x, place, e);
        return false;
    case GYRE_IO_FLUSH_END:
        settle_flush(x, e->id);
        return false;
    case GYRE_IO_FOLDER_SYNCED:
        settle_folder(x, e->file);
        return false;
    case GYRE_IO_MARK:
        x->mark = e->id;
        return true;
    default:
        add(x, e, place + 1);
        return true;
    }
}

/* ---- all of them ------------------------------------------------------ */

/* Contents: nothing, all, then random parts, torn or not; what happened last
 * has always happened, else it would be a state from before. */
static void land_contents(crash *x, size_t how, const pending *last,
                          uint64_t *random)
{
    for (size_t i = 0; i < x->pending_count; i++) {
        pending *p = &x->pending[i];

        if (p->is_name)
            continue;
        p->tear = 0;
        p->landed = how == 1;
        if (how > 1) {
            p->landed = fault_random(random) % 2 == 0;
            if (fault_random(random) % 3 == 0)
                p->tear = fault_random(random) | 1;
        }
        p->landed |= p == last;
    }
}

static void judge_place(crash *x, size_t place, size_t samples,
                        uint64_t *random)
{
    size_t n = 0;
    const pending *last = NULL;

    if (x->events[place - 1]->kind != GYRE_IO_MARK)
        last = &x->pending[x->pending_count - 1];
    for (size_t i = 0; i < x->pending_count; i++)
        n += x->pending[i].is_name && &x->pending[i] != last;
    for (uint64_t s = 0; s < (uint64_t)1 << (n < NAMES ? n : NAMES); s++) {
        uint64_t bits = n > NAMES ? fault_random(random) : s;

        for (size_t i = 0; i < x->pending_count; i++) {
            pending *p = &x->pending[i];

            if (!p->is_name)
                continue;
            p->landed = p == last || (bits & 1);
            bits = p == last ? bits : bits >> 1;
        }
        for (size_t how = 0; how < 2 + samples; how++) {
            land_contents(x, how, last, random);
            judge(x, place);
        }
    }
}

static void begin(crash *x)
{
    for (size_t i = 0; i < x->file_count; i++)
        free_file(&x->files[i]);
    for (size_t i = 0; i < x->base_count; i++)
        copy_file(&x->files[i], &x->base[i]);
    x->file_count = x->base_count;
    memcpy(x->names, x->base_names, sizeof(x->names));
    memcpy(x->live, x->base_names, sizeof(x->live));
    x->name_count = x->live_count = x->base_name_count;
    x->first_there = x->base_first_there;
    x->pending_count = 0;
    x->mark = 0;
}

void crash_all(crash *x, size_t samples, uint64_t seed, crash_check check,
               void *user, crash_counts *counts)
{
    uint64_t random = seed;

    x->check = check;
    x->user = user;
    x->counts = counts;
    begin(x);
    for (size_t i = 0; i < x->event_count; i++)
        if (step(x, i))
            judge_place(x, i + 1, samples, &random);
}

/* ---- making ----------------------------------------------------------- */

static void take_file(crash *x, size_t folder, const char *text)
{
    char path[FAULT_PATH + 260];
    file *f = &x->base[x->base_count];
    name n = {.folder = folder, .file = x->base_count};
    struct stat info;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", x->folder[folder], text);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &info) == 0 && x->base_count < FILES);
    grow(f, (size_t)info.st_size);
    assert_int_equal(pread(fd, f->data, f->bytes, 0), f->bytes);
    close(fd);
    x->base_count++;
    snprintf(n.text, sizeof(n.text), "%.63s", text);
    put_name(x->base_names, &x->base_name_count, &n);
}

crash *crash_create(const char *const *folders, size_t count)
{
    crash *x = calloc(1, sizeof(*x));

    assert_true(x != NULL && count <= CRASH_FOLDERS);
    x->folders = count;
    for (size_t d = 0; d < count; d++) {
        DIR *dir = opendir(folders[d]);
        const struct dirent *entry;

        snprintf(x->folder[d], sizeof(x->folder[d]), "%s", folders[d]);
        assert_true(dir != NULL || d == 0);
        if (dir == NULL)
            continue;
        x->base_first_there |= d == 0;
        while ((entry = readdir(dir)) != NULL)
            if (entry->d_name[0] != '.' && strcmp(entry->d_name, "lock") != 0)
                take_file(x, d, entry->d_name);
        closedir(dir);
    }
    return x;
}

void crash_destroy(crash *x)
{
    for (size_t i = 0; i < x->file_count; i++)
        free_file(&x->files[i]);
    for (size_t i = 0; i < x->base_count; i++)
        free_file(&x->base[i]);
    free(x->events);
    free(x);
}

void crash_take(crash *x, const gyre_io_recorder *recorder, crash_drop drop,
                void *user)
{
    size_t n = gyre_io_recorder_count(recorder);

    free(x->events);
    x->events = calloc(n + 1, sizeof(*x->events));
    x->event_count = 0;
    assert_int_equal(gyre_io_recorder_lost(recorder), 0);
    for (size_t i = 0; i < n; i++) {
        const gyre_io_event *e = gyre_io_recorder_at(recorder, i);

        if (drop == NULL || !drop(user, e))
            x->events[x->event_count++] = e;
    }
}
