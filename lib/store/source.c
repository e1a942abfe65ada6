/*
 * source.c - the files of a checkpoint that is read.
 */
#include "source.h"

#include "lib/base/alloc.h"

#include <string.h>

/* fd < 0: the path is opened. */
static enum qplan_status open_file(struct qp_source *source, int fd, const char *path,
                                   struct qplan_error *err)
{
    struct qp_st *st = qp_alloc(1, sizeof *st);
    if (!st)
        return qp_fail_memory(err, "checkpoint", sizeof *st);
    enum qplan_status status =
        fd < 0 ? qp_st_open(st, path, err) : qp_st_open_fd(st, fd, path, err);
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
    return open_file(source, -1, path, err);
}

enum qplan_status qp_source_open_fd(struct qp_source *source, int fd, const char *path,
                                    struct qplan_error *err)
{
    return open_file(source, fd, path, err);
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

enum qplan_status qp_source_read(const struct qp_source *source, const struct qplan_entry *entry,
                                 uint64_t off, void *out, size_t n, struct qplan_error *err)
{
    return qp_file_read(&source->files[entry->file].file, place_of(source, entry, off), out, n,
                        err);
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
