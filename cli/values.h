/*
 * values.h - the values of options: numbers, sizes and choices, read strictly. A whole number is
 * decimal digits and nothing else. Each function leaves *out alone when the option is absent, and
 * returns USAGE with the accepted range when the value is wrong.
 */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include "args.h"

struct whole_range {
    int64_t least, most;
};

enum qplan_status value_whole(const struct args *args, const char *name, struct whole_range range,
                              int64_t *out, struct qplan_error *err);

/* Bytes, or with K, M, G or T a multiple of a power of 1024. At least 1. */
enum qplan_status value_size(const struct args *args, const char *name, uint64_t *out,
                             struct qplan_error *err);

/* Digits, and up to six more behind a point: above 0 and at most `most`. */
enum qplan_status value_decimal(const struct args *args, const char *name, unsigned most,
                                double *out, struct qplan_error *err);

/* The largest group or block extent that a scheme may have. */
#define VALUE_MAX_EXTENT (INT64_C(1) << 62)

/* ROWSxCOLUMNS, both at least 1. */
enum qplan_status value_block(const struct args *args, const char *name, uint64_t *rows,
                              uint64_t *cols, struct qplan_error *err);

/* The place of the value among the words of the option's row. noun: what the words are. */
enum qplan_status value_choice(const struct args *args, const char *name, const char *noun,
                               size_t *out, struct qplan_error *err);

#endif
