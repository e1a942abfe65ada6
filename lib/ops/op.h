/*
 * op.h - operators, seen from inside the library: what a row is, and what rows are made with.
 *
 * The life cycle (op.c) is the same for all: fields are read by their table (op_fields.c), tensors
 * checked by theirs (op_args.c), a kernel picked (op_pick.c). A row adds what only the operator
 * knows: .check decides whether the problem makes sense and what its outputs are; a kernel says how
 * much workspace it wants, looks at the values, and does the work. Rows never see a tensor whose
 * dtype, rank, buffer or alignment is wrong, nor one that overlaps an output.
 */
#ifndef QP_OP_H
#define QP_OP_H

#include "lib/base/error.h"
#include "op_view.h"

#define QP_OP_MAX_FIELDS    12
#define QP_OP_MAX_ARGUMENTS 8

/* Elements that a tensor may have: room for 16 bytes each below 2^63. */
#define QP_OP_MAX_ELEMS (UINT64_C(1) << 58)

struct qp_op_value {
    bool given; /* by the caller */
    bool none;  /* the word none, or nothing given where the default follows from other things */
    int64_t number; /* int; bool 0 or 1; the place of a name in its list */
    double real;
};

/* What a problem says of an argument. */
struct qp_op_tensor {
    bool given;         /* in the descriptor */
    bool read, written; /* by this problem; neither: it does not have it */
    enum qplan_storage dtype;
    unsigned rank;
    uint64_t shape[QPLAN_MAX_RANK];
    int64_t public_shape[QPLAN_MAX_RANK]; /* the same numbers, for qplan_op_output */
    uint64_t n_elems;
};

/*
 * A problem in a block of device memory: where its arguments begin, each contiguous. What comes
 * back, the status and the outputs, lies at the begin.
 */
struct qp_op_block {
    uint32_t status; /* QK_OP_STATUS words: counts */
    uint32_t at[QP_OP_MAX_ARGUMENTS];
    uint32_t scratch;    /* of the kernel */
    uint64_t made_bytes; /* of status and outputs */
    uint64_t n_bytes;    /* of all of it */
};

struct qplan_op {
    const struct qp_op_row *row;
    const struct qp_op_kernel *kernel;
    struct qp_op_value values[QP_OP_MAX_FIELDS];
    struct qp_op_tensor tensors[QP_OP_MAX_ARGUMENTS];
    enum qplan_dtype work;  /* working precision, f32 or f64; set by .check */
    enum qplan_storage key; /* the dtype that kernels are picked by; .check may change it */
    bool correctly_rounded; /* .check knows that this problem is */
    enum qplan_isa isa;     /* of the kernel, or of what the host does for a device */
    unsigned n_workers;     /* at most */
    uint64_t max_workspace; /* that the preference allows */
    uint64_t workspace;
    struct qplan_op_sku sku;
    struct qplan_device *device;  /* that the kernel runs on; NULL = the CPU */
    struct qplan_device *own;     /* opened for this op alone, or NULL */
    struct qplan_device *checked; /* whose work this op, of the CPU, looks at again; or NULL */
    struct qp_op_block block;     /* with a device */
    void *state;                  /* of the row, row->state_bytes, filled by .check */
};

/* A run: the op, its tensors in memory, and what it counts. */
struct qp_op_call {
    const struct qplan_op *op;
    struct qp_view views[QP_OP_MAX_ARGUMENTS]; /* of the arguments that the problem has */
    char *workspace;                           /* aligned to 64 */
    struct qplan_op_counts counts;
};

/* What a kernel does to numbers: the guarantee follows from it. */
enum qp_op_class {
    QP_OP_ELEMENTWISE,
    QP_OP_SUM,
    QP_OP_COPY,
    QP_OP_WIDE,    /* every step in f64, whatever the data */
    QP_OP_TAPS,    /* weights in working precision, few products summed in f64 */
    QP_OP_TAP_SUM, /* weights in working precision, sums as those of QP_OP_SUM */
};

struct qp_op_run; /* a run on a device: op_device.h */

struct qp_op_kernel {
    enum qplan_backend backend; /* ANY: of a kernel for devices, which has .launch and no .run */
    enum qplan_isa isa;
    uint32_t keys; /* QP_BIT of every storage type that it takes as op->key */
    enum qp_op_class class;
    bool unordered; /* bits depend on the order of threads: only where determinism is not asked */
    bool host_math; /* bits depend on functions of the host's library, such as log */

    /* The problems that it takes, of those with its keys; NULL = all. */
    bool (*takes)(const struct qplan_op *op);

    /* Bytes of workspace for op->n_workers; NULL = none. A multiple of 64. */
    uint64_t (*workspace)(const struct qplan_op *op);

    /* Refuses bad values, before anything is written. NULL if no value can be wrong. */
    enum qplan_status (*validate)(struct qp_op_call *call, struct qplan_error *err);

    /* The work. It cannot fail. Not called when every output is empty. */
    void (*run)(struct qp_op_call *call);

    /*
     * The work on a device: bytes of device memory besides the arguments, NULL = none; queues the
     * launches; and, NULL = nothing, what is to be said of the status that came back, before any
     * output is written. The counts of the status are added by then.
     */
    uint64_t (*scratch)(const struct qplan_op *op);
    enum qplan_status (*launch)(struct qp_op_run *run, struct qplan_error *err);
    enum qplan_status (*finish)(struct qp_op_run *run, struct qplan_error *err);
};

static inline bool qp_op_is_for_devices(const struct qp_op_kernel *kernel)
{
    return kernel->launch != NULL;
}

#define QP_BIT(storage) (UINT32_C(1) << (storage))
#define QP_FP_BITS                                                                                 \
    (QP_BIT(QPLAN_STORAGE_F64) | QP_BIT(QPLAN_STORAGE_F32) | QP_BIT(QPLAN_STORAGE_F16) |           \
     QP_BIT(QPLAN_STORAGE_BF16))
#define QP_FP "F32|F64|F16|BF16"

struct qp_op_row {
    struct qplan_op_info info;
    int variant; /* for rows that share their functions, such as the granularities */
    const struct qp_op_kernel *kernels; /* best first; those for devices behind those of the CPU */
    size_t n_kernels;
    size_t state_bytes;
    bool on_host; /* whatever device is asked for: there is too little to do */

    /* Problems that a device must solve as the CPU does before use, in words (op_example.c). */
    const char *const *examples;
    size_t n_examples;

    /*
     * Fields and inputs are read, inputs have a dtype of their table. Checks what concerns more
     * than one of them and calls qp_op_make_output for each output.
     */
    enum qplan_status (*check)(struct qplan_op *op, struct qplan_error *err);
};

/* For the initializers of rows and kernels. */
#define QP_COUNT(array)           (sizeof(array) / sizeof((array)[0]))
#define QP_OP_LIST(member, array) .member = (array), .n_##member = QP_COUNT(array)

/* Of operators that have a tensor of direction UPDATE. */
#define QP_FIELD_ACCUMULATE                                                                        \
    {                                                                                              \
        .name = "accumulate", .type = QPLAN_FIELD_BOOL, .fallback = "false",                       \
        .about = "add to what the output has, as the last term, instead of overwriting it"         \
    }

/* ---- The table --------------------------------------------------------------------------------
 */

/* The row of a name, or USAGE; and the row that a public description belongs to. */
enum qplan_status qp_op_find_row(const char *name, const struct qp_op_row **out,
                                 struct qplan_error *err);
const struct qp_op_row *qp_op_row_of(const struct qplan_op_info *info);

/* ---- Fields and tensors of a problem ----------------------------------------------------------
 */

/* The value of a field, by name. A name that the row lacks is a bug and gives an empty value. */
const struct qp_op_value *qp_op_value(const struct qplan_op *op, const char *field);
int64_t qp_op_number(const struct qplan_op *op, const char *field);

/* Whether the word at the value's place in the field's list is this one. */
bool qp_op_is(const struct qplan_op *op, const char *field, const char *word);

/* The dtype that a name field says. */
enum qplan_dtype qp_op_dtype(const struct qplan_op *op, const char *field);

/* The place of an argument in the table; the problem's tensor; NULL if it does not have it. */
size_t qp_op_place(const struct qplan_op *op, const char *argument);
const struct qp_op_tensor *qp_op_tensor(const struct qplan_op *op, const char *argument);

/* The tensor of a call, or NULL if the problem does not have it. */
const struct qp_view *qp_op_view(const struct qp_op_call *call, const char *argument);

/*
 * An output of this problem. INVALID if the descriptor has it with another dtype or shape, or, for
 * an argument of direction UPDATE with the field accumulate set, if it lacks it.
 */
enum qplan_status qp_op_make_output(struct qplan_op *op, const char *argument,
                                    enum qplan_storage dtype, const uint64_t *shape, unsigned rank,
                                    struct qplan_error *err);

/* The float dtype of a storage type that is one. */
enum qplan_dtype qp_op_float(enum qplan_storage storage);

/* f64 for F64, else f32. */
enum qplan_dtype qp_op_working(enum qplan_storage storage);

/* ---- Refusals ---------------------------------------------------------------------------------
 * The subject is "operator: field" or "operator: 'argument'".
 */
enum qplan_status qp_op_fail_field(const struct qplan_op *op, enum qplan_status status,
                                   const char *field, struct qplan_error *err, const char *fmt, ...)
    QP_PRINTF(5, 6);
enum qplan_status qp_op_fail_tensor(const struct qplan_op *op, enum qplan_status status,
                                    const char *argument, struct qplan_error *err, const char *fmt,
                                    ...) QP_PRINTF(5, 6);

/* VALUE: "what: expected, found ... at [3,17], flat index 401". */
enum qplan_status qp_op_fail_value(const struct qplan_op *op, const char *argument, uint64_t elem,
                                   struct qplan_error *err, const char *fmt, ...) QP_PRINTF(5, 6);

/* INVALID unless the argument has this shape; what: where the shape comes from. */
enum qplan_status qp_op_check_shape(const struct qplan_op *op, const char *argument,
                                    const uint64_t *shape, unsigned rank, const char *what,
                                    struct qplan_error *err);

/* INVALID unless the argument has this rank. */
enum qplan_status qp_op_check_rank(const struct qplan_op *op, const char *argument, unsigned rank,
                                   struct qplan_error *err);

/* INVALID unless both arguments have one dtype. */
enum qplan_status qp_op_check_same_dtype(const struct qplan_op *op, const char *argument,
                                         const char *other, struct qplan_error *err);

/* ---- Work -------------------------------------------------------------------------------------
 */

/* Elements that a worker takes at a time; buffers of a chunk have room for as many. */
#define QP_OP_CHUNK 8192

/* One of the units 0 .. n - 1. worker < op->n_workers says whose buffers to use. */
typedef void (*qp_op_unit_fn)(void *ctx, unsigned worker, uint64_t unit);

/*
 * Does n units on the op's workers, in any order. A unit must not depend on another, so the number
 * of workers cannot change a result. Of the work of a device only some are done again, so nothing
 * behind the units may need what all of them made.
 */
void qp_op_units(const struct qplan_op *op, uint64_t n, qp_op_unit_fn work, void *ctx);

/* Elements of the u-th chunk of n, which begins at u * QP_OP_CHUNK; and how many chunks. */
static inline size_t qp_op_chunk(uint64_t n, uint64_t u)
{
    uint64_t left = n - u * QP_OP_CHUNK;
    return (size_t)(left < QP_OP_CHUNK ? left : QP_OP_CHUNK);
}
static inline uint64_t qp_op_chunks(uint64_t n)
{
    return n / QP_OP_CHUNK + (n % QP_OP_CHUNK != 0);
}

/* ---- For the life cycle -----------------------------------------------------------------------
 */

enum qplan_status qp_op_read_fields(struct qplan_op *op, const struct qplan_op_desc *desc,
                                    struct qplan_error *err);
enum qplan_status qp_op_read_tensors(struct qplan_op *op, const struct qplan_op_desc *desc,
                                     struct qplan_error *err);
/* Every output the check should have made, and inputs that no problem has, are settled here. */
enum qplan_status qp_op_bind(const struct qplan_op *op, const struct qplan_op_args *args,
                             struct qp_view *views, struct qplan_error *err);
enum qplan_status qp_op_pick(struct qplan_op *op, const struct qplan_op_preference *preference,
                             struct qplan_error *err);

/*
 * Sets op->device to the device of a preference, or to NULL for the CPU. The device can do the
 * problem and has proven it.
 */
enum qplan_status qp_op_take_device(struct qplan_op *op,
                                    const struct qplan_op_preference *preference,
                                    struct qplan_error *err);

/*
 * Workspace of a run on op->device, and of the second look at its results; and the run, after the
 * values were checked.
 */
uint64_t qp_op_staging_bytes(const struct qplan_op *op);
uint64_t qp_op_check_bytes(const struct qplan_op *op);
enum qplan_status qp_op_run_on_device(struct qp_op_call *call, struct qplan_error *err);

#endif
