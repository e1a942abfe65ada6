/*
 * test_safetensors_writer.c - the canonical order and header, and that the reader takes what the
 * writer gives.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors/safetensors.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Reads a header that has n_data bytes of data behind it. */
static enum qplan_status parse(struct qp_st *st, const char *json, size_t n, uint64_t n_data,
                               struct qplan_error *err)
{
    char *copy = malloc(n ? n : 1); /* exactly as long, so that a read past the end is seen */
    memcpy(copy, json, n);
    enum qplan_status status = qp_st_parse(st, copy, n, 8 + n + n_data, "dir/m.st", err);
    free(copy);
    return status;
}

/* A tensor as header text. */
#define T(name, dtype, shape, range)                                                               \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"

/* ---- Writing --------------------------------------------------------------------------------- */

static struct qplan_entry entry_of(const char *name, enum qplan_storage storage,
                                   const uint64_t *shape, unsigned rank)
{
    return (struct qplan_entry){.name = name,
                                .name_len = (uint32_t)strlen(name),
                                .storage = (uint8_t)storage,
                                .shape = shape,
                                .rank = (uint8_t)rank};
}

static struct qp_st_pair pair_of(const char *key, const char *value)
{
    return (struct qp_st_pair){key, value, (uint32_t)strlen(key), (uint32_t)strlen(value)};
}

/* With two pairs of metadata. */
static enum qplan_status put(struct qp_writer *w, struct qplan_entry **order, size_t n,
                             const struct qp_st_pair *metadata)
{
    return qp_st_put_header(w, (const struct qplan_entry *const *)order, n, metadata, 2, "out",
                            NULL);
}

static void the_header_is_canonical(void **state)
{
    (void)state;
    static const uint64_t shape[] = {2, 2, 0};
    struct qplan_entry entries[] = {
        entry_of("b", QPLAN_STORAGE_F4, shape, 1),     entry_of("c", QPLAN_STORAGE_I8, shape, 2),
        entry_of("a\"\n", QPLAN_STORAGE_I8, shape, 1), entry_of("z", QPLAN_STORAGE_F64, shape, 0),
        entry_of("y", QPLAN_STORAGE_F16, shape, 3),
    };
    struct qp_st_pair metadata[] = {pair_of("format", "pt"), pair_of("k\\", "\xc3\xa9\t")};
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"k\\\\\":\"\xc3\xa9\\u0009\"}," T(
            "z", "F64", "", "0,8") "," T("y", "F16", "2,2,0",
                                         "8,8") "," T("a\\\"\\u000a", "I8", "2",
                                                      "8,10") "," T("c", "I8", "2,2",
                                                                    "10,14") "," T("b", "F4", "2",
                                                                                   "14,15") "}";
    uint64_t data_bytes;
    struct qp_writer w;
    struct qplan_entry *order[] = {&entries[0], &entries[1], &entries[2], &entries[3], &entries[4]};
    assert_int_equal(qp_st_layout(order, COUNT(order), &data_bytes, "out", NULL), QPLAN_OK);
    assert_int_equal(data_bytes, 15);
    qp_writer_init(&w);
    assert_int_equal(put(&w, order, COUNT(order), metadata), QPLAN_OK);
    assert_int_equal(qp_writer_finish(&w, "out", NULL), QPLAN_OK);
    size_t n = sizeof expected - 1, padded = (n + 7) / 8 * 8;
    assert_int_equal(w.n, 8 + padded);
    assert_memory_equal(
        w.data, ((char[]){(char)(padded & 0xff), (char)(padded >> 8), 0, 0, 0, 0, 0, 0}), 8);
    assert_memory_equal(w.data + 8, expected, n);
    for (size_t i = 8 + n; i < w.n; i++)
        assert_int_equal(w.data[i], ' ');
    qp_writer_free(&w);
}

static void an_empty_header_is_padded_too(void **state)
{
    (void)state;
    struct qp_writer w;
    qp_writer_init(&w);
    assert_int_equal(qp_st_put_header(&w, NULL, 0, NULL, 0, "out", NULL), QPLAN_OK);
    assert_int_equal(w.n, 16);
    assert_memory_equal(w.data, "\10\0\0\0\0\0\0\0{}      ", 16);
    qp_writer_free(&w);
}

static void layouts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const uint64_t odd[] = {3}, huge[] = {(uint64_t)1 << 59};
    uint64_t n;
    struct qplan_error err;
    struct qplan_entry same[] = {entry_of("a", QPLAN_STORAGE_I8, odd, 1),
                                 entry_of("b", QPLAN_STORAGE_I8, odd, 1),
                                 entry_of("a", QPLAN_STORAGE_F64, odd, 1)};
    struct qplan_entry *order[16] = {&same[0], &same[1], &same[2]};
    assert_int_equal(qp_st_layout(order, 3, &n, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "duplicate tensor name: expected 'a' once"));
    struct qplan_entry part = entry_of("f", QPLAN_STORAGE_F4, odd, 1);
    order[0] = &part;
    assert_int_equal(qp_st_layout(order, 1, &n, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "'f'"));
    static const uint64_t more_bits[] = {(uint64_t)1 << 62, 4};
    struct qplan_entry wide = entry_of("w", QPLAN_STORAGE_F64, more_bits, 1);
    order[0] = &wide;
    assert_int_equal(qp_st_layout(order, 1, &n, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "'w'"));
    wide.rank = 2; /* and now the product of the shape overflows too */
    assert_int_equal(qp_st_layout(order, 1, &n, "out", &err), QPLAN_ERR_INVALID);
    struct qplan_entry big[16];
    for (size_t i = 0; i < COUNT(big); i++) {
        big[i] = entry_of(&"abcdefghijklmnop"[i], QPLAN_STORAGE_I8, huge, 1);
        big[i].name_len = 1;
        order[i] = &big[i];
    }
    assert_int_equal(qp_st_layout(order, 15, &n, "out", &err), QPLAN_OK);
    assert_int_equal(qp_st_layout(order, 16, &n, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "'p'"));
}

static void the_header_that_is_written_has_a_limit(void **state)
{
    (void)state;
    /* {"__metadata__":{"k":"..."}} */
    size_t n = QP_ST_MAX_HEADER - 25;
    char *value = malloc(n + 2);
    memset(value, 'v', n + 1);
    value[n + 1] = '\0';
    struct qp_st_pair pair = {"k", value, 1, (uint32_t)n};
    struct qplan_error err;
    struct qp_writer w;
    qp_writer_init(&w);
    assert_int_equal(qp_st_put_header(&w, NULL, 0, &pair, 1, "out", &err), QPLAN_OK);
    assert_int_equal(w.n, 8 + QP_ST_MAX_HEADER);
    qp_writer_free(&w);
    pair.value_len++;
    qp_writer_init(&w);
    assert_int_equal(qp_st_put_header(&w, NULL, 0, &pair, 1, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "expected at most 100000000 bytes, found 100000008"));
    assert_int_equal(w.n, 0); /* nothing was written */
    qp_writer_free(&w);
    free(value);
}

/* ---- Writing and reading --------------------------------------------------------------------- */

#define N_RANDOM 40

struct random_file {
    uint64_t shapes[N_RANDOM][4];
    char names[N_RANDOM][16];
    struct qplan_entry entries[N_RANDOM], *order[N_RANDOM];
    size_t n;
};

static void make_random(struct random_file *file, uint64_t *seed)
{
    static const char letters[] = "ab.\"\\/\n\x7f";
    file->n = next_random(seed) % (N_RANDOM + 1);
    for (size_t i = 0; i < file->n; i++) {
        size_t len = 0;
        for (uint64_t k = next_random(seed) % 6; k > 0; k--)
            file->names[i][len++] = letters[next_random(seed) % (sizeof letters - 1)];
        len += (size_t)sprintf(file->names[i] + len, "\xc3\xa9%zu", i);
        unsigned rank = (unsigned)(next_random(seed) % 5);
        for (unsigned d = 0; d < rank; d++)
            file->shapes[i][d] = next_random(seed) % 4 * (d ? 1 : 4);
        if (rank == 0) /* whole bytes for any type */
            file->shapes[i][rank++] = 4;
        file->order[i] = &file->entries[i];
        file->entries[i] =
            entry_of(file->names[i], (enum qplan_storage)(next_random(seed) % QPLAN_STORAGE_COUNT),
                     file->shapes[i], rank);
    }
}

static void shuffle(struct random_file *file, uint64_t *seed)
{
    for (size_t i = file->n; i > 1; i--) {
        size_t k = next_random(seed) % i;
        struct qplan_entry *other = file->order[k];
        file->order[k] = file->order[i - 1];
        file->order[i - 1] = other;
    }
}

static void expect_same(const struct qp_st *st, const struct random_file *file)
{
    assert_int_equal(st->n_entries, file->n);
    for (size_t i = 0; i < file->n; i++) {
        const struct qplan_entry *a = &file->entries[i];
        const struct qplan_entry *b = qp_st_find(st, a->name, a->name_len);
        assert_non_null(b);
        assert_true(a->begin == b->begin && a->end == b->end && a->storage == b->storage);
        assert_int_equal(a->rank, b->rank);
        assert_memory_equal(a->shape, b->shape, a->rank * sizeof *a->shape);
    }
}

static void written_headers_read_back(void **state)
{
    (void)state;
    uint64_t seed = 424242;
    for (int round = 0; round < 300; round++) {
        struct random_file file;
        struct qp_writer first, second;
        struct qp_st_pair metadata[] = {pair_of("", "x\ny"), pair_of("k", "")};
        uint64_t data_bytes;
        make_random(&file, &seed);
        qp_writer_init(&first);
        assert_int_equal(qp_st_layout(file.order, file.n, &data_bytes, "", NULL), QPLAN_OK);
        assert_int_equal(put(&first, file.order, file.n, metadata), QPLAN_OK);
        struct qp_st st;
        struct qplan_error err;
        if (parse(&st, first.data + 8, first.n - 8, data_bytes, &err) != QPLAN_OK)
            fail_msg("%s: %s", err.subject, err.message);
        expect_same(&st, &file);
        assert_int_equal(st.n_metadata, 2);
        assert_string_equal(qp_st_metadata(&st, "")->value, "x\ny");
        qp_st_close(&st);

        /* the same tensors in another order give the same bytes */
        shuffle(&file, &seed);
        qp_writer_init(&second);
        assert_int_equal(qp_st_layout(file.order, file.n, &data_bytes, "", NULL), QPLAN_OK);
        put(&second, file.order, file.n, metadata);
        assert_int_equal(first.n, second.n);
        assert_memory_equal(first.data, second.data, first.n);
        qp_writer_free(&first);
        qp_writer_free(&second);
    }
}

/* A file whose header is not the one written: longer, or other in its length or its text. */
static void a_header_that_changed_is_noticed(void **state)
{
    static const char file[] = "\3\0\0\0\0\0\0\0{} ";
    static const char *const written[] = {"\2\0\0\0\0\0\0\0{}", "\4\0\0\0\0\0\0\0{} ",
                                          "\3\0\0\0\0\0\0\0 {}"};
    static const size_t n_written[] = {10, 11, 11};
    char path[] = "/tmp/qplan-unit-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0 && unlink(path) == 0);
    assert_int_equal(write(fd, file, sizeof file - 1), sizeof file - 1);
    for (size_t i = 0; i < COUNT(written); i++) {
        struct qp_st_new new = {.header = (char *)(uintptr_t)written[i],
                                .header_bytes = n_written[i]};
        struct qp_st st;
        struct qplan_error err;
        assert_int_equal(qp_st_open_fd(&st, fd, "out", &new, &err), QPLAN_ERR_IO);
        assert_non_null(strstr(err.message, "not the one written"));
    }
    struct qp_st_new same = {.header = (char *)(uintptr_t)file, .header_bytes = sizeof file - 1};
    struct qp_st st;
    assert_int_equal(qp_st_open_fd(&st, fd, "out", &same, NULL), QPLAN_OK);
    qp_st_close(&st);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_is_canonical),
        cmocka_unit_test(an_empty_header_is_padded_too),
        cmocka_unit_test(layouts_that_cannot_be_are_refused),
        cmocka_unit_test(the_header_that_is_written_has_a_limit),
        cmocka_unit_test(written_headers_read_back),
        cmocka_unit_test(a_header_that_changed_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
