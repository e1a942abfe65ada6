/*
 * plan.h - a checkpoint plan, seen from inside the library: what becomes of every tensor.
 */
#ifndef QP_PLAN_H
#define QP_PLAN_H

#include "lib/base/warning.h"
#include "lib/calibrate/calibrate.h"
#include "lib/store/checkpoint.h"

struct qp_plan_tensor {
    const struct qplan_entry *source;
    bool quantize;
    struct qplan_scheme scheme; /* where quantize; the axis is resolved */
    const char *calibrate;
    const char *rule;            /* the decision that won, "select:all"; NULL = none was asked */
    const char *reason;          /* why it is kept, or NULL */
    struct qplan_entry *outputs; /* with offsets */
    unsigned n_outputs;
};

struct qplan_plan {
    const struct qplan_checkpoint *checkpoint;
    enum qplan_indivisible indivisible;
    enum qplan_nonfinite nonfinite;
    enum qplan_zero_point zero_point;
    struct qp_plan_tensor *tensors; /* in name order, as the checkpoint */
    size_t n_tensors, n_quantized;
    struct qplan_entry *outputs; /* of all tensors */
    size_t n_outputs;
    char *output_name;                 /* bare */
    struct qplan_entry **order;        /* outputs as they lie in the file */
    char *records;                     /* the value of qplan.tensors */
    struct qp_st_pair *metadata;       /* of the output */
    struct qp_st_header header;        /* of these; its text is made when it is wanted */
    uint64_t header_bytes, data_bytes; /* the header with its length */
    struct qp_warnings warnings;
    struct qp_labels labels; /* of the outputs */
    struct qp_arena arena;
};

/* A plan without decisions: every tensor kept, and its source still to be set. */
enum qplan_status qp_plan_new(struct qplan_plan **out, const struct qplan_checkpoint *checkpoint,
                              struct qplan_error *err);

/* Refuses a checkpoint that was quantized before. */
enum qplan_status qp_plan_check_source(const struct qplan_checkpoint *checkpoint,
                                       struct qplan_error *err);

/*
 * Checks the decisions of all tensors against their shapes: axis, group size. Tensors that do not
 * divide are listed, kept or left ragged, as plan->indivisible says.
 */
enum qplan_status qp_plan_check(struct qplan_plan *plan, struct qplan_error *err);

/* Computes outputs, offsets and header of a plan whose decisions stand, and its warnings. */
enum qplan_status qp_plan_layout(struct qplan_plan *plan, struct qplan_error *err);

/* Appends the file name of a path without its folder and without ".safetensors". */
void qp_put_stem(struct qp_writer *w, const char *path);

/* Why a tensor cannot be quantized whatever is asked ("rank 1", "not a float"), or NULL. */
const char *qp_unquantizable(const struct qplan_entry *entry);

#endif
