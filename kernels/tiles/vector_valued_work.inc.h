/*
 * vector_valued_work.inc.h - codes and values of floats and tables in the vector vocabulary.
 * vector_work.inc.h includes it and says what must be there.
 */

/* A code type of floats or a table, in vectors. */
struct v_valued {
    vf largest;
    vf end; /* the size up to which quotients surely are within reach */
    /* Of floats, as kernels/codes/floats.h has them: bits of exponents. */
    vi least, up;        /* the least exponent; what the power to add has more than the number */
    vi sign;             /* its bit of a code, in all bytes */
    unsigned field;      /* the shift of an exponent to the field of a code */
    unsigned left, from; /* shifts to an f16: of the rest of a code, and of its sign */
    unsigned mask;       /* the bits of that rest */
    vf unit;             /* the value of a code, as a multiple of that f16 */
    /* Of a table: values, and a search tree of limits, of which each step asks one. */
    struct v_table book, limits[4];
};

static inline struct v_valued v_valued_floats(const struct qp_code_type *type)
{
    const struct qp_float_grid *grid = &type->grid;
    const unsigned left = 10u - grid->man_bits, bit = type->bits - 1u;
    return (struct v_valued){
        .largest = v_set((float)type->largest),
        .end = v_set((float)sure_end(type)),
        .least = vi_set((grid->least_exp + 127) << 23),
        .up = vi_set((23 - grid->man_bits) << 23),
        .sign = vi_set((int32_t)(grid->sign * 0x01010101u)),
        .field = 23u - grid->man_bits,
        .left = left,
        .from = 15 - bit,
        .mask = (grid->sign - 1u) << left,
        .unit = v_set(qp_power_f32(grid->least_exp + 14)),
    };
}

/* The limits between 16 values are a tree: the one in the middle, then those of either half. */
static inline struct v_valued v_valued_book(const struct qp_code_type *type)
{
    float limits[QP_BOOK_SIZE - 1], level[QP_BOOK_SIZE] = {0};
    struct v_valued v = {.end = v_set((float)sure_end(type))};
    qp_book_limits_f32(type->book, limits);
    v.book = v_table_of(type->book);
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 1 << step; i++)
            level[i] = limits[(8 >> step) * (2 * i + 1) - 1];
        v.limits[step] = v_table_of(level);
    }
    return v;
}

static inline struct v_valued v_valued_of(const struct qp_code_type *type)
{
    return type->kind == QP_CODES_BOOK ? v_valued_book(type) : v_valued_floats(type);
}

/* ---- Codes ----------------------------------------------------------------------------------- */

static inline vi v_book_codes(vf t, const struct v_valued *v)
{
    vi place = vi_set(0);
    for (int step = 0; step < 4; step++)
        place = vi_twice_above(place, t, v_pick8(&v->limits[step], place));
    return place;
}

/* The size of a quotient, as far as the largest value if it may be beyond, and its exponent. */
static inline vf v_float_size(vf t, const struct v_valued *v, int bounded, vi *exponent)
{
    const vf size = bounded ? v_abs(t) : v_min(v_abs(t), v->largest);
    *exponent = vi_max(vi_and(v_bits(size), vi_set(0x7f800000)), v->least);
    return size;
}

/* Codes without their sign. */
static inline vi v_float_codes(vf t, const struct v_valued *v, int bounded)
{
    vi exponent;
    const vf size = v_float_size(t, v, bounded, &exponent);
    const vi power = vi_add(exponent, v->up);
    const vi sum = v_bits(v_add(size, v_of_bits(power)));
    const vi field = vi_right(vi_sub(exponent, v->least), v->field);
    return vi_add(vi_sub(sum, power), field);
}

/* The values of the codes of quotients, none of which is NaN. is_book is a constant. */
static inline vf v_nearest(vf t, const struct v_valued *v, int is_book)
{
    if (is_book)
        return v_pick16(&v->book, v_book_codes(t, v));
    vi exponent;
    const vf size = v_float_size(t, v, 0, &exponent);
    const vf power = v_of_bits(vi_add(exponent, v->up));
    const vf near = v_sub(v_add(size, power), power);
    return v_of_bits(vi_or(v_bits(near), vi_and(v_bits(t), vi_set(INT32_MIN))));
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* The largest size of a value in V_LANES sets. */
static inline vf v_set_sizes(const float *lo, const float *hi)
{
    return v_max(v_sub(v_set(0), v_load(lo)), v_load(hi));
}

/*
 * Scales of codes of floats, stored as f8e4m3 under a factor; that of zeros is stored as 1. As many
 * of n as come before one that would be too small for its set, or is no number.
 */
static size_t params_f8e4m3(const struct qp_code_rule *rule, size_t n, const float *lo,
                            const float *hi, float *scale, int32_t *zero)
{
    const struct v_valued stored = v_valued_floats(qp_code_type(QPLAN_F8E4M3));
    const vf largest = v_set((float)rule->type->largest), end = v_set((float)qp_code_end(rule));
    const vf factor = v_set(rule->factor), least = v_set(0x1p-9f), most = v_set(FLT_MAX);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const vf size = v_set_sizes(lo + i, hi + i), exact = v_div(size, largest);
        const vf wanted = rule->divides ? v_mul(exact, factor) : v_div(exact, factor);
        const vf near = v_max(v_nearest(wanted, &stored, 0), least);
        const vf number = v_where_equal(size, v_set(0), v_set(1), near);
        const vf found = rule->divides ? v_div(number, factor) : v_mul(number, factor);
        if (!vm_all(vm_and(v_at_most(v_div(size, end), found), v_at_most(found, most))))
            break;
        v_store(scale + i, found);
        vi_store(zero + i, vi_set(0));
    }
    return i;
}

/*
 * Scales of codes of floats, stored as powers of two: that of the size, one more from 7/4 of it on,
 * which a carry into the exponent makes, less that of the largest code. Below 2^-126 the exponents
 * of the bits are 0 or less, and become the least. As many of n as have finite ranges before them.
 */
static size_t params_e8m0(const struct qp_code_rule *rule, size_t n, const float *lo,
                          const float *hi, float *scale, int32_t *zero)
{
    const uint32_t largest = qp_bits_f32((float)rule->type->largest);
    const vi top = vi_set((int32_t)((largest >> 23) - 127) << 23), least = vi_set(1 << 23);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const vf size = v_set_sizes(lo + i, hi + i);
        const vi carried = vi_add(v_bits(size), vi_set(1 << 21));
        const vi power = vi_sub(vi_and(carried, vi_set(0x7f800000)), top);
        if (!vm_all(v_at_most(size, v_set(FLT_MAX))))
            break;
        v_store(scale + i,
                v_where_equal(size, v_set(0), v_set(1), v_of_bits(vi_max(power, least))));
        vi_store(zero + i, vi_set(0));
    }
    return i;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* The values of V_LANES codes, of floats in units. */
static inline vf v_load_values(const uint8_t *codes, const struct v_valued *v, int is_book)
{
    return is_book ? v_pick16(&v->book, vi_load_bytes(codes))
                   : v_load_halves(codes, v->left, v->mask, v->from);
}

/*
 * What codes stand for. A scale in units is exact if none is very large, and then its product is
 * rounded as that with the value is, and cannot overflow.
 */
static inline void v_store_values(const uint8_t *codes, vf scale, const struct v_valued *v,
                                  int is_book, int clips, float *y)
{
    const vf most = v_set(FLT_MAX), least = v_set(-FLT_MAX);
    const vf value = v_load_values(codes, v, is_book);
    if (!clips)
        v_store(y, v_mul(scale, value));
    else
        v_store(y,
                v_max(least, v_min(most, v_mul(scale, is_book ? value : v_mul(v->unit, value)))));
}

/* Values of n codes of one set. */
static inline void valued_run_vector(const uint8_t *codes, size_t n, float scale,
                                     const struct qp_code_type *type, const struct v_valued *v,
                                     int is_book, float *y)
{
    const vf s = v_set(scale), in_units = is_book ? s : v_mul(s, v->unit);
    size_t i = 0;
    if (fabsf(scale) <= SCALE_UNCLIPPED) {
        for (; i + V_LANES <= n; i += V_LANES)
            v_store_values(codes + i, in_units, v, is_book, 0, y + i);
    }
    for (; i + V_LANES <= n; i += V_LANES)
        v_store_values(codes + i, s, v, is_book, 1, y + i);
    if (i < n)
        valued_values_plain(codes + i, n - i, scale, type, is_book, y + i);
}

/* Values of a row of n columns that are sets of their own. */
static inline void valued_columns_vector(const uint8_t *codes, size_t n, const float *scale,
                                         const struct qp_code_type *type, const struct v_valued *v,
                                         int is_book, float *y)
{
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        v_store_values(codes + i, v_load(scale + i), v, is_book, 1, y + i);
    for (; i < n; i++)
        valued_values_plain(codes + i, 1, scale[i], type, is_book, y + i);
}

static inline void dequantize_kind(const struct qp_tile *tile, const uint8_t *codes,
                                   const struct qp_code_type *type, const float *scale, int is_book,
                                   float *y)
{
    const struct v_valued v = is_book ? v_valued_book(type) : v_valued_floats(type);
    const size_t width = qp_even_runs(tile), n = tile->rows * tile->cols;
    if (tile->col_width > 1 && width) {
        for (size_t set = 0, at = 0; at < n; set++, at += width)
            valued_run_vector(codes + at, width, scale[set], type, &v, is_book, y + at);
        return;
    }
    if (tile->col_width > 1) {
        FOR_EACH_RUN (tile, run)
            valued_run_vector(codes + run.at, run.n, scale[run.set], type, &v, is_book, y + run.at);
        return;
    }
    for (size_t row = 0; row < tile->rows; row++) {
        const size_t at = row * tile->cols, set = row / tile->band_rows * tile->cols;
        valued_columns_vector(codes + at, tile->cols, scale + set, type, &v, is_book, y + at);
    }
}

static void dequantize_valued_vector(const struct qp_tile *tile, const uint8_t *codes,
                                     const struct qp_code_rule *rule, const void *scale,
                                     const int32_t *zero, void *y)
{
    (void)zero;
    if (rule->kind == QP_CODES_BOOK)
        dequantize_kind(tile, codes, rule->type, scale, 1, y);
    else
        dequantize_kind(tile, codes, rule->type, scale, 0, y);
}
