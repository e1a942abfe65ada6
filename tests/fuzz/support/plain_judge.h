/*
 * plain_judge.h - what verify proves and what dequantize writes, judged by the plain decoder.
 */
#ifndef PLAIN_JUDGE_H
#define PLAIN_JUDGE_H

#include "plain_decoder.h"

/* An open file and all its bytes. */
struct judged {
    const struct qplan_checkpoint *checkpoint;
    const struct bytes *bytes;
};

/* Whether a record contradicts codes: one outside its range, or a spare bit that is not 0. */
bool has_bad_codes(const struct judged *file);

/*
 * Of a file that was proven: each tensor has one of the same name, type and shape in the source,
 * and the reverse; every element is within its bound, every kept byte the same, every code one that
 * its record allows, and parameters are those that minmax makes of the source. Returns whether the
 * codes are too.
 */
bool judge_proven(const struct judged *file, const struct judged *source);

/* Of what dequantize wrote to path: it has the names, shapes, dtypes and values of the file. */
void judge_output(const struct judged *file, const char *path, const struct bytes *written,
                  const enum qplan_dtype *dtype);

#endif
