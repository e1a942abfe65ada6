/*
 * test_format_described.c - what the readers of layouts of floats make of config.json and of stored
 * tensors that other tools may have written: listings made by hand, also of shapes that no small
 * file can have. Each is a scheme, or is refused by the reason of its row.
 */
#include "support.h"

#include "formats/format.h"
#include "lib/base/alloc.h"
#include "lib/base/arena.h"

#define P63       ((uint64_t)1 << 63)
#define P40       ((uint64_t)1 << 40)
#define MOST_RANK 4

struct entry {
    const char *name;
    enum qplan_storage storage;
    unsigned rank;
    uint64_t shape[MOST_RANK];
};

struct described {
    const char *format, *config;
    struct entry entries[3]; /* in the order of names, ended by one without */
    const char *scheme;      /* of the only tensor; "" = there is none; NULL = it is refused */
    const char *message;     /* a part of the refusal */
    const char *bytes;       /* of the tensors that the reader looks into */
};

#define I8  QPLAN_STORAGE_I8
#define I32 QPLAN_STORAGE_I32
#define I64 QPLAN_STORAGE_I64
#define U8  QPLAN_STORAGE_U8
#define U32 QPLAN_STORAGE_U32
#define F8  QPLAN_STORAGE_F8_E4M3
#define F16 QPLAN_STORAGE_F16
#define F32 QPLAN_STORAGE_F32

#define FP8(members) "{\"quantization_config\":{\"quant_method\":\"fp8\"" members "}}"
#define OF_128       ",\"weight_block_size\":[128,128]"
#define ALGO(value)  "{\"quantization_config\":{\"quant_algo\":" value "},\"dtype\":\"int8\"}"
#define NVFP4        ALGO("\"NVFP4\"")
#define MLX(mode)    "{\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"" mode "\"}}"

/* Groups of compressed-tensors by their weights. */
#define CT(weights)                                                                                \
    "{\"quantization_config\":{\"config_groups\":{\"g\":{\"weights\":{" weights "}}}}}"
#define FLOAT(strategy) "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"" strategy "\""
#define BLOCK(list)     CT(FLOAT("block") ",\"block_structure\":" list)
#define CT_NVFP4                                                                                   \
    CT("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16")
#define CT_MXFP8 CT(FLOAT("group") ",\"group_size\":32")
#define CT_INT4  CT("\"num_bits\":4,\"strategy\":\"group\",\"group_size\":32")
#define NO_GROUP "fit no group"

/* The bytes of a mark are those of the row. */
#define MARK                                                                                       \
    "a.comfy_quant", U8, 1,                                                                        \
    {                                                                                              \
        1                                                                                          \
    }
#define M_FP8    "{\"format\":\"float8_e4m3fn\"}"
#define M_NVFP4  "{\"format\":\"nvfp4\"}"
#define WHOLE(v) "{\"format\":\"float8_e4m3fn\",\"full_precision_matrix_mult\":" v "}"

static const struct described rows[] = {
    /* fp8 */
    {"fp8",
     FP8(OF_128 ",\"fmt\":\"e4m3\""),
     {{"a.weight", F8, 2, {5, 7}}, {"a.weight_scale_inv", F32, 2, {1, 1}}, {"b", F32, 1, {3}}},
     "f8e4m3:b128x128",
     NULL,
     NULL},
    {"fp8", FP8(""), {{NULL, 0, 0, {0}}}, NULL, "weight_block_size: expected [128,128]", NULL},
    {"fp8",
     FP8(",\"weight_block_size\":[128,64]"),
     {{NULL, 0, 0, {0}}},
     NULL,
     "expected [128,128]",
     NULL},
    {"fp8", FP8(OF_128 ",\"fmt\":\"e5m2\""), {{NULL, 0, 0, {0}}}, NULL, "fmt: expected e4m3", NULL},
    {"fp8", FP8(OF_128 ",\"fmt\":1"), {{NULL, 0, 0, {0}}}, NULL, "fmt: expected e4m3", NULL},
    {"fp8",
     FP8(OF_128),
     {{"a.weight_scale_inv", F32, 2, {1, 1}}},
     NULL,
     "weights that are not there",
     NULL},
    {"fp8",
     FP8(OF_128),
     {{"a.weight", F16, 2, {5, 7}}, {"a.weight_scale_inv", F32, 2, {1, 1}}},
     NULL,
     "weights that are not there",
     NULL},
    {"fp8", FP8(OF_128), {{"a.weight", F8, 1, {5}}}, NULL, "codes with two axes", NULL},
    {"fp8", FP8(OF_128), {{"a.weight", F8, 2, {5, 0}}}, NULL, "codes with two axes", NULL},

    /* modelopt */
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {5, 16}}, {"a.weight_scale", F8, 2, {5, 2}}},
     "f4e2m1:g16:f8e4m3",
     NULL,
     NULL},
    {"modelopt",
     ALGO("\"W4A16_NVFP4\""),
     {{"a.bias", U8, 2, {5, 16}}, {"a.bias_scale", F8, 2, {5, 2}}, {"b.weight", U8, 1, {5}}},
     "",
     NULL,
     NULL},
    {"modelopt", ALGO("\"FP8\""), {{NULL, 0, 0, {0}}}, NULL, "expected W4A16_NVFP4 or NVFP4", NULL},
    {"modelopt", "{\"quantization_config\":{}}", {{NULL, 0, 0, {0}}}, NULL, "found none", NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 1, {16}}, {"a.weight_scale", F8, 2, {1, 2}}},
     NULL,
     "blocks of 16",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {1, 16}}, {"a.weight_scale", F8, 1, {2}}},
     NULL,
     "blocks of 16",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {0, P63}}, {"a.weight_scale", F8, 2, {0, 1}}},
     NULL,
     "blocks of 16",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {5, 12}}, {"a.weight_scale", F8, 2, {5, 1}}},
     NULL,
     "blocks of 16",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {5, 16}}, {"a.weight_scale", F8, 2, {5, 1}}},
     NULL,
     "blocks of 16",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {P40, P40}}, {"a.weight_scale", F8, 2, {5, P40 / 8}}},
     NULL,
     "blocks of 16",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {0, 16}}, {"a.weight_scale", F8, 2, {0, 2}}},
     NULL,
     "blocks of 16",
     NULL},

    {"modelopt",
     NVFP4,
     {{"a.weight_scale", F8, 2, {5, 2}}},
     NULL,
     "codes of type U8 and their scales",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", U8, 2, {5, 16}}, {"a.weight_scale_2", F32, 0, {0}}},
     NULL,
     "codes of type U8 and their scales",
     NULL},
    {"modelopt",
     NVFP4,
     {{"a.weight", F16, 2, {5, 16}}, {"a.weight_scale", F8, 2, {5, 2}}},
     NULL,
     "codes of type U8 and their scales",
     NULL},

    /* comfyui */
    {"comfyui",
     NULL,
     {{MARK}, {"a.weight", F8, 2, {5, 7}}, {"a.weight_scale", F32, 0, {0}}},
     "f8e4m3:t",
     NULL,
     WHOLE("true")},
    {"comfyui",
     NULL,
     {{MARK}, {"a.weight", F8, 2, {5, 7}}, {"a.weight_scale", F32, 0, {0}}},
     NULL,
     "nothing that changes values",
     "{\"format\":\"mxfp8\",\"x\":\"full\"}"},
    {"comfyui",
     NULL,
     {{MARK}, {"a.weight", F8, 2, {P40, P40}}, {"a.weight_scale", F32, 0, {0}}},
     NULL,
     "a weight of two axes",
     M_FP8},
    {"comfyui",
     NULL,
     {{MARK}, {"a.weight", F8, 2, {0, 7}}, {"a.weight_scale", F32, 0, {0}}},
     NULL,
     "a weight of two axes",
     M_FP8},
    {"comfyui",
     NULL,
     {{MARK}, {"a.weight", F8, 3, {1, 5, 7}}, {"a.weight_scale", F32, 0, {0}}},
     NULL,
     "a weight of two axes",
     M_FP8},
    {"comfyui",
     NULL,
     {{MARK}, {"a.weight", U8, 2, {0, P63}}, {"a.weight_scale", F8, 2, {128, 4}}},
     NULL,
     "a weight of two axes",
     M_NVFP4},
    {"comfyui",
     NULL,
     {{MARK}, {"a.weight", U8, 2, {1, 4}}, {"a.weight_scale", F8, 2, {128, 4}}},
     NULL,
     "of whole blocks",
     M_NVFP4},

    /* mlx */
    {"mlx",
     MLX("mxfp4"),
     {{"a.scales", U8, 2, {5, 2}}, {"a.weight", U32, 2, {5, 8}}},
     "f4e2m1:g32:e8m0",
     NULL,
     NULL},
    {"mlx",
     MLX("affine"),
     {{"a.scales", F16, 1, {2}}, {"a.weight", U32, 1, {8}}},
     NULL,
     "do not fit",
     NULL},
    {"mlx",
     MLX("affine"),
     {{"a.scales", F16, 3, {1, 5, 2}}, {"a.weight", U32, 2, {5, 8}}},
     NULL,
     "do not fit",
     NULL},
    {"mlx",
     MLX("affine"),
     {{"a.scales", F16, 4, {1, 1, 5, 2}}, {"a.weight", U32, 4, {1, 1, 5, 8}}},
     NULL,
     "do not fit",
     NULL},

    /* compressed-tensors: groups */
    {"compressed-tensors",
     CT(FLOAT("channel") ",\"symmetric\":false"),
     {{NULL, 0, 0, {0}}},
     NULL,
     "true for floats",
     NULL},
    {"compressed-tensors", BLOCK("null"), {{NULL, 0, 0, {0}}}, NULL, "two whole numbers", NULL},
    {"compressed-tensors", BLOCK("{}"), {{NULL, 0, 0, {0}}}, NULL, "two whole numbers", NULL},
    {"compressed-tensors", BLOCK("[1]"), {{NULL, 0, 0, {0}}}, NULL, "two whole numbers", NULL},
    {"compressed-tensors", BLOCK("[0,1]"), {{NULL, 0, 0, {0}}}, NULL, "two whole numbers", NULL},
    {"compressed-tensors", BLOCK("[1,-1]"), {{NULL, 0, 0, {0}}}, NULL, "two whole numbers", NULL},
    {"compressed-tensors", CT(FLOAT("block")), {{NULL, 0, 0, {0}}}, NULL, "found none", NULL},
    {"compressed-tensors",
     BLOCK("[2,9223372036854775808]"),
     {{NULL, 0, 0, {0}}},
     NULL,
     "two whole numbers",
     NULL},

    /* compressed-tensors: stored tensors */
    {"compressed-tensors",
     BLOCK("[2,3]"),
     {{"a.weight", F8, 2, {5, 7}}, {"a.weight_scale", F16, 2, {3, 3}}},
     "f8e4m3:b2x3:f16",
     NULL,
     NULL},
    {"compressed-tensors",
     CT(FLOAT("tensor")),
     {{"a.weight", F8, 2, {5, 7}}, {"a.weight_scale", F32, 1, {1}}},
     "f8e4m3:t",
     NULL,
     NULL},
    {"compressed-tensors",
     CT(FLOAT("tensor")),
     {{"a.weight", F8, 2, {5, 7}}, {"a.weight_scale", F32, 1, {2}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT(FLOAT("tensor")),
     {{"a.weight", F8, 2, {5, 7}}, {"a.weight_scale", F32, 0, {0}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT(FLOAT("group") ",\"group_size\":4"),
     {{"a.weight", F8, 2, {5, 7}}, {"a.weight_scale", F32, 2, {5, 2}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT_NVFP4,
     {{"a.weight_packed", U8, 2, {5, 8}}, {"a.weight_scale", F8, 2, {5, 1}}},
     "f4e2m1:g16:f8e4m3",
     NULL,
     NULL},
    {"compressed-tensors",
     CT_NVFP4,
     {{"a.weight_packed", I32, 2, {5, 8}}, {"a.weight_scale", F8, 2, {5, 1}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT_NVFP4,
     {{"a.weight_packed", U8, 2, {5, 8}}, {"a.weight_scale", U8, 2, {5, 1}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT_NVFP4,
     {{"a.weight_packed", U8, 2, {0, P63}}, {"a.weight_scale", F8, 2, {0, 1}}},
     NULL,
     "too many columns",
     NULL},
    {"compressed-tensors",
     CT_MXFP8,
     {{"a.weight", F8, 2, {5, 32}}, {"a.weight_scale", U8, 2, {5, 1}}},
     "f8e4m3:g32:e8m0",
     NULL,
     NULL},
    {"compressed-tensors",
     CT_NVFP4,
     {{"a.weight", F8, 2, {5, 16}}, {"a.weight_scale", F8, 2, {5, 1}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT(FLOAT("channel")),
     {{"a.weight_packed", I32, 2, {5, 2}},
      {"a.weight_scale", F32, 2, {5, 1}},
      {"a.weight_shape", I64, 1, {2}}},
     NULL,
     NO_GROUP,
     "\5\0\0\0\0\0\0\0\7\0\0\0\0\0\0"},
    {"compressed-tensors",
     CT_MXFP8,
     {{"a.weight", I8, 2, {5, 32}}, {"a.weight_scale", U8, 2, {5, 1}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT_MXFP8,
     {{"a.weight", F8, 2, {5, 32}}, {"a.weight_scale", F32, 2, {5, 1}}},
     NULL,
     NO_GROUP,
     NULL},
    {"compressed-tensors",
     CT_INT4,
     {{"a.weight_packed", U8, 2, {5, 16}}, {"a.weight_scale", U8, 2, {5, 1}}},
     NULL,
     NO_GROUP,
     NULL},
};

static const char *bytes; /* what the reader finds in a tensor */

static enum qplan_status read_bytes(const struct qp_listing *listing,
                                    const struct qplan_entry *entry, uint64_t off, void *out,
                                    size_t n, struct qplan_error *err)
{
    (void)listing, (void)entry;
    memcpy(out, bytes + off, n);
    return err ? QPLAN_OK : QPLAN_ERR_IO;
}

static void make_entries(struct qp_listing *listing, struct qplan_entry *entries,
                         const struct described *row)
{
    for (; listing->n_entries < COUNT(row->entries) && row->entries[listing->n_entries].name;
         listing->n_entries++) {
        const struct entry *e = &row->entries[listing->n_entries];
        entries[listing->n_entries] =
            (struct qplan_entry){.name = e->name,
                                 .name_len = (uint32_t)strlen(e->name),
                                 .storage = (uint8_t)e->storage,
                                 .rank = (uint8_t)e->rank,
                                 .end = row->bytes ? strlen(row->bytes) : 0,
                                 .shape = e->shape};
    }
}

static void check_described(size_t i, enum qplan_status status, const struct qplan_error *err,
                            const struct qp_tensor *tensors, size_t n)
{
    const struct described *row = &rows[i];
    char text[QPLAN_SCHEME_TEXT] = "";
    if (!row->scheme) {
        if (status != QPLAN_ERR_INVALID || !strstr(err->message, row->message))
            fail_msg("row %zu: expected %s, found %s", i, row->message,
                     status ? err->message : "none");
        return;
    }
    if (status == QPLAN_OK && n == 1)
        (void)qplan_scheme_format(tensors[0].scheme, text);
    if (status != QPLAN_OK || n > 1 || strcmp(text, row->scheme) != 0)
        fail_msg("row %zu: expected %s, found %s%s", i, row->scheme, text,
                 status ? err->message : "");
}

static void a_description_is_a_scheme_or_is_refused(void **state)
{
    static const struct qp_st file = {.file = {.path = "m", .shown = "m"}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_error err = {.status = QPLAN_OK};
        struct qp_tree config = {.name = "config.json", .err = &err, .any_numbers = true};
        struct qplan_entry entries[COUNT(rows[i].entries)];
        struct qp_listing listing = {.files = &file,
                                     .n_files = 1,
                                     .entries = entries,
                                     .shown = "m",
                                     .config = rows[i].config ? &config : NULL,
                                     .read = read_bytes};
        struct qp_arena arena = {.blocks = NULL};
        struct qp_tensor *tensors = NULL;
        size_t n = 0;
        bytes = rows[i].bytes;
        if (rows[i].config)
            OK(qp_tree_read(&config, rows[i].config, strlen(rows[i].config)), &err);
        make_entries(&listing, entries, &rows[i]);
        const enum qplan_status status =
            qp_format_find(rows[i].format)->describe(&listing, &arena, &tensors, &n, &err);
        check_described(i, status, &err, tensors, n);
        qp_free(tensors);
        qp_arena_free(&arena);
        qp_tree_free(&config);
    }
}

/* Of a file whose marks are in its header: its metadata, and what describes its tensors. */
#define CLAIM(layer, mark) "{\"format_version\":\"1.0\",\"layers\":{\"" layer "\":" mark "}}"

struct claims {
    const char *first, *second; /* of two files; NULL = none */
    const char *subject;        /* of the error; NULL = the one tensor is described */
};

static const struct claims claims[] = {
    {NULL, CLAIM("a", M_FP8), NULL},
    {CLAIM("a", M_FP8), NULL, NULL},
    {CLAIM("a", "{}"), CLAIM("a", M_FP8), "m: metadata _quantization_metadata: 'a'"},
    {CLAIM("a", M_FP8), CLAIM("b", M_FP8), "n: metadata _quantization_metadata: 'b'"},
    {"", CLAIM("a", M_FP8), "m: metadata _quantization_metadata"},
};

static void marks_in_headers_are_read_of_every_file(void **state)
{
    static const char key[] = "_quantization_metadata";
    struct qplan_entry entries[] = {
        {.name = "a.weight", .name_len = 8, .storage = F8, .rank = 2, .shape = (uint64_t[]){5, 7}},
        {.name = "a.weight_scale", .name_len = 14, .storage = F32}};
    (void)state;
    for (size_t i = 0; i < COUNT(claims); i++) {
        const char *const texts[] = {claims[i].first, claims[i].second};
        struct qp_st files[2] = {{.file = {.shown = "m"}}, {.file = {.shown = "n"}}};
        struct qp_st_pair pairs[2];
        struct qplan_error err = {.status = QPLAN_OK};
        const struct qp_listing listing = {
            .files = files, .n_files = 2, .entries = entries, .n_entries = 2, .shown = "m"};
        struct qp_arena arena = {.blocks = NULL};
        struct qp_tensor *tensors = NULL;
        size_t n = 0;
        for (size_t k = 0; k < 2; k++) {
            files[k].n_metadata = texts[k] != NULL;
            files[k].metadata = &pairs[k];
            pairs[k] = (struct qp_st_pair){key, texts[k], sizeof key - 1,
                                           (uint32_t)(texts[k] ? strlen(texts[k]) : 0)};
        }
        const struct qp_format *format = qp_format_find("comfyui");
        assert_true(format->is(&listing));
        const enum qplan_status status = format->describe(&listing, &arena, &tensors, &n, &err);
        assert_int_equal(status, claims[i].subject ? QPLAN_ERR_INVALID : QPLAN_OK);
        if (claims[i].subject)
            assert_string_equal(err.subject, claims[i].subject);
        else
            assert_int_equal(n, 1);
        qp_free(tensors);
        qp_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_description_is_a_scheme_or_is_refused),
        cmocka_unit_test(marks_in_headers_are_read_of_every_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
