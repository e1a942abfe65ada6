/*
 * op_file.c - an operator on files: tensors of one safetensors file in, those of another out. The
 * whole of both is in memory; the output appears complete or not at all.
 */
#include "op.h"

#include "formats/safetensors/safetensors.h"
#include "lib/base/alloc.h"

#include <string.h>

/* Tensors with such names are what a test expects. */
#define EXPECTED "expect."

struct file_job {
    const struct qplan_op_file *request;
    const struct qplan_op_info *info;
    struct qplan_op fields; /* no more than these, read before any file is opened */
    struct qp_st st;
    struct qplan_op *op;
    struct qplan_tensor tensors[2 * QP_OP_MAX_ARGUMENTS]; /* inputs, then outputs */
    size_t n_tensors, n_inputs;
    int64_t shapes[QP_OP_MAX_ARGUMENTS][QPLAN_MAX_RANK]; /* of inputs */
    struct qplan_entry entries[QP_OP_MAX_ARGUMENTS];     /* of outputs */
    uint64_t extents[QP_OP_MAX_ARGUMENTS][QPLAN_MAX_RANK];
    void *workspace;
};

static enum qplan_status check_cancel(const struct file_job *job, struct qplan_error *err)
{
    if (!job->request->cancel || !*job->request->cancel)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_CANCELLED, job->request->op, "cancelled");
}

/* ---- In ---------------------------------------------------------------------------------------
 */

static const struct qplan_op_argument_info *find_argument(const struct file_job *job,
                                                          const char *name)
{
    for (size_t i = 0; i < job->info->n_arguments; i++) {
        if (strcmp(job->info->arguments[i].name, name) == 0)
            return &job->info->arguments[i];
    }
    return NULL;
}

/* A tensor that is only an output here has no place among the inputs. */
static enum qplan_status check_is_input(const struct file_job *job, const struct qplan_entry *entry,
                                        struct qplan_error *err)
{
    const struct qplan_op_argument_info *argument = find_argument(job, entry->name);
    char subject[512];
    if (argument &&
        (argument->direction == QPLAN_OP_IN ||
         (argument->direction == QPLAN_OP_UPDATE && qp_op_number(&job->fields, "accumulate"))))
        return QPLAN_OK;
    (void)qp_fail(err, QPLAN_ERR_INVALID, qp_st_subject(subject, &job->st, entry),
                  "no input of %s: expected ", job->info->name);
    const char *joint = "";
    for (size_t i = 0; i < job->info->n_arguments; i++) {
        if (job->info->arguments[i].direction != QPLAN_OP_IN)
            continue;
        qp_fail_more(err, "%s%s", joint, job->info->arguments[i].name);
        joint = ", ";
    }
    return QPLAN_ERR_INVALID;
}

static enum qplan_status read_tensor(struct file_job *job, const struct qplan_entry *entry,
                                     struct qplan_error *err)
{
    QP_TRY(check_is_input(job, entry, err));
    const uint64_t n_bytes = entry->end - entry->begin;
    int64_t *shape = job->shapes[job->n_tensors];
    for (unsigned i = 0; i < entry->rank; i++)
        shape[i] = (int64_t)entry->shape[i];
    struct qplan_tensor *tensor = &job->tensors[job->n_tensors++];
    *tensor = (struct qplan_tensor){.name = entry->name,
                                    .dtype = (enum qplan_storage)entry->storage,
                                    .rank = entry->rank,
                                    .shape = shape,
                                    .n_bytes = n_bytes};
    tensor->data = qp_alloc_buffer(n_bytes);
    if (!tensor->data)
        return qp_fail_memory(err, entry->name, n_bytes);
    return qp_file_read(&job->st.file, qp_st_at(job->st.header_bytes, entry, 0), tensor->data,
                        (size_t)n_bytes, err);
}

static enum qplan_status read_inputs(struct file_job *job, struct qplan_error *err)
{
    for (size_t i = 0; i < job->st.n_entries; i++) {
        const struct qplan_entry *entry = &job->st.entries[i];
        QP_TRY(check_cancel(job, err));
        if (strncmp(entry->name, EXPECTED, strlen(EXPECTED)) != 0)
            QP_TRY(read_tensor(job, entry, err));
    }
    job->n_inputs = job->n_tensors;
    return qp_file_unchanged(&job->st.file, err);
}

/* ---- The run ----------------------------------------------------------------------------------
 */

/* The place of a tensor that is an input and an output, or n_inputs. */
static size_t find_input(const struct file_job *job, const char *name)
{
    size_t i = 0;
    while (i < job->n_inputs && strcmp(job->tensors[i].name, name) != 0)
        i++;
    return i;
}

static enum qplan_status make_outputs(struct file_job *job, struct qplan_error *err)
{
    struct qplan_tensor output;
    for (size_t i = 0; qplan_op_output(job->op, i, &output); i++) {
        if (find_input(job, output.name) < job->n_inputs)
            continue; /* updated where it is */
        uint64_t n_elems = 1;
        for (unsigned axis = 0; axis < output.rank; axis++)
            n_elems *= (uint64_t)output.shape[axis];
        output.n_bytes = n_elems * (qplan_storage_bits(output.dtype) / 8);
        output.data = qp_alloc_buffer(output.n_bytes);
        if (!output.data)
            return qp_fail_memory(err, output.name, output.n_bytes);
        job->tensors[job->n_tensors++] = output;
    }
    return QPLAN_OK;
}

static enum qplan_status run_op(struct file_job *job, struct qplan_op_result *result,
                                struct qplan_error *err)
{
    const struct qplan_op_file *request = job->request;
    const struct qplan_op_desc desc = {request->op, request->fields, request->n_fields,
                                       job->tensors, job->n_inputs};
    QP_TRY(qplan_op_select(&job->op, &desc, request->preference, err));
    QP_TRY(make_outputs(job, err));
    const uint64_t n_bytes = qplan_op_workspace_size(job->op);
    job->workspace = qp_alloc_buffer(n_bytes);
    if (!job->workspace)
        return qp_fail_memory(err, "workspace", n_bytes);
    const struct qplan_op_args args = {job->tensors, job->n_tensors, &result->counts};
    result->sku = *qplan_op_sku(job->op);
    return qplan_op_run(job->op, NULL, job->workspace, n_bytes, &args, err);
}

/* ---- Out --------------------------------------------------------------------------------------
 */

/* The tensors of the output file; order gets them as they will be stored. Returns how many. */
static size_t list_outputs(struct file_job *job, struct qplan_entry **order)
{
    struct qplan_tensor output;
    size_t n = 0;
    for (; qplan_op_output(job->op, n, &output); n++) {
        for (unsigned axis = 0; axis < output.rank; axis++)
            job->extents[n][axis] = (uint64_t)output.shape[axis];
        job->entries[n] = (struct qplan_entry){.name = output.name,
                                               .name_len = (uint32_t)strlen(output.name),
                                               .shape = job->extents[n],
                                               .rank = (uint8_t)output.rank,
                                               .storage = (uint8_t)output.dtype};
        order[n] = &job->entries[n];
    }
    return n;
}

static enum qplan_status write_data(const struct file_job *job, const struct qp_out *out,
                                    struct qplan_entry *const *order, size_t n,
                                    const struct qp_writer *header, struct qplan_error *err)
{
    QP_TRY(qp_out_write(out, 0, header->data, header->n, err));
    for (size_t i = 0; i < n; i++) {
        QP_TRY(check_cancel(job, err));
        size_t from = 0;
        while (strcmp(job->tensors[from].name, order[i]->name) != 0)
            from++;
        QP_TRY(qp_out_write(out, header->n + order[i]->begin, job->tensors[from].data,
                            (size_t)(order[i]->end - order[i]->begin), err));
    }
    return QPLAN_OK;
}

static enum qplan_status write_file(struct file_job *job, struct qp_writer *header,
                                    struct qplan_error *err)
{
    const char *path = job->request->out_path;
    struct qplan_entry *order[QP_OP_MAX_ARGUMENTS];
    const size_t n = list_outputs(job, order);
    uint64_t data_bytes;
    QP_TRY(qp_st_layout(order, n, &data_bytes, path, err));
    QP_TRY(
        qp_st_put_header(header, (const struct qplan_entry *const *)order, n, NULL, 0, path, err));
    const struct qp_out_request wanted = {.path = path,
                                          .force = job->request->force,
                                          .n_bytes = header->n + data_bytes,
                                          .input = &job->st.file,
                                          .like_input = true};
    struct qp_out out;
    QP_TRY(qp_out_open(&out, &wanted, err));
    bool synced;
    enum qplan_status status = write_data(job, &out, order, n, header, err);
    if (status == QPLAN_OK)
        status = check_cancel(job, err);
    if (status == QPLAN_OK)
        status = qp_out_commit(&out, &synced, err);
    qp_out_discard(&out);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------
 */

static enum qplan_status read_fields(struct file_job *job, struct qplan_error *err)
{
    const struct qplan_op_file *request = job->request;
    const struct qplan_op_desc desc = {
        .op = request->op, .fields = request->fields, .n_fields = request->n_fields};
    const struct qp_op_row *row;
    QP_TRY(qp_op_find_row(request->op, &row, err));
    job->info = &row->info;
    job->fields.row = row;
    return qp_op_read_fields(&job->fields, &desc, err);
}

static enum qplan_status run_job(struct file_job *job, struct qplan_op_result *result,
                                 struct qplan_error *err)
{
    struct qp_writer header;
    QP_TRY(read_fields(job, err));
    QP_TRY(qp_st_open(&job->st, job->request->in_path, err));
    QP_TRY(read_inputs(job, err));
    QP_TRY(check_cancel(job, err));
    QP_TRY(run_op(job, result, err));
    qp_writer_init(&header);
    enum qplan_status status = write_file(job, &header, err);
    qp_writer_free(&header);
    return status;
}

static void end_job(struct file_job *job)
{
    for (size_t i = 0; i < job->n_tensors; i++)
        qp_free(job->tensors[i].data);
    qp_free(job->workspace);
    qplan_op_free(job->op);
    qp_st_close(&job->st);
    qp_free(job);
}

enum qplan_status qplan_op_run_file(struct qplan_op_result *result,
                                    const struct qplan_op_file *file, struct qplan_error *err)
{
    struct file_job *job = qp_alloc(1, sizeof *job);
    if (!job)
        return qp_fail_memory(err, "operator", sizeof *job);
    job->request = file;
    job->st.file.fd = -1;
    enum qplan_status status = run_job(job, result, err);
    end_job(job);
    return status;
}
