/*
 * args.h - the command line of one command, parsed from one table of options.
 *
 * The same rows are read by the parser, the help and the completions. Values are text; values.h
 * turns them into numbers and choices.
 */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <qplan.h>

struct arg_option {
    const char *name;     /* without the dashes; exact, never abbreviated */
    const char *letter;   /* "o", or NULL */
    const char *value;    /* NULL: none. Upper case names a kind (N, FILE), else words: a|b|c */
    bool repeat;          /* may be given more than once */
    const char *help;     /* a newline in it starts a new line */
    const char *fallback; /* what holds when it is not given, or NULL */
};

/* A titled part of the help. Neighbouring groups with one title are shown as one. */
struct arg_group {
    const char *title;
    const struct arg_option *options;
    size_t n_options;
};

/* A parsed command line. Borrows argv and the groups. */
struct args {
    const struct arg_group *const *groups;
    size_t n_rows; /* of all groups */
    void **table;  /* of argtable: one entry for each row, the operands, the end */
    size_t n_table;
};

/*
 * Parses argv[1..] by the groups, a list ended by NULL. USAGE for an option that is unknown, lacks
 * its value, has one that it does not take, or comes twice. Options may follow operands; "--" ends
 * them.
 */
enum qplan_status args_parse(struct args *out, const struct arg_group *const *groups, int argc,
                             char **argv, struct qplan_error *err);
void args_free(struct args *args);

/* Whether the option was given. One that the command does not have was not. */
bool args_has(const struct args *args, const char *name);

/* The value of a single-valued option, or NULL. */
const char *args_value(const struct args *args, const char *name);

/* All values of an option, in order; returns how many. */
size_t args_values(const struct args *args, const char *name, const char *const **out);

/* The operands, in order; returns how many. */
size_t args_operands(const struct args *args, const char *const **out);

/* The row of an option, or NULL if the command does not have it. */
const struct arg_option *args_row(const struct args *args, const char *name);

#endif
