/*
 * native_read.c - the native layout, reading side: the stored tensors that records speak of, each
 * claim proven against the header.
 */
#include "native.h"

#include "formats/record.h"
#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

bool qp_native_is(const struct qp_listing *listing)
{
    for (size_t i = 0; i < listing->n_files; i++) {
        if (qp_st_metadata(&listing->files[i], QP_LAYOUT_KEY))
            return true;
    }
    return false;
}

/* The stored tensor of this name, which mostly is the one behind the part before it. */
static const struct qplan_entry *find_behind(const struct qp_listing *listing,
                                             const struct qplan_entry *before,
                                             const struct qplan_entry *wanted)
{
    const size_t i = before ? (size_t)(before - listing->entries) + 1 : 0;
    const struct qplan_entry *next = i < listing->n_entries ? &listing->entries[i] : NULL;
    if (next && qp_compare_text(next->name, next->name_len, wanted->name, wanted->name_len) == 0)
        return next;
    return qp_listing_find(listing, wanted->name, wanted->name_len);
}

static enum qplan_status find_part(const struct qp_listing *listing, const struct qp_st *st,
                                   const struct qplan_entry *before, struct qp_part *part,
                                   bool optional, struct qplan_error *err)
{
    const struct qplan_entry *wanted = part->entry;
    const struct qplan_entry *found = find_behind(listing, before, wanted);
    char subject[512], expected[256], other[256];
    part->entry = found;
    if (found ? found->storage == wanted->storage &&
                    qp_same_shape(found->shape, found->rank, wanted->shape, wanted->rank)
              : optional)
        return QPLAN_OK;
    (void)qp_st_subject(subject, st, wanted);
    if (!found)
        return qp_fail(err, QPLAN_ERR_INVALID, subject,
                       "recorded in " QP_TENSORS_KEY " but not in the file");
    return qp_fail(err, QPLAN_ERR_INVALID, subject,
                   "type and shape are not those of its record: expected %s %s, found %s %s",
                   qplan_storage_name((enum qplan_storage)wanted->storage),
                   qp_format_list(expected, sizeof expected, wanted->shape, wanted->rank),
                   qplan_storage_name((enum qplan_storage)found->storage),
                   qp_format_list(other, sizeof other, found->shape, found->rank));
}

/* Finds the parts of a tensor that a file has a record of; scratch is for what is wanted of them.
 */
static enum qplan_status find_parts(const struct qp_listing *listing, const struct qp_st *st,
                                    struct qp_arena *scratch, struct qp_arena *arena,
                                    const struct qplan_entry **last, struct qp_tensor *t,
                                    struct qplan_error *err)
{
    static const struct qp_format_options all = {QPLAN_ZERO_POINT_ALWAYS};
    struct qp_part parts[QP_MOST_PARTS];
    struct qplan_entry entries[QP_MOST_PARTS];
    qp_arena_clear(scratch);
    const unsigned n = qp_native_parts(t, &all, scratch, parts, entries);
    if (n == 0)
        return qp_fail_memory(err, st->file.shown, t->name_len);
    for (unsigned i = 0; i < n; i++) {
        const bool optional = parts[i].role == QP_ZERO && !t->scheme->asymmetric;
        QP_TRY(find_part(listing, st, *last, &parts[i], optional, err));
        *last = parts[i].entry ? parts[i].entry : *last;
        t->n_parts = (uint8_t)(t->n_parts + (parts[i].entry != NULL));
    }
    t->name = parts[0].entry->name;
    t->entry = parts[0].entry;
    t->parts = qp_arena_copy(arena, parts, t->n_parts, sizeof *parts);
    return t->parts ? QPLAN_OK : qp_fail_memory(err, st->file.shown, sizeof parts);
}

static enum qplan_status find_all_parts(const struct qp_listing *listing, const struct qp_st *st,
                                        struct qp_arena *arena, struct qp_tensor *tensors, size_t n,
                                        struct qplan_error *err)
{
    struct qp_arena scratch = {NULL};
    const struct qplan_entry *last = NULL; /* records mostly are in the order of names */
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; status == QPLAN_OK && i < n; i++)
        status = find_parts(listing, st, &scratch, arena, &last, &tensors[i], err);
    qp_arena_free(&scratch);
    return status;
}

/* Appends the tensors of one file. */
static enum qplan_status read_file(const struct qp_listing *listing, const struct qp_st *st,
                                   struct qp_arena *arena, struct qp_tensor **tensors, size_t *n,
                                   struct qplan_error *err)
{
    struct qp_tensor *more;
    size_t n_more;
    QP_TRY(qp_read_records(st, arena, &more, &n_more, err));
    enum qplan_status status = find_all_parts(listing, st, arena, more, n_more, err);
    struct qp_tensor *grown =
        status == QPLAN_OK ? qp_realloc(*tensors, *n + n_more, sizeof *grown) : NULL;
    if (grown) {
        if (n_more > 0)
            memcpy(grown + *n, more, n_more * sizeof *more);
        *tensors = grown;
        *n += n_more;
    } else if (status == QPLAN_OK) {
        status = qp_fail_memory(err, st->file.shown, (*n + n_more) * sizeof *grown);
    }
    qp_free(more);
    return status;
}

/* Entries are in name order and the codes have the name: so the order of their addresses is it. */
static int by_codes(const void *a, const void *b)
{
    const struct qplan_entry *x = ((const struct qp_tensor *)a)->entry;
    const struct qplan_entry *y = ((const struct qp_tensor *)b)->entry;
    return (x > y) - (x < y);
}

static enum qplan_status sort_tensors(const struct qp_listing *listing, struct qp_tensor *tensors,
                                      size_t n, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    if (n > 0)
        qsort(tensors, n, sizeof *tensors, by_codes);
    for (size_t i = 1; i < n; i++) {
        if (by_codes(&tensors[i - 1], &tensors[i]) == 0)
            return qp_fail(err, QPLAN_ERR_INVALID, listing->shown,
                           "metadata " QP_TENSORS_KEY ": two records at %s",
                           qp_quote(quoted, tensors[i].name, tensors[i].name_len));
    }
    return QPLAN_OK;
}

enum qplan_status qp_native_read(const struct qp_listing *listing, struct qp_arena *arena,
                                 struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    enum qplan_status status = QPLAN_OK;
    *tensors = NULL;
    *n = 0;
    for (size_t i = 0; status == QPLAN_OK && i < listing->n_files; i++)
        status = read_file(listing, &listing->files[i], arena, tensors, n, err);
    if (status == QPLAN_OK)
        status = sort_tensors(listing, *tensors, *n, err);
    if (status != QPLAN_OK) {
        qp_free(*tensors);
        *tensors = NULL;
        *n = 0;
    }
    return status;
}
