/*
 * plan.h - a checkpoint plan, seen from inside the library: what becomes of every tensor.
 */
#ifndef QP_PLAN_H
#define QP_PLAN_H

#include "formats/making.h"
#include "lib/base/warning.h"
#include "lib/calibrate/calibrate.h"
#include "lib/importance/hessian.h"
#include "lib/store/arrange.h"
#include "lib/store/news.h"
#include "lib/store/side.h"

struct qp_tree;
struct qp_tree_value;

struct qp_plan_tensor {
    const struct qp_tensor *source;
    const struct qp_calibrator *calibrator; /* NULL = the tensor is kept */
    const float *importance; /* of its columns, at most 1 each; NULL = they are all alike */
    bool has_importance;     /* it is known */
    double importance_unit;  /* then: what 1 stands for, by which tensors compare */
    const struct qp_hessian *hessian; /* that codes are rounded by; NULL = by none */
    const char *rule;              /* the decision that won, "select:all"; NULL = none was asked */
    const char *reason;            /* why it is kept, or NULL */
    const struct qp_tensor *unfit; /* whose shape the scheme or the layout does not allow: it is
                                    * kept for that one, itself or one of its family; else NULL */
    struct qp_tensor result;       /* as the output has it: its scheme now, then stored tensors */
};

struct qplan_plan {
    const struct qplan_checkpoint *checkpoint;
    const struct qp_format *format;
    struct qp_format_options options;
    enum qplan_experts experts;
    struct qp_arranged
        sources;      /* the tensors of the checkpoint, with experts as the output has them */
    bool is_document; /* it was read: what cannot be done is a fault of the document, not of use */
    bool is_edited;   /* somebody may have: what it quantizes is not kept instead */
    enum qplan_indivisible indivisible;
    enum qplan_nonfinite nonfinite;
    bool positive_scales;                /* no calibrator may choose others */
    struct qp_hessians hessians;         /* that tensors are rounded by */
    const volatile sig_atomic_t *cancel; /* looked at while such files are read, or NULL */
    struct qp_making making;             /* what the output says of how it was made */
    bool may_divide;                     /* the members of a family need not agree */
    struct qp_plan_tensor *tensors;      /* one for each of the sources, in name order */
    size_t n_tensors, n_quantized;
    size_t n_seen; /* tensors behind these that are not made: only their values count, in factors */
    char *output_name;  /* bare: of the file or the folder */
    uint64_t max_shard; /* bytes of tensors in a file of the output; 0 = shards are as they were */
    char **copy;        /* patterns of files that the output takes over besides plain ones */
    size_t n_copy;

    struct qp_news news;         /* the files of the output */
    struct qp_side side;         /* and what is in its folder besides */
    struct qplan_entry *outputs; /* the stored tensors of all tensors, one behind the other */
    struct qp_part *parts;       /* of quantized ones */
    size_t n_outputs;
    const struct qplan_scheme *last_scheme; /* most tensors share theirs */
    const struct qp_calibrator *last_calibrator;
    struct qp_warnings warnings;
    struct qp_arena arena;
};

static inline bool qp_is_quantized(const struct qp_plan_tensor *t)
{
    return t->calibrator != NULL;
}

/*
 * Gives every tensor whose calibrator takes it the importance that files know. USAGE if there is
 * none such; INVALID if a file is bad, or all tensors are wanted and some are not known.
 */
enum qplan_status qp_plan_weigh(struct qplan_plan *plan, const struct qplan_plan_options *options,
                                struct qplan_error *err);

/* Gives a tensor the importance that is known of its columns, if any is. INVALID, MEMORY. */
struct qp_importance;
enum qplan_status qp_plan_weigh_tensor(struct qp_plan_tensor *t,
                                       const struct qp_importance *importance,
                                       struct qp_arena *arena, struct qplan_error *err);

/*
 * Gives every tensor whose calibrator rounds by it the Hessian that the file of the options has;
 * the others are calibrated in another way. USAGE if there is none such, or no file; INVALID if the
 * file is bad, or all tensors are wanted and some are not known.
 */
enum qplan_status qp_plan_round(struct qplan_plan *plan, const struct qplan_plan_options *options,
                                struct qplan_error *err);

/* Whether errors of a tensor are weighted by files of importance. */
bool qp_is_weighed(const struct qp_plan_tensor *t);

/* Whether codes of a tensor are rounded by a Hessian. */
bool qp_is_rounded(const struct qp_plan_tensor *t);

/*
 * Gives the tensors of a document that say so the importance and the Hessians of files, if there
 * are any. INVALID if a file is bad, or is not the one that the document names, or if no tensor
 * asks for it.
 */
enum qplan_status qp_plan_weigh_document(struct qplan_plan *plan, const char *const *paths,
                                         size_t n, struct qplan_error *err);
enum qplan_status qp_plan_round_document(struct qplan_plan *plan, const char *path, double damp,
                                         struct qplan_error *err);

/*
 * The share that is added to the diagonals of Hessians: what is given, of which 0 is the usual.
 * What is recorded beside Hessians comes first: INVALID if another one is given.
 */
enum qplan_status qp_plan_take_damp(const struct qp_making *recorded, double given, double *damp,
                                    struct qplan_error *err);

/* Forgets what the output would say of its making but no tensor has to do with. */
void qp_plan_settle_making(struct qplan_plan *plan);

/* Puts the digests of files that tensors are made with in the plan document, if there are any. */
void qp_plan_put_inputs(struct qp_writer *w, const struct qp_making *making);

/* Reads these digests from a plan document; a value of NULL is of none. */
enum qplan_status qp_plan_read_inputs(const struct qp_tree *tree, const struct qp_tree_value *value,
                                      struct qp_arena *arena, struct qp_making *making);

/* Gives a tensor its Hessian, if there is one, and the importance that its diagonal is. */
enum qplan_status qp_plan_round_tensor(struct qp_plan_tensor *t, const struct qp_hessians *hessians,
                                       struct qp_arena *arena, struct qplan_error *err);

/* INVALID if a tensor needs importance or a Hessian and has none: a document says so, and no file
 * came with it.
 */
enum qplan_status qp_plan_check_weights(const struct qplan_plan *plan, struct qplan_error *err);

/* Sets the scheme of a tensor that is to be quantized. MEMORY. */
enum qplan_status qp_plan_set_scheme(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                     const struct qplan_scheme *scheme, struct qplan_error *err);

/* Keeps the tensors that are smaller than was asked for. MEMORY. */
enum qplan_status qp_plan_keep_small(struct qplan_plan *plan,
                                     const struct qplan_plan_options *options,
                                     struct qplan_error *err);

/*
 * Warns of the tensors that should be kept because they are small: codes of fewer than 8 bits cost
 * them most, and kept they cost next to nothing. MEMORY.
 */
enum qplan_status qp_plan_warn_small(struct qplan_plan *plan, struct qplan_error *err);

/* Warns of tensors whose sets have too few values for their method. MEMORY. */
enum qplan_status qp_plan_warn_few(struct qplan_plan *plan, struct qplan_error *err);

/* Warns of what was quantized in the source and is not in the output, which may become larger by
 * it. MEMORY. */
enum qplan_status qp_plan_warn_decoded(struct qplan_plan *plan, struct qplan_error *err);

/* Warns of experts that could be split: they are most of a model, and stay as they are unless that
 * is asked for. MEMORY. */
enum qplan_status qp_plan_warn_experts(struct qplan_plan *plan, struct qplan_error *err);

/* Refuses a plan by which no tensor is quantized: with the reasons, or the first ones of many. */
enum qplan_status qp_plan_fail_kept(const struct qplan_plan *plan, struct qplan_error *err);

/* The stored tensors that stand for a tensor in the output: how many, and the i-th. */
static inline unsigned qp_plan_n_outputs(const struct qp_plan_tensor *t)
{
    return qp_is_quantized(t) ? t->result.n_parts : 1;
}

static inline const struct qplan_entry *qp_plan_output(const struct qp_plan_tensor *t, unsigned i)
{
    return qp_is_quantized(t) ? t->result.parts[i].entry : t->result.entry;
}

/* Keeps a tensor as it is. rule and reason are not copied. */
void qp_plan_keep(struct qp_plan_tensor *t, const char *rule, const char *reason);

/* What somebody has chosen for one tensor, in the place of the scheme of the options. */
struct qp_chosen {
    const struct qplan_scheme *scheme; /* NULL = it is kept */
    const char *rule;                  /* NULL = that by which it was selected */
    const char *reason;                /* why it is kept */
    const struct qp_tensor *unfit;     /* as of the plan */
};

/*
 * Makes a plan as qplan_plan_make does, but the tensors that the options would quantize become what
 * was chosen for them: chosen has a row for each tensor. NULL = nothing was.
 */
enum qplan_status qp_plan_make_as(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint,
                                  const struct qplan_plan_options *options,
                                  const struct qp_chosen *chosen, struct qplan_error *err);

/* A plan without tensors, in the native layout. */
enum qplan_status qp_plan_new(struct qplan_plan **out, const struct qplan_checkpoint *checkpoint,
                              struct qplan_error *err);

/* Finds the tensors that its layout, and what it says of experts, ask for: every one is kept. */
enum qplan_status qp_plan_take_tensors(struct qplan_plan *plan, struct qplan_error *err);

/* The tensor with this name, or NULL. */
struct qp_plan_tensor *qp_plan_find(const struct qplan_plan *plan, const char *name, size_t n);

/* Refuses a checkpoint that was quantized before. */
enum qplan_status qp_plan_check_source(const struct qplan_checkpoint *checkpoint,
                                       struct qplan_error *err);

/*
 * Refuses settings that the layout does not have: USAGE, or INVALID if they come from a document,
 * which errors call by this name.
 */
enum qplan_status qp_plan_check_settings(const struct qplan_plan *plan, const char *document,
                                         struct qplan_error *err);

/* Adds a pattern of files that the output takes over. */
enum qplan_status qp_plan_add_copy(struct qplan_plan *plan, const char *pattern,
                                   struct qplan_error *err);

/*
 * Checks the decisions of all tensors against their shapes and the layout: axis, group size, what
 * the layout can store. Tensors that do not divide are listed, kept or left ragged, as
 * plan->indivisible says; what the layout cannot store is kept. Then families agree, unless
 * plan->may_divide.
 */
enum qplan_status qp_plan_check(struct qplan_plan *plan, struct qplan_error *err);

/* Computes outputs, offsets and headers of a plan whose decisions stand, and its warnings. */
enum qplan_status qp_plan_layout(struct qplan_plan *plan, struct qplan_error *err);

/* Puts the members of a tensor's object in the plan document. */
void qp_plan_put_members(struct qp_writer *w, const struct qp_plan_tensor *t);

/*
 * Puts the stored tensors of the output, which have no offsets yet, into files of at most
 * plan->max_shard bytes, or of one tensor. INVALID if there would be too many.
 */
enum qplan_status qp_plan_cut_shards(struct qplan_plan *plan, size_t *n_files,
                                     struct qplan_error *err);

/* Appends the name of a folder, or of a file without ".safetensors". */
void qp_put_stem(struct qp_writer *w, const struct qp_source *source);

/* The name of an output whose tensors may have any schemes, in the arena; NULL without memory. */
char *qp_plan_mixed_name(struct qplan_plan *plan);

/* Why a tensor cannot be quantized whatever is asked ("rank 1", "not a float"), or NULL. */
const char *qp_unquantizable(const struct qp_tensor *tensor);

#endif
