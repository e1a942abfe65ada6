/*
 * progress.c - the progress line. Only on a terminal, only on stderr; it is gone before any other
 * line is printed.
 */
#include "progress.h"
#include "cli.h"

#include <stdio.h>
#include <unistd.h>

#define SECONDS_BETWEEN 0.1

bool progress_wanted(void)
{
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

static void draw(struct progress *progress, uint64_t done, uint64_t total, double elapsed)
{
    double rate = (double)done / elapsed;
    double left = done < total ? (double)(total - done) / rate : 0;
    double percent = done < total ? 100 * ((double)done / (double)total) : 100;
    char line[160], part[CLI_NUMBER], all[CLI_NUMBER], speed[CLI_NUMBER], seconds[CLI_NUMBER];
    int n = snprintf(line, sizeof line, "%3.0f%%  %s of %s  %s/s  %s left", percent,
                     cli_format_bytes(part, done), cli_format_bytes(all, total),
                     cli_format_bytes(speed, (uint64_t)rate), format_left(seconds, left + 0.5));
    /* Blanks instead of an erase sequence: every terminal knows them. */
    fprintf(stderr, "\r%-*s", progress->width, line);
    progress->width = n;
}

void progress_draw(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *progress = ctx;
    double now = cli_now();
    if (progress->began == 0 || done < progress->done)
        progress->began = progress->drawn = now;
    progress->done = done;
    if (now - progress->drawn < SECONDS_BETWEEN || done == 0 || total == 0)
        return;
    progress->drawn = now;
    draw(progress, done, total, now - progress->began);
}

void progress_end(struct progress *progress)
{
    if (progress->width)
        fprintf(stderr, "\r%*s\r", progress->width, "");
    progress->width = 0;
}
