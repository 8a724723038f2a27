/* SPDX-License-Identifier: Apache-2.0 */
/* gyre store: look at a store and check it; the parts that move one are in
 * cmd_store_move.c. */
#include "config.h"

#include "cli.h"
#include "cmd_store.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* ---- info --------------------------------------------------------------- */

static json_t *text_list(const gyre_store *store, bool slots)
{
    json_t *list = json_array();
    const char *text;

    for (size_t i = 0; (text = slots ? gyre_store_slot(store, i)
                                     : gyre_store_device(store, i, NULL));
         i++)
        json_array_append_new(list, json_string(text));
    return list;
}

/* How each variable is stored, by its name. */
static json_t *codec_list(const gyre_store *store)
{
    json_t *codecs = json_object();
    const char *slot;

    json_object_set_new(
        codecs, "parameter",
        json_string(gyre_state_codec_name(gyre_store_codec(store, -1))));
    for (int i = 0; (slot = gyre_store_slot(store, (size_t)i)) != NULL; i++)
        json_object_set_new(
            codecs, slot,
            json_string(gyre_state_codec_name(gyre_store_codec(store, i))));
    return codecs;
}

/* null without one. */
static json_t *compressor_object(const gyre_store *store,
                                 const gyre_store_info *info)
{
    json_t *settings;
    const char *name;
    double value;

    if (info->compressor == NULL)
        return json_null();
    settings = json_object();
    for (size_t i = 0;
         (name = gyre_store_compressor_setting(store, i, &value)) != NULL; i++)
        json_object_set_new(settings, name, json_real(value));
    return json_pack("{s:s,s:s,s:s,s:o}", "name", info->compressor, "version",
                     info->compressor_version, "residual",
                     gyre_residual_name(info->residual), "parameters",
                     settings);
}

static void set(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

static json_t *info_object(const gyre_store *store, const gyre_store_info *info,
                           const char *digest)
{
    size_t blob = 0;
    char seed[24]; /* JSON has no unsigned 64 */
    json_t *o = json_pack(
        "{s:s,s:s,s:s,s:s,s:s,s:s,s:s?,s:b,s:b,s:b,s:b,s:b,s:f,s:o,s:o,s:o,"
        "s:o}",
        "path", info->path, "uuid", info->uuid, "optimizer", info->optimizer,
        "optimizer_version", info->optimizer_version, "variant", info->variant,
        "io", info->io, "digest", digest, "in_place", info->in_place, "whole",
        info->whole, "fell_back", info->fell_back, "spill", info->spill,
        "exact", info->exact, "loss_scale", info->loss_scale, "codecs",
        codec_list(store), "compressor", compressor_object(store, info),
        "slot_names", text_list(store, true), "device_paths",
        text_list(store, false));

    if (o == NULL)
        return NULL;
    gyre_store_blob(store, &blob);
    set(o, "step", info->step);
    set(o, "round", info->round);
    set(o, "commit", info->commit);
    set(o, "committed_step", info->committed_step);
    set(o, "committed_round", info->committed_round);
    set(o, "generation", info->generation);
    set(o, "tensors", info->tensors);
    set(o, "elements", info->elements);
    set(o, "chunks", info->chunks);
    set(o, "chunk_elements", info->chunk_elements);
    set(o, "padding_bytes", info->padding_bytes);
    set(o, "disk_bytes", info->disk_bytes);
    set(o, "blob_bytes", blob);
    set(o, "written_bytes", info->written);
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)info->seed);
    json_object_set_new(o, "seed", json_string(seed));
    set(o, "devices", info->devices);
    set(o, "groups", info->groups);
    set(o, "slots", info->slots);
    return o;
}

/* "", or " as CODEC" where it is not f32. */
static void print_codec(const gyre_store *store, int slot)
{
    gyre_state_codec codec = gyre_store_codec(store, slot);

    if (codec != GYRE_STATE_F32)
        printf(" as %s", gyre_state_codec_name(codec));
}

static void print_near(const gyre_store *store, const gyre_store_info *info)
{
    const char *name;
    char bytes[16];
    double value;

    if (info->compressor != NULL) {
        printf("compressor  %s %s, residual %s", info->compressor,
               info->compressor_version, gyre_residual_name(info->residual));
        for (size_t i = 0;
             (name = gyre_store_compressor_setting(store, i, &value)) != NULL;
             i++)
            printf("%s %s %g", i == 0 ? ";" : ",", name, value);
        printf("\n");
    }
    if (info->spill)
        printf("gradients   have room on storage\n");
    if (!info->exact)
        printf("INEXACT     rounds ran on a device that does not divide "
               "exactly\n");
    printf("written     %s to devices in its life\n",
           cli_bytes((double)info->written, bytes));
}

static void print_info(const gyre_store *store, const gyre_store_info *info,
                       const char *digest)
{
    char bytes[16];
    const char *text;
    uint64_t reserved = 0;

    printf("store       %s\n", info->path);
    printf("uuid        %s, generation %llu\n", info->uuid,
           (unsigned long long)info->generation);
    printf("step        %llu of round %llu, commit %llu\n",
           (unsigned long long)info->step, (unsigned long long)info->round,
           (unsigned long long)info->commit);
    printf("optimizer   %s %s, variant %s\n", info->optimizer,
           info->optimizer_version, info->variant);
    printf("state       parameter");
    print_codec(store, -1);
    for (size_t i = 0; (text = gyre_store_slot(store, i)) != NULL; i++) {
        printf(", %s", text);
        print_codec(store, (int)i);
    }
    printf("\nparameters  %llu in %llu tensors, %u groups\n",
           (unsigned long long)info->elements,
           (unsigned long long)info->tensors, info->groups);
    printf("layout      %llu chunks of %llu elements%s\n",
           (unsigned long long)info->chunks,
           (unsigned long long)info->chunk_elements,
           info->in_place ? ", in place" : "");
    printf("disk        %s\n", cli_bytes((double)info->disk_bytes, bytes));
    for (size_t i = 0; (text = gyre_store_device(store, i, &reserved)); i++)
        printf("device %-4zu %s, %s\n", i, text,
               cli_bytes((double)reserved, bytes));
    print_near(store, info);
    if (digest != NULL)
        printf("digest      %s\n", digest);
    if (!info->whole)
        printf("NOT WHOLE   salvaged: some ranges are not of one step\n");
    if (info->fell_back)
        printf("FELL BACK   the newest commit is damaged; this is the one "
               "before\n");
}

int store_show(const cli_state *cli, gyre_store *store, bool with_digest)
{
    gyre_store_info info = {.size = sizeof(info)};
    char digest[GYRE_DIGEST_TEXT];
    gyre_error error = {0};
    gyre_status status = gyre_store_get_info(store, &info, &error);

    if (status == GYRE_OK && with_digest)
        status = gyre_store_digest(store, digest, &error);
    if (status != GYRE_OK)
        return cli_fail_status(cli, status, &error);
    if (cli->json)
        return cli_print_json(
            info_object(store, &info, with_digest ? digest : NULL));
    print_info(store, &info, with_digest ? digest : NULL);
    return CLI_GOOD;
}

static int store_info(int argc, char **argv)
{
    bool no_digest = false;
    const char *io = NULL;
    const cli_option list[] = {
        {"no-digest", NULL, "do not read the parameters", CLI_FLAG, &no_digest},
        {"io", "ENGINE", "auto, uring or posix", CLI_TEXT, &io},
        {0}};
    const cli_usage usage = {
        "DIR", "Show what a store holds, with the digest of its parameters.",
        list, 1, 1};
    gyre_context *context = NULL;
    gyre_store *store = NULL;
    gyre_error error = {0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code == -1)
        code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    gyre_store_options options = {
        .size = sizeof(options), .io = io, .read_only = 1, .fast = no_digest};
    gyre_status status =
        gyre_store_open(context, cli.argv[0], &options, &store, &error);
    code = status == GYRE_OK ? store_show(&cli, store, !no_digest)
                             : cli_fail_status(&cli, status, &error);
    gyre_store_close(store);
    gyre_context_destroy(context);
    return code;
}

/* ---- fsck --------------------------------------------------------------- */

typedef struct findings {
    bool json;
    bool chunks; /* one is not what it should be */
    json_t *list;
} findings;

static void on_problem(void *user, const gyre_fsck_problem *p)
{
    findings *f = user;

    f->chunks |= (p->chunk != UINT64_MAX && strcmp(p->what, "label") != 0) ||
                 strcmp(p->what, "dirty") == 0;
    if (f->json)
        json_array_append_new(
            f->list, json_pack("{s:s,s:I,s:s,s:s,s:b}", "device", p->device,
                               "chunk", (json_int_t)p->chunk, "what", p->what,
                               "text", p->text, "note", p->note));
    else
        printf("%s%s: %s\n", p->note ? "note: " : "", p->what, p->text);
}

/* A repaired store is good again; a salvaged one is not whole. */
static int conclude(const cli_state *cli, const gyre_fsck_report *r,
                    const findings *f)
{
    const char *done = r->salvaged ? "; salvaged: the store is no longer whole"
                       : !r->repaired      ? ""
                       : r->previous_whole ? "; rolled back to the commit "
                                             "before"
                                           : "; mended";
    int code = r->problems == 0 || r->repaired ? CLI_GOOD : CLI_WRONG;

    if (cli->json) {
        int printed = cli_print_json(json_pack(
            "{s:I,s:I,s:I,s:I,s:b,s:b,s:b,s:o}", "chunks",
            (json_int_t)r->chunks, "problems", (json_int_t)r->problems, "notes",
            (json_int_t)r->notes, "step", (json_int_t)r->step, "previous_whole",
            r->previous_whole, "repaired", r->repaired, "salvaged", r->salvaged,
            "list", f->list));
        return printed == CLI_GOOD ? code : printed;
    }
    json_decref(f->list);
    printf("%llu chunks of step %llu checked, %llu problems",
           (unsigned long long)r->chunks, (unsigned long long)r->step,
           (unsigned long long)r->problems);
    if (r->notes != 0)
        printf(", %llu note%s", (unsigned long long)r->notes,
               r->notes == 1 ? "" : "s");
    printf("%s\n", done);
    if (r->problems != 0 && !r->repaired && !r->salvaged)
        printf("%s\n", r->previous_whole
                           ? "the commit before is whole: --repair goes back "
                             "to it"
                       : f->chunks
                           ? "the commit before is damaged, too: --salvage "
                             "keeps what is there"
                           : "every chunk is whole: --repair mends the rest");
    return code;
}

static int store_fsck(int argc, char **argv)
{
    bool repair = false, salvage = false;
    const char *io = NULL;
    const cli_option list[] = {
        {"repair", NULL, "roll the whole store back one commit", CLI_FLAG,
         &repair},
        {"salvage", NULL, "accept what is there; mark the store", CLI_FLAG,
         &salvage},
        {"io", "ENGINE", "auto, uring or posix", CLI_TEXT, &io},
        {0}};
    const cli_usage usage = {
        "DIR", "Check every chunk of a store that is closed.", list, 1, 1};
    gyre_context *context = NULL;
    gyre_fsck_report report = {.size = sizeof(report)};
    gyre_error error = {0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code == -1 && repair && salvage)
        code = cli_fail(&cli, CLI_USAGE, "--repair or --salvage, not both");
    if (code == -1)
        code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    findings f = {.json = cli.json, .list = json_array()};
    gyre_store_options options = {.size = sizeof(options), .io = io};
    gyre_status status = gyre_store_fsck(context, cli.argv[0], &options,
                                         (repair ? GYRE_FSCK_REPAIR : 0u) |
                                             (salvage ? GYRE_FSCK_SALVAGE : 0u),
                                         on_problem, &f, &report, &error);
    if (status == GYRE_OK) {
        code = conclude(&cli, &report, &f);
    } else {
        json_decref(f.list);
        code = cli_fail_status(&cli, status, &error);
    }
    gyre_context_destroy(context);
    return code;
}

/* ---- the command -------------------------------------------------------- */

static const cli_command parts[] = {
    {"info", "show what a store holds", store_info},
    {"fsck", "check it, roll it back, salvage it", store_fsck},
    {"export", "write it as safetensors", store_export},
    {"import", "take parameters from safetensors", store_import},
    {"reshard", "other devices, other chunks", store_reshard},
    {"weigh", "measure devices, for their shares", store_weigh},
};

int gyre_cmd_store(int argc, char **argv)
{
    return cli_group("store",
                     "Look after a store: parameters and optimizer state on "
                     "storage.",
                     parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
}
