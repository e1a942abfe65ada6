/*
 * main.c - the qplan program: the table of commands, which one is meant, and what its status is as
 * an exit code. Only this file prints errors.
 */
#include "cli.h"
#include "help.h"
#include "nearest.h"

#include <stdio.h>
#include <string.h>

const struct command *const cli_commands[] = {
    &cli_quantize,   &cli_plan,    &cli_explain,     &cli_inspect, &cli_verify,
    &cli_dequantize, &cli_convert, &cli_lint,        &cli_clean,   &cli_devices,
    &cli_op,         &cli_help,    &cli_completions, NULL,
};

static int exit_code(enum qplan_status status)
{
    static const int codes[] = {
        [QPLAN_OK] = 0,         [QPLAN_ERR_PROOF] = 1,
        [QPLAN_ERR_USAGE] = 2,  [QPLAN_ERR_INVALID] = 3,
        [QPLAN_ERR_VALUE] = 3,  [QPLAN_ERR_UNSUPPORTED] = 3,
        [QPLAN_ERR_IO] = 4,     [QPLAN_ERR_MEMORY] = 5,
        [QPLAN_ERR_DEVICE] = 5, [QPLAN_ERR_INTERNAL] = 70,
    };
    if (status == QPLAN_ERR_CANCELLED)
        return 128 + (int)cli_signal;
    /* What only a caller of the library can do wrong is a bug of this program. */
    return status == QPLAN_OK || codes[status] ? codes[status] : 70;
}

/* ---- Which command ----------------------------------------------------------------------------*/

const struct command *cli_find_command(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

enum qplan_status cli_unknown_command(const char *name, struct qplan_error *err)
{
    struct nearest nearest;
    nearest_begin(&nearest, name);
    for (size_t i = 0; cli_commands[i]; i++)
        if (!cli_commands[i]->hidden)
            nearest_try(&nearest, cli_commands[i]->name);
    (void)cli_fail(err, QPLAN_ERR_USAGE, *name ? name : "''", "unknown command");
    if (nearest_found(&nearest))
        cli_hint(err, "did you mean '%s'?", nearest_found(&nearest));
    else
        cli_hint(err, "'qplan help' lists the commands");
    return QPLAN_ERR_USAGE;
}

/* ---- Running it -------------------------------------------------------------------------------*/

/* Compares the number of operands with the names in the row: those in brackets may be absent, and
 * behind dots there may be any number. */
static enum qplan_status check_operands(const struct command *command, const struct args *args,
                                        struct qplan_error *err)
{
    const char *const *operands;
    size_t n = args_operands(args, &operands), most = 0, least = 0;
    for (const char *at = command->operands; *at; at += strspn(at, " ")) {
        least += *at != '[';
        most++;
        if (strncmp(at + strcspn(at, ". "), "...", 3) == 0)
            most = SIZE_MAX;
        at += strcspn(at, " ");
    }
    if (n < least)
        return cli_fail(err, QPLAN_ERR_USAGE, command->name, "missing operand: expected %s",
                        command->operands);
    if (n <= most)
        return QPLAN_OK;
    char shown[CLI_SHOWN];
    return cli_fail(
        err, QPLAN_ERR_USAGE, command->name, "too many operands: expected %s, found also '%s'",
        most ? command->operands : "none", cli_escape(shown, sizeof shown, operands[most]));
}

static enum qplan_status run_parsed(const struct command *command, const struct args *args,
                                    struct qplan_error *err)
{
    if (args_has(args, "help")) {
        help_command(command);
        return cli_finish_stdout(QPLAN_OK, "help", err);
    }
    CLI_TRY(check_operands(command, args, err));
    return command->run(args, err);
}

static enum qplan_status run_command(const struct command *command, int argc, char **argv,
                                     struct qplan_error *err)
{
    struct args args;
    enum qplan_status status = args_parse(&args, command->groups, argc, argv, err);
    if (status == QPLAN_OK)
        status = run_parsed(command, &args, err);
    args_free(&args);
    if (status == QPLAN_ERR_USAGE && !err->hint[0] && !err->advice)
        cli_hint(err, "see 'qplan help %s'", command->name);
    return status;
}

/* qplan --help and qplan --version: options without a command. */
static enum qplan_status run_option(const char *word, struct qplan_error *err)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help_overview(stdout);
        return cli_finish_stdout(QPLAN_OK, "help", err);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        puts("qplan " QPLAN_VERSION);
        return cli_finish_stdout(QPLAN_OK, "version", err);
    }
    (void)cli_fail(err, QPLAN_ERR_USAGE, word, "unknown option: expected a command first");
    cli_hint(err, "'qplan help' lists the commands");
    return QPLAN_ERR_USAGE;
}

static enum qplan_status dispatch(int argc, char **argv, struct qplan_error *err)
{
    if (argc < 2) {
        help_overview(stderr);
        return QPLAN_ERR_USAGE;
    }
    if (argv[1][0] == '-' && argv[1][1])
        return run_option(argv[1], err);
    const struct command *command = cli_find_command(argv[1]);
    if (!command)
        return cli_unknown_command(argv[1], err);
    return run_command(command, argc - 1, argv + 1, err);
}

int main(int argc, char **argv)
{
    cli_reserve_descriptors();
    cli_buffer_stdout();
    cli_catch_signals();
    struct qplan_error err = {.status = QPLAN_OK};
    enum qplan_status status = dispatch(argc, argv, &err);
    if (status == QPLAN_ERR_CANCELLED)
        (void)cli_check_signal(&err); /* says which signal, in place of the library's words */
    if (status != QPLAN_OK && err.message[0])
        cli_print_error(&err);
    return exit_code(status);
}
