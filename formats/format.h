/*
 * format.h - what a layout of quantized checkpoints is: which stored tensors stand for a quantized
 * one, and how they are told apart from others. A layout is a folder of formats/ with a row of this
 * kind; the build finds the folder, and everything else finds the row in the registry.
 *
 * Layouts know names, types, shapes, places and text. They do no arithmetic on values.
 */
#ifndef QP_FORMAT_H
#define QP_FORMAT_H

#include "lib/base/json_tree.h"
#include "lib/model/tensor.h"
#include "safetensors/safetensors.h"

/* What a layout may look at: the stored tensors of all files of a checkpoint, their metadata, and
 * the config.json beside them.
 */
struct qp_listing {
    const struct qp_st *files;
    size_t n_files;
    const struct qplan_entry *entries; /* of all files, in byte-wise order of names */
    size_t n_entries;
    const char *shown;            /* the path of the checkpoint, for messages */
    const struct qp_tree *config; /* config.json of a folder, an object; NULL = there is none */

    /* What a layout names as .described_in, likewise, where neither records nor config.json say how
     * tensors are quantized. */
    const struct qp_tree *described;

    /* Reads bytes of a stored tensor: of the few that say something about others. */
    enum qplan_status (*read)(const struct qp_listing *listing, const struct qplan_entry *entry,
                              uint64_t off, void *out, size_t n, struct qplan_error *err);

    bool is_folder; /* it was opened as one, not as a file */
};

/* The stored tensor with this name, or NULL; with this name and a suffix. */
const struct qplan_entry *qp_listing_find(const struct qp_listing *listing, const char *name,
                                          size_t n);
const struct qplan_entry *qp_listing_sibling(const struct qp_listing *listing, const char *name,
                                             size_t n, const char *suffix);

/* "file.safetensors: 'tensor'" for messages. */
const char *qp_listing_subject(char out[512], const struct qp_listing *listing,
                               const struct qplan_entry *entry);

/* The member quantization_config of config.json, by which most tools say what they did, or NULL. */
const struct qp_tree_value *qp_quantization_config(const struct qp_listing *listing);

/* What says how tensors are quantized, and in *tree the file that says it: that member, or else
 * "quantization" of the file that a layout names as .described_in. NULL = nothing does. */
const struct qp_tree_value *qp_description(const struct qp_listing *listing,
                                           const struct qp_tree **tree);

/* Whether config.json names this method as its quant_method. */
bool qp_is_quant_method(const struct qp_listing *listing, const char *method);

/* Whether config.json, or what it says of the text model in it, has one of these types of models,
 * which are divided by blanks. A listing may be NULL. */
bool qp_is_model_type(const struct qp_listing *listing, const char *types);

/* The type of the model for messages, in quotes if there is one. */
const char *qp_show_model_type(char out[QP_QUOTED], const struct qp_listing *listing);

/* Models whose layers are Conv1D: their weights are stored [in, out], so that rows are no outputs.
 */
#define QP_CONV1D_TYPES "decision_transformer gpt2 imagegpt openai-gpt"

/* The type that config.json has for the weights of the model; false if it names none of ours. */
bool qp_model_storage(const struct qp_listing *listing, enum qplan_storage *out);

/* What a person may choose of a layout besides schemes. */
struct qp_format_options {
    enum qplan_zero_point zero_point;
    enum qplan_activations activations;
    enum qplan_arithmetic arithmetic;
};

/* All tensors of an output, for what its config.json says of them: kept ones have no scheme. */
struct qp_outline {
    const struct qp_tensor *const *tensors; /* in the order of names */
    size_t n;
    const struct qp_format_options *options;
};

/*
 * A name that the selection of linear layers keeps. A pattern is a text that occurs in the name: #
 * stands for a number, and a dot that begins it also for the begin of the name, so that ".gate." is
 * a whole word between dots and "norm" occurs anywhere.
 */
struct qp_keep {
    const char *pattern;
    const char *reason; /* "pattern PATTERN", as plans and reports name it */
};

#define QP_KEEP(text)                                                                              \
    {                                                                                              \
        text, "pattern " text                                                                      \
    }

/*
 * Models that engines of a layout do not load, whatever of them is quantized: of some types, or of
 * any where these are NULL, that have a tensor with such a name (struct qp_keep has the patterns).
 */
struct qp_refusal {
    const char *types, *pattern;
    const char *reason;
};

struct qp_format {
    const char *name;
    const char *loaded_by; /* programs, for people; NULL = qplan alone */
    const char *schemes;   /* that it stores, for people */
    const char *reads;     /* what it reads besides, for people; NULL = nothing */
    const char *scheme;    /* the text of that which is taken where none is asked for; NULL =
                            * what a dtype stands for by itself */
    bool is_folder;        /* an output is a folder with a config.json */
    bool is_file;          /* an output is a file, never a folder */
    bool is_read_only;     /* nothing is written in it: it has no scheme, variant and config */
    bool has_activations;  /* it can say that activations are quantized while a model runs */
    bool is_always_active; /* it always says so */
    const char *recipe;    /* that gives the bytes of the tool which defined it, by its name in
                            * records (lib/calibrate); NULL = none is known */
    unsigned rank;         /* of the tensors that it stores; 0 = any */
    bool rounds;  /* decoders round each result to the type that they work in (qp_decoder_dtype) */
    bool is_flat; /* groups go on from row to row: the last one of a tensor may be shorter */
    bool has_ragged_groups; /* the last group of a row may be shorter */
    bool may_omit_zeros;    /* zero points of symmetric tensors are stored or not, as is asked */
    bool has_one_scheme;    /* config.json can say only one scheme for all tensors */
    bool has_nested;        /* scales may have scales of their own */
    bool has_open_symmetry; /* zero points are always stored: a record may say that they are those
                             * of a symmetric scheme where config.json does not */
    bool stacks_experts;    /* the experts of a layer are in one tensor, where models have single
                             * ones of known names (experts.h) */
    unsigned n_variants;    /* ways to store a tensor, of which .variant of a tensor is one */

    /* The usual selection, "linear" or, where NULL, "all"; and names that the engines of this
     * layout do not load quantized besides the usual ones, ended by {NULL, NULL}, or NULL. */
    const char *select;
    const struct qp_keep *keeps;

    /* Tensors that engines load as one (qp_find_joined) have one factor of their scales, not each
     * its own. */
    bool has_shared_factors;

    /* What other tools put behind the name of a quantized layer for numbers by which engines
     * quantize its inputs, QP_MOST_INPUTS at the most and ended by NULL; or NULL. */
    const char *const *inputs;

    /* The key of metadata by which other tools say which tensors are quantized; outputs have none.
     * NULL: no layout of theirs is told so. */
    const char *claim;

    /* The file of JSON by which tools describe a folder where its config.json does not, or NULL. */
    const char *described_in;

    /* Models that it does not take, ended by a row without a pattern, or NULL. */
    const struct qp_refusal *refusals;

    /* No engine loads several of its tensors as one: where all tensors are selected, the members
     * of a family (lib/plan/family.h) need not agree. */
    bool may_divide;

    /* Whether such tensors are stored with the type of the weights, which decoders then give. NULL:
     * never. */
    bool (*has_dtype)(const struct qplan_scheme *scheme);

    /* Whether config.json, or names, say that a checkpoint has this layout. NULL: only records. */
    bool (*is)(const struct qp_listing *listing);

    /* Whether config.json says that engines quantize activations. NULL: it never does. */
    bool (*is_active)(const struct qp_listing *listing);

    /*
     * The quantized tensors of a checkpoint, in the order of their names, by its config.json, names
     * and shapes: name, shape, storage, scheme and, if it knows, variant of each. qp_format_read
     * finds and proves their parts. The array is released with qp_free; what it points to is in the
     * arena or in the listing. NULL: only records say.
     */
    enum qplan_status (*describe)(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err);

    /* Whether a stored tensor only says how some of these quantized ones are stored, which are in
     * the order of their names: it is no tensor of its own. NULL: none is. */
    bool (*is_note)(const struct qp_listing *listing, const struct qplan_entry *entry,
                    const struct qp_tensor *tensors, size_t n);

    /*
     * Makes a scheme that was asked for a tensor of this storage what the layout stores: what the
     * scheme leaves open is set. Returns NULL, or what the layout can store instead.
     * NULL: every scheme is stored as it is.
     */
    const char *(*fit)(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options);

    /*
     * Sets what only stored values say of a tensor that has a record: of scales that have scales
     * the offset, if the part that says it is there. NULL: nothing.
     */
    enum qplan_status (*recall)(const struct qp_listing *listing, struct qp_tensor *tensor,
                                struct qplan_error *err);

    /*
     * Why a tensor cannot be stored with its scheme, as the reason of a report, or NULL if it can.
     * No function: every tensor can, with every scheme.
     */
    const char *(*misfit)(const struct qp_tensor *tensor);

    /* The variant of a tensor with its scheme that options ask for. */
    unsigned (*variant)(const struct qp_tensor *tensor, const struct qp_format_options *options);

    /*
     * The parts of a tensor with a scheme and a variant, and for each part the stored tensor, which
     * has no offsets yet; both arrays have room for QP_MOST_PARTS. Returns how many, or 0 when out
     * of memory.
     */
    unsigned (*parts)(const struct qp_tensor *tensor, struct qp_arena *arena, struct qp_part *parts,
                      struct qplan_entry *entries);

    /* Writes the value that config.json gets under each of config_keys, which end with NULL. */
    void (*config)(struct qp_writer *w, const struct qp_outline *outline);
    const char *const *config_keys;
};

/* The i-th layout, or NULL behind the last; the one of this name, or NULL. */
const struct qp_format *qp_format_at(size_t i);
const struct qp_format *qp_format_find(const char *name);

/* What ->fit does, of a layout that may have none. */
const char *qp_format_fit(const struct qp_format *format, struct qplan_scheme *scheme,
                          enum qplan_storage storage, const struct qp_format_options *options);

/* ---- Reading -----------------------------------------------------------------------------------
 */

/* The layout that config.json names, or NULL. */
const struct qp_format *qp_format_of_config(const struct qp_listing *listing);

/*
 * The layout of a checkpoint and its quantized tensors, in the order of their names, with every
 * claim on names, types, shapes and constant bytes proven; *format is NULL for a plain checkpoint.
 * The array is released with qp_free; what it points to is in the arena or in the listing.
 */
enum qplan_status qp_format_read(const struct qp_listing *listing, struct qp_arena *arena,
                                 const struct qp_format **format, struct qp_tensor **tensors,
                                 size_t *n, struct qplan_error *err);

/*
 * Finds a stored tensor whose name says that some tool quantized this checkpoint before, in
 * whatever layout; NULL if there is none. Those with an owner, if owners are given by stored
 * tensor, are not looked at.
 */
enum qplan_status qp_find_quantized(const struct qp_listing *listing,
                                    const struct qp_tensor **owner,
                                    const struct qplan_entry **found, struct qplan_error *err);

#endif
