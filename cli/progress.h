/*
 * progress.h - one line on a terminal, redrawn in place: percent, bytes, rate, time left.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    double began, drawn;
    int width; /* of the line on the screen; 0 = none */
};

/* Starts the clock. Returns whether there is anything to show: stderr is a terminal. */
bool progress_begin(struct progress *progress);

/* Draws, at most ten times a second. ctx is the struct; the form is that of qplan_run.progress. */
void progress_draw(void *ctx, uint64_t done, uint64_t total);

/* Clears the line. */
void progress_end(struct progress *progress);

#endif
