/*
 * args.c - the shim over argtable, version 3 or 2: the only file that knows it.
 *
 * argtable alone accepts any unique prefix of an option and words its errors in its own way. So the
 * command line is first checked against the table, with our messages, and only one that is correct
 * reaches arg_parse. Never parses a value.
 */
#include "args.h"
#include "cli.h"
#include "nearest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<argtable3.h>)
#include <argtable3.h>
#else
#include <argtable2.h>
#endif

/* ---- The rows ---------------------------------------------------------------------------------*/

static size_t count_rows(const struct arg_group *const *groups)
{
    size_t n = 0;
    for (; *groups; groups++)
        n += (*groups)->n_options;
    return n;
}

static const struct arg_option *row_at(const struct args *args, size_t i)
{
    const struct arg_group *const *group = args->groups;
    for (; i >= (*group)->n_options; group++)
        i -= (*group)->n_options;
    return &(*group)->options[i];
}

static size_t find_name(const struct args *args, const char *name, size_t n)
{
    size_t i = 0;
    for (; i < args->n_rows; i++) {
        const char *known = row_at(args, i)->name;
        if (strncmp(known, name, n) == 0 && known[n] == '\0')
            break;
    }
    return i;
}

static size_t find_letter(const struct args *args, char letter)
{
    size_t i = 0;
    for (; i < args->n_rows; i++) {
        const char *known = row_at(args, i)->letter;
        if (known && known[0] == letter)
            break;
    }
    return i;
}

/* ---- The check --------------------------------------------------------------------------------*/

struct check {
    const struct args *args;
    unsigned char *seen; /* one for each row */
    int argc;
    char **argv;
    int next; /* index of the word behind the current one */
    struct qplan_error *err;
};

static enum qplan_status unknown_option(struct check *c, const char *word, size_t n)
{
    char shown[CLI_SHOWN];
    (void)snprintf(shown, sizeof shown, "%.*s", (int)(n < sizeof shown ? n : sizeof shown), word);
    enum qplan_status status = cli_fail(c->err, QPLAN_ERR_USAGE, shown, "unknown option");
    if (n < 3)
        return status;
    struct nearest nearest;
    nearest_begin(&nearest, shown + 2);
    for (size_t i = 0; i < c->args->n_rows; i++)
        nearest_try(&nearest, row_at(c->args, i)->name);
    if (nearest_found(&nearest))
        cli_hint(c->err, "did you mean '--%s'?", nearest_found(&nearest));
    return status;
}

/* The value of row i is attached, the next word, or missing. */
static enum qplan_status take_value(struct check *c, size_t i, const char *attached)
{
    const struct arg_option *row = row_at(c->args, i);
    char flag[CLI_SHOWN];
    (void)snprintf(flag, sizeof flag, "--%s", row->name);
    if (!row->value) {
        if (!attached)
            return QPLAN_OK;
        return cli_fail(c->err, QPLAN_ERR_USAGE, flag, "takes no value");
    }
    if (!attached && c->next >= c->argc)
        return cli_fail(c->err, QPLAN_ERR_USAGE, flag, "expected a value (%s), found none",
                        row->value);
    const char *value = attached ? attached : c->argv[c->next++];
    if (!*value) /* argtable takes an empty value for none */
        return cli_fail(c->err, QPLAN_ERR_USAGE, flag, "expected a value (%s), found ''",
                        row->value);
    if (c->seen[i] && !row->repeat)
        return cli_fail(c->err, QPLAN_ERR_USAGE, flag, "given more than once");
    c->seen[i] = 1;
    return QPLAN_OK;
}

static enum qplan_status check_long(struct check *c, const char *word)
{
    size_t n = strcspn(word, "=");
    size_t i = find_name(c->args, word + 2, n - 2);
    if (i == c->args->n_rows)
        return unknown_option(c, word, n);
    return take_value(c, i, word[n] == '=' ? word + n + 1 : NULL);
}

/* A word of letters: -q, -qo FILE, -oFILE. */
static enum qplan_status check_letters(struct check *c, const char *word)
{
    for (const char *letter = word + 1; *letter; letter++) {
        size_t i = find_letter(c->args, *letter);
        if (i == c->args->n_rows) {
            char flag[3] = {'-', *letter, '\0'};
            return unknown_option(c, flag, 2);
        }
        if (row_at(c->args, i)->value)
            return take_value(c, i, letter[1] ? letter + 1 : NULL);
    }
    return QPLAN_OK;
}

static enum qplan_status check_words(struct check *c)
{
    while (c->next < c->argc) {
        const char *word = c->argv[c->next++];
        if (strcmp(word, "--") == 0)
            break;
        if (word[0] != '-' || word[1] == '\0')
            continue;
        CLI_TRY(word[1] == '-' ? check_long(c, word) : check_letters(c, word));
    }
    return QPLAN_OK;
}

static enum qplan_status check(const struct args *args, int argc, char **argv,
                               struct qplan_error *err)
{
    struct check c = {.args = args, .argc = argc, .argv = argv, .next = 1, .err = err};
    c.seen = calloc(args->n_rows + 1, 1);
    if (!c.seen)
        return cli_fail_memory(err);
    enum qplan_status status = check_words(&c);
    free(c.seen);
    return status;
}

/* ---- The parse --------------------------------------------------------------------------------*/

/* The maximum is a number of slots that argtable allocates: never more than there are words. */
static void *make_entry(const struct arg_option *row, int argc)
{
    if (!row->value)
        return arg_litn(row->letter, row->name, 0, argc, NULL);
    return arg_strn(row->letter, row->name, NULL, 0, row->repeat ? argc : 1, NULL);
}

static enum qplan_status make_table(struct args *args, int argc, struct qplan_error *err)
{
    args->n_table = args->n_rows + 2;
    args->table = calloc(args->n_table, sizeof *args->table);
    if (!args->table)
        return cli_fail_memory(err);
    for (size_t i = 0; i < args->n_rows; i++)
        args->table[i] = make_entry(row_at(args, i), argc);
    args->table[args->n_rows] = arg_strn(NULL, NULL, NULL, 0, argc, NULL);
    args->table[args->n_rows + 1] = arg_end(1);
    for (size_t i = 0; i < args->n_table; i++)
        if (!args->table[i])
            return cli_fail_memory(err);
    return QPLAN_OK;
}

enum qplan_status args_parse(struct args *out, const struct arg_group *const *groups, int argc,
                             char **argv, struct qplan_error *err)
{
    *out = (struct args){.groups = groups, .n_rows = count_rows(groups)};
    CLI_TRY(check(out, argc, argv, err));
    CLI_TRY(make_table(out, argc, err));
    /* With this variable set, argtable would let the first operand end the options. */
    (void)unsetenv("POSIXLY_CORRECT");
    errno = 0;
    if (arg_parse(argc, argv, out->table) == 0)
        return QPLAN_OK;
    /* The words were checked before, so only memory can be short; argtable does not say. */
    return errno == ENOMEM
               ? cli_fail_memory(err)
               : cli_fail(err, QPLAN_ERR_INTERNAL, argv[0], "argtable refuses checked options");
}

void args_free(struct args *args)
{
    if (args->table)
        arg_freetable(args->table, args->n_table);
    free(args->table);
    *args = (struct args){0};
}

/* ---- Reading ----------------------------------------------------------------------------------*/

const struct arg_option *args_row(const struct args *args, const char *name)
{
    const size_t i = find_name(args, name, strlen(name));
    return i < args->n_rows ? row_at(args, i) : NULL;
}

bool args_has(const struct args *args, const char *name)
{
    const size_t i = find_name(args, name, strlen(name));
    if (i == args->n_rows)
        return false;
    if (row_at(args, i)->value)
        return ((const struct arg_str *)args->table[i])->count > 0;
    return ((const struct arg_lit *)args->table[i])->count > 0;
}

size_t args_values(const struct args *args, const char *name, const char *const **out)
{
    *out = NULL;
    if (!args_has(args, name))
        return 0;
    const struct arg_str *entry = args->table[find_name(args, name, strlen(name))];
    *out = entry->sval;
    return (size_t)entry->count;
}

const char *args_value(const struct args *args, const char *name)
{
    const char *const *values;
    return args_values(args, name, &values) ? values[0] : NULL;
}

size_t args_operands(const struct args *args, const char *const **out)
{
    const struct arg_str *entry = args->table[args->n_rows];
    *out = entry->sval;
    return (size_t)entry->count;
}
