/*
 * test_safetensors.c - the container: what is accepted, its limits, and files that are something
 * else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/safetensors.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

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

static void open_good(struct qp_st *st, const char *json, uint64_t n_data)
{
    struct qplan_error err;
    if (parse(st, json, strlen(json), n_data, &err) != QPLAN_OK)
        fail_msg("%.200s: %s: %s", json, err.subject, err.message);
}

/* A tensor as header text. */
#define T(name, dtype, shape, range)                                                               \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"

/* ---- What is accepted ------------------------------------------------------------------------ */

static void unusual_headers_are_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        uint64_t n_data;
        size_t n_entries;
    } rows[] = {
        {"{}", 0, 0},
        {" \t\r\n{ } \t\r\n", 0, 0},
        {"{\"__metadata__\":null}", 0, 0},
        {"{\"__metadata__\":{}," T("t", "U8", "", "0,1") "}", 1, 1},
        {"{" T("", "U8", "1", "0,1") "}", 1, 1},
        {"{" T("../../etc/x", "U8", "1", "0,1") "}", 1, 1},
        {"{" T("e\xcc\x81", "U8", "1", "0,1") "," T("\xc3\xa9", "U8", "1", "1,2") "}", 2, 2},
        {"{" T("z", "F32", "2,0", "0,0") "}", 0, 1},
        {"{" T("z", "F32", "0", "4,4") "," T("a", "F32", "1", "0,4") "," T("y", "F32", "0",
                                                                           "0,0") "}",
         4, 3},
        {"{" T("z", "F32", "0", "4,4") "," T("y", "I8", "0,1", "4,4") "," T("a", "F32", "1",
                                                                            "0,4") "}",
         4, 3},
        {"{" T("u", "U8", "1", "0,1") "," T("w", "F32", "1", "1,5") "}", 5, 2},
        {"{" T("t", "F4", "3,2", "0,3") "," T("s", "F6_E3M2", "4", "3,6") "}", 6, 2},
        {"{" T("t", "F32", "0,1099511627776,9", "0,0") "}", 0, 1},
        {"{" T("t", "U8", "1152921504606846976", "0,1152921504606846976") "}", (uint64_t)1 << 60,
         1},
        {"{\"t\":{\"data_offsets\":[0,1],\"sh\\u0061pe\":[1],\"d\\u0074ype\":\"U8\"}}", 1, 1},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qp_st st;
        open_good(&st, rows[i].json, rows[i].n_data);
        assert_int_equal(st.n_entries, rows[i].n_entries);
        assert_int_equal(st.data_bytes, rows[i].n_data);
        assert_int_equal(st.header_bytes, 8 + strlen(rows[i].json));
        qp_st_close(&st);
    }
}

static void every_dtype_is_known(void **state)
{
    (void)state;
    for (int i = 0; i < QPLAN_STORAGE_COUNT; i++) {
        char json[200];
        uint64_t n_bytes = qplan_storage_bits((enum qplan_storage)i);
        snprintf(json, sizeof json, "{" T("t", "%s", "2,4", "0,%" PRIu64) "}",
                 qplan_storage_name((enum qplan_storage)i), n_bytes);
        struct qp_st st;
        open_good(&st, json, n_bytes);
        assert_int_equal(st.entries[0].storage, i);
        assert_int_equal(qp_entry_elements(&st.entries[0]), 8);
        qp_st_close(&st);
    }
}

static void entries_hold_what_the_header_says(void **state)
{
    (void)state;
    struct qp_st st;
    open_good(&st,
              "{" T("w", "BF16", "2,3", "8,20") "," T(
                  "s", "F64", "",
                  "0,8") ","
                         "\"__metadata__\":{\"z\":\"a\\u0000b\",\"\":\"\",\"format\":\"pt\","
                         "\"z\\u0000y\":\"c\"}," T("\\u0061\\n", "I8", "1,1,4", "20,24") "}",
              24);
    assert_int_equal(st.n_entries, 3);
    assert_string_equal(st.entries[0].name, "a\n");
    assert_int_equal(st.entries[0].name_len, 2);
    assert_int_equal(st.entries[0].rank, 3);
    assert_int_equal(st.entries[0].shape[2], 4);
    assert_string_equal(st.entries[1].name, "s");
    assert_int_equal(st.entries[1].rank, 0);
    assert_int_equal(qp_entry_elements(&st.entries[1]), 1);
    const struct qplan_entry *w = qp_st_find(&st, "w", 1);
    assert_ptr_equal(w, &st.entries[2]);
    assert_int_equal(w->storage, QPLAN_STORAGE_BF16);
    assert_true(w->begin == 8 && w->end == 20 && w->rank == 2);
    assert_true(w->shape[0] == 2 && w->shape[1] == 3 && qp_entry_elements(w) == 6);
    assert_null(qp_st_find(&st, "w ", 2));
    assert_null(qp_st_find(&st, "", 0));
    assert_null(qp_st_find(&st, "zz", 2));

    assert_int_equal(st.n_metadata, 4);
    assert_string_equal(st.metadata[0].key, "");
    assert_string_equal(qp_st_metadata(&st, "format")->value, "pt");
    assert_int_equal(qp_st_metadata(&st, "z")->value_len, 3);
    assert_memory_equal(qp_st_metadata(&st, "z")->value, "a\0b", 4);
    assert_null(qp_st_metadata(&st, "forma"));
    assert_string_equal(qp_st_find_pair(&st, "z\0y", 3)->value, "c");
    assert_null(qp_st_find_pair(&st, "z\0x", 3));
    assert_ptr_equal(qp_st_find_pair(&st, "z", 0), &st.metadata[0]);

    char subject[512];
    assert_string_equal(qp_st_subject(subject, &st, &st.entries[0]), "dir/m.st: 'a\\n'");
    qp_st_close(&st);
    qp_st_close(&st);
}

static void a_long_path_leaves_room_for_the_tensor(void **state)
{
    (void)state;
    char path[5000], subject[512];
    struct qp_st st;
    static const char json[] = "{" T("tensor", "U8", "", "0,1") "}";
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(qp_st_parse(&st, json, strlen(json), 9 + strlen(json), path, NULL), QPLAN_OK);
    qp_st_subject(subject, &st, &st.entries[0]);
    assert_true(strlen(subject) < sizeof subject);
    assert_non_null(strstr(subject, "ppp...: 'tensor'"));
    qp_st_close(&st);
}

static void the_order_in_the_header_does_not_matter(void **state)
{
    (void)state;
    static const char *const members[] = {T("a", "U8", "3", "4,7"), T("b", "F32", "1", "0,4"),
                                          T("c", "U8", "0", "4,4"),
                                          "\"__metadata__\":{\"k\":\"v\",\"j\":\"w\"}"};
    for (int order = 0; order < 256; order++) {
        int p[4] = {order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6 & 3};
        if ((1 << p[0] | 1 << p[1] | 1 << p[2] | 1 << p[3]) != 15)
            continue;
        char json[500];
        snprintf(json, sizeof json, "{%s,%s,%s,%s}", members[p[0]], members[p[1]], members[p[2]],
                 members[p[3]]);
        struct qp_st st;
        open_good(&st, json, 7);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(st.entries[i].name[0], 'a' + (int)i);
        assert_true(st.entries[0].begin == 4 && st.entries[1].begin == 0 && st.entries[2].end == 4);
        assert_true(st.entries[0].shape[0] == 3 && st.entries[2].shape[0] == 0);
        assert_string_equal(st.metadata[0].key, "j");
        qp_st_close(&st);
    }
}

/* ---- Limits ---------------------------------------------------------------------------------- */

/* A header with one tensor of this name and rank. */
static char *one_tensor(size_t n_name, size_t rank)
{
    char *json = malloc(n_name + 3 * rank + 100), *at = json;
    at += sprintf(at, "{\"");
    memset(at, 'n', n_name);
    at += n_name;
    at += sprintf(at, "\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[");
    for (size_t i = 0; i < rank; i++)
        at += sprintf(at, i ? ",1" : "1");
    sprintf(at, "]}}");
    return json;
}

static void expect_limit(size_t n_name, size_t rank, const char *part)
{
    struct qp_st st;
    struct qplan_error err;
    char *json = one_tensor(n_name, rank);
    enum qplan_status status = parse(&st, json, strlen(json), 1, &err);
    assert_int_equal(status, part ? QPLAN_ERR_INVALID : QPLAN_OK);
    if (part)
        assert_non_null(strstr(err.message, part));
    else
        qp_st_close(&st);
    free(json);
}

static void names_and_ranks_have_limits(void **state)
{
    (void)state;
    expect_limit(QP_ST_MAX_NAME - 1, 1, NULL);
    expect_limit(QP_ST_MAX_NAME, 1, NULL);
    expect_limit(QP_ST_MAX_NAME + 1, 1, "name too long: expected at most 65536 bytes, found 65537");
    expect_limit(1, 63, NULL);
    expect_limit(1, 64, NULL);
    expect_limit(1, 65, "rank too high: expected at most 64 dimensions, found 65");
    expect_limit(1, 100000, "found 100000");
}

static void headers_have_a_limit(void **state)
{
    (void)state;
    for (size_t n = QP_ST_MAX_HEADER - 1; n <= QP_ST_MAX_HEADER + 1; n++) {
        struct qp_st st;
        struct qplan_error err;
        char *json = malloc(n);
        memset(json, ' ', n);
        memcpy(json, "{}", 2);
        bool fits = n <= QP_ST_MAX_HEADER;
        assert_int_equal(qp_st_parse(&st, json, n, 8 + n, "m", &err),
                         fits ? QPLAN_OK : QPLAN_ERR_INVALID);
        if (fits)
            qp_st_close(&st);
        else
            assert_non_null(strstr(err.message, "expected at most 100000000 bytes, found a length "
                                                "of 100000001 (at byte 0)"));
        free(json);
    }
}

static void sizes_are_checked(void **state)
{
    (void)state;
    uint64_t out = 7;
    const uint64_t half = (uint64_t)1 << 62;
    assert_true(qp_shape_elements(NULL, 0, &out) && out == 1);
    assert_true(qp_shape_elements((const uint64_t[]){half, 2}, 2, &out) && out == half * 2);
    assert_true(qp_shape_elements((const uint64_t[]){3, 0, 5}, 3, &out) && out == 0);
    out = 7;
    assert_false(qp_shape_elements((const uint64_t[]){half, 3}, 2, &out));
    assert_false(qp_shape_elements((const uint64_t[]){half, 4}, 2, &out));
    assert_false(qp_shape_elements((const uint64_t[]){0, UINT64_MAX, UINT64_MAX}, 3, &out));
    assert_int_equal(out, 7);
    assert_true(qp_storage_bytes(QPLAN_STORAGE_F4, 6, &out) && out == 3);
    assert_true(qp_storage_bytes(QPLAN_STORAGE_F6_E2M3, 4, &out) && out == 3);
    assert_true(qp_storage_bytes(QPLAN_STORAGE_U8, UINT64_MAX / 8, &out) && out == UINT64_MAX / 8);
    out = 7;
    assert_false(qp_storage_bytes(QPLAN_STORAGE_F4, 5, &out));
    assert_false(qp_storage_bytes(QPLAN_STORAGE_U8, UINT64_MAX / 8 + 1, &out));
    assert_int_equal(out, 7);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static enum qplan_status open_bytes(struct qp_st *st, const void *bytes, size_t n,
                                    struct qplan_error *err)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fflush(file), 0);
    enum qplan_status status = qp_st_open_fd(st, fileno(file), "m.st", NULL, err);
    fclose(file);
    return status;
}

static void framing_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        uint64_t at;
        const char *message, *hint;
    } rows[] = {
        {"", 0, QPLAN_NO_OFFSET, "expected at least 8 bytes, found 0", ""},
        {"\2\0\0\0\0\0\0", 7, QPLAN_NO_OFFSET, "expected at least 8 bytes, found 7", ""},
        {"\0\0\0\0\0\0\0\0", 8, 8, "empty header", ""},
        {"\3\0\0\0\0\0\0\0{}", 10, 0, "expected at most the 2 bytes left, found a length of 3", ""},
        {"\12\0\0\0\0\0\0\0{}", 10, 0, "found a length of 10", ""},
        {"\0\0\0\0\0\0\0\200{}", 10, 0,
         "expected at most 100000000 bytes, found a length of 9223372036854775808", ""},
        {"\377\377\377\377\377\377\377\377{}", 10, 0, "found a length of 18446744073709551615", ""},
        {"\0\0\0\0\0\0\0\2{}", 10, 0, "found a length of 144115188075855872",
         "big-endian byte order (2)"},
        {"\0\0\0\0\0\0\0\12{}", 10, 0, "found a length of 720575940379279360", ""},
        {"\2\0\0\0\0\0\0\0{}x", 11, 10, "1 bytes behind", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qp_st st;
        struct qplan_error err;
        assert_int_equal(open_bytes(&st, rows[i].bytes, rows[i].n, &err), QPLAN_ERR_INVALID);
        assert_non_null(strstr(err.message, rows[i].message));
        assert_true(err.offset == rows[i].at);
        assert_non_null(strstr(err.hint, rows[i].hint));
        assert_int_equal(err.hint[0] == '\0', rows[i].hint[0] == '\0');
        assert_string_equal(err.subject, "m.st");
    }
    struct qp_st st;
    assert_int_equal(open_bytes(&st, "\2\0\0\0\0\0\0\0{}", 10, NULL), QPLAN_OK);
    qp_st_close(&st);
}

struct other {
    const char *bytes;
    size_t n;
    const char *part;
};

#define OTHER(bytes, part)                                                                         \
    {                                                                                              \
        bytes, sizeof(bytes) - 1, part                                                             \
    }

static void other_formats_are_recognised(void **state)
{
    (void)state;
    static const struct other rows[] = {
        OTHER("version https://git-lfs.github.com/spec/v1\noid sha256:",
              "Git LFS pointer, not the file: run git lfs pull"),
        OTHER("<!DOCTYPE html><html>", "HTML"),
        OTHER("\r\n  <HTML lang=en>", "HTML"),
        OTHER("\n<?xml version=\"1.0\"?>", "HTML"),
        OTHER("{\"error\":\"not found\"}", "looks like JSON text"),
        OTHER("[{\"error\": 404}]", "looks like JSON text"),
        OTHER("{\n  \"error\": 404}", "looks like JSON text"),
        OTHER("GGUF\3\0\0\0\1\0\0\0", "GGUF"),
        OTHER("GGUF", "GGUF"),
        OTHER("PK\3\4\x14\0\0\0\0\0", "ZIP archive (PyTorch"),
        OTHER("\x80\2}q\0(X\5\0\0\0", "pickle"),
        OTHER("\x80\3c__main__\n", "pickle"),
        OTHER("\x80\4\x95\x10\0\0\0\0\0\0\0", "pickle"),
        OTHER("\x80\5\x8c\4name", "pickle"),
        OTHER("\x80\2X", "pickle"),
        OTHER("\t<html", "HTML"),
        OTHER("{}", "looks like JSON text"),
        OTHER("[]", "looks like JSON text"),
        OTHER("[[1, 2], [3, 4]]", "looks like JSON text"),
        OTHER("\n{\t\"error\": 404}", "looks like JSON text"),
        OTHER("\x89HDF\r\n\x1a\n\0\0\0\0", "HDF5"),
        OTHER("\x1f\x8b\x08\0\0\0\0\0\2\3", "gzip"),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qp_st st;
        struct qplan_error err;
        assert_int_equal(open_bytes(&st, rows[i].bytes, rows[i].n, &err), QPLAN_ERR_INVALID);
        assert_non_null(strstr(err.message, rows[i].part));
        assert_true(err.hint[0] != '\0');
    }
}

/* Nearly one of them: then the length that cannot be is all that is said. */
static void other_bytes_are_not_taken_for_a_format(void **state)
{
    (void)state;
    static const struct other rows[] = {
        OTHER("\x80\1}q\0(X\5\0\0\0", "header too long"),
        OTHER("\x80\6}q\0(X\5\0\0\0", "header too long"),
        OTHER("\x80\2zq\0(X\5\0\0\0", "header too long"),
        OTHER("\x80\2\0q\0(X\5\0\0\0", "header too long"),
        OTHER("{x and no JSON", "header too long"),
        OTHER("                                                               {",
              "header too long"),
        OTHER("PK\3\4\0\0\0\1{\"a\":", "a ZIP archive"),
        OTHER("PK\3\4\0\0\0\0[\"a\":", "a ZIP archive"),
        OTHER("PK\3\4\0\0\0\0{\"a\":", "header passes the end"),
        OTHER("(1, 2, 3, 4, 5)", "header too long"),
        OTHER("\x1f\x8b\0\1\0\0\0\0{\"a\":", "header passes the end"),
        OTHER(" \t {", "file too short"),
        OTHER("\x80\2", "file too short"),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qp_st st;
        struct qplan_error err;
        assert_int_equal(open_bytes(&st, rows[i].bytes, rows[i].n, &err), QPLAN_ERR_INVALID);
        if (!strstr(err.message, rows[i].part))
            fail_msg("row %zu: %s", i, err.message);
    }
}

/* The first 8 bytes of gzip data without a time are a length that a large file can have. */
static void gzip_is_recognised_in_a_large_file(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *bytes = calloc(1, n);
    struct qp_st st;
    struct qplan_error err;
    memcpy(bytes, "\x1f\x8b\x08\0\0\0\0\0\2\3", 10);
    assert_int_equal(open_bytes(&st, bytes, n, &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "gzip"));
    free(bytes);
}

static void a_missing_file_is_an_io_error(void **state)
{
    (void)state;
    struct qp_st st;
    struct qplan_error err;
    assert_int_equal(qp_st_open(&st, "no/such/file", &err), QPLAN_ERR_IO);
    assert_int_equal(st.file.fd, -1);
    qp_st_close(&st);
}

/* Many names in no order, with a long common beginning; each is found again. */
static void many_names_are_sorted(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct qp_writer w;
    struct qp_st st;
    qp_writer_init(&w);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t k = i * 7919 % N;
        qp_printf(
            &w,
            "%s\"model.layers.%u.%0*u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
            i ? "," : "{", k % 100, (int)(k % 3) * 9, k, k, k + 1);
    }
    qp_puts(&w, "}");
    assert_int_equal(parse(&st, w.data, w.n, N, NULL), QPLAN_OK);
    assert_int_equal(st.n_entries, N);
    for (size_t i = 0; i < N; i++) {
        const struct qplan_entry *entry = &st.entries[i];
        assert_ptr_equal(qp_st_find(&st, entry->name, entry->name_len), entry);
        assert_int_equal(strtoul(strrchr(entry->name, '.') + 1, NULL, 10), entry->begin);
        if (i > 0)
            assert_true(strcmp(entry[-1].name, entry->name) < 0);
    }
    for (size_t i = 0; i < N; i++) {
        char other[64];
        int n = snprintf(other, sizeof other, "%s!", st.entries[i].name);
        assert_null(qp_st_find(&st, other, (size_t)n));
    }
    qp_st_close(&st);
    qp_writer_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unusual_headers_are_accepted),
        cmocka_unit_test(every_dtype_is_known),
        cmocka_unit_test(entries_hold_what_the_header_says),
        cmocka_unit_test(a_long_path_leaves_room_for_the_tensor),
        cmocka_unit_test(the_order_in_the_header_does_not_matter),
        cmocka_unit_test(names_and_ranks_have_limits),
        cmocka_unit_test(headers_have_a_limit),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(framing_is_checked),
        cmocka_unit_test(other_formats_are_recognised),
        cmocka_unit_test(other_bytes_are_not_taken_for_a_format),
        cmocka_unit_test(gzip_is_recognised_in_a_large_file),
        cmocka_unit_test(a_missing_file_is_an_io_error),
        cmocka_unit_test(many_names_are_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
