/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin's parameter table at work: names, ranges and text forms. */
#include "config.h"

#include "registry/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- words of a choice ----------------------------------------------- */

static size_t word_count(const char *words)
{
    size_t count = 1;

    for (; *words != '\0'; words++)
        count += *words == '|';
    return count;
}

static const char *word_at(const char *words, size_t index, size_t *length)
{
    while (index-- > 0)
        words = strchr(words, '|') + 1;
    *length = strcspn(words, "|");
    return words;
}

/* ---- range as text --------------------------------------------------- */

static void limit_text(double limit, char *text, size_t size)
{
    if (isinf(limit))
        snprintf(text, size, "%s", limit < 0 ? "-inf" : "inf");
    else
        snprintf(text, size, "%g", limit);
}

void gyre_parameter_range(const gyre_parameter *p, char *text, size_t size)
{
    char low[32], high[32];
    size_t at = 0;

    switch (p->type) {
    case GYRE_TYPE_SWITCH:
        snprintf(text, size, "true or false");
        return;
    case GYRE_TYPE_CHOICE:
        for (const char *c = p->words; *c != '\0' && at + 5 < size; c++) {
            if (*c == '|') {
                memcpy(text + at, " or ", 4);
                at += 4;
            } else {
                text[at++] = *c;
            }
        }
        text[at] = '\0';
        return;
    default:
        limit_text(p->min, low, sizeof(low));
        limit_text(p->max, high, sizeof(high));
        snprintf(text, size, "%s%c%s, %s%c",
                 p->type == GYRE_TYPE_INT ? "a whole number in " : "",
                 isinf(p->min) ? '(' : p->ends[0], low, high,
                 isinf(p->max) ? ')' : p->ends[1]);
    }
}

/* ---- check ----------------------------------------------------------- */

static bool in_range(const gyre_parameter *p, double value)
{
    if (!isfinite(value))
        return false;
    if (p->type != GYRE_TYPE_FLOAT && value != floor(value))
        return false;
    if (p->type == GYRE_TYPE_SWITCH)
        return value == 0.0 || value == 1.0;
    if (p->type == GYRE_TYPE_CHOICE)
        return value >= 0.0 && value < (double)word_count(p->words);
    return (p->ends[0] == '[' ? value >= p->min : value > p->min) &&
           (p->ends[1] == ']' ? value <= p->max : value < p->max);
}

gyre_status gyre_parameter_check(const gyre_plugin *plugin,
                                 const gyre_parameter *parameter, double value,
                                 gyre_error *error)
{
    char range[256];

    if (in_range(parameter, value))
        return GYRE_OK;
    gyre_parameter_range(parameter, range, sizeof(range));
    return gyre_fail(error, GYRE_PARAMETER, "%s: %s = %g; it must be %s%s",
                     plugin->name, parameter->name, value,
                     parameter->type == GYRE_TYPE_FLOAT ? "in " : "", range);
}

gyre_status gyre_parameter_index(const gyre_plugin *plugin, const char *name,
                                 size_t *out, gyre_error *error)
{
    char list[GYRE_ERROR_TEXT / 2] = "none", range[256];
    size_t at = 0;

    for (size_t i = 0; name != NULL && i < plugin->parameter_count; i++) {
        if (strcmp(plugin->parameters[i].name, name) == 0) {
            *out = i;
            return GYRE_OK;
        }
    }
    for (size_t i = 0; i < plugin->parameter_count; i++) {
        int n;

        gyre_parameter_range(&plugin->parameters[i], range, sizeof(range));
        n = snprintf(list + at, sizeof(list) - at, "%s%s %s",
                     at > 0 ? "; " : "", plugin->parameters[i].name, range);
        if (n < 0 || (size_t)n >= sizeof(list) - at)
            break;
        at += (size_t)n;
    }
    return gyre_fail(error, GYRE_PARAMETER,
                     "%s has no parameter \"%.64s\"; it has: %s", plugin->name,
                     name != NULL ? name : "(null)", list);
}

/* ---- text form ------------------------------------------------------- */

static bool parse_switch(const char *text, double *out)
{
    static const char *const on[] = {"true", "yes", "on", "1"};
    static const char *const off[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < 4; i++) {
        if (strcmp(text, on[i]) == 0 || strcmp(text, off[i]) == 0) {
            *out = strcmp(text, on[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool parse_choice(const char *words, const char *text, double *out)
{
    size_t count = word_count(words), length;

    for (size_t i = 0; i < count; i++) {
        const char *word = word_at(words, i, &length);

        if (strlen(text) == length && memcmp(word, text, length) == 0) {
            *out = (double)i;
            return true;
        }
    }
    return false;
}

gyre_status gyre_plugin_parse(const gyre_plugin *plugin, const char *name,
                              const char *text, double *out, gyre_error *error)
{
    const gyre_parameter *p;
    char range[256];
    gyre_status status;
    double value = 0.0;
    size_t index = 0;
    bool good;

    if (plugin == NULL || text == NULL || out == NULL)
        return gyre_fail(error, GYRE_INVALID, "gyre_plugin_parse: NULL");
    status = gyre_parameter_index(plugin, name, &index, error);
    if (status != GYRE_OK)
        return status;
    p = &plugin->parameters[index];
    if (p->type == GYRE_TYPE_SWITCH)
        good = parse_switch(text, &value);
    else if (p->type == GYRE_TYPE_CHOICE)
        good = parse_choice(p->words, text, &value);
    else
        good = gyre_number_parse(text, &value);
    if (!good) {
        gyre_parameter_range(p, range, sizeof(range));
        return gyre_fail(
            error, GYRE_PARAMETER, "%s: %s = \"%.64s\"; it must be %s%s",
            plugin->name, p->name, text,
            p->type == GYRE_TYPE_FLOAT ? "a number in " : "", range);
    }
    status = gyre_parameter_check(plugin, p, value, error);
    if (status == GYRE_OK)
        *out = value;
    return status;
}

gyre_status gyre_parameter_values(const gyre_plugin *plugin,
                                  const gyre_setting *settings, size_t count,
                                  double *values, gyre_error *error)
{
    for (size_t i = 0; i < count; i++) {
        size_t index = 0;
        gyre_status status =
            gyre_parameter_index(plugin, settings[i].name, &index, error);

        if (status == GYRE_OK)
            status = gyre_parameter_check(plugin, &plugin->parameters[index],
                                          settings[i].value, error);
        if (status != GYRE_OK)
            return status;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(settings[i].name, settings[j].name) == 0)
                return gyre_fail(error, GYRE_PARAMETER, "%s: %s is given twice",
                                 plugin->name, settings[i].name);
        }
        values[index] = settings[i].value;
    }
    return GYRE_OK;
}
