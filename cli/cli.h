/*
 * cli.h - what every part of the program shares: a command, messages on stderr, data on stdout,
 * and the signal that asks for a stop.
 *
 * A function that can fail returns enum qplan_status and describes the failure in its last
 * argument, as the library does; main prints it once. Nothing exits, except on a bug of the
 * program itself: an option that a command asks for and its table lacks (args.h).
 */
#ifndef CLI_H
#define CLI_H

#include "args.h"

#include <qplan.h>

/* ---- Commands ---------------------------------------------------------------------------------*/

struct command {
    const char *name;
    const char *operands; /* "MODEL", "FILE SOURCE", "[NAME]", "[GLOB...]" for any number */
    const char *summary;  /* one line for the list of commands */
    const char *about;    /* a paragraph of its own help */
    const char *examples; /* lines, each with its newline */
    const struct arg_group *const *groups;
    enum qplan_status (*run)(const struct args *args, struct qplan_error *err);
    bool hidden; /* not listed; for building the program */
};

/* The table in main.c, ended by NULL, in the order of the help. */
extern const struct command *const cli_commands[];

extern const struct command cli_quantize, cli_plan, cli_inspect, cli_verify, cli_dequantize;
extern const struct command cli_explain, cli_lint, cli_convert, cli_clean, cli_devices, cli_op,
    cli_help;
extern const struct command cli_completions;

/* The command of that name, or NULL. */
const struct command *cli_find_command(const char *name);

/* USAGE for a name that is no command, with the nearest one as a hint. */
enum qplan_status cli_unknown_command(const char *name, struct qplan_error *err);

/* The options that every command has, and their own --help. */
extern const struct arg_group cli_general_options;

/* ---- Messages ---------------------------------------------------------------------------------*/

/* Room for a value quoted in a message; longer ones are cut. */
#define CLI_SHOWN 128

#define CLI_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))

/* Makes text safe for a terminal: controls, format characters and invalid UTF-8 become escapes. */
const char *cli_escape(char *out, size_t n_out, const char *text);

/* Fills err and returns status. The subject is escaped here; values in the message are not. */
enum qplan_status cli_fail(struct qplan_error *err, enum qplan_status status, const char *subject,
                           const char *fmt, ...) CLI_PRINTF(4, 5);

/* A failed system call: IO, and the description of errnum behind the text. */
enum qplan_status cli_fail_errno(struct qplan_error *err, int errnum, const char *subject,
                                 const char *what);

/* Out of memory in the program itself. */
enum qplan_status cli_fail_memory(struct qplan_error *err);

/* What the user can do about the failure. */
void cli_hint(struct qplan_error *err, const char *fmt, ...) CLI_PRINTF(2, 3);

/* Lines on stderr. A stderr that cannot be written to changes nothing. */
void cli_print_error(const struct qplan_error *err);
void cli_print_warning(const char *text);
void cli_print_gate(const char *text);

/* 1234567 -> "1.23 MB": powers of 1000, three significant digits. */
#define CLI_NUMBER 32
const char *cli_format_bytes(char out[CLI_NUMBER], uint64_t n_bytes);
const char *cli_format_number(char out[CLI_NUMBER], double value);

/* ---- Output -----------------------------------------------------------------------------------*/

/* A qplan_write_fn for stdout; ctx is unused. */
int cli_write_stdout(void *ctx, const void *bytes, size_t n_bytes);

/*
 * Ends the output on stdout that a call with this status made: IO if any of it was lost, else the
 * status. what: "report", "plan", "help".
 */
enum qplan_status cli_finish_stdout(enum qplan_status status, const char *what,
                                    struct qplan_error *err);

/* ---- Start and stop ---------------------------------------------------------------------------*/

/* Makes sure that descriptors 0 to 2 are taken, so that no model is ever opened as one of them. */
void cli_reserve_descriptors(void);

/* Lets what is printed on stdout wait until cli_finish_stdout. */
void cli_buffer_stdout(void);

/* SIGINT, SIGTERM and SIGHUP ask for a stop once; the second one kills. */
void cli_catch_signals(void);

/* The signal that came, or 0. Its address goes to the library. */
extern volatile sig_atomic_t cli_signal;

/* CANCELLED if a signal came. */
enum qplan_status cli_check_signal(struct qplan_error *err);

/* Seconds of a clock that never jumps. */
double cli_now(void);

#define CLI_TRY(call)                                                                              \
    do {                                                                                           \
        enum qplan_status cli_try_status = (call);                                                 \
        if (cli_try_status != QPLAN_OK)                                                            \
            return cli_try_status;                                                                 \
    } while (0)

#endif
