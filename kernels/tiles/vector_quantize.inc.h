/*
 * vector_quantize.inc.h - the codes of a tile of one source dtype in the vector vocabulary.
 * vector.inc.h includes it and says what must be defined.
 */

/* V_CODES elements of floats or a table, each vector of them with its own scales. */
static inline void NAME(quantize_valued)(const unsigned char *src, const struct v_scale scale[4],
                                         const struct v_valued *v, enum v_way way, uint8_t *codes)
{
    const int is_book = way == V_BOOK || way == V_BOOK_BOUNDED, bounded = v_is_bounded(way);
    vi q[4], t[4];
    for (size_t k = 0; k < 4; k++) {
        const vf x = V_LOAD(src + k * V_LANES * ELEM_BYTES);
        const vf number = bounded ? x : v_where_equal(x, x, x, v_set(0));
        const vf quotient = v_div(number, scale[k].s);
        t[k] = v_bits(quotient);
        q[k] = is_book ? v_book_codes(quotient, v) : v_float_codes(quotient, v, bounded);
    }
    if (is_book)
        v_store_bytes(codes, q);
    else
        v_store_signed(codes, q, t, v->sign);
}

/*
 * V_CODES elements, each vector of them with its own scales, each pair with its own zero points.
 * way is a constant where this is called.
 */
static inline void NAME(quantize_step)(const unsigned char *src, const struct v_scale scale[4],
                                       const vh above[2], const struct v_coder *coder,
                                       enum v_way way, uint8_t *codes)
{
    vf q[4];
    if (v_is_valued(way)) {
        NAME(quantize_valued)(src, scale, &coder->valued, way, codes);
        return;
    }
    for (size_t k = 0; k < 4; k++)
        q[k] = v_quotient(V_LOAD(src + k * V_LANES * ELEM_BYTES), &scale[k], way);
    if (way == V_PLAIN)
        v_store_steps(codes, q);
    else
        v_store_codes(codes, q, above, &coder->ends, way == V_BOUNDED || v_is_biased(way));
}

/* n < V_CODES elements, filled up with zeros. */
static inline void NAME(quantize_rest)(const unsigned char *src, size_t n,
                                       const struct v_scale scale[4], const vh above[2],
                                       const struct v_coder *coder, enum v_way way, uint8_t *codes)
{
    unsigned char from[V_CODES * ELEM_BYTES] = {0};
    uint8_t to[V_CODES];
    memcpy(from, src, n * ELEM_BYTES);
    NAME(quantize_step)(from, scale, above, coder, way, to);
    memcpy(codes, to, n);
}

/* n elements of one set, the k-th of a few. */
static inline void NAME(quantize_run)(const unsigned char *src, size_t n,
                                      const struct few_sets *few, size_t k,
                                      const struct v_coder *coder, enum v_way way, uint8_t *codes)
{
    const struct v_scale one = v_scale_of(few, k), scale[4] = {one, one, one, one};
    const vh all = vh_set((int16_t)few->above[k]), above[2] = {all, all};
    size_t i = 0;
    for (; i + V_CODES <= n; i += V_CODES)
        NAME(quantize_step)(src + i * ELEM_BYTES, scale, above, coder, way, codes + i);
    if (i < n)
        NAME(quantize_rest)(src + i * ELEM_BYTES, n - i, scale, above, coder, way, codes + i);
}

/* V_CODES elements of sets from k on, each of which has one vector or two. */
static inline void NAME(quantize_short)(const unsigned char *src, size_t width,
                                        const struct few_sets *few, size_t k,
                                        const struct v_coder *coder, enum v_way way, uint8_t *codes)
{
    const size_t second = k + (width == V_LANES), third = k + 2 * V_LANES / width;
    const size_t set[4] = {k, second, third, third + second - k};
    struct v_scale scale[4];
    vi above[4];
    for (size_t i = 0; i < 4; i++) {
        scale[i] = v_scale_of(few, set[i]);
        above[i] = vi_set(few->above[set[i]]);
    }
    const vh pairs[2] = {vh_narrow(above[0], above[1]), vh_narrow(above[2], above[3])};
    NAME(quantize_step)(src, scale, pairs, coder, way, codes);
}

/* A part of a row: n elements in runs of `width`, the first of which lacks `skip`. */
static inline void NAME(quantize_runs)(const unsigned char *src, size_t n, size_t width,
                                       size_t skip, const struct few_sets *few,
                                       const struct v_coder *coder, enum v_way way, uint8_t *codes)
{
    size_t i = 0, k = 0;
    if (skip == 0 && (width == V_LANES || width == 2 * V_LANES)) {
        for (; i + V_CODES <= n; i += V_CODES, k += V_CODES / width)
            NAME(quantize_short)(src + i * ELEM_BYTES, width, few, k, coder, way, codes + i);
    }
    for (; i < n; k++) {
        const size_t most = width - (k == 0 ? skip : 0), len = n - i < most ? n - i : most;
        NAME(quantize_run)(src + i * ELEM_BYTES, len, few, k, coder, way, codes + i);
        i += len;
    }
}

/* n <= FEW_SETS columns of a row that are sets of their own. */
static inline void NAME(quantize_columns)(const unsigned char *src, size_t n,
                                          const struct few_sets *few, const struct v_coder *coder,
                                          enum v_way way, uint8_t *codes)
{
    for (size_t i = 0; i < n; i += V_CODES) {
        struct v_scale scale[4];
        vh above[2];
        for (size_t k = 0; k < 4; k++)
            scale[k] = v_scales_at(few, i + k * V_LANES);
        for (size_t k = 0; k < 2; k++) {
            const int32_t *from = few->above + i + 2 * k * V_LANES;
            above[k] = vh_narrow(vi_load(from), vi_load(from + V_LANES));
        }
        const unsigned char *from = src + i * ELEM_BYTES;
        if (n - i >= V_CODES)
            NAME(quantize_step)(from, scale, above, coder, way, codes + i);
        else
            NAME(quantize_rest)(from, n - i, scale, above, coder, way, codes + i);
    }
}

/* The rows of a band, a few sets at a time. */
static inline void NAME(quantize_band)(const struct quantize_job *job, const struct qp_band *band,
                                       const unsigned char *src, enum v_way way, uint8_t *codes)
{
    const struct qp_tile *tile = &job->tile;
    const size_t sets = job->n_cols, width = tile->col_width;
    const struct v_coder coder = job->coder; /* its own: codes are bytes, which might be any type */
    struct few_sets few;
    for (size_t k = 0, col = 0; k < sets; k += FEW_SETS) {
        const size_t n = sets - k < FEW_SETS ? sets - k : FEW_SETS, set = band->set + k;
        const size_t skip = k == 0 ? tile->col_skip : 0, left = tile->cols - col;
        const size_t n_cols = n * width - skip < left ? n * width - skip : left;
        few_sets_of(job->rule, job->scale + set, job->zero + set, n, &few);
        for (size_t row = 0; row < band->n_rows; row++) {
            const size_t at = row * tile->cols + col;
            const unsigned char *from = src + at * ELEM_BYTES;
            if (width == 1)
                NAME(quantize_columns)(from, n, &few, &coder, way, codes + at);
            else
                NAME(quantize_runs)(from, n_cols, width, skip, &few, &coder, way, codes + at);
        }
        col += n_cols;
    }
}

static inline void NAME(quantize_tile)(const struct quantize_job *job, const unsigned char *src,
                                       enum v_way way, uint8_t *codes)
{
    FOR_EACH_BAND(&job->tile, band)
    {
        const size_t at = band.row * job->tile.cols;
        NAME(quantize_band)(job, &band, src + at * ELEM_BYTES, way, codes + at);
    }
}

/* A loop for each way. */
static void NAME(quantize)(const struct qp_tile *tile, const void *src,
                           const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                           uint8_t *codes)
{
    const size_t width = qp_even_runs(tile);
    const struct qp_tile row = {1, tile->rows * tile->cols, 1, width, 0};
    const size_t n_cols = width ? tile->rows * (tile->cols / width) : qp_tile_cols(tile);
    const struct quantize_job job = {width ? row : *tile, n_cols, rule, scale, zero,
                                     v_coder_of(rule)};
    const enum v_way way = v_way_of(rule, scale, zero, width ? n_cols : qp_tile_sets(tile));
    switch (way) {
    case V_DIVIDE:
        NAME(quantize_tile)(&job, src, V_DIVIDE, codes);
        break;
    case V_CLAMP:
        NAME(quantize_tile)(&job, src, V_CLAMP, codes);
        break;
    case V_BOUNDED:
        NAME(quantize_tile)(&job, src, V_BOUNDED, codes);
        break;
    case V_PLAIN:
        NAME(quantize_tile)(&job, src, V_PLAIN, codes);
        break;
    case V_BIAS_DIVIDE:
        NAME(quantize_tile)(&job, src, V_BIAS_DIVIDE, codes);
        break;
    case V_BIAS_CLAMP:
        NAME(quantize_tile)(&job, src, V_BIAS_CLAMP, codes);
        break;
    case V_BIAS_BOUNDED:
        NAME(quantize_tile)(&job, src, V_BIAS_BOUNDED, codes);
        break;
    case V_FLOAT:
        NAME(quantize_tile)(&job, src, V_FLOAT, codes);
        break;
    case V_BOOK:
        NAME(quantize_tile)(&job, src, V_BOOK, codes);
        break;
    case V_FLOAT_BOUNDED:
        NAME(quantize_tile)(&job, src, V_FLOAT_BOUNDED, codes);
        break;
    case V_BOOK_BOUNDED:
        NAME(quantize_tile)(&job, src, V_BOOK_BOUNDED, codes);
        break;
    }
}
