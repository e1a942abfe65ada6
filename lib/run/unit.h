/*
 * unit.h - what the two halves of running a plan share: units.c hands out units, unit.c and its
 * neighbours do one.
 */
#ifndef QP_RUN_UNIT_H
#define QP_RUN_UNIT_H

#include "cut.h"
#include "job.h"
#include "lib/device/recheck.h"
#include "lib/plan/plan.h"
#include "lib/store/hold.h"
#include "source_values.h"
#include "units.h"

enum qp_unit_kind {
    QP_UNIT_BATCH, /* small tensors that follow each other: one read for many */
    QP_UNIT_COPY,
    QP_UNIT_WHOLE, /* strips that follow each other, each in one piece */
    QP_UNIT_PIECE  /* a piece of a strip that does not fit a tile, in one of its passes */
};

/* The parameters of a strip that is read in pieces, shared by its units. */
struct qp_slot {
    void *state, *known; /* of the calibrator */
    void *scale;
    int32_t *zero;
    unsigned passes_done;
    uint64_t n_merged;    /* pieces of the pass that is under way, in their order */
    uint64_t pieces_left; /* of its last pass */
};

struct qp_unit {
    uint64_t number;
    enum qp_unit_kind kind;
    const struct qp_plan_tensor *tensor;
    struct qp_limits limits; /* that its strips were cut by */
    struct qp_strip strip;   /* whole: the first of n_strips */
    uint64_t n_strips;
    uint64_t piece; /* of the strip */
    unsigned pass;  /* of the calibrator; behind its last, that of the codes */
    uint64_t off;   /* copy: the first byte of the tensor */
    uint64_t n;     /* copy, whole: bytes of the source; batch: that are read at once */
    const struct qp_plan_tensor *const *batch; /* in file order */
    size_t n_batch;
    struct qp_slot *slot; /* of a strip in pieces */
    uint64_t held_row,
        held_rows; /* whole: rows whose turned parts are held until its end, if any */
};

/*
 * Writes that follow each other in a file, joined: tensors of a batch do, by the order of both
 * files, and parameters of neighbouring strips.
 */
struct qp_joined {
    char *data;
    size_t cap, n;
    unsigned file;
    uint64_t at; /* of data[0] in the file */
};

enum qp_joined_kind { QP_JOIN_SCALES, QP_JOIN_ZEROS, QP_JOIN_CODES, QP_JOIN_KEPT, QP_JOINS };

/* The buffers of one worker. */
struct qp_unit_buffers {
    void *tile;
    uint8_t *codes;
    void *image;   /* codes or parameters as they are stored */
    void *hold;    /* turned parts of many rows, as they are stored */
    size_t n_sets; /* that there is room for */
    void *state, *known, *scale;
    int32_t *zero;
    void *stored; /* scales or zero points, each in the type that is stored */
    struct qp_joined joined[QP_JOINS];
    struct qp_value_room values; /* where tensors are decoded while they are read */
    struct qp_lane *lane;        /* of the device, or NULL: the CPU does it */
    void *made;                  /* what comes back from it */
    void *decoded;               /* values of codes, where errors are measured */
    struct qp_exact *error;      /* of the unit, likewise */
};

/* Where a unit reads and writes. */
struct qp_unit_context {
    struct qp_job *job;
    const struct qplan_plan *plan;
    const struct qp_outs *outs;
    struct qplan_device *device; /* NULL = the CPU */
    enum qp_roles roles;
    const float *factors;    /* by tensor of the plan, where it has one; NULL = none has */
    const float *offsets;    /* likewise, where scales have scales */
    struct qp_exact *errors; /* by tensor of the plan; NULL = they are not measured */
    qp_sets_fn take;         /* of QP_SETS: who gets them */
    void *take_ctx;
};

/* Whether anything is written. */
static inline bool qp_writes(const struct qp_unit_context *context)
{
    return context->outs != NULL;
}

/* Errors are summed in runs of the last axis that begin with a multiple of this. */
#define QP_ERROR_RUN 256

/* What cuts inside the last axis of a tensor are a multiple of: whole words, or runs of errors. */
static inline uint64_t qp_unit_grain(const struct qp_unit_context *context,
                                     const struct qp_plan_tensor *t)
{
    uint64_t rows, grain = QP_ERROR_RUN;
    if (qp_writes(context))
        qp_place_grain(qp_tensor_part(&t->result, QP_CODES)->place, &rows, &grain);
    return grain;
}

/* The bytes of a tensor in the source. */
static inline const struct qplan_entry *qp_source_entry(const struct qp_plan_tensor *t)
{
    return t->source->entry;
}

/* Bytes of an element of the source. */
static inline size_t qp_source_elem_bytes(const struct qp_plan_tensor *t)
{
    return qplan_storage_bits((enum qplan_storage)t->source->storage) / 8;
}

/*
 * Whether units make codes of a tensor. Those that are rounded by a Hessian are made when all
 * parameters are stored (ldlq_tensors.h); what is measured of such a tensor are the nearest ones.
 */
static inline bool qp_has_codes(const struct qp_plan_tensor *t, enum qp_roles roles)
{
    return roles == QP_ERRORS || (roles == QP_ALL_ROLES && !t->calibrator->rounds);
}

/* How often a strip that is read in pieces is read: for each pass of the calibrator, and for codes.
 */
static inline unsigned qp_passes(const struct qp_plan_tensor *t, enum qp_roles roles)
{
    return qp_calibrator_passes(t->calibrator, qp_source_elem_bytes(t)) + qp_has_codes(t, roles);
}

/* Does one unit. */
enum qplan_status qp_unit_run(const struct qp_unit_context *context, const struct qp_unit *unit,
                              struct qp_unit_buffers *buffers, struct qplan_error *err);

/* For progress: the source bytes of a unit; a byte that is read in n passes counts 1/n each time.
 */
uint64_t qp_unit_bytes(const struct qp_unit *unit, enum qp_roles roles);

/* How the elements of a tensor of the source are read. */
static inline struct qp_values qp_source_values(const struct qp_unit_context *context,
                                                const struct qp_plan_tensor *t,
                                                const struct qp_unit_buffers *b)
{
    return (struct qp_values){&context->plan->checkpoint->source, t->source, context->job->run->isa,
                              &b->values};
}

/*
 * Describes the first value of a tensor that is not finite and how many there are: VALUE. The
 * buffer has room for n_buffer bytes.
 */
enum qplan_status qp_fail_nonfinite(const struct qp_values *values, void *buffer, size_t n_buffer,
                                    struct qplan_error *err);

#endif
