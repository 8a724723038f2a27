/* SPDX-License-Identifier: Apache-2.0 */
/* A corpus and seeded mutations of it, through a fuzz target. */
#include "config.h"

#include "fuzz.h"

#include <dirent.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t fuzz_draw(void)
{
    static uint64_t seed = 1;
    uint64_t z = seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t fuzz_insert(uint8_t *data, size_t size, size_t at, const void *what,
                   size_t n)
{
    if (size + n > FUZZ_MOST)
        return size;
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, what, n);
    return size + n;
}

size_t fuzz_cut(uint8_t *data, size_t size, size_t at, size_t n)
{
    n = n < size - at ? n : size - at;
    memmove(data + at, data + at + n, size - at - n);
    return size - n;
}

/* In memory exactly as large as it is, for tools that watch the end of it. */
static int try_exact(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);

    if (exact == NULL)
        return 1;
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

static int run_file(const fuzz_target *target, const char *path, int rounds)
{
    static uint8_t data[FUZZ_MOST], changed[FUZZ_MOST];
    FILE *file = fopen(path, "rb");
    size_t size;
    int failed;

    if (file == NULL) {
        fprintf(stderr, "# %s: cannot be read\n", path);
        return 1;
    }
    size = fread(data, 1, sizeof(data), file);
    fclose(file);
    failed = try_exact(data, size);
    while (rounds-- > 0) {
        memcpy(changed, data, size);
        failed |= try_exact(changed, target->change(changed, size));
    }
    return failed;
}

static int run_corpus(const fuzz_target *target, int rounds)
{
    const char *top = getenv("GYRE_TOP_SRC");
    char folder[2048], path[4096];
    struct dirent **entries = NULL;
    int n, failed = 0, count = 0;

    snprintf(folder, sizeof(folder), "%s/tests/fuzz/%s",
             top != NULL ? top : ".", target->folder);
    n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
            failed |= run_file(target, path, rounds);
            count++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("# %d files\n", count);
    return failed || count == 0 || (target->judge != NULL && !target->judge());
}

int fuzz_main(const fuzz_target *target, int argc, char **argv)
{
    const char *more = getenv("GYRE_FUZZ_ROUNDS");
    int rounds = more != NULL ? atoi(more) : target->rounds;
    int failed = 0;

    if (argc == 3 && strcmp(argv[1], "--corpus") == 0 && target->write != NULL)
        return target->write(argv[2]);
    for (int i = 1; i < argc; i++)
        failed |= run_file(target, argv[i], rounds);
    if (argc < 2)
        failed = run_corpus(target, rounds);
    printf("1..1\n%s 1 - %s\n", failed ? "not ok" : "ok", target->what);
    return failed;
}
