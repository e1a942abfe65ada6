/*
 * fuzz_importance.c - any bytes as a file of importance, by their begin GGUF, safetensors or an
 * imatrix of old: through the plan of a small checkpoint, as quantize reads it, and as inspect
 * shows it.
 *
 * What must hold, besides that nothing is read or written out of bounds:
 *  - A file fails by its content alone, with a message that names it, and never in another way.
 *  - What the plan takes, inspect shows, a line a weight; what inspect shows fails in the plan only
 *    for what it says of a tensor of the checkpoint.
 *  - Reading it twice, as two files, fails or makes nothing else.
 */
#include "support/fuzz_files.h"

#include "lib/qplan.h"

#include <string.h>

#define FILE_NAME   "importance"
#define SOURCE_NAME "source.safetensors"

#define TENSOR(name, shape, range)                                                                 \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"

/* Tensors that are found by their own names, and by those of llama.cpp. */
static const char header[] =
    "{" TENSOR("model.layers.0.mlp.experts.2.up_proj.weight", "2,8",
               "0,64") "," TENSOR("model.layers.0.self_attn.q_proj.weight", "2,8",
                                  "64,128") "," TENSOR("w", "2,8", "128,192") "}";

#define DATA_BYTES 192

static const struct qplan_checkpoint *the_checkpoint(void)
{
    static struct qplan_checkpoint *checkpoint;
    static const char zeros[DATA_BYTES];
    const uint64_t n_header = sizeof header - 1;
    struct bytes bytes = {NULL, 0};
    if (checkpoint)
        return checkpoint;
    bytes_add(&bytes, &n_header, sizeof n_header);
    bytes_add(&bytes, header, sizeof header - 1);
    bytes_add(&bytes, zeros, sizeof zeros);
    own_write(SOURCE_NAME, &bytes);
    free(bytes.data);
    promise(qplan_checkpoint_open(&checkpoint, own_path(SOURCE_NAME), NULL) == QPLAN_OK,
            "the source can be read");
    return checkpoint;
}

static void check_status(enum qplan_status status, const struct qplan_error *err)
{
    promise(status == QPLAN_OK ||
                (status == QPLAN_ERR_INVALID && err->status == status && err->message[0]),
            "a file fails by its content, with a message");
}

/* What the plan says of the file n times; its document, of all of which it is one. */
static enum qplan_status planned(size_t n, struct bytes *document)
{
    const char *const paths[] = {own_path(FILE_NAME), own_path(FILE_NAME)};
    const struct qplan_plan_options options = {.scheme = {.dtype = QPLAN_INT8},
                                               .calibrate = "mse",
                                               .importance = paths,
                                               .n_importance = n};
    struct qplan_plan *plan;
    struct qplan_error err = {.status = QPLAN_OK};
    const enum qplan_status status = qplan_plan_make(&plan, the_checkpoint(), &options, &err);
    check_status(status, &err);
    if (status == QPLAN_OK)
        promise(qplan_plan_write_json(plan, bytes_write, document, NULL) == QPLAN_OK,
                "a plan has a document");
    qplan_plan_free(plan);
    return status;
}

static size_t lines_of(const struct bytes *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++)
        n += text->data[i] == '\n';
    return n;
}

/* Each line but the first is a weight, and the first says how many. */
static void check_text(const struct bytes *text)
{
    const char *of = text->data ? strstr(text->data, ": importance of ") : NULL;
    promise(of && strtoull(of + sizeof ": importance of " - 1, NULL, 10) + 1 == lines_of(text),
            "inspect shows a line a weight");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes file = {NULL, 0}, text = {NULL, 0}, once = {NULL, 0}, twice = {NULL, 0};
    struct qplan_error err = {.status = QPLAN_OK};
    bytes_add(&file, data, size);
    own_write(FILE_NAME, &file);
    const bool is_vectors = size >= 9 && data[8] == '{';
    const enum qplan_status shown =
        qplan_importance_write_text(own_path(FILE_NAME), NULL, bytes_write, &text, &err);
    check_status(shown, &err);
    promise(qplan_importance_is_imatrix(own_path(FILE_NAME), NULL) ==
                (shown == QPLAN_OK && !is_vectors),
            "what inspect takes for an imatrix it shows");
    if (shown == QPLAN_OK) {
        bytes_add(&text, "", 1);
        check_text(&text);
    }
    const enum qplan_status first = planned(1, &once), second = planned(2, &twice);
    promise(first != QPLAN_OK || shown == QPLAN_OK, "what the plan takes, inspect shows");
    promise(first == second, "a file that is read twice is as good as one");
    free(file.data);
    free(text.data);
    free(once.data);
    free(twice.data);
    return 0;
}
