/*
 * choose.h - what is asked of each tensor, and who asks: patterns that exclude, patterns that
 * include, the lines of a rules file, and the selection, in this order.
 *
 * Excluded tensors are kept, and so are those that no including pattern matches where there are
 * such patterns. Of the rest the first line that matches decides; where there are no lines, the
 * selection does. A pattern that includes thus narrows what is quantized, and never widens it.
 */
#ifndef QP_PLAN_CHOOSE_H
#define QP_PLAN_CHOOSE_H

#include "plan.h"
#include "select.h"

enum qp_choice_kind { QP_EXCLUDE, QP_INCLUDE, QP_LINE };

/* A pattern, or a line of the rules. */
struct qp_choice {
    enum qp_choice_kind kind;
    size_t line; /* its number, from 1 on; of a pattern 0 */
    const char *glob;
    const char *rule; /* "exclude:GLOB", as plans and reports name it */
    bool used;        /* it has matched a tensor that it is meant for */

    /* What becomes of a tensor that it matches; no scheme: it is kept. */
    const struct qplan_scheme *scheme;
    const struct qp_calibrator *calibrator;
};

struct qp_chooser {
    struct qp_choice *choices; /* in the order of precedence */
    size_t n_choices, n_includes;
    bool has_rules;         /* then every tensor that can be quantized needs a line */
    const char *rules_name; /* for messages */
    const struct qp_selection *selection;
    const struct qp_format *format;
    bool is_conv1d;                    /* the model is of QP_CONV1D_TYPES */
    const struct qplan_scheme *scheme; /* of tensors that no line names */
    const struct qp_calibrator *calibrator;
};

/* Prepares what is asked of a checkpoint, or of any where the listing is NULL; it borrows from the
 * options, and the rest is in the arena. */
enum qplan_status qp_chooser_make(struct qp_chooser *chooser,
                                  const struct qplan_plan_options *options,
                                  const struct qp_format *format, const struct qp_listing *listing,
                                  struct qp_arena *arena, struct qplan_error *err);

/* Adds the lines of the rules, read strictly: INVALID with the number of the line. */
enum qplan_status qp_rules_read(struct qp_chooser *chooser,
                                const struct qplan_plan_options *options, struct qp_arena *arena,
                                struct qplan_error *err);

/* Adds a choice behind the others: its pattern is checked, its rule is made. */
enum qplan_status qp_chooser_add(struct qp_chooser *chooser, const struct qp_choice *choice,
                                 struct qp_arena *arena, struct qplan_error *err);

/*
 * Decides what becomes of every tensor of a plan. INVALID for a pattern or a line that matches
 * nothing, and for tensors that no line matches where there are lines.
 */
enum qplan_status qp_choose(struct qplan_plan *plan, const struct qplan_plan_options *options,
                            struct qplan_error *err);

#endif
