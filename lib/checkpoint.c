/*
 * checkpoint.c - an open checkpoint: the container, and in a native file its quantized tensors.
 * Reads headers only, never data.
 */
#include "checkpoint.h"

#include "base/alloc.h"

#include <string.h>

static enum qplan_status read_native(struct qplan_checkpoint *c, struct qplan_error *err)
{
    c->is_native = qp_native_is(&c->st);
    if (!c->is_native)
        return QPLAN_OK;
    return qp_native_read(&c->st, &c->arena, &c->native, &c->n_native, err);
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
    qp_arena_free(&checkpoint->arena);
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

/*
 * Sidecars sort right behind or some way behind their codes, so each is looked up: the stem of its
 * name must be a quantized tensor that has this very entry as a part.
 */
bool qp_is_sidecar(const struct qplan_checkpoint *checkpoint, const struct qplan_entry *entry)
{
    const struct qplan_checkpoint *c = checkpoint;
    static const char *const suffixes[] = {"_scale", "_zero_point"};
    for (size_t s = 0; s < 2; s++) {
        size_t n = strlen(suffixes[s]);
        if (entry->name_len < n || memcmp(entry->name + entry->name_len - n, suffixes[s], n) != 0)
            continue;
        const struct qplan_entry *codes = qp_st_find(&c->st, entry->name, entry->name_len - n);
        size_t low = 0, high = codes ? c->n_native : 0;
        while (low < high) { /* native tensors are in the order of their codes' entries */
            size_t middle = low + (high - low) / 2;
            if (c->native[middle].part[QP_CODES] < codes)
                low = middle + 1;
            else
                high = middle;
        }
        if (codes && low < c->n_native && c->native[low].part[QP_CODES] == codes &&
            c->native[low].part[QP_SCALE + s] == entry)
            return true;
    }
    return false;
}

static struct qp_logical plain_tensor(const struct qplan_entry *entry)
{
    return (struct qp_logical){
        .name = entry->name,
        .name_len = entry->name_len,
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
    while (c->is_native && cursor->entry < c->st.n_entries &&
           qp_is_sidecar(c, &c->st.entries[cursor->entry]))
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
