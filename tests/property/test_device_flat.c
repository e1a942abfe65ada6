/*
 * test_device_flat.c - the way back on devices, as host C, against the scalar kernels: flat ranges
 * of random tensors, schemes and parameters; and the windows of sets that they need.
 */
#include "tests/unit/support.h"

#include "lib/device/prove.h"
#include "tests/gpu/host_backend.h"

#define TILE_BYTES ((size_t)128 << 10)
#define MOST_ELEMS (TILE_BYTES / sizeof(double))
#define N_RANGES   1500

static uint64_t seed = 6364136223846793005u;

static uint64_t below(uint64_t n)
{
    return random_below(&seed, n);
}

/* ---- Random work ------------------------------------------------------------------------------
 */

/* Small, a multiple of 8, of the size of a block, or longer than 32 bits can count. */
static uint64_t random_extent(bool may_be_long)
{
    switch (below(may_be_long ? 9 : 8)) {
    case 0:
    case 1:
        return 1 + below(9);
    case 2:
    case 3:
        return 8 * (1 + below(40));
    case 4:
        return QP_BLOCK + below(9);
    case 8:
        return ((uint64_t)1 << 33) + below(100000);
    default:
        return 1 + below(700);
    }
}

static struct qplan_scheme random_scheme(unsigned rank)
{
    struct qplan_scheme scheme = {.dtype = qp_code_types[below(14)].dtype,
                                  .granularity = (enum qplan_granularity)below(rank > 1 ? 4 : 3),
                                  .axis = (int32_t)below(rank),
                                  .group = random_extent(false),
                                  .block_rows = random_extent(false),
                                  .block_cols = random_extent(false),
                                  .scale_dtype = QPLAN_F32};
    scheme.narrow = qplan_dtype_is_signed(scheme.dtype) && below(2);
    return scheme;
}

/* A range anywhere in the tensor, mostly from a place where something ends. */
static void random_range(struct qp_flat_work *work)
{
    const struct qp_sets *sets = &work->sets;
    const uint64_t near[] = {0, sets->row_len, sets->last_len, sets->n_elems, below(sets->n_elems)};
    const uint64_t back = below(2 * QP_BLOCK), at = near[below(COUNT(near))] * (1 + below(3));
    work->elem = at < back ? 0 : at - back;
    if (work->elem >= sets->n_elems)
        work->elem = sets->n_elems - 1;
    work->n = 1 + below(below(2) ? MOST_ELEMS : 700);
    if (work->n > sets->n_elems - work->elem)
        work->n = sets->n_elems - work->elem;
    work->n =
        qp_window_fit(sets, work->elem, work->n, qp_flat_window_sets(TILE_BYTES), &work->window);
}

static struct qp_flat_work random_work(void)
{
    static const enum qplan_dtype floats[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
    const unsigned rank = 1 + (unsigned)below(3);
    const uint64_t shape[3] = {random_extent(false), random_extent(rank < 3), random_extent(false)};
    const struct qplan_scheme scheme = random_scheme(rank);
    struct qp_flat_work work = {.dtype = floats[below(4)],
                                .rule = qp_code_rule(&scheme),
                                .packed = qplan_dtype_bits(scheme.dtype) == 4};
    work.as = floats[below(work.dtype == QPLAN_F64 ? 4 : 3)];
    qp_sets_make(&work.sets, &scheme, shape, rank);
    random_range(&work);
    return work;
}

/* ---- Random data ------------------------------------------------------------------------------
 */

struct data {
    uint8_t *codes;
    void *scale, *src;
    int32_t *zero;
    double *bound;
};

/* Blocks of exactly what is needed, so that a sanitizer sees their ends. */
static struct data allocate(const struct qp_flat_work *work)
{
    const size_t n = (size_t)(work->window.n + work->window.more);
    return (struct data){malloc(qp_flat_code_bytes(work)), malloc(n * sizeof(double)),
                         malloc((size_t)work->n * sizeof(double)), malloc(n * sizeof(int32_t)),
                         malloc(n * sizeof(double))};
}

static void release(struct data *d)
{
    free(d->codes);
    free(d->scale);
    free(d->src);
    free(d->zero);
    free(d->bound);
}

/* usable: numbers of either sign; others may be anything, for verify tells of them. */
static void fill_params(const struct data *d, const struct qp_flat_work *work, bool usable)
{
    const struct qp_work_kernels *k = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR)->work;
    const size_t n = (size_t)(work->window.n + work->window.more);
    for (size_t i = 0; i < n; i++) {
        uint32_t word = (uint32_t)random_bits(&seed) & (usable ? 0xff7fffffu : 0xffffffffu);
        float scale;
        memcpy(&scale, &word, sizeof scale);
        scale = usable && scale == 0 ? 1 : scale;
        scale = below(2) ? 0.125f * (float)(1 + below(7)) * (below(2) ? 1 : -1) : scale;
        if (k->work == QPLAN_F64)
            ((double *)d->scale)[i] = (double)scale;
        else
            ((float *)d->scale)[i] = scale;
        d->zero[i] =
            work->rule.q_min + (int32_t)below((uint64_t)(work->rule.q_max - work->rule.q_min) + 1);
    }
    k->bounds(n, d->scale, d->zero, &work->rule, d->bound);
}

static void fill_codes(const struct data *d, const struct qp_flat_work *work)
{
    const size_t n = qp_flat_code_bytes(work);
    for (size_t i = 0; i < n; i++)
        d->codes[i] = (uint8_t)random_bits(&seed);
}

/* Random bits, and values about the decoded ones. */
static void fill_source(const struct data *d, const struct qp_flat_work *work,
                        const struct qp_flat_data *data, const struct qp_flat_scratch *s)
{
    const struct qp_source_kernels *k = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR);
    const bool wild = below(4) == 0;
    for (uint64_t i = 0; i < work->n; i++) {
        const uint64_t bits = random_bits(&seed);
        const size_t at = (size_t)(i % QP_BLOCK);
        char *to = (char *)d->src + i * k->elem_bytes;
        if (at == 0)
            qp_flat_decode_block(work, data, i, s);
        const double noise = 0.3 * random_signed(&seed);
        const float near = ((const float *)s->y)[at] + (float)noise;
        const double near64 = ((const double *)s->y)[at] + noise;
        if (wild || bits % 64 == 0)
            memcpy(to, &bits, k->elem_bytes);
        else
            k->work->store(work->dtype, 1,
                           k->work->work == QPLAN_F64 ? (const void *)&near64 : &near, to);
    }
}

/* ---- The tests --------------------------------------------------------------------------------
 */

/* Every set that an element of the range has is in the window, where the window says. */
static void check_window(const struct qp_flat_work *work)
{
    const struct qp_sets *sets = &work->sets;
    const struct qp_set_window *w = &work->window;
    assert_true(w->n + w->more <= qp_flat_window_sets(TILE_BYTES));
    for (uint64_t i = 0; i < work->n; i++) {
        const uint64_t elem = work->elem + i, row = elem / sets->row_len;
        const uint64_t band = row / sets->period_rows * sets->period_bands +
                              row % sets->period_rows / sets->band_rows;
        const uint64_t set = band * sets->n_cols + elem % sets->row_len / sets->col_width;
        const uint64_t at = qp_window_place(w, set);
        assert_true(at < w->n + w->more);
        assert_int_equal(at < w->n ? w->set + at : w->more_set + (at - w->n), set);
    }
}

static void assert_ok(enum qplan_status status, const struct qplan_error *err,
                      const struct qp_flat_work *w)
{
    if (status != QPLAN_OK)
        fail_msg("%s: %s; elements %" PRIu64 " from %" PRIu64 ", rows of %" PRIu64
                 ", bands of %" PRIu64 " of %" PRIu64 ", sets of %" PRIu64 ", codes %s in rows of "
                 "%" PRIu64,
                 err->subject, err->message, w->n, w->elem, w->sets.row_len, w->sets.band_rows,
                 w->sets.period_rows, w->sets.col_width, w->packed ? "packed" : "bytes",
                 w->sets.last_len);
}

static void one_range(struct qp_lane *lane, const struct qp_flat_scratch *scratch, void *found)
{
    struct qplan_device device = host_device(&host_gpu);
    struct qplan_error err;
    const struct qp_flat_work work = random_work();
    struct data d = allocate(&work);
    const struct qp_flat_data data = {d.codes, d.scale, d.zero, d.src, d.bound};
    void *out = malloc((size_t)work.n * qp_float_bytes(work.as));
    check_window(&work);
    fill_codes(&d, &work);
    fill_params(&d, &work, true);
    assert_ok(qp_device_decode(lane, &work, &data, out, &err), &err, &work);
    assert_ok(qp_device_check_decoded(&device, &work, &data, out, scratch, &err), &err, &work);
    fill_params(&d, &work, below(2));
    fill_source(&d, &work, &data, scratch);
    assert_ok(qp_device_measure(lane, &work, &data, found, &err), &err, &work);
    assert_ok(qp_device_check_measured(&device, &work, &data, found, scratch, &err), &err, &work);
    free(out);
    release(&d);
}

static void test_random_ranges(void **state)
{
    struct qp_flat_scratch scratch = {malloc(QP_BLOCK + 1), malloc(QP_BLOCK * sizeof(double)),
                                      malloc(QP_BLOCK * sizeof(double))};
    void *found = malloc(qp_flat_found_bytes(TILE_BYTES));
    struct qp_lane *lane;
    (void)state;
    memset(scratch.y, 0, QP_BLOCK * sizeof(double));
    assert_int_equal(host_backend.alloc(&lane, &host_gpu, qp_flat_block_bytes(TILE_BYTES), NULL),
                     QPLAN_OK);
    for (int i = 0; i < N_RANGES; i++)
        one_range(lane, &scratch, found);
    host_backend.free(lane);
    free(found);
    free(scratch.codes);
    free(scratch.y);
    free(scratch.stored);
}

/* Which bit of the results is another one, and how many have been copied out. */
static uint64_t flipped_bit;

static enum qplan_status flip_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                   void *host, struct qplan_error *err)
{
    QP_TRY(host_copy(lane, way, span, host, err));
    if (way == QP_COPY_OUT)
        ((unsigned char *)host)[flipped_bit / 8 % span.n] ^= (unsigned char)(1 << flipped_bit % 8);
    return QPLAN_OK;
}

/* One bit of a value, of a sum or of a count: no result may pass with it. */
static void test_any_wrong_bit_is_found(void **state)
{
    static const enum qp_device_kind kinds[] = {QP_KIND_DECODE, QP_KIND_MEASURE};
    struct qp_backend backend = host_backend;
    struct qp_gpu gpu = host_gpu;
    (void)state;
    backend.copy = flip_copy;
    gpu.backend = &backend;
    for (size_t i = 0; i < 2 * 200; i++) {
        const struct qp_device_row row = {.kind = kinds[i % 2],
                                          .dtype = QPLAN_F32,
                                          .scheme = {.dtype = QPLAN_INT4},
                                          .as = QPLAN_F16};
        const uint32_t number = qp_row_number(&row);
        struct qplan_device device = host_device(&gpu);
        struct qplan_error err = {0};
        flipped_bit = below(8 * 40);
        assert_int_equal(qp_device_prove_rows(&device, &number, 1, &err), QPLAN_ERR_DEVICE);
        assert_string_equal(err.subject, "host");
        assert_non_null(strstr(err.message, "does not compute as the CPU does"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_ranges),
        cmocka_unit_test(test_any_wrong_bit_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
