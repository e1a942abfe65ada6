/*
 * test_refused_jobs.c - each allocation in turn is refused while quantized checkpoints are held
 * against rules and converted, and while importance decides about scales.
 */
#include "refused_memory.h"

static char paths[3][512]; /* source, quantized, and what a job writes or reads besides */

/* ---- Checkpoints -------------------------------------------------------------------------------
 */

static const char *const roles[] = {"source", "quantized", "other"};
static const char *const names[] = {"model.layers.0.mlp.down_proj.weight",
                                    "model.layers.0.mlp.up_proj.weight", "model.norm.weight"};

/* A folder of two matrices and a vector; rows and columns are as wide as blocks of fp8. */
static void write_source(void)
{
    struct tensor tensors[COUNT(names)];
    char file[600];
    for (size_t i = 0; i < COUNT(names); i++)
        tensors[i] = (struct tensor){names[i], "F16", 2, {128, 128}, NULL, 128 * 128 * 2};
    tensors[2].rank = 1;
    tensors[2].n_bytes = 128 * 2;
    for (size_t i = 0; i < COUNT(paths); i++)
        (void)snprintf(paths[i], sizeof paths[i], "%s", in_folder(&folder, roles[i]));
    assert_int_equal(mkdir(paths[0], 0700), 0);
    (void)snprintf(file, sizeof file, "%s/model.safetensors", paths[0]);
    write_checkpoint(file, NULL, tensors, COUNT(tensors));
    (void)snprintf(file, sizeof file, "%s/config.json", paths[0]);
    write_file(file, "{\"model_type\":\"llama\"}", 22);
}

static void remove_path(const char *path)
{
    assert_int_equal(nftw(path, remove_found, 8, FTW_DEPTH | FTW_PHYS), 0);
}

struct options {
    const char *format, *calibrate, *importance;
    enum qplan_activations activations;
};

static struct options asked;

static enum qplan_status quantize(const char *scheme, struct qplan_error *err)
{
    struct qplan_plan_options options = {.format = asked.format,
                                         .select = QPLAN_SELECT_ALL,
                                         .calibrate = asked.calibrate,
                                         .importance = &asked.importance,
                                         .n_importance = asked.importance != NULL,
                                         .activations = asked.activations};
    const struct qplan_quantize_options how = {.out_path = paths[1]};
    return quantize_as(scheme, paths[0], &options, &how, err);
}

/* ---- Jobs --------------------------------------------------------------------------------------
 */

static enum qplan_status lint(const char *engine, struct qplan_error *err)
{
    const struct qplan_lint_options options = {.engine = engine};
    struct qplan_findings *findings;
    enum qplan_status status = qplan_lint(&findings, paths[1], &options, err);
    if (status == QPLAN_OK)
        status = qplan_findings_write_json(findings, ignore, NULL, err);
    if (status == QPLAN_OK)
        status = qplan_findings_write_text(findings, ignore, NULL, err);
    qplan_findings_free(findings);
    return status;
}

static enum qplan_status convert(const char *format, struct qplan_error *err)
{
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_checkpoint *file;
    struct qplan_report *report = NULL;
    enum qplan_status status = qplan_checkpoint_open(&file, paths[1], err);
    if (status == QPLAN_OK)
        status = qplan_convert(&report, file, format, paths[2], &run, err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
    return status;
}

static enum qplan_status show_importance(const char *path, struct qplan_error *err)
{
    return qplan_importance_write_text(path, NULL, ignore, NULL, err);
}

/* ---- Layouts -----------------------------------------------------------------------------------
 */

static const struct {
    struct options asked;
    const char *scheme, *engine, *other; /* an engine that loads it, and a layout for the same */
} layouts[] = {
    {{.format = "compressed-tensors"}, "int4:g32:f16", "vllm", "qplan"},
    {{.format = "compressed-tensors", .activations = QPLAN_ACTIVATIONS_DYNAMIC},
     "int8:c0",
     "vllm",
     NULL},
    {{.format = "gptq"}, "int4:g32", "vllm", "compressed-tensors"},
    {{.format = "awq"}, "uint4:g32", "vllm", "gptq_v2"},
    {{.format = "mlx"}, "uint4:g32", "mlx", "qplan"},
    {{.format = "bitsandbytes"}, "int8:c0", "transformers", NULL},
    {{.format = "fp8"}, "fp8:b128x128", "vllm", "qplan"},
    {{.format = "modelopt"}, "nvfp4", "vllm", NULL},
    {{.format = "qplan"}, "int8:c0:f16", NULL, "compressed-tensors"},
};

static void every_allocation_for_rules_and_other_layouts_may_be_refused(void **state)
{
    (void)state;
    write_source();
    for (size_t i = 0; i < COUNT(layouts); i++) {
        struct qplan_error err;
        asked = layouts[i].asked;
        OK(quantize(layouts[i].scheme, &err), &err);
        refuse_each(lint, layouts[i].engine);
        if (layouts[i].other) {
            refuse_each(convert, layouts[i].other);
            remove_path(paths[2]);
        }
        remove_path(paths[1]);
    }
    remove_path(paths[0]);
}

/* ---- Importance --------------------------------------------------------------------------------
 */

/* A file of llama.cpp, as it was before GGUF, and vectors of the same. */
static void write_importance(bool is_dat)
{
    static const char *const told[] = {"blk.0.ffn_down.weight", "blk.0.ffn_up.weight"};
    const int32_t n = COUNT(told), head[] = {1, 128};
    float ones[128];
    struct text file = {NULL, 0};
    struct tensor vectors[COUNT(told)];
    for (size_t i = 0; i < COUNT(ones); i++)
        ones[i] = 1 + (float)i;
    (void)text_add(&file, &n, sizeof n);
    for (int32_t i = 0; i < n; i++) {
        const int32_t len = (int32_t)strlen(told[i]);
        (void)text_add(&file, &len, sizeof len);
        text_puts(&file, told[i]);
        (void)text_add(&file, head, sizeof head);
        (void)text_add(&file, ones, sizeof ones);
        vectors[i] = (struct tensor){names[i], "F32", 1, {128}, ones, sizeof ones};
    }
    if (is_dat)
        write_file(paths[2], file.data, file.n);
    else
        write_checkpoint(paths[2], NULL, vectors, COUNT(vectors));
    text_free(&file);
}

static void every_allocation_for_importance_may_be_refused(void **state)
{
    static const char *const calibrators[] = {"mse", "mse:best", "percentile:99.9", "entropy:64"};
    (void)state;
    write_source();
    for (size_t i = 0; i < COUNT(calibrators); i++) {
        asked = (struct options){.calibrate = calibrators[i]};
        refuse_each(quantize, "int4:g32");
    }
    for (int is_dat = 0; is_dat < 2; is_dat++) {
        write_importance(is_dat);
        refuse_each(show_importance, paths[2]);
        asked = (struct options){.calibrate = "mse", .importance = paths[2]};
        refuse_each(quantize, "int4:g32:asym");
    }
    remove_path(paths[1]);
    remove_path(paths[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_for_rules_and_other_layouts_may_be_refused),
        cmocka_unit_test(every_allocation_for_importance_may_be_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
