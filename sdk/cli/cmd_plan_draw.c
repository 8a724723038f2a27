/* SPDX-License-Identifier: Apache-2.0 */
/* gyre plan show: what each rank computes and sends, step by step. */
#include "config.h"

#include "cmd_plan.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 79, LEFT = 7 };

/* ---- collecting ---------------------------------------------------------- */

typedef struct collector {
    plan_drawing *drawing;
    uint32_t steps; /* of the rank at hand, so far */
    bool q_moves, kv_moves;
    const uint32_t *q_rows, *kv_rows; /* of the rank's first step */
    plan_cell beside;                 /* transfers that wait for their step */
    uint32_t unit, peer, peers;       /* of the group at hand */
    const char *phase;
} collector;

static const gyre_plan_part *keys_of(const gyre_plan_step *step)
{
    return &step->parts[step->code == GYRE_OP_GRD ? 3 : 1];
}

static bool computes(const gyre_plan_step *step)
{
    return step->code == GYRE_OP_ATT || step->code == GYRE_OP_GRD;
}

/* First walk: how many steps, and which side moves. */
static gyre_status count_step(void *user, const gyre_plan_step *step,
                              gyre_error *error)
{
    collector *c = user;

    (void)error;
    if (!computes(step))
        return GYRE_OK;
    if (c->steps++ == 0) {
        c->q_rows = step->parts[0].chunks;
        c->kv_rows = keys_of(step)->chunks;
    }
    /* equal row sets are one list */
    c->q_moves |= step->parts[0].chunks != c->q_rows;
    c->kv_moves |= keys_of(step)->chunks != c->kv_rows;
    return GYRE_OK;
}

static void print_chunks(const gyre_plan_part *part, char *text, size_t size)
{
    size_t used = strlen(text);

    for (uint32_t i = 0; i < part->chunk_count && used + 26 < size; i++) {
        uint32_t from = i;

        while (i + 1 < part->chunk_count &&
               part->chunks[i + 1] == part->chunks[i] + 1)
            i++;
        used += (size_t)snprintf(text + used, size - used,
                                 i > from + 1    ? "%s%u-%u"
                                 : i == from + 1 ? "%s%u %u"
                                                 : "%s%u",
                                 from > 0 ? " " : "", part->chunks[from],
                                 part->chunks[i]);
    }
    if (used + 26 >= size && used + 3 <= size && part->chunk_count > 4)
        strcpy(text + used, "..");
}

static uint32_t owner_of(const plan_drawing *d, const gyre_plan_part *part)
{
    const gyre_problem *p = gyre_plan_problem(d->plan);

    return part->chunk_count > 0 ? p->chunks[part->side][part->chunks[0]].owner
                                 : 0;
}

static void note_phase(plan_drawing *d, const char *phase)
{
    uint32_t i = 0;

    while (i < d->phase_count && strcmp(d->phases[i], phase) != 0)
        i++;
    if (i == d->phase_count && i < GYRE_PLAN_PHASES)
        d->phases[d->phase_count++] = phase;
}

/* Behind what is there, unless it is the last there. */
static void add_word(char sent[PLAN_SENT], const char *word)
{
    const char *last = strrchr(sent, ' ');
    size_t used = strlen(sent);

    if (strcmp(last != NULL ? last + 1 : sent, word) != 0)
        snprintf(sent + used, PLAN_SENT - used, "%s%s", used > 0 ? " " : "",
                 word);
}

/* The group at hand is over: "ring>3", or "a2a" when it went to several. */
static void end_group(collector *c)
{
    char word[48];

    if (c->peers == 1)
        snprintf(word, sizeof(word), "%s>%u", c->phase, c->peer);
    else
        snprintf(word, sizeof(word), "%s", c->phase);
    if (c->peers > 0)
        add_word(c->beside.sent, word);
    c->peers = 0;
}

static void add_put(collector *c, const gyre_plan_step *step)
{
    if (step->unit != c->unit)
        end_group(c);
    if (c->peers == 0 || c->peer != step->peer)
        c->peers++;
    c->unit = step->unit;
    c->peer = step->peer;
    c->phase = step->phase;
    c->beside.bytes += step->parts[0].bytes;
    note_phase(c->drawing, step->phase);
}

/* What waited for its step. */
static void put_down(collector *c, plan_cell *cell)
{
    end_group(c);
    for (char *word = strtok(c->beside.sent, " "); word != NULL;
         word = strtok(NULL, " "))
        add_word(cell->sent, word);
    cell->bytes += c->beside.bytes;
    c->beside = (plan_cell){0};
}

/* Second walk: into the cells. */
static gyre_status fill_step(void *user, const gyre_plan_step *step,
                             gyre_error *error)
{
    collector *c = user;
    plan_drawing *d = c->drawing;

    (void)error;
    if (step->code == GYRE_OP_PUT)
        add_put(c, step);
    if (!computes(step))
        return GYRE_OK;
    plan_cell *cell = &d->cells[(size_t)step->rank * d->steps + c->steps++];
    const gyre_plan_part *kv = keys_of(step), *q = &step->parts[0];
    if (c->q_moves) {
        strcpy(cell->label, "Q ");
        print_chunks(q, cell->label, c->kv_moves ? 24 : sizeof(cell->label));
        if (c->kv_moves)
            strcat(cell->label, " x ");
    }
    if (!c->q_moves || c->kv_moves)
        print_chunks(kv, cell->label, sizeof(cell->label));
    cell->owner = owner_of(d, c->q_moves && !c->kv_moves ? q : kv);
    cell->pairs = step->pairs;
    d->most_pairs = step->pairs > d->most_pairs ? step->pairs : d->most_pairs;
    put_down(c, cell);
    return GYRE_OK;
}

static int collect(plan_ask *ask, plan_drawing *d)
{
    gyre_error error = {0};
    collector c = {.drawing = d};
    gyre_status status = GYRE_OK;

    d->ranks = gyre_plan_problem(d->plan)->ranks;
    for (uint32_t r = 0; r < d->ranks && status == GYRE_OK; r++) {
        c.steps = 0;
        status = gyre_plan_walk(d->plan, r, count_step, &c, &error);
        d->steps = c.steps > d->steps ? c.steps : d->steps;
    }
    if (status != GYRE_OK)
        return cli_fail_status(&ask->cli, status, &error);
    d->steps = d->steps > 0 ? d->steps : 1;
    d->cells = calloc((size_t)d->ranks * d->steps, sizeof(*d->cells));
    if (d->cells == NULL)
        return cli_fail(&ask->cli, CLI_FAULT, "no memory for a drawing");
    for (uint32_t r = 0; r < d->ranks && status == GYRE_OK; r++) {
        c.steps = 0;
        c.unit = GYRE_NO_VIEW;
        status = gyre_plan_walk(d->plan, r, fill_step, &c, &error);
        put_down(
            &c,
            &d->cells[(size_t)r * d->steps + (c.steps > 0 ? c.steps - 1 : 0)]);
    }
    return status == GYRE_OK ? -1 : cli_fail_status(&ask->cli, status, &error);
}

/* ---- text ---------------------------------------------------------------- */

void plan_title(const plan_drawing *d, char *text, size_t size)
{
    const gyre_problem *p = gyre_plan_problem(d->plan);

    snprintf(text, size, "%s, %s: %u ranks, %u x %u chunks, %u steps",
             gyre_plan_name(d->plan), plan_pass_name(gyre_plan_pass(d->plan)),
             d->ranks, p->chunk_count[GYRE_SIDE_Q],
             p->chunk_count[GYRE_SIDE_KV], d->steps);
}

/* "rank 10" and a blank. */
static int left_of(const plan_drawing *d)
{
    int width = snprintf(NULL, 0, "rank %u ", d->ranks - 1);

    return width > LEFT ? width : LEFT;
}

static int widest(const plan_drawing *d, int room)
{
    size_t most = 4;

    for (size_t i = 0; i < (size_t)d->ranks * d->steps; i++) {
        size_t n = strlen(d->cells[i].label), m = strlen(d->cells[i].sent);

        most = n > most ? n : most;
        most = m > most ? m : most;
    }
    return (int)most + 2 < room ? (int)most + 2 : room;
}

/* `count` steps from `from` on, of all ranks. */
static void print_band(const plan_drawing *d, uint32_t from, uint32_t count,
                       int left, int width)
{
    printf("%-*s", left, "step");
    for (uint32_t s = from; s < from + count; s++)
        printf("%-*u", s + 1 < from + count ? width : 1, s);
    printf("\n");
    for (uint32_t r = 0; r < d->ranks; r++)
        for (int line = 0; line < 2; line++) {
            char text[512] = "";
            size_t used = 0;

            if (line == 0)
                used = (size_t)snprintf(text, sizeof(text), "rank %u", r);
            while (used < (size_t)left)
                text[used++] = ' ';
            for (uint32_t s = from; s < from + count; s++) {
                const plan_cell *cell = &d->cells[(size_t)r * d->steps + s];
                const char *what = line == 0 ? cell->label : cell->sent;
                used += (size_t)snprintf(text + used, sizeof(text) - used,
                                         "%-*.*s", width, width - 1, what);
            }
            while (used > 0 && text[used - 1] == ' ')
                used--;
            text[used] = '\0';
            if (line == 0 || used > 0)
                printf("%s\n", text);
        }
}

static void print_text(const plan_drawing *d)
{
    char title[160];
    int left = left_of(d), width = widest(d, COLUMNS - left);
    uint32_t fit = (uint32_t)((COLUMNS - left) / width);

    plan_title(d, title, sizeof(title));
    printf("%s\n", title);
    for (uint32_t s = 0; s < d->steps; s += fit) {
        printf("\n");
        print_band(d, s, d->steps - s < fit ? d->steps - s : fit, left, width);
    }
    printf("\nA cell: the chunks of %s worked on; below, what is sent beside "
           "it.\n",
           strchr(d->cells[0].label, 'Q') != NULL ? "Q" : "KV");
}

static json_t *drawing_object(const plan_drawing *d)
{
    json_t *ranks = json_array();

    for (uint32_t r = 0; r < d->ranks; r++) {
        json_t *steps = json_array();

        for (uint32_t s = 0; s < d->steps; s++) {
            const plan_cell *cell = &d->cells[(size_t)r * d->steps + s];

            json_array_append_new(steps,
                                  json_pack("{s:s,s:s,s:I,s:I}", "chunks",
                                            cell->label, "sent", cell->sent,
                                            "pairs", (json_int_t)cell->pairs,
                                            "bytes", (json_int_t)cell->bytes));
        }
        json_array_append_new(ranks, steps);
    }
    return json_pack("{s:s,s:s,s:i,s:o}", "schedule", gyre_plan_name(d->plan),
                     "pass", plan_pass_name(gyre_plan_pass(d->plan)), "steps",
                     (int)d->steps, "ranks", ranks);
}

/* ---- ops, one a line ----------------------------------------------------- */

typedef struct op_list {
    const gyre_plan *plan;
    json_t *list; /* NULL: print */
} op_list;

static gyre_status print_op(void *user, const gyre_plan_step *step,
                            gyre_error *error)
{
    op_list *ops = user;
    char text[512];

    (void)error;
    gyre_plan_step_text(ops->plan, step, text, sizeof(text));
    if (ops->list != NULL)
        json_array_append_new(ops->list,
                              json_pack("{s:I,s:I,s:s}", "unit",
                                        (json_int_t)step->unit, "op",
                                        (json_int_t)step->op, "text", text));
    else
        printf("%4u %4u  %s\n", step->unit, step->op, text);
    return GYRE_OK;
}

static int print_ops(plan_ask *ask, gyre_plan *plan, uint64_t rank)
{
    op_list ops = {.plan = plan};
    gyre_error error = {0};

    if (rank >= gyre_plan_problem(plan)->ranks)
        return cli_fail(&ask->cli, CLI_USAGE,
                        "--rank: the plan has %u ranks, from 0",
                        gyre_plan_problem(plan)->ranks);
    if (ask->cli.json)
        ops.list = json_array();
    else
        printf("unit   op\n");
    gyre_status status =
        gyre_plan_walk(plan, (uint32_t)rank, print_op, &ops, &error);
    if (status == GYRE_OK && ask->cli.json)
        return cli_print_json(
            json_pack("{s:s,s:s,s:I,s:o}", "schedule", gyre_plan_name(plan),
                      "pass", plan_pass_name(gyre_plan_pass(plan)), "rank",
                      (json_int_t)rank, "ops", ops.list));
    json_decref(ops.list);
    return status == GYRE_OK ? CLI_GOOD
                             : cli_fail_status(&ask->cli, status, &error);
}

/* ---- command ------------------------------------------------------------- */

static void write_svg(void *user, FILE *file)
{
    plan_svg(user, file);
}

static int draw(plan_ask *ask, gyre_plan *plan, const char *svg)
{
    plan_drawing d = {.plan = plan};
    int code = collect(ask, &d);

    if (code == -1 && svg != NULL)
        code = plan_write(ask, svg, write_svg, &d);
    else if (code == -1 && ask->cli.json)
        code = cli_print_json(drawing_object(&d));
    else if (code == -1)
        print_text(&d), code = CLI_GOOD;
    free(d.cells);
    return code;
}

int plan_show(int argc, char **argv)
{
    static const cli_usage usage = {
        "NAME|FILE", "Draw a plan: what each rank computes and sends, by step.",
        NULL, 1, 1};
    const char *svg = NULL;
    uint64_t rank = 0;
    const char *word;
    plan_ask ask = {0};
    const cli_option own[] = {
        {"svg", "FILE", "write a picture; - is standard output", CLI_TEXT,
         &svg},
        {"rank", "N", "list the ops of one rank instead", CLI_COUNT, &rank},
        {0}};
    gyre_plan *plan = NULL;
    bool one_rank = cli_words(argc, argv, "rank", &word, 1) != 0;
    int code = plan_parse(&ask, &usage, own, argc, argv);

    if (code != -1)
        return code;
    const char *name = ask.cli.argv[0];
    code = plan_get(&ask, name,
                    plan_is_file(name) ? GYRE_PASS_COUNT : ask.request.pass,
                    &plan);
    if (code == -1)
        code = one_rank ? print_ops(&ask, plan, rank) : draw(&ask, plan, svg);
    gyre_plan_free(plan);
    plan_close(&ask);
    return code;
}
