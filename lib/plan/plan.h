/*
 * plan.h - a checkpoint plan, seen from inside the library: what becomes of every tensor.
 */
#ifndef QP_PLAN_H
#define QP_PLAN_H

#include "lib/base/warning.h"
#include "lib/calibrate/calibrate.h"
#include "lib/store/checkpoint.h"
#include "lib/store/news.h"
#include "lib/store/side.h"

struct qp_plan_tensor {
    const struct qp_tensor *source;
    const struct qp_calibrator *calibrator; /* NULL = the tensor is kept */
    const char *rule;        /* the decision that won, "select:all"; NULL = none was asked */
    const char *reason;      /* why it is kept, or NULL */
    struct qp_tensor result; /* as the output has it: its scheme now, then stored tensors */
};

struct qplan_plan {
    const struct qplan_checkpoint *checkpoint;
    const struct qp_format *format;
    struct qp_format_options options;
    enum qplan_indivisible indivisible;
    enum qplan_nonfinite nonfinite;
    struct qp_plan_tensor *tensors; /* in name order, as the checkpoint's */
    size_t n_tensors, n_quantized;
    char *output_name; /* bare: of the file or the folder */

    struct qp_news news;         /* the files of the output */
    struct qp_side side;         /* and what is in its folder besides */
    struct qplan_entry *outputs; /* the stored tensors of all tensors, one behind the other */
    struct qp_part *parts;       /* of quantized ones */
    size_t n_outputs;
    const struct qplan_scheme *last_scheme; /* most tensors share theirs */
    struct qp_warnings warnings;
    struct qp_arena arena;
};

static inline bool qp_is_quantized(const struct qp_plan_tensor *t)
{
    return t->calibrator != NULL;
}

/* Sets the scheme of a tensor that is to be quantized. MEMORY. */
enum qplan_status qp_plan_set_scheme(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                     const struct qplan_scheme *scheme, struct qplan_error *err);

/* A plan without decisions: every tensor kept. */
enum qplan_status qp_plan_new(struct qplan_plan **out, const struct qplan_checkpoint *checkpoint,
                              struct qplan_error *err);

/* Refuses a checkpoint that was quantized before. */
enum qplan_status qp_plan_check_source(const struct qplan_checkpoint *checkpoint,
                                       struct qplan_error *err);

/*
 * Checks the decisions of all tensors against their shapes and the layout: axis, group size, what
 * the layout can store. Tensors that do not divide are listed, kept or left ragged, as
 * plan->indivisible says; what the layout cannot store is kept.
 */
enum qplan_status qp_plan_check(struct qplan_plan *plan, struct qplan_error *err);

/* Computes outputs, offsets and headers of a plan whose decisions stand, and its warnings. */
enum qplan_status qp_plan_layout(struct qplan_plan *plan, struct qplan_error *err);

/* Appends the name of a folder, or of a file without ".safetensors". */
void qp_put_stem(struct qp_writer *w, const struct qp_source *source);

/* Why a tensor cannot be quantized whatever is asked ("rank 1", "not a float"), or NULL. */
const char *qp_unquantizable(const struct qp_tensor *tensor);

#endif
