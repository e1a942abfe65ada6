/*
 * vector.inc.h - the loops of one source dtype in the vector vocabulary, for f32 working precision.
 *
 * The including file has included a vocabulary and defines what element.inc.h needs, V_LOAD(p),
 * V_BITS(word) for elements as integers, INFINITY_BITS (of +Inf), SOURCE_DTYPE and ISA.
 * Every result is bit for bit that of source.inc.h.
 */

#include "element.inc.h"

#include "vector_quantize.inc.h"
#include "vector_range.inc.h"
#include "vector_sums.inc.h"

/* ---- check -------------------------------------------------------------------------------------
 */

#define CHECKED (4 * V_LANES)

/* Judges n elements of one set from at on; those that surely fit are not looked at. */
static void NAME(check_long)(const unsigned char *src, const float *y, size_t at, size_t n,
                             const struct NAME(sets) * sets, size_t set, struct qp_check *result)
{
    const vf limit = v_set(sure_limit(sets->bound[set]));
    size_t i = at;
    for (; i + CHECKED <= at + n; i += CHECKED) {
        vm within[4];
        for (size_t k = 0; k < 4; k++) {
            size_t j = i + k * V_LANES;
            within[k] = v_within(V_LOAD(src + j * ELEM_BYTES), v_load(y + j), limit);
        }
        if (!vm_all(vm_and(vm_and(within[0], within[1]), vm_and(within[2], within[3]))))
            NAME(check_run)(src, y, i, i + CHECKED, sets, set, result);
    }
    for (; i + V_LANES <= at + n; i += V_LANES) {
        if (!vm_all(v_within(V_LOAD(src + i * ELEM_BYTES), v_load(y + i), limit)))
            NAME(check_run)(src, y, i, i + V_LANES, sets, set, result);
    }
    if (i < at + n)
        NAME(check_run)(src, y, i, at + n, sets, set, result);
}

/* Whether n elements of one set surely fit: a multiple of V_LANES. */
static inline int NAME(fit)(const unsigned char *src, const float *y, size_t n, float limit)
{
    const vf most = v_set(limit);
    vm within = v_at_most(v_set(0), v_set(0));
    for (size_t i = 0; i < n; i += V_LANES)
        within = vm_and(within, v_within(V_LOAD(src + i * ELEM_BYTES), v_load(y + i), most));
    return vm_all(within);
}

/* Judges n elements of sets of one width, a multiple of V_LANES. */
static void NAME(check_even)(const unsigned char *src, const float *y, size_t n, size_t width,
                             const struct NAME(sets) * sets, struct qp_check *result)
{
    for (size_t set = 0, at = 0; at < n; set++, at += width) {
        if (!NAME(fit)(src + at * ELEM_BYTES, y + at, width, sure_limit(sets->bound[set])))
            NAME(check_long)(src, y, at, width, sets, set, result);
    }
}

/* Judges a row of n columns that are sets of their own, from the set `first` on. */
static void NAME(check_columns)(const unsigned char *src, const float *y, size_t at, size_t n,
                                size_t first, const struct NAME(sets) * sets,
                                struct qp_check *result)
{
    for (size_t i = 0; i < n; i += V_LANES) {
        size_t end = i + V_LANES < n ? i + V_LANES : n;
        if (end - i == V_LANES &&
            vm_all(v_within(V_LOAD(src + (at + i) * ELEM_BYTES), v_load(y + at + i),
                            v_sure_limits(sets->bound + first + i))))
            continue;
        for (size_t k = i; k < end; k++)
            NAME(check_run)(src, y, at + k, at + k + 1, sets, first + k, result);
    }
}

static void NAME(check)(const struct qp_tile *tile, const void *src, const void *y,
                        const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                        const double *bound, struct qp_check *result)
{
    const struct NAME(sets) sets = {rule, scale, zero, bound};
    *result = (struct qp_check){0};
    if (tile->col_width == 1) {
        for (size_t row = 0; row < tile->rows; row++) {
            size_t first = row / tile->band_rows * tile->cols, at = row * tile->cols;
            NAME(check_columns)(src, y, at, tile->cols, first, &sets, result);
        }
        return;
    }
    if (qp_even_runs(tile) % V_LANES == 0 && qp_even_runs(tile) > 0) {
        NAME(check_even)(src, y, tile->rows * tile->cols, qp_even_runs(tile), &sets, result);
        return;
    }
    FOR_EACH_RUN (tile, run)
        NAME(check_long)(src, y, run.at, run.n, &sets, run.set, result);
}

static const struct qp_source_kernels NAME(source) = {
    .dtype = SOURCE_DTYPE,
    .isa = ISA,
    .elem_bytes = ELEM_BYTES,
    .work_bytes = sizeof(float),
    .work = &work_vector,
    .range = NAME(range),
    .sums = NAME(sums),
};

static const struct qp_quantizer NAME(linear) = {
    .dtype = SOURCE_DTYPE,
    .kind = QP_CODES_LINEAR,
    .isa = ISA,
    .params = params_vector,
    .quantize = NAME(quantize),
    .dequantize = dequantize_vector,
    .check = NAME(check),
};

static const struct qp_quantizer NAME(biased) = {
    .dtype = SOURCE_DTYPE,
    .kind = QP_CODES_BIASED,
    .isa = ISA,
    .params = biased_params_vector,
    .quantize = NAME(quantize),
    .dequantize = dequantize_biased_vector,
    .check = NAME(check),
};

#include "vector_valued.inc.h"

#undef CHECKED
#undef VALUED
#undef NAME
#undef SOURCE_DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef V_LOAD
#undef V_BITS
#undef INFINITY_BITS
