/*
 * fuzz_plan.c - any text is a plan for a fixed small checkpoint or refused; an accepted plan is
 * written as a document that is accepted and written the same again.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/qplan.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* ---- The checkpoint -------------------------------------------------------------------------- */

#define TENSOR(name, dtype, shape, range)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"

static const char header[] = "{" TENSOR("a", "F32", "2,4", "0,32") "," //
    TENSOR("b.0", "BF16", "3,2,8", "32,128") ","                       //
    TENSOR("bias", "F32", "4", "128,144") ","                          //
    TENSOR("e", "F16", "0,3", "144,144") ","                           //
    TENSOR("i", "I64", "2,1", "144,160") "}";

#define DATA_BYTES 160

static void write_checkpoint(const char *path)
{
    static const unsigned char zeros[DATA_BYTES];
    uint64_t n_header = sizeof header - 1;
    FILE *file = fopen(path, "wb");
    require(file && fwrite(&n_header, sizeof n_header, 1, file) == 1);
    require(fwrite(header, 1, sizeof header - 1, file) == sizeof header - 1);
    require(fwrite(zeros, 1, sizeof zeros, file) == sizeof zeros && fclose(file) == 0);
}

/* Opened at the first input; the file is gone by then. */
static const struct qplan_checkpoint *the_checkpoint(void)
{
    static struct qplan_checkpoint *checkpoint;
    const char *base = getenv("TMPDIR");
    char folder[256], path[300];
    if (checkpoint)
        return checkpoint;
    (void)snprintf(folder, sizeof folder, "%s/qplan-fuzz-XXXXXX", base ? base : "/tmp");
    require(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/m.safetensors", folder);
    write_checkpoint(path);
    require(qplan_checkpoint_open(&checkpoint, path, NULL) == QPLAN_OK);
    require(unlink(path) == 0 && rmdir(folder) == 0);
    return checkpoint;
}

/* ---- Text that is written -------------------------------------------------------------------- */

struct text {
    char *data;
    size_t n;
};

static int add(void *ctx, const void *bytes, size_t n)
{
    struct text *text = ctx;
    text->data = realloc(text->data, text->n + n);
    require(text->data);
    memcpy(text->data + text->n, bytes, n);
    text->n += n;
    return 0;
}

static struct text written(const struct qplan_plan *plan)
{
    struct text json = {0}, table = {0};
    require(qplan_plan_write_json(plan, add, &json, NULL) == QPLAN_OK);
    require(qplan_plan_write_text(plan, add, &table, NULL) == QPLAN_OK);
    free(table.data);
    return json;
}

static void require_same_again(const struct qplan_plan *plan)
{
    struct qplan_plan *again;
    struct text first = written(plan);
    const struct qplan_document document = {
        .name = "again", .text = first.data, .n_bytes = first.n};
    require(qplan_plan_read(&again, the_checkpoint(), &document, NULL) == QPLAN_OK);
    struct text second = written(again);
    require(first.n == second.n && memcmp(first.data, second.data, first.n) == 0);
    require(qplan_plan_output_bytes(plan) == qplan_plan_output_bytes(again));
    require(strcmp(qplan_plan_output_name(plan), qplan_plan_output_name(again)) == 0);
    free(first.data);
    free(second.data);
    qplan_plan_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qplan_plan *plan;
    struct qplan_error err;
    const struct qplan_document document = {
        .name = "input", .text = (const char *)data, .n_bytes = size};
    enum qplan_status status = qplan_plan_read(&plan, the_checkpoint(), &document, &err);
    if (status == QPLAN_OK)
        require_same_again(plan);
    else
        require(!plan && status == QPLAN_ERR_INVALID && err.status == status && err.message[0]);
    qplan_plan_free(plan);
    return 0;
}
