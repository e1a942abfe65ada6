/*
 * record.h - what the metadata of every file that qplan writes say of its quantized tensors,
 * whatever the layout: the keys, and one record for each tensor.
 */
#ifndef QP_RECORD_H
#define QP_RECORD_H

#include "format.h"

#define QP_LAYOUT_KEY   "qplan.layout"
#define QP_NUMERICS_KEY "qplan.numerics"
#define QP_TENSORS_KEY  "qplan.tensors"
#define QP_NUMERICS     "1"
#define QP_FORMAT       "pt"

/* Whether a key is ours: all that begin with "qplan." are. */
bool qp_owns_key(const struct qp_st_pair *pair);

/* Whether a pair of a source goes into what is made of it: neither ours, nor what another tool says
 * of how its tensors are stored. */
bool qp_is_handed_on(const struct qp_st_pair *pair);

/* Whether a pair is "format", which is "pt" in every output, whatever the source has. */
bool qp_is_format(const struct qp_st_pair *pair);

/*
 * Whether a tensor needs layout "2": its codes are no integers of 4 or 8 bits, or minmax did not
 * choose its parameters. A file has layout "2" if a tensor of it, or of another shard, needs that,
 * else "1".
 */
bool qp_needs_layout_2(const struct qp_tensor *tensor);

/* The keys and values of an output, in no order: QP_OWN_PAIRS of them. records is its
 * qplan.tensors. */
#define QP_OWN_PAIRS 4
void qp_own_pairs(bool is_layout_2, const char *records, size_t n_records,
                  struct qp_st_pair out[QP_OWN_PAIRS]);

/* Appends the value of qplan.tensors: a JSON object with the record of each tensor, in this order.
 */
void qp_put_records(struct qp_writer *w, const struct qp_tensor *const *tensors, size_t n);

/* Whether any file of a checkpoint has records, or the layout that goes with them; and whether one
 * has any key of ours, as a plain source may have from before. */
bool qp_has_records(const struct qp_listing *listing);
bool qp_has_own_keys(const struct qp_listing *listing);

/*
 * Reads the records of one file: name, shape, storage, scheme and calibrator of each tensor, in the
 * order of the text. All that they point to is in the arena; the tensors have no parts. The array
 * is released with qp_free.
 */
enum qplan_status qp_read_records(const struct qp_st *st, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err);

/*
 * Whether the layouts that the files of a checkpoint name are right: no tensor in a file of layout
 * "1" needs the other, and all files name the same. A file of layout "2" may have no tensor that
 * needs it, for it may be a shard of which the others are not at hand. Files that name none, as
 * those of other tools, are not looked at.
 */
enum qplan_status qp_check_layouts(const struct qp_listing *listing,
                                   const struct qp_tensor *tensors, size_t n,
                                   struct qplan_error *err);

#endif
