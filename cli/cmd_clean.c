/*
 * cmd_clean.c - qplan clean: remove what a run that was killed has left.
 */
#include "task.h"

static const struct arg_option help_rows[] = {
    {.name = "help", .letter = "h", .help = "show this page"},
};

static const struct arg_group help_options = {"General", help_rows, 1};

static const struct arg_group *const groups[] = {&help_options, NULL};

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    const char *path;
    CLI_TRY(task_model_path(args, 0, "OUT", &path, err));
    return qplan_clean(path, err);
}

const struct command cli_clean = {
    .name = "clean",
    .operands = "OUT",
    .summary = "remove what a killed run has left of a folder",
    .about = "Removes OUT.partial, the folder in which a run builds OUT. It is left only by a run\n"
             "that was killed: a run that fails or is interrupted removes it itself.\n",
    .examples = "  qplan clean Llama-3-8B-int8\n",
    .groups = groups,
    .run = run,
};
