/*
 * vector_valued.inc.h - whether codes of floats and tables are the nearest, of one source dtype in
 * the vector vocabulary. vector.inc.h includes it and says what must be defined.
 */

/* The lanes in which an element decodes to what its own code stands for, and is not clipped. */
static inline vm NAME(nearest_at)(const unsigned char *src, const float *y, vf scale,
                                  const struct v_valued *v, int is_book)
{
    const vf t = v_div(V_LOAD(src), scale), product = v_mul(scale, v_nearest(t, v, is_book));
    const vf near = v_max(v_set(-FLT_MAX), v_min(v_set(FLT_MAX), product));
    return vm_and(v_within(near, v_load(y), v_set(0)), v_at_most(v_abs(t), v->overshot));
}

/* Judges n elements of one set from at on; those that surely fit are not looked at. */
static inline void NAME(check_nearest)(const unsigned char *src, const float *y, size_t at,
                                       size_t n, const struct NAME(sets) * sets, size_t set,
                                       const struct v_valued *v, int is_book,
                                       struct qp_check *result)
{
    const vf scale = v_set(sets->scale[set]);
    size_t i = at;
    for (; sets->bound[set] >= 0 && i + V_LANES <= at + n; i += V_LANES) {
        if (!vm_all(NAME(nearest_at)(src + i * ELEM_BYTES, y + i, scale, v, is_book)))
            NAME(check_run)(src, y, i, i + V_LANES, sets, set, result);
    }
    if (i < at + n)
        NAME(check_run)(src, y, i, at + n, sets, set, result);
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
        if (fits && vm_all(NAME(nearest_at)(src + (at + i) * ELEM_BYTES, y + at + i,
                                            v_load(sets->scale + first + i), v, is_book)))
            continue;
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
    if (tile->col_width > 1) {
        FOR_EACH_RUN (tile, run)
            NAME(check_nearest)(src, y, run.at, run.n, sets, run.set, &v, is_book, result);
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
