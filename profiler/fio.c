/* SPDX-License-Identifier: Apache-2.0 */
/* Start fio and read its JSON; see fio.h. */
#include "config.h"

#include "fio.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fio_found(void)
{
    return system("command -v fio >/dev/null 2>&1") == 0;
}

/* A line "name: number" of /proc/meminfo; 0 when it is not there. */
static uint64_t memory_line(const char *name)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    size_t length = strlen(name);
    uint64_t value = 0;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            value = strtoull(line + length + 1, NULL, 10);
            break;
        }
    if (f != NULL)
        fclose(f);
    return value;
}

bool fio_huge_pages(const fio_job *job, char why[160])
{
    uint64_t page = memory_line("Hugepagesize") << 10;
    uint64_t free_pages = memory_line("HugePages_Free");
    /* fio aligns its block of buffers within the pages */
    uint64_t wanted = page > 0 ? job->depth * job->block / page + 2 : 1;

    if (page > 0 && free_pages >= wanted)
        return true;
    snprintf(why, 160,
             "not run: %llu huge pages are free and it needs %llu; sysctl "
             "vm.nr_hugepages=%llu reserves them",
             (unsigned long long)free_pages, (unsigned long long)wanted,
             (unsigned long long)(memory_line("HugePages_Total") + wanted -
                                  (free_pages < wanted ? free_pages : 0)));
    return false;
}

static gyre_status fail(gyre_error *error, const char *text)
{
    if (error != NULL) {
        error->status = GYRE_SYSTEM;
        snprintf(error->text, sizeof(error->text), "%s", text);
    }
    return GYRE_SYSTEM;
}

static double moved(const json_t *job, const char *way)
{
    return json_number_value(
        json_object_get(json_object_get(job, way), "io_bytes"));
}

gyre_status fio_replay(const fio_job *job, double *rate, gyre_error *error)
{
    char command[9000];
    json_error_t trouble;
    json_t *root, *first;
    double ms, bytes;
    FILE *pipe;

    snprintf(command, sizeof(command),
             "fio --name=gyre --read_iolog='%s' --ioengine=io_uring "
             "--iodepth=%u --direct=1 --fixedbufs=1 --bs=%llu --end_fsync=1 "
             "--iomem=%s --output-format=json 2>/dev/null",
             job->log, job->depth, (unsigned long long)job->block,
             job->huge ? "mmaphuge" : "malloc");
    pipe = popen(command, "re");
    if (pipe == NULL)
        return fail(error, "cannot start fio");
    root = json_loadf(pipe, 0, &trouble);
    pclose(pipe);
    first = json_array_get(json_object_get(root, "jobs"), 0);
    ms = json_number_value(json_object_get(first, "job_runtime"));
    bytes = moved(first, "read") + moved(first, "write");
    json_decref(root);
    if (!(ms > 0) || !(bytes > 0))
        return fail(error, "fio did not run (its JSON holds no job)");
    *rate = bytes / (ms * 1e-3);
    return GYRE_OK;
}
