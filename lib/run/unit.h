/*
 * unit.h - what the two halves of executing a plan share: execute.c hands out units,
 * execute_unit.c does one.
 */
#ifndef QP_EXECUTE_UNIT_H
#define QP_EXECUTE_UNIT_H

#include "lib/device/recheck.h"
#include "lib/job/cut.h"
#include "lib/job/job.h"
#include "lib/plan/plan.h"

enum qp_unit_kind {
    QP_UNIT_BATCH, /* small tensors that follow each other: one read for many */
    QP_UNIT_COPY,
    QP_UNIT_WHOLE,  /* strips that follow each other, each in one piece */
    QP_UNIT_RANGES, /* a piece of a strip that is read twice: the first time */
    QP_UNIT_CODES   /* ... the second time, when all its ranges are known */
};

/* The parameters of a strip that is read twice, shared by its units. */
struct qp_slot {
    void *lo, *hi, *scale;
    int32_t *zero;
    uint64_t ranges_left, codes_left; /* units that have not ended */
    bool ready;                       /* scale and zero are final */
};

struct qp_unit {
    uint64_t number;
    enum qp_unit_kind kind;
    const struct qp_plan_tensor *tensor;
    struct qp_limits limits; /* that its strips were cut by */
    struct qp_strip strip;   /* whole: the first of n_strips */
    uint64_t n_strips;
    uint64_t piece; /* of the strip */
    uint64_t off;   /* copy: the first byte of the tensor */
    uint64_t n;     /* copy, whole: bytes of the source; batch: that are read at once */
    const struct qp_plan_tensor *const *batch; /* in file order */
    size_t n_batch;
    struct qp_slot *slot; /* of a strip that is read twice */
};

/*
 * Writes that follow each other, joined: tensors of a batch do, by the order of both files, and
 * parameters of neighbouring strips.
 */
struct qp_joined {
    char *data;
    size_t cap, n;
    uint64_t off; /* of data[0] in the output */
};

enum qp_joined_kind { QP_JOIN_SCALES, QP_JOIN_ZEROS, QP_JOIN_CODES, QP_JOIN_KEPT, QP_JOINS };

/* The buffers of one worker. */
struct qp_unit_buffers {
    void *tile;
    uint8_t *codes;
    void *lo, *hi, *scale;
    int32_t *zero;
    void *stored; /* scales or zero points as they are written */
    struct qp_joined joined[QP_JOINS];
    struct qp_lane *lane; /* of the device, or NULL: the CPU does it */
    void *made;           /* what comes back from it */
};

/* Where a unit reads and writes. */
struct qp_unit_context {
    struct qp_job *job;
    const struct qplan_plan *plan;
    const struct qp_out *out;
    struct qplan_device *device; /* NULL = the CPU */
};

/* Does one unit. */
enum qplan_status qp_unit_run(const struct qp_unit_context *context, const struct qp_unit *unit,
                              struct qp_unit_buffers *buffers, struct qplan_error *err);

/* For progress: the source bytes of a unit; a byte that is read twice counts half each time. */
uint64_t qp_unit_bytes(const struct qp_unit *unit);

#endif
