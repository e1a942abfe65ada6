/*
 * test_safetensors_usual.c - the fields of a tensor in their usual form: what is taken for it, and
 * that it says the same as the tokens of the same text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/internal.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define F(dtype, shape, range)                                                                     \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"

static const char good[] = F("BF16", "64,3", "128,512");

/* A copy exactly as long as the text, so that a read past the end is seen. */
static size_t usual(const char *text, size_t n, struct qp_st_fields *fields)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, text, n);
    const size_t length = qp_st_usual_fields(copy, n, fields);
    free(copy);
    return length;
}

static void the_usual_form_is_read(void **state)
{
    (void)state;
    static const char behind[] = F("BF16", "64,3", "128,512") ",\"x\":";
    for (int before = 0; before < QPLAN_STORAGE_COUNT; before++) {
        struct qp_st_fields f = {.storage = (enum qplan_storage)before};
        assert_int_equal(usual(behind, strlen(behind), &f), strlen(good));
        assert_int_equal(f.storage, QPLAN_STORAGE_BF16);
        assert_int_equal(f.rank, 2);
        assert_int_equal(f.shape[0], 64);
        assert_int_equal(f.shape[1], 3);
        assert_int_equal(f.range[0], 128);
        assert_int_equal(f.range[1], 512);
    }
}

static void other_forms_are_left_alone(void **state)
{
    (void)state;
    static const char *const others[] = {
        F("BF17", "64", "0,1"),
        F("F", "64", "0,1"),
        F("", "64", "0,1"),
        F("BF16", "01", "0,1"),
        F("BF16", "-1", "0,1"),
        F("BF16", "1.0", "0,1"),
        F("BF16", "1e1", "0,1"),
        F("BF16", "1,", "0,1"),
        F("BF16", ",1", "0,1"),
        F("BF16", " 1", "0,1"),
        F("BF16", "9223372036854775808", "0,1"),
        F("BF16", "18446744073709551616", "0,1"),
        F("BF16", "99999999999999999999", "0,1"),
        F("BF16", "1", ""),
        F("BF16", "1", "0"),
        F("BF16", "1", "0,1,2"),
        "[]",
        "{}",
        "null",
        "{ \"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}",
        "{\"shape\":[],\"dtype\":\"U8\",\"data_offsets\":[0,1]}",
        "{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":0}",
        "{\"dtype\":\"\\u00558\",\"shape\":[],\"data_offsets\":[0,1]}",
    };
    for (size_t i = 0; i < COUNT(others); i++) {
        struct qp_st_fields f = {.storage = QPLAN_STORAGE_BF16};
        if (usual(others[i], strlen(others[i]), &f) != 0)
            fail_msg("taken for the usual form: %s", others[i]);
    }
}

static void no_part_is_the_whole(void **state)
{
    (void)state;
    for (size_t n = 0; n < strlen(good); n++) {
        struct qp_st_fields f = {.storage = QPLAN_STORAGE_BF16};
        assert_int_equal(usual(good, n, &f), 0);
    }
}

/* A shape of rank ones, and [0,1] behind it. */
static size_t put_rank(char *out, size_t size, unsigned rank)
{
    size_t n = (size_t)snprintf(out, size, "{\"dtype\":\"U8\",\"shape\":[");
    for (unsigned i = 0; i < rank; i++)
        n += (size_t)snprintf(out + n, size - n, i ? ",1" : "1");
    return n + (size_t)snprintf(out + n, size - n, "],\"data_offsets\":[0,1]}");
}

static void ranks_end_where_they_do_elsewhere(void **state)
{
    (void)state;
    char text[512];
    struct qp_st_fields f = {.storage = QPLAN_STORAGE_BOOL};
    size_t n = put_rank(text, sizeof text, QPLAN_MAX_RANK);
    assert_int_equal(usual(text, n, &f), n);
    assert_int_equal(f.rank, QPLAN_MAX_RANK);
    n = put_rank(text, sizeof text, QPLAN_MAX_RANK + 1);
    assert_int_equal(usual(text, n, &f), 0);
    n = put_rank(text, sizeof text, 0);
    assert_int_equal(usual(text, n, &f), n);
    assert_int_equal(f.rank, 0);
}

/* Opens a header of one tensor called t, in one of two forms of the same length. */
static enum qplan_status open_one(struct qp_st *st, const char *form, const char *fields,
                                  struct qplan_error *err)
{
    char json[512];
    const int n = snprintf(json, sizeof json, "%s%s}", form, fields);
    return qp_st_parse(st, json, (size_t)n, 8 + (uint64_t)n + 384, "m.st", err);
}

/* A blank before the value makes the reader look at tokens. */
static void tokens_say_the_same(void **state)
{
    (void)state;
    static const char *const rows[] = {
        F("BF16", "64,3", "0,384"),
        F("U8", "384", "0,384"),
        F("F32", "2,0,9223372036854775807", "0,0"),
        F("BF16", "9223372036854775807", "0,384"),
        F("BF16", "9223372036854775808", "0,384"),
        F("BF16", "64,03", "0,384"),
        F("BF16", "64,3", "0,385"),
        F("BF16", "64,3", "384,0"),
        F("BF16", "64,3", "0,384,0"),
        F("BF18", "64,3", "0,384"),
        "{\"dtype\":\"BF16\",\"shape\":[64,3],\"data_offsets\":[0,384]",
        "{\"dtype\":\"BF16\",\"shape\":[64,3],\"data_offsets\":[0,384]}}",
        "{\"dtype\":\"BF16\",\"shape\":[64,3],\"data_offsets\":[0,384]} x",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qp_st one, two;
        struct qplan_error err = {.offset = 0}, other = {.offset = 0};
        const enum qplan_status status = open_one(&one, "{ \"t\":", rows[i], &err);
        assert_int_equal(status, open_one(&two, "{\"t\": ", rows[i], &other));
        if (status != QPLAN_OK) {
            assert_string_equal(err.subject, other.subject);
            assert_memory_equal(err.message, other.message, strcspn(err.message, "("));
            continue;
        }
        const struct qplan_entry *a = one.entries, *b = two.entries;
        assert_int_equal(a->storage, b->storage);
        assert_int_equal(a->begin, b->begin);
        assert_int_equal(a->end, b->end);
        assert_true(qp_same_shape(a->shape, a->rank, b->shape, b->rank));
        qp_st_close(&one);
        qp_st_close(&two);
    }
}

/* Shapes that follow each other are kept once; another one between them makes no difference. */
static void shapes_stay_apart(void **state)
{
    (void)state;
    static const char json[] = "{\"a\":" F("U8", "2,3", "0,6") ",\"b\":" F(
        "U8", "2,3", "6,12") ",\"c\":" F("U8", "", "12,13") ",\"d\":" F("U8", "2,3", "13,19") "}";
    struct qp_st st;
    struct qplan_error err;
    assert_int_equal(qp_st_parse(&st, json, strlen(json), 8 + strlen(json) + 19, "m.st", &err),
                     QPLAN_OK);
    static const unsigned ranks[] = {2, 2, 0, 2};
    static const uint64_t shape[] = {2, 3};
    assert_int_equal(st.n_entries, COUNT(ranks));
    for (size_t i = 0; i < COUNT(ranks); i++)
        assert_true(qp_same_shape(st.entries[i].shape, st.entries[i].rank, shape, ranks[i]));
    assert_ptr_equal(st.entries[0].shape, st.entries[1].shape);
    qp_st_close(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_form_is_read),
        cmocka_unit_test(other_forms_are_left_alone),
        cmocka_unit_test(no_part_is_the_whole),
        cmocka_unit_test(ranks_end_where_they_do_elsewhere),
        cmocka_unit_test(tokens_say_the_same),
        cmocka_unit_test(shapes_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
