/*
 * source.c - the files of a checkpoint that is read.
 */
#include "source.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"

#include <string.h>

/* Makes a source of its only file, which is in st if that could be opened. */
static enum qplan_status take_file(struct qp_source *source, struct qp_st *st,
                                   enum qplan_status status)
{
    if (status != QPLAN_OK) {
        qp_free(st);
        return status;
    }
    *source = (struct qp_source){
        .listing = {st, 1, st->entries, st->n_entries, st->file.shown},
        .files = st,
        .path = st->file.path,
        .n_bytes = st->file.size,
        .data_bytes = st->data_bytes,
    };
    return QPLAN_OK;
}

enum qplan_status qp_source_open(struct qp_source *source, const char *path,
                                 struct qplan_error *err)
{
    struct qp_st *st = qp_alloc(1, sizeof *st);
    return st ? take_file(source, st, qp_st_open(st, path, err))
              : qp_fail_memory(err, "checkpoint", sizeof *st);
}

enum qplan_status qp_source_open_written(struct qp_source *source, int fd, const char *path,
                                         const struct qp_st_new *written, struct qplan_error *err)
{
    struct qp_st *st = qp_alloc(1, sizeof *st);
    return st ? take_file(source, st, qp_st_open_fd(st, fd, path, written, err))
              : qp_fail_memory(err, "checkpoint", sizeof *st);
}

void qp_source_close(struct qp_source *source)
{
    for (size_t i = 0; i < source->listing.n_files; i++)
        qp_st_close(&source->files[i]);
    qp_free(source->files);
    *source = (struct qp_source){.files = NULL};
}

static uint64_t place_of(const struct qp_source *source, const struct qplan_entry *entry,
                         uint64_t off)
{
    return qp_st_at(source->files[entry->file].header_bytes, entry, off);
}

static enum qplan_status read_ahead(struct qp_ahead *ahead, const struct qp_file *file,
                                    unsigned number, uint64_t at, void *out, size_t n,
                                    struct qplan_error *err)
{
    const bool there =
        ahead->file == number && at >= ahead->at && n <= ahead->n && at - ahead->at <= ahead->n - n;
    if (!there) {
        const size_t n_bytes = (size_t)qp_min_u64(ahead->cap, file->size - at);
        ahead->n = 0; /* of a failed read nothing is kept */
        QP_TRY(qp_file_read(file, at, ahead->data, n_bytes, err));
        *ahead = (struct qp_ahead){ahead->data, ahead->cap, n_bytes, number, at};
    }
    memcpy(out, ahead->data + (at - ahead->at), n);
    return QPLAN_OK;
}

enum qplan_status qp_source_read(const struct qp_source *source, const struct qplan_entry *entry,
                                 uint64_t off, void *out, size_t n, struct qplan_error *err)
{
    const struct qp_file *file = &source->files[entry->file].file;
    const uint64_t at = place_of(source, entry, off);
    if (source->ahead && n <= source->ahead->cap)
        return read_ahead(source->ahead, file, entry->file, at, out, n, err);
    return qp_file_read(file, at, out, n, err);
}

void *qp_source_room(const struct qp_source *source, const struct qplan_entry *entry, uint64_t off,
                     void *buffer)
{
    const uint64_t at = place_of(source, entry, off);
    return qp_io_room(buffer, at, at);
}

bool qp_source_follows(const struct qplan_entry *before, const struct qplan_entry *entry)
{
    return before->file == entry->file && before->end == entry->begin;
}

enum qplan_status qp_source_unchanged(const struct qp_source *source, struct qplan_error *err)
{
    for (size_t i = 0; i < source->listing.n_files; i++)
        QP_TRY(qp_file_unchanged(&source->files[i].file, err));
    return QPLAN_OK;
}
