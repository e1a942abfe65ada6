/*
 * cmd_completions.c - qplan completions: scripts for bash, zsh and fish, written from the tables.
 *
 * Hidden: the scripts are made once, kept in scripts/completions and compared by a test.
 */
#include "cli.h"
#include "help.h"

#include <stdio.h>
#include <string.h>

/* What can be said about a value before it is typed. */
enum value_kind { VALUE_NONE, VALUE_WORDS, VALUE_FILE, VALUE_FREE };

static enum value_kind kind_of(const char *value)
{
    if (!value)
        return VALUE_NONE;
    if (value[0] >= 'a' && value[0] <= 'z')
        return VALUE_WORDS;
    bool file =
        strcmp(value, "FILE") == 0 || strcmp(value, "PATH") == 0 || strcmp(value, "SOURCE") == 0;
    return file ? VALUE_FILE : VALUE_FREE;
}

/* a|b|c with blanks instead of the bars. */
static void put_words(const char *words)
{
    for (; *words; words++)
        putchar(*words == '|' ? ' ' : *words);
}

/* Text on one line, with a backslash before each of the special characters. */
static void put_text(const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text))
            putchar('\\');
        putchar(*text == '\n' ? ' ' : *text);
    }
}

static void each_option(const struct command *command,
                        void (*put)(const struct command *, const struct arg_option *))
{
    for (const struct arg_group *const *group = command->groups; *group; group++)
        for (size_t i = 0; i < (*group)->n_options; i++)
            put(command, &(*group)->options[i]);
}

static void each_command(void (*put)(const struct command *))
{
    for (size_t i = 0; cli_commands[i]; i++)
        if (!cli_commands[i]->hidden)
            put(cli_commands[i]);
}

static void put_name(const struct command *command)
{
    printf("%s ", command->name);
}

/* What qplan help takes. */
static void put_pages(void)
{
    each_command(put_name);
    for (const struct help_topic *topic = help_topics; topic->name; topic++)
        printf("%s ", topic->name);
}

/* ---- bash -------------------------------------------------------------------------------------*/

static void bash_value(const struct command *command, const struct arg_option *row)
{
    (void)command;
    enum value_kind kind = kind_of(row->value);
    if (kind == VALUE_NONE)
        return;
    if (row->letter)
        printf("        -%s | --%s) ", row->letter, row->name);
    else
        printf("        --%s) ", row->name);
    if (kind == VALUE_WORDS) {
        fputs("words='", stdout);
        put_words(row->value);
        fputs("' ;;\n", stdout);
    } else {
        puts(kind == VALUE_FILE ? "return ;;" : "compopt +o default; return ;;");
    }
}

static void bash_flag(const struct command *command, const struct arg_option *row)
{
    (void)command;
    if (row->letter)
        printf("-%s ", row->letter);
    printf("--%s ", row->name);
}

static void bash_command(const struct command *command)
{
    if (command == &cli_help) {
        fputs("    help) words='", stdout);
        put_pages();
        puts("' ;;");
        return;
    }
    printf("    %s)\n        case $previous in\n", command->name);
    each_option(command, bash_value);
    fputs("        *) [[ $current == -* ]] && words='", stdout);
    each_option(command, bash_flag);
    fputs("' ;;\n        esac\n        ;;\n", stdout);
}

static void put_bash(void)
{
    fputs("# bash completion for qplan. Made by 'qplan completions bash'; do not edit.\n"
          "_qplan() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command= words=\n"
          "    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}\n"
          "    COMPREPLY=()\n"
          "    case $command in\n"
          "    '') words='",
          stdout);
    each_command(put_name);
    fputs("--help --version' ;;\n", stdout);
    each_command(bash_command);
    fputs("    esac\n"
          "    # Without words or a match, bash goes on with file names.\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "}\n"
          "complete -o default -F _qplan qplan\n",
          stdout);
}

/* ---- zsh --------------------------------------------------------------------------------------*/

#define ZSH_SPECIAL "[]:\\"

static void zsh_option(const struct command *command, const struct arg_option *row)
{
    (void)command;
    fputs("            ", stdout);
    if (row->repeat)
        fputs("'*'", stdout);
    if (row->letter)
        printf("'(-%s --%s)'{-%s,--%s}", row->letter, row->name, row->letter, row->name);
    else
        printf("--%s", row->name);
    fputs("'[", stdout);
    for (const char *at = row->help; *at; at++) {
        const char one[] = {*at, '\0'};
        if (*at == '\'')
            fputs("'\\''", stdout);
        else
            put_text(one, ZSH_SPECIAL);
    }
    fputs("]", stdout);
    enum value_kind kind = kind_of(row->value);
    if (kind == VALUE_WORDS) {
        printf(":%s:(", row->name);
        put_words(row->value);
        fputs(")", stdout);
    } else if (kind != VALUE_NONE) {
        printf(":%s:%s", row->value, kind == VALUE_FILE ? "_files" : "");
    }
    fputs("' \\\n", stdout);
}

static void zsh_command(const struct command *command)
{
    printf("    %s)\n        _arguments -s -S \\\n", command->name);
    each_option(command, zsh_option);
    if (command == &cli_help) {
        fputs("            '1:command:(", stdout);
        put_pages();
        fputs(")'\n", stdout);
    } else {
        fputs("            '*:file:_files'\n", stdout);
    }
    fputs("        ;;\n", stdout);
}

static void zsh_summary(const struct command *command)
{
    printf("            '%s:%s'\n", command->name, command->summary);
}

static void put_zsh(void)
{
    fputs("#compdef qplan\n"
          "# zsh completion for qplan. Made by 'qplan completions zsh'; do not edit.\n"
          "_qplan() {\n"
          "    if ((CURRENT == 2)); then\n"
          "        local -a commands=(\n",
          stdout);
    each_command(zsh_summary);
    fputs("        )\n"
          "        _describe command commands\n"
          "        _arguments --help'[list the commands]' --version'[print the version]'\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $command in\n",
          stdout);
    each_command(zsh_command);
    fputs("    esac\n}\n_qplan \"$@\"\n", stdout);
}

/* ---- fish -------------------------------------------------------------------------------------*/

static void fish_option(const struct command *command, const struct arg_option *row)
{
    printf("complete -c qplan -n '__fish_seen_subcommand_from %s'", command->name);
    if (row->letter)
        printf(" -s %s", row->letter);
    printf(" -l %s", row->name);
    enum value_kind kind = kind_of(row->value);
    if (kind == VALUE_WORDS) {
        fputs(" -x -a '", stdout);
        put_words(row->value);
        fputs("'", stdout);
    } else if (kind != VALUE_NONE) {
        fputs(kind == VALUE_FILE ? " -r -F" : " -x", stdout);
    }
    fputs(" -d '", stdout);
    put_text(row->help, "'\\");
    fputs("'\n", stdout);
}

static void fish_command(const struct command *command)
{
    printf("complete -c qplan -n __fish_use_subcommand -f -a %s -d '", command->name);
    put_text(command->summary, "'\\");
    fputs("'\n", stdout);
    each_option(command, fish_option);
}

static void put_fish(void)
{
    fputs("# fish completion for qplan. Made by 'qplan completions fish'; do not edit.\n"
          "complete -c qplan -n __fish_use_subcommand -f -l help -d 'list the commands'\n"
          "complete -c qplan -n __fish_use_subcommand -f -l version -d 'print the version'\n"
          "complete -c qplan -n '__fish_seen_subcommand_from help' -f -a '",
          stdout);
    put_pages();
    fputs("'\n", stdout);
    each_command(fish_command);
}

/* ---- The command ------------------------------------------------------------------------------*/

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    static const struct {
        const char *name;
        void (*put)(void);
    } shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};
    const char *const *operands;
    (void)args_operands(args, &operands);
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(operands[0], shells[i].name) != 0)
            continue;
        shells[i].put();
        return cli_finish_stdout(QPLAN_OK, "completions", err);
    }
    char shown[CLI_SHOWN];
    return cli_fail(err, QPLAN_ERR_USAGE, "completions",
                    "unknown shell: expected bash, zsh or fish, found '%s'",
                    cli_escape(shown, sizeof shown, operands[0]));
}

static const struct arg_group *const groups[] = {&help_options, NULL};

const struct command cli_completions = {
    .name = "completions",
    .operands = "SHELL",
    .summary = "print the completions of a shell",
    .about = "Prints the completion script of SHELL: bash, zsh or fish.\n",
    .examples = "  qplan completions bash > /etc/bash_completion.d/qplan\n",
    .groups = groups,
    .run = run,
    .hidden = true,
};
