/*
 * native.h - the native layout of a quantized checkpoint: man/qplan-native.5 describes it.
 *
 * A quantized tensor NAME is three tensors: the codes under NAME itself, NAME_scale and
 * NAME_zero_point. The metadata records for each how it was made.
 */
#ifndef QP_NATIVE_H
#define QP_NATIVE_H

#include "formats/safetensors/safetensors.h"
#include "lib/model/sets.h"

#define QP_NATIVE_LAYOUT_KEY   "qplan.layout"
#define QP_NATIVE_NUMERICS_KEY "qplan.numerics"
#define QP_NATIVE_TENSORS_KEY  "qplan.tensors"
#define QP_NATIVE_LAYOUT       "1"
#define QP_NATIVE_NUMERICS     "1"

/* The output tensors of a quantized one, in this order. */
enum qp_native_part { QP_CODES, QP_SCALE, QP_ZERO_POINT, QP_NATIVE_PARTS };

/* A quantized tensor as found in a file. */
struct qp_native_tensor {
    const struct qplan_entry *part[QP_NATIVE_PARTS]; /* no zero points: NULL, all are the default */
    struct qplan_scheme scheme;
    const char *calibrate;
    enum qplan_storage source;
    const uint64_t *shape; /* of the source */
    uint32_t rank;
};

/* How many entries a quantized tensor has: 2 or 3. */
unsigned qp_native_count(const struct qplan_scheme *scheme, enum qplan_zero_point zero_point);

/*
 * The entries of a quantized tensor, without offsets; names and shapes are those of the source or
 * labels. The scheme is resolved. Returns their number, or 0 when out of memory.
 */
unsigned qp_native_outputs(const struct qplan_entry *source, const struct qplan_scheme *scheme,
                           enum qplan_zero_point zero_point, struct qp_labels *labels,
                           struct qplan_entry out[QP_NATIVE_PARTS]);

/* Appends the name of a part. */
void qp_native_put_name(struct qp_writer *w, const struct qplan_entry *source,
                        enum qp_native_part part);
size_t qp_native_name_bytes(const struct qplan_entry *source, enum qp_native_part part);

/* Whether a name ends as those of sidecars do. */
bool qp_native_is_sidecar_name(const char *name, size_t n);

/* The extent of the last axis of codes: rows of 4-bit codes end on a byte. */
uint64_t qp_code_extent(const struct qplan_scheme *scheme, uint64_t last_extent);

/* Whether a metadata key of the source is left out of every output. */
bool qp_native_owns_key(const char *key);

/* Appends "SCHEME CALIBRATOR SOURCEDTYPE D0xD1", the record of one tensor of rank 1 or more. */
void qp_native_put_record(struct qp_writer *w, const struct qplan_entry *source, const char *scheme,
                          const char *calibrate);

/* Whether a file says that it has this layout. */
bool qp_native_is(const struct qp_st *st);

/*
 * Finds the quantized tensors of a native file, in name order, and proves that names, types and
 * shapes are what the records say. The array is released with qp_free, what it points to is of the
 * file or among the labels.
 */
enum qplan_status qp_native_read(const struct qp_st *st, struct qp_labels *labels,
                                 struct qp_native_tensor **tensors, size_t *n,
                                 struct qplan_error *err);

/* Finds a tensor whose name says that some tool quantized this file before; NULL if there is none.
 */
enum qplan_status qp_find_quantized(const struct qp_st *st, const struct qplan_entry **found,
                                    struct qplan_error *err);

#endif
