/*
 * cmd_clean.c - qplan clean: remove what a run that was killed has left.
 */
#include "task.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct arg_option help_rows[] = {
    {.name = "help", .letter = "h", .help = "show this page"},
    {.name = "quiet", .letter = "q", .help = "no line about what was removed"},
};

static const struct arg_group help_options = {"General", help_rows,
                                              sizeof help_rows / sizeof help_rows[0]};

static const struct arg_group *const groups[] = {&help_options, NULL};

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct qplan_cleaned removed;
    char shown[4 * CLI_SHOWN], size[CLI_NUMBER];
    const char *path;
    CLI_TRY(task_model_path(args, 0, "OUT", &path, err));
    CLI_TRY(qplan_clean(path, &removed, err));
    size_t n = strlen(cli_escape(shown, sizeof shown, path));
    while (n > 1 && shown[n - 1] == '/')
        n--;
    if (!args_has(args, "quiet"))
        fprintf(stderr, "%.*s.partial: removed, %" PRIu64 " file%s, %s\n", (int)n, shown,
                removed.n_files, removed.n_files == 1 ? "" : "s",
                cli_format_bytes(size, removed.n_bytes));
    return QPLAN_OK;
}

const struct command cli_clean = {
    .name = "clean",
    .operands = "OUT",
    .summary = "remove what a killed run has left of a folder",
    .about = "Removes OUT.partial, the folder in which a run builds OUT. It is left only by a run\n"
             "that was killed: a run that fails or is interrupted removes it itself. A folder of\n"
             "that name that holds something else, or in which a run is at work, is refused.\n",
    .examples = "  qplan clean Llama-3-8B-int8\n",
    .groups = groups,
    .run = run,
};
