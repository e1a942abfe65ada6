/*
 * test_importance.c - files of importance, made by hand from their descriptions: honest ones, each
 * of their prefixes, and what they claim wrongly.
 */
#include "own_folder.h"

#define MOST_BYTES 4096

struct bytes {
    unsigned char data[MOST_BYTES];
    size_t n;
};

static void add(struct bytes *b, const void *bytes, size_t n)
{
    assert_true(b->n + n <= sizeof b->data);
    memcpy(b->data + b->n, bytes, n);
    b->n += n;
}

static void add_u32(struct bytes *b, uint32_t value)
{
    add(b, &value, sizeof value);
}

static void add_u64(struct bytes *b, uint64_t value)
{
    add(b, &value, sizeof value);
}

static void add_f32(struct bytes *b, float value)
{
    add(b, &value, sizeof value);
}

static void add_text(struct bytes *b, const char *text)
{
    add_u64(b, strlen(text));
    add(b, text, strlen(text));
}

/* What the library says of a file of these bytes; the message is that of the last one. */
static struct qplan_error err;

static enum qplan_status told(const struct bytes *b, size_t n)
{
    struct text text = {NULL, 0};
    const char *path = in_folder(&folder, "imatrix");
    write_file(path, b->data, n);
    const enum qplan_status status = qplan_importance_write_text(path, NULL, text_add, &text, &err);
    if (n >= 9 && b->data[8] != '{')
        assert_int_equal(qplan_importance_is_imatrix(path, NULL), status == QPLAN_OK);
    text_free(&text);
    return status;
}

static void refused(const struct bytes *b, const char *message)
{
    assert_int_equal(told(b, b->n), QPLAN_ERR_INVALID);
    if (!strstr(err.message, message))
        fail_msg("expected %s, found %s", message, err.message);
}

/* ---- GGUF --------------------------------------------------------------------------------------
 */

enum { OF_U32 = 4, OF_STRING = 8, OF_ARRAY = 9 };

/* One weight of two channels; 0, NULL and {0} are what an honest file has. */
struct gguf {
    uint32_t version, alignment, value_type, array_type, n_dims, tensor_type;
    uint64_t n_tensors, n_in_array, dims[4], counts_dims, offset, counts_offset, n_in_tail;
    const char *type, *sums, *counts;
    float value;
};

static void add_tensor(struct bytes *b, const char *name, const struct gguf *g,
                       const uint64_t *dims, uint64_t offset)
{
    const uint32_t n_dims = g->n_dims ? g->n_dims : 2;
    add_text(b, name);
    add_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 4; i++)
        add_u64(b, dims[i]);
    add_u32(b, g->tensor_type);
    add_u64(b, offset);
}

static struct bytes gguf_of(const struct gguf *g)
{
    const uint64_t usual[] = {2, 1, 1, 1},
                   counts[] = {g->counts_dims ? g->counts_dims : 1, 1, 1, 1};
    struct bytes b = {.n = 0};
    add(&b, "GGUF", 4);
    add_u32(&b, g->version ? g->version : 3);
    add_u64(&b, g->n_tensors ? g->n_tensors : 2);
    add_u64(&b, 4);
    add_text(&b, "general.type");
    add_u32(&b, OF_STRING);
    add_text(&b, g->type ? g->type : "imatrix");
    add_text(&b, "general.alignment");
    add_u32(&b, OF_U32);
    add_u32(&b, g->alignment ? g->alignment : 8);
    add_text(&b, "imatrix.chunk_count");
    add_u32(&b, g->value_type ? g->value_type : OF_U32);
    add_u32(&b, 7);
    add_text(&b, "imatrix.datasets");
    add_u32(&b, OF_ARRAY);
    add_u32(&b, g->array_type ? g->array_type : OF_STRING);
    add_u64(&b, g->n_in_array ? g->n_in_array : 1);
    add_text(&b, "of.text");
    add_tensor(&b, g->sums ? g->sums : "a.in_sum2", g, g->dims[0] ? g->dims : usual, g->offset);
    add_tensor(&b, g->counts ? g->counts : "a.counts", &(struct gguf){.n_dims = 0}, counts,
               g->counts_offset ? g->counts_offset : 8);
    while (b.n % 8 != 0)
        add(&b, "", 1);
    add_f32(&b, g->value != 0 ? g->value : 1);
    add_f32(&b, 4);
    add_f32(&b, 2);
    for (uint64_t i = 0; i < g->n_in_tail; i++)
        add(&b, "", 1);
    return b;
}

/* A stop that was asked for before it began. */
static void reading_stops_when_asked_to(void **state)
{
    const struct bytes b = gguf_of(&(struct gguf){.version = 3});
    const volatile sig_atomic_t now = 1, never = 0;
    const char *path = in_folder(&folder, "stopped");
    struct text text = {NULL, 0};
    (void)state;
    write_file(path, b.data, b.n);
    OK(qplan_importance_write_text(path, &never, text_add, &text, &err), &err);
    assert_int_equal(qplan_importance_write_text(path, &now, text_add, &text, &err),
                     QPLAN_ERR_CANCELLED);
    assert_true(qplan_importance_is_imatrix(path, &never));
    assert_false(qplan_importance_is_imatrix(path, &now));
    text_free(&text);
}

/* The last tensor ends at a multiple of the alignment, or where its values do. */
static void the_last_tensor_may_be_filled_up(void **state)
{
    const struct bytes b = gguf_of(&(struct gguf){.n_in_tail = 4});
    (void)state;
    OK(told(&b, b.n), &err);
    OK(told(&b, b.n - 4), &err);
}

static void every_prefix_of_gguf_is_refused(void **state)
{
    const struct bytes b = gguf_of(&(struct gguf){.version = 2});
    (void)state;
    OK(told(&b, b.n), &err);
    for (size_t n = 0; n < b.n; n++)
        assert_int_equal(told(&b, n), QPLAN_ERR_INVALID);
}

static void claims_of_gguf_are_refused(void **state)
{
    static const struct {
        struct gguf file;
        const char *message;
    } rows[] = {
        {{.version = 1}, "version of GGUF"},
        {{.version = 4}, "version of GGUF"},
        {{.n_tensors = UINT64_MAX}, "too many tensors"},
        {{.alignment = 6}, "no power of 2"},
        {{.type = "model"}, "not imatrix"},
        {{.value_type = 13}, "unknown type"},
        {{.array_type = OF_ARRAY}, "unknown type"},
        {{.array_type = OF_U32, .n_in_array = UINT64_MAX}, "ends inside"},
        {{.array_type = OF_U32, .n_in_array = 250}, "ends too early"},
        {{.n_in_array = 600}, "ends too early"},
        {{.n_dims = 5}, "too many axes"},
        {{.n_dims = 3, .dims = {2, 1, 3}}, "no matrix of F32"},
        {{.n_dims = 4, .dims = {2, 1, 1, 3}}, "no matrix of F32"},
        {{.n_dims = 2, .dims = {2, 0}}, "no matrix of F32"},
        {{.tensor_type = 1}, "no matrix of F32"},
        {{.dims = {UINT64_MAX, 2}}, "larger than the file"},
        {{.dims = {1 << 20, 1}}, "larger than the file"},
        {{.counts = "b.counts"}, "sums without counts"},
        {{.counts = "a.count"}, "sums without counts"},
        {{.counts_dims = 2, .n_in_tail = 4}, "not as many counts"},
        {{.counts = "a.in_sum2"}, "'a.in_sum2': it is there twice"},
        {{.sums = "b.in_sum"}, "'a.counts': counts without sums"},
        {{.offset = UINT64_MAX}, "offset of 'a.in_sum2': expected 0, found 18446744073709551615"},
        {{.offset = 8}, "offset of 'a.in_sum2': expected 0, found 8"},
        {{.counts_offset = 4}, "offset of 'a.counts': expected 8, found 4"},
        {{.counts_offset = 16}, "offset of 'a.counts': expected 8, found 16"},
        {{.alignment = 16}, "offset of 'a.counts': expected 16, found 8"},
        {{.dims = {3, 1}}, "offset of 'a.counts': expected 16, found 8"},
        {{.n_in_tail = 5}, "bytes behind its end"},
        {{.n_in_tail = 8}, "bytes behind its end"},
        {{.value = -1}, "expected a finite number"},
        {{.value = NAN}, "expected a finite number"},
        {{.value = INFINITY}, "expected a finite number"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct bytes b = gguf_of(&rows[i].file);
        refused(&b, rows[i].message);
    }
}

static void other_tensors_of_gguf_are_nothing(void **state)
{
    const struct bytes b =
        gguf_of(&(struct gguf){.sums = "in_sum2", .counts = ".counts", .n_dims = 1});
    (void)state;
    OK(told(&b, b.n), &err);
}

/* ---- imatrix.dat -------------------------------------------------------------------------------
 */

struct dat {
    int32_t name_len, calls, columns;
    float value;
    bool again; /* the weight is there twice */
    int32_t columns_again;
    const char *end; /* behind the last weight; NULL = chunks and the name of the text */
};

static void add_weight(struct bytes *b, const struct dat *d, int32_t columns)
{
    add_u32(b, (uint32_t)(d->name_len ? d->name_len : 1));
    add(b, "a", 1);
    add_u32(b, (uint32_t)d->calls);
    add_u32(b, (uint32_t)columns);
    for (int32_t i = 0; i < columns; i++)
        add_f32(b, d->value);
}

static struct bytes dat_of(const struct dat *d)
{
    struct bytes b = {.n = 0};
    add_u32(&b, d->again ? 2 : 1);
    add_weight(&b, d, d->columns ? d->columns : 2);
    if (d->again)
        add_weight(&b, d, d->columns_again);
    if (d->end) {
        add(&b, d->end, strlen(d->end));
    } else {
        add_u32(&b, 5);
        add_u32(&b, 4);
        add(&b, "text", 4);
    }
    return b;
}

/* Files of older versions end behind the last weight. */
static void every_prefix_of_dat_is_refused(void **state)
{
    const struct bytes b = dat_of(&(struct dat){.calls = 3, .value = 2});
    const size_t n_old = b.n - 12;
    (void)state;
    OK(told(&b, b.n), &err);
    for (size_t n = 0; n < b.n; n++)
        assert_int_equal(told(&b, n), n == n_old ? QPLAN_OK : QPLAN_ERR_INVALID);
}

static void claims_of_dat_are_refused(void **state)
{
    static const struct {
        struct dat file;
        const char *message;
    } rows[] = {
        {{.name_len = -1}, "neither GGUF"},
        {{.name_len = 1 << 30}, "neither GGUF"},
        {{.calls = -1}, "neither GGUF"},
        {{.columns = -1}, "neither GGUF"},
        {{.value = -1}, "expected a finite number"},
        {{.again = true, .columns_again = 2}, "'a': it is there twice"},
        {{.again = true, .columns_again = 3}, "'a': it is there twice"},
        {{.end = "\xff\xff\xff\xff"}, "bytes behind its end"},
        {{.end = "\xff\xff\xff\xff\xff\xff\xff\xff"}, "neither GGUF"},
        {{.end = "1234\xff\xff\xff\xff"}, "neither GGUF"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct bytes b = dat_of(&rows[i].file);
        refused(&b, rows[i].message);
    }
    struct bytes longer = dat_of(&(struct dat){.value = 1});
    add(&longer, "x", 1);
    refused(&longer, "behind its end");
}

/* ---- safetensors -------------------------------------------------------------------------------
 */

static void vectors_are_floats_of_one_axis(void **state)
{
    static const struct tensor rows[] = {
        {"a", "F64", 1, {2}, NULL, 16},   {"a", "I32", 1, {2}, NULL, 8},
        {"a", "F32", 2, {1, 2}, NULL, 8}, {"a", "F32", 1, {0}, NULL, 0},
        {"a", "F32", 0, {0}, NULL, 4},
    };
    static const uint16_t ones[] = {0x3f80, 0x3f80};
    static const struct tensor good = {"a", "BF16", 1, {2}, ones, 4};
    const char *path = in_folder(&folder, "vectors");
    struct text text = {NULL, 0};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_checkpoint(path, NULL, &rows[i], 1);
        assert_int_equal(qplan_importance_write_text(path, NULL, text_add, &text, &err),
                         QPLAN_ERR_INVALID);
        assert_false(qplan_importance_is_imatrix(path, NULL));
    }
    write_checkpoint(path, NULL, &good, 1);
    OK(qplan_importance_write_text(path, NULL, text_add, &text, &err), &err);
    write_file(path, "\x02\0\0\0\0\0\0\0{", 9); /* cut behind the mark */
    assert_int_equal(qplan_importance_write_text(path, NULL, text_add, &text, &err),
                     QPLAN_ERR_INVALID);
    assert_false(qplan_importance_is_imatrix(in_folder(&folder, "none"), NULL));
    assert_int_equal(
        qplan_importance_write_text(in_folder(&folder, "none"), NULL, text_add, &text, &err),
        QPLAN_ERR_IO);
    text_free(&text);
}

/* ---- Names -------------------------------------------------------------------------------------
 */

/* Names of tensors that llama.cpp has others for, and those that it has none for. */
static void names_of_llama_cpp_are_found(void **state)
{
    static const struct {
        const char *tensor, *told;
        bool is_found;
    } rows[] = {
        {"model.embed_tokens.weight", "token_embd.weight", true},
        {"lm_head.weight", "output.weight", true},
        {"model.layers.3.mlp.up_proj.weight", "blk.3.ffn_up.weight", true},
        {"layers.3.mlp.up_proj.weight", "blk.3.ffn_up.weight", true},
        {"model.layers.2.mlp.experts.0.up_proj.weight", "blk.2.ffn_up_exps.weight", true},
        {"model.layers.2.mlp.experts.x.up_proj.weight", "blk.2.ffn_up_exps.weight", false},
        {"model.layers.2.mlp.experts.9", "blk.2.ffn_up_exps.weight", false},
        {"model.layers.3.mlp.other_proj.weight", "blk.3.ffn_up.weight", false},
        {"model.layers.x.mlp.up_proj.weight", "blk.3.ffn_up.weight", false},
        {"model.layers.3", "blk.3.ffn_up.weight", false},
        {"model.layers.99999999999999999999.mlp.up_proj.weight", "blk.3.ffn_up.weight", false},
        {"xlayers.3.mlp.up_proj.weight", "blk.3.ffn_up.weight", false},
        {"other.weight", "blk.3.ffn_up.weight", false},
    };
    const char *path = in_folder(&folder, "names"), *source = in_folder(&folder, "plain");
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const float ones[] = {1, 1};
        const struct tensor weight = {rows[i].tensor, "F32", 2, {2, 2}, NULL, 16};
        const struct qplan_plan_options options = {.scheme = scheme_of("int8:c0"),
                                                   .calibrate = "mse",
                                                   .importance = &path,
                                                   .n_importance = 1,
                                                   .importance_required = true};
        struct qplan_plan *plan;
        struct bytes b = {.n = 0};
        add_u32(&b, 1);
        add_u32(&b, (uint32_t)strlen(rows[i].told));
        add(&b, rows[i].told, strlen(rows[i].told));
        add_u32(&b, 1);
        add_u32(&b, 2);
        add(&b, ones, sizeof ones);
        write_file(path, b.data, b.n);
        write_checkpoint(source, NULL, &weight, 1);
        struct qplan_checkpoint *checkpoint = open_checkpoint(source);
        const enum qplan_status status = qplan_plan_make(&plan, checkpoint, &options, &err);
        if ((status == QPLAN_OK) != rows[i].is_found)
            fail_msg("%s: expected %d, found %s", rows[i].tensor, rows[i].is_found,
                     status ? err.message : "ok");
        qplan_plan_free(plan);
        qplan_checkpoint_close(checkpoint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_stops_when_asked_to),
        cmocka_unit_test(the_last_tensor_may_be_filled_up),
        cmocka_unit_test(every_prefix_of_gguf_is_refused),
        cmocka_unit_test(claims_of_gguf_are_refused),
        cmocka_unit_test(other_tensors_of_gguf_are_nothing),
        cmocka_unit_test(every_prefix_of_dat_is_refused),
        cmocka_unit_test(claims_of_dat_are_refused),
        cmocka_unit_test(vectors_are_floats_of_one_axis),
        cmocka_unit_test(names_of_llama_cpp_are_found),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
