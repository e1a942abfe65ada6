/*
 * progress.c - the progress line. Only on a terminal, only on stderr; it is gone before any other
 * line is printed.
 */
#include "progress.h"
#include "cli.h"

#include <stdio.h>
#include <unistd.h>

#define SECONDS_BETWEEN 0.1

bool progress_begin(struct progress *progress)
{
    double now = cli_now();
    *progress = (struct progress){.began = now, .drawn = now};
    return isatty(STDERR_FILENO) == 1;
}

static const char *format_left(char out[CLI_NUMBER], double seconds)
{
    unsigned long s = seconds < 1e8 ? (unsigned long)seconds : 99999999;
    if (s < 60)
        (void)snprintf(out, CLI_NUMBER, "%lu s", s);
    else if (s < 3600)
        (void)snprintf(out, CLI_NUMBER, "%lu min %02lu s", s / 60, s % 60);
    else
        (void)snprintf(out, CLI_NUMBER, "%lu h %02lu min", s / 3600, s / 60 % 60);
    return out;
}

void progress_draw(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *progress = ctx;
    double now = cli_now();
    if (now - progress->drawn < SECONDS_BETWEEN || total == 0 || done == 0)
        return;
    progress->drawn = now;
    double share = done < total ? (double)done / (double)total : 1;
    double elapsed = now - progress->began;
    char line[160], done_text[CLI_NUMBER], total_text[CLI_NUMBER], rate[CLI_NUMBER];
    char left[CLI_NUMBER];
    int n = snprintf(line, sizeof line, "%3.0f%%  %s of %s  %s/s  %s left", 100 * share,
                     cli_format_bytes(done_text, done), cli_format_bytes(total_text, total),
                     cli_format_bytes(rate, (uint64_t)((double)done / elapsed)),
                     format_left(left, elapsed / share - elapsed));
    /* Blanks instead of an erase sequence: every terminal knows them. */
    fprintf(stderr, "\r%-*s", progress->width, line);
    progress->width = n;
}

void progress_end(struct progress *progress)
{
    if (progress->width)
        fprintf(stderr, "\r%*s\r", progress->width, "");
    progress->width = 0;
}
