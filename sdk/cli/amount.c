/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts and times as people read them. */
#include "config.h"

#include "amount.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

const char *cli_bytes(double bytes, char text[16])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    unsigned unit = 0;

    while (bytes >= 999.5 && unit < 5) {
        bytes /= 1000;
        unit++;
    }
    snprintf(text, 16, unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s",
             bytes, units[unit]);
    return text;
}

const char *cli_seconds(double seconds, char text[16])
{
    uint64_t all;

    if (!(seconds < 359999999))
        return strcpy(text, "?");
    all = (uint64_t)(seconds + 0.5);
    if (all >= 3600)
        snprintf(text, 16, "%u:%02u:%02u", (unsigned)(all / 3600),
                 (unsigned)(all / 60 % 60), (unsigned)(all % 60));
    else
        snprintf(text, 16, "%u:%02u", (unsigned)(all / 60),
                 (unsigned)(all % 60));
    return text;
}
