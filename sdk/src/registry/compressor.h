/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compressor plugin with its settings, and the wire block around payloads.
 *
 *     settings --> codec --bytes--> size of a grain's payload, bound of a block
 *     run of one tensor --writer--> wire block --check--> grains --> floats
 *
 * A **run** is `elements` neighbouring elements of one tensor that start on a
 * grain (GYRE_GRAIN).  Its **wire block**, little-endian:
 *
 *      0  u32  magic "GYW1"
 *      4  u16  format of the codec
 *      6  u16  1: VARIABLE
 *      8  u64  id: XXH3 of the codec's name and settings
 *     16  u64  elements
 *     24  u64  bytes that follow the header, padding included
 *     32  u64  XXH3 of 48 bytes: 0..31, XXH3 of the payloads with the padding,
 *              XXH3 of the table or 0
 *     40       VARIABLE: table of each payload's end, u32, counted from the
 *              first payload byte
 *              payloads, one behind the other; zeros up to a multiple of 8
 *
 * So the k-th payload of a fixed codec lies at 40 + k * grain_bytes(1024): a
 * device finds it without a table.
 */
#ifndef GYRE_SRC_REGISTRY_COMPRESSOR_H
#define GYRE_SRC_REGISTRY_COMPRESSOR_H

#include <gyre/registry.h>

#include "base/base.h"

typedef struct gyre_codec gyre_codec;

enum { GYRE_WIRE_HEAD = 40, GYRE_WIRE_VARIABLE = 1, GYRE_WIRE_HASH = 640 };
#define GYRE_WIRE_MAGIC UINT32_C(0x31575947) /* "GYW1" */

/* ---- codec ----------------------------------------------------------- */

/* Find the plugin, check the settings, choose the loops of the context's
 * instruction set (scalar when the plugin lacks it) and hold them against the
 * scalar ones on a known vector.  Errors: those of gyre_plugin_find, PARAMETER,
 * PLUGIN_BAD, NO_MEMORY.  Afterwards read-only: any thread. */
gyre_status gyre_codec_create(gyre_context *context, const char *name,
                              const gyre_setting *settings, size_t count,
                              gyre_codec **out, gyre_error *error);
void gyre_codec_destroy(gyre_codec *codec);

const gyre_plugin *gyre_codec_plugin(const gyre_codec *codec);
const char *gyre_codec_name(const gyre_codec *codec);
/* The value of each parameter, index as in gyre_plugin.parameters. */
const double *gyre_codec_values(const gyre_codec *codec);
size_t gyre_codec_parameter_count(const gyre_codec *codec);
uint32_t gyre_codec_format(const gyre_codec *codec);
uint32_t gyre_codec_flags(const gyre_codec *codec); /* GYRE_CODEC_... */
uint64_t gyre_codec_id(const gyre_codec *codec);    /* of the wire block */
/* The instruction set of the loops in use. */
gyre_isa gyre_codec_isa(const gyre_codec *codec);
/* Text for a device that decodes by itself; NULL: the plugin has none. */
const gyre_codec_kernel *gyre_codec_kernel_of(const gyre_codec *codec);
/* Text for a device that compresses by itself with these settings, a grain at
 * a time; NULL: none.  A codec that has one has a kernel too. */
const gyre_codec_encoder *gyre_codec_encoder_of(const gyre_codec *codec);

/* Bytes of the payload of n = 1..1024 elements (VARIABLE: at most). */
size_t gyre_codec_grain_bytes(const gyre_codec *codec, size_t n);
/* Most bytes of the wire block of a run; a multiple of 8.  Exact unless
 * VARIABLE. */
uint64_t gyre_codec_bound(const gyre_codec *codec, uint64_t elements);

/* ---- one grain ------------------------------------------------------- */

/* As in gyre/plugin.h.  The caller has pinned the FP control word.  decode and
 * accumulate return nonzero for impossible bytes. */
size_t gyre_codec_compress(const gyre_codec *codec, gyre_compress *job);
int gyre_codec_decode(const gyre_codec *codec, const uint8_t *payload,
                      size_t bytes, size_t n, float *out);
int gyre_codec_accumulate(const gyre_codec *codec, const uint8_t *payload,
                          size_t bytes, size_t n, float *out);

/* ---- survey of a BARRIER codec --------------------------------------- */

/*
 *     decided = zeros
 *     for (pass = 0;; pass++)
 *         summaries = zeros, one per thread
 *         gyre_codec_survey for every grain, in any order, any thread
 *         merge all into one
 *         if (!gyre_codec_decide(...)) break
 */
size_t gyre_codec_survey_bytes(const gyre_codec *codec); /* 0: no barrier */
size_t gyre_codec_decided_bytes(const gyre_codec *codec);
/* `place`: elements of all tensors surveyed before it, each tensor's count
 * rounded up to a grain; the same number goes into compress.  `elements`: of
 * the whole survey, known beforehand. */
void gyre_codec_survey(const gyre_codec *codec, uint32_t pass,
                       const void *decided, const float *x, size_t n,
                       uint64_t place, uint64_t elements, void *summary);
void gyre_codec_merge(const gyre_codec *codec, void *into, const void *from);
/* 1: another pass; 0: `decided` is ready for compress.  `extent`: first place
 * behind all elements. */
int gyre_codec_decide(const gyre_codec *codec, uint32_t pass,
                      const void *summary, uint64_t elements, uint64_t extent,
                      void *decided);

/* ---- wire block ------------------------------------------------------ */

/* Writing: begin; for each grain in order let compress write to
 * gyre_wire_next() and tell what it used; end returns the block's bytes.  The
 * checksum is taken beside, while a payload is in cache. */
typedef struct gyre_wire_writer {
    const gyre_codec *codec;
    uint8_t *block; /* aligned to 8, gyre_codec_bound bytes */
    uint64_t elements;
    uint64_t grain;    /* next one */
    uint64_t payloads; /* where the first payload lies */
    uint64_t at;       /* where the next payload goes */
    uint64_t hashed;   /* up to here */
    _Alignas(64) unsigned char hash[GYRE_WIRE_HASH]; /* its state */
} gyre_wire_writer;

void gyre_wire_begin(gyre_wire_writer *writer, const gyre_codec *codec,
                     uint64_t elements, uint8_t *block);
static inline uint8_t *gyre_wire_next(const gyre_wire_writer *writer)
{
    return writer->block + writer->at;
}
void gyre_wire_add(gyre_wire_writer *writer, size_t bytes);
uint64_t gyre_wire_end(gyre_wire_writer *writer);

/* Whole block in the first `size` bytes, from `head` alone (40 bytes at least):
 * for reading one from storage of which only the start is known.  0: none. */
uint64_t gyre_wire_bytes(const uint8_t *head, uint64_t size);

/* Is this a whole block of this codec with this many elements?  Looks at every
 * header field, the checksum, the table and the padding; afterwards
 * gyre_wire_grain is safe.  What a payload holds is decode's to judge.  Any
 * bytes are safe.  Errors: CORRUPT, FORMAT (another codec, format or count),
 * with field, value seen and value required. */
gyre_status gyre_wire_check(const gyre_codec *codec, const uint8_t *block,
                            uint64_t size, uint64_t elements,
                            gyre_error *error);
/* The same and every payload decoded for a look: for blocks from elsewhere. */
gyre_status gyre_wire_verify(const gyre_codec *codec, const uint8_t *block,
                             uint64_t size, uint64_t elements,
                             gyre_error *error);
/* Payload of one grain of a checked block. */
void gyre_wire_grain(const gyre_codec *codec, const uint8_t *block,
                     uint64_t grain, const uint8_t **payload, size_t *bytes);
/* Decode elements [0, elements) of a checked block, one grain after another.
 * Errors: CORRUPT, names the grain. */
gyre_status gyre_wire_decode(const gyre_codec *codec, const uint8_t *block,
                             float *out, gyre_error *error);

#endif
