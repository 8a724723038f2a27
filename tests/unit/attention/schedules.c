/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit.h"
#include "schedules.h"

#include <stdio.h>

void schedule_set(gyre_context *context, schedule_request *out,
                  const char *words)
{
    gyre_error error = {0};
    const gyre_plugin *plugin = NULL;
    char *save = NULL, *word;

    snprintf(out->text, sizeof(out->text), "%s", words);
    out->request.size = sizeof(out->request);
    out->request.schedule = strtok_r(out->text, " ", &save);
    out->request.settings = out->settings;
    out->request.setting_count = 0;
    if (gyre_plugin_find(context, GYRE_KIND_SCHEDULE, out->request.schedule,
                         &plugin, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    while ((word = strtok_r(NULL, " ", &save)) != NULL) {
        gyre_setting *setting = &out->settings[out->request.setting_count++];
        char *value = strchr(word, '=');

        *value++ = '\0';
        setting->name = word;
        if (gyre_plugin_parse(plugin, word, value, &setting->value, &error) !=
            GYRE_OK)
            fail_msg("%s", error.text);
    }
}

gyre_plan *schedule_plan(gyre_context *context, const schedule_request *q)
{
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    if (gyre_plan_make(context, &q->request, &plan, &error) != GYRE_OK)
        fail_msg("%s, %u ranks, pass %u: %s", q->request.schedule,
                 q->request.ranks, q->request.pass, error.text);
    return plan;
}

void schedule_table(schedule_request *out, uint32_t kv_heads)
{
    memset(out, 0, sizeof(*out));
    out->request.ranks = 32;
    out->request.heads = 32;
    out->request.kv_heads = kv_heads;
    out->request.head_dim = 128;
    out->request.dtype = GYRE_BF16;
    out->request.wire_dtype = GYRE_BF16;
    out->request.tokens = 131072;
    out->request.layout = GYRE_LAYOUT_ZIGZAG;
}

int64_t schedule_sent(const gyre_plan *plan, const char *phase)
{
    gyre_plan_info info = {.size = sizeof(info)};
    int64_t sent = 0, received = 0;

    gyre_plan_get_info(plan, &info);
    for (uint32_t r = 0; r < info.ranks; r++) {
        gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
        uint32_t count = 0;

        assert_int_equal(gyre_plan_rank_bytes(plan, r, bytes, &count, NULL),
                         GYRE_OK);
        for (uint32_t i = 0; i < count; i++)
            if (phase == NULL || strcmp(bytes[i].phase, phase) == 0) {
                sent += (int64_t)bytes[i].sent;
                received += (int64_t)bytes[i].received;
            }
    }
    return sent == received ? sent : -1;
}
