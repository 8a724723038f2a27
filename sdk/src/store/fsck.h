/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checking and mending a closed store.
 *
 *     fsck.c      look: superblocks, manifests, records
 *     survey.c    look: every chunk
 *     recover.c   the manifest from its copy in a device file
 *     mend.c      repair (roll back, rewrite copies) and salvage (mark)
 */
#ifndef GYRE_SRC_STORE_FSCK_H
#define GYRE_SRC_STORE_FSCK_H

#include "store/store.h"

/* What is known of a chunk. */
typedef enum gyre_chunk_health {
    GYRE_CHUNK_UNSEEN,
    GYRE_CHUNK_GOOD,
    GYRE_CHUNK_LABEL, /* data good, label not: nothing is lost */
    GYRE_CHUNK_BAD,
    GYRE_CHUNK_UNREADABLE
} gyre_chunk_health;

/* One record area of one device, as read. */
typedef struct gyre_fsck_area {
    uint64_t seq;   /* 0: no whole record */
    bool wrong;     /* torn, behind or unreadable */
    gyre_error why; /* of no whole record */
} gyre_fsck_area;

typedef struct gyre_fsck {
    gyre_store *store;
    char *manifest; /* a copy that stands in; or NULL */
    void (*each)(void *user, const gyre_fsck_problem *problem);
    void *user;
    gyre_fsck_report report;
    uint8_t *health; /* [chunks], of the newest record */
    uint64_t bad, unreadable, labels;
    gyre_fsck_area *areas; /* [devices * 2] */
    bool heads;            /* a superblock, copy or file size is wrong */
    bool records[2];       /* a device lacks a record in this area */
    uint64_t newest;       /* highest record number seen */
    uint64_t previous;     /* number of the record before, if whole */
    gyre_error unread;     /* a record that no device gave, or OK */
    char what[16];         /* of the chunk looked at last */
    char text[256];
} gyre_fsck;

/* Tell of a problem; chunk UINT64_MAX when it is of no chunk.  The text gets
 * the device file in front. */
void gyre_fsck_tell(gyre_fsck *fsck, const char *device, uint64_t chunk,
                    const char *what, const char *format, ...)
    GYRE_PRINTF(5, 6);
/* The same of what is no problem. */
void gyre_fsck_note(gyre_fsck *fsck, const char *device, const char *what,
                    const char *format, ...) GYRE_PRINTF(4, 5);
/* Read every chunk as `current` has it; health[chunks].  Returns how many are
 * bad or unreadable. */
uint64_t gyre_fsck_survey(gyre_fsck *fsck, uint8_t *health);
/* Tell of each chunk that fsck->health has as not good, and count them. */
void gyre_fsck_tell_chunks(gyre_fsck *fsck);

/* Choose record `seq`, and no other. */
gyre_status gyre_fsck_choose(gyre_fsck *fsck, uint64_t seq, gyre_error *error);

/* A whole manifest of a store that lives in folder `path`, from a device file
 * there that also holds a record; freed with gyre_free_text.  NOT_FOUND. */
gyre_status gyre_fsck_recover(gyre_context *context, const char *path,
                              char **out, gyre_error *error);

/* After the look.  Each leaves the store alone when it has nothing to do. */
gyre_status gyre_fsck_repair(gyre_fsck *fsck, gyre_error *error);
gyre_status gyre_fsck_salvage(gyre_fsck *fsck, gyre_error *error);

#endif
