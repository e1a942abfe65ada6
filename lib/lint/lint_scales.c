/*
 * lint_scales.c - rules on the values of parameters and codes. All scales are read once, a few at a
 * time, and of codes those that may be no numbers.
 */
#include "lint.h"

#include "formats/blocks.h"
#include "kernels/codes/valued.h"
#include "kernels/kernel.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/sets.h"
#include "lib/run/stored.h"
#include "lib/store/parts.h"

#include <inttypes.h>
#include <math.h>

#define SETS  8192u /* at a time */
#define BLOCK 16u   /* codes of nvfp4 that share a scale */

enum fault { NOT_FINITE, ZERO, NEGATIVE, NO_POWER, BAD_BIAS, N_FAULTS };

/* Sets of a tensor whose scale, or bias, has a fault: how many, and which is the first. */
struct qp_scale_faults {
    uint64_t n[N_FAULTS], first[N_FAULTS];
};

struct buffers {
    char *room;
    double *values;
    char *codes; /* room for those of as many blocks */
};

static void count(struct qp_scale_faults *faults, enum fault fault, uint64_t set)
{
    if (faults->n[fault]++ == 0)
        faults->first[fault] = set;
}

static void look(struct qp_scale_faults *faults, const double *scale, size_t n, uint64_t set,
                 bool of_powers)
{
    int exponent;
    for (size_t i = 0; i < n; i++) {
        const bool is_scale = isfinite(scale[i]) && scale[i] > 0;
        if (is_scale && (!of_powers || frexp(scale[i], &exponent) == 0.5))
            continue;
        const enum fault fault = is_scale              ? NO_POWER
                                 : !isfinite(scale[i]) ? NOT_FINITE
                                 : scale[i] < 0        ? NEGATIVE
                                                       : ZERO;
        count(faults, fault, set + i);
    }
}

static bool are_zeros(const struct qp_code_rule *rule, const uint8_t *codes)
{
    bool found = true;
    for (size_t i = 0; i < BLOCK; i++)
        found &= qp_value_f32(codes[i], rule->type, false) == 0;
    return found;
}

/*
 * Nothing is lost of blocks of zeros, which have the scale 0 where some tools have made them: here
 * it counts as 1.
 */
static enum qplan_status pass_zeros(struct qp_lint *l, const struct qp_tensor *t,
                                    const struct buffers *b, uint64_t set, size_t n)
{
    const struct qp_part *part = qp_tensor_part(t, QP_CODES);
    const struct qp_code_rule rule = qp_code_rule(t->scheme);
    const void *codes;
    size_t first = 0;
    while (first < n && b->values[first] != 0)
        first++;
    if (first == n || qp_blocks_of(t->scheme) != &qp_blocks[QP_NVFP4] ||
        part->matrix.cols % BLOCK != 0)
        return QPLAN_OK;
    QP_TRY(qp_part_get(l->source, part, set * BLOCK, n * BLOCK, QPLAN_ISA_BEST, b->codes, &codes,
                       NULL, l->err));
    for (size_t i = first; i < n; i++) {
        if (b->values[i] == 0 && !signbit(b->values[i]) &&
            are_zeros(&rule, (const uint8_t *)codes + i * BLOCK))
            b->values[i] = 1;
    }
    return QPLAN_OK;
}

/* Whether config.json says that all scales are powers of two. */
static bool are_powers(const struct qp_lint *l)
{
    const struct qp_tree_value *fmt =
        l->quantized ? qp_tree_member(l->tree, l->quantized, "scale_fmt") : NULL;
    return fmt && qp_tree_is_string(l->tree, fmt, "ue8m0");
}

/* Reads some parameters of a part, n from a set on, as numbers. */
static enum qplan_status load(struct qp_lint *l, const struct qp_part *part, enum qplan_dtype dtype,
                              const struct buffers *b, uint64_t set, size_t n)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    const void *stored;
    QP_TRY(qp_lint_go_on(l));
    QP_TRY(qp_part_get(l->source, part, set, n, QPLAN_ISA_BEST, b->room, &stored, NULL, l->err));
    f64->load(dtype, n, stored, b->values);
    return QPLAN_OK;
}

static enum qplan_status look_at_biases(struct qp_lint *l, const struct qp_tensor *t,
                                        const struct buffers *b, struct qp_scale_faults *faults)
{
    const struct qp_part *part = qp_tensor_part(t, QP_BIAS);
    const uint64_t n_sets = part ? part->matrix.rows * part->matrix.cols : 0;
    for (uint64_t set = 0; set < n_sets; set += SETS) {
        const size_t n = (size_t)qp_min_u64(SETS, n_sets - set);
        QP_TRY(load(l, part, t->scheme->scale_dtype, b, set, n));
        for (size_t i = 0; i < n; i++) {
            if (!isfinite(b->values[i]))
                count(faults, BAD_BIAS, set + i);
        }
    }
    return QPLAN_OK;
}

/* Scales that have scales of their own are codes, which no engine multiplies by: then those are
 * looked at, of which any may be 0. */
static enum qplan_status look_at_tensor(struct qp_lint *l, const struct qp_tensor *t,
                                        const struct buffers *b, struct qp_scale_faults *faults)
{
    const struct qp_part *nested = qp_tensor_part(t, QP_NESTED);
    const struct qp_part *part = nested ? nested : qp_tensor_part(t, QP_SCALE);
    const enum qplan_dtype dtype = nested ? QPLAN_F32 : t->scheme->scale_dtype;
    const uint64_t n_sets = part ? part->matrix.rows * part->matrix.cols : 0;
    const bool of_powers = are_powers(l);
    for (uint64_t set = 0; set < n_sets; set += SETS) {
        const size_t n = (size_t)qp_min_u64(SETS, n_sets - set);
        QP_TRY(load(l, part, dtype, b, set, n));
        for (size_t i = 0; nested && i < n; i++)
            b->values[i] = b->values[i] == 0 ? 1 : b->values[i];
        QP_TRY(pass_zeros(l, t, b, set, n));
        look(faults, b->values, n, set, of_powers);
    }
    return look_at_biases(l, t, b, faults);
}

static enum qplan_status look_at_all(struct qp_lint *l, const struct buffers *b)
{
    const size_t n = l->file->n_tensors;
    struct qp_scale_faults *faults = qp_arena_alloc(&l->found->arena, n, sizeof *faults);
    if (!faults || !b->room || !b->values || !b->codes)
        return qp_fail_memory(l->err, "scales", n * sizeof *faults);
    for (size_t i = 0; i < n; i++) {
        if (l->file->tensors[i].scheme)
            QP_TRY(look_at_tensor(l, &l->file->tensors[i], b, &faults[i]));
    }
    l->faults = faults;
    return QPLAN_OK;
}

/* Whether a finding is about all scales, those that may be below 0, or those that may not. */
enum which { ALL, ALLOWED, FORBIDDEN };

/* What a finding is about: scales of scales, or of codes, or biases. */
static const char *noun(enum fault fault, bool is_nested, bool is_one)
{
    if (fault == BAD_BIAS)
        return is_one ? "bias" : "biases";
    if (is_nested)
        return is_one ? "scale of scales" : "scales of scales";
    return is_one ? "scale" : "scales";
}

static enum qplan_status find_faults(struct qp_lint *l, enum fault fault, enum which which,
                                     const char *what)
{
    if (!l->faults) {
        struct buffers b = {qp_alloc_buffer(QP_PART_ROOM(SETS, 4)),
                            qp_alloc_buffer(SETS * sizeof(double)),
                            qp_alloc_buffer(QP_PART_ROOM(SETS * BLOCK, 1))};
        const enum qplan_status status = look_at_all(l, &b);
        qp_free(b.room);
        qp_free(b.values);
        qp_free(b.codes);
        QP_TRY(status);
    }
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        const struct qp_scale_faults *f = &l->faults[i];
        if (f->n[fault] == 0)
            continue;
        const bool is_nested = qp_tensor_part(t, QP_NESTED) != NULL;
        const bool is_allowed = !is_nested && qp_may_be_negative(t);
        if (which != ALL && is_allowed != (which == ALLOWED))
            continue;
        QP_TRY(qp_lint_find_tensor(l, t, "%" PRIu64 " %s %s, the first of set %" PRIu64,
                                   f->n[fault], noun(fault, is_nested, f->n[fault] == 1), what,
                                   f->first[fault] * (is_nested ? QP_NESTED_SETS : 1)));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_not_finite(struct qp_lint *l)
{
    QP_TRY(find_faults(l, NOT_FINITE, ALL, "not finite"));
    return find_faults(l, BAD_BIAS, ALL, "not finite");
}

enum qplan_status qp_lint_zero_scale(struct qp_lint *l)
{
    return find_faults(l, ZERO, ALL, "zero: all weights of such a set are lost");
}

enum qplan_status qp_lint_negative(struct qp_lint *l)
{
    return find_faults(l, NEGATIVE, ALLOWED, "negative");
}

enum qplan_status qp_lint_forbidden_sign(struct qp_lint *l)
{
    return find_faults(l, NEGATIVE, FORBIDDEN, "negative, which they may not be here");
}

enum qplan_status qp_lint_no_power(struct qp_lint *l)
{
    return find_faults(l, NO_POWER, ALL, "no power of two, which config.json says all are");
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

/* The first code of a tensor that readers refuse, in their words. */
static enum qplan_status find_bad_code(struct qp_lint *l, const struct qp_tensor *t, char *room)
{
    uint64_t n_elems = 0;
    (void)qp_shape_elements(t->shape, t->rank, &n_elems);
    for (uint64_t at = 0; at < n_elems; at += SETS * BLOCK) {
        const size_t n = (size_t)qp_min_u64(SETS * BLOCK, n_elems - at);
        const uint8_t *codes;
        QP_TRY(qp_lint_go_on(l));
        const enum qplan_status status =
            qp_read_codes(l->source, t, at, n, QPLAN_ISA_BEST, room, &codes, NULL, l->err);
        if (status == QPLAN_ERR_INVALID)
            return qp_lint_find_tensor(l, t, "%s", l->err->message);
        QP_TRY(status);
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_codes(struct qp_lint *l)
{
    char *room = qp_alloc_buffer(QP_PART_ROOM(SETS * BLOCK, 1));
    enum qplan_status status = room ? QPLAN_OK : qp_fail_memory(l->err, "codes", SETS * BLOCK);
    for (size_t i = 0; status == QPLAN_OK && i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (t->scheme && qp_has_other_codes(t->scheme))
            status = find_bad_code(l, t, room);
    }
    qp_free(room);
    return status;
}

/* ---- Zero points -------------------------------------------------------------------------------
 */

/* The first set whose zero point is not the middle of the codes. */
static enum qplan_status find_off_middle(struct qp_lint *l, const struct qp_tensor *t, char *room)
{
    const struct qp_part *part = qp_tensor_part(t, QP_ZERO);
    const struct qp_code_rule rule = qp_code_rule(t->scheme);
    const int middle = rule.type->is_signed ? 0 : (rule.q_max + 1) / 2;
    const uint64_t n_sets = part->matrix.rows * part->matrix.cols;
    for (uint64_t set = 0; set < n_sets; set += SETS) {
        const size_t n = (size_t)qp_min_u64(SETS, n_sets - set);
        const void *stored;
        QP_TRY(qp_lint_go_on(l));
        QP_TRY(qp_part_get(l->source, part, set, n, QPLAN_ISA_BEST, room, &stored, NULL, l->err));
        for (size_t i = 0; i < n; i++) {
            const int zero =
                part->place->is_signed ? ((const int8_t *)stored)[i] : ((const uint8_t *)stored)[i];
            if (zero != middle)
                return qp_lint_find_tensor(
                    l, t, "the zero point of set %" PRIu64 " is %d: the scheme is symmetric, so %d",
                    set + i, zero, middle);
        }
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_middle(struct qp_lint *l)
{
    char *room = qp_alloc_buffer(QP_PART_ROOM(SETS, 4)); /* of few rows a word for each */
    enum qplan_status status = room ? QPLAN_OK : qp_fail_memory(l->err, "zero points", SETS);
    for (size_t i = 0; status == QPLAN_OK && i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (t->scheme && !t->scheme->asymmetric && qp_tensor_part(t, QP_ZERO))
            status = find_off_middle(l, t, room);
    }
    qp_free(room);
    return status;
}
