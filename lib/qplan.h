/*
 * qplan.h - the public interface of libqplan, and its only public header.
 *
 * The way data flows: open a checkpoint, make a plan, run it, verify the result, read the report.
 *
 *     qplan_checkpoint_open -> qplan_plan_make -> qplan_quantize -> qplan_report_write_json
 *                              qplan_plan_read                      qplan_report_write_text
 *
 * Conventions, true for every function below:
 *  - A function that can fail returns enum qplan_status and takes a struct qplan_error as its last
 *    argument. The error may be NULL. On success it is left as it was; on failure the first problem
 *    is described in it. Nothing in the library exits, aborts, prints or keeps global state.
 *  - An object made by _open, _make, _read or another producing call is released by its one
 *    _close or _free, which accepts NULL. On failure the out pointer is set to NULL.
 *  - Pointers returned as const are borrowed: they live as long as the object they came from.
 *  - Checkpoints, plans and reports are immutable once made and may be shared between threads.
 *    Anything else may be used from one thread at a time.
 */
#ifndef QPLAN_H
#define QPLAN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QPLAN_VERSION "0.1.0"

/* The revision of the numeric contract. It changes when any output byte of any input changes. */
#define QPLAN_NUMERICS 1

/* The highest rank that a tensor of a checkpoint may have. */
#define QPLAN_MAX_RANK 64

/* ---- Status and errors ----------------------------------------------------------------------- */

enum qplan_status {
    QPLAN_OK = 0,
    QPLAN_ERR_PROOF,       /* a proof or a gate failed; the report says which */
    QPLAN_ERR_USAGE,       /* wrong whatever the files hold: option values, output is the input */
    QPLAN_ERR_INVALID,     /* the content of an input is bad or does not fit the request */
    QPLAN_ERR_VALUE,       /* a number in the data is to blame: NaN, a scale that overflows */
    QPLAN_ERR_UNSUPPORTED, /* legal, but not offered here */
    QPLAN_ERR_IO,          /* the file system: missing, unreadable, exists, full, changed */
    QPLAN_ERR_MEMORY,      /* out of memory, or a cap below the least that works */
    QPLAN_ERR_CANCELLED,   /* cancel of qplan_run or qplan_op_file became non-zero */
    QPLAN_ERR_DEVICE,      /* the backend that was asked for cannot do this here */
    QPLAN_ERR_BUFFER,      /* operators: a buffer is shorter than shape and strides imply */
    QPLAN_ERR_WORKSPACE,   /* operators: the workspace is shorter than qplan_op_workspace_size */
    QPLAN_ERR_MISALIGNED,  /* operators: a pointer is not aligned to its element */
    QPLAN_ERR_INTERNAL     /* a bug in the library */
};

/*
 * What the caller can do about a failure, where that is something to set or to call. A failure has
 * an advice, a hint in words, or neither: a hint is for those things that any user can do.
 */
enum qplan_advice {
    QPLAN_ADVICE_NONE,
    QPLAN_ADVICE_CLEAN,       /* a run that was killed left this folder: qplan_clean removes it */
    QPLAN_ADVICE_FORCE,       /* .force of qplan_run or qplan_op_file replaces the output */
    QPLAN_ADVICE_CPU,         /* without .device the CPU computes, to the same bytes */
    QPLAN_ADVICE_AGAINST,     /* .against of qplan_inspect_options names the source */
    QPLAN_ADVICE_DEQUANTIZE,  /* qplan_dequantize makes a plain checkpoint of this one, and
                               * qplan_checkpoint_decode has it count as one */
    QPLAN_ADVICE_EXCLUDE,     /* .exclude of qplan_plan_options keeps the tensor as it is */
    QPLAN_ADVICE_EXCLUDE_ONE, /* .exclude of qplan_plan_options keeps one of the two as it is */
    QPLAN_ADVICE_INDIVISIBLE, /* .indivisible of qplan_plan_options: ragged or keep */
    QPLAN_ADVICE_KEEP,        /* .indivisible of qplan_plan_options: keep; or smaller groups */
    QPLAN_ADVICE_NONFINITE,   /* .nonfinite of qplan_plan_options: saturate; or .exclude */
    QPLAN_ADVICE_SCALE_F32,   /* .scale_dtype f32 of the scheme takes larger scales */
    QPLAN_ADVICE_OPERATORS,   /* qplan_op_at walks all operators */
    QPLAN_ADVICE_SELECT,      /* .select or .rules of qplan_plan_options quantize further tensors */
    QPLAN_ADVICE_IMPORTANCE,  /* .importance of the options or the document names the files */
    QPLAN_ADVICE_HESSIAN,     /* .hessian of the options or the document names the file */
    QPLAN_ADVICE_EXACT,       /* .exact of qplan_inspect_options proves it with the file that it was
                               * made with; .allow_unproven goes without */
    QPLAN_ADVICE_UNQUANTIZED, /* .allow_unquantized of qplan_inspect_options takes a mere copy */
    QPLAN_ADVICE_UNRECORDED,  /* other tools may choose codes by data: .allow_unproven of
                               * qplan_inspect_options only measures those without a record */
    QPLAN_ADVICE_EXCHANGE     /* the source is quantized and the checkpoint is not: the other way
                               * round .against is what was quantized */
};

/* No error in this struct points anywhere: it may be copied and outlives every object. */
struct qplan_error {
    enum qplan_status status;
    int sys_errno;      /* errno of the failed call, or 0 */
    uint64_t offset;    /* byte of the file at fault, or QPLAN_NO_OFFSET */
    char subject[512];  /* file, or file and tensor, escaped for a terminal */
    char message[4096]; /* what is wrong: expected a, found b (at byte n) */
    char hint[512];     /* what the user can do, or "" */
    enum qplan_advice advice;
};

#define QPLAN_NO_OFFSET UINT64_MAX

/* The name of a status in lower case: "ok", "proof", "usage", ... Never NULL. */
const char *qplan_status_name(enum qplan_status status);

/* ---- Element types ----------------------------------------------------------------------------
 */

/* The numeric types that tensors are quantized from and to. */
enum qplan_dtype {
    QPLAN_F64,
    QPLAN_F32,
    QPLAN_F16,
    QPLAN_BF16,
    QPLAN_INT8,
    QPLAN_UINT8,
    QPLAN_INT4,
    QPLAN_UINT4,
    QPLAN_INT16,
    QPLAN_UINT16,
    QPLAN_BINARY, /* for compression ratios only */
    QPLAN_INT2,
    QPLAN_INT3,
    QPLAN_INT5,
    QPLAN_INT6,
    QPLAN_INT7,
    QPLAN_UINT2,
    QPLAN_UINT3,
    QPLAN_UINT5,
    QPLAN_UINT6,
    QPLAN_UINT7,
    QPLAN_F8E4M3, /* no infinity, one NaN of either sign, up to 448 */
    QPLAN_F8E5M2, /* IEEE, up to 57344 */
    QPLAN_F4E2M1, /* numbers alone, up to 6 */
    QPLAN_NF4,    /* a table of 16 numbers from -1 to 1 */
    QPLAN_E8M0,   /* powers of 2: scales alone */
    QPLAN_FP4,    /* a table of 15 numbers from -1 to 1 of bitsandbytes: only read */
    QPLAN_DTYPE_COUNT
};

/* The one spelling of a dtype ("bf16", "int4"), or NULL for a value outside the enum. */
const char *qplan_dtype_name(enum qplan_dtype dtype);

/* Finds a dtype by its exact name; "fp8" is another one of f8e4m3. Returns false and leaves *out
 * alone if there is none. */
bool qplan_dtype_parse(const char *name, enum qplan_dtype *out);

/* Bits of one element: 64 for f64, 4 for int4, 1 for binary; 0 for a value outside the enum. */
unsigned qplan_dtype_bits(enum qplan_dtype dtype);

/* True for the signed integers and for the other types, e8m0 alone excepted. */
bool qplan_dtype_is_signed(enum qplan_dtype dtype);

/* The least and largest code of an integer dtype. Returns false for a float type. */
bool qplan_dtype_range(enum qplan_dtype dtype, int32_t *q_min, int32_t *q_max);

/* The 22 types that a safetensors header can name, in the order of the reference writer. */
enum qplan_storage {
    QPLAN_STORAGE_BOOL,
    QPLAN_STORAGE_F4,
    QPLAN_STORAGE_F6_E2M3,
    QPLAN_STORAGE_F6_E3M2,
    QPLAN_STORAGE_U8,
    QPLAN_STORAGE_I8,
    QPLAN_STORAGE_F8_E5M2,
    QPLAN_STORAGE_F8_E4M3,
    QPLAN_STORAGE_F8_E8M0,
    QPLAN_STORAGE_F8_E4M3FNUZ,
    QPLAN_STORAGE_F8_E5M2FNUZ,
    QPLAN_STORAGE_I16,
    QPLAN_STORAGE_U16,
    QPLAN_STORAGE_F16,
    QPLAN_STORAGE_BF16,
    QPLAN_STORAGE_I32,
    QPLAN_STORAGE_U32,
    QPLAN_STORAGE_F32,
    QPLAN_STORAGE_C64,
    QPLAN_STORAGE_F64,
    QPLAN_STORAGE_I64,
    QPLAN_STORAGE_U64,
    QPLAN_STORAGE_COUNT
};

/* The name in a safetensors header ("BF16"), or NULL for a value outside the enum. */
const char *qplan_storage_name(enum qplan_storage storage);

/* Bits of one element (F4: 4, F6: 6, BOOL: 8); 0 for a value outside the enum. */
unsigned qplan_storage_bits(enum qplan_storage storage);

/* ---- Schemes -----------------------------------------------------------------------------------
 */

enum qplan_granularity {
    QPLAN_PER_TENSOR,
    QPLAN_PER_CHANNEL, /* one set for each coordinate on .axis */
    QPLAN_PER_GROUP,   /* sets of .group consecutive elements of the last axis */
    QPLAN_PER_BLOCK    /* sets of .block_rows x .block_cols over the last two axes */
};

/*
 * How one tensor is quantized. Written as text:
 *
 *     DTYPE[:GRAN][:asym|:sym|:bias][:narrow][:SCALEDTYPE][:double]
 *     GRAN = t | cN | gN | bRxC
 *
 * "int8:c0", "int4:g128:asym", "int8:b128x128:bf16". Left out: GRAN is c0 for 8-bit and g128 for
 * smaller codes, signed types are symmetric and unsigned ones asymmetric, the scale is f32.
 */
struct qplan_scheme {
    enum qplan_dtype dtype; /* int2 to int8, uint2 to uint8, f8e4m3, f8e5m2, f4e2m1, nf4 */
    enum qplan_granularity granularity;
    int32_t axis;        /* per channel; negative counts from the end */
    uint64_t group;      /* per group, at least 1 */
    uint64_t block_rows; /* per block, at least 1 */
    uint64_t block_cols;
    bool asymmetric;
    bool bias;   /* unsigned codes: q is scale * q + bias, without a zero point. Symmetric ones have
                  * it only where a layout stores them so, and their text does not say it. */
    bool narrow; /* signed only: the range is -q_max .. q_max */
    enum qplan_dtype scale_dtype; /* f32 f16 bf16 f8e4m3 e8m0 */
    bool scale_given;             /* it was asked for; else a layout may take a type of its own */
    bool nested; /* tables only: scales are codes of 8 bits with scales of their own, as
                  * bitsandbytes alone stores them */
};

/* Room for the text of any scheme, its NUL included. */
#define QPLAN_SCHEME_TEXT 96

/* The scheme that a dtype has when nothing else is said. USAGE for a dtype that has no codes. */
enum qplan_status qplan_scheme_default(struct qplan_scheme *out, enum qplan_dtype dtype,
                                       struct qplan_error *err);

/*
 * Sets symmetry and scale type to what the native layout has if nobody says otherwise, for the type
 * of codes and the sets that a scheme has. Its zero points are stored anyway, so integers of 4 bits
 * and fewer are asymmetric; in groups and blocks of such codes the scales are bf16, where f32 costs
 * size and gains nothing. All else is as the text without these parts means it.
 */
void qplan_scheme_usual(struct qplan_scheme *scheme);

/* Reads the text above. USAGE with the position of the first wrong part. */
enum qplan_status qplan_scheme_parse(struct qplan_scheme *out, const char *text,
                                     struct qplan_error *err);

/* Writes the canonical text: GRAN always, other defaults left out. Returns its length. */
size_t qplan_scheme_format(const struct qplan_scheme *scheme, char out[QPLAN_SCHEME_TEXT]);

/* ---- Parameters --------------------------------------------------------------------------------
 */

enum qplan_param_scheme {
    QPLAN_SYMMETRIC,
    QPLAN_ASYMMETRIC,
    QPLAN_LINEAR,      /* the asymmetric formula */
    QPLAN_LOGARITHMIC, /* on ln x; positive data only */
    QPLAN_CHANNEL_WISE,
    QPLAN_BLOCK_WISE
};

/*
 * A set of quantization parameters: x' = scale * (code - zero_point), one pair per set.
 * Made by a constructor below, released by qplan_params_free. A failed call leaves the old
 * contents.
 */
struct qplan_params {
    enum qplan_dtype dtype; /* int2 to int8, uint2 to uint8, int16, uint16; binary for ratios */
    enum qplan_param_scheme scheme;
    bool narrow_range;
    enum qplan_dtype scale_dtype; /* f32 or f64: the precision that the scales were found in */
    size_t n_sets;
    double *scale;       /* n_sets values of scale_dtype */
    int32_t *zero_point; /* n_sets */
    size_t block_size;   /* block_wise; 0 = none */
    double *min_val;     /* n_sets, or NULL when unknown */
    double *max_val;
};

/* Constructors. MEMORY when out of memory; INVALID for n = 0, size = 0 or a dtype without codes. */
enum qplan_status qplan_params_int8_symmetric(struct qplan_params *out, struct qplan_error *err);
enum qplan_status qplan_params_uint8_asymmetric(struct qplan_params *out, struct qplan_error *err);
enum qplan_status qplan_params_int4_symmetric(struct qplan_params *out, struct qplan_error *err);
/* uint8, asymmetric, with the values given; the scale is rounded to f32. */
enum qplan_status qplan_params_new(struct qplan_params *out, double scale, int32_t zero_point,
                                   struct qplan_error *err);
/* n sets of (1, 0). */
enum qplan_status qplan_params_channel_wise(struct qplan_params *out, size_t n,
                                            enum qplan_dtype dtype, struct qplan_error *err);
/* One set of (1, 0) until statistics of more sets are given. */
enum qplan_status qplan_params_block_wise(struct qplan_params *out, size_t block_size,
                                          enum qplan_dtype dtype, struct qplan_error *err);

/* A deep copy; *out is overwritten without being freed. */
enum qplan_status qplan_params_copy(struct qplan_params *out, const struct qplan_params *params,
                                    struct qplan_error *err);

/* Releases the arrays and clears the struct. NULL and a cleared struct are fine. */
void qplan_params_free(struct qplan_params *params);

/* One line for people, cut to fit and NUL-terminated. Returns the full length, as snprintf does. */
size_t qplan_params_print(const struct qplan_params *params, char *out, size_t n_bytes);

/*
 * Computes scale and zero point of n sets from their least and largest values and stores both
 * ranges. n becomes the number of sets: any n >= 1 for channel_wise and block_wise, 1 for the other
 * schemes unless the params already have n sets. VALUE with the index: min > max, not finite,
 * logarithmic with min <= 0, a scale that overflows.
 */
enum qplan_status qplan_params_from_statistics(struct qplan_params *params, const double *min,
                                               const double *max, size_t n,
                                               struct qplan_error *err);

/* Checks that the parameters are usable; names the first bad member and its index. */
enum qplan_status qplan_params_validate(const struct qplan_params *params, struct qplan_error *err);

/* The number of (scale, zero point) pairs. */
size_t qplan_params_num_parameter_sets(const struct qplan_params *params);

/* channel_wise or block_wise with more than one set. */
bool qplan_params_is_per_channel(const struct qplan_params *params);

/*
 * The proven bound of |x - x'| for every x inside the statistics, the largest over the sets.
 * Without statistics clipping is unknown: the rounding part alone is returned and, if
 * clipping_known is not NULL, *clipping_known is set to false. Infinite for parameters that
 * qplan_params_validate refuses.
 */
double qplan_params_quantization_error_bound(const struct qplan_params *params,
                                             bool *clipping_known);

/* 32 / bits: what the codes alone would save of f32 data. */
double qplan_params_compression_ratio(const struct qplan_params *params);

/*
 * Bytes of n_elems f32 values over the bytes of padded codes, f32 scales and i32 zero points;
 * block_wise with the sets that n_elems makes.
 */
double qplan_params_effective_compression_ratio(const struct qplan_params *params,
                                                uint64_t n_elems);

/* ---- Checkpoints -------------------------------------------------------------------------------
 */

struct qplan_checkpoint;

/* One tensor of a checkpoint. */
struct qplan_entry {
    const char *name; /* UTF-8, NUL-terminated, not escaped */
    const uint64_t *shape;
    uint64_t begin, end; /* bytes in the data section */
    uint32_t name_len;
    uint16_t file;   /* that it is in: 0 for the first file of a checkpoint */
    uint8_t storage; /* enum qplan_storage */
    uint8_t rank;
};

/*
 * Opens a checkpoint: a safetensors file, a folder with one or with an index and its shards, or the
 * index. Proves its whole layout before anything else is read. INVALID with the byte and the tensor
 * at fault, IO when the file system refuses, MEMORY.
 */
enum qplan_status qplan_checkpoint_open(struct qplan_checkpoint **out, const char *path,
                                        struct qplan_error *err);
void qplan_checkpoint_close(struct qplan_checkpoint *checkpoint);

/*
 * Has a quantized checkpoint count as a plain one from now on: the values of its tensors are those
 * that decoders of its layout give, in their type, decoded while they are read. It may then be
 * quantized anew, and be the source that a file is measured against. Plain ones stay what they are.
 * MEMORY; INVALID if a tensor is too large.
 */
enum qplan_status qplan_checkpoint_decode(struct qplan_checkpoint *checkpoint,
                                          struct qplan_error *err);

const char *qplan_checkpoint_path(const struct qplan_checkpoint *checkpoint);
bool qplan_checkpoint_is_folder(const struct qplan_checkpoint *checkpoint);

/* Whether it is a quantized one that counts as a plain one. */
bool qplan_checkpoint_is_decoded(const struct qplan_checkpoint *checkpoint);
uint64_t qplan_checkpoint_bytes(const struct qplan_checkpoint *checkpoint);
size_t qplan_checkpoint_count(const struct qplan_checkpoint *checkpoint);

/* The i-th tensor in the byte-wise order of names, or NULL if i is out of range. */
const struct qplan_entry *qplan_checkpoint_entry(const struct qplan_checkpoint *checkpoint,
                                                 size_t i);

/*
 * The value of a __metadata__ key, with a NUL behind it, or NULL. It may contain NULs: n_bytes, if
 * not NULL, gets its length.
 */
const char *qplan_checkpoint_metadata(const struct qplan_checkpoint *checkpoint, const char *key,
                                      size_t *n_bytes);

/* ---- Plans --------------------------------------------------------------------------------------
 */

/* The name of the i-th layout that quantized checkpoints can have, or NULL behind the last. */
const char *qplan_format_name(size_t i);

/* How the i-th method that chooses parameters is written, or NULL behind the last. */
const char *qplan_calibrator_name(size_t i);

/* Whether a text names one. */
bool qplan_calibrator_is(const char *text);

struct qplan_plan;

/* Which tensors are quantized: all floats of two or more axes, or the weights of linear layers. */
enum qplan_select {
    QPLAN_SELECT_USUAL, /* what is usual for the layout */
    QPLAN_SELECT_ALL,
    QPLAN_SELECT_LINEAR
};
enum qplan_indivisible {
    QPLAN_INDIVISIBLE_ERROR,
    QPLAN_INDIVISIBLE_KEEP,
    QPLAN_INDIVISIBLE_RAGGED
};
enum qplan_nonfinite { QPLAN_NONFINITE_ERROR, QPLAN_NONFINITE_SATURATE };
enum qplan_zero_point {
    QPLAN_ZERO_POINT_USUAL, /* what is usual for the layout: always, in the native one */
    QPLAN_ZERO_POINT_ALWAYS,
    QPLAN_ZERO_POINT_ASYMMETRIC
};

/* What a person asks for. Zero bytes are the defaults, except that scheme must be set. */
/*
 * Whether engines quantize activations while a model runs, in layouts that can say so; by itself a
 * layout says what is usual for its codes: nothing for integers.
 */
enum qplan_activations {
    QPLAN_ACTIVATIONS_USUAL,
    QPLAN_ACTIVATIONS_NONE,
    QPLAN_ACTIVATIONS_DYNAMIC
};

/* Our own arithmetic, or that of the tool which defined the layout, whose bytes it gives. */
enum qplan_arithmetic { QPLAN_ARITHMETIC_QPLAN, QPLAN_ARITHMETIC_REFERENCE };

/*
 * Experts of a layer that a model has in one tensor of three axes: such a tensor is kept, or each
 * expert becomes one of its own, as engines load them, for types of models that are known.
 */
enum qplan_experts { QPLAN_EXPERTS_KEEP, QPLAN_EXPERTS_SPLIT };

struct qplan_plan_options {
    struct qplan_scheme scheme;
    const char *format;    /* the layout of the output; NULL = qplan, the native one */
    const char *tag;       /* what the name of the output ends with; NULL = layout and scheme */
    const char *calibrate; /* "mse:best"; NULL = minmax */
    bool positive_scales;  /* none below 0, where the method would make some */
    /* Files that tell how much each input channel matters: imatrix of llama.cpp, or safetensors. */
    const char *const *importance;
    size_t n_importance;
    bool importance_required; /* all tensors that could have some must, and those for Hessians */
    /* A file of Hessians: then the usual method is ldlq, which rounds by them. */
    const char *hessian; /* NULL = none */
    double hessian_damp; /* the share of its mean that is added to a diagonal; 0 = the usual */
    const char *const *include;
    size_t n_include;
    const char *const *exclude;
    size_t n_exclude;
    enum qplan_select select;
    /* Smaller tensors are kept: by elements, and by rows, which are all axes but the last. Of
     * tensors that engines load as one the largest tells. 0 = none is too small. */
    uint64_t min_elements, min_rows;
    const char *rules;      /* lines "GLOB SCHEME|keep [calibrate=METHOD]"; NULL = none */
    size_t n_rules;         /* bytes of them */
    const char *rules_name; /* what errors call them, for example the path they came from */
    enum qplan_indivisible indivisible;
    enum qplan_nonfinite nonfinite;
    enum qplan_zero_point zero_point;
    enum qplan_activations activations;
    enum qplan_arithmetic arithmetic;
    enum qplan_experts experts;
    uint64_t max_shard_bytes; /* tensors in a file of a folder; 0 = shards stay as they are */
    const char *const *copy;  /* files of a folder that the output takes over besides plain ones */
    size_t n_copy;
    const volatile sig_atomic_t *cancel; /* as in struct qplan_run, while files are read; or NULL */
};

/*
 * What is usual for a layout where no scheme is asked for. False if the layout is unknown, or
 * leaves that to the type of the codes.
 */
bool qplan_format_scheme(const char *format, struct qplan_scheme *out);

/* What a layout is, for people. */
struct qplan_format_facts {
    const char *name;
    const char *loaded_by; /* NULL = by qplan alone */
    const char *schemes;   /* that it stores */
    const char *reads;     /* what is read of other tools besides; NULL = nothing */
    bool is_folder;        /* its output is a folder with a config.json, never a file */
    bool is_file;          /* its output is a file, never a folder */
    bool is_read_only;     /* it has no output: nothing is written in it */
};

/* The facts of the i-th layout; false behind the last. */
bool qplan_format_at(size_t i, struct qplan_format_facts *out);

/* A name for a layout, a scheme and what engines do with activations. */
struct qplan_preset {
    const char *name, *format, *scheme;
    enum qplan_activations activations;
};

/* The i-th preset, or NULL behind the last. */
const struct qplan_preset *qplan_preset_at(size_t i);

/* Receives bytes; returns 0, or an errno value to stop. */
typedef int (*qplan_write_fn)(void *ctx, const void *bytes, size_t n_bytes);

/*
 * Decides what becomes of every tensor and computes every output tensor, offset and size. All that
 * can fail without reading data fails here. The plan borrows from the checkpoint, which must
 * outlive it.
 */
enum qplan_status qplan_plan_make(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint,
                                  const struct qplan_plan_options *options,
                                  struct qplan_error *err);

/*
 * Whether a file is an imatrix of llama.cpp, which it is not either where cancel, as in struct
 * qplan_run or NULL, becomes non-zero. A safetensors file never is: it is a checkpoint, and
 * whatever is wrong with it is said of the checkpoint.
 */
bool qplan_importance_is_imatrix(const char *path, const volatile sig_atomic_t *cancel);

/* What a file of importance says, a line a weight. INVALID, IO, MEMORY; CANCELLED as above. */
enum qplan_status qplan_importance_write_text(const char *path, const volatile sig_atomic_t *cancel,
                                              qplan_write_fn write, void *ctx,
                                              struct qplan_error *err);

/* What is added to the diagonal of a Hessian where nothing else is asked for. */
#define QPLAN_HESSIAN_DAMP 0.01

/* A plan document, and the data that it asks for besides the source. */
struct qplan_document {
    const char *name; /* what errors call it, for example the path it came from */
    const char *text;
    size_t n_bytes;
    /* As in qplan_plan_options; where the document names files by their SHA-256 they are those. */
    const char *const *importance;
    size_t n_importance;
    const char *hessian;
    double hessian_damp;                 /* 0 = that of the document, or the usual one */
    const volatile sig_atomic_t *cancel; /* as in qplan_plan_options */
};

/*
 * Reads a plan document. Without the data the plan can be looked at; it cannot be run if a tensor
 * asks for them. INVALID, MEMORY; IO for the data.
 */
enum qplan_status qplan_plan_read(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint,
                                  const struct qplan_document *document, struct qplan_error *err);
void qplan_plan_free(struct qplan_plan *plan);

/* The plan document (qplan-plan/1), one line. */
enum qplan_status qplan_plan_write_json(const struct qplan_plan *plan, qplan_write_fn write,
                                        void *ctx, struct qplan_error *err);

/*
 * The same document as a new file, which exists afterwards complete or not at all. USAGE if path is
 * the checkpoint itself; IO if it exists and force is not set.
 */
enum qplan_status qplan_plan_write_file(const struct qplan_plan *plan, const char *path, bool force,
                                        struct qplan_error *err);

/* A table for people with the exact size of the output. */
enum qplan_status qplan_plan_write_text(const struct qplan_plan *plan, qplan_write_fn write,
                                        void *ctx, struct qplan_error *err);

/* Which tensors of a plan are explained, and how. */
struct qplan_explain_options {
    const struct qplan_plan_options *asked; /* the plan was made with; NULL for a document */
    const char *const *patterns;            /* over names of tensors; none = all tensors */
    size_t n_patterns;
    bool json; /* the document qplan-explain/1, one line; else text for people */
};

/*
 * Says of each tensor what becomes of it, by which rule, which rules lost against that, and what is
 * written. USAGE for a pattern that is none, INVALID for one that matches no tensor.
 */
enum qplan_status qplan_plan_explain(const struct qplan_plan *plan,
                                     const struct qplan_explain_options *options,
                                     qplan_write_fn write, void *ctx, struct qplan_error *err);

/*
 * The bare name of the output file: from the scheme, from the plan document, or, for a document
 * that names none, STEM.quantized.safetensors.
 */
const char *qplan_plan_output_name(const struct qplan_plan *plan);
uint64_t qplan_plan_output_bytes(const struct qplan_plan *plan);

/* Warnings that came up while planning: how many, and the text of the i-th. */
size_t qplan_plan_warning_count(const struct qplan_plan *plan);
const char *qplan_plan_warning(const struct qplan_plan *plan, size_t i);

/* ---- Looking at a folder as engines do ----------------------------------------------------------
 */

/* A rule that quantized checkpoints are held against. */
struct qplan_lint_rule {
    const char *id;                /* "L07" */
    bool is_error;                 /* else a warning */
    const char *layouts, *engines; /* whom it concerns, names with blanks between; NULL = all */
    const char *about;             /* what it finds */
};

/* The i-th rule; false behind the last. The name of the i-th engine, or NULL. */
bool qplan_lint_rule_at(size_t i, struct qplan_lint_rule *out);
const char *qplan_engine_name(size_t i);

/* What was found. */
struct qplan_findings;

struct qplan_lint_options {
    const char *engine;                  /* whose limits count too: "vllm"; NULL = of none */
    const volatile sig_atomic_t *cancel; /* as in struct qplan_run; or NULL */
};

/*
 * Holds the quantized checkpoint at path against all rules that concern its layout, and the engine
 * if one is named. A checkpoint that is broken is a finding; INVALID is one that cannot be found,
 * or in which nothing is quantized.
 */
enum qplan_status qplan_lint(struct qplan_findings **out, const char *path,
                             const struct qplan_lint_options *options, struct qplan_error *err);
void qplan_findings_free(struct qplan_findings *findings);

/* How many there are: errors, or warnings. */
size_t qplan_findings_count(const struct qplan_findings *findings, bool errors);

/* The document qplan-lint/1, one line; or a line for each, at most ten of each rule. */
enum qplan_status qplan_findings_write_json(const struct qplan_findings *findings,
                                            qplan_write_fn write, void *ctx,
                                            struct qplan_error *err);
enum qplan_status qplan_findings_write_text(const struct qplan_findings *findings,
                                            qplan_write_fn write, void *ctx,
                                            struct qplan_error *err);

/* ---- Running ------------------------------------------------------------------------------------
 */

/* Instruction set levels; a limit of QPLAN_ISA_BEST takes what the CPU has. */
enum qplan_isa { QPLAN_ISA_BEST, QPLAN_ISA_SCALAR, QPLAN_ISA_AVX2, QPLAN_ISA_AVX512 };

/* The name of a level ("scalar"), or NULL. */
const char *qplan_isa_name(enum qplan_isa isa);

/* Finds a level by name and says whether this CPU has it. USAGE if unknown or absent. */
enum qplan_status qplan_isa_parse(const char *name, enum qplan_isa *out, struct qplan_error *err);

/* The level whose kernels run under a limit: the best that the CPU has and the library offers. */
enum qplan_isa qplan_isa_used(enum qplan_isa limit);

enum qplan_backend {
    QPLAN_BACKEND_ANY,
    QPLAN_BACKEND_CPU,
    QPLAN_BACKEND_CUDA,
    QPLAN_BACKEND_OPENCL
};

/* The name of a backend ("cpu"; "any" for any), or NULL. */
const char *qplan_backend_name(enum qplan_backend backend);

/*
 * Where jobs compute. "cpu"; "cuda", "opencl" or "cuda:N", the N-th device of a backend, the first
 * without a number; "auto", the first device that can be used and for which copying the data pays,
 * else the CPU. A device that runs on the CPU is used only when named. Results are the same bits
 * everywhere; each device has to prove it on fixed vectors before it is used, and again on one tile
 * in a thousand of every job, or one unit of the work of operators; one that was wrong is refused
 * from then on. Opened when a job first needs it, and used by one job at a time.
 */
struct qplan_device;

/*
 * memory_bytes caps the memory that is used on the device; 0 = half of what it has. USAGE for a
 * name of another form. That a device cannot be used is said by the job: DEVICE.
 */
enum qplan_status qplan_device_open(struct qplan_device **out, const char *name,
                                    uint64_t memory_bytes, struct qplan_error *err);
void qplan_device_close(struct qplan_device *device);

/* Where the last job computed: the name of the device, NULL for the CPU. */
const char *qplan_device_used(const struct qplan_device *device);

/*
 * All devices of all backends, with the reason where one cannot be used. With self_test every
 * device that can be used first proves all its kernels.
 */
enum qplan_status qplan_devices_write_json(bool self_test, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err);
enum qplan_status qplan_devices_write_text(bool self_test, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err);

/* How a job uses the machine. Zero bytes are the defaults. NULL is accepted for all defaults. */
struct qplan_run {
    unsigned threads;      /* 0 = the CPUs of the affinity mask, capped by the cgroup quota */
    uint64_t memory_bytes; /* cap of the data buffers; 0 = the default of a few MiB a thread */
    enum qplan_isa isa;
    bool force;              /* replace an existing output */
    const char *const *copy; /* patterns of files of a folder that dequantize and convert take
                              * over besides plain ones; a plan has its own */
    size_t n_copy;
    struct qplan_device *device; /* where tensors are computed; NULL = the CPU */
    /* Called from one thread at a time with the bytes of input done and to do. NULL = silent. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* When it becomes non-zero, the job stops, removes what it made and returns CANCELLED. */
    const volatile sig_atomic_t *cancel;
};

/* ---- Schemes by measured error ------------------------------------------------------------------
 */

/* What each tensor may become, and what all may come to. */
struct qplan_budget {
    const char *candidates; /* schemes, and "keep", with commas between: "int4:g128,int8:c0,keep" */
    uint64_t target_bytes;  /* of all files of the output; 0 = no such target */
    double target_bpw;      /* bits of tensors over elements; 0 = no such target */
};

/*
 * The squared error that each candidate makes of each tensor, and its bytes. It borrows from the
 * checkpoint, the options and the budget, which must outlive it.
 */
struct qplan_sensitivity;

/*
 * Quantizes every tensor that options select by each candidate, in memory, and sums the squared
 * errors, weighted where options have importance. Families of tensors that engines load as one are
 * judged together. .scheme of the options is not looked at. USAGE for candidates that are none, for
 * two targets, or several schemes in a layout that has one; INVALID for a target that cannot be
 * reached, before any data is read, and for a candidate that fits no tensor.
 */
enum qplan_status qplan_sensitivity_measure(struct qplan_sensitivity **out,
                                            const struct qplan_checkpoint *checkpoint,
                                            const struct qplan_plan_options *options,
                                            const struct qplan_budget *budget,
                                            const struct qplan_run *run, struct qplan_error *err);
void qplan_sensitivity_free(struct qplan_sensitivity *sensitivity);

/*
 * The table: a line for tensors that differ only in numbers, or for every tensor; and the document
 * qplan-sensitivity/1, one line.
 */
enum qplan_status qplan_sensitivity_write_text(const struct qplan_sensitivity *sensitivity,
                                               bool every_tensor, qplan_write_fn write, void *ctx,
                                               struct qplan_error *err);
enum qplan_status qplan_sensitivity_write_json(const struct qplan_sensitivity *sensitivity,
                                               qplan_write_fn write, void *ctx,
                                               struct qplan_error *err);

/* What a plan within a target comes to, and the best plan of at most that size with one scheme. */
struct qplan_budget_facts {
    uint64_t bytes; /* of all files */
    double bpw;
    double error;                    /* squared, of all tensors together */
    double bound;                    /* no plan within the target, of those that raise, has less */
    bool raised;                     /* heads and embeddings have candidates of 8 bits or more */
    char uniform[QPLAN_SCHEME_TEXT]; /* the candidate; "" = none keeps to the target */
    uint64_t uniform_bytes;
    double uniform_error;
};

/*
 * Makes the plan of least squared error that keeps to the target of the budget, which must have
 * one. Heads and embeddings get candidates of 8 bits or more first, wherever the plan is then no
 * worse than the best one of a single scheme. It borrows from the checkpoint alone.
 */
enum qplan_status qplan_plan_make_within(struct qplan_plan **out,
                                         const struct qplan_sensitivity *sensitivity,
                                         struct qplan_budget_facts *facts, struct qplan_error *err);

struct qplan_gate;

/*
 * What a job found. A report borrows from the checkpoint or plan and from the gates that it was
 * made with: they must outlive it.
 */
struct qplan_report;

/*
 * Runs a plan and writes out_path, which exists afterwards complete or not at all. With verify the
 * written bytes are proven against the source before they get their name; gates, if any, are
 * evaluated then too (PROOF, nothing written). *report is made on success and, so that it can be
 * shown, on PROOF.
 */
struct qplan_quantize_options {
    const char *out_path;
    bool verify;
    const struct qplan_gate *const *gates;
    size_t n_gates;
};
enum qplan_status qplan_quantize(struct qplan_report **report, const struct qplan_plan *plan,
                                 const struct qplan_quantize_options *options,
                                 const struct qplan_run *run, struct qplan_error *err);

/*
 * Writes the plain checkpoint that a native quantized one stands for. dtype NULL keeps the source
 * dtypes; otherwise f32, f16 or bf16 for the tensors that were quantized.
 */
enum qplan_status qplan_dequantize(struct qplan_report **report,
                                   const struct qplan_checkpoint *checkpoint, const char *out_path,
                                   const enum qplan_dtype *dtype, const struct qplan_run *run,
                                   struct qplan_error *err);

/*
 * Writes the codes and parameters of a quantized checkpoint in another layout, a name of
 * qplan_format_at, without loss. INVALID, with the tensor and what the layout could hold, if it
 * cannot hold them.
 */
enum qplan_status qplan_convert(struct qplan_report **report,
                                const struct qplan_checkpoint *checkpoint, const char *format,
                                const char *out_path, const struct qplan_run *run,
                                struct qplan_error *err);

/* ---- Reports and gates --------------------------------------------------------------------------
 */

/*
 * Parses [SCOPE:]METRIC OP NUMBER, for example "sqnr_db<30", "total:ratio<1.9" or
 * "*.mlp.*:max_abs>1e-3". USAGE with the part that is wrong.
 */
enum qplan_status qplan_gate_parse(struct qplan_gate **out, const char *text,
                                   struct qplan_error *err);
void qplan_gate_free(struct qplan_gate *gate);

/*
 * A gate without a scope on sqnr_db or cosine skips tensors of fewer elements, which are noisy and
 * save nothing, unless all are; a report lists them. This sets how many, 4096 otherwise.
 */
#define QPLAN_GATE_ELEMENTS 4096
void qplan_gate_set_least(struct qplan_gate *gate, uint64_t min_elements);

/* What a gate can ask for, as `qplan help metrics` prints it. */
struct qplan_metric {
    const char *name;  /* "sqnr_db" */
    const char *unit;  /* "dB"; "-" = none; "value" = that of the tensor's own values */
    const char *scope; /* of a gate that names none: "worst" or "total" */
    const char *help;
    bool of_tensors;   /* other scopes than total are legal too */
    bool needs_source; /* measured against the source */
};

/* The i-th metric; false behind the last one. */
bool qplan_metric_at(size_t i, struct qplan_metric *out);

struct qplan_inspect_options {
    const struct qplan_checkpoint *against; /* the source, to measure; or NULL */
    bool prove;                             /* verify: a source tensor missing is an offence */
    bool exact; /* with a source: compute every byte of quantized tensors again and compare */
    bool allow_unquantized; /* verify: a mere copy of the source is none */
    bool allow_unproven; /* verify: codes that were rounded by a Hessian, and are not computed again
                          * by .exact, are none either, nor those without a record that are not the
                          * nearest; they are measured */
    /*
     * Files by which errors are weighted too. With .exact they are those that the file was made
     * with: INVALID if the file names others.
     */
    const char *const *importance;
    size_t n_importance;
    const char *hessian;
    double hessian_damp;        /* with .exact; 0 = that which the file names, or the usual one */
    const char *const *include; /* report only tensors that one of these matches */
    size_t n_include;
    const struct qplan_gate *const *gates;
    size_t n_gates;
};

/*
 * Looks at a checkpoint: schemes, bounds and ratios; with a source, measured errors too. With
 * .prove, PROOF when the file is not what the source and the stored parameters give; err names the
 * first offender. PROOF also when a gate fails. *report is made on success and on PROOF.
 */
enum qplan_status qplan_inspect(struct qplan_report **report,
                                const struct qplan_checkpoint *checkpoint,
                                const struct qplan_inspect_options *options,
                                const struct qplan_run *run, struct qplan_error *err);
void qplan_report_free(struct qplan_report *report);

/* What was removed. */
struct qplan_cleaned {
    uint64_t n_files, n_bytes;
};

/*
 * Removes what a run that was killed has left of a folder: path with ".partial" behind it. IO if
 * there is no such folder, if it holds what no run has written, or if a run is writing it. removed
 * may be NULL.
 */
enum qplan_status qplan_clean(const char *path, struct qplan_cleaned *removed,
                              struct qplan_error *err);

/* A number that may be unknown. */
struct qplan_maybe {
    double value;
    bool known;
};

/* In the report of dequantize, quantized counts the tensors that were quantized before. */
struct qplan_totals {
    uint64_t tensors, quantized, kept, elements;
    uint64_t source_bytes, code_bytes, param_bytes, kept_bytes, data_bytes;
    uint64_t file_bytes;
    struct qplan_maybe ratio_ideal, ratio, bpw;
    uint64_t unproven; /* quantized tensors that were measured, but not proven */
};
const struct qplan_totals *qplan_report_totals(const struct qplan_report *report);

/* Failed gates: how many, and the text of the i-th ("a.weight: sqnr_db = 27.9, fails if < 30"). */
size_t qplan_report_gate_failures(const struct qplan_report *report);
const char *qplan_report_gate_failure(const struct qplan_report *report, size_t i);
size_t qplan_report_warning_count(const struct qplan_report *report);
const char *qplan_report_warning(const struct qplan_report *report, size_t i);

/* The report document (qplan-report/1), one line and a newline. */
enum qplan_status qplan_report_write_json(const struct qplan_report *report, qplan_write_fn write,
                                          void *ctx, struct qplan_error *err);

/* The report as text for people; every_tensor prints all rows instead of patterns. */
enum qplan_status qplan_report_write_text(const struct qplan_report *report, bool every_tensor,
                                          qplan_write_fn write, void *ctx, struct qplan_error *err);

/* ---- Operators ----------------------------------------------------------------------------------
 *
 * One numeric operation, prepared for one problem: select, ask, run as often as wanted.
 *
 *     int64_t shape[] = {64, 4096}, sets[] = {64};
 *     struct qplan_tensor tensors[] = {
 *         {.name = "input", .dtype = QPLAN_STORAGE_F32, .rank = 2, .shape = shape,
 *          .data = x, .n_bytes = sizeof x},
 *         {.name = "scale", .dtype = QPLAN_STORAGE_F32, .rank = 1, .shape = sets,
 *          .data = s, .n_bytes = sizeof s},
 *         {.name = "output", .dtype = QPLAN_STORAGE_I8, .rank = 2, .shape = shape,
 *          .data = q, .n_bytes = sizeof q},
 *     };
 *     struct qplan_op_field fields[] = {{.name = "axis", .number = 0}};
 *     struct qplan_op_desc desc = {"quantize_per_channel", fields, 1, tensors, 3};
 *     struct qplan_op_args args = {tensors, 3, NULL};
 *     status = qplan_op_select(&op, &desc, NULL, &err);
 *     ...
 *     status = qplan_op_run(op, NULL, workspace, qplan_op_workspace_size(op), &args, &err);
 *
 * Operators, their fields and their arguments are rows of a table: qplan_op_at walks it, and
 * `qplan op describe NAME` prints one.
 */

/*
 * A tensor. In a descriptor only name, dtype, rank and shape count; in the arguments of a run all
 * members do, so one array can serve both. Codes of fewer than 8 bits are U8, packed: the last
 * extent is that of the bytes.
 */
struct qplan_tensor {
    const char *name;         /* of the argument */
    enum qplan_storage dtype; /* as in a safetensors header */
    unsigned rank;            /* at most QPLAN_MAX_RANK */
    const int64_t *shape;     /* rank extents; NULL for rank 0 */
    const int64_t *stride;    /* in elements, 0 = broadcast (inputs only); NULL = contiguous */
    void *data;               /* the first element; inputs are only read */
    uint64_t n_bytes;         /* from data on */
};

/* The value of a field: .text as in a shell, or else .number (int, bool) or .real. */
struct qplan_op_field {
    const char *name;
    const char *text; /* "-1", "true", "int4", "saturate", "none"; NULL: one of the next two */
    int64_t number;
    double real;
};

/*
 * A problem: which operator, its fields, and the dtype and shape of its inputs. Outputs may be
 * listed and are checked then; qplan_op_output says what they are in any case. Fields that are not
 * listed have their defaults.
 */
struct qplan_op_desc {
    const char *op;
    const struct qplan_op_field *fields;
    size_t n_fields;
    const struct qplan_tensor *tensors;
    size_t n_tensors;
};

/*
 * What a selection must respect. NULL is accepted for the defaults, which the macro gives: the CPU.
 *
 * device: where to compute, NULL = where backend says. One that was named does the work or is
 * refused with DEVICE; "auto" is the CPU unless a device can do this problem and copying pays. It
 * must stay open until the op is freed; selecting is a job of it, runs may be at the same time.
 * Operators that only make a few parameters (params_from_statistics) run on the host in any case.
 *
 * backend: ANY or that of the device; CPU takes no device whatever it is; CUDA and OPENCL without a
 * device open the first of that backend, for this op alone.
 */
struct qplan_op_preference {
    uint64_t max_workspace_bytes;
    enum qplan_backend backend;
    enum qplan_isa isa; /* upper limit of the instruction set; QPLAN_ISA_BEST = none */
    bool deterministic; /* the same bits in every run */
    unsigned threads;   /* 0 = as many as the machine lends; at most 1024 */
    struct qplan_device *device;
};
#define QPLAN_OP_PREFERENCE_DEFAULT                                                                \
    {                                                                                              \
        UINT64_MAX, QPLAN_BACKEND_ANY, QPLAN_ISA_BEST, true, 0, NULL                               \
    }

/* What the kernel that was picked promises. */
struct qplan_op_guarantee {
    const char *math_precision; /* "f32", "f64", or "copy": no arithmetic */
    const char *accumulator;    /* "none", "f64", or "f64x2": f64 with the rounding errors kept */
    bool deterministic;         /* the same bits in every run */
    bool bit_stable;            /* ... on every machine, instruction set and device */
    bool thread_invariant;      /* ... for every number of threads */
    bool correctly_rounded;     /* each result is the formula's exact value, rounded once */
};

/* Which kernel it is. Two problems with equal SKUs run the same code. */
struct qplan_op_sku {
    const char *category; /* "quantize", "embedding", ... */
    const char *op;
    char dtypes[96]; /* of the arguments, inputs > outputs: "F32,F32>I8" */
    char arch[64];   /* instruction set ("avx2"), or the name of the device */
    enum qplan_backend backend;
    struct qplan_op_guarantee guarantee;
};

/* The SKU in one line, cut to fit and NUL-terminated. Returns the full length, as snprintf does. */
size_t qplan_op_sku_print(const struct qplan_op_sku *sku, char *out, size_t n_bytes);

/* Equal for equal SKUs, on every machine. */
uint64_t qplan_op_sku_hash(const struct qplan_op_sku *sku);

/* A guarantee in one line: "f32, deterministic, bit-stable, thread-invariant". */
size_t qplan_op_guarantee_print(const struct qplan_op_guarantee *guarantee, char *out,
                                size_t n_bytes);

/* What a run met that is no error. */
struct qplan_op_counts {
    uint64_t nonfinite; /* NaN and infinite elements that were saturated */
    uint64_t skipped;   /* indices out of range */
    uint64_t overflow;  /* finite results too large for their dtype, stored as infinity */
};

/*
 * The buffers of a run: every input of the descriptor and every output. A tensor whose data is NULL
 * and that the problem does not have is not looked at.
 */
struct qplan_op_args {
    const struct qplan_tensor *tensors;
    size_t n_tensors;
    struct qplan_op_counts *counts; /* may be NULL; set on success */
};

struct qplan_op;
struct qplan_stream; /* none yet: every run has a queue of its own */

/*
 * Checks a problem and picks the kernel for it; nothing that is known without the buffers fails
 * later. USAGE for an unknown operator, field or name, INVALID for values, dtypes and shapes that
 * do not fit, UNSUPPORTED when no kernel meets the preference, DEVICE when the backend is to blame,
 * MEMORY. The op is immutable, keeps no pointer of the caller's but that of the device, and may be
 * shared by threads.
 */
enum qplan_status qplan_op_select(struct qplan_op **out, const struct qplan_op_desc *desc,
                                  const struct qplan_op_preference *preference,
                                  struct qplan_error *err);
void qplan_op_free(struct qplan_op *op);

/* Bytes that a run needs; 0 if none. Any address will do. */
uint64_t qplan_op_workspace_size(const struct qplan_op *op);
const struct qplan_op_sku *qplan_op_sku(const struct qplan_op *op);
const struct qplan_op_guarantee *qplan_op_precision_guarantee(const struct qplan_op *op);

/*
 * The i-th output of this problem: name, dtype, rank and shape, which the op owns. False behind the
 * last one, and *out is left alone.
 */
bool qplan_op_output(const struct qplan_op *op, size_t i, struct qplan_tensor *out);

/*
 * Checks buffers against the problem, without looking at data: INVALID (missing, other dtype or
 * shape, negative stride, an output that overlaps itself or another argument), BUFFER, MISALIGNED.
 */
enum qplan_status qplan_op_can_implement(const struct qplan_op *op,
                                         const struct qplan_op_args *args, struct qplan_error *err);

/*
 * Checks buffers as qplan_op_can_implement does, then all values (VALUE with the argument and the
 * place), then the work. Nothing is written unless everything is in order. Tensors are in the
 * memory of the host; on a device they are copied to it, and the outputs are written when all of
 * them have come back. stream is NULL. WORKSPACE if n_bytes is too small, DEVICE or MEMORY if the
 * device fails. Returns when the work is done.
 */
enum qplan_status qplan_op_run(const struct qplan_op *op, struct qplan_stream *stream,
                               void *workspace, uint64_t n_bytes, const struct qplan_op_args *args,
                               struct qplan_error *err);

/* ---- The table of operators --------------------------------------------------------------------
 */

enum qplan_field_type { QPLAN_FIELD_INT, QPLAN_FIELD_BOOL, QPLAN_FIELD_REAL, QPLAN_FIELD_NAME };

struct qplan_op_field_info {
    const char *name;
    enum qplan_field_type type;
    const char *fallback; /* NULL = required; "(...)" says what it follows from */
    int64_t least, most;  /* int: the range */
    const char *names;    /* name: a|b|c; int: "none" if that is a value, else NULL */
    const char *about;
};

enum qplan_op_direction {
    QPLAN_OP_IN,
    QPLAN_OP_OUT,
    QPLAN_OP_UPDATE /* an output that is read too where the field accumulate is true */
};

struct qplan_op_argument_info {
    const char *name;
    enum qplan_op_direction direction;
    bool optional;      /* may be left out; of an output: some problems have none */
    bool in_place;      /* an output of the same dtype and layout may be this very tensor */
    const char *dtypes; /* "F32|F64|F16|BF16" */
    const char *shape;  /* for people: "[V,D]" */
};

/* One operator, in words. */
struct qplan_op_info {
    const char *name, *category;
    const char *summary, *formula;
    const char *oracle; /* what it is compared with, and how far that agrees */
    const struct qplan_op_field_info *fields;
    size_t n_fields;
    const struct qplan_op_argument_info *arguments;
    size_t n_arguments;
};

/* The i-th operator, or NULL behind the last one; and the one of that name, or NULL. */
const struct qplan_op_info *qplan_op_at(size_t i);
const struct qplan_op_info *qplan_op_find(const char *name);

/*
 * The i-th kernel of an operator: its SKU, with the dtype of the data alone, and whether this
 * machine picks it under a limit where no device is asked for. A kernel for devices has the backend
 * ANY and the arch "device". False behind the last one.
 */
bool qplan_op_kernel(const struct qplan_op_info *info, size_t i, enum qplan_isa limit,
                     struct qplan_op_sku *sku, bool *picked);

/* The table as JSON (qplan-ops/1, one line) or for people; and all about one operator. */
enum qplan_status qplan_op_list_write_json(enum qplan_isa limit, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err);
enum qplan_status qplan_op_list_write_text(enum qplan_isa limit, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err);
enum qplan_status qplan_op_describe_write(const struct qplan_op_info *info, enum qplan_isa limit,
                                          qplan_write_fn write, void *ctx, struct qplan_error *err);

/* ---- Operators on files ------------------------------------------------------------------------
 */

/*
 * The inputs are the tensors of in_path, by name; those that begin with "expect." are not looked
 * at. out_path gets the outputs and exists afterwards complete or not at all.
 */
struct qplan_op_file {
    const char *op;
    const struct qplan_op_field *fields;
    size_t n_fields;
    const char *in_path, *out_path;
    bool force; /* replace an existing output */
    const struct qplan_op_preference *preference;
    /* When it becomes non-zero, nothing more is read or written: CANCELLED. NULL = never. */
    const volatile sig_atomic_t *cancel;
};

struct qplan_op_result {
    struct qplan_op_sku sku;
    struct qplan_op_counts counts;
};

enum qplan_status qplan_op_run_file(struct qplan_op_result *result,
                                    const struct qplan_op_file *file, struct qplan_error *err);

/* The result as JSON (qplan-op/1), one line. */
enum qplan_status qplan_op_result_write_json(const struct qplan_op_result *result,
                                             qplan_write_fn write, void *ctx,
                                             struct qplan_error *err);

#ifdef __cplusplus
}
#endif

#endif
