/*
 * test_refused_memory.c - each allocation in turn is refused while checkpoints of every kind and
 * layout are planned, quantized, proven and decoded.
 */
#include "refused_memory.h"

#include "lib/plan/plan.h"

/* ---- Jobs --------------------------------------------------------------------------------------
 */

/* Neither names nor keys are in order; a name looks like that of a scale. */
static const struct tensor sources[] = {{"b.weight", "F32", 2, {6, 9}, NULL, 216},
                                        {"norm", "F16", 1, {8}, NULL, 16},
                                        {"norm.scales", "F32", 1, {1}, NULL, 4},
                                        {"a.weight", "F32", 2, {4, 8}, NULL, 128}};

static const char *paths[3]; /* source, quantized, decoded */

static enum qplan_experts experts; /* what quantize is asked for besides */
static const char *format, *hessian;

static enum qplan_status quantize(const char *scheme, struct qplan_error *err)
{
    struct qplan_plan_options options = {.indivisible = format ? QPLAN_INDIVISIBLE_KEEP
                                                               : QPLAN_INDIVISIBLE_RAGGED,
                                         .experts = experts,
                                         .format = format,
                                         .hessian = hessian};
    const struct qplan_quantize_options how = {.out_path = paths[1], .verify = true};
    return quantize_as(scheme, paths[0], &options, &how, err);
}

static enum qplan_status read_back(const char *scheme, struct qplan_error *err)
{
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_checkpoint *source = NULL, *file = NULL;
    struct qplan_report *report = NULL, *decoded = NULL;
    (void)scheme;
    enum qplan_status status = qplan_checkpoint_open(&source, paths[0], err);
    if (status == QPLAN_OK)
        status = qplan_checkpoint_decode(source, err);
    if (status == QPLAN_OK)
        status = qplan_checkpoint_open(&file, paths[1], err);
    if (status == QPLAN_OK) {
        const struct qplan_inspect_options options = {
            .against = source, .prove = true, .exact = hessian != NULL, .hessian = hessian};
        status = qplan_inspect(&report, file, &options, &run, err);
    }
    if (status == QPLAN_OK)
        status = qplan_report_write_text(report, true, ignore, NULL, err);
    if (status == QPLAN_OK)
        status = qplan_dequantize(&decoded, file, paths[2], NULL, &run, err);
    qplan_report_free(report);
    qplan_report_free(decoded);
    qplan_checkpoint_close(file);
    qplan_checkpoint_close(source);
    return status;
}

/* Rules, patterns and families, and why tensors become what they become. */
static enum qplan_status explain(const char *scheme, struct qplan_error *err)
{
    static const char rules[] = "norm* keep\n*.weight int4:g3 # of all\n";
    const char *const exclude[] = {"a.*"};
    struct qplan_plan_options options = {.exclude = exclude,
                                         .n_exclude = 1,
                                         .select = QPLAN_SELECT_LINEAR,
                                         .rules = rules,
                                         .n_rules = sizeof rules - 1};
    const struct qplan_explain_options how = {.asked = &options};
    struct qplan_checkpoint *source;
    struct qplan_plan *plan = NULL;
    OK(qplan_scheme_parse(&options.scheme, scheme, err), err);
    enum qplan_status status = qplan_checkpoint_open(&source, paths[0], err);
    if (status == QPLAN_OK)
        status = qplan_plan_make(&plan, source, &options, err);
    if (status == QPLAN_OK)
        status = qplan_plan_explain(plan, &how, ignore, NULL, err);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    return status;
}

/* Candidates measured, shown, and chosen from within a size. */
static enum qplan_status choose_within(const char *candidates, struct qplan_error *err)
{
    const struct qplan_run run = {.threads = 1};
    const struct qplan_plan_options options = {.indivisible = QPLAN_INDIVISIBLE_RAGGED};
    const struct qplan_budget budget = {.candidates = candidates, .target_bytes = 4096};
    struct qplan_budget_facts facts;
    struct qplan_checkpoint *source;
    struct qplan_sensitivity *sensitivity = NULL;
    struct qplan_plan *plan = NULL;
    enum qplan_status status = qplan_checkpoint_open(&source, paths[0], err);
    if (status == QPLAN_OK)
        status = qplan_sensitivity_measure(&sensitivity, source, &options, &budget, &run, err);
    if (status == QPLAN_OK)
        status = qplan_sensitivity_write_text(sensitivity, false, ignore, NULL, err);
    if (status == QPLAN_OK)
        status = qplan_plan_make_within(&plan, sensitivity, &facts, err);
    qplan_plan_free(plan);
    qplan_sensitivity_free(sensitivity);
    qplan_checkpoint_close(source);
    return status;
}

/* A header in memory: ranges, names and keys in no order. */
static enum qplan_status parse(const char *scheme, struct qplan_error *err)
{
    static const char json[] = "{\"z\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
                               "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                               "\"__metadata__\":{\"z\":\"1\",\"a\":\"2\"}}";
    struct qp_st st;
    (void)scheme;
    enum qplan_status status =
        qp_st_parse(&st, json, sizeof json - 1, 8 + sizeof json - 1 + 3, "m", err);
    if (status == QPLAN_OK)
        qp_st_close(&st);
    return status;
}

static void every_allocation_may_be_refused(void **state)
{
    static const char *const schemes[] = {"int8:c0", "int4:g4:asym", "uint4:t:f16", "int8:b2x3"};
    (void)state;
    static const char *const names[] = {"in", "out", "back"};
    for (size_t i = 0; i < COUNT(paths); i++)
        paths[i] = strdup(in_folder(&folder, names[i]));
    write_checkpoint(paths[0], "{\"z\":\"1\",\"a\":\"2\"}", sources, COUNT(sources));
    refuse_each(parse, NULL);
    refuse_each(explain, "int8:c0");
    refuse_each(choose_within, "int8:c0,int4:g3,keep");
    for (size_t i = 0; i < COUNT(schemes); i++) {
        refuse_each(quantize, schemes[i]);
        refuse_each(read_back, schemes[i]); /* of what the last run has written */
    }
    for (size_t i = 0; i < COUNT(paths); i++)
        free((char *)(uintptr_t)paths[i]);
}

/* One Hessian that needs a larger damp, one in blocks, and a name that stands for another. */
static void rounding_may_lack_memory(void **state)
{
    static float whole[9 * 9], blocks[2 * 4 * 4];
    const struct tensor hessians[] = {
        {"b.weight.hessian", "F32", 2, {9, 9}, whole, sizeof whole},
        {"c.weight.hessian", "F32", 3, {2, 4, 4}, blocks, sizeof blocks}};
    (void)state;
    static const char *const names[] = {"in", "out", "back"};
    for (size_t i = 0; i < COUNT(whole); i++)
        whole[i] = i % 10 == 0 ? 1 : -0.13f;
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = i % 16 % 5 == 0 ? (float)(i + 1) : 0.25f;
    for (size_t i = 0; i < COUNT(paths); i++)
        paths[i] = strdup(in_folder(&folder, names[i]));
    char *file = strdup(in_folder(&folder, "hessians"));
    write_checkpoint(paths[0], "{\"z\":\"1\",\"a\":\"2\"}", sources, COUNT(sources));
    write_checkpoint(file, "{\"a.weight\":\"c.weight\"}", hessians, COUNT(hessians));
    hessian = file;
    refuse_each(quantize, "int4:g3");
    refuse_each(read_back, "int4:g3");
    hessian = NULL;
    free(file);
    for (size_t i = 0; i < COUNT(paths); i++)
        free((char *)(uintptr_t)paths[i]);
}

/* Removes the files of a folder in the folder, and it. */
static void remove_inner(const char *path)
{
    struct folder inner;
    (void)snprintf(inner.path, sizeof inner.path, "%s", path);
    folder_remove(&inner);
}

static void write_text(const char *path, const char *name, const char *text)
{
    char whole[600];
    (void)snprintf(whole, sizeof whole, "%s/%s", path, name);
    write_file(whole, text, strlen(text));
}

/* A folder of two shards, with an index that is not quite right and files besides. */
static void write_folder(const char *path)
{
    char shard[600];
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < 2; i++) {
        const struct tensor tensors[] = {{i ? "b.w" : "a.w", "F32", 2, {6, 9}, NULL, 216}};
        (void)snprintf(shard, sizeof shard, "%s/m-0000%d-of-00002.safetensors", path, i + 1);
        write_checkpoint(shard, "{\"a\":\"2\"}", tensors, 1);
    }
    write_text(path, "m.safetensors.index.json",
               "{\"metadata\":{\"total_size\":1},\"weight_map\":{"
               "\"a.w\":\"m-00001-of-00002.safetensors\","
               "\"b.w\":\"m-00002-of-00002.safetensors\"}}");
    write_text(path, "config.json", "{}");
    write_text(path, "x.py", "");
    write_text(path, "other.safetensors", "");
}

static void refuse_each_of_folder(void (*write)(const char *path), const char *scheme)
{
    static const char *const names[] = {"folder", "folder-out", "folder-back"};
    for (size_t i = 0; i < COUNT(paths); i++)
        paths[i] = strdup(in_folder(&folder, names[i]));
    write(paths[0]);
    refuse_each(quantize, scheme);
    refuse_each(read_back, scheme);
    for (size_t i = 0; i < COUNT(paths); i++) {
        remove_inner(paths[i]);
        free((char *)(uintptr_t)paths[i]);
    }
}

/* ---- Layouts that engines load -----------------------------------------------------------------
 */

/* One tensor has another scheme than the others, if config.json can say so. */
struct layout {
    const char *format, *dtype;
    size_t width; /* of the type */
    const char *scheme, *rules;
    uint64_t extent; /* of rows and of columns */
};

static const struct layout layouts[] = {
    {"qplan", "F16", 2, "nvfp4", NULL, 32},
    {"fp8", "F16", 2, "fp8:b128x128", NULL, 128},
    {"modelopt", "F16", 2, "nvfp4", NULL, 32},
    {"bitsandbytes", "F16", 2, "int8:c0", NULL, 32},
    {"compressed-tensors", "F16", 2, "nvfp4", "m.0.up.weight fp8:c0\n* nvfp4\n", 32},
    {"mlx", "F16", 2, "mxfp4", "m.0.up.weight uint8:g32\n* mxfp4\n", 32},
    {"comfyui", "F16", 2, "nvfp4", "m.0.up.weight mxfp8\n* nvfp4\n", 32},
    {"compressed-tensors", "F16", 2, "int4:g32:asym", "m.0.up.weight int8:g32\n* int4:g32:asym\n",
     32},
    {"gptq", "F16", 2, "int4:g32", "m.0.up.weight int8:g32\n* int4:g32\n", 32},
    {"gptq_v2", "F16", 2, "int4:g32:asym", "m.0.up.weight int8:g32\n* int4:g32:asym\n", 32},
    {"awq", "F16", 2, "uint4:g32", NULL, 32},
    {"mlx", "F16", 2, "uint4:g32", "m.0.up.weight uint8:g32\n* uint4:g32\n", 32},
    {"mlx", "F16", 2, "int4:g32", NULL, 32},
    {"comfyui", "F32", 4, "int8:t", "m.0.up.weight int8:c0\n* int8:t\n", 32},
};

static const struct layout *layout;

/* Some are kept: names of which are the beginning of others, in blocks and outside. */
static const char *const kept[] = {"m.1.*", "*.gate.weight", "lm_head*"};

static enum qplan_status quantize_layout(const char *scheme, struct qplan_error *err)
{
    struct qplan_plan_options options = {.format = layout->format,
                                         .select = QPLAN_SELECT_ALL,
                                         .exclude = kept,
                                         .n_exclude = COUNT(kept),
                                         .rules = layout->rules,
                                         .n_rules = layout->rules ? strlen(layout->rules) : 0};
    const struct qplan_quantize_options how = {.out_path = paths[1]};
    return quantize_as(scheme, paths[0], &options, &how, err);
}

static void write_layout_source(bool is_folder)
{
    static const char *const names[] = {"lm_head.weight", "m.0.gate.weight", "m.0.gate_proj.weight",
                                        "m.0.up.weight", "m.1.up.weight"};
    struct tensor tensors[COUNT(names)];
    for (size_t i = 0; i < COUNT(names); i++)
        tensors[i] = (struct tensor){names[i], layout->dtype,
                                     2,        {layout->extent, layout->extent},
                                     NULL,     layout->extent * layout->extent * layout->width};
    char path[600];
    (void)snprintf(path, sizeof path, is_folder ? "%s/model.safetensors" : "%s", paths[0]);
    if (is_folder) {
        assert_int_equal(mkdir(paths[0], 0700), 0);
        write_text(paths[0], "config.json", "{\"model_type\":\"llama\"}");
    }
    write_checkpoint(path, NULL, tensors, COUNT(tensors));
}

/* Takes the records away, so that names, shapes and config.json must tell. */
static void forget_records(void)
{
    struct qplan_checkpoint *file = open_checkpoint(paths[1]);
    const struct qp_listing *listing = &file->source.listing;
    struct tensor tensors[32];
    size_t n_bytes;
    char path[600];
    (void)snprintf(path, sizeof path, "%s", listing->files[0].file.path);
    unsigned char *bytes = read_file(path, &n_bytes);
    assert_true(listing->n_entries <= COUNT(tensors));
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *e = &listing->entries[i];
        tensors[i] = (struct tensor){.name = e->name,
                                     .dtype = qplan_storage_name((enum qplan_storage)e->storage),
                                     .rank = e->rank,
                                     .data = bytes + listing->files[0].header_bytes + e->begin,
                                     .n_bytes = (size_t)(e->end - e->begin)};
        memcpy(tensors[i].shape, e->shape, e->rank * sizeof *e->shape);
    }
    write_checkpoint(path, NULL, tensors, listing->n_entries);
    free(bytes);
    qplan_checkpoint_close(file);
}

static void every_allocation_for_a_layout_may_be_refused(void **state)
{
    static const char *const names[] = {"model", "model-out", "model-back"};
    (void)state;
    for (size_t i = 0; i < COUNT(paths); i++)
        paths[i] = strdup(in_folder(&folder, names[i]));
    for (size_t k = 0; k < COUNT(layouts); k++) {
        layout = &layouts[k];
        const struct qp_format *row = qp_format_find(layout->format);
        write_layout_source(row->is_folder);
        refuse_each(quantize_layout, layout->scheme);
        refuse_each(read_back, NULL);
        if (row->describe) {
            forget_records();
            refuse_each(read_back, NULL);
        }
        for (size_t i = 0; i < COUNT(paths); i++) {
            if (row->is_folder)
                remove_inner(paths[i]);
            else
                assert_int_equal(unlink(paths[i]), 0);
        }
    }
    for (size_t i = 0; i < COUNT(paths); i++)
        free((char *)(uintptr_t)paths[i]);
}

static void every_allocation_for_a_folder_may_be_refused(void **state)
{
    (void)state;
    refuse_each_of_folder(write_folder, "int8:c0");
}

static void write_model(const char *path, const char *config, const struct tensor *tensors,
                        size_t n)
{
    char file[600];
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(file, sizeof file, "%s/model.safetensors", path);
    write_checkpoint(file, NULL, tensors, n);
    write_text(path, "config.json", config);
}

static void write_fused(const char *path)
{
    const struct tensor tensors[] = {{"m.experts.gate_up_proj", "F32", 3, {2, 3, 4}, NULL, 96},
                                     {"m.experts.down_proj", "F32", 3, {2, 2, 3}, NULL, 48}};
    write_model(path, "{\"model_type\":\"llama4_text\"}", tensors, COUNT(tensors));
}

static void write_single(const char *path)
{
    const struct tensor tensors[] = {
        {"m.experts.0.w1.weight", "F32", 2, {2, 32}, NULL, 256},
        {"m.experts.1.w1.weight", "F32", 2, {2, 32}, NULL, 256},
    };
    write_model(path, "{\"model_type\":\"mixtral\"}", tensors, COUNT(tensors));
}

static void write_divided(const char *path)
{
    const struct tensor tensors[] = {
        {"m.mlp.experts.gate_up_proj", "F32", 3, {2, 32, 4}, NULL, 1024},
        {"m.mlp.experts.gate_up_proj_bias", "F32", 2, {2, 4}, NULL, 32},
        {"m.mlp.experts.down_proj", "F32", 3, {2, 32, 32}, NULL, 8192}};
    write_model(path, "{\"model_type\":\"gpt_oss\"}", tensors, COUNT(tensors));
}

static void write_blocks(const char *path)
{
    const struct tensor tensors[] = {
        {"m.mlp.experts.gate_up_proj_blocks", "U8", 4, {2, 4, 1, 16}, NULL, 128},
        {"m.mlp.experts.gate_up_proj_scales", "U8", 3, {2, 4, 1}, NULL, 8}};
    write_model(path,
                "{\"model_type\":\"gpt_oss\",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
                tensors, COUNT(tensors));
}

static void every_allocation_for_experts_may_be_refused(void **state)
{
    (void)state;
    experts = QPLAN_EXPERTS_SPLIT;
    refuse_each_of_folder(write_fused, "int8:c0");
    experts = QPLAN_EXPERTS_KEEP;
    format = "mlx";
    refuse_each_of_folder(write_single, "uint4:g32");
    refuse_each_of_folder(write_divided, "uint4:g32");
    refuse_each_of_folder(write_blocks, "mxfp4");
    format = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_be_refused),
        cmocka_unit_test(rounding_may_lack_memory),
        cmocka_unit_test(every_allocation_for_a_folder_may_be_refused),
        cmocka_unit_test(every_allocation_for_a_layout_may_be_refused),
        cmocka_unit_test(every_allocation_for_experts_may_be_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
