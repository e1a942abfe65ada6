/*
 * cmd_devices.c - qplan devices: which devices there are besides the CPU, and why one cannot be
 * used.
 */
#include "cli.h"

static const struct arg_option options[] = {
    {.name = "self-test",
     .help = "first run every kernel of every device and compare with\n"
             "the CPU; a device that differs is not usable"},
    {.name = "json", .help = "print the list as JSON, one line"},
    {.name = "help", .letter = "h", .help = "show this page"},
};

static const struct arg_group list_options = {"Options", options,
                                              sizeof options / sizeof options[0]};

static const struct arg_group *const groups[] = {&list_options, NULL};

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    const bool self_test = args_has(args, "self-test");
    enum qplan_status status =
        args_has(args, "json") ? qplan_devices_write_json(self_test, cli_write_stdout, NULL, err)
                               : qplan_devices_write_text(self_test, cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "list", err);
}

const struct command cli_devices = {
    .name = "devices",
    .operands = "",
    .summary = "list devices for --device, and why one cannot be used",
    .about = "Lists the backends and their devices: name, memory, driver, and whether the device\n"
             "is usable or why not. The first word of a line is what --device takes. Every device\n"
             "writes the same bytes as the CPU, or is not used.\n",
    .examples = "  qplan devices\n"
                "  qplan devices --self-test\n"
                "  qplan devices --json | jq '.devices[] | select(.usable)'\n",
    .groups = groups,
    .run = run,
};
