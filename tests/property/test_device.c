/*
 * test_device.c - the device text, as host C, against the scalar kernels: the fixed vectors that a
 * device is proven on, and tiles of random geometry full of random bits.
 */
#include "tests/unit/support.h"

#include "lib/device/prove.h"
#include "lib/ops/op_device.h"
#include "lib/run/cut.h"
#include "tests/gpu/host_backend.h"

#define TILE_BYTES ((size_t)256 << 10)
#define N_TILES    500
#define MOST_SETS  (TILE_BYTES / 64)

static uint64_t seed = 88172645463325252u;

static uint64_t next_bits(void)
{
    return random_bits(&seed);
}

/* From 1 to most; small numbers and multiples of 8 are as likely as all others. */
static size_t random_size(size_t most)
{
    size_t n = 1 + next_bits() % most;
    switch (next_bits() % 4) {
    case 0:
        return 1 + n % 9;
    case 1:
        return n < 8 ? n : n / 8 * 8;
    default:
        return n;
    }
}

static struct qp_tile random_tile(size_t most_elems)
{
    for (;;) {
        struct qp_tile tile = {.cols = random_size(next_bits() % 2 ? 300 : 20000)};
        tile.rows = random_size(most_elems / tile.cols + 1);
        tile.band_rows = next_bits() % 3 ? random_size(tile.rows) : 1;
        tile.col_width = random_size(tile.cols * 2);
        if (next_bits() % 8 == 0)
            tile.col_width += (size_t)1 << 40;
        tile.col_skip = next_bits() % 2 ? next_bits() % tile.col_width : 0;
        if (tile.rows * tile.cols <= most_elems && qp_tile_sets(&tile) <= MOST_SETS)
            return tile;
    }
}

static struct qp_device_work random_work(void)
{
    static const enum qplan_dtype floats[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
    struct qplan_scheme scheme = {.dtype = qp_code_types[next_bits() % 14].dtype,
                                  .asymmetric = next_bits() % 2,
                                  .scale_dtype = floats[next_bits() % 3]};
    scheme.narrow = qplan_dtype_is_signed(scheme.dtype) && next_bits() % 2;
    scheme.bias = !qplan_dtype_is_signed(scheme.dtype) && next_bits() % 2;
    struct qp_device_work work = {.dtype = floats[next_bits() % 4],
                                  .rule = qp_code_rule(&scheme),
                                  .packed = qplan_dtype_bits(scheme.dtype) == 4 && next_bits() % 4};
    work.tile = random_tile(TILE_BYTES / qp_float_bytes(work.dtype));
    work.last_len = next_bits() % 2 ? work.tile.cols : random_size(work.tile.cols * 2);
    if (next_bits() % 8 == 0)
        work.last_len += (uint64_t)1 << 41;
    work.phase = next_bits() % 2 ? next_bits() % work.last_len & ~(uint64_t)1 : 0;
    return work;
}

/* Random bits are of any magnitude; so that scales are not all too large, most are moderate. */
static void fill(void *src, const struct qp_device_work *work)
{
    const size_t n = work->tile.rows * work->tile.cols, size = qp_float_bytes(work->dtype);
    const bool wild = next_bits() % 4 == 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = next_bits();
        double x = (double)(int64_t)bits * 0x1p-60;
        float narrow = (float)x;
        char *to = (char *)src + i * size;
        if (wild || bits % 64 == 0)
            memcpy(to, &bits, size);
        else if (work->dtype == QPLAN_F64)
            memcpy(to, &x, size);
        else
            qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR)
                ->work->store(work->dtype, 1, &narrow, to);
    }
}

/* ---- The tests --------------------------------------------------------------------------------
 */

static void assert_ok(enum qplan_status status, const struct qplan_error *err,
                      const struct qp_device_work *w)
{
    if (status != QPLAN_OK)
        fail_msg(
            "%s: %s; tile %zux%zu bands %zu sets %zu skip %zu, codes %s, rows of %llu from %llu",
            err->subject, err->message, w->tile.rows, w->tile.cols, w->tile.band_rows,
            w->tile.col_width, w->tile.col_skip, w->packed ? "packed" : "bytes",
            (unsigned long long)w->last_len, (unsigned long long)w->phase);
}

/* What makes codes may have either sign, though what makes parameters gives none below 0. */
static void negate_some(const struct qp_device_work *work, void *scale)
{
    for (size_t i = 0; i < qp_tile_sets(&work->tile); i++) {
        const int sign = next_bits() % 2 ? 1 : -1;
        if (work->dtype == QPLAN_F64)
            ((double *)scale)[i] *= sign;
        else
            ((float *)scale)[i] *= (float)sign;
    }
}

static void one_tile(struct qp_lane *lane, const struct qp_device_work *work, const void *src,
                     void *buffer, const struct qp_device_scratch *scratch)
{
    struct qplan_device device = host_device(&host_gpu);
    const size_t n = qp_tile_sets(&work->tile);
    struct qplan_error err;
    struct qp_device_made made;
    if (work->rule.kind == QP_CODES_LINEAR) {
        assert_ok(qp_device_quantize(lane, work, src, buffer, &made, &err), &err, work);
        assert_ok(qp_device_check_quantized(&device, work, src, &made, scratch, &err), &err, work);
    }
    assert_ok(qp_device_ranges(lane, work, src, buffer, &made, &err), &err, work);
    assert_ok(qp_device_check_ranges(&device, work, src, &made, scratch, &err), &err, work);
    if (qp_quantizer(work->dtype, work->rule.kind, QPLAN_ISA_SCALAR)
            ->params(&work->rule, n, scratch->lo, scratch->hi, scratch->scale, scratch->zero) < n)
        return;
    negate_some(work, scratch->scale);
    assert_ok(qp_device_codes(lane, work, src, scratch->scale, scratch->zero, buffer, &made, &err),
              &err, work);
    assert_ok(qp_device_check_codes(&device, work, src, scratch->scale, scratch->zero, &made,
                                    scratch, &err),
              &err, work);
}

static void test_random_tiles(void **state)
{
    (void)state;
    struct qp_lane *lane;
    struct qp_device_scratch scratch = {malloc(MOST_SETS * 8), malloc(MOST_SETS * 8),
                                        malloc(MOST_SETS * 8), malloc(MOST_SETS * 4),
                                        malloc(MOST_SETS * 4), malloc(TILE_BYTES)};
    void *buffer = malloc(qp_device_made_bytes(TILE_BYTES));
    assert_int_equal(host_backend.alloc(&lane, &host_gpu, qp_device_block_bytes(TILE_BYTES), NULL),
                     QPLAN_OK);
    for (int i = 0; i < N_TILES; i++) {
        struct qp_device_work work = random_work();
        void *src = malloc(TILE_BYTES);
        fill(src, &work);
        one_tile(lane, &work, src, buffer, &scratch);
        free(src);
    }
    host_backend.free(lane);
    free(buffer);
    free(scratch.lo);
    free(scratch.hi);
    free(scratch.scale);
    free(scratch.zero);
    free(scratch.stored);
    free(scratch.codes);
}

static void test_self_test(void **state)
{
    struct qplan_error err = {0};
    (void)state;
    OK(qp_self_test(&host_gpu, &err), &err);
}

/* A kernel that gives one other bit: no result that it makes may pass. */
static enum qplan_status wrong_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                    void *host, struct qplan_error *err)
{
    QP_TRY(host_copy(lane, way, span, host, err));
    if (way == QP_COPY_OUT && span.n > 64)
        ((unsigned char *)host)[64] ^= 1;
    return QPLAN_OK;
}

static void test_a_wrong_bit_is_found(void **state)
{
    struct qp_backend backend = host_backend;
    struct qp_gpu gpu = host_gpu;
    struct qplan_error err = {0};
    (void)state;
    backend.copy = wrong_copy;
    gpu.backend = &backend;
    assert_int_equal(qp_self_test(&gpu, &err), QPLAN_ERR_DEVICE);
    assert_string_equal(err.subject, "host");
    assert_non_null(strstr(err.message, "does not compute as the CPU does: a"));
    struct qplan_device device = host_device(&gpu);
    assert_int_equal(qp_op_prove_all(&device, NULL, &err), QPLAN_ERR_DEVICE);
    assert_string_equal(err.subject, "host");
    assert_non_null(strstr(err.message, "does not compute as the CPU does: quantize_per_tensor"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_test),
        cmocka_unit_test(test_random_tiles),
        cmocka_unit_test(test_a_wrong_bit_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
