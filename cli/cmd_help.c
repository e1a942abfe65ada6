/*
 * cmd_help.c - qplan help: the list of commands and the page of one, printed from the tables; the
 * topics are in topics.c.
 */
#include "help.h"
#include "nearest.h"

#include <stdio.h>
#include <string.h>

/* Where the text of an option begins; a longer left side gets a line of its own. */
#define TEXT_COLUMN 28

#define LINE_COLUMNS 100

static const struct arg_option general_options[] = {
    {.name = "json", .help = "print the report as JSON, one line, on stdout"},
    {.name = "quiet", .letter = "q", .help = "no summary and no progress on stderr"},
    {.name = "help", .letter = "h", .help = "show this page"},
};

const struct arg_group cli_general_options = {"General", general_options,
                                              sizeof general_options / sizeof general_options[0]};

/* Prints a value from this column on, a long choice in several lines; returns where it ends. */
static int print_value(FILE *to, const char *value, int column)
{
    int n = column;
    while (*value) {
        const int len = (int)strcspn(value, "|") + (strchr(value, '|') != NULL);
        if (n + len > LINE_COLUMNS)
            n = fprintf(to, "\n%*s", column, "") - 1;
        n += fprintf(to, "%.*s", len, value);
        value += len;
    }
    return n;
}

static void print_option(FILE *to, const struct arg_option *row)
{
    int n = fprintf(to, "  %s%s%s--%s%s", row->letter ? "-" : "  ", row->letter ? row->letter : "",
                    row->letter ? ", " : "  ", row->name, row->value ? " " : "");
    if (row->value)
        n = print_value(to, row->value, n);
    if (n + 2 > TEXT_COLUMN) {
        fputc('\n', to);
        n = 0;
    }
    fprintf(to, "%*s", TEXT_COLUMN - n, "");
    for (const char *c = row->help; *c; c++) {
        fputc(*c, to);
        if (*c == '\n')
            fprintf(to, "%*s", TEXT_COLUMN, "");
    }
    if (row->repeat)
        fputs(" (repeatable)", to);
    if (row->fallback)
        fprintf(to, " [%s]", row->fallback);
    fputc('\n', to);
}

static void print_options(FILE *to, const struct command *command)
{
    const char *title = "";
    for (const struct arg_group *const *group = command->groups; *group; group++) {
        if (strcmp(title, (*group)->title) != 0)
            fprintf(to, "\n%s:\n", (*group)->title);
        title = (*group)->title;
        for (size_t i = 0; i < (*group)->n_options; i++)
            print_option(to, &(*group)->options[i]);
    }
}

void help_command(const struct command *command)
{
    FILE *to = stdout;
    fprintf(to, "Usage: qplan %s [OPTION]...%s%s\n\n%s", command->name,
            *command->operands ? " " : "", command->operands, command->about);
    print_options(to, command);
    fprintf(to, "\nExamples:\n%s", command->examples);
    fputs("\nExit codes: 0 done; 1 a proof or gate failed; 2 usage; 3 the input does not fit;\n"
          "4 file system; 5 memory or device; 70 a bug; 128+N stopped by signal N.\n",
          to);
}

void help_overview(FILE *to)
{
    fputs("Usage: qplan COMMAND [OPTION]... OPERAND...\n\nCommands:\n", to);
    for (size_t i = 0; cli_commands[i]; i++)
        if (!cli_commands[i]->hidden)
            fprintf(to, "  %-12s%s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fputs("\nTopics of 'qplan help TOPIC':\n", to);
    for (const struct help_topic *topic = help_topics; topic->name; topic++)
        fprintf(to, "  %-12s%s\n", topic->name, topic->summary);
    fputs("\nExamples:\n"
          "  qplan quantize --per-channel --axis 0 model.safetensors\n"
          "  qplan verify model.int8.safetensors model.safetensors\n"
          "\n'qplan help COMMAND' explains a command, 'qplan --version' prints the version.\n",
          to);
}

/* A word that is near to a topic means that, else it is taken for a command. */
static enum qplan_status unknown_page(const char *name, struct qplan_error *err)
{
    struct nearest nearest;
    enum qplan_status status = cli_unknown_command(name, err);
    nearest_begin(&nearest, name);
    for (const struct help_topic *topic = help_topics; topic->name; topic++)
        nearest_try(&nearest, topic->name);
    if (nearest_found(&nearest))
        cli_hint(err, "did you mean '%s'?", nearest_found(&nearest));
    return status;
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    const char *const *operands;
    const size_t n = args_operands(args, &operands);
    const struct command *command = n ? cli_find_command(operands[0]) : NULL;
    const struct help_topic *topic = n ? help_find_topic(operands[0]) : NULL;
    if (command)
        help_command(command);
    else if (topic)
        topic->print(stdout);
    else if (n)
        return unknown_page(operands[0], err);
    else
        help_overview(stdout);
    return cli_finish_stdout(QPLAN_OK, "help", err);
}

/* Of the general options only the last one has a meaning here. */
const struct arg_group help_options = {"General", &general_options[2], 1};
static const struct arg_group *const groups[] = {&help_options, NULL};

const struct command cli_help = {
    .name = "help",
    .operands = "[COMMAND|TOPIC]",
    .summary = "explain a command or a topic",
    .about = "Explains COMMAND or TOPIC, or lists the commands and topics.\n",
    .examples = "  qplan help quantize\n"
                "  qplan help metrics\n",
    .groups = groups,
    .run = run,
};
