/*
 * lint.h - a quantized checkpoint as its consumers see it: rules, each a row with a function that
 * looks for one kind of fault, and what they have found.
 *
 * Some rules look at stored tensors and config.json only: they find what qplan's own reader would
 * refuse at once, and all of it. Others need the tensors that the reader makes of them.
 */
#ifndef QP_LINT_H
#define QP_LINT_H

#include "lib/store/checkpoint.h"

struct qp_lint;
struct qp_scale_faults;
struct qp_ct_names;

struct qp_lint_rule {
    struct qplan_lint_rule facts;
    bool needs_tensors;                               /* .file of the lint is open */
    enum qplan_status (*check)(struct qp_lint *lint); /* NULL: the reader itself finds it */
};

/* Rules, in the order of their ids; the table ends with one without an id. The first is about files
 * that are no checkpoint, the second about what the reader refuses. */
extern const struct qp_lint_rule qp_lint_rules[];

struct qp_finding {
    const struct qplan_lint_rule *rule;
    const char *name; /* of the tensor or file, counted; NULL = the whole checkpoint */
    size_t n_name;
    const char *message;
};

struct qplan_findings {
    struct qp_finding *list; /* in the arena, those of a rule behind each other */
    size_t n;
    const char *path, *format, *engine; /* the latter two may be NULL */
    struct qp_arena arena;
};

struct qp_lint {
    struct qplan_findings *found;
    const struct qplan_lint_rule *rule; /* that is being checked */
    const struct qp_source *source;
    const struct qp_listing *listing;      /* of the source */
    const struct qp_tree *tree;            /* config.json or what says it instead, or NULL */
    const struct qp_tree_value *quantized; /* what it says of the quantization, or NULL */
    const struct qp_format *format;        /* NULL = not known yet */
    const struct qplan_checkpoint *file;   /* NULL = not open yet */
    const struct qp_scale_faults *faults;  /* by tensor of .file; NULL = not looked for yet */
    const struct qp_ct_names *ct;          /* NULL = not looked for yet */
    const struct qplan_lint_options *options;
    struct qplan_error *err;
};

/* Adds a finding of the rule that is being checked. name is copied. MEMORY. */
enum qplan_status qp_lint_find(struct qp_lint *lint, const char *name, size_t n_name,
                               const char *fmt, ...) QP_PRINTF(4, 5);
enum qplan_status qp_lint_find_tensor(struct qp_lint *lint, const struct qp_tensor *tensor,
                                      const char *fmt, ...) QP_PRINTF(3, 4);

/* Likewise, of a regular expression of config.json that is not understood. */
enum qplan_status qp_lint_find_pattern(struct qp_lint *lint, const char *pattern);

/* CANCELLED if the caller wishes so. */
enum qplan_status qp_lint_go_on(const struct qp_lint *lint);

/* Whether a pattern of struct qp_keep occurs in the name of a tensor. */
bool qp_lint_has(const struct qp_tensor *tensor, const char *pattern);

/* M of M.weight with two axes, a NUL behind it; false for any other tensor. */
#define QP_LINT_MOST_NAME 4096u
bool qp_lint_module(const struct qp_tensor *tensor, char out[QP_LINT_MOST_NAME]);

/* Whether a plain matrix is that of a linear layer, as far as its name and the type of the
 * model tell. */
bool qp_lint_is_linear(const struct qp_lint *l, const struct qp_tensor *tensor);

/* Layers that models have even where no tensor says so: tied heads. Whether this model has one, and
 * not quantized. */
#define QP_LINT_HEADS 2
extern const char *const qp_lint_heads[QP_LINT_HEADS];
bool qp_lint_has_plain_head(const struct qp_lint *l, size_t head);

/* ---- Groups of config_groups, which have a name ------------------------------------------------
 */

/* Whether a group of mxfp8 says of which type scales are; whether one of floats has the format,
 * its own or that of all, that goes with its activations. */
enum qplan_status qp_lint_ct_mx_scale(struct qp_lint *lint, const char *name,
                                      const struct qp_tree_value *group);
enum qplan_status qp_lint_ct_alone(struct qp_lint *lint, const char *name, const char *format,
                                   const struct qp_tree_value *group);

/* ---- The functions of rules --------------------------------------------------------------------
 */

enum qplan_status qp_lint_warnings(struct qp_lint *lint);
enum qplan_status qp_lint_other_files(struct qp_lint *lint);
enum qplan_status qp_lint_plain_beside(struct qp_lint *lint);
enum qplan_status qp_lint_left_parts(struct qp_lint *lint);
enum qplan_status qp_lint_families(struct qp_lint *lint);
enum qplan_status qp_lint_factors(struct qp_lint *lint);
enum qplan_status qp_lint_embeddings(struct qp_lint *lint);
enum qplan_status qp_lint_conv1d(struct qp_lint *lint);
enum qplan_status qp_lint_kv_scales(struct qp_lint *lint);
enum qplan_status qp_lint_not_finite(struct qp_lint *lint);
enum qplan_status qp_lint_zero_scale(struct qp_lint *lint);
enum qplan_status qp_lint_negative(struct qp_lint *lint);
enum qplan_status qp_lint_forbidden_sign(struct qp_lint *lint);
enum qplan_status qp_lint_no_power(struct qp_lint *lint);
enum qplan_status qp_lint_codes(struct qp_lint *lint);
enum qplan_status qp_lint_middle(struct qp_lint *lint);

enum qplan_status qp_lint_ct_status(struct qp_lint *lint);
enum qplan_status qp_lint_ct_bare_int(struct qp_lint *lint);
enum qplan_status qp_lint_ct_format(struct qp_lint *lint);
enum qplan_status qp_lint_ct_stray_zero(struct qp_lint *lint);
enum qplan_status qp_lint_ct_no_zero(struct qp_lint *lint);
enum qplan_status qp_lint_ct_shape(struct qp_lint *lint);
enum qplan_status qp_lint_ct_keys(struct qp_lint *lint);
enum qplan_status qp_lint_ct_order(struct qp_lint *lint);
enum qplan_status qp_lint_ct_bits(struct qp_lint *lint);
enum qplan_status qp_lint_ct_head(struct qp_lint *lint);
enum qplan_status qp_lint_ct_kept(struct qp_lint *lint);
enum qplan_status qp_lint_ct_ignored(struct qp_lint *lint);
enum qplan_status qp_lint_ct_target(struct qp_lint *lint);
enum qplan_status qp_lint_ct_pattern(struct qp_lint *lint);
enum qplan_status qp_lint_ct_scale_type(struct qp_lint *lint);

enum qplan_status qp_lint_ct_mxfp8(struct qp_lint *lint);
enum qplan_status qp_lint_ct_bare_float(struct qp_lint *lint);
enum qplan_status qp_lint_ct_factor_shape(struct qp_lint *lint);
enum qplan_status qp_lint_ct_ragged(struct qp_lint *lint);
enum qplan_status qp_lint_nvfp4_experts(struct qp_lint *lint);
enum qplan_status qp_lint_mxfp8_experts(struct qp_lint *lint);

enum qplan_status qp_lint_pattern(struct qp_lint *lint);
enum qplan_status qp_lint_skip_kept(struct qp_lint *lint);
enum qplan_status qp_lint_skip_quantized(struct qp_lint *lint);
enum qplan_status qp_lint_awq_inside(struct qp_lint *lint);
enum qplan_status qp_lint_bnb_head(struct qp_lint *lint);
enum qplan_status qp_lint_gptq_blocks(struct qp_lint *lint);
enum qplan_status qp_lint_gptq_head(struct qp_lint *lint);
enum qplan_status qp_lint_mlx_refused(struct qp_lint *lint);
enum qplan_status qp_lint_mlx_rope(struct qp_lint *lint);

enum qplan_status qp_lint_loaded(struct qp_lint *lint);
enum qplan_status qp_lint_ragged_blocks(struct qp_lint *lint);
enum qplan_status qp_lint_asymmetric(struct qp_lint *lint);
enum qplan_status qp_lint_w8a8_experts(struct qp_lint *lint);
enum qplan_status qp_lint_random_experts(struct qp_lint *lint);
enum qplan_status qp_lint_bnb_experts(struct qp_lint *lint);
enum qplan_status qp_lint_bnb_latent(struct qp_lint *lint);
enum qplan_status qp_lint_bnb_ragged(struct qp_lint *lint);
enum qplan_status qp_lint_gptq_asymmetric(struct qp_lint *lint);
enum qplan_status qp_lint_bits_4_8(struct qp_lint *lint);
enum qplan_status qp_lint_group(struct qp_lint *lint);
enum qplan_status qp_lint_tiles(struct qp_lint *lint);

#endif
