/*
 * measure.h - the one engine that compares a file with its source: measured errors, and the proof
 * that every element is within its bound. Streams both; every sum has a fixed order.
 */
#ifndef QP_MEASURE_H
#define QP_MEASURE_H

#include "kernels/tiles/wide.h"
#include "lib/store/checkpoint.h"

/* What the stored parameters alone say of a quantized tensor. */
struct qp_param_facts {
    double scale_min, scale_max;
    uint64_t negative;       /* scales below 0 */
    double half_step, bound; /* over the sets that do not decode to 0 alone; < 0 = there are none */
};

/* Stored bytes that are not those that the source and the record give. */
struct qp_wrong {
    uint64_t n_bytes;                /* 0 = there are none that are known */
    const struct qplan_entry *entry; /* the stored tensor with the first of them */
    uint64_t elem;                   /* the element of it */
    char computed[8];                /* what it should be */
};

/* Sets whose parameters cannot be computed again, and are not near what the source needs. */
struct qp_far {
    uint64_t n_sets;           /* 0 = there are none that are known */
    uint64_t set;              /* the first of them */
    bool is_scale;             /* its scale has not the size that it should have, else: */
    double found, least, most; /* that size, and its limits; or what codes reach */
    double lo, hi;             /* the values of the source, and 0 */
};

/* What the comparison found. */
struct qp_measure {
    struct qp_wide_sums sums;         /* over finite elements */
    struct qp_weighted_sums weighted; /* likewise, if it is known what columns count: */
    double weight_unit;               /* what a weight of 1 stands for; 0 = that is not known */
    double max_abs;                   /* < 0 = no finite element */
    uint64_t max_at;
    uint64_t clipped, nonfinite;
    double max_clip;
    uint64_t offences;  /* elements outside the proof; kept tensors: differing bytes */
    uint64_t first;     /* the first of them: element, or byte of a kept tensor */
    double x, y, bound; /* there: source value, decoded value, what was allowed */
    uint64_t bad_fill;  /* lines of codes whose filling bits are not 0 */
    uint64_t sets_same; /* sets whose parameters, computed in passing, are the stored ones */
    bool factor_same;   /* the factor is what values that were seen in passing give */
    double most;        /* the largest size of a value in sets that were computed in passing */
    struct qp_wrong wrong;
    struct qp_far far;
};

/* What errors in the columns of a tensor count. */
struct qp_weights {
    struct qp_column_weights columns;
    double unit; /* what 1 stands for, by which tensors compare */
};

/* A tensor of the file and the source tensor that it must stand for. */
struct qp_pair {
    const struct qp_tensor *file, *source;
    const struct qp_weights *weights; /* NULL = they are not known */
    struct qp_measure result;
    bool computed; /* its bytes were computed again, by what it was made with */
};

/* What reading facts of many tensors shares: buffers, and scales that were read ahead. */
struct qp_facts_reader;
enum qplan_status qp_facts_open(struct qp_facts_reader **out, const struct qplan_checkpoint *file,
                                struct qplan_error *err);
void qp_facts_close(struct qp_facts_reader *reader);

/* Reads scales; INVALID for one that no quantizer writes. */
enum qplan_status qp_facts_read(struct qp_facts_reader *reader, const struct qp_tensor *tensor,
                                struct qp_param_facts *facts, struct qplan_error *err);

/* Reads zero points, which are no part of the facts, where nothing else does: INVALID likewise. */
enum qplan_status qp_facts_check_zeros(struct qp_facts_reader *reader,
                                       const struct qp_tensor *tensor, struct qplan_error *err);

/*
 * Fills the result of every pair, with .sets_same if recompute. Types and shapes have been found to
 * agree.
 */
enum qplan_status qp_measure_pairs(struct qp_pair *pairs, size_t n, const struct qp_source *file,
                                   const struct qp_source *source, bool recompute,
                                   const struct qplan_run *run, struct qplan_error *err);

#endif
