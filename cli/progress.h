/*
 * progress.h - one line on a terminal, redrawn in place: percent, bytes, rate, time left.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    double began;  /* of this phase: a run that proves its result counts twice from 0 */
    uint64_t done; /* at the last call */
    double drawn;
    int width; /* of the line on the screen; 0 = none */
};

/* Whether there is anybody to see it: stderr is a terminal. */
bool progress_wanted(void);

/* Draws, at most ten times a second. ctx is the struct; the form is that of qplan_run.progress. */
void progress_draw(void *ctx, uint64_t done, uint64_t total);

/* Clears the line. */
void progress_end(struct progress *progress);

#endif
