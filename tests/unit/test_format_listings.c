/*
 * test_format_listings.c - names, types and shapes that no small file can have, or that lie on
 * disks which fail: listings made by hand for the readers of the layouts.
 */
#include "own_folder.h"

#include "lib/base/alloc.h"
#include "lib/base/arena.h"
#include "lib/plan/plan.h"

#define P60 ((uint64_t)1 << 60)

/* ---- Shapes of no file -------------------------------------------------------------------------
 */

struct entry {
    const char *name;
    enum qplan_storage storage;
    uint64_t shape[2];
};

struct listing_case {
    const char *format, *config;
    struct entry entries[4]; /* in the order of names, ended by one without */
    const char *message;     /* a part of it; NULL = the tensor is described */
    uint64_t group;          /* of its scheme; 0 = a row is a set */
};

#define GPTQ  "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32"
#define MIXED GPTQ ",\"dynamic\":{\"+:x\":{}}}}"
#define MLX   "{\"quantization\":{\"bits\":4,\"group_size\":32}}"
#define I32   QPLAN_STORAGE_I32
#define U32   QPLAN_STORAGE_U32
#define F16   QPLAN_STORAGE_F16

static const struct listing_case cases[] = {
    {"gptq", GPTQ "}}", {{"a.qweight", I32, {P60, 0}}}, "whole words", 0},
    {"gptq", GPTQ "}}", {{"a.qweight", I32, {P60 / 8, 16}}}, "whole words", 0},
    {"gptq", GPTQ "}}", {{"a.qweight", I32, {8, 0}}}, "whole words", 0},
    {"gptq", GPTQ "}}", {{"a.qweight", I32, {8, 16}}}, NULL, 32},
    /* The number of groups tells their size where config.json has several sizes. */
    {"gptq",
     MIXED,
     {{"a.qweight", I32, {8, 16}}, {"a.qzeros", I32, {4, 2}}, {"a.scales", F16, {4, 16}}},
     NULL,
     16},
    {"gptq",
     MIXED,
     {{"a.qweight", I32, {8, 16}}, {"a.qzeros", I32, {1, 2}}, {"a.scales", F16, {1, 16}}},
     NULL,
     0},
    {"gptq",
     MIXED,
     {{"a.qweight", I32, {8, 16}}, {"a.qzeros", I32, {0, 2}}, {"a.scales", F16, {0, 16}}},
     NULL,
     32},
    {"gptq",
     MIXED,
     {{"a.qweight", I32, {8, 16}}, {"a.qzeros", I32, {3, 2}}, {"a.scales", F16, {3, 16}}},
     NULL,
     32},
    {"gptq",
     MIXED,
     {{"a.qweight", I32, {8, 16}}, {"a.qzeros", I32, {2, 2}}, {"a.scales", F16, {2, UINT32_MAX}}},
     NULL,
     32},
    {"mlx", MLX, {{"a.scales", F16, {5, 2}}, {"a.weight", U32, {5, 8}}}, NULL, 32},
    {"mlx", MLX, {{"a.scales", F16, {0, 2}}, {"a.weight", U32, {0, 8}}}, "do not fit", 0},
    {"mlx", MLX, {{"a.scales", F16, {5, P60 << 2}}, {"a.weight", U32, {5, 0}}}, "do not fit", 0},
    {"mlx", MLX, {{"a.scales", F16, {0, P60}}, {"a.weight", U32, {0, P60 * 4}}}, "do not fit", 0},
    {"mlx", MLX, {{"a.scales", F16, {P60, 2}}, {"a.weight", U32, {P60, 8}}}, "do not fit", 0},
};

static enum qplan_status no_bytes(const struct qp_listing *listing, const struct qplan_entry *entry,
                                  uint64_t off, void *out, size_t n, struct qplan_error *err)
{
    (void)listing, (void)entry, (void)off;
    memset(out, 0, n);
    return err ? QPLAN_OK : QPLAN_ERR_IO;
}

static void check_listing(const struct listing_case *c)
{
    const struct qp_st file = {.file = {.path = "m", .shown = "m"}};
    struct qplan_error err;
    struct qp_tree config = {.name = "config.json", .err = &err, .any_numbers = true};
    struct qplan_entry entries[COUNT(c->entries)];
    struct qp_listing listing = {.files = &file,
                                 .n_files = 1,
                                 .entries = entries,
                                 .shown = "m",
                                 .config = &config,
                                 .read = no_bytes};
    struct qp_arena arena = {.blocks = NULL};
    struct qp_tensor *tensors = NULL;
    size_t n = 0;
    OK(qp_tree_read(&config, c->config, strlen(c->config)), &err);
    for (; listing.n_entries < COUNT(c->entries) && c->entries[listing.n_entries].name;
         listing.n_entries++) {
        const struct entry *e = &c->entries[listing.n_entries];
        entries[listing.n_entries] = (struct qplan_entry){.name = e->name,
                                                          .name_len = (uint32_t)strlen(e->name),
                                                          .storage = (uint8_t)e->storage,
                                                          .rank = 2,
                                                          .shape = e->shape};
    }
    const enum qplan_status status =
        qp_format_find(c->format)->describe(&listing, &arena, &tensors, &n, &err);
    if (c->message) {
        assert_int_equal(status, QPLAN_ERR_INVALID);
        if (!strstr(err.message, c->message))
            fail_msg("expected %s, found %s", c->message, err.message);
    } else {
        OK(status, &err);
        assert_int_equal(n, 1);
        assert_int_equal(tensors[0].scheme->group, c->group);
        assert_int_equal(tensors[0].scheme->granularity,
                         c->group ? QPLAN_PER_GROUP : QPLAN_PER_CHANNEL);
    }
    qp_free(tensors);
    qp_arena_free(&arena);
    qp_tree_free(&config);
}

static void shapes_of_no_file_are_refused_or_tell_the_group(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        check_listing(&cases[i]);
}

/* ---- Reads that fail ---------------------------------------------------------------------------
 */

static unsigned n_reads, failing; /* failing: the number of the read that fails; 0 = none */
static const struct qp_listing *real;

static enum qplan_status read_or_fail(const struct qp_listing *listing,
                                      const struct qplan_entry *entry, uint64_t off, void *out,
                                      size_t n, struct qplan_error *err)
{
    (void)listing;
    if (++n_reads == failing)
        return qp_fail(err, QPLAN_ERR_IO, entry->name, "read failed");
    return real->read(real, entry, off, out, n, err);
}

/* What a tensor says of others is read while a checkpoint is opened: each such read may fail. */
static void check_reads(const char *path, unsigned least)
{
    struct qplan_checkpoint *file = open_checkpoint(path);
    real = &file->source.listing;
    struct qp_listing listing = *real;
    listing.read = read_or_fail;
    for (failing = 1;; failing++) {
        const struct qp_format *format;
        struct qp_arena arena = {.blocks = NULL};
        struct qp_tensor *tensors;
        struct qplan_error err;
        size_t n;
        n_reads = 0;
        const enum qplan_status status =
            qp_format_read(&listing, &arena, &format, &tensors, &n, &err);
        assert_int_equal(status, n_reads < failing ? QPLAN_OK : QPLAN_ERR_IO);
        qp_free(tensors);
        qp_arena_free(&arena);
        if (n_reads < failing)
            break;
    }
    assert_true(failing > least);
    qplan_checkpoint_close(file);
}

static void every_read_of_a_description_may_fail(void **state)
{
    static const char ct[] =
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
        "{\"g\":{\"weights\":{\"num_bits\":4,\"group_size\":8,\"strategy\":\"group\"}}}}}";
    static const char gptq[] = GPTQ "}}", mark[] = "{\"format\": \"int8_tensorwise\"}";
    static const int64_t dims[] = {2, 8};
    const struct tensor packed[] = {{"a.weight_packed", "I32", 2, {2, 1}, NULL, 8},
                                    {"a.weight_scale", "F32", 2, {2, 1}, NULL, 8},
                                    {"a.weight_shape", "I64", 1, {2}, dims, 16}};
    const struct tensor words[] = {{"a.g_idx", "I32", 1, {8}, NULL, 32},
                                   {"a.qweight", "I32", 2, {1, 8}, NULL, 32},
                                   {"a.qzeros", "I32", 2, {1, 1}, NULL, 4},
                                   {"a.scales", "F16", 2, {1, 8}, NULL, 16}};
    const struct tensor marked[] = {
        {"a.comfy_quant", "U8", 1, {sizeof mark - 1}, mark, sizeof mark - 1},
        {"a.weight", "I8", 2, {2, 2}, NULL, 4},
        {"a.weight_scale", "F32", 0, {0}, NULL, 4}};
    (void)state;
    const struct {
        const char *config;
        const struct tensor *tensors;
        size_t n;
        unsigned least;
    } files[] = {{ct, packed, COUNT(packed), 2},
                 {gptq, words, COUNT(words), 1},
                 {NULL, marked, COUNT(marked), 1}};
    const char *path = in_folder(&folder, "model");
    (void)mkdir(path, 0777);
    for (size_t i = 0; i < COUNT(files); i++) {
        const char *config = files[i].config ? files[i].config : "{}";
        write_file(in_folder(&folder, "model/config.json"), config, strlen(config));
        write_checkpoint(in_folder(&folder, "model/model.safetensors"), NULL, files[i].tensors,
                         files[i].n);
        check_reads(path, files[i].least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_of_no_file_are_refused_or_tell_the_group),
        cmocka_unit_test(every_read_of_a_description_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
