/* SPDX-License-Identifier: Apache-2.0 */
/* Checked sizes, numbers in words, and uuids. */
#include "config.h"

#include "base/base.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_SYS_RANDOM_H
#include <sys/random.h>
#endif

bool gyre_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

bool gyre_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

bool gyre_number_parse(const char *text, double *out)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before;
    double value;
    char *end;

    if (plain == (locale_t)0)
        return false;
    before = uselocale(plain);
    value = strtod(text, &end);
    uselocale(before);
    freelocale(plain);
    if (end == text || *end != '\0')
        return false;
    *out = value;
    return true;
}

gyre_status gyre_random_uuid(uint8_t uuid[16], gyre_error *error)
{
    uint8_t bytes[16];

    if (getentropy(bytes, sizeof(bytes)) != 0)
        return gyre_fail_errno(error, GYRE_SYSTEM, errno,
                               "random bytes for a uuid");
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40); /* version 4 */
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80); /* RFC 9562 variant */
    memcpy(uuid, bytes, sizeof(bytes));
    return GYRE_OK;
}

/* 8-4-4-4-12: a hyphen stands before these bytes. */
static bool hyphen_before(int byte)
{
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void gyre_uuid_text(const uint8_t uuid[16], char text[37])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < 16; i++) {
        if (hyphen_before(i))
            *text++ = '-';
        *text++ = digits[uuid[i] >> 4];
        *text++ = digits[uuid[i] & 15];
    }
    *text = '\0';
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool gyre_uuid_parse(const char *text, uint8_t uuid[16])
{
    uint8_t bytes[16];

    if (text == NULL)
        return false;
    for (int i = 0; i < 16; i++) {
        int high;
        int low;

        if (hyphen_before(i) && *text++ != '-')
            return false;
        high = digit_of(*text);
        if (high < 0)
            return false;
        low = digit_of(text[1]);
        if (low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    if (*text != '\0')
        return false;
    memcpy(uuid, bytes, sizeof(bytes));
    return true;
}
