/*
 * help.h - the help texts, printed from the tables of commands and options.
 */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli.h"

#include <stdio.h>

/* --help alone, for commands that make no report. */
extern const struct arg_group help_options;

/* A page of the help that is of no command; the table ends with a row without a name. */
struct help_topic {
    const char *name;
    const char *summary; /* one line for the list of topics */
    void (*print)(FILE *to);
};
extern const struct help_topic help_topics[];

/* The topic of that name, or NULL. */
const struct help_topic *help_find_topic(const char *name);

/* The page of a command, to stdout. */
void help_command(const struct command *command);

/* The list of commands and topics, and two examples. */
void help_overview(FILE *to);

#endif
