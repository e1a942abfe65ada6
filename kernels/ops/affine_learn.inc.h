/*
 * affine_learn.inc.h - the sums of affine.h for one float dtype: a part of affine.inc.h, which
 * includes it behind the steps.
 */

/* ---- Sums --------------------------------------------------------------------------------------
 */

/* What LANES elements add to their sums. */
struct NAME(terms) {
    double scale[LANES], zero[LANES];
    bool any_zero; /* some element is outside; else all of zero is 0 and changes no sum */
};

static inline void NAME(terms_step)(const struct NAME(set) * set, const struct NAME(data) * data,
                                    struct NAME(terms) * terms)
{
    const V(lanes) x = LOAD(data->x), dout = LOAD(data->dout), r = NAME(rounded)(set, x);
    const V(mask) inside = V(within)(r, set->least, set->most), number = V(is_number)(x);
    const V(lanes) steps = V(clamp)(r, set->least, set->most);
    KEEP(data->out, data->dout, inside);
    V(scale_terms)(dout, x, set->scale, steps, inside, number, terms->scale);
    terms->any_zero = V(any_not)(inside);
    if (terms->any_zero)
        V(zero_terms)(dout, set->scale, inside, number, terms->zero);
}

/* The first n terms, in order. */
static inline void NAME(add_one)(struct qp_sum *scale, struct qp_sum *zero,
                                 const struct NAME(terms) * terms, size_t n)
{
    for (size_t k = 0; k < n; k++)
        ADD(scale, terms->scale[k]);
    for (size_t k = 0; terms->any_zero && k < n; k++)
        ADD(zero, terms->zero[k]);
}

static inline void NAME(add_each)(struct qp_sum *scale, struct qp_sum *zero,
                                  const struct NAME(terms) * terms, size_t n)
{
    for (size_t k = 0; k < n; k++)
        ADD(&scale[k], terms->scale[k]);
    for (size_t k = 0; terms->any_zero && k < n; k++)
        ADD(&zero[k], terms->zero[k]);
}

static inline void NAME(terms_rest)(const struct NAME(set) * set, const struct NAME(data) * data,
                                    size_t n, struct NAME(terms) * terms)
{
    unsigned char dout[LANES * ELEM_BYTES] = {0}, x[LANES * ELEM_BYTES] = {0};
    unsigned char out[LANES * ELEM_BYTES];
    memcpy(dout, data->dout, n * ELEM_BYTES);
    memcpy(x, data->x, n * ELEM_BYTES);
    NAME(terms_step)(set, &(struct NAME(data)){dout, x, out}, terms);
    memcpy(data->out, out, n * ELEM_BYTES);
}

/* The sums of the run stay in registers. */
static void NAME(learn_run)(const struct qp_affine *a, size_t set, const struct NAME(data) * data,
                            size_t n, const struct qp_affine_sums *sums)
{
    const struct NAME(set) params = NAME(one_set)(a, set);
    struct qp_sum scale = sums->scale[set], zero = sums->zero[set];
    struct NAME(terms) terms;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const struct NAME(data) here = NAME(data_at)(data, i);
        NAME(terms_step)(&params, &here, &terms);
        NAME(add_one)(&scale, &zero, &terms, LANES);
    }
    if (i < n) {
        const struct NAME(data) here = NAME(data_at)(data, i);
        NAME(terms_rest)(&params, &here, n - i, &terms);
        NAME(add_one)(&scale, &zero, &terms, n - i);
    }
    sums->scale[set] = scale;
    sums->zero[set] = zero;
}

/* A row of columns that are sets of their own. */
static void NAME(learn_columns)(const struct qp_affine *a, size_t set,
                                const struct NAME(data) * data, size_t n,
                                const struct qp_affine_sums *sums)
{
    struct NAME(terms) terms;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const struct NAME(set) params = NAME(each_set)(a, set + i);
        const struct NAME(data) here = NAME(data_at)(data, i);
        NAME(terms_step)(&params, &here, &terms);
        NAME(add_each)(sums->scale + set + i, sums->zero + set + i, &terms, LANES);
    }
    if (i < n) {
        const struct NAME(set) params = NAME(few_sets)(a, set + i, n - i);
        const struct NAME(data) here = NAME(data_at)(data, i);
        NAME(terms_rest)(&params, &here, n - i, &terms);
        NAME(add_each)(sums->scale + set + i, sums->zero + set + i, &terms, n - i);
    }
}

static void NAME(learn)(const struct qp_affine *a, const void *dout, const void *x, void *out,
                        const struct qp_affine_sums *sums)
{
    const struct NAME(data) data = {dout, x, out};
    const struct qp_tile *tile = a->tile;
    if (tile->col_width == 1) {
        for (size_t row = 0; row < tile->rows; row++) {
            const struct NAME(data) here = NAME(data_at)(&data, row * tile->cols);
            NAME(learn_columns)(a, row / tile->band_rows * tile->cols, &here, tile->cols, sums);
        }
        return;
    }
    FOR_EACH_RUN (tile, run) {
        const struct NAME(data) here = NAME(data_at)(&data, run.at);
        NAME(learn_run)(a, run.set, &here, run.n, sums);
    }
}
