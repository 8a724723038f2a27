/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes on disk: superblock, label, record, and how each is checked. */
#include "config.h"

#include "store/format.h"
#include "store/layout.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/*
 * All integers are little-endian as they lie in memory; the magics below read
 * wrong on a big-endian machine, so that such a file is refused, not misread.
 *
 * superblock, 4096 bytes        label, 4096 bytes
 *    0  magic "GYRESUPR"           0  magic "GYRELABL"
 *    8  format version             8  store uuid
 *   16  gyre_super                24  generation, chunk
 *   ..  zeros                     40  gyre_entry
 * 4088  XXH3 of all before        64  XXH3 of all before
 *
 * area
 *    0  magic "GYRECOMT", store uuid, chunks, tensors, gyre_record
 *       XXH3 of entries, steps and blob; last, XXH3 of the record itself
 * 4096  gyre_entry[chunks] | uint64_t steps[tensors] | blob
 *
 * The record fits one 512-byte sector, but nothing depends on that: a torn one
 * fails its checksum.
 */
#define SUPER_MAGIC 0x5250555345525947ull
#define LABEL_MAGIC 0x4c42414c45525947ull
#define RECORD_MAGIC 0x544d4f4345525947ull

enum { FORMAT_VERSION = 2, SUPER_SUM_AT = GYRE_PAGE - 8, LABEL_SUM_AT = 64 };

typedef struct super_head {
    uint64_t magic;
    uint64_t version;
    gyre_super super;
} super_head;

typedef struct label_head {
    uint64_t magic;
    uint8_t uuid[16];
    uint64_t generation;
    uint64_t chunk;
    gyre_entry entry;
    uint64_t sum;
} label_head;

typedef struct record_head {
    uint64_t magic;
    uint8_t uuid[16];
    uint64_t chunks;
    uint64_t tensors;
    gyre_record record;
    uint64_t body_sum;
    uint64_t sum;
} record_head;

_Static_assert(sizeof(gyre_entry) == 24, "entries are 24 bytes on disk");
_Static_assert(sizeof(gyre_record) == 80, "no padding that is not named");
_Static_assert(offsetof(label_head, sum) == LABEL_SUM_AT, "label layout");
_Static_assert(sizeof(record_head) <= 512, "a record fits one sector");
_Static_assert(sizeof(super_head) <= SUPER_SUM_AT, "superblock layout");

uint64_t gyre_format_seed(const uint8_t uuid[16], uint64_t generation,
                          uint64_t chunk, uint64_t step)
{
    struct {
        uint8_t uuid[16];
        uint64_t generation, chunk, step;
    } key;

    memcpy(key.uuid, uuid, 16);
    key.generation = generation;
    key.chunk = chunk;
    key.step = step;
    return XXH3_64bits(&key, sizeof(key));
}

void gyre_format_super(const gyre_super *super, void *page)
{
    super_head head = {SUPER_MAGIC, FORMAT_VERSION, *super};
    uint64_t sum;

    memset(page, 0, GYRE_PAGE);
    memcpy(page, &head, sizeof(head));
    sum = XXH3_64bits(page, SUPER_SUM_AT);
    memcpy((char *)page + SUPER_SUM_AT, &sum, sizeof(sum));
}

gyre_status gyre_format_read_super(const void *page, const char *file,
                                   gyre_super *super, gyre_error *error)
{
    super_head head;
    uint64_t sum;

    memcpy(&head, page, sizeof(head));
    memcpy(&sum, (const char *)page + SUPER_SUM_AT, sizeof(sum));
    if (head.magic != SUPER_MAGIC)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: not a Gyre device file (no superblock at offset "
                         "0)",
                         file);
    if (head.version != FORMAT_VERSION)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: format version %llu, this library reads %d; use "
                         "the Gyre that wrote it, export there and import "
                         "here",
                         file, (unsigned long long)head.version,
                         FORMAT_VERSION);
    if (sum != XXH3_64bits(page, SUPER_SUM_AT))
        return gyre_fail(error, GYRE_CORRUPT,
                         "%s: superblock does not match its checksum", file);
    *super = head.super;
    return GYRE_OK;
}

void gyre_format_label(void *page, const uint8_t uuid[16], uint64_t generation,
                       uint64_t chunk, const gyre_entry *entry)
{
    label_head head = {.magic = LABEL_MAGIC};

    memcpy(head.uuid, uuid, 16);
    head.generation = generation;
    head.chunk = chunk;
    head.entry = *entry;
    head.sum = XXH3_64bits(&head, LABEL_SUM_AT);
    memset(page, 0, GYRE_LABEL);
    memcpy(page, &head, sizeof(head));
}

uint64_t gyre_format_head_bytes(uint64_t chunks, uint64_t tensors)
{
    return GYRE_PAGE + chunks * sizeof(gyre_entry) + tensors * sizeof(uint64_t);
}

uint64_t gyre_format_area(void *image, const uint8_t uuid[16],
                          const gyre_record *record, const gyre_entry *entries,
                          uint64_t chunks, const uint64_t *steps,
                          uint64_t tensors, uint32_t align)
{
    record_head head = {.magic = RECORD_MAGIC};
    char *body = (char *)image + GYRE_PAGE;
    uint64_t used =
        gyre_format_head_bytes(chunks, tensors) + record->blob_bytes;
    uint64_t whole = gyre_round_up(used, align);

    memcpy(body, entries, chunks * sizeof(*entries));
    memcpy(body + chunks * sizeof(*entries), steps, tensors * sizeof(*steps));
    memset((char *)image + used, 0, whole - used);
    memcpy(head.uuid, uuid, 16);
    head.chunks = chunks;
    head.tensors = tensors;
    head.record = *record;
    head.body_sum = XXH3_64bits_withSeed(body, used - GYRE_PAGE, record->seq);
    head.sum = XXH3_64bits(&head, offsetof(record_head, sum));
    memset(image, 0, GYRE_PAGE);
    memcpy(image, &head, sizeof(head));
    return whole;
}

/* The record alone: is it one of this store, undamaged, and of this shape? */
static gyre_status check_record(const record_head *head, uint64_t bytes,
                                const uint8_t uuid[16], uint64_t generation,
                                uint64_t chunks, uint64_t tensors,
                                gyre_error *error)
{
    if (head->magic != RECORD_MAGIC)
        return gyre_fail(error, GYRE_FORMAT, "no commit record");
    if (head->sum != XXH3_64bits(head, offsetof(record_head, sum)))
        return gyre_fail(error, GYRE_CORRUPT,
                         "commit record does not match its checksum");
    if (memcmp(head->uuid, uuid, 16) != 0 ||
        head->record.generation != generation)
        return gyre_fail(error, GYRE_FORMAT,
                         "commit record of another store or generation");
    if (head->chunks != chunks || head->tensors != tensors ||
        head->record.blob_bytes >
            bytes - gyre_format_head_bytes(chunks, tensors))
        return gyre_fail(error, GYRE_FORMAT,
                         "commit record for another layout");
    return GYRE_OK;
}

gyre_status gyre_format_read_area(const void *image, uint64_t bytes,
                                  const uint8_t uuid[16], uint64_t generation,
                                  uint64_t chunks, uint64_t tensors,
                                  gyre_record *record,
                                  const gyre_entry **entries,
                                  const uint64_t **steps, const void **blob,
                                  gyre_error *error)
{
    const char *body = (const char *)image + GYRE_PAGE;
    record_head head;
    uint64_t used;
    gyre_status status;

    memcpy(&head, image, sizeof(head));
    status =
        check_record(&head, bytes, uuid, generation, chunks, tensors, error);
    if (status != GYRE_OK)
        return status;
    used = gyre_format_head_bytes(chunks, tensors) + head.record.blob_bytes;
    if (head.body_sum !=
        XXH3_64bits_withSeed(body, used - GYRE_PAGE, head.record.seq))
        return gyre_fail(error, GYRE_CORRUPT,
                         "table of commit %llu does not match its checksum",
                         (unsigned long long)head.record.seq);
    *record = head.record;
    *entries = (const gyre_entry *)(const void *)body;
    *steps =
        (const uint64_t *)(const void *)(body + chunks * sizeof(gyre_entry));
    *blob = body + chunks * sizeof(gyre_entry) + tensors * sizeof(uint64_t);
    return GYRE_OK;
}

const char *gyre_format_diagnose(const uint8_t uuid[16], uint64_t generation,
                                 uint64_t chunk, const gyre_entry *entry,
                                 const void *label, char *text, size_t bytes)
{
    label_head head;
    char other[37];

    memcpy(&head, label, sizeof(head));
    if (head.magic != LABEL_MAGIC ||
        head.sum != XXH3_64bits(&head, LABEL_SUM_AT)) {
        snprintf(text, bytes,
                 "its label is damaged too: the chunk was torn or "
                 "overwritten");
        return "torn";
    }
    if (memcmp(head.uuid, uuid, 16) != 0 || head.generation != generation) {
        gyre_uuid_text(head.uuid, other);
        snprintf(text, bytes, "it belongs to store %s, generation %llu", other,
                 (unsigned long long)head.generation);
        return "foreign";
    }
    if (head.chunk != chunk) {
        snprintf(text, bytes, "it is chunk %llu",
                 (unsigned long long)head.chunk);
        return "misplaced";
    }
    if (head.entry.step != entry->step || head.entry.hash != entry->hash) {
        snprintf(text, bytes,
                 "it is stale: written at step %llu, the record "
                 "wants step %llu",
                 (unsigned long long)head.entry.step,
                 (unsigned long long)entry->step);
        return "stale";
    }
    snprintf(text, bytes, "its label is right: bits have flipped in the data");
    return "flipped";
}
