/*
 * support.h - what several tests share: random numbers, memory between guard pages, temporary
 * folders, small checkpoints made by hand, text in memory.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/qplan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Fails the test with the message of err if the call does. */
#define OK(call, err)                                                                              \
    do {                                                                                           \
        if ((call) != QPLAN_OK)                                                                    \
            fail_msg("%s: %s: %s", #call, (err)->subject, (err)->message);                         \
    } while (0)

/* ---- Random numbers -------------------------------------------------------------------------- */

/* The next of a fixed sequence (splitmix64). */
static inline uint64_t random_bits(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* 0 .. n - 1. */
static inline uint64_t random_below(uint64_t *seed, uint64_t n)
{
    return random_bits(seed) % n;
}

/* In [-1, 1). */
static inline double random_signed(uint64_t *seed)
{
    return (double)(random_bits(seed) >> 11) * 0x1p-52 - 1;
}

/* ---- Memory between guard pages -------------------------------------------------------------- */

/* Touching a byte outside [begin, end) ends the test program. */
struct guarded {
    unsigned char *map, *begin, *end;
    size_t n_map;
};

static inline struct guarded guarded_make(size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = (n_bytes + page - 1) / page * page;
    struct guarded g = {.n_map = n + 2 * page};
    g.map = mmap(NULL, g.n_map, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    g.begin = g.map + page;
    g.end = g.begin + n;
    assert_int_equal(mprotect(g.begin, n, PROT_READ | PROT_WRITE), 0);
    return g;
}

static inline void guarded_free(struct guarded *g)
{
    assert_int_equal(munmap(g->map, g->n_map), 0);
}

/* ---- Temporary folders ----------------------------------------------------------------------- */

struct folder {
    char path[256];
};

static inline void folder_make(struct folder *folder)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder->path, sizeof folder->path, "%s/qplan-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(folder->path));
}

/* A path of a file in the folder; the last few stay valid. */
static inline const char *in_folder(const struct folder *folder, const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder->path, name);
    return path;
}

/* How many files the folder has. */
static inline size_t folder_count(const struct folder *folder)
{
    DIR *dir = opendir(folder->path);
    size_t n = 0;
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}

static inline int remove_found(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Removes the folder and all that is in it. */
static inline void folder_remove(const struct folder *folder)
{
    assert_int_equal(nftw(folder->path, remove_found, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- Whole files ----------------------------------------------------------------------------- */

static inline void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* The bytes of a file, which the caller frees. */
static inline unsigned char *read_file(const char *path, size_t *n)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    *n = (size_t)st.st_size;
    unsigned char *bytes = malloc(*n + 1);
    FILE *file = fopen(path, "rb");
    assert_non_null(bytes);
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    bytes[*n] = 0;
    (void)fclose(file);
    return bytes;
}

static inline bool file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static inline bool same_files(const char *a, const char *b)
{
    size_t n_a, n_b;
    unsigned char *x = read_file(a, &n_a), *y = read_file(b, &n_b);
    bool same = n_a == n_b && memcmp(x, y, n_a) == 0;
    free(x);
    free(y);
    return same;
}

/* Changes one byte of a file. */
static inline void flip_byte(const char *path, uint64_t at, unsigned char mask)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_true(byte != EOF);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_true(fputc(byte ^ mask, file) != EOF);
    assert_int_equal(fclose(file), 0);
}

/* ---- Text in memory -------------------------------------------------------------------------- */

struct text {
    char *data;
    size_t n;
};

/* A qplan_write_fn; ctx is a struct text, zeroed before the first call and freed by text_free. */
static inline int text_add(void *ctx, const void *bytes, size_t n)
{
    struct text *text = ctx;
    text->data = realloc(text->data, text->n + n + 1);
    assert_non_null(text->data);
    memcpy(text->data + text->n, bytes, n);
    text->n += n;
    text->data[text->n] = '\0';
    return 0;
}

static inline void text_puts(struct text *text, const char *string)
{
    (void)text_add(text, string, strlen(string));
}

static inline void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

/* ---- Values and sets ------------------------------------------------------------------------- */

static inline double load_bits(uint64_t bits, unsigned exp_bits, unsigned man_bits)
{
    uint64_t mantissa = bits & (((uint64_t)1 << man_bits) - 1);
    int exponent = (int)(bits >> man_bits & ((1u << exp_bits) - 1));
    int bias = (1 << (exp_bits - 1)) - 1, least = 1 - bias - (int)man_bits;
    double sign = bits >> (exp_bits + man_bits) ? -1 : 1;
    if (exponent == (1 << exp_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp((double)mantissa, least);
    return sign * ldexp((double)(mantissa + ((uint64_t)1 << man_bits)), least + exponent - 1);
}

/* The table of bitsandbytes, functional.py. */
static const float nf4[16] = {-1.0f,
                              -0.6961928009986877f,
                              -0.5250730514526367f,
                              -0.39491748809814453f,
                              -0.28444138169288635f,
                              -0.18477343022823334f,
                              -0.09105003625154495f,
                              0.0f,
                              0.07958029955625534f,
                              0.16093020141124725f,
                              0.24611230194568634f,
                              0.33791524171829224f,
                              0.44070982933044434f,
                              0.5626170039176941f,
                              0.7229568362236023f,
                              1.0f};

/* The value of a pattern of a float type, by the definition of its format. */
static inline double value_of_bits(enum qplan_dtype dtype, uint64_t bits)
{
    switch (dtype) {
    case QPLAN_F64:
        return load_bits(bits, 11, 52);
    case QPLAN_F32:
        return load_bits(bits, 8, 23);
    case QPLAN_F16:
        return load_bits(bits, 5, 10);
    case QPLAN_F8E4M3: /* a number of up to 448: with an exponent more than IEEE has */
        return (bits & 0x7f) < 0x78 ? load_bits(bits, 4, 3)
                                    : ldexp(8 + (double)(bits & 7), 5) * (bits & 0x80 ? -1 : 1);
    case QPLAN_F8E5M2:
        return load_bits(bits, 5, 2);
    case QPLAN_F4E2M1: /* the largest exponent is one of numbers too */
        return (bits & 7) < 6 ? load_bits(bits, 2, 1)
                              : (4 + 2 * (double)(bits & 1)) * (bits & 8 ? -1 : 1);
    case QPLAN_NF4:
        return (double)nf4[bits];
    case QPLAN_E8M0:
        return ldexp(1, (int)bits - 127);
    default:
        return load_bits(bits, 8, 7);
    }
}

/* The set of an element from its coordinates and the words of the scheme alone. */
static inline uint64_t set_of_element(const struct qplan_scheme *scheme, const uint64_t *shape,
                                      unsigned rank, uint64_t elem)
{
    uint64_t last = shape[rank - 1], row = elem / last, col = elem % last;
    uint64_t inner = 1, rows, col_blocks, row_blocks;
    switch (scheme->granularity) {
    case QPLAN_PER_TENSOR:
        return 0;
    case QPLAN_PER_CHANNEL:
        for (unsigned i = (unsigned)scheme->axis + 1; i < rank; i++)
            inner *= shape[i];
        return elem / inner % shape[scheme->axis];
    case QPLAN_PER_GROUP:
        return row * ((last + scheme->group - 1) / scheme->group) + col / scheme->group;
    case QPLAN_PER_BLOCK:
        rows = shape[rank - 2];
        row_blocks = (rows + scheme->block_rows - 1) / scheme->block_rows;
        col_blocks = (last + scheme->block_cols - 1) / scheme->block_cols;
        return (row / rows * row_blocks + row % rows / scheme->block_rows) * col_blocks +
               col / scheme->block_cols;
    }
    return UINT64_MAX;
}

/* ---- Checkpoints made by hand ---------------------------------------------------------------- */

struct tensor {
    const char *name; /* as it stands in JSON */
    const char *dtype;
    unsigned rank;
    uint64_t shape[5];
    const void *data; /* NULL: zeros */
    size_t n_bytes;
};

static inline void put_tensor(struct text *header, const struct tensor *t, size_t begin)
{
    char number[64];
    text_puts(header, header->n > 1 ? ",\"" : "\"");
    text_puts(header, t->name);
    text_puts(header, "\":{\"dtype\":\"");
    text_puts(header, t->dtype);
    text_puts(header, "\",\"shape\":[");
    for (unsigned i = 0; i < t->rank; i++) {
        (void)snprintf(number, sizeof number, "%s%" PRIu64, i ? "," : "", t->shape[i]);
        text_puts(header, number);
    }
    (void)snprintf(number, sizeof number, "],\"data_offsets\":[%zu,%zu]}", begin,
                   begin + t->n_bytes);
    text_puts(header, number);
}

/* Writes tensors in the order given; metadata is a JSON object, or NULL. */
static inline void write_checkpoint(const char *path, const char *metadata,
                                    const struct tensor *tensors, size_t n)
{
    struct text header = {0}, file = {0};
    size_t begin = 0;
    text_puts(&header, "{");
    if (metadata) {
        text_puts(&header, "\"__metadata__\":");
        text_puts(&header, metadata);
    }
    for (size_t i = 0; i < n; i++) {
        put_tensor(&header, &tensors[i], begin);
        begin += tensors[i].n_bytes;
    }
    text_puts(&header, "}");
    uint64_t n_header = header.n;
    (void)text_add(&file, &n_header, sizeof n_header);
    (void)text_add(&file, header.data, header.n);
    for (size_t i = 0; i < n; i++) {
        void *zeros = calloc(tensors[i].n_bytes + 1, 1);
        assert_non_null(zeros);
        (void)text_add(&file, tensors[i].data ? tensors[i].data : zeros, tensors[i].n_bytes);
        free(zeros);
    }
    write_file(path, file.data, file.n);
    text_free(&header);
    text_free(&file);
}

static inline struct qplan_checkpoint *open_checkpoint(const char *path)
{
    struct qplan_checkpoint *checkpoint;
    struct qplan_error err;
    OK(qplan_checkpoint_open(&checkpoint, path, &err), &err);
    return checkpoint;
}

static inline struct qplan_scheme scheme_of(const char *text)
{
    struct qplan_scheme scheme;
    struct qplan_error err;
    OK(qplan_scheme_parse(&scheme, text, &err), &err);
    return scheme;
}

/* Quantizes a whole file with one scheme; ragged groups are let through. */
static inline enum qplan_status quantize_with(const char *from, const char *to, const char *scheme,
                                              enum qplan_nonfinite nonfinite,
                                              const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_plan_options options = {
        .scheme = scheme_of(scheme),
        .indivisible = QPLAN_INDIVISIBLE_RAGGED,
        .nonfinite = nonfinite,
    };
    struct qplan_quantize_options how = {.out_path = to};
    struct qplan_checkpoint *source = open_checkpoint(from);
    struct qplan_plan *plan;
    struct qplan_report *report = NULL;
    enum qplan_status status = qplan_plan_make(&plan, source, &options, err);
    if (status == QPLAN_OK)
        status = qplan_quantize(&report, plan, &how, run, err);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    return status;
}

/* Quantizes a whole file; ragged groups and values that are not finite are let through. */
static inline enum qplan_status quantize_file(const char *from, const char *to, const char *scheme,
                                              const struct qplan_run *run, struct qplan_error *err)
{
    return quantize_with(from, to, scheme, QPLAN_NONFINITE_SATURATE, run, err);
}

/* What verify says of a file and its source. */
static inline enum qplan_status verify_file(const char *path, const char *source,
                                            struct qplan_error *err)
{
    struct qplan_checkpoint *file = open_checkpoint(path), *plain = open_checkpoint(source);
    const struct qplan_inspect_options options = {.against = plain, .prove = true};
    struct qplan_report *report = NULL;
    enum qplan_status status = qplan_inspect(&report, file, &options, NULL, err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
    qplan_checkpoint_close(plain);
    return status;
}

#endif
