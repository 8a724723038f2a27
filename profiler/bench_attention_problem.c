/* SPDX-License-Identifier: Apache-2.0 */
/* "2d:heads=2" and the options of gyre bench attention as a plan request. */
#include "config.h"

#include "bench_attention.h"

#include <stdio.h>
#include <string.h>

/* words holds the text with each ':' and '=' as its end. */
static gyre_status read_settings(gyre_context *context,
                                 bench_attention_problem *p, gyre_error *error)
{
    const gyre_plugin *plugin = NULL;
    char *next = strchr(p->words, ':');
    gyre_status status;

    if (next != NULL)
        *next++ = '\0';
    status =
        gyre_plugin_find(context, GYRE_KIND_SCHEDULE, p->words, &plugin, error);
    while (status == GYRE_OK && next != NULL &&
           p->count < BENCH_ATTENTION_SETTINGS) {
        gyre_setting *s = &p->settings[p->count++];
        char *value = strchr(next, '='), *end = strchr(next, ':');

        s->name = next;
        if (end != NULL)
            *end++ = '\0';
        value = value != NULL && (end == NULL || value < end) ? value : NULL;
        if (value != NULL)
            *value++ = '\0';
        status = gyre_plugin_parse(plugin, s->name, value != NULL ? value : "",
                                   &s->value, error);
        next = end;
    }
    return status;
}

gyre_status bench_attention_request(const attention_options *opt,
                                    gyre_context *context, const char *text,
                                    bench_attention_problem *out,
                                    gyre_error *error)
{
    bool causal = strcmp(opt->mask, "causal") == 0;

    memset(out, 0, sizeof(*out));
    snprintf(out->words, sizeof(out->words), "%s", text);
    out->mask = (gyre_mask){.size = sizeof(out->mask), .causal = causal};
    gyre_status status = read_settings(context, out, error);
    out->request = (gyre_plan_request){
        .size = sizeof(out->request),
        .schedule = out->words,
        .settings = out->settings,
        .setting_count = out->count,
        .ranks = (uint32_t)opt->ranks,
        .heads = (uint32_t)opt->heads,
        .kv_heads = (uint32_t)opt->kv_heads,
        .head_dim = (uint32_t)opt->head_dim,
        .dtype = GYRE_F32,
        .wire_dtype = GYRE_F32,
        .tokens = opt->seq,
        .layout = causal ? GYRE_LAYOUT_ZIGZAG : GYRE_LAYOUT_CONTIGUOUS,
        .mask = &out->mask};
    return status;
}
