/*
 * affine.inc.h - the kernels of affine.h for one float dtype, as a template over a vocabulary of
 * lanes. One lane is the specification; any number gives the same bits, since lanes do not mix.
 *
 * The including file defines NAME(op), ISA, DTYPE, ELEM_BYTES, WORK, V(word) and LANES: the
 * vocabulary of the working precision, and for the dtype LOAD(p), STORE(p, y) for a finite y,
 * GRADIENT(p, y), KEEP(p, from, mask), which copies bits, HALF_WAY, from which magnitude on
 * GRADIENT stores infinity, and ADD(sum, term).
 */

#ifndef QP_FLATTEN
/* Copied into each caller, where the step that it takes is a constant: a loop for each step. */
#define QP_FLATTEN static inline __attribute__((always_inline))
#endif

/* ---- Sets --------------------------------------------------------------------------------------
 */

/* The parameters of LANES neighbours: of one set, or of one each. */
struct NAME(set) {
    V(lanes) scale, least, most;
};

static inline struct NAME(set) NAME(one_set)(const struct qp_affine *a, size_t set)
{
    const int32_t zero = a->zero[set];
    return (struct NAME(set)){V(set)(((const WORK *)a->scale)[set]),
                              V(set)((WORK)(a->q_min - zero)), V(set)((WORK)(a->q_max - zero))};
}

static inline struct NAME(set) NAME(each_set)(const struct qp_affine *a, size_t set)
{
    const V(lanes) zero = V(load_ints)(a->zero + set);
    return (struct NAME(set)){V(load)((const WORK *)a->scale + set),
                              V(sub)(V(set)((WORK)a->q_min), zero),
                              V(sub)(V(set)((WORK)a->q_max), zero)};
}

/* The first n of LANES sets; the other lanes repeat the first. */
static inline struct NAME(set) NAME(few_sets)(const struct qp_affine *a, size_t set, size_t n)
{
    WORK scale[LANES];
    int32_t zero[LANES];
    for (size_t k = 0; k < LANES; k++) {
        scale[k] = ((const WORK *)a->scale)[set + (k < n ? k : 0)];
        zero[k] = a->zero[set + (k < n ? k : 0)];
    }
    return NAME(each_set)(&(struct qp_affine){a->tile, a->q_min, a->q_max, scale, zero}, 0);
}

/* ---- Steps -------------------------------------------------------------------------------------
 */

/* Where the data of a step is. */
struct NAME(data) {
    const unsigned char *dout, *x;
    unsigned char *out;
};

static inline struct NAME(data) NAME(data_at)(const struct NAME(data) * data, size_t at)
{
    return (struct NAME(data)){data->dout + at * ELEM_BYTES, data->x + at * ELEM_BYTES,
                               data->out + at * ELEM_BYTES};
}

static inline V(lanes) NAME(rounded)(const struct NAME(set) * set, V(lanes) x)
{
    return V(rne)(V(div)(x, set->scale));
}

static inline unsigned NAME(put_gradient)(unsigned char *out, V(lanes) y, V(lanes) dout)
{
    GRADIENT(out, V(one_nan)(y));
    return V(count_large)(y, HALF_WAY, dout);
}

static inline unsigned NAME(fake_step)(const struct NAME(set) * set, const struct NAME(data) * data)
{
    const V(lanes) x = LOAD(data->x);
    const V(lanes) steps = V(clamp)(NAME(rounded)(set, x), set->least, set->most);
    STORE(data->out, V(clip)(V(mul)(set->scale, V(keep)(V(is_number)(x), steps))));
    return 0;
}

/* Where dout passes: x is in range, as a code or, of codes with values, as it is. */
static inline V(mask) NAME(code_inside)(const struct NAME(set) * set, V(lanes) x)
{
    return V(within)(NAME(rounded)(set, x), set->least, set->most);
}

static inline V(mask) NAME(value_inside)(const struct NAME(set) * set, V(lanes) x)
{
    return V(within)(V(div)(x, set->scale), set->least, set->most);
}

#define BACKWARD_STEPS(suffix, inside)                                                             \
    static inline unsigned NAME(fake_backward##suffix##_step)(const struct NAME(set) * set,        \
                                                              const struct NAME(data) * data)      \
    {                                                                                              \
        KEEP(data->out, data->dout, NAME(inside)(set, LOAD(data->x)));                             \
        return 0;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static inline unsigned NAME(quantize_backward##suffix##_step)(const struct NAME(set) * set,    \
                                                                  const struct NAME(data) * data)  \
    {                                                                                              \
        const V(lanes) dout = LOAD(data->dout), y = V(div)(dout, set->scale);                      \
        return NAME(put_gradient)(data->out, V(keep)(NAME(inside)(set, LOAD(data->x)), y), dout);  \
    }
BACKWARD_STEPS(, code_inside)
BACKWARD_STEPS(_values, value_inside)
#undef BACKWARD_STEPS

static inline unsigned NAME(dequantize_backward_step)(const struct NAME(set) * set,
                                                      const struct NAME(data) * data)
{
    const V(lanes) dout = LOAD(data->dout);
    return NAME(put_gradient)(data->out, V(mul)(dout, set->scale), dout);
}

/* ---- Runs and tiles ----------------------------------------------------------------------------
 */

typedef unsigned (*NAME(step_fn))(const struct NAME(set) *, const struct NAME(data) *);

/* Fewer than LANES elements, with zeros behind them. */
static inline unsigned NAME(rest)(NAME(step_fn) step, const struct NAME(set) * set,
                                  const struct NAME(data) * data, size_t n)
{
    unsigned char dout[LANES * ELEM_BYTES] = {0}, x[LANES * ELEM_BYTES] = {0};
    unsigned char out[LANES * ELEM_BYTES];
    memcpy(dout, data->dout, n * ELEM_BYTES);
    memcpy(x, data->x, n * ELEM_BYTES);
    const unsigned count = step(set, &(struct NAME(data)){dout, x, out});
    memcpy(data->out, out, n * ELEM_BYTES);
    return count;
}

/* n neighbours of one set or, if each, of one set each. step and each are constants. */
QP_FLATTEN unsigned NAME(run)(NAME(step_fn) step, bool each, const struct qp_affine *a, size_t set,
                              const struct NAME(data) * data, size_t n)
{
    const struct qp_affine own = *a; /* no store to out can change it */
    struct NAME(set) params = NAME(one_set)(&own, set);
    unsigned count = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const struct NAME(data) here = NAME(data_at)(data, i);
        if (each)
            params = NAME(each_set)(&own, set + i);
        count += step(&params, &here);
    }
    if (i < n) {
        const struct NAME(data) here = NAME(data_at)(data, i);
        if (each)
            params = NAME(few_sets)(&own, set + i, n - i);
        count += NAME(rest)(step, &params, &here, n - i);
    }
    return count;
}

QP_FLATTEN uint64_t NAME(walk)(NAME(step_fn) step, const struct qp_affine *a, const void *dout,
                               const void *x, void *out)
{
    const struct NAME(data) data = {dout, x, out};
    const struct qp_tile *tile = a->tile;
    uint64_t count = 0;
    if (tile->col_width == 1) {
        for (size_t row = 0; row < tile->rows; row++) {
            const struct NAME(data) here = NAME(data_at)(&data, row * tile->cols);
            const size_t first = row / tile->band_rows * tile->cols;
            count += NAME(run)(step, true, a, first, &here, tile->cols);
        }
        return count;
    }
    FOR_EACH_RUN (tile, run) {
        const struct NAME(data) here = NAME(data_at)(&data, run.at);
        count += NAME(run)(step, false, a, run.set, &here, run.n);
    }
    return count;
}

#define ELEMENTWISE(op)                                                                            \
    static uint64_t NAME(op)(const struct qp_affine *a, const void *dout, const void *x,           \
                             void *out)                                                            \
    {                                                                                              \
        return NAME(walk)(NAME(op##_step), a, dout, x, out);                                       \
    }
ELEMENTWISE(fake)
ELEMENTWISE(fake_backward)
ELEMENTWISE(quantize_backward)
ELEMENTWISE(fake_backward_values)
ELEMENTWISE(quantize_backward_values)
ELEMENTWISE(dequantize_backward)
#undef ELEMENTWISE

#include "affine_learn.inc.h"

/* ---- Zero points -------------------------------------------------------------------------------
 */

/* Clamped first, to integers: that changes nothing, and what is converted fits. */
static void NAME(round_zero)(size_t n, const void *from_, int32_t least, int32_t most,
                             int32_t *zero)
{
    const WORK *from = from_;
    const V(lanes) low = V(set)((WORK)least), high = V(set)((WORK)most);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        V(store_ints)(zero + i, V(rne)(V(clamp)(V(load)(from + i), low, high)));
    if (i < n) {
        WORK rest[LANES] = {0};
        int32_t rounded[LANES];
        memcpy(rest, from + i, (n - i) * sizeof *rest);
        V(store_ints)(rounded, V(rne)(V(clamp)(V(load)(rest), low, high)));
        memcpy(zero + i, rounded, (n - i) * sizeof *zero);
    }
}

static const struct qp_affine_kernels NAME(affine) = {
    .dtype = DTYPE,
    .isa = ISA,
    .fake = NAME(fake),
    .fake_backward = NAME(fake_backward),
    .quantize_backward = NAME(quantize_backward),
    .dequantize_backward = NAME(dequantize_backward),
    .fake_backward_values = NAME(fake_backward_values),
    .quantize_backward_values = NAME(quantize_backward_values),
    .learn = NAME(learn),
    .round_zero = NAME(round_zero),
};

#undef NAME
#undef DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef STORE
#undef GRADIENT
#undef KEEP
#undef HALF_WAY
