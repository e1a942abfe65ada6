/*
 * imatrix_gguf.c - llama.cpp's imatrix in a GGUF file: for each weight the sums of squared inputs,
 * NAME.in_sum2, and what they are divided by, NAME.counts.
 *
 * The container is read as strictly as it is told: no length is trusted before the bytes are there.
 */
#include "importance.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/check.h"
#include "lib/base/text.h"

#include <string.h>

#define VERSION      3
#define MOST_DIMS    4
#define MOST_TENSORS 40000
#define ALIGNMENT    32 /* of data, where the file names no other */
#define TYPE_F32     0  /* of tensors */
#define TYPE_U32     4  /* of values */
#define TYPE_STRING  8
#define TYPE_ARRAY   9

struct text {
    const char *at;
    uint64_t n;
};

struct info {
    struct text name;
    uint64_t columns, matrices, offset;
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

/* Reads a key and its value: the two that matter here. */
static enum qplan_status read_pair(struct qp_importance_file *file, bool *is_imatrix,
                                   uint64_t *alignment)
{
    struct text key, text;
    uint32_t type, number;
    uint64_t n;
    QP_TRY(take_text(file, &key));
    QP_TRY(take_u32(file, &type));
    if (type == TYPE_STRING && qp_text_is(key.at, key.n, "general.type")) {
        QP_TRY(take_text(file, &text));
        *is_imatrix = qp_text_is(text.at, text.n, "imatrix");
        return QPLAN_OK;
    }
    if (type == TYPE_U32 && qp_text_is(key.at, key.n, "general.alignment")) {
        QP_TRY(take_u32(file, &number));
        *alignment = number;
        return number >= 1 && (number & (number - 1)) == 0
                   ? QPLAN_OK
                   : qp_importance_bad(file, "an alignment that is no power of 2");
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

/* Adds the values of a tensor. */
static enum qplan_status add_values(const struct qp_importance_file *file, uint64_t begin,
                                    const struct info *info, const char *name, double *to)
{
    const uint64_t n = info->columns * info->matrices, left = file->n - begin;
    if (info->offset > left || n * 4 > left - info->offset)
        return qp_importance_bad(file, "it ends inside a tensor");
    const unsigned char *values = file->bytes + begin + info->offset;
    for (uint64_t i = 0; i < n; i++) {
        const float value = qp_of_bits_f32(qp_get32(values + i * 4));
        QP_TRY(qp_importance_add(file, name, to + i, &value, 1, 1));
    }
    return QPLAN_OK;
}

/* The length of NAME in NAME and an end, or 0. */
static uint64_t stem(const struct text *name, const char *end)
{
    const uint64_t n = strlen(end);
    return name->n > n && memcmp(name->at + name->n - n, end, (size_t)n) == 0 ? name->n - n : 0;
}

/* Where the infos begin and how many there are, and where data begin. */
struct tensors {
    uint64_t at, n, data;
};

/* The counts that belong to sums. */
static enum qplan_status find_counts(struct qp_importance_file *file, const struct tensors *all,
                                     const struct text *sums, uint64_t name_len, struct info *out)
{
    file->at = all->at;
    for (uint64_t i = 0; i < all->n; i++) {
        QP_TRY(read_info(file, out));
        if (stem(&out->name, ".counts") == name_len &&
            memcmp(out->name.at, sums->at, (size_t)name_len) == 0)
            return QPLAN_OK;
    }
    return qp_importance_bad(file, "sums without counts");
}

static enum qplan_status add_weight(struct qp_importance *importance,
                                    struct qp_importance_file *file, const struct tensors *all,
                                    const struct info *info, uint64_t name_len)
{
    struct qp_importance_entry *entry;
    struct info counts = {.columns = 0};
    const uint64_t next = file->at;
    QP_TRY(find_counts(file, all, &info->name, name_len, &counts));
    file->at = next;
    if (counts.columns * counts.matrices != info->matrices)
        return qp_importance_bad(file, "not as many counts as matrices");
    QP_TRY(qp_importance_entry(importance, file, info->name.at, (size_t)name_len, info->columns,
                               info->matrices, &entry));
    QP_TRY(add_values(file, all->data, info, entry->name, entry->sums));
    return add_values(file, all->data, &counts, entry->name, entry->counts);
}

static enum qplan_status read_tensors(struct qp_importance *importance,
                                      struct qp_importance_file *file, struct tensors *all,
                                      uint64_t alignment)
{
    struct info info = {.columns = 0};
    all->at = file->at;
    for (uint64_t i = 0; i < all->n; i++)
        QP_TRY(read_info(file, &info));
    all->data = (file->at + alignment - 1) / alignment * alignment;
    if (all->data > file->n)
        return qp_importance_bad(file, "it ends inside its header");
    file->at = all->at;
    for (uint64_t i = 0; i < all->n; i++) {
        QP_TRY(read_info(file, &info));
        const uint64_t name_len = stem(&info.name, ".in_sum2");
        if (name_len)
            QP_TRY(add_weight(importance, file, all, &info, name_len));
    }
    return QPLAN_OK;
}

enum qplan_status qp_importance_read_gguf(struct qp_importance *importance,
                                          struct qp_importance_file *file)
{
    struct tensors all;
    uint32_t version;
    uint64_t n_pairs, alignment = ALIGNMENT;
    bool is_imatrix = false;
    file->at = 4;
    QP_TRY(take_u32(file, &version));
    if (version < 2 || version > VERSION)
        return qp_importance_bad(file, "another version of GGUF than 2 or 3");
    QP_TRY(take_u64(file, &all.n));
    QP_TRY(take_u64(file, &n_pairs));
    if (all.n > MOST_TENSORS)
        return qp_importance_bad(file, "too many tensors");
    for (uint64_t i = 0; i < n_pairs; i++)
        QP_TRY(read_pair(file, &is_imatrix, &alignment));
    if (!is_imatrix)
        return qp_importance_bad(file, "a GGUF file whose general.type is not imatrix");
    return read_tensors(importance, file, &all, alignment);
}
