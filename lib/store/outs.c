/*
 * outs.c - the files of a checkpoint that is written.
 */
#include "outs.h"

#include "lib/base/alloc.h"

#include <string.h>

enum qplan_status qp_outs_open(struct qp_outs *outs, const char *path, bool force,
                               const struct qp_st_new *news, size_t n_files,
                               const struct qp_source *source, struct qplan_error *err)
{
    const struct qp_out_request request = {.path = path,
                                           .force = force,
                                           .n_bytes = news[0].header_bytes + news[0].data_bytes,
                                           .input = &source->files[0].file,
                                           .like_input = true};
    *outs = (struct qp_outs){.news = news};
    outs->files = qp_alloc(n_files, sizeof *outs->files);
    if (!outs->files)
        return qp_fail_memory(err, "outputs", n_files * sizeof *outs->files);
    enum qplan_status status = qp_out_open(&outs->files[0], &request, err);
    if (status == QPLAN_OK) {
        outs->n_files = n_files;
        status = qp_out_write(&outs->files[0], 0, news[0].header, news[0].header_bytes, err);
    }
    if (status != QPLAN_OK)
        qp_outs_discard(outs);
    return status;
}

uint64_t qp_outs_at(const struct qp_outs *outs, const struct qplan_entry *entry, uint64_t off)
{
    const uint64_t header_bytes = outs->there ? outs->there->files[entry->file].header_bytes
                                              : outs->news[entry->file].header_bytes;
    return qp_st_at(header_bytes, entry, off);
}

/* ---- Comparing instead of writing --------------------------------------------------------------
 */

struct qp_outs qp_outs_compare(const struct qp_source *there, qp_differ_fn differ, void *ctx)
{
    return (struct qp_outs){.there = there, .differ = differ, .ctx = ctx};
}

/* Counts the bytes that differ in n of a difference, from its byte off on. */
static void count_wrong(struct qp_difference *d, size_t off, const char *there, size_t n)
{
    if (memcmp(d->bytes + off, there, n) == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (d->bytes[off + i] != there[i] && d->n_wrong++ == 0)
            d->first = off + i;
    }
}

static enum qplan_status compare(const struct qp_outs *outs, struct qp_difference *d,
                                 struct qplan_error *err)
{
    char there[16 << 10];
    for (size_t off = 0; off < d->n; off += sizeof there) {
        const size_t n = d->n - off < sizeof there ? d->n - off : sizeof there;
        QP_TRY(qp_source_read(outs->there, d->entry, d->off + off, there, n, err));
        count_wrong(d, off, there, n);
    }
    if (d->n_wrong > 0)
        outs->differ(outs->ctx, d);
    return QPLAN_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

enum qplan_status qp_outs_write(const struct qp_outs *outs, const struct qplan_entry *entry,
                                uint64_t off, const void *bytes, size_t n, struct qplan_error *err)
{
    struct qp_difference difference = {.entry = entry, .off = off, .bytes = bytes, .n = n};
    if (outs->there)
        return compare(outs, &difference, err);
    return qp_out_write(&outs->files[entry->file], qp_outs_at(outs, entry, off), bytes, n, err);
}

void *qp_outs_room(const struct qp_outs *outs, const struct qplan_entry *entry, uint64_t off,
                   void *buffer)
{
    const uint64_t at = qp_outs_at(outs, entry, off);
    return qp_io_room(buffer, at, at);
}

/*
 * Plain reads and writes: copy_file_range gained nothing on tmpfs and ext4, and file systems that
 * share blocks could not, because a kept tensor begins elsewhere in its block than it did. Nor did
 * setting aside the space of the output first.
 */
enum qplan_status qp_outs_copy(const struct qp_outs *outs, const struct qplan_entry *to,
                               const struct qp_source *source, const struct qplan_entry *from,
                               uint64_t off, uint64_t n, void *buffer, struct qplan_error *err)
{
    const uint64_t from_at = qp_st_at(source->files[from->file].header_bytes, from, off);
    void *bytes = qp_io_room(buffer, from_at, qp_outs_at(outs, to, off));
    QP_TRY(qp_source_read(source, from, off, bytes, (size_t)n, err));
    return qp_outs_write(outs, to, off, bytes, (size_t)n, err);
}

enum qplan_status qp_outs_read_back(const struct qp_outs *outs, struct qp_source *written,
                                    const char *path, struct qplan_error *err)
{
    return qp_source_open_written(written, outs->files[0].fd, path, &outs->news[0], err);
}

enum qplan_status qp_outs_commit(struct qp_outs *outs, bool *synced, struct qplan_error *err)
{
    return qp_out_commit(&outs->files[0], synced, err);
}

void qp_outs_discard(struct qp_outs *outs)
{
    for (size_t i = 0; i < outs->n_files; i++)
        qp_out_discard(&outs->files[i]);
    qp_free(outs->files);
    *outs = (struct qp_outs){.files = NULL};
}
