/*
 * need.h - what a job needs of a device: the kinds of work in it, each once, and how many
 * bytes go there.
 */
#ifndef QP_DEVICE_NEED_H
#define QP_DEVICE_NEED_H

#include "lib/qplan.h"

enum qp_device_kind { QP_KIND_QUANTIZE, QP_KIND_DECODE, QP_KIND_MEASURE };

/* What a device is to be proven on: codes of a scheme from a dtype, and the way back. */
struct qp_device_row {
    enum qp_device_kind kind;
    enum qplan_dtype dtype; /* of the source */
    struct qplan_scheme scheme;
    enum qplan_dtype as; /* decoding: what is written */
};

/* A job of one kind has float types x (code types of integers, signed ones narrow too and unsigned
 * ones with a bias, x symmetries; those of floats and tables) x scales. */
#define QP_MOST_ROWS (4 * (14 * 2 + 7 * 2 + 7 * 2 + 4) * 5)

struct qp_device_need {
    uint32_t rows[QP_MOST_ROWS]; /* numbers: rows themselves would fill a small stack */
    size_t n_rows;
    bool has_more; /* rows than there is room for: no device takes the job */
    uint64_t n_bytes;
    bool measures;         /* which needs 64-bit floats, whatever the tensors are */
    const char *fp64_name; /* of a tensor that needs them, or NULL */
    size_t fp64_name_len;
};

/* Whether work of a row is possible only with 64-bit floats. */
bool qp_row_needs_fp64(const struct qp_device_row *row);

/* Two rows have the same number if a proof for one is a proof for the other; the row of a number
 * has all that a proof looks at. */
uint32_t qp_row_number(const struct qp_device_row *row);
struct qp_device_row qp_row_of(uint32_t number);

/* Adds a tensor: what is done with it, the bytes that go to the device, and its name. */
void qp_need_add(struct qp_device_need *need, const struct qp_device_row *row, uint64_t n_bytes,
                 const char *name, size_t name_len);

#endif
