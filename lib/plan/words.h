/*
 * words.h - the words of the plan document, shared by its writer and its reader.
 */
#ifndef QP_PLAN_WORDS_H
#define QP_PLAN_WORDS_H

#include "lib/qplan.h"

#define QP_PLAN_SCHEMA "qplan-plan/1"

static const char *const qp_nonfinite_words[] = {
    [QPLAN_NONFINITE_ERROR] = "error", [QPLAN_NONFINITE_SATURATE] = "saturate", NULL};
static const char *const qp_indivisible_words[] = {[QPLAN_INDIVISIBLE_ERROR] = "error",
                                                   [QPLAN_INDIVISIBLE_KEEP] = "keep",
                                                   [QPLAN_INDIVISIBLE_RAGGED] = "ragged",
                                                   NULL};
static const char *const qp_zero_point_words[] = {
    [QPLAN_ZERO_POINT_ALWAYS] = "always", [QPLAN_ZERO_POINT_ASYMMETRIC] = "asymmetric", NULL};

/* Reasons for keeping a tensor, as reports name them. */
static const char *const qp_reasons[] = {
    "rank 0",       "rank 1",      "not a float", "excluded",      "rule keep",
    "not selected", "indivisible", "empty",       "not quantized", NULL};

#endif
