/*
 * plan_json.c - the plan as a document, writing side (qplan-plan/1). Reading is plan_read.c.
 */
#include "plan.h"
#include "words.h"

#include "lib/base/json.h"

#include <errno.h>
#include <string.h>

static const char *bare_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_head(struct qp_writer *w, const struct qplan_entry *entry)
{
    qp_json_key(w, "name");
    qp_json_put_string(w, entry->name, entry->name_len);
    qp_json_key(w, "file");
    qp_json_put_u64(w, entry->file);
    qp_json_key(w, "dtype");
    qp_json_put_str(w, qplan_storage_name((enum qplan_storage)entry->storage));
    qp_json_key(w, "shape");
    qp_json_open(w, '[');
    for (unsigned i = 0; i < entry->rank; i++)
        qp_json_put_u64(w, entry->shape[i]);
    qp_json_close(w, ']');
}

static void put_output(struct qp_writer *w, const struct qplan_entry *entry)
{
    qp_json_open(w, '{');
    put_head(w, entry);
    qp_json_key(w, "begin");
    qp_json_put_u64(w, entry->begin);
    qp_json_key(w, "end");
    qp_json_put_u64(w, entry->end);
    qp_json_close(w, '}');
}

void qp_plan_put_members(struct qp_writer *w, const struct qp_plan_tensor *t)
{
    char scheme[QPLAN_SCHEME_TEXT];
    if (qp_is_quantized(t))
        qplan_scheme_format(t->result.scheme, scheme);
    put_head(w, t->source->entry);
    qp_json_key(w, "action");
    qp_json_put_str(w, qp_is_quantized(t) ? "quantize" : "keep");
    qp_json_key(w, "scheme");
    qp_json_put_str(w, qp_is_quantized(t) ? scheme : NULL);
    qp_json_key(w, "calibrate");
    qp_json_put_str(w, qp_is_quantized(t) ? t->calibrator->method : NULL);
    qp_json_key(w, "rule");
    qp_json_put_str(w, t->rule);
    qp_json_key(w, "reason");
    qp_json_put_str(w, t->reason);
    qp_json_key(w, "outputs");
    qp_json_open(w, '[');
    for (unsigned i = 0; i < qp_plan_n_outputs(t); i++)
        put_output(w, qp_plan_output(t, i));
    qp_json_close(w, ']');
}

static void put_source(struct qp_writer *w, const struct qp_source *source)
{
    qp_json_key(w, "source");
    qp_json_open(w, '[');
    for (size_t i = 0; i < source->listing.n_files; i++) {
        qp_json_open(w, '{');
        qp_json_key(w, "file");
        qp_json_put_str(w, bare_name(source->files[i].file.path));
        qp_json_key(w, "bytes");
        qp_json_put_u64(w, source->files[i].file.size);
        qp_json_close(w, '}');
    }
    qp_json_close(w, ']');
}

static void put_files(struct qp_writer *w, const struct qplan_plan *plan)
{
    qp_json_key(w, "output");
    qp_json_open(w, '{');
    qp_json_key(w, "files");
    qp_json_open(w, '[');
    for (size_t i = 0; i < plan->news.n_files; i++) {
        qp_json_open(w, '{');
        qp_json_key(w, "file");
        qp_json_put_str(w, plan->news.names[i]);
        qp_json_key(w, "bytes");
        qp_json_put_u64(w, plan->news.files[i].header_bytes + plan->news.files[i].data_bytes);
        qp_json_key(w, "header_bytes");
        qp_json_put_u64(w, plan->news.files[i].header_bytes);
        qp_json_close(w, '}');
    }
    qp_json_close(w, ']');
    qp_json_key(w, "bytes");
    qp_json_put_u64(w, qplan_plan_output_bytes(plan));
    qp_json_close(w, '}');
}

enum qplan_status qplan_plan_write_json(const struct qplan_plan *plan, qplan_write_fn write,
                                        void *ctx, struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_stream(&w, write, ctx);
    qp_json_open(&w, '{');
    qp_json_key(&w, "schema");
    qp_json_put_str(&w, QP_PLAN_SCHEMA);
    qp_json_key(&w, "numerics");
    qp_json_put_u64(&w, QPLAN_NUMERICS);
    qp_json_key(&w, "format");
    qp_json_put_str(&w, plan->format->name);
    qp_json_key(&w, "nonfinite");
    qp_json_put_str(&w, qp_nonfinite_words[plan->nonfinite]);
    qp_json_key(&w, "indivisible");
    qp_json_put_str(&w, qp_indivisible_words[plan->indivisible]);
    qp_json_key(&w, "zero_point");
    qp_json_put_str(&w,
                    qp_zero_point_words[plan->options.zero_point == QPLAN_ZERO_POINT_ASYMMETRIC]);
    if (plan->options.activations != QPLAN_ACTIVATIONS_USUAL) {
        qp_json_key(&w, "activations");
        qp_json_put_str(&w, qp_activations_words[plan->options.activations - 1]);
    }
    if (plan->options.arithmetic != QPLAN_ARITHMETIC_QPLAN) {
        qp_json_key(&w, "arithmetic");
        qp_json_put_str(&w, qp_arithmetic_words[plan->options.arithmetic]);
    }
    if (plan->experts != QPLAN_EXPERTS_KEEP) {
        qp_json_key(&w, "experts");
        qp_json_put_str(&w, qp_experts_words[plan->experts]);
    }
    if (plan->positive_scales) {
        qp_json_key(&w, "positive_scales");
        qp_json_put_bool(&w, true);
    }
    if (plan->max_shard) {
        qp_json_key(&w, "max_shard_size");
        qp_json_put_u64(&w, plan->max_shard);
    }
    if (plan->n_copy) {
        qp_json_key(&w, "copy");
        qp_json_open(&w, '[');
        for (size_t i = 0; i < plan->n_copy; i++)
            qp_json_put_str(&w, plan->copy[i]);
        qp_json_close(&w, ']');
    }
    qp_plan_put_inputs(&w, &plan->making);
    put_source(&w, &plan->checkpoint->source);
    put_files(&w, plan);
    qp_json_key(&w, "tensors");
    qp_json_open(&w, '[');
    for (size_t i = 0; i < plan->n_tensors; i++) {
        qp_json_open(&w, '{');
        qp_plan_put_members(&w, &plan->tensors[i]);
        qp_json_close(&w, '}');
    }
    qp_json_close(&w, ']');
    qp_json_close(&w, '}');
    qp_puts(&w, "\n");
    enum qplan_status status = qp_writer_finish(&w, "plan", err);
    qp_writer_free(&w);
    return status;
}

/* ---- Into a file -------------------------------------------------------------------------------
 */

struct file_sink {
    struct qp_out out;
    uint64_t n_written;
    struct qplan_error *err; /* says why a write failed */
    bool failed;
};

static int write_to_file(void *ctx, const void *bytes, size_t n_bytes)
{
    struct file_sink *sink = ctx;
    sink->failed = qp_out_write(&sink->out, sink->n_written, bytes, n_bytes, sink->err) != QPLAN_OK;
    sink->n_written += n_bytes;
    return sink->failed ? EIO : 0;
}

static enum qplan_status write_and_commit(const struct qplan_plan *plan, struct file_sink *sink,
                                          struct qplan_error *err)
{
    struct qplan_error unused; /* what sink->err says is more */
    bool synced;
    enum qplan_status status = qplan_plan_write_json(plan, write_to_file, sink, &unused);
    if (sink->failed)
        return QPLAN_ERR_IO;
    if (status != QPLAN_OK)
        return qp_fail_memory(err, sink->out.shown, sink->n_written);
    return qp_out_commit(&sink->out, &synced, err);
}

enum qplan_status qplan_plan_write_file(const struct qplan_plan *plan, const char *path, bool force,
                                        struct qplan_error *err)
{
    const struct qp_out_request request = {
        .path = path, .force = force, .input = &plan->checkpoint->source.files[0].file};
    struct file_sink sink = {.err = err};
    QP_TRY(qp_out_open(&sink.out, &request, err));
    enum qplan_status status = write_and_commit(plan, &sink, err);
    qp_out_discard(&sink.out);
    return status;
}
