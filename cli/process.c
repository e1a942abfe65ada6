/*
 * process.c - the program as a process: its descriptors, its signals, its stdout and its clock.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* ---- Descriptors ------------------------------------------------------------------------------*/

void cli_reserve_descriptors(void)
{
    /*
     * open takes the lowest free number, so this fills the gaps in order. Each one is opened the
     * wrong way round: a report written to a closed stdout must fail, not vanish.
     */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* The first failure of stdout: stdio forgets why. */
static int stdout_errno;

int cli_write_stdout(void *ctx, const void *bytes, size_t n_bytes)
{
    (void)ctx;
    errno = 0;
    if (fwrite(bytes, 1, n_bytes, stdout) != n_bytes && !stdout_errno)
        stdout_errno = errno ? errno : EIO;
    return stdout_errno;
}

/*
 * Texts for people are printed piece by piece, and the reason why one could not be written is known
 * only at the end: so the buffer holds the longest of them.
 */
void cli_buffer_stdout(void)
{
    static char buffer[16 << 10];
    (void)setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
}

enum qplan_status cli_finish_stdout(enum qplan_status status, const char *what,
                                    struct qplan_error *err)
{
    errno = 0;
    if (!stdout_errno && (fflush(stdout) != 0 || ferror(stdout)))
        stdout_errno = errno ? errno : EIO;
    if (!stdout_errno)
        return status;
    CLI_TRY(cli_check_signal(err));
    char text[CLI_SHOWN];
    (void)snprintf(text, sizeof text, "cannot write the %s", what);
    return cli_fail_errno(err, stdout_errno, "stdout", text);
}

/* ---- Signals ----------------------------------------------------------------------------------*/

volatile sig_atomic_t cli_signal;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_STOP_SIGNALS (sizeof stop_signals / sizeof stop_signals[0])

static void on_stop(int number)
{
    static atomic_flag stopping = ATOMIC_FLAG_INIT;
    bool second = atomic_flag_test_and_set(&stopping);
    if (!second)
        cli_signal = number;
    struct sigaction kill_at_once = {.sa_handler = SIG_DFL}, now;
    for (size_t i = 0; i < N_STOP_SIGNALS; i++) {
        if (sigaction(stop_signals[i], NULL, &now) == 0 && now.sa_handler == on_stop)
            (void)sigaction(stop_signals[i], &kill_at_once, NULL);
    }
    if (second) /* a signal that came to another thread while the first one was being handled */
        (void)raise(number);
}

void cli_catch_signals(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    /* No SA_RESTART: a read of a plan from a silent pipe has to end too. */
    struct sigaction stop = {.sa_handler = on_stop};
    for (size_t i = 0; i < N_STOP_SIGNALS; i++) {
        struct sigaction old;
        /* What the caller ignores stays ignored, as under nohup. */
        if (sigaction(stop_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(stop_signals[i], &stop, NULL);
    }
}

enum qplan_status cli_check_signal(struct qplan_error *err)
{
    if (!cli_signal)
        return QPLAN_OK;
    return cli_fail(err, QPLAN_ERR_CANCELLED, "", "stopped by signal %d", (int)cli_signal);
}

/* ---- Time -------------------------------------------------------------------------------------*/

double cli_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
