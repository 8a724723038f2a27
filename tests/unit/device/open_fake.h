/* SPDX-License-Identifier: Apache-2.0 */
/* Open a library of a room's fake/ and find its state: from then on the modules
 * of this process take it for the real one, whose name it bears. */
#ifndef GYRE_TESTS_UNIT_DEVICE_OPEN_FAKE_H
#define GYRE_TESTS_UNIT_DEVICE_OPEN_FAKE_H

#include "../unit.h"

#include <dlfcn.h>
#include <stdio.h>

static inline void *open_fake_of(const char *room, const char *file,
                                 const char *symbol)
{
    const char *top = getenv("GYRE_TOP_BUILD");
    char path[4096];
    void *library, *state = NULL;

    snprintf(path, sizeof(path), "%s/tests/unit/%s/fake/.libs/%s",
             top != NULL ? top : ".", room, file);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL)
        state = dlsym(library, symbol);
    if (state == NULL)
        fail_msg("%s", dlerror());
    return state;
}

static inline void *open_fake(const char *file, const char *symbol)
{
    return open_fake_of("device", file, symbol);
}

#endif
