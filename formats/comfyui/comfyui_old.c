/*
 * comfyui_old.c - files of fp8 as ComfyUI had them before layers had marks; they are only read.
 *
 * A layer L has L.weight, L.scale_weight, a number, and perhaps L.scale_input. One mark is for all
 * layers of some prefix: a tensor scaled_fp8, of whatever shape, whose type is that of the codes;
 * F32 stands for e4m3.
 */
#include "comfyui.h"

#include "formats/build.h"
#include "lib/base/alloc.h"
#include "lib/model/dtype.h"

#include <string.h>

static const char weight[] = ".weight", old_mark[] = "scaled_fp8", old_scale[] = QP_COMFY_OLD_SCALE;

unsigned qp_comfy_old_parts(const struct qp_tensor *t, struct qp_arena *arena,
                            struct qp_part *parts, struct qplan_entry *entries)
{
    const struct qp_entry_wish wishes[] = {
        {t->name,
         t->name_len,
         "",
         qp_dtype_storage(t->scheme->dtype),
         2,
         {t->shape[0], t->shape[1]}},
        {t->name,
         t->name_len - (sizeof weight - 1),
         old_scale,
         QPLAN_STORAGE_F32,
         t->variant == QP_COMFY_OLD_WITH_AXIS,
         {1}},
    };
    if (!qp_build_entry(&entries[0], &wishes[0], arena) ||
        !qp_build_entry(&entries[1], &wishes[1], arena))
        return 0;
    parts[0] = (struct qp_part){.role = QP_CODES,
                                .place = qp_scale_place(QPLAN_F8E4M3),
                                .matrix = {t->shape[0], t->shape[1]},
                                .entry = &entries[0]};
    parts[1] = (struct qp_part){.role = QP_SCALE,
                                .place = qp_scale_place(QPLAN_F32),
                                .matrix = {1, 1},
                                .entry = &entries[1]};
    return 2;
}

bool qp_comfy_is_old_mark(const struct qplan_entry *entry, enum qplan_dtype *dtype)
{
    const size_t n = sizeof old_mark - 1;
    if (!entry || !qp_name_ends(entry->name, entry->name_len, old_mark) ||
        (entry->name_len > n && entry->name[entry->name_len - n - 1] != '.'))
        return false;
    *dtype = entry->storage == QPLAN_STORAGE_F8_E5M2 ? QPLAN_F8E5M2 : QPLAN_F8E4M3;
    return entry->storage == QPLAN_STORAGE_F8_E4M3 || entry->storage == QPLAN_STORAGE_F8_E5M2 ||
           entry->storage == QPLAN_STORAGE_F32;
}

/* The old mark of the shortest prefix of a name, up to some dot or none; NULL if it has none. */
static const struct qplan_entry *find_old_mark(const struct qp_listing *listing, const char *name,
                                               size_t n, enum qplan_dtype *dtype)
{
    const struct qplan_entry *found = qp_listing_sibling(listing, name, 0, old_mark);
    bool is_mark = qp_comfy_is_old_mark(found, dtype);
    for (size_t i = 0; i < n && !is_mark; i++) {
        if (name[i] != '.')
            continue;
        found = qp_listing_sibling(listing, name, i + 1, old_mark);
        is_mark = qp_comfy_is_old_mark(found, dtype);
    }
    return is_mark ? found : NULL;
}

/* ---- Notes -------------------------------------------------------------------------------------
 * A stored tensor that no old layer needs is one of its own, whatever its name.
 */

static bool is_old(const struct qp_tensor *t)
{
    return t && t->variant >= QP_COMFY_OLD;
}

/* Whether an entry is what all old layers of its prefix, one at least, are marked with. */
static bool marks_some(const struct qp_listing *listing, const struct qplan_entry *entry,
                       const struct qp_tensor *tensors, size_t n)
{
    const size_t n_prefix = entry->name_len - (sizeof old_mark - 1);
    enum qplan_dtype dtype;
    if (find_old_mark(listing, entry->name, n_prefix, &dtype) != entry)
        return false;
    for (size_t i = qp_tensors_before(tensors, n, entry->name, n_prefix);
         i < n && tensors[i].name_len >= n_prefix &&
         memcmp(tensors[i].name, entry->name, n_prefix) == 0;
         i++) {
        if (is_old(&tensors[i]))
            return true;
    }
    return false;
}

bool qp_comfy_is_note(const struct qp_listing *listing, const struct qplan_entry *entry,
                      const struct qp_tensor *tensors, size_t n)
{
    enum qplan_dtype dtype;
    return qp_comfy_is_old_mark(entry, &dtype) && marks_some(listing, entry, tensors, n);
}

/* ---- Layers ------------------------------------------------------------------------------------
 */

enum qplan_status qp_comfy_old_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                        const struct qplan_entry *scale, struct qp_tensor **tensors,
                                        size_t *n, struct qplan_error *err)
{
    const size_t n_layer = scale->name_len - (sizeof old_scale - 1);
    const struct qplan_entry *codes = qp_listing_sibling(listing, scale->name, n_layer, weight);
    enum qplan_dtype dtype = QPLAN_F8E4M3;
    char subject[512];
    const bool is_marked = find_old_mark(listing, scale->name, n_layer, &dtype) != NULL;
    const struct qplan_scheme scheme = {
        .dtype = dtype, .granularity = QPLAN_PER_TENSOR, .scale_dtype = QPLAN_F32};
    if (!is_marked || !codes || codes->storage != qp_dtype_storage(dtype) || codes->rank != 2 ||
        qp_entry_elements(codes) == 0)
        return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, scale),
                       "expected a weight of two axes beside it, of the type that scaled_fp8 has");
    const struct qp_tensor t = {.name = codes->name,
                                .name_len = codes->name_len,
                                .shape = codes->shape,
                                .rank = 2,
                                .storage = QPLAN_STORAGE_F32,
                                .variant = scale->rank > 0 ? QP_COMFY_OLD_WITH_AXIS : QP_COMFY_OLD,
                                .scheme = qp_arena_copy(arena, &scheme, 1, sizeof scheme)};
    return t.scheme && qp_add_tensor(tensors, n, &t)
               ? QPLAN_OK
               : qp_fail_memory(err, listing->shown, sizeof t);
}
