/*
 * fuzz_op_file.c - any file and any fields through `qplan op run`. support/described.h has the form
 * of the input: op, set and tensor lines, or the bytes of a file.
 *
 * What must hold: a run fails by its fields or the content of its file alone, with a message, and
 * leaves no file; what the operator's own selection refuses, the run refuses; one thread and three
 * give the same status and the same bytes; the output is a file that has what the operator says.
 */
#include "support/described.h"

#include "formats/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define IN_NAME    "in.safetensors"
#define OUT_NAME   "out.safetensors"
#define MOST_INS   16
#define MOST_BYTES ((uint64_t)1 << 20) /* of outputs and workspace: a run is small */

struct trial {
    struct description d;
    struct bytes bytes;
    struct qplan_op_field fields[MOST_LINES];
    char *names[MOST_LINES];
    struct qplan_op *op; /* NULL: refused */
};

static void read_fields(struct trial *t)
{
    for (size_t i = 0; i < t->d.fields.n; i++) {
        const char *word = t->d.fields.items[i].key;
        const size_t n = strcspn(word, "=");
        t->names[i] = strndup(word, n);
        promise(t->names[i], "memory");
        t->fields[i] =
            (struct qplan_op_field){.name = t->names[i], .text = word + n + (word[n] == '=')};
    }
}

/* ---- The size of a run ------------------------------------------------------------------------
 */

/* The tensors of the file as arguments; false if they cannot be those of an operator. */
static bool list_inputs(const struct qp_st *st, struct qplan_tensor *tensors,
                        int64_t (*shapes)[QPLAN_MAX_RANK], size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < st->n_entries; i++) {
        const struct qplan_entry *entry = &st->entries[i];
        if (strncmp(entry->name, "expect.", 7) == 0)
            continue;
        if (*n == MOST_INS)
            return false;
        for (unsigned k = 0; k < entry->rank; k++)
            shapes[*n][k] = (int64_t)entry->shape[k];
        tensors[*n] = (struct qplan_tensor){.name = entry->name,
                                            .dtype = (enum qplan_storage)entry->storage,
                                            .rank = entry->rank,
                                            .shape = shapes[*n]};
        ++*n;
    }
    return true;
}

static void select_op(struct trial *t, const struct qp_st *st)
{
    static int64_t shapes[MOST_INS][QPLAN_MAX_RANK];
    struct qplan_tensor tensors[MOST_INS];
    struct qplan_op_desc desc = {
        .op = t->d.op, .fields = t->fields, .n_fields = t->d.fields.n, .tensors = tensors};
    if (list_inputs(st, tensors, shapes, &desc.n_tensors))
        (void)qplan_op_select(&t->op, &desc, NULL, NULL);
}

/* Whether the outputs and the workspace of the operator are small. */
static bool is_small(const struct qplan_op *op)
{
    struct qplan_tensor output;
    uint64_t total = qplan_op_workspace_size(op);
    if (total > MOST_BYTES)
        return false;
    for (size_t i = 0; qplan_op_output(op, i, &output); i++) {
        uint64_t n_bytes = 8;
        for (unsigned k = 0; k < output.rank; k++) {
            if (output.shape[k] > 0 && n_bytes > MOST_BYTES / (uint64_t)output.shape[k])
                return false;
            n_bytes *= (uint64_t)output.shape[k];
        }
        total += n_bytes;
    }
    return total <= MOST_BYTES;
}

/* ---- The run ----------------------------------------------------------------------------------
 */

static void check_failure(const struct trial *t, enum qplan_status status,
                          const struct qplan_error *err)
{
    promise(err->status == status && err->message[0], "a failure has a message");
    promise(status == QPLAN_ERR_USAGE || status == QPLAN_ERR_INVALID || status == QPLAN_ERR_VALUE ||
                status == QPLAN_ERR_UNSUPPORTED,
            "a run is refused by its fields or its file alone");
    promise(t->op == NULL || status == QPLAN_ERR_VALUE || status == QPLAN_ERR_INVALID,
            "what can be selected is refused by the values of its file alone");
    promise(own_count() == 1, "a run that fails leaves no file");
}

static void check_output(const struct trial *t)
{
    struct qplan_tensor output;
    struct qp_st st;
    size_t n = 0;
    promise(t->op != NULL, "what the selection refuses, the run refuses");
    promise(own_count() == 2, "a run leaves its output and nothing else");
    promise(qp_st_open(&st, own_path(OUT_NAME), NULL) == QPLAN_OK, "the output is a file");
    for (; qplan_op_output(t->op, n, &output); n++) {
        const struct qplan_entry *entry = qp_st_find(&st, output.name, strlen(output.name));
        promise(entry && entry->storage == output.dtype && entry->rank == output.rank,
                "an output has its name, dtype and rank");
        for (unsigned k = 0; k < output.rank; k++)
            promise(entry->shape[k] == (uint64_t)output.shape[k], "an output has its shape");
    }
    promise(st.n_entries == n, "there is no other output");
    qp_st_close(&st);
}

static enum qplan_status run(const struct trial *t, unsigned threads, struct bytes *written)
{
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    struct qplan_op_file file = {.op = t->d.op,
                                 .fields = t->fields,
                                 .n_fields = t->d.fields.n,
                                 .in_path = own_path(IN_NAME),
                                 .out_path = own_path(OUT_NAME),
                                 .preference = &preference};
    struct qplan_op_result result;
    struct qplan_error err = {.status = QPLAN_OK};
    preference.threads = threads;
    const enum qplan_status status = qplan_op_run_file(&result, &file, &err);
    *written = (struct bytes){NULL, 0};
    if (status != QPLAN_OK) {
        check_failure(t, status, &err);
        bytes_puts(written, err.message);
        return status;
    }
    check_output(t);
    *written = own_read(OUT_NAME);
    promise(qplan_op_result_write_json(&result, bytes_write, written, NULL) == QPLAN_OK,
            "a result can be written");
    own_remove(OUT_NAME);
    return status;
}

static void try_file(struct trial *t)
{
    struct qp_st st;
    struct bytes first, second;
    if (qp_st_open(&st, own_path(IN_NAME), NULL) == QPLAN_OK) {
        select_op(t, &st);
        qp_st_close(&st);
    }
    if (t->op && !is_small(t->op))
        return;
    const enum qplan_status status = run(t, 1, &first);
    promise(run(t, 3, &second) == status && bytes_equal(&first, &second),
            "a run does not depend on threads");
    free(first.data);
    free(second.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trial *t = calloc(1, sizeof *t);
    promise(t, "memory");
    describe(&t->d, data, size);
    read_fields(t);
    if (describe_file(&t->d, &t->bytes)) {
        own_write(IN_NAME, &t->bytes);
        try_file(t);
    }
    qplan_op_free(t->op);
    for (size_t i = 0; i < t->d.fields.n; i++)
        free(t->names[i]);
    free(t->bytes.data);
    describe_end(&t->d);
    free(t);
    return 0;
}
