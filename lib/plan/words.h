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
/* In the order of the enum, from QPLAN_ACTIVATIONS_NONE on. */
static const char *const qp_activations_words[] = {"none", "dynamic", NULL};
/* Nothing asked for is written as "always", in every layout. */
static const char *const qp_zero_point_words[] = {"always", "asymmetric", NULL};
static const char *const qp_arithmetic_words[] = {
    [QPLAN_ARITHMETIC_QPLAN] = "qplan", [QPLAN_ARITHMETIC_REFERENCE] = "reference", NULL};
static const char *const qp_experts_words[] = {
    [QPLAN_EXPERTS_KEEP] = "keep", [QPLAN_EXPERTS_SPLIT] = "split", NULL};

#endif
