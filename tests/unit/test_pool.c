/*
 * test_pool.c - teams of workers: the caller's rounding mode and flush-to-zero neither change a
 * result nor get lost (row F16 of the fault table); progress, cancelling.
 */
#include "support.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#if defined(__x86_64__)
#include <xmmintrin.h>

#define FLUSH_AND_DENORMALS_ARE_ZERO 0x8040u /* of MXCSR */
#endif

#include "lib/base/pool.h"

static struct folder folder;

/* ---- A source that any other mode would change ----------------------------------------------- */

#define N_ROWS 24
#define N_COLS 50

/* Rows of ordinary values, of subnormals, and of both. */
static double value_at(size_t i, double least, uint64_t *seed)
{
    double x = random_signed(seed);
    size_t kind = i / N_COLS % 3;
    return kind == 0 ? x : kind == 1 ? x * least * 1000 : i % 2 ? x : x * least;
}

static void write_source(const char *path)
{
    static double f64[N_ROWS * N_COLS];
    static float f32[N_ROWS * N_COLS];
    static uint16_t f16[N_ROWS * N_COLS], bf16[N_ROWS * N_COLS];
    uint64_t seed = 1;
    for (size_t i = 0; i < N_ROWS * N_COLS; i++) {
        f64[i] = value_at(i, 0x1p-1074, &seed);
        f32[i] = (float)value_at(i, 0x1p-149, &seed);
        f16[i] = (uint16_t)(random_bits(&seed) & (i / N_COLS % 3 == 1 ? 0x83ff : 0xbbff));
        bf16[i] = (uint16_t)(random_bits(&seed) & (i / N_COLS % 3 == 1 ? 0x807f : 0xbfff));
    }
    const struct tensor tensors[] = {
        {"a", "F64", 2, {N_ROWS, N_COLS}, f64, sizeof f64},
        {"b", "F32", 2, {N_ROWS, N_COLS}, f32, sizeof f32},
        {"c", "F16", 2, {N_ROWS, N_COLS}, f16, sizeof f16},
        {"d", "BF16", 2, {N_ROWS, N_COLS}, bf16, sizeof bf16},
    };
    write_checkpoint(path, NULL, tensors, COUNT(tensors));
}

static int make_source(void **state)
{
    (void)state;
    folder_make(&folder);
    write_source(in_folder(&folder, "in"));
    return 0;
}

static int remove_source(void **state)
{
    (void)state;
    folder_remove(&folder);
    return 0;
}

/* ---- Modes ----------------------------------------------------------------------------------- */

struct mode {
    int rounding;
    bool flush;
};

static const struct mode modes[] = {
    {FE_UPWARD, false},   {FE_DOWNWARD, false}, {FE_TOWARDZERO, false},
    {FE_TONEAREST, true}, {FE_UPWARD, true},
};

static void set_mode(const struct mode *mode)
{
    assert_int_equal(fesetround(mode->rounding), 0);
#if defined(__x86_64__)
    unsigned rest = _mm_getcsr() & ~FLUSH_AND_DENORMALS_ARE_ZERO;
    _mm_setcsr(mode->flush ? rest | FLUSH_AND_DENORMALS_ARE_ZERO : rest);
#endif
}

static bool is_mode(const struct mode *mode)
{
    bool same = fegetround() == mode->rounding;
#if defined(__x86_64__)
    unsigned flush = _mm_getcsr() & FLUSH_AND_DENORMALS_ARE_ZERO;
    same = same && flush == (mode->flush ? FLUSH_AND_DENORMALS_ARE_ZERO : 0);
#endif
    return same;
}

static const struct mode usual = {FE_TONEAREST, false};

static const char *const schemes[] = {"int8:c0",           "int8:t:asym:f16", "uint8:g7:bf16",
                                      "int4:g16:asym:f16", "uint4:b3x11",     "int4:c1:narrow"};

static void the_callers_mode_changes_no_byte_and_stays(void **state)
{
    struct qplan_error err;
    (void)state;
    for (size_t s = 0; s < COUNT(schemes); s++) {
        struct qplan_run run = {.threads = 1, .force = true};
        OK(quantize_file(in_folder(&folder, "in"), in_folder(&folder, "usual"), schemes[s], &run,
                         &err),
           &err);
        for (size_t i = 0; i < COUNT(modes) * 2; i++) {
            run.threads = i % 2 ? 3 : 1;
            set_mode(&modes[i / 2]);
            enum qplan_status status = quantize_file(
                in_folder(&folder, "in"), in_folder(&folder, "out"), schemes[s], &run, &err);
            enum qplan_status proof =
                verify_file(in_folder(&folder, "out"), in_folder(&folder, "in"), NULL);
            bool stays = is_mode(&modes[i / 2]);
            set_mode(&usual);
            OK(status, &err);
            assert_int_equal(proof, QPLAN_OK);
            assert_true(stays);
            assert_true(same_files(in_folder(&folder, "usual"), in_folder(&folder, "out")));
        }
    }
}

/* Dequantizes a file in a mode, into the dtype that rounds most. */
static void dequantize_in(const struct mode *mode, const char *from, const char *to)
{
    const enum qplan_dtype dtype = QPLAN_F16;
    const struct qplan_run run = {.threads = 2, .force = true};
    struct qplan_report *report;
    struct qplan_error err;
    struct qplan_checkpoint *file = open_checkpoint(from);
    set_mode(mode);
    enum qplan_status status = qplan_dequantize(&report, file, to, &dtype, &run, &err);
    bool stays = is_mode(mode);
    set_mode(&usual);
    OK(status, &err);
    assert_true(stays);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
}

static void the_callers_mode_changes_no_decoded_byte(void **state)
{
    struct qplan_error err;
    const struct qplan_run run = {.force = true};
    (void)state;
    OK(quantize_file(in_folder(&folder, "in"), in_folder(&folder, "q"), "int8:c0:asym", &run, &err),
       &err);
    dequantize_in(&usual, in_folder(&folder, "q"), in_folder(&folder, "usual"));
    for (size_t i = 0; i < COUNT(modes); i++) {
        dequantize_in(&modes[i], in_folder(&folder, "q"), in_folder(&folder, "out"));
        assert_true(same_files(in_folder(&folder, "usual"), in_folder(&folder, "out")));
    }
}

/* The report of a verification, as JSON, made in a mode. */
static struct text report_in(const struct mode *mode)
{
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "q"));
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "in"));
    const struct qplan_inspect_options options = {.against = source, .prove = true};
    struct qplan_report *report;
    struct qplan_error err;
    struct text text = {0};
    set_mode(mode);
    enum qplan_status status = qplan_inspect(&report, file, &options, NULL, &err);
    if (status == QPLAN_OK)
        status = qplan_report_write_json(report, text_add, &text, &err);
    set_mode(&usual);
    OK(status, &err);
    qplan_report_free(report);
    qplan_checkpoint_close(source);
    qplan_checkpoint_close(file);
    return text;
}

static void the_callers_mode_changes_no_report(void **state)
{
    struct qplan_error err;
    const struct qplan_run run = {.force = true};
    (void)state;
    OK(quantize_file(in_folder(&folder, "in"), in_folder(&folder, "q"), "int8:c0:asym", &run, &err),
       &err);
    struct text expected = report_in(&usual);
    for (size_t i = 0; i < COUNT(modes); i++) {
        struct text found = report_in(&modes[i]);
        assert_string_equal(found.data, expected.data);
        text_free(&found);
    }
    text_free(&expected);
}

/* ---- Teams ----------------------------------------------------------------------------------- */

#define MOST_WORKERS 40

struct team {
    pthread_mutex_t lock;
    unsigned seen[MOST_WORKERS];
    bool wrong_mode;
};

static void take_part(void *ctx, unsigned worker)
{
    struct team *team = ctx;
    (void)pthread_mutex_lock(&team->lock);
    team->wrong_mode |= !is_mode(&usual);
    if (worker < MOST_WORKERS)
        team->seen[worker]++;
    (void)pthread_mutex_unlock(&team->lock);
    (void)fesetround(FE_DOWNWARD); /* what a worker does stays its own */
}

static void every_worker_runs_once_in_the_default_mode(void **state)
{
    (void)state;
    for (unsigned n = 0; n <= MOST_WORKERS; n++) {
        struct team team = {.lock = PTHREAD_MUTEX_INITIALIZER};
        set_mode(&modes[4]);
        unsigned ran = qp_team_run(n, take_part, &team);
        bool stays = is_mode(&modes[4]);
        set_mode(&usual);
        assert_true(stays);
        assert_false(team.wrong_mode);
        assert_int_equal(ran, n ? n : 1); /* the caller always takes part */
        for (unsigned i = 0; i < MOST_WORKERS; i++)
            assert_int_equal(team.seen[i], i < ran);
    }
}

/* The first CPU of a mask alone. */
static cpu_set_t first_cpu(const cpu_set_t *cpus)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, cpus))
            CPU_SET(i, &one);
    }
    return one;
}

static void cpus_are_those_of_the_affinity_mask(void **state)
{
    cpu_set_t before;
    (void)state;
    assert_true(qp_cpu_count() >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    const cpu_set_t one = first_cpu(&before);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    unsigned n = qp_cpu_count();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(n, 1);
}

struct masks {
    pthread_mutex_t lock;
    cpu_set_t expected;
    unsigned n, n_wrong;
};

static void look_at_mask(void *ctx, unsigned worker)
{
    struct masks *masks = ctx;
    cpu_set_t own;
    (void)worker;
    const bool known = sched_getaffinity(0, sizeof own, &own) == 0;
    (void)pthread_mutex_lock(&masks->lock);
    masks->n++;
    masks->n_wrong += !known || !CPU_EQUAL(&own, &masks->expected);
    (void)pthread_mutex_unlock(&masks->lock);
}

/* Wherever they begin. */
static void workers_may_run_where_their_caller_may(void **state)
{
    cpu_set_t before;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    const cpu_set_t sets[] = {before, first_cpu(&before)};
    for (size_t i = 0; i < COUNT(sets); i++) {
        struct masks masks = {.lock = PTHREAD_MUTEX_INITIALIZER, .expected = sets[i]};
        assert_int_equal(sched_setaffinity(0, sizeof sets[i], &sets[i]), 0);
        unsigned ran = qp_team_run(5, look_at_mask, &masks);
        assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
        assert_int_equal(ran, 5);
        assert_int_equal(masks.n, 5);
        assert_int_equal(masks.n_wrong, 0);
    }
}

/* ---- Progress and cancelling ----------------------------------------------------------------- */

struct watch {
    uint64_t done, total;
    bool went_back;
    volatile sig_atomic_t cancel;
    uint64_t cancel_at;
};

static void watch_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct watch *watch = ctx;
    watch->went_back |= done < watch->done || done > total;
    watch->done = done;
    watch->total = total;
    if (done >= watch->cancel_at)
        watch->cancel = 1;
}

static void progress_ends_at_the_bytes_of_the_source(void **state)
{
    struct qplan_error err;
    (void)state;
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct watch watch = {.cancel_at = UINT64_MAX};
        const struct qplan_run run = {.threads = threads,
                                      .memory_bytes = 4 << 20,
                                      .force = true,
                                      .progress = watch_progress,
                                      .progress_ctx = &watch};
        OK(quantize_file(in_folder(&folder, "in"), in_folder(&folder, "out"), "int8:t", &run, &err),
           &err);
        assert_false(watch.went_back);
        assert_int_equal(watch.total, N_ROWS * N_COLS * (8 + 4 + 2 + 2));
        assert_int_equal(watch.done, watch.total);
    }
}

static void a_cancelled_job_leaves_nothing(void **state)
{
    struct qplan_error err;
    size_t before = folder_count(&folder);
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct watch watch = {.cancel_at = i < 2 ? 0 : 5000, .cancel = i == 0};
        const struct qplan_run run = {.threads = 1 + i % 3,
                                      .progress = watch_progress,
                                      .progress_ctx = &watch,
                                      .cancel = &watch.cancel};
        enum qplan_status status = quantize_file(
            in_folder(&folder, "in"), in_folder(&folder, "cancelled"), "int8:c0", &run, &err);
        assert_int_equal(status, QPLAN_ERR_CANCELLED);
        assert_int_equal(folder_count(&folder), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_callers_mode_changes_no_byte_and_stays),
        cmocka_unit_test(the_callers_mode_changes_no_decoded_byte),
        cmocka_unit_test(the_callers_mode_changes_no_report),
        cmocka_unit_test(every_worker_runs_once_in_the_default_mode),
        cmocka_unit_test(cpus_are_those_of_the_affinity_mask),
        cmocka_unit_test(workers_may_run_where_their_caller_may),
        cmocka_unit_test(progress_ends_at_the_bytes_of_the_source),
        cmocka_unit_test(a_cancelled_job_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_source, remove_source);
}
