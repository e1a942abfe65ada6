/*
 * python_re.h - the regular expressions that configs of Python tools hold, as far as names of
 * modules need them: literals, dots, classes, groups, alternatives, anchors, repetition by * + ?,
 * lazy or not, and \d \w \s. Look-around, references, flags and counted repetition are not
 * understood, and said so.
 */
#ifndef QP_LINT_PYTHON_RE_H
#define QP_LINT_PYTHON_RE_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#define QP_PYTHON_RE_MOST 1000 /* bytes of a pattern */

struct qp_python_re {
    bool is_understood;
    char tail[QP_PYTHON_RE_MOST]; /* what every match ends with, as far as that is easily seen */
    size_t n_tail;
    regex_t compiled;
};

/* Reads a pattern. qp_python_re_free must be called in any case. */
void qp_python_re_make(struct qp_python_re *re, const char *pattern);
void qp_python_re_free(struct qp_python_re *re);

/* Whether re.match finds the pattern at the begin of a name; false if it is not understood. */
bool qp_python_re_match(const struct qp_python_re *re, const char *name);

#endif
