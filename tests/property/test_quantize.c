/*
 * test_quantize.c - whole jobs on random tensors: every file that quantize writes is proven by
 * verify and by a decoder of this test's own; a changed bit is found where it matters, and only
 * there, with tensor and coordinates; quantizing what was decoded gives the codes again.
 */
#include "tests/unit/own_folder.h"

#include <float.h>

#include "kernels/dtypes/narrow.h"

static const char *path_of(const char *name)
{
    return in_folder(&folder, name);
}

/* ---- Random sources -------------------------------------------------------------------------- */

#define MOST_ELEMS 3000

static const enum qplan_dtype dtypes[] = {QPLAN_F64, QPLAN_F32, QPLAN_F16, QPLAN_BF16};
static const char *const storages[] = {"F64", "F32", "F16", "BF16"};

/* The source tensor "w", and beside it a kept one. */
struct source {
    enum qplan_dtype dtype;
    uint64_t shape[4];
    unsigned rank;
    uint64_t n;
    unsigned char bytes[MOST_ELEMS * 8];
};

static size_t elem_bytes(const struct source *s)
{
    return qplan_dtype_bits(s->dtype) / 8;
}

static double source_at(const struct source *s, uint64_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, s->bytes + i * elem_bytes(s), elem_bytes(s));
    return value_of_bits(s->dtype, bits);
}

static void put_source(struct source *s, uint64_t i, double x)
{
    float f32 = (float)x;
    uint16_t narrow = s->dtype == QPLAN_F16 ? qp_narrow_f64(x, 5, 10) : qp_narrow_f64(x, 8, 7);
    const void *from = s->dtype == QPLAN_F64   ? (const void *)&x
                       : s->dtype == QPLAN_F32 ? (const void *)&f32
                                               : (const void *)&narrow;
    memcpy(s->bytes + i * elem_bytes(s), from, elem_bytes(s));
}

/* Rows of one kind each: ordinary, small, all zero, one outlier, halves. */
static double pick_value(uint64_t row, uint64_t *seed)
{
    double x = random_signed(seed);
    switch (row % 7) {
    case 0:
        return 0;
    case 1:
        return x * 0x1p-20;
    case 2:
        return x * 0x1p-138; /* subnormal in f32 and bf16 */
    case 3:
        return random_below(seed, 20) ? x : x * 300;
    case 4:
        return floor(x * 255) / 2;
    default:
        return x;
    }
}

static void pick_source(struct source *s, enum qplan_dtype dtype, uint64_t *seed)
{
    static const uint64_t extents[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 64, 65, 101};
    *s = (struct source){.dtype = dtype, .n = 1};
    s->rank = 2 + (unsigned)random_below(seed, 3);
    for (unsigned i = 0; i < s->rank; i++) {
        s->shape[i] = extents[random_below(seed, COUNT(extents))];
        if (s->n * s->shape[i] > MOST_ELEMS)
            s->shape[i] = 1;
        s->n *= s->shape[i];
    }
    for (uint64_t i = 0; i < s->n; i++)
        put_source(s, i, pick_value(i / s->shape[s->rank - 1], seed));
}

#define KEPT_BYTES 24

static void write_source(const char *path, const struct source *s)
{
    static const unsigned char kept[KEPT_BYTES] = "every byte of a kept one";
    size_t kind = 0;
    while (dtypes[kind] != s->dtype)
        kind++;
    struct tensor tensors[] = {
        {"w", storages[kind], s->rank, {0}, s->bytes, s->n * elem_bytes(s)},
        {"kept", "I32", 1, {KEPT_BYTES / 4}, kept, KEPT_BYTES},
    };
    memcpy(tensors[0].shape, s->shape, sizeof s->shape);
    write_checkpoint(path, "{\"format\":\"np\",\"note\":\"x\"}", tensors, COUNT(tensors));
}

/* Mostly the types of 4 and 8 bits, else any. */
static enum qplan_dtype pick_codes(uint64_t *seed)
{
    static const unsigned bits[] = {8, 8, 4, 4, 2, 3, 5, 6, 7};
    char name[16];
    enum qplan_dtype dtype = QPLAN_DTYPE_COUNT;
    (void)snprintf(name, sizeof name, "%sint%u", random_below(seed, 2) ? "u" : "",
                   bits[random_below(seed, COUNT(bits))]);
    assert_true(qplan_dtype_parse(name, &dtype));
    return dtype;
}

static struct qplan_scheme pick_scheme(const struct source *s, char text[QPLAN_SCHEME_TEXT],
                                       uint64_t *seed)
{
    static const enum qplan_dtype scales[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16};
    struct qplan_scheme scheme = {
        .dtype = pick_codes(seed),
        .granularity = (enum qplan_granularity)random_below(seed, 4),
        .asymmetric = random_below(seed, 2),
        .scale_dtype = scales[random_below(seed, 3)],
        .group = 1 + random_below(seed, s->shape[s->rank - 1]),
        .block_rows = 1 + random_below(seed, 9),
        .block_cols = 1 + random_below(seed, 40),
    };
    if (scheme.granularity == QPLAN_PER_CHANNEL)
        scheme.axis = (int32_t)random_below(seed, s->rank);
    scheme.narrow = qplan_dtype_is_signed(scheme.dtype) && random_below(seed, 3) == 0;
    (void)qplan_scheme_format(&scheme, text);
    return scheme;
}

static struct qplan_run pick_run(uint64_t *seed)
{
    static const uint64_t caps[] = {0, 400000, 1 << 20, 4 << 20};
    return (struct qplan_run){.threads = 1 + (unsigned)random_below(seed, 4),
                              .memory_bytes = caps[random_below(seed, COUNT(caps))],
                              .isa = random_below(seed, 2) ? QPLAN_ISA_SCALAR : QPLAN_ISA_BEST,
                              .force = true};
}

/* ---- A decoder of this test's own ------------------------------------------------------------ */

/* The written file: its bytes, and where the parts of "w" and the kept tensor are. */
struct written {
    struct qplan_scheme scheme;
    unsigned char *bytes;
    size_t n;
    uint64_t codes, codes_end, scale, scale_end, zero, zero_end, kept; /* in the file */
    int32_t q_min, q_max;
};

static void find_part(const struct qplan_checkpoint *file, uint64_t base, const char *name,
                      uint64_t *begin, uint64_t *end)
{
    for (size_t i = 0; i < qplan_checkpoint_count(file); i++) {
        const struct qplan_entry *entry = qplan_checkpoint_entry(file, i);
        if (strcmp(entry->name, name) != 0)
            continue;
        *begin = base + entry->begin;
        *end = base + entry->end;
        return;
    }
    fail_msg("no %s", name);
}

static void read_written(struct written *w, const char *path, const struct qplan_scheme *scheme)
{
    uint64_t n_header, kept_end;
    struct qplan_checkpoint *file = open_checkpoint(path);
    *w = (struct written){.scheme = *scheme};
    w->bytes = read_file(path, &w->n);
    memcpy(&n_header, w->bytes, sizeof n_header);
    find_part(file, 8 + n_header, "w", &w->codes, &w->codes_end);
    find_part(file, 8 + n_header, "w_scale", &w->scale, &w->scale_end);
    find_part(file, 8 + n_header, "w_zero_point", &w->zero, &w->zero_end);
    find_part(file, 8 + n_header, "kept", &w->kept, &kept_end);
    (void)qplan_dtype_range(scheme->dtype, &w->q_min, &w->q_max);
    w->q_min = scheme->narrow ? -w->q_max : w->q_min;
    qplan_checkpoint_close(file);
}

static int32_t code_at(const struct written *w, const struct source *s, uint64_t i)
{
    const unsigned bits = qplan_dtype_bits(w->scheme.dtype);
    const uint64_t last = s->shape[s->rank - 1];
    const unsigned char *row = w->bytes + w->codes + i / last * ((last * bits + 7) / 8);
    int32_t code = 0;
    for (unsigned k = 0; k < bits; k++) {
        const uint64_t bit = i % last * bits + k;
        code |= (row[bit / 8] >> bit % 8 & 1) << k;
    }
    const bool is_negative = qplan_dtype_is_signed(w->scheme.dtype) && code >> (bits - 1);
    return is_negative ? code - (1 << bits) : code;
}

static bool pads_are_zero(const struct written *w, const struct source *s)
{
    const uint64_t last = s->shape[s->rank - 1], n = last * qplan_dtype_bits(w->scheme.dtype);
    if (n % 8 == 0)
        return true;
    for (uint64_t row = 1; row <= s->n / last; row++) {
        if (w->bytes[w->codes + row * ((n + 7) / 8) - 1] >> n % 8)
            return false;
    }
    return true;
}

static double scale_at(const struct written *w, uint64_t set)
{
    size_t size = qplan_dtype_bits(w->scheme.scale_dtype) / 8;
    uint64_t bits = 0;
    memcpy(&bits, w->bytes + w->scale + set * size, size);
    return value_of_bits(w->scheme.scale_dtype, bits);
}

static int32_t zero_at(const struct written *w, uint64_t set)
{
    unsigned char zero = w->bytes[w->zero + set];
    return qplan_dtype_is_signed(w->scheme.dtype) ? (int8_t)zero : zero;
}

/* scale * steps in working precision, finite. */
static double decode(const struct source *s, double scale, int32_t steps)
{
    double most = s->dtype == QPLAN_F64 ? DBL_MAX : (double)FLT_MAX;
    long double product = (long double)scale * steps;
    if (fabsl(product) > most)
        return product < 0 ? -most : most;
    return s->dtype == QPLAN_F64 ? (double)product : (double)(float)product;
}

enum verdict { GOOD, BAD, UNSURE };

/* Whether an element keeps the promise of verify; minmax never clips. */
static enum verdict judge(const struct written *w, const struct source *s, uint64_t i)
{
    uint64_t set = set_of_element(&w->scheme, s->shape, s->rank, i);
    double x = source_at(s, i), scale = scale_at(w, set);
    int32_t zero = zero_at(w, set);
    double y = decode(s, scale, code_at(w, s, i) - zero);
    int k = (int)qplan_dtype_bits(w->scheme.dtype) - (s->dtype == QPLAN_F64 ? 50 : 21);
    if (isnan(x))
        return y == 0 ? GOOD : BAD;
    if (isinf(x))
        return y == decode(s, scale, (x > 0 ? w->q_max : w->q_min) - zero) ? GOOD : BAD;
    long double bound = (long double)scale * (0.5L + ldexpl(1, k)) + 0x1p-149L;
    long double error = fabsl((long double)x - (long double)y), distance = fabsl(error - bound);
    if (distance <= 1e-14L * fabsl(bound))
        return UNSURE;
    return error < bound ? GOOD : BAD;
}

/* The number of bad elements and the first of them; UNSURE ones make *sure false. */
static uint64_t count_bad(const struct written *w, const struct source *s, uint64_t *first,
                          bool *sure)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        enum verdict verdict = judge(w, s, i);
        *sure &= verdict != UNSURE;
        if (verdict == BAD && n++ == 0)
            *first = i;
    }
    return n;
}

/* ---- Every result is proven ------------------------------------------------------------------ */

static void assert_proven(const struct written *w, const struct source *s, const char *scheme)
{
    uint64_t first = 0;
    bool sure = true;
    struct qplan_error err;
    uint64_t n = count_bad(w, s, &first, &sure);
    if (n)
        fail_msg("%s: %" PRIu64 " elements outside the bound, the first is %" PRIu64, scheme, n,
                 first);
    assert_true(pads_are_zero(w, s));
    OK(verify_file(path_of("q"), path_of("s"), &err), &err);
}

static void every_result_is_proven_and_the_same_for_any_run(void **state)
{
    static struct source s;
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 250; i++) {
        char text[QPLAN_SCHEME_TEXT];
        struct qplan_error err;
        struct written w;
        pick_source(&s, dtypes[i % 4], &seed);
        for (int k = 0; i % 5 == 0 && k < 4; k++) /* --nonfinite saturate */
            put_source(&s, random_below(&seed, s.n),
                       s.dtype < QPLAN_F16 ? (k ? INFINITY : NAN) : 1);
        struct qplan_scheme scheme = pick_scheme(&s, text, &seed);
        write_source(path_of("s"), &s);
        struct qplan_run run = pick_run(&seed), other = pick_run(&seed);
        OK(quantize_file(path_of("s"), path_of("q"), text, &run, &err), &err);
        OK(quantize_file(path_of("s"), path_of("other"), text, &other, &err), &err);
        assert_true(same_files(path_of("q"), path_of("other")));
        read_written(&w, path_of("q"), &scheme);
        assert_proven(&w, &s, text);
        free(w.bytes);
    }
}

/* Three ways to say one set a row: the same codes, scales and zero points. */
static void per_channel_per_group_and_per_block_agree(void **state)
{
    static struct source s;
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 60; i++) {
        char texts[3][QPLAN_SCHEME_TEXT];
        struct written w[3];
        struct qplan_error err;
        const char *kind = i % 2 ? "int8" : "uint4";
        const struct qplan_run run = {.force = true};
        pick_source(&s, dtypes[i % 4], &seed);
        s.shape[0] = s.n / s.shape[s.rank - 1];
        s.shape[1] = s.shape[s.rank - 1];
        s.rank = 2;
        write_source(path_of("s"), &s);
        (void)snprintf(texts[0], sizeof texts[0], "%s:c0:f16", kind);
        (void)snprintf(texts[1], sizeof texts[1], "%s:g%" PRIu64 ":f16", kind, s.shape[1]);
        (void)snprintf(texts[2], sizeof texts[2], "%s:b1x%" PRIu64 ":f16", kind, s.shape[1]);
        for (int k = 0; k < 3; k++) {
            struct qplan_scheme scheme = scheme_of(texts[k]);
            OK(quantize_file(path_of("s"), path_of("q"), texts[k], &run, &err), &err);
            read_written(&w[k], path_of("q"), &scheme);
            assert_memory_equal(w[k].bytes + w[k].codes, w[0].bytes + w[0].codes,
                                w[0].codes_end - w[0].codes);
            assert_memory_equal(w[k].bytes + w[k].scale, w[0].bytes + w[0].scale,
                                w[0].scale_end - w[0].scale);
            assert_memory_equal(w[k].bytes + w[k].zero, w[0].bytes + w[0].zero,
                                w[0].zero_end - w[0].zero);
        }
        for (int k = 0; k < 3; k++)
            free(w[k].bytes);
    }
}

/* Tiles grow for bands that are larger than they usually are, up to a point. */
static void large_bands_are_the_same_for_any_memory(void **state)
{
    static const char *const schemes[] = {"int8:b96x64", "uint4:b200x33:asym",
                                          "int4:b300x1000:f16"};
    static const struct qplan_run runs[] = {{.threads = 1, .memory_bytes = 400000, .force = true},
                                            {.threads = 1, .force = true},
                                            {.threads = 3, .force = true},
                                            {.threads = 2, .memory_bytes = 8 << 20, .force = true}};
    static const uint64_t cols[] = {5001, 9000};
    const size_t n_bytes = 600 * 9000 * sizeof(float);
    float *values = malloc(n_bytes);
    uint64_t seed = 8;
    struct qplan_error err;
    (void)state;
    assert_non_null(values);
    for (size_t i = 0; i < n_bytes / sizeof(float); i++)
        values[i] = (float)random_signed(&seed);
    const struct tensor tensors[] = {
        {"a", "F32", 2, {600, cols[0]}, values, 600 * cols[0] * sizeof(float)},
        {"b", "F32", 2, {600, cols[1]}, values, n_bytes}};
    write_checkpoint(path_of("s"), NULL, tensors, COUNT(tensors));
    for (size_t i = 0; i < COUNT(schemes); i++) {
        for (size_t k = 0; k < COUNT(runs); k++) {
            const char *path = path_of(k ? "other" : "q");
            OK(quantize_file(path_of("s"), path, schemes[i], &runs[k], &err), &err);
            assert_true(k == 0 || same_files(path_of("q"), path));
        }
        OK(verify_file(path_of("q"), path_of("s"), &err), &err);
    }
    free(values);
}

/* ---- A changed bit is found ------------------------------------------------------------------ */

static void coordinates_of(const struct source *s, uint64_t elem, char out[128])
{
    uint64_t at[4];
    size_t n = 0;
    for (unsigned i = s->rank; i-- > 0; elem /= s->shape[i])
        at[i] = elem % s->shape[i];
    for (unsigned i = 0; i < s->rank; i++)
        n += (size_t)snprintf(out + n, 128 - n, "%s%" PRIu64, i ? "," : "[", at[i]);
    (void)snprintf(out + n, 128 - n, "]");
}

/* What no quantizer writes, which is refused before anything is measured: its words, or "". */
static void find_refusal(const struct written *w, const struct source *s, char words[256])
{
    const size_t size = qplan_dtype_bits(w->scheme.scale_dtype) / 8;
    const uint64_t n_sets = (w->scale_end - w->scale) / size;
    const int32_t middle = qplan_dtype_is_signed(w->scheme.dtype) ? 0 : (w->q_max + 1) / 2;
    const int32_t least = w->scheme.asymmetric ? w->q_min : middle;
    const int32_t most = w->scheme.asymmetric ? w->q_max : middle;
    char at[128];
    words[0] = '\0';
    for (uint64_t i = s->n; i-- > 0;) {
        if (code_at(w, s, i) >= w->q_min)
            continue;
        coordinates_of(s, i, at);
        (void)snprintf(words, 256, "code outside the narrow range at %s:", at);
    }
    for (uint64_t set = 0; set < n_sets; set++) {
        const double scale = scale_at(w, set);
        if (!(scale > 0) || isinf(scale))
            (void)snprintf(words, 256, "bad scale of set %" PRIu64 ":", set);
        if (zero_at(w, set) < least || zero_at(w, set) > most)
            (void)snprintf(words, 256, "bad zero point of set %" PRIu64 ":", set);
    }
}

/* What verify says of a file of which this test knows what is wrong. Returns whether it was bad. */
static bool assert_found(const struct written *w, const struct source *s, const char *scheme)
{
    struct qplan_error err = {.message = ""};
    uint64_t first = 0;
    bool sure = true;
    char at[128], words[256];
    uint64_t n = count_bad(w, s, &first, &sure);
    enum qplan_status status = verify_file(path_of("q"), path_of("s"), &err);
    find_refusal(w, s, words);
    if (words[0]) {
        if (status != QPLAN_ERR_INVALID || !strstr(err.message, words))
            fail_msg("%s: expected \"%s\", found %s: %s", scheme, words, err.subject, err.message);
        return true;
    }
    if (!sure)
        return false;
    if (n == 0 && pads_are_zero(w, s)) {
        if (status != QPLAN_OK)
            fail_msg("%s: nothing is wrong, but: %s", scheme, err.message);
        return false;
    }
    coordinates_of(s, first, at);
    (void)snprintf(words, sizeof words, "outside the bound at %s:", at);
    if (n == 0)
        (void)snprintf(words, sizeof words,
                       "spare bits must be 0: found 1 rows where they are not");
    if (status != QPLAN_ERR_PROOF || !strstr(err.subject, "'w'") || !strstr(err.message, words))
        fail_msg("%s: expected \"%s\", found %s: %s", scheme, words, err.subject, err.message);
    (void)snprintf(words, sizeof words, "and %" PRIu64 " such elements in all", n);
    if (n && !strstr(err.message, words))
        fail_msg("%s: expected \"%s\", found %s", scheme, words, err.message);
    return true;
}

/* Flips a bit of the codes of "w" and looks; puts it back. */
static bool flip_code(struct written *w, const struct source *s, const char *scheme, uint64_t *seed)
{
    const uint64_t begin = w->codes, end = w->codes_end;
    uint64_t at = begin + random_below(seed, end - begin);
    unsigned char mask = (unsigned char)(1 << random_below(seed, 8));
    flip_byte(path_of("q"), at, mask);
    w->bytes[at] ^= mask;
    bool bad = assert_found(w, s, scheme);
    w->bytes[at] ^= mask;
    flip_byte(path_of("q"), at, mask);
    return bad;
}

/* Flips a bit of a parameter, which has one right value, and looks; puts it back. */
static void flip_parameter(const char *scheme, uint64_t begin, uint64_t end, uint64_t *seed)
{
    const uint64_t at = begin + random_below(seed, end - begin);
    const unsigned char mask = (unsigned char)(1 << random_below(seed, 8));
    struct qplan_error err;
    flip_byte(path_of("q"), at, mask);
    const enum qplan_status status = verify_file(path_of("q"), path_of("s"), &err);
    if (status != QPLAN_ERR_PROOF && status != QPLAN_ERR_INVALID)
        fail_msg("%s: a bit of the parameters at %" PRIu64 " is not found", scheme, at - begin);
    flip_byte(path_of("q"), at, mask);
}

static void flips_are_found_exactly_where_they_matter(void **state)
{
    static struct source s;
    uint64_t seed = 3;
    int n_codes = 0;
    (void)state;
    for (int i = 0; i < 150; i++) {
        char text[QPLAN_SCHEME_TEXT];
        struct qplan_error err;
        struct written w;
        const struct qplan_run run = {.force = true};
        pick_source(&s, dtypes[i % 4], &seed);
        struct qplan_scheme scheme = pick_scheme(&s, text, &seed);
        write_source(path_of("s"), &s);
        OK(quantize_file(path_of("s"), path_of("q"), text, &run, &err), &err);
        read_written(&w, path_of("q"), &scheme);
        for (int k = 0; k < 4; k++) {
            n_codes += flip_code(&w, &s, text, &seed);
            flip_parameter(text, w.scale, w.scale_end, &seed);
            flip_parameter(text, w.zero, w.zero_end, &seed);
        }
        free(w.bytes);
    }
    assert_true(n_codes > 570); /* others are next to a tie */
}

static void every_byte_of_a_kept_tensor_counts(void **state)
{
    static struct source s;
    uint64_t seed = 4;
    struct qplan_error err;
    struct written w;
    const struct qplan_run run = {.force = true};
    struct qplan_scheme scheme = scheme_of("int8:t");
    char words[64];
    (void)state;
    pick_source(&s, QPLAN_F32, &seed);
    write_source(path_of("s"), &s);
    OK(quantize_file(path_of("s"), path_of("q"), "int8:t", &run, &err), &err);
    read_written(&w, path_of("q"), &scheme);
    for (uint64_t i = 0; i < KEPT_BYTES; i++) {
        flip_byte(path_of("q"), w.kept + i, (unsigned char)(1 << i % 8));
        assert_int_equal(verify_file(path_of("q"), path_of("s"), &err), QPLAN_ERR_PROOF);
        assert_non_null(strstr(err.subject, "'kept'"));
        (void)snprintf(words, sizeof words, "at byte %" PRIu64 " of the tensor", i);
        assert_non_null(strstr(err.message, words));
        flip_byte(path_of("q"), w.kept + i, (unsigned char)(1 << i % 8));
    }
    OK(verify_file(path_of("q"), path_of("s"), &err), &err);
    free(w.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_result_is_proven_and_the_same_for_any_run),
        cmocka_unit_test(per_channel_per_group_and_per_block_agree),
        cmocka_unit_test(large_bands_are_the_same_for_any_memory),
        cmocka_unit_test(flips_are_found_exactly_where_they_matter),
        cmocka_unit_test(every_byte_of_a_kept_tensor_counts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
