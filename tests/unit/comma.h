/* SPDX-License-Identifier: Apache-2.0 */
/* A locale that writes 0,9: what a host may have set. */
#ifndef GYRE_TESTS_UNIT_COMMA_H
#define GYRE_TESTS_UNIT_COMMA_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Set it, made for this test where the machine has none; false when it cannot
 * be.  setlocale(LC_NUMERIC, "C") ends it. */
static inline bool comma_locale(void)
{
    char folder[] = "/tmp/gyre-locale.XXXXXX", command[200];
    bool set = setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;

    if (set || mkdtemp(folder) == NULL)
        return set;
    snprintf(command, sizeof(command),
             "localedef --no-archive -i de_DE -f UTF-8 %s/de_DE.UTF-8 "
             ">/dev/null 2>&1",
             folder);
    if (system(command) == 0) {
        setenv("LOCPATH", folder, 1);
        set = setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
        unsetenv("LOCPATH");
    }
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0)
        fprintf(stderr, "# %s stays\n", folder);
    return set;
}

#endif
