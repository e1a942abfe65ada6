/*
 * imatrix_gguf.c - llama.cpp's imatrix in a GGUF file: for each weight the sums of squared inputs,
 * NAME.in_sum2, and what they are divided by, NAME.counts.
 *
 * The container is read as strictly as ggml reads it: no length is trusted before the bytes are
 * there, and data follow each other without gaps, each at the next multiple of the alignment.
 */
#include "importance.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VERSION      3
#define MOST_DIMS    4
#define MOST_TENSORS 40000
#define LEAST_INFO   32 /* bytes that the header has of a tensor: no name, and one axis */
#define ALIGNMENT    32 /* of data, where the file names no other */
#define TYPE_F32     0  /* of tensors */
#define TYPE_U32     4  /* of values */
#define TYPE_STRING  8
#define TYPE_ARRAY   9

struct text {
    const char *at;
    uint64_t n;
};

/* A tensor as the header tells it. */
struct info {
    struct text name;
    uint64_t columns, matrices, offset;
};

/* What the header tells before any data. */
struct header {
    bool is_imatrix, has_type, has_alignment;
    uint64_t alignment;
    uint64_t n;                  /* tensors */
    struct info *infos;          /* in the order of the file, which is that of data */
    const struct info **by_name; /* the same, in byte-wise order of names */
    uint64_t data;               /* where data begin */
};

static enum qplan_status take_u32(struct qp_importance_file *file, uint32_t *out)
{
    const unsigned char *bytes;
    QP_TRY(qp_importance_take(file, 4, &bytes));
    *out = qp_get32(bytes);
    return QPLAN_OK;
}

static enum qplan_status take_u64(struct qp_importance_file *file, uint64_t *out)
{
    const unsigned char *bytes;
    QP_TRY(qp_importance_take(file, 8, &bytes));
    *out = qp_get64(bytes);
    return QPLAN_OK;
}

static enum qplan_status take_text(struct qp_importance_file *file, struct text *out)
{
    const unsigned char *bytes;
    QP_TRY(take_u64(file, &out->n));
    QP_TRY(qp_importance_take(file, out->n, &bytes));
    out->at = (const char *)bytes;
    return QPLAN_OK;
}

/* ---- Keys and values ---------------------------------------------------------------------------
 */

/* Bytes of a value of each type; strings and arrays have none that is fixed. */
static const uint8_t value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static enum qplan_status skip_values(struct qp_importance_file *file, uint32_t type, uint64_t n)
{
    const unsigned char *bytes;
    struct text text;
    if (type >= sizeof value_bytes || type == TYPE_ARRAY)
        return qp_importance_bad(file, "a value of an unknown type");
    if (type != TYPE_STRING)
        return n > file->n ? qp_importance_bad(file, "it ends inside its header")
                           : qp_importance_take(file, n * value_bytes[type], &bytes);
    for (uint64_t i = 0; i < n; i++)
        QP_TRY(take_text(file, &text));
    return QPLAN_OK;
}

/* A value that matters here is there once, and of its type. */
static enum qplan_status begin_value(struct qp_importance_file *file, const struct text *key,
                                     bool *is_there, uint32_t expected, uint32_t type)
{
    if (*is_there)
        return qp_importance_bad_name(file, key->at, key->n, "it is there twice");
    *is_there = true;
    return type == expected ? QPLAN_OK
                            : qp_importance_bad_name(file, key->at, key->n,
                                                     "a value of another type than its own");
}

static enum qplan_status read_alignment(struct qp_importance_file *file, struct header *header)
{
    uint32_t number;
    QP_TRY(take_u32(file, &number));
    header->alignment = number;
    return number >= 1 && (number & (number - 1)) == 0
               ? QPLAN_OK
               : qp_importance_bad(file, "an alignment that is no power of 2");
}

/* Reads a key and its value: the two that matter here. */
static enum qplan_status read_pair(struct qp_importance_file *file, struct header *header)
{
    struct text key, text;
    uint32_t type;
    uint64_t n;
    QP_TRY(take_text(file, &key));
    QP_TRY(take_u32(file, &type));
    if (qp_text_is(key.at, key.n, "general.type")) {
        QP_TRY(begin_value(file, &key, &header->has_type, TYPE_STRING, type));
        QP_TRY(take_text(file, &text));
        header->is_imatrix = qp_text_is(text.at, text.n, "imatrix");
        return QPLAN_OK;
    }
    if (qp_text_is(key.at, key.n, "general.alignment")) {
        QP_TRY(begin_value(file, &key, &header->has_alignment, TYPE_U32, type));
        return read_alignment(file, header);
    }
    if (type != TYPE_ARRAY)
        return skip_values(file, type, 1);
    QP_TRY(take_u32(file, &type));
    QP_TRY(take_u64(file, &n));
    return skip_values(file, type, n);
}

/* ---- Tensors -----------------------------------------------------------------------------------
 */

static enum qplan_status read_info(struct qp_importance_file *file, struct info *info)
{
    uint32_t n_dims, type;
    uint64_t dims[MOST_DIMS] = {1, 1, 1, 1}, n;
    QP_TRY(take_text(file, &info->name));
    QP_TRY(take_u32(file, &n_dims));
    if (n_dims < 1 || n_dims > MOST_DIMS)
        return qp_importance_bad(file, "a tensor of too many axes, or none");
    for (uint32_t i = 0; i < n_dims; i++)
        QP_TRY(take_u64(file, &dims[i]));
    QP_TRY(take_u32(file, &type));
    QP_TRY(take_u64(file, &info->offset));
    info->columns = dims[0];
    info->matrices = dims[1];
    if (type != TYPE_F32 || dims[2] != 1 || dims[3] != 1 || dims[0] == 0 || dims[1] == 0)
        return qp_importance_bad(file, "a tensor that is no matrix of F32");
    if (!qp_mul_u64(dims[0], dims[1], &n) || n > file->n / 4)
        return qp_importance_bad(file, "a tensor that is larger than the file");
    return QPLAN_OK;
}

/* Data begin behind the header and follow each other, each at a multiple of the alignment. */
static enum qplan_status check_data(const struct qp_importance_file *file, struct header *header)
{
    const uint64_t a = header->alignment;
    uint64_t next = 0, end = 0;
    header->data = qp_div_up(file->at, a) * a;
    if (header->data > file->n)
        return qp_importance_bad(file, "it ends inside its header");
    const uint64_t left = file->n - header->data;
    for (uint64_t i = 0; i < header->n; i++) {
        const struct info *info = &header->infos[i];
        char quoted[QP_QUOTED];
        if (info->offset != next)
            return qp_fail(file->err, QPLAN_ERR_INVALID, file->shown,
                           "not a file of importance: offset of %s: expected %" PRIu64
                           ", found %" PRIu64,
                           qp_quote(quoted, info->name.at, info->name.n), next, info->offset);
        end = next + info->columns * info->matrices * 4;
        if (end > left)
            return qp_importance_bad_name(file, info->name.at, info->name.n,
                                          "it ends inside this tensor");
        next = qp_div_up(end, a) * a;
    }
    /* The last tensor is filled up by most writers. */
    return left == end || left == next ? QPLAN_OK : qp_importance_bad(file, "bytes behind its end");
}

static int by_name(const void *a, const void *b)
{
    const struct info *const *x = a, *const *y = b;
    return qp_compare_text((*x)->name.at, (*x)->name.n, (*y)->name.at, (*y)->name.n);
}

static enum qplan_status sort_infos(const struct qp_importance_file *file, struct header *header)
{
    for (uint64_t i = 0; i < header->n; i++)
        header->by_name[i] = &header->infos[i];
    qsort(header->by_name, header->n, sizeof *header->by_name, by_name);
    for (uint64_t i = 1; i < header->n; i++) {
        const struct text *name = &header->by_name[i]->name;
        if (by_name(&header->by_name[i - 1], &header->by_name[i]) == 0)
            return qp_importance_bad_name(file, name->at, name->n, "it is there twice");
    }
    return QPLAN_OK;
}

/* The tensor of a stem and an end, or NULL. */
static const struct info *find_info(const struct header *header, const char *at, uint64_t n_stem,
                                    const char *end)
{
    uint64_t low = 0, high = header->n;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const struct text *name = &header->by_name[middle]->name;
        /* A name that begins otherwise tells; else what is behind the stem. */
        const uint64_t n = qp_min_u64(name->n, n_stem);
        int order = qp_compare_text(at, n_stem, name->at, n);
        if (order == 0)
            order = qp_compare_text(end, strlen(end), name->at + n, name->n - n);
        if (order == 0)
            return header->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- Weights -----------------------------------------------------------------------------------
 */

#define SUMS   ".in_sum2"
#define COUNTS ".counts"

/* The length of NAME in NAME and an end, or 0. */
static uint64_t stem(const struct text *name, const char *end)
{
    const uint64_t n = strlen(end);
    return name->n > n && memcmp(name->at + name->n - n, end, (size_t)n) == 0 ? name->n - n : 0;
}

static enum qplan_status add_weight(struct qp_importance *importance,
                                    struct qp_importance_file *file, const struct header *header,
                                    const struct info *sums, uint64_t n_name)
{
    const struct info *counts = find_info(header, sums->name.at, n_name, COUNTS);
    const unsigned char *data = file->bytes + header->data;
    struct qp_importance_entry *entry;
    if (!counts)
        return qp_importance_bad_name(file, sums->name.at, sums->name.n, "sums without counts");
    if (counts->columns * counts->matrices != sums->matrices)
        return qp_importance_bad_name(file, counts->name.at, counts->name.n,
                                      "not as many counts as matrices");
    QP_TRY(qp_importance_entry(importance, file, sums->name.at, (size_t)n_name, sums->columns,
                               sums->matrices, &entry));
    QP_TRY(qp_importance_add_stored(file, entry->name, entry->sums, data + sums->offset,
                                    sums->columns * sums->matrices));
    return qp_importance_add_stored(file, entry->name, entry->counts, data + counts->offset,
                                    sums->matrices);
}

static enum qplan_status add_weights(struct qp_importance *importance,
                                     struct qp_importance_file *file, const struct header *header)
{
    for (uint64_t i = 0; i < header->n; i++) {
        const struct info *info = &header->infos[i];
        const uint64_t n_sums = stem(&info->name, SUMS), n_counts = stem(&info->name, COUNTS);
        if (n_sums)
            QP_TRY(add_weight(importance, file, header, info, n_sums));
        if (n_counts && !find_info(header, info->name.at, n_counts, SUMS))
            return qp_importance_bad_name(file, info->name.at, info->name.n, "counts without sums");
    }
    return QPLAN_OK;
}

static enum qplan_status read_tensors(struct qp_importance *importance,
                                      struct qp_importance_file *file, struct header *header)
{
    for (uint64_t i = 0; i < header->n; i++)
        QP_TRY(read_info(file, &header->infos[i]));
    QP_TRY(check_data(file, header));
    QP_TRY(sort_infos(file, header));
    return add_weights(importance, file, header);
}

enum qplan_status qp_importance_read_gguf(struct qp_importance *importance,
                                          struct qp_importance_file *file)
{
    struct header header = {.alignment = ALIGNMENT};
    uint32_t version;
    uint64_t n_pairs;
    file->at = 4;
    QP_TRY(take_u32(file, &version));
    if (version < 2 || version > VERSION)
        return qp_importance_bad(file, "another version of GGUF than 2 or 3");
    QP_TRY(take_u64(file, &header.n));
    QP_TRY(take_u64(file, &n_pairs));
    for (uint64_t i = 0; i < n_pairs; i++)
        QP_TRY(read_pair(file, &header));
    if (!header.is_imatrix)
        return qp_importance_bad(file, "a GGUF file whose general.type is not imatrix");
    if (header.n > MOST_TENSORS)
        return qp_importance_bad(file, "too many tensors");
    if (header.n > (file->n - file->at) / LEAST_INFO)
        return qp_importance_bad(file, "it ends too early");
    header.infos = qp_alloc(header.n, sizeof *header.infos);
    header.by_name = qp_alloc(header.n, sizeof *header.by_name);
    const enum qplan_status status =
        header.infos && header.by_name
            ? read_tensors(importance, file, &header)
            : qp_fail_memory(file->err, "importance", header.n * sizeof *header.infos);
    qp_free(header.infos);
    qp_free(header.by_name);
    return status;
}
