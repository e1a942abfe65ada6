/*
 * test_safetensors_faults.c - headers that are refused: each with the tensor, the byte and both
 * values in its message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
    /* cut short where a value is due */
    {"{\"__metadata__\":", 0, NULL, 24, "not valid JSON"},
    {"{\"__metadata__\":{", 0, NULL, 25, "not valid JSON"},
    {"{\"t\":", 0, NULL, 13, "not valid JSON"},
    {"{\"t\":{\"dtype\":", 0, NULL, 22, "not valid JSON"},
    {"{\"t\":{\"shape\":", 0, NULL, 22, "not valid JSON"},
    {"{\"t\":{\"shape\":[1,", 0, NULL, 25, "not valid JSON"},
    {"{\"t\":{\"other\":", 0, NULL, 22, "not valid JSON"},
    /* tensors and their fields */
    {"{\"t\":[1]}", 0, "'t'", 13, "not a tensor: expected an object, found an array"},
    {"{\"t\":null}", 0, "'t'", 13, "expected an object, found null"},
    {"{\"t\":{}}", 0, "'t'", 14,
     "missing field: expected dtype, shape and data_offsets, found no dtype"},
    {"{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "'t'", 47, "found no shape"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[]}}", 0, "'t'", 37, "found no data_offsets"},
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
    {"{" T("__metadata__", "U8", "1", "0,1") "}", 1, NULL, 46,
     "value of 'shape': expected a string, found an array"},
    /* ranges */
    {"{" T("t", "U8", "8", "8,0") "}", 8, "'t'", 9,
     "data_offsets run backwards: expected begin <= end, found [8,0]"},
    {"{" T("t", "U8", "17", "0,17") "}", 16, "'t'", AT_DATA + 16,
     "data_offsets [0,17] pass the end: expected a file of at least 80 bytes, found 79"},
    {"{" T("b", "U8", "9", "8,17") "," T("a", "U8", "8", "0,8") "}", 3, "'a'", AT_DATA + 3,
     "[0,8] pass the end"},
    {"{" T("a", "U8", "4", "0,4") "," T("b", "U8", "4", "4,8") "}", 4, "'b'", AT_DATA + 4,
     "[4,8] pass the end"},
    {"{" T("b", "U8", "8", "4,12") "," T("a", "U8", "4", "0,4") "}", 8, "'b'", AT_DATA + 8,
     "[4,12] pass the end"},
    {"{" T("t", "U8", "4", "0,9223372036854775807") "}", 4, "'t'", AT_DATA + 4, "pass the end"},
    {"{" T("a", "U8", "8", "0,8") "," T("b", "U8", "8", "4,12") "}", 12, "'b'", AT_DATA + 4,
     "overlaps 'a': expected its data behind offset 8, found [4,12]"},
    {"{" T("b", "U8", "1", "4,5") "," T("a", "U8", "8", "0,8") "}", 8, "'b'", AT_DATA + 4,
     "overlaps 'a'"},
    {"{" T("a", "U8", "8", "0,8") "," T("b", "I8", "8", "0,8") "}", 8, "'b'", AT_DATA,
     "same range as 'a'"},
    {"{" T("b", "U8", "8", "0,8") "," T("a", "U8", "4", "0,4") "}", 8, "'b'", AT_DATA,
     "overlaps 'a': expected its data behind offset 4, found [0,8]"},
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
    {"{" T("t", "F64", "4611686018427387904", "0,1") "}", 1, "'t'", 9, "overflow"},
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

static void shapes_are_compared(void **state)
{
    static const uint64_t a[] = {2, 3}, b[] = {2, 3}, c[] = {2, 4};
    (void)state;
    assert_true(qp_same_shape(a, 2, a, 2));
    assert_true(qp_same_shape(a, 2, b, 2));
    assert_true(qp_same_shape(a, 0, c, 0));
    assert_true(qp_same_shape(a, 1, c, 1));
    assert_false(qp_same_shape(a, 2, c, 2));
    assert_false(qp_same_shape(a, 2, b, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_compared),
        cmocka_unit_test(faults_name_tensor_and_byte),
        cmocka_unit_test(tied_weights_get_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
