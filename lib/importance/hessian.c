/*
 * hessian.c - Hessians in a safetensors file, found by the name of a weight and read row by row.
 * Nothing is believed of their numbers but what has been looked at.
 */
#include "hessian.h"

#include "kernels/dtypes/f32/f32.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SUFFIX ".hessian"

/* Names longer than this are none of a weight that has a Hessian. */
#define LONGEST 1024

enum qplan_status qp_hessians_open(struct qp_hessians *hessians, const char *path,
                                   struct qplan_error *err)
{
    QP_TRY(qp_source_open(&hessians->source, path, err));
    hessians->is_open = true;
    return QPLAN_OK;
}

void qp_hessians_close(struct qp_hessians *hessians)
{
    if (hessians->is_open)
        qp_source_close(&hessians->source);
    hessians->is_open = false;
}

enum qplan_status qp_hessians_digest(const struct qp_hessians *hessians,
                                     const struct qp_digests *expected, struct qp_arena *arena,
                                     struct qp_digests *out, struct qplan_error *err)
{
    const struct qp_source *source = &hessians->source;
    *out = (struct qp_digests){.n = 0};
    for (size_t i = 0; i < source->listing.n_files; i++)
        QP_TRY(qp_digests_add_file(out, &source->files[i].file, expected, arena, hessians->cancel,
                                   err));
    QP_TRY(qp_digests_complete(out, expected, source->listing.shown, err));
    return qp_source_unchanged(source, err);
}

/* ---- Names -------------------------------------------------------------------------------------
 */

static const struct qplan_entry *find_entry(const struct qp_source *source, const char *name)
{
    return qp_listing_find(&source->listing, name, strlen(name));
}

/* With the suffix behind it, or as it is where it has that already. */
static bool with_suffix(const char *name, char out[LONGEST])
{
    const size_t n = strlen(name), n_suffix = strlen(SUFFIX);
    const bool has = n > n_suffix && strcmp(name + n - n_suffix, SUFFIX) == 0;
    return (size_t)snprintf(out, LONGEST, "%s%s", name, has ? "" : SUFFIX) < LONGEST;
}

/* What the metadata say stands for a name, or NULL. */
static const struct qp_st_pair *find_alias(const struct qp_source *source, const char *name)
{
    const struct qp_st_pair *found = NULL;
    for (size_t i = 0; i < source->listing.n_files && !found; i++)
        found = qp_st_find_pair(&source->files[i], name, strlen(name));
    return found;
}

/* What stands for a weight: a Hessian of its own, or what the metadata say. */
struct found {
    const struct qplan_entry *own;
    const struct qp_st_pair *alias;
};

static struct found look_up(const struct qp_source *source, const char *tensor)
{
    struct found found = {NULL, NULL};
    char name[LONGEST];
    if (!with_suffix(tensor, name))
        return found;
    found.own = find_entry(source, name);
    found.alias = find_alias(source, name);
    if (!found.alias)
        found.alias = find_alias(source, tensor);
    return found;
}

static enum qplan_status two_of_one(const struct qp_source *source, const struct found *found,
                                    struct qplan_error *err)
{
    char own[QP_QUOTED], key[QP_QUOTED], value[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_INVALID, source->listing.shown,
                   "metadata %s: expected no other Hessian where %s is there, found %s",
                   qp_quote(key, found->alias->key, found->alias->key_len),
                   qp_quote(own, found->own->name, found->own->name_len),
                   qp_quote(value, found->alias->value, found->alias->value_len));
}

static enum qplan_status find_shared(const struct qp_source *source, const struct qp_st_pair *alias,
                                     const struct qplan_entry **out, struct qplan_error *err)
{
    char name[LONGEST], key[QP_QUOTED], value[QP_QUOTED];
    *out = strlen(alias->value) == alias->value_len && with_suffix(alias->value, name)
               ? find_entry(source, name)
               : NULL;
    if (*out)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, source->listing.shown,
                   "metadata %s: expected the name of a weight whose Hessian is there, found %s",
                   qp_quote(key, alias->key, alias->key_len),
                   qp_quote(value, alias->value, alias->value_len));
}

static enum qplan_status bad_shape(const struct qp_source *source, const struct qplan_entry *entry,
                                   uint64_t columns, struct qplan_error *err)
{
    char subject[512], shape[256];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, &source->listing, entry),
                   "not the Hessian of a weight of %" PRIu64 " columns: expected F32 [%" PRIu64
                   ",%" PRIu64 "], or blocks [%" PRIu64 "/b,b,b], found %s %s",
                   columns, columns, columns, columns,
                   qplan_storage_name((enum qplan_storage)entry->storage),
                   qp_format_list(shape, sizeof shape, entry->shape, entry->rank));
}

/* Takes the shape of an entry, if it is one for so many columns. */
static bool take_shape(struct qp_hessian *hessian)
{
    const uint64_t *shape = hessian->entry->shape, n = hessian->columns;
    const unsigned rank = hessian->entry->rank;
    if (hessian->entry->storage != QPLAN_STORAGE_F32 || rank < 2 || rank > 3)
        return false;
    hessian->block = shape[rank - 1];
    if (shape[rank - 2] != hessian->block || hessian->block == 0 || n % hessian->block != 0)
        return false;
    return rank == 2 ? hessian->block == n : shape[0] == n / hessian->block;
}

enum qplan_status qp_hessian_find(const struct qp_hessians *hessians, const char *tensor,
                                  uint64_t columns, struct qp_hessian *out, struct qplan_error *err)
{
    const struct qp_source *source = &hessians->source;
    const struct found found = look_up(source, tensor);
    *out = (struct qp_hessian){.source = source, .columns = columns, .entry = found.own};
    if (found.alias) {
        QP_TRY(find_shared(source, found.alias, &out->entry, err));
        if (found.own && found.own != out->entry)
            return two_of_one(source, &found, err);
    }
    return !out->entry || take_shape(out) ? QPLAN_OK : bad_shape(source, out->entry, columns, err);
}

bool qp_hessians_name(const struct qp_hessians *hessians, const char *tensor)
{
    const struct found found = look_up(&hessians->source, tensor);
    return found.own || found.alias;
}

/* ---- Numbers -----------------------------------------------------------------------------------
 */

static enum qplan_status bad_number(const struct qp_hessian *h, uint64_t block, uint64_t row,
                                    uint64_t col, const char *expected, double found,
                                    struct qplan_error *err)
{
    char subject[512], at[64], value[QP_F64_TEXT];
    if (h->entry->rank == 2)
        (void)snprintf(at, sizeof at, "[%" PRIu64 ",%" PRIu64 "]", row, col);
    else
        (void)snprintf(at, sizeof at, "[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", block, row, col);
    qp_format_f64(value, found);
    return qp_fail(err, QPLAN_ERR_INVALID,
                   qp_listing_subject(subject, &h->source->listing, h->entry),
                   "bad number at %s: expected %s, found %s", at, expected, value);
}

enum qplan_status qp_hessian_unequal(const struct qp_hessian *h, uint64_t block, uint64_t row,
                                     uint64_t col, double there, double found,
                                     struct qplan_error *err)
{
    char value[QP_F64_TEXT], expected[QP_F64_TEXT + 64];
    qp_format_f64(value, there);
    (void)snprintf(expected, sizeof expected, "that on the other side of the diagonal, %s", value);
    return bad_number(h, block, row, col, expected, found, err);
}

static void load(float *numbers, uint64_t n)
{
    unsigned char *bytes = (unsigned char *)numbers;
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = qp_load_f32(bytes + i * sizeof *numbers);
}

enum qplan_status qp_hessian_diagonal(const struct qp_hessian *h, float *out,
                                      struct qplan_error *err)
{
    for (uint64_t i = 0; i < h->columns; i++) {
        const uint64_t block = i / h->block, row = i % h->block;
        const uint64_t elem = i * h->block + row;
        QP_TRY(qp_source_read(h->source, h->entry, elem * sizeof *out, &out[i], sizeof *out, err));
        load(&out[i], 1);
        if (!(out[i] >= 0) || isinf(out[i]))
            return bad_number(h, block, row, row, "a finite number of at least 0", (double)out[i],
                              err);
    }
    return QPLAN_OK;
}

enum qplan_status qp_hessian_row(const struct qp_hessian *h, uint64_t row, float *out,
                                 struct qplan_error *err)
{
    QP_TRY(qp_source_read(h->source, h->entry, row * h->block * sizeof *out, out,
                          (size_t)(h->block * sizeof *out), err));
    load(out, h->block);
    for (uint64_t i = 0; i < h->block; i++) {
        if (!isfinite(out[i]))
            return bad_number(h, row / h->block, row % h->block, i, "a finite number",
                              (double)out[i], err);
    }
    return QPLAN_OK;
}
