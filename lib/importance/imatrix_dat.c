/*
 * imatrix_dat.c - the older form of llama.cpp's imatrix: entries one behind the other, and no mark
 * that tells what it is. So a file is one only if it can be read to its very end.
 */
#include "importance.h"

#include "kernels/dtypes/bits.h"

#define MOST_ENTRIES 20000
#define MOST_NAME    255

/* A number from `least` to `most`. */
static enum qplan_status take_count(struct qp_importance_file *file, uint32_t least, uint32_t most,
                                    uint32_t *out)
{
    const unsigned char *bytes;
    QP_TRY(qp_importance_take(file, 4, &bytes));
    *out = qp_get32(bytes);
    return *out >= least && *out <= most
               ? QPLAN_OK
               : qp_importance_bad(file, "neither GGUF, safetensors nor an imatrix of old");
}

static enum qplan_status read_entry(struct qp_importance *importance,
                                    struct qp_importance_file *file)
{
    struct qp_importance_entry *entry;
    const unsigned char *name, *values;
    const float one = 1;
    uint32_t name_len, n_calls, n;
    QP_TRY(take_count(file, 1, MOST_NAME, &name_len));
    QP_TRY(qp_importance_take(file, name_len, &name));
    QP_TRY(take_count(file, 0, INT32_MAX, &n_calls));
    QP_TRY(take_count(file, 1, INT32_MAX, &n));
    QP_TRY(qp_importance_take(file, (uint64_t)n * 4, &values));
    QP_TRY(qp_importance_entry(importance, file, (const char *)name, name_len, n, 1, &entry));
    QP_TRY(qp_importance_add_stored(file, entry->name, entry->sums, values, n));
    /* The values are means times calls; without calls they are what they are. */
    return qp_importance_add(file, entry->name, entry->counts, &one, 1, n_calls ? n_calls : 1);
}

/* How many chunks of text there were, and what it was called. */
static enum qplan_status skip_tail(struct qp_importance_file *file)
{
    const unsigned char *name;
    uint32_t n_chunks, name_len;
    if (file->at == file->n)
        return QPLAN_OK;
    if (file->n - file->at < 8)
        return qp_importance_bad(file, "bytes behind its end");
    QP_TRY(take_count(file, 0, INT32_MAX, &n_chunks));
    QP_TRY(take_count(file, 0, INT32_MAX, &name_len));
    QP_TRY(qp_importance_take(file, name_len, &name));
    return file->at == file->n ? QPLAN_OK : qp_importance_bad(file, "bytes behind its end");
}

enum qplan_status qp_importance_read_dat(struct qp_importance *importance,
                                         struct qp_importance_file *file)
{
    uint32_t n;
    QP_TRY(take_count(file, 1, MOST_ENTRIES, &n));
    for (uint32_t i = 0; i < n; i++)
        QP_TRY(read_entry(importance, file));
    return skip_tail(file);
}
