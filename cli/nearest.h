/*
 * nearest.h - the name that a mistyped word most likely meant.
 */
#ifndef CLI_NEAREST_H
#define CLI_NEAREST_H

#include <stddef.h>

struct nearest {
    const char *word;
    const char *best; /* borrowed from the caller of nearest_try */
    size_t distance;
};

void nearest_begin(struct nearest *nearest, const char *word);

/* Offers a candidate. The first of equals wins. */
void nearest_try(struct nearest *nearest, const char *name);

/* The best candidate, or NULL if none is close enough to be meant. */
const char *nearest_found(const struct nearest *nearest);

#endif
