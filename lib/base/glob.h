/*
 * glob.h - patterns over tensor names: * any run (dots too), ?, [abc] [a-z] [!abc], {a,b}, and
 * \ before any byte that stands for itself; on the whole name, byte-wise.
 */
#ifndef QP_GLOB_H
#define QP_GLOB_H

#include "error.h"

/* A pattern is shorter than this, so that the set of places in it has a fixed size. */
#define QP_GLOB_MAX 1024

/*
 * USAGE if the pattern is malformed: an open bracket or brace, an empty class, a descending range,
 * nested braces, nothing behind a backslash, or too long.
 */
enum qplan_status qp_glob_check(const char *pattern, struct qplan_error *err);

/* Whether a checked pattern matches the whole name of n bytes. Time at most pattern times name. */
bool qp_glob_match(const char *pattern, const char *name, size_t n);

#endif
