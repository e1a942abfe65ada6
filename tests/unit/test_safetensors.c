/*
 * test_safetensors.c - the container: what is refused, with its byte, what is accepted, and the
 * canonical header.
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

static void open_good(struct qp_st *st, const char *json, uint64_t n_data)
{
    struct qplan_error err;
    if (parse(st, json, strlen(json), n_data, &err) != QPLAN_OK)
        fail_msg("%.200s: %s: %s", json, err.subject, err.message);
}

/* ---- What is refused ------------------------------------------------------------------------- */

/* A tensor as header text. */
#define T(name, dtype, shape, range)                                                               \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"

struct fault {
    const char *json;
    uint64_t n_data;
    const char *tensor; /* quoted, or NULL for a fault of the file */
    uint64_t at;        /* in the file, or counted from the end of the header if AT_DATA is added */
    const char *part;
};

#define AT_DATA 1000000u

static const struct fault faults[] = {
    /* the header as a whole */
    {"[]", 0, NULL, 8, "the header: expected an object, found an array"},
    {"null", 0, NULL, 8, "expected an object, found null"},
    {" \"x\"", 0, NULL, 9, "expected an object, found a string"},
    {"{}", 5, NULL, AT_DATA,
     "5 bytes behind the last tensor: expected a file of 10 bytes, found 15"},
    {"{}{}", 0, NULL, 10, "not valid JSON"},
    {"{\"t\":[[[[[[[[1]]]]]]]]}", 0, NULL, 20, "nested too deep: expected depth 8"},
    {"{\"t\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}}}}}", 0, NULL, 48, "too deep"},
    /* tensors and their fields */
    {"{\"t\":[1]}", 0, "'t'", 13, "not a tensor: expected an object, found an array"},
    {"{\"t\":null}", 0, "'t'", 13, "expected an object, found null"},
    {"{\"t\":{}}", 0, "'t'", 14,
     "missing field: expected dtype, shape and data_offsets, found no dtype"},
    {"{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "'t'", 48, "found no shape"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[]}}", 0, "'t'", 38, "found no data_offsets"},
    {"{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "'t'", 27,
     "duplicate field: expected dtype once"},
    {"{\"t\":{\"shape\":[],\"sh\\u0061pe\":[]}}", 0, "'t'", 25,
     "duplicate field: expected shape once"},
    {"{\"t\":{\"data_offsets\":[0,0],\"data_offsets\":[0,0]}}", 0, "'t'", 35, "duplicate field"},
    {"{\"t\":{\"strides\":[1],\"shape\":[]}}", 0, "'t'", 14,
     "unknown field: expected dtype, shape or data_offsets, found 'strides'"},
    {"{\"t\":{\"dtype\":{\"F32\":null}}}", 0, "'t'", 22,
     "dtype: expected a string, found an object"},
    {"{\"t\":{\"dtype\":32}}", 0, "'t'", 22, "dtype: expected a string, found a number"},
    {"{" T("t", "Q4_K", "1", "0,1") "}", 1, "'t'", 22,
     "unknown dtype: expected one of the 22 of the format, found 'Q4_K'"},
    {"{" T("t", "f32", "1", "0,4") "}", 4, "'t'", 22, "found 'f32'"},
    {"{" T("t", "", "1", "0,4") "}", 4, "'t'", 22, "found ''"},
    {"{\"t\":{\"shape\":2}}", 0, "'t'", 22, "shape: expected an array, found a number"},
    {"{" T("t", "U8", "2.0", "0,2") "}", 2, "'t'", 36,
     "shape: not an integer: expected an integer from 0 to 9223372036854775807, found '2.0'"},
    {"{" T("t", "U8", "-2", "0,2") "}", 2, "'t'", 36, "found '-2'"},
    {"{" T("t", "U8", "-0", "0,0") "}", 0, "'t'", 36, "found '-0'"},
    {"{" T("t", "U8", "2e0", "0,2") "}", 2, "'t'", 36, "found '2e0'"},
    {"{" T("t", "U8", "\"2\"", "0,2") "}", 2, "'t'", 36,
     "shape: expected an integer, found a string"},
    {"{" T("t", "U8", "[2]", "0,2") "}", 2, "'t'", 36, "found an array"},
    {"{" T("t", "U8", "1,9223372036854775808", "0,2") "}", 2, "'t'", 38, "shape: number too large"},
    {"{" T("t", "U8", "2", "0,18446744073709551615") "}", 2, "'t'", 57,
     "data_offsets: number too large"},
    {"{" T("t", "U8", "2", "0,-0") "}", 2, "'t'", 57, "data_offsets: not an integer"},
    {"{" T("t", "U8", "2", "") "}", 2, "'t'", 39, "data_offsets: expected 2 integers, found 0"},
    {"{" T("t", "U8", "2", "2") "}", 2, "'t'", 39, "expected 2 integers, found 1"},
    {"{" T("t", "U8", "2", "0,2,2") "}", 2, "'t'", 39, "expected 2 integers, found 3"},
    {"{" T("a\\u0000b", "U8", "2", "0,2") "}", 2, "'a\\x00b'", 9, "U+0000"},
    /* names and metadata */
    {"{" T("t", "U8", "1", "0,1") "," T("t", "I8", "1", "0,1") "}", 1, "'t'", 61,
     "duplicate tensor name: first at byte 9, then again"},
    {"{" T("t", "U8", "1", "0,1") "," T("u", "U8", "1", "1,2") "," T("\\u0074", "U8", "1",
                                                                     "2,3") "}",
     3, "'t'", 113, "first at byte 9, then again"},
    {"{" T("\\ud83d\\ude00", "U8", "1", "0,1") "," T("\xf0\x9f\x98\x80", "U8", "1", "1,2") "}", 2,
     "'\xf0\x9f\x98\x80'", 72, "first at byte 9, then again"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, NULL, 27,
     "duplicate __metadata__: first at byte 9"},
    {"{\"__metadata__\":null,\"\\u005f_metadata__\":null}", 0, NULL, 29, "duplicate __metadata__"},
    {"{\"__metadata__\":{\"k\":\"1\",\"j\":\"\",\"\\u006b\":\"1\"}}", 0, NULL, 40,
     "duplicate key 'k': first at byte 25"},
    {"{\"__metadata__\":[]}", 0, NULL, 24,
     "__metadata__: expected an object or null, found an array"},
    {"{\"__metadata__\":{\"k\":1}}", 0, NULL, 29,
     "__metadata__: value of 'k': expected a string, found a number"},
    {"{\"__metadata__\":{\"k\":null}}", 0, NULL, 29, "value of 'k': expected a string, found null"},
    {"{" T("__metadata__", "U8", "1", "0,1") "}", 1, NULL, 47,
     "value of 'shape': expected a string, found an array"},
    /* ranges */
    {"{" T("t", "U8", "8", "8,0") "}", 8, "'t'", 9,
     "data_offsets run backwards: expected begin <= end, found [8,0]"},
    {"{" T("t", "U8", "17", "0,17") "}", 16, "'t'", AT_DATA + 16,
     "data_offsets [0,17] pass the end: expected a file of at least 81 bytes, found 80"},
    {"{" T("b", "U8", "9", "8,17") "," T("a", "U8", "8", "0,8") "}", 3, "'a'", AT_DATA + 3,
     "[0,8] pass the end"},
    {"{" T("t", "U8", "4", "0,9223372036854775807") "}", 4, "'t'", AT_DATA + 4, "pass the end"},
    {"{" T("a", "U8", "8", "0,8") "," T("b", "U8", "8", "4,12") "}", 12, "'b'", AT_DATA + 4,
     "overlaps 'a': expected its data behind offset 8, found [4,12]"},
    {"{" T("b", "U8", "1", "4,5") "," T("a", "U8", "8", "0,8") "}", 8, "'b'", AT_DATA + 4,
     "overlaps 'a'"},
    {"{" T("a", "U8", "8", "0,8") "," T("b", "I8", "8", "0,8") "}", 8, "'b'", AT_DATA,
     "same range as 'a'"},
    {"{" T("a", "U8", "8", "0,8") "," T("z", "U8", "0", "4,4") "}", 8, "'z'", AT_DATA + 4,
     "overlaps 'a'"},
    {"{" T("t", "U8", "4", "4,8") "}", 8, "'t'", AT_DATA,
     "hole of 4 bytes behind the header: expected data at offset 0, found it at 4"},
    {"{" T("a", "U8", "4", "0,4") "," T("b", "U8", "1", "11,12") "}", 12, "'b'", AT_DATA + 4,
     "hole of 7 bytes behind 'a'"},
    {"{" T("a", "U8", "4", "0,4") "}", 7, NULL, AT_DATA + 4, "3 bytes behind the last tensor"},
    /* sizes */
    {"{" T("t", "F32", "2,3", "0,25") "}", 25, "'t'", 9,
     "F32 of shape [2,3]: expected 24 bytes, found 25"},
    {"{" T("t", "F32", "2,3", "0,23") "}", 23, "'t'", 9,
     "F32 of shape [2,3]: expected 24 bytes, found 23"},
    {"{" T("t", "F64", "", "0,4") "}", 4, "'t'", 9, "F64 of shape []: expected 8 bytes, found 4"},
    {"{" T("t", "F32", "0,3", "0,4") "}", 4, "'t'", 9, "expected 0 bytes, found 4"},
    {"{" T("t", "F4", "3", "0,2") "}", 2, "'t'", 9, "not whole bytes: F4 of shape [3]"},
    {"{" T("t", "F6_E2M3", "2", "0,2") "}", 2, "'t'", 9, "not whole bytes"},
    {"{" T("t", "F32", "4611686018427387905,4", "0,16") "}", 16, "'t'", 9, "overflow"},
    {"{" T("t", "F32", "0,9223372036854775807,9", "0,0") "}", 0, "'t'", 9, "overflow"},
    {"{" T("t", "F32", "9223372036854775807,9,0", "0,0") "}", 0, "'t'", 9, "overflow"},
    {"{" T("t", "U8", "1152921504606846977", "0,1") "}", 1, "'t'", 9, "overflow"},
};

static uint64_t place_of(const struct fault *fault)
{
    if (fault->at < AT_DATA)
        return fault->at;
    return 8 + strlen(fault->json) + fault->at - AT_DATA;
}

static void faults_name_tensor_and_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(faults); i++) {
        const struct fault *f = &faults[i];
        struct qp_st st;
        struct qplan_error err;
        char subject[512] = "dir/m.st";
        if (f->tensor)
            snprintf(subject, sizeof subject, "dir/m.st: %s", f->tensor);
        assert_int_equal(parse(&st, f->json, strlen(f->json), f->n_data, &err), QPLAN_ERR_INVALID);
        if (strcmp(err.subject, subject) != 0 || err.offset != place_of(f) ||
            !strstr(err.message, f->part))
            fail_msg("%s: %s: %s", f->json, err.subject, err.message);
        assert_int_equal(st.file.fd, -1);
        assert_null(st.entries);
        assert_int_equal(parse(&st, f->json, strlen(f->json), f->n_data, NULL), QPLAN_ERR_INVALID);
    }
}

static void tied_weights_get_a_hint(void **state)
{
    (void)state;
    struct qp_st st;
    struct qplan_error err;
    static const char json[] = "{" T("a", "U8", "8", "0,8") "," T("b", "I8", "8", "0,8") "}";
    assert_int_equal(parse(&st, json, strlen(json), 8, &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.hint, "tie"));
}

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
                         "\"__metadata__\":{\"z\":\"a\\u0000b\",\"\":\"\",\"format\":\"pt\"}," T(
                             "\\u0061\\n", "I8", "1,1,4", "20,24") "}",
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

    assert_int_equal(st.n_metadata, 3);
    assert_string_equal(st.metadata[0].key, "");
    assert_string_equal(qp_st_metadata(&st, "format")->value, "pt");
    assert_int_equal(qp_st_metadata(&st, "z")->value_len, 3);
    assert_memory_equal(qp_st_metadata(&st, "z")->value, "a\0b", 4);
    assert_null(qp_st_metadata(&st, "forma"));

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
    enum qplan_status status = qp_st_open_fd(st, fileno(file), "m.st", err);
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
        {"\2\0\0\0\0\0\0\0{}x", 11, 10, "1 bytes behind", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qp_st st;
        struct qplan_error err;
        assert_int_equal(open_bytes(&st, rows[i].bytes, rows[i].n, &err), QPLAN_ERR_INVALID);
        assert_non_null(strstr(err.message, rows[i].message));
        assert_true(err.offset == rows[i].at);
        assert_non_null(strstr(err.hint, rows[i].hint));
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
        OTHER("{\"error\":\"not found\"}", "looks like JSON text"),
        OTHER("{\n  \"error\": 404}", "looks like JSON text"),
        OTHER("GGUF\3\0\0\0\1\0\0\0", "GGUF"),
        OTHER("PK\3\4\x14\0\0\0\0\0", "ZIP archive (PyTorch"),
        OTHER("\x80\2}q\0(X\5\0\0\0", "pickle"),
        OTHER("\x80\4\x95\x10\0\0\0\0\0\0\0", "pickle"),
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
    assert_int_equal(qp_st_layout(entries, COUNT(entries), &data_bytes, "out", NULL), QPLAN_OK);
    assert_int_equal(data_bytes, 15);
    qp_writer_init(&w);
    assert_int_equal(qp_st_put_header(&w, entries, COUNT(entries), metadata, 2, "out", NULL),
                     QPLAN_OK);
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
    assert_int_equal(qp_st_layout(same, 3, &n, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "duplicate tensor name: expected 'a' once"));
    struct qplan_entry part[] = {entry_of("f", QPLAN_STORAGE_F4, odd, 1)};
    assert_int_equal(qp_st_layout(part, 1, &n, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "'f'"));
    struct qplan_entry big[20];
    char names[20][3];
    for (int i = 0; i < 20; i++) {
        snprintf(names[i], sizeof names[i], "%02d", i);
        big[i] = entry_of(names[i], QPLAN_STORAGE_I8, huge, 1);
    }
    assert_int_equal(qp_st_layout(big, 15, &n, "out", &err), QPLAN_OK);
    assert_int_equal(qp_st_layout(big, 16, &n, "out", &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "'15'"));
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
    struct qplan_entry entries[N_RANDOM];
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
        file->entries[i] =
            entry_of(file->names[i], (enum qplan_storage)(next_random(seed) % QPLAN_STORAGE_COUNT),
                     file->shapes[i], rank);
    }
}

static void shuffle(struct random_file *file, uint64_t *seed)
{
    for (size_t i = file->n; i > 1; i--) {
        size_t k = next_random(seed) % i;
        struct qplan_entry other = file->entries[k];
        file->entries[k] = file->entries[i - 1];
        file->entries[i - 1] = other;
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
        assert_int_equal(qp_st_layout(file.entries, file.n, &data_bytes, "", NULL), QPLAN_OK);
        assert_int_equal(qp_st_put_header(&first, file.entries, file.n, metadata, 2, "", NULL),
                         QPLAN_OK);
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
        assert_int_equal(qp_st_layout(file.entries, file.n, &data_bytes, "", NULL), QPLAN_OK);
        qp_st_put_header(&second, file.entries, file.n, metadata, 2, "", NULL);
        assert_int_equal(first.n, second.n);
        assert_memory_equal(first.data, second.data, first.n);
        qp_writer_free(&first);
        qp_writer_free(&second);
    }
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
    qp_st_close(&st);
    qp_writer_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_name_tensor_and_byte),
        cmocka_unit_test(tied_weights_get_a_hint),
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
        cmocka_unit_test(gzip_is_recognised_in_a_large_file),
        cmocka_unit_test(a_missing_file_is_an_io_error),
        cmocka_unit_test(the_header_is_canonical),
        cmocka_unit_test(an_empty_header_is_padded_too),
        cmocka_unit_test(layouts_that_cannot_be_are_refused),
        cmocka_unit_test(the_header_that_is_written_has_a_limit),
        cmocka_unit_test(written_headers_read_back),
        cmocka_unit_test(many_names_are_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
