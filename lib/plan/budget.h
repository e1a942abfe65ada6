/*
 * budget.h - which of several sizes each item gets, so that all keep to a sum of bytes and their
 * errors are least. Pure arithmetic over a table; it knows nothing of tensors.
 */
#ifndef QP_PLAN_BUDGET_H
#define QP_PLAN_BUDGET_H

#include "lib/base/error.h"

struct qp_option {
    uint64_t bytes;
    double error; /* not below 0 */
    bool is_there;
    bool is_wide; /* what items that come first should have */
};

/* The table. Every item has an option that is there, and no sum of bytes overflows. */
struct qp_budget {
    size_t n_items, n_options;
    const struct qp_option *options; /* n_options for each item, one behind the other */
    const bool *is_first;            /* by item */
    uint64_t bytes;                  /* that all items may have together */
};

/* Options of all items, and what they come to. */
struct qp_mix {
    uint64_t bytes;
    double error;
};

struct qp_budget_choice {
    size_t *option; /* by item; the caller has n_items of them */
    struct qp_mix mix;
    double bound;   /* no choice that keeps to the bytes has less error than this */
    bool raised;    /* items that come first have wide options alone, and so has the bound */
    size_t uniform; /* the option that does best if all have it; n_options = none keeps to
                     * the bytes */
    struct qp_mix of_uniform;
};

/* The least bytes that all items can have together. */
uint64_t qp_budget_least(const struct qp_budget *budget);

/*
 * What it comes to if every item has one option. An item without it has the smallest of its own.
 * option is by item, or NULL.
 */
struct qp_mix qp_budget_uniform(const struct qp_budget *budget, size_t which, size_t *option);

/*
 * Chooses. The result is never over the bytes, unless even the least is, which is then chosen, and
 * never worse than the best uniform choice. Items that come first get wide options wherever that
 * leaves it no worse than the best uniform choice. MEMORY.
 */
enum qplan_status qp_budget_choose(const struct qp_budget *budget, struct qp_budget_choice *choice,
                                   struct qplan_error *err);

#endif
