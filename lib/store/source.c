/*
 * source.c - the files of a checkpoint that is read.
 */
#include "source.h"

#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What a layout reads of a checkpoint: the listing is that of a source. */
static enum qplan_status read_listed(const struct qp_listing *listing,
                                     const struct qplan_entry *entry, uint64_t off, void *out,
                                     size_t n, struct qplan_error *err)
{
    return qp_source_read((const struct qp_source *)listing, entry, off, out, n, err);
}

/* ---- One file ---------------------------------------------------------------------------------
 */

/* Makes a source of its only file, which is in st if that could be opened. */
static enum qplan_status take_file(struct qp_source *source, struct qp_st *st,
                                   enum qplan_status status)
{
    *source = (struct qp_source){.files = NULL};
    if (status != QPLAN_OK) {
        qp_free(st);
        return status;
    }
    *source = (struct qp_source){
        .listing = {.files = st,
                    .n_files = 1,
                    .entries = st->entries,
                    .n_entries = st->n_entries,
                    .shown = st->file.shown,
                    .read = read_listed},
        .files = st,
        .path = st->file.path,
        .n_bytes = st->file.size,
        .data_bytes = st->data_bytes,
    };
    return QPLAN_OK;
}

/* One of several shards, named by itself, is a checkpoint too, but perhaps not what was meant. */
static enum qplan_status warn_of_index(struct qp_source *source, struct qplan_error *err)
{
    char message[512], quoted[QP_QUOTED];
    const char *index;
    QP_TRY(qp_index_beside(source->path, &source->arena, &index, err));
    if (!index)
        return QPLAN_OK;
    (void)snprintf(message, sizeof message,
                   "one shard of several, taken by itself: the whole checkpoint is %s",
                   qp_quote(quoted, index, strlen(index)));
    return qp_warn(&source->warnings, &source->arena, "one-shard", source->path, message, err);
}

static enum qplan_status open_file(struct qp_source *source, const char *path,
                                   struct qplan_error *err)
{
    struct qp_st *st = qp_alloc(1, sizeof *st);
    if (!st)
        return qp_fail_memory(err, "checkpoint", sizeof *st);
    QP_TRY(take_file(source, st, qp_st_open(st, path, err)));
    return warn_of_index(source, err);
}

enum qplan_status qp_source_open_written(struct qp_source *source, int fd, const char *path,
                                         const struct qp_st_new *written, struct qplan_error *err)
{
    struct qp_st *st = qp_alloc(1, sizeof *st);
    return st ? take_file(source, st, qp_st_open_fd(st, fd, path, written, err))
              : qp_fail_memory(err, "checkpoint", sizeof *st);
}

/* ---- The files of a folder ---------------------------------------------------------------------
 */

static const char *shown_index(char out[512], const struct qp_folder *folder)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder->path, folder->index);
    return qp_escape(out, 512, path, strlen(path));
}

/* A shard that is not there: the first tensor that needs it says why that matters. */
static enum qplan_status fail_missing(const struct qp_folder *folder, size_t i,
                                      struct qplan_error *err)
{
    char shown[512], name[QP_QUOTED], tensor[QP_QUOTED];
    const struct qp_mapped *m = folder->map;
    while (m->shard != i)
        m++;
    return qp_fail(err, QPLAN_ERR_INVALID, shown_index(shown, folder),
                   "a shard is missing: expected the file %s, in which %s is",
                   qp_quote(name, folder->names[i], strlen(folder->names[i])),
                   qp_quote(tensor, m->name, m->n));
}

static enum qplan_status open_shard(struct qp_source *source, size_t i, struct qplan_error *err)
{
    const struct qp_folder *folder = &source->folder;
    struct stat st;
    const char *path = qp_path_in(&source->arena, folder->path, folder->names[i]);
    if (!path)
        return qp_fail_memory(err, folder->path, strlen(folder->names[i]));
    if (folder->index && lstat(path, &st) != 0 && errno == ENOENT)
        return fail_missing(folder, i, err);
    struct qp_st *shard = &source->files[i];
    QP_TRY(qp_st_open_written(shard, path, source->written ? &source->written[i] : NULL, err));
    source->listing.n_files = i + 1;
    source->listing.n_entries += shard->n_entries;
    source->n_bytes += shard->file.size;
    source->data_bytes += shard->data_bytes;
    for (size_t k = 0; k < shard->n_entries; k++)
        shard->entries[k].file = (uint16_t)i;
    if (source->handles)
        qp_file_park(&shard->file, source->handles);
    return QPLAN_OK;
}

/* Two names of one file would be read, and counted, twice. */
static enum qplan_status check_identities(const struct qp_source *source, struct qplan_error *err)
{
    for (size_t i = 1; i < source->listing.n_files; i++) {
        const struct qp_file *file = &source->files[i].file;
        for (size_t k = 0; k < i; k++) {
            const struct qp_file *other = &source->files[k].file;
            if (file->dev == other->dev && file->ino == other->ino)
                return qp_fail(err, QPLAN_ERR_INVALID, file->shown,
                               "two shards are one file: this one and %s", other->shown);
        }
    }
    return QPLAN_OK;
}

/* Joins the stored tensors of all files, in the order of their names. */
static enum qplan_status join_entries(struct qp_source *source, struct qplan_error *err)
{
    char subject[512];
    size_t n = 0;
    struct qplan_entry *entries = qp_alloc(source->listing.n_entries, sizeof *entries);
    if (!entries)
        return qp_fail_memory(err, source->listing.shown,
                              source->listing.n_entries * sizeof *entries);
    for (size_t i = 0; i < source->listing.n_files; i++) {
        struct qp_st *shard = &source->files[i];
        if (shard->n_entries > 0) /* else there is no array */
            memcpy(entries + n, shard->entries, shard->n_entries * sizeof *entries);
        n += shard->n_entries;
        qp_free(shard->entries);
        shard->entries = NULL;
        shard->n_entries = 0;
    }
    source->entries = qp_entries_sort(entries, n);
    source->listing.entries = source->entries ? source->entries : entries;
    if (!source->entries) {
        source->entries = entries;
        return qp_fail_memory(err, source->listing.shown, n * sizeof *entries);
    }
    for (size_t i = 1; i < n; i++) {
        const struct qplan_entry *a = &source->entries[i - 1], *b = &source->entries[i];
        if (qp_compare_text(a->name, a->name_len, b->name, b->name_len) == 0)
            return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, &source->listing, b),
                           "this tensor is in two shards: found also in %s",
                           source->files[a->file].file.shown);
    }
    return QPLAN_OK;
}

/* ---- What the index says -----------------------------------------------------------------------
 */

static enum qplan_status check_map(const struct qp_source *source, struct qplan_error *err)
{
    const struct qp_folder *folder = &source->folder;
    char shown[512], tensor[QP_QUOTED], name[QP_QUOTED];
    if (!folder->index)
        return QPLAN_OK;
    for (size_t i = 0; i < folder->n_map; i++) {
        const struct qp_mapped *m = &folder->map[i];
        const struct qplan_entry *entry = qp_listing_find(&source->listing, m->name, m->n);
        if (!entry || entry->file != m->shard)
            return qp_fail(err, QPLAN_ERR_INVALID, shown_index(shown, folder),
                           "a tensor is not where the index says: expected %s in %s",
                           qp_quote(tensor, m->name, m->n),
                           qp_quote(name, m->file, strlen(m->file)));
    }
    for (size_t i = 0; i < source->listing.n_entries && folder->n_map < source->listing.n_entries;
         i++) {
        const struct qplan_entry *entry = &source->listing.entries[i];
        if (!qp_folder_mapped(folder, entry->name, entry->name_len))
            return qp_fail(err, QPLAN_ERR_INVALID,
                           qp_listing_subject(shown, &source->listing, entry),
                           "this tensor is not in the index");
    }
    return QPLAN_OK;
}

/* The total is for people: one that is wrong is told, and the output gets the right one. */
static enum qplan_status check_total(struct qp_source *source, struct qplan_error *err)
{
    const struct qp_folder *folder = &source->folder;
    char right[32], message[256], found[QP_QUOTED];
    (void)snprintf(right, sizeof right, "%" PRIu64, source->data_bytes);
    if (!folder->total || strcmp(folder->total, right) == 0)
        return QPLAN_OK;
    (void)snprintf(message, sizeof message,
                   "metadata.total_size of the index: expected %s, found %s", right,
                   qp_quote(found, folder->total, strlen(folder->total)));
    return qp_warn(&source->warnings, &source->arena, "total-size", source->path, message, err);
}

static enum qplan_status open_files(struct qp_source *source, struct qplan_error *err)
{
    const size_t n = source->folder.n_files;
    const unsigned most = qp_handles_most();
    source->files = qp_alloc(n, sizeof *source->files);
    source->handles = source->files && n > most ? qp_handles_new(most) : NULL;
    source->listing.files = source->files;
    if (!source->files || (n > most && !source->handles))
        return qp_fail_memory(err, source->listing.shown, n * sizeof *source->files);
    for (size_t i = 0; i < n; i++)
        QP_TRY(open_shard(source, i, err));
    QP_TRY(check_identities(source, err));
    QP_TRY(join_entries(source, err));
    QP_TRY(check_map(source, err));
    return check_total(source, err);
}

/* The warnings of the folder are those of the source. */
static enum qplan_status take_warnings(struct qp_source *source, struct qplan_error *err)
{
    const struct qp_warnings *found = &source->folder.warnings;
    for (size_t i = 0; i < found->n; i++) {
        const struct qp_warning *w = &found->list[i];
        QP_TRY(qp_warn(&source->warnings, &source->arena, w->code, w->subject, w->message, err));
    }
    return QPLAN_OK;
}

/* Where neither records nor config.json say how a folder is quantized, another file may. */
static enum qplan_status read_description(struct qp_source *source, struct qplan_error *err)
{
    struct qp_listing *listing = &source->listing;
    const struct qp_format *format;
    if (qp_has_records(listing) || qp_quantization_config(listing) || qp_format_of_config(listing))
        return QPLAN_OK;
    for (size_t i = 0; !source->described && (format = qp_format_at(i)) != NULL; i++) {
        if (format->described_in)
            QP_TRY(qp_config_read(&source->described, source->path, format->described_in, err));
    }
    listing->described = source->described ? &source->described->tree : NULL;
    return QPLAN_OK;
}

/* Opens the files of the folder that has been found. */
static enum qplan_status open_folder(struct qp_source *source, struct qplan_error *err)
{
    const char *path = source->folder.path;
    char shown[512];
    source->is_folder = true;
    source->path = qp_arena_join(&source->arena, path, strlen(path), "");
    (void)qp_escape(shown, sizeof shown, path, strlen(path));
    source->listing.shown = qp_arena_join(&source->arena, shown, strlen(shown), "");
    if (!source->path || !source->listing.shown)
        return qp_fail_memory(err, shown, strlen(path));
    QP_TRY(take_warnings(source, err));
    QP_TRY(qp_config_read(&source->config, path, QP_CONFIG_NAME, err));
    source->listing.config = source->config ? &source->config->tree : NULL;
    source->listing.is_folder = true;
    source->listing.read = read_listed;
    QP_TRY(open_files(source, err));
    return read_description(source, err);
}

enum qplan_status qp_source_open_staged(struct qp_source *source, const char *folder,
                                        const char *path, char *const *names,
                                        const struct qp_st_new *written, size_t n,
                                        struct qplan_error *err)
{
    *source = (struct qp_source){.written = written};
    source->folder = (struct qp_folder){.names = (char **)names, .n_files = n};
    source->folder.path = qp_arena_join(&source->folder.arena, folder, strlen(folder), "");
    enum qplan_status status = source->folder.path ? open_folder(source, err)
                                                   : qp_fail_memory(err, "outputs", strlen(folder));
    if (status == QPLAN_OK) {
        source->path = qp_arena_join(&source->arena, path, strlen(path), "");
        status = source->path ? QPLAN_OK : qp_fail_memory(err, "outputs", strlen(path));
    }
    if (status != QPLAN_OK)
        qp_source_close(source);
    return status;
}

enum qplan_status qp_source_open(struct qp_source *source, const char *path,
                                 struct qplan_error *err)
{
    struct qp_folder folder;
    bool is_folder;
    QP_TRY(qp_folder_find(&folder, path, &is_folder, err));
    *source = (struct qp_source){.folder = folder};
    const enum qplan_status status =
        is_folder ? open_folder(source, err) : open_file(source, path, err);
    if (status != QPLAN_OK)
        qp_source_close(source);
    return status;
}

void qp_source_close(struct qp_source *source)
{
    for (size_t i = 0; i < source->listing.n_files; i++)
        qp_st_close(&source->files[i]);
    qp_handles_free(source->handles);
    qp_free(source->files);
    qp_free(source->entries);
    qp_folder_free(&source->folder);
    qp_config_free(source->config);
    qp_config_free(source->described);
    qp_arena_free(&source->arena);
    *source = (struct qp_source){.files = NULL};
}

/* ---- Reading --------------------------------------------------------------------------------- */

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
