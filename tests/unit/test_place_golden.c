/*
 * Places against the world: worked examples of the layouts, and tensors that the libraries of these
 * layouts packed or unpacked themselves (testdata/places).
 */
#include "place_cases.h"

#include "formats/safetensors/safetensors.h"
#include "kernels/kernel.h"

/* Values become exactly these bytes, and these bytes exactly the values. */
static void compare(const char *what, const struct qp_place *place, struct qp_matrix m,
                    const unsigned char *values, const unsigned char *bytes, size_t n_bytes)
{
    const struct qp_rect all = {0, m.rows, 0, m.cols};
    const size_t n = (size_t)(m.rows * m.cols) * value_bytes(place);
    unsigned char *image = malloc(n_bytes), *back = malloc(n);
    assert_true(image && back);
    if (qp_place_bytes(place, m) != n_bytes)
        fail_msg("%s: %" PRIu64 " bytes, not %zu", what, qp_place_bytes(place, m), n_bytes);
    for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
        memset(image, 0xa5, n_bytes);
        qp_place_put(place, m, &all, isa, values, image);
        if (memcmp(image, bytes, n_bytes) != 0)
            fail_msg("%s, %s: put gives other bytes", what, qplan_isa_name(isa));
        if (qp_place_get(place, m, &all, isa, bytes, back) != 0)
            fail_msg("%s, %s: filling is not accepted", what, qplan_isa_name(isa));
        if (memcmp(back, values, n) != 0)
            fail_msg("%s, %s: get gives other values", what, qplan_isa_name(isa));
    }
    free(image);
    free(back);
}

/* ---- Worked examples ------------------------------------------------------------------------- */

#define CODES                                                                                      \
    {                                                                                              \
        0, 1, 7, 8, 9, 10, 14, 15                                                                  \
    }
#define EIGHT(x)                                                                                   \
    {                                                                                              \
        x, x, x, x, x, x, x, x                                                                     \
    }

static const struct {
    const char *place;
    struct qp_matrix m;
    int values[16]; /* over and over */
    size_t n_bytes;
    unsigned char bytes[16];
} examples[] = {
    {"int4", {1, 3}, {-8, 7, -1}, 2, {0x78, 0x0f}},
    {"int4", {3, 1}, {-8, 7, -1}, 3, {0x08, 0x07, 0x0f}},
    {"uint3", {1, 8}, {0, 1, 2, 3, 4, 5, 6, 7}, 3, {0x88, 0xc6, 0xfa}},
    {"uint3", {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}, 4, {0x88, 0x06, 0xac, 0x0f}},
    {"uint4", {1, 8}, CODES, 4, {0x10, 0x87, 0xa9, 0xfe}}, /* FP4 */
    {"ct4", {1, 8}, {-8, -7, -1, 0, 1, 2, 6, 7}, 4, {0x10, 0x87, 0xa9, 0xfe}},
    {"ct8", {1, 4}, {-128, -1, 0, 127}, 4, {0x00, 0x7f, 0x80, 0xff}},
    {"ct3",
     {1, 32},
     {-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3},
     12,
     {0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa}},
    /* Two groups of 8 outputs: a word each, side by side. */
    {"ct4-zero",
     {8, 2},
     {-8, 0, -7, 0, -1, 0, 0, 0, 1, 0, 2, 0, 6, 0, 7, 0},
     8,
     {0x10, 0x87, 0xa9, 0xfe, 0x88, 0x88, 0x88, 0x88}},
    {"gptq4", {1, 8}, CODES, 4, {0x10, 0x87, 0xa9, 0xfe}},
    {"gptq4-zero-v1", {8, 1}, EIGHT(8), 4, {0x77, 0x77, 0x77, 0x77}},
    {"gptq4-zero-v2", {8, 1}, EIGHT(8), 4, {0x88, 0x88, 0x88, 0x88}},
    {"gptq8-zero-v1", {4, 1}, EIGHT(128), 4, {0x7f, 0x7f, 0x7f, 0x7f}},
    {"gptq8-zero-v2", {4, 1}, EIGHT(128), 4, {0x80, 0x80, 0x80, 0x80}},
    {"gptq4-zero-v1", {8, 1}, EIGHT(0), 4, {0xef, 0xee, 0xee, 0xee}}, /* 0 - 0x11111111 */
    {"awq4", {8, 1}, CODES, 4, {0x70, 0xe9, 0x81, 0xfa}},
    {"high-first", {1, 8}, CODES, 4, {0x01, 0x78, 0x9a, 0xef}},
    {"nf4", {1, 8}, CODES, 4, {0x01, 0x78, 0x9a, 0xef}},
    {"mlx4", {1, 8}, CODES, 4, {0x10, 0x87, 0xa9, 0xfe}},
};

static void test_worked_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(examples); i++) {
        const struct qp_place *place = &place_case(examples[i].place)->place;
        unsigned char values[32];
        for (size_t k = 0; k < sizeof values; k++)
            values[k] = (unsigned char)examples[i].values[k % 16];
        compare(examples[i].place, place, examples[i].m, values, examples[i].bytes,
                examples[i].n_bytes);
    }
}

/* ---- Tensors of the libraries ---------------------------------------------------------------- */

static unsigned char *read_entry(const struct qp_st *st, const struct qplan_entry *entry)
{
    const size_t n = (size_t)(entry->end - entry->begin);
    unsigned char *bytes = malloc(n + 1);
    struct qplan_error err;
    assert_non_null(bytes);
    OK(qp_file_read(&st->file, st->header_bytes + entry->begin, bytes, n, &err), &err);
    return bytes;
}

/* "<place>/<origin>.packed" and its values. Returns whether the entry is such a one. */
static bool compare_entry(const struct qp_st *st, const struct qplan_entry *packed)
{
    char name[128], place[128];
    (void)snprintf(name, sizeof name, "%s", packed->name);
    char *end = strstr(name, ".packed"), *slash = strchr(name, '/');
    if (!end)
        return false;
    assert_non_null(slash);
    (void)snprintf(place, sizeof place, "%.*s", (int)(slash - name), name);
    memcpy(end, ".values", sizeof ".values");
    const struct qplan_entry *values = qp_st_find(st, name, strlen(name));
    assert_non_null(values);
    assert_int_equal(values->rank, 2);
    unsigned char *from = read_entry(st, values), *bytes = read_entry(st, packed);
    compare(packed->name, &place_case(place)->place,
            (struct qp_matrix){values->shape[0], values->shape[1]}, from, bytes,
            (size_t)(packed->end - packed->begin));
    free(from);
    free(bytes);
    return true;
}

static void test_tensors_of_libraries(void **state)
{
    static const struct {
        const char *path;
        unsigned n;
    } files[] = {
        {"testdata/places/awq.safetensors", 6},
        {"testdata/places/bitsandbytes.safetensors", 3},
        {"testdata/places/comfyui.safetensors", 5},
        {"testdata/places/compressed_tensors.safetensors", 34},
        {"testdata/places/gptq.safetensors", 44},
        {"testdata/places/mlx.safetensors", 12},
        {"testdata/places/nvfp4.safetensors", 4},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        struct qplan_error err;
        struct qp_st st;
        unsigned n = 0;
        OK(qp_st_open(&st, files[i].path, &err), &err);
        for (size_t k = 0; k < st.n_entries; k++)
            n += compare_entry(&st, &st.entries[k]);
        assert_int_equal(n, files[i].n);
        qp_st_close(&st);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_examples),
        cmocka_unit_test(test_tensors_of_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
