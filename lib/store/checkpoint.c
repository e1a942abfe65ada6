/*
 * checkpoint.c - an open checkpoint: the container, and in a native file its quantized tensors.
 * Reads headers only, never data.
 */
#include "checkpoint.h"

#include "lib/base/alloc.h"

static enum qplan_status read_native(struct qplan_checkpoint *c, struct qplan_error *err)
{
    const struct qp_st *st = &c->st;
    c->is_native = qp_native_is(st);
    if (!c->is_native)
        return QPLAN_OK;
    QP_TRY(qp_native_read(st, &c->labels, &c->native, &c->n_native, err));
    c->is_sidecar = qp_alloc(st->n_entries, sizeof *c->is_sidecar);
    if (!c->is_sidecar)
        return qp_fail_memory(err, st->file.shown, st->n_entries * sizeof *c->is_sidecar);
    for (size_t i = 0; i < c->n_native; i++) {
        for (unsigned part = QP_SCALE; part < QP_NATIVE_PARTS; part++) {
            if (c->native[i].part[part])
                c->is_sidecar[c->native[i].part[part] - st->entries] = true;
        }
    }
    return QPLAN_OK;
}

/* fd < 0: open the path. */
static enum qplan_status open_checkpoint(struct qplan_checkpoint **out, int fd, const char *path,
                                         struct qplan_error *err)
{
    *out = NULL;
    struct qplan_checkpoint *c = qp_alloc(1, sizeof *c);
    if (!c)
        return qp_fail_memory(err, "checkpoint", sizeof *c);
    enum qplan_status status =
        fd < 0 ? qp_st_open(&c->st, path, err) : qp_st_open_fd(&c->st, fd, path, err);
    if (status != QPLAN_OK) {
        qp_free(c);
        return status;
    }
    status = read_native(c, err);
    if (status != QPLAN_OK) {
        qplan_checkpoint_close(c);
        return status;
    }
    *out = c;
    return QPLAN_OK;
}

enum qplan_status qplan_checkpoint_open(struct qplan_checkpoint **out, const char *path,
                                        struct qplan_error *err)
{
    return open_checkpoint(out, -1, path, err);
}

enum qplan_status qp_checkpoint_open_fd(struct qplan_checkpoint **out, int fd, const char *path,
                                        struct qplan_error *err)
{
    return open_checkpoint(out, fd, path, err);
}

void qplan_checkpoint_close(struct qplan_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    qp_st_close(&checkpoint->st);
    qp_free(checkpoint->native);
    qp_free(checkpoint->is_sidecar);
    qp_labels_free(&checkpoint->labels);
    qp_free(checkpoint);
}

const char *qplan_checkpoint_path(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->st.file.path;
}

uint64_t qplan_checkpoint_bytes(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->st.file.size;
}

size_t qplan_checkpoint_count(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->st.n_entries;
}

const struct qplan_entry *qplan_checkpoint_entry(const struct qplan_checkpoint *checkpoint,
                                                 size_t i)
{
    return i < checkpoint->st.n_entries ? &checkpoint->st.entries[i] : NULL;
}

const char *qplan_checkpoint_metadata(const struct qplan_checkpoint *checkpoint, const char *key)
{
    const struct qp_st_pair *pair = qp_st_metadata(&checkpoint->st, key);
    return pair ? pair->value : NULL;
}

/* ---- Logical tensors ---------------------------------------------------------------------------
 */

bool qp_is_sidecar(const struct qplan_checkpoint *checkpoint, const struct qplan_entry *entry)
{
    return checkpoint->is_sidecar && checkpoint->is_sidecar[entry - checkpoint->st.entries];
}

static struct qp_logical plain_tensor(const struct qplan_entry *entry)
{
    return (struct qp_logical){
        .entry = entry,
        .source = (enum qplan_storage)entry->storage,
        .shape = entry->shape,
        .rank = entry->rank,
    };
}

bool qp_logical_next(const struct qplan_checkpoint *checkpoint, struct qp_logical_cursor *cursor,
                     struct qp_logical *out)
{
    const struct qplan_checkpoint *c = checkpoint;
    while (cursor->entry < c->st.n_entries && qp_is_sidecar(c, &c->st.entries[cursor->entry]))
        cursor->entry++;
    if (cursor->entry == c->st.n_entries)
        return false;
    const struct qplan_entry *entry = &c->st.entries[cursor->entry++];
    *out = plain_tensor(entry);
    if (cursor->native < c->n_native && c->native[cursor->native].part[QP_CODES] == entry) {
        const struct qp_native_tensor *t = &c->native[cursor->native++];
        out->native = t;
        out->source = t->source;
        out->shape = t->shape;
        out->rank = t->rank;
    }
    return true;
}
