/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of codecs_cases.h for tests of cmocka. */
#ifndef GYRE_TESTS_UNIT_CODECS_H
#define GYRE_TESTS_UNIT_CODECS_H

#include "codecs_cases.h"

static inline gyre_codec *codec_open(gyre_context *context, const codec_case *c)
{
    gyre_codec *codec = NULL;
    gyre_error error;

    if (gyre_codec_create(context, c->name, c->settings, c->count, &codec,
                          &error) != GYRE_OK)
        fail_msg("%s: %s", codec_text(c), error.text);
    return codec;
}

#endif
