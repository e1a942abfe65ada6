/*
 * vector_valued.inc.h - whether codes of floats and tables are the nearest, of one source dtype in
 * the vector vocabulary. vector.inc.h includes it and says what must be defined.
 */

/*
 * The lanes in which elements of these quotients decode to what their own codes stand for, within
 * reach of the largest. clips: whether a product may be too large to be finite; a constant.
 */
static inline unsigned NAME(nearest_at)(const float *y, vf t, vf scale, const struct v_valued *v,
                                        int is_book, int clips)
{
    const vf product = v_mul(scale, v_nearest(t, v, is_book));
    const vf near = clips ? v_max(v_set(-FLT_MAX), v_min(v_set(FLT_MAX), product)) : product;
    return vm_lanes(vm_and(v_equal(near, v_load(y)), v_at_most(v_abs(t), v->end)));
}

/* Judges the elements from i on that are not among these lanes. */
static __attribute__((noinline)) void NAME(check_others)(const unsigned char *src, const float *y,
                                                         size_t i, unsigned lanes,
                                                         const struct NAME(sets) * sets, size_t set,
                                                         struct qp_check *result)
{
    for (size_t k = 0; k < V_LANES; k++) {
        if (!(lanes >> k & 1))
            NAME(check_run)(src, y, i + k, i + k + 1, sets, set, result);
    }
}

/*
 * Judges n elements of one set from at on, of whose scale the reciprocal is known; those that
 * surely fit are not looked at.
 */
static inline void NAME(check_nearest)(const unsigned char *src, const float *y, size_t at,
                                       size_t n, const struct NAME(sets) * sets, size_t set,
                                       float reciprocal, const struct v_valued *v, int is_book,
                                       struct qp_check *result)
{
    const vf scale = v_set(sets->scale[set]), factor = v_set(reciprocal);
    const bool has_scale = sets->bound[set] >= 0 && fabsf(sets->scale[set]) <= SCALE_MOST;
    size_t i = at;
    for (; has_scale && i + V_LANES <= at + n; i += V_LANES) {
        const vf t = v_mul(V_LOAD(src + i * ELEM_BYTES), factor);
        const unsigned lanes = NAME(nearest_at)(y + i, t, scale, v, is_book, 0);
        if (lanes != V_ALL)
            NAME(check_others)(src, y, i, lanes, sets, set, result);
    }
    if (i < at + n)
        NAME(check_run)(src, y, i, at + n, sets, set, result);
}

/* Judges runs of one length, each a set. */
static inline void NAME(check_nearest_even)(const unsigned char *src, const float *y, size_t width,
                                            size_t n_sets, const struct NAME(sets) * sets,
                                            const struct v_valued *v, int is_book,
                                            struct qp_check *result)
{
    float reciprocal[FEW_SETS];
    for (size_t first = 0, n; first < n_sets; first += n) {
        n = n_sets - first < FEW_SETS ? n_sets - first : FEW_SETS;
        for (size_t k = 0; k < n; k++)
            reciprocal[k] = 1 / sets->scale[first + k];
        for (size_t k = 0; k < n; k++)
            NAME(check_nearest)
        (src, y, (first + k) * width, width, sets, first + k, reciprocal[k], v, is_book, result);
    }
}

/* Judges a row of n columns that are sets of their own, from the set `first` on. */
static inline void NAME(check_nearest_columns)(const unsigned char *src, const float *y, size_t at,
                                               size_t n, const struct NAME(sets) * sets,
                                               size_t first, const struct v_valued *v, int is_book,
                                               struct qp_check *result)
{
    for (size_t i = 0, end; i < n; i = end) {
        end = i + V_LANES < n ? i + V_LANES : n;
        bool fits = end - i == V_LANES;
        for (size_t k = i; k < end; k++)
            fits &= sets->bound[first + k] >= 0;
        if (fits) {
            const vf scale = v_load(sets->scale + first + i);
            const vf t = v_div(V_LOAD(src + (at + i) * ELEM_BYTES), scale);
            if (NAME(nearest_at)(y + at + i, t, scale, v, is_book, 1) == V_ALL)
                continue;
        }
        for (size_t k = i; k < end; k++)
            NAME(check_run)(src, y, at + k, at + k + 1, sets, first + k, result);
    }
}

static inline void NAME(check_kind)(const struct qp_tile *tile, const unsigned char *src,
                                    const float *y, const struct NAME(sets) * sets, int is_book,
                                    struct qp_check *result)
{
    const struct qp_code_type *type = sets->rule->type;
    const struct v_valued v = is_book ? v_valued_book(type) : v_valued_floats(type);
    const size_t width = qp_even_runs(tile);
    if (tile->col_width > 1 && width) {
        NAME(check_nearest_even)
        (src, y, width, tile->rows * (tile->cols / width), sets, &v, is_book, result);
        return;
    }
    if (tile->col_width > 1) {
        FOR_EACH_RUN (tile, run)
            NAME(check_nearest)
        (src, y, run.at, run.n, sets, run.set, 1 / sets->scale[run.set], &v, is_book, result);
        return;
    }
    for (size_t row = 0; row < tile->rows; row++) {
        const size_t at = row * tile->cols, first = row / tile->band_rows * tile->cols;
        NAME(check_nearest_columns)(src, y, at, tile->cols, sets, first, &v, is_book, result);
    }
}

static void NAME(check_valued)(const struct qp_tile *tile, const void *src, const void *y,
                               const struct qp_code_rule *rule, const void *scale,
                               const int32_t *zero, const double *bound, struct qp_check *result)
{
    const struct NAME(sets) sets = {rule, scale, zero, bound};
    *result = (struct qp_check){0};
    if (rule->kind == QP_CODES_BOOK)
        NAME(check_kind)(tile, src, y, &sets, 1, result);
    else
        NAME(check_kind)(tile, src, y, &sets, 0, result);
}

#define VALUED_ROW(KIND)                                                                           \
    {                                                                                              \
        .dtype = SOURCE_DTYPE, .kind = (KIND), .isa = ISA, .params = params_vector,                \
        .quantize = NAME(quantize), .dequantize = dequantize_valued_vector,                        \
        .check = NAME(check_valued),                                                               \
    }

static const struct qp_quantizer NAME(floats) = VALUED_ROW(QP_CODES_FLOAT);
static const struct qp_quantizer NAME(book) = VALUED_ROW(QP_CODES_BOOK);

#undef VALUED_ROW
