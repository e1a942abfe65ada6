/*
 * importance_vectors.c - importance in a safetensors file: a vector of floats for each weight,
 * under its name or with _importance behind it.
 */
#include "importance.h"

#include "kernels/kernel.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/model/dtype.h"
#include "lib/store/source.h"

#include <string.h>

#define SUFFIX "_importance"

/* A weight has one vector in a file, under either name. */
static enum qplan_status check_single(const struct qp_source *source,
                                      const struct qplan_entry *from, size_t stem,
                                      struct qplan_error *err)
{
    const struct qplan_entry *other = qp_listing_find(&source->listing, from->name, stem);
    char a[QP_QUOTED], b[QP_QUOTED];
    if (other == from || !other)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, source->listing.shown,
                   "importance of one weight under two names: %s and %s",
                   qp_quote(a, other->name, other->name_len),
                   qp_quote(b, from->name, from->name_len));
}

static enum qplan_status read_vector(struct qp_importance *importance,
                                     const struct qp_source *source, const struct qplan_entry *from,
                                     struct qplan_error *err)
{
    const struct qp_importance_file file = {.shown = source->listing.shown, .err = err};
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)from->storage);
    const struct qp_work_kernels *f32 = qp_source_kernels(QPLAN_F32, QPLAN_ISA_BEST)->work;
    const size_t n_name = strlen(from->name), n_suffix = strlen(SUFFIX);
    const bool has_suffix =
        n_name > n_suffix && strcmp(from->name + n_name - n_suffix, SUFFIX) == 0;
    struct qp_importance_entry *entry;
    const float one = 1;
    char subject[512];
    QP_TRY(check_single(source, from, has_suffix ? n_name - n_suffix : n_name, err));
    if (!row->is_source || row->bits == 64 || from->rank != 1 || from->shape[0] == 0)
        return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, &source->listing, from),
                       "not importance: expected a vector of F32, F16 or BF16");
    const uint64_t n = from->shape[0];
    QP_TRY(qp_importance_entry(importance, &file, from->name,
                               has_suffix ? n_name - n_suffix : n_name, n, 1, &entry));
    void *stored = qp_alloc_buffer(n * row->bits / 8);
    float *values = qp_alloc_buffer(n * sizeof *values);
    enum qplan_status status = stored && values
                                   ? qp_source_read(source, from, 0, stored, n * row->bits / 8, err)
                                   : qp_fail_memory(err, "importance", n * sizeof *values);
    if (status == QPLAN_OK) {
        f32->load(row->dtype, (size_t)n, stored, values);
        status = qp_importance_add(&file, entry->name, entry->sums, values, n, 1);
    }
    if (status == QPLAN_OK)
        status = qp_importance_add(&file, entry->name, entry->counts, &one, 1, 1);
    qp_free(stored);
    qp_free(values);
    return status;
}

static enum qplan_status read_all(struct qp_importance *importance, const struct qp_source *source,
                                  const struct qp_digests *expected, struct qplan_error *err)
{
    for (size_t i = 0; i < source->listing.n_files; i++)
        QP_TRY(qp_digests_add_file(&importance->digests, &source->files[i].file, expected,
                                   &importance->arena, importance->cancel, err));
    for (size_t i = 0; i < source->listing.n_entries; i++)
        QP_TRY(read_vector(importance, source, &source->listing.entries[i], err));
    return qp_source_unchanged(source, err);
}

enum qplan_status qp_importance_read_vectors(struct qp_importance *importance, const char *path,
                                             const struct qp_digests *expected,
                                             struct qplan_error *err)
{
    struct qp_source source;
    QP_TRY(qp_source_open(&source, path, err));
    const enum qplan_status status = read_all(importance, &source, expected, err);
    qp_source_close(&source);
    return status;
}
