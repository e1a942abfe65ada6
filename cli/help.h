/*
 * help.h - the help texts, printed from the tables of commands and options.
 */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli.h"

#include <stdio.h>

/* --help alone, for commands that make no report. */
extern const struct arg_group help_options;

/* The page of a command, to stdout. */
void help_command(const struct command *command);

/* The list of commands and two examples. */
void help_overview(FILE *to);

#endif
