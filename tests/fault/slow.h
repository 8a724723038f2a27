/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow disk: a loop device whose transfers a control group limits, for the
 * processes that join the group.  Needs root, loop devices and the blkio (v1)
 * or io (v2) controller; without them `group` stays empty.
 */
#ifndef GYRE_TESTS_FAULT_SLOW_H
#define GYRE_TESTS_FAULT_SLOW_H

#include "fault/common.h"

typedef struct slow_disk {
    char file[FAULT_PATH + 32];
    char disk[64];   /* /dev/loopN; "": none */
    char group[128]; /* control group; "": none */
} slow_disk;

/* A file of `bytes` in `folder`, and a loop device over it. */
void slow_disk_make(slow_disk *s, const char *folder, uint64_t bytes);
/* Limit it, in bytes per second; 0: as it is. */
void slow_disk_limit(slow_disk *s, unsigned read_rate, unsigned write_rate);
/* This process joins; false when it cannot. */
bool slow_disk_join(const slow_disk *s);
void slow_disk_remove(slow_disk *s);

#endif
