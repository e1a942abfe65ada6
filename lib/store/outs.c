/*
 * outs.c - the files of a checkpoint that is written.
 */
#include "outs.h"

#include "lib/base/alloc.h"
#include "shard_index.h"

#include <string.h>
#include <sys/stat.h>

/* ---- Opening -----------------------------------------------------------------------------------
 */

/* What the modes of all files have in common. */
static mode_t common_mode(const struct qp_source *source)
{
    mode_t common = source->files[0].file.mode;
    for (size_t i = 1; i < source->listing.n_files; i++)
        common &= source->files[i].file.mode;
    return common;
}

static enum qplan_status open_file(struct qp_outs *outs, const struct qp_outs_request *r,
                                   struct qplan_error *err)
{
    const struct qp_out_request request = {.path = r->path,
                                           .force = r->force,
                                           .n_bytes = qp_news_bytes(r->news),
                                           .input = &r->source->files[0].file,
                                           .like_input = true};
    return qp_out_open(&outs->file, &request, err);
}

/* A shard has the mode of the one that it is made of, or what all have if they are cut anew; the
 * folder has that of the source's. */
static enum qplan_status open_folder(struct qp_outs *outs, const struct qp_outs_request *r,
                                     struct qplan_error *err)
{
    mode_t *modes = qp_alloc(r->news->n_files, sizeof *modes);
    if (!modes)
        return qp_fail_memory(err, "outputs", r->news->n_files * sizeof *modes);
    const size_t n_sources = r->source->listing.n_files;
    const mode_t common = outs->mode = common_mode(r->source);
    struct stat st;
    for (size_t i = 0; i < r->news->n_files; i++)
        modes[i] = r->news->n_files == n_sources ? r->source->files[i].file.mode : common;
    const struct qp_stage_request request = {
        .path = r->path,
        .mode = stat(r->source->folder.path, &st) == 0 ? st.st_mode : S_IRWXU,
        .force = r->force,
        .names = r->news->names,
        .modes = modes,
        .n_files = r->news->n_files,
        .others = r->side->names,
        .n_others = r->side->n,
        .n_bytes = qp_news_bytes(r->news) + r->side->n_bytes,
        .source = r->source->path};
    const enum qplan_status status = qp_stage_open(&outs->stage, &request, err);
    qp_free(modes);
    return status;
}

/* A config.json that is made comes first, so that what is read back is read by it. */
static enum qplan_status add_config(struct qp_outs *outs, struct qplan_error *err)
{
    const struct qp_side *side = outs->side;
    return side->config ? qp_stage_add(&outs->stage, QP_CONFIG_NAME, side->config, side->n_config,
                                       side->config_mode, err)
                        : QPLAN_OK;
}

enum qplan_status qp_outs_open(struct qp_outs *outs, const struct qp_outs_request *request,
                               struct qplan_error *err)
{
    const struct qp_news *news = request->news;
    *outs = (struct qp_outs){.news = news, .side = request->side};
    outs->is_folder = request->source->is_folder;
    QP_TRY((outs->is_folder ? open_folder : open_file)(outs, request, err));
    outs->is_open = true;
    enum qplan_status status = outs->is_folder ? add_config(outs, err) : QPLAN_OK;
    for (size_t i = 0; i < news->n_files && status == QPLAN_OK; i++)
        status =
            qp_outs_write_at(outs, i, 0, news->files[i].header, news->files[i].header_bytes, err);
    if (status != QPLAN_OK)
        qp_outs_discard(outs);
    return status;
}

uint64_t qp_outs_at(const struct qp_outs *outs, const struct qplan_entry *entry, uint64_t off)
{
    const uint64_t header_bytes = outs->there ? outs->there->files[entry->file].header_bytes
                                              : outs->news->files[entry->file].header_bytes;
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

enum qplan_status qp_outs_write_at(const struct qp_outs *outs, size_t file, uint64_t at,
                                   const void *bytes, size_t n, struct qplan_error *err)
{
    return outs->is_folder ? qp_stage_write(&outs->stage, file, at, bytes, n, err)
                           : qp_out_write(&outs->file, at, bytes, n, err);
}

enum qplan_status qp_outs_write(const struct qp_outs *outs, const struct qplan_entry *entry,
                                uint64_t off, const void *bytes, size_t n, struct qplan_error *err)
{
    struct qp_difference difference = {.entry = entry, .off = off, .bytes = bytes, .n = n};
    if (outs->there)
        return compare(outs, &difference, err);
    return qp_outs_write_at(outs, entry->file, qp_outs_at(outs, entry, off), bytes, n, err);
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

/* ---- The end -----------------------------------------------------------------------------------
 */

enum qplan_status qp_outs_read_back(const struct qp_outs *outs, struct qp_source *written,
                                    const char *path, struct qplan_error *err)
{
    if (!outs->is_folder)
        return qp_source_open_written(written, outs->file.fd, path, &outs->news->files[0], err);
    return qp_source_open_staged(written, outs->stage.partial, path, outs->news->names,
                                 outs->news->files, outs->news->n_files, err);
}

/* The index of a folder of several files. */
static enum qplan_status add_index(struct qp_outs *outs, const struct qp_source *written,
                                   struct qplan_error *err)
{
    struct qp_writer w;
    if (outs->news->n_files < 2)
        return QPLAN_OK;
    qp_writer_init(&w);
    qp_index_put(&w, &written->listing, outs->news->names, written->data_bytes);
    enum qplan_status status = qp_writer_finish(&w, "index", err);
    if (status == QPLAN_OK)
        status = qp_stage_add(&outs->stage, outs->side->index, w.data, w.n, outs->mode, err);
    qp_writer_free(&w);
    return status;
}

static enum qplan_status add_side_files(struct qp_outs *outs, struct qplan_error *err)
{
    for (size_t i = 0; i < outs->side->n; i++) {
        const bool is_made =
            outs->side->config && strcmp(outs->side->names[i], QP_CONFIG_NAME) == 0;
        if (outs->side->paths[i] && !is_made)
            QP_TRY(qp_stage_copy(&outs->stage, outs->side->names[i], outs->side->paths[i], err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_outs_commit(struct qp_outs *outs, const struct qp_source *written,
                                 bool *synced, struct qplan_error *err)
{
    if (!outs->is_folder)
        return qp_out_commit(&outs->file, synced, err);
    QP_TRY(add_index(outs, written, err));
    QP_TRY(add_side_files(outs, err));
    return qp_stage_commit(&outs->stage, synced, err);
}

void qp_outs_discard(struct qp_outs *outs)
{
    if (outs->is_open && outs->is_folder)
        qp_stage_discard(&outs->stage);
    else if (outs->is_open)
        qp_out_discard(&outs->file);
    outs->is_open = false;
}
