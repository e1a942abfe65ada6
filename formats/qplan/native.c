/*
 * native.c - the row of the native layout, and the parts of a tensor in it: names, types, shapes
 * and places. Reading is native_read.c.
 */
#include "native.h"

#include "lib/model/dtype.h"
#include "lib/model/sets.h"

#include <string.h>

const struct qp_format qp_format_qplan = {
    .name = "qplan",
    .is = qp_native_is,
    .read = qp_native_read,
    .parts = qp_native_parts,
};

/* Codes of up to 8 bits: the lowest bits of a byte first, and each row ends on a byte. */
static const struct qp_place *place_of_codes(enum qplan_dtype dtype)
{
    static const struct qp_place places[2][9] = {
        {[4] = {.bits = 4, .word_bytes = 1}, [8] = {.bits = 8, .word_bytes = 1}},
        {[4] = {.bits = 4, .word_bytes = 1, .is_signed = true},
         [8] = {.bits = 8, .word_bytes = 1, .is_signed = true}},
    };
    return &places[qplan_dtype_is_signed(dtype)][qplan_dtype_bits(dtype)];
}

static const struct qp_place *place_of_scales(enum qplan_dtype dtype)
{
    static const struct qp_place of_16 = {.bits = 16, .word_bytes = 2};
    static const struct qp_place of_32 = {.bits = 32, .word_bytes = 4};
    return qplan_dtype_bits(dtype) == 16 ? &of_16 : &of_32;
}

/* The codes have the name of the tensor and, but for the bytes of its last axis, its shape. */
static bool make_codes(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *part,
                       struct qplan_entry *entry)
{
    const unsigned last = t->rank - 1u;
    const struct qp_place *place = place_of_codes(t->scheme->dtype);
    uint64_t shape[QPLAN_MAX_RANK], n_elems;
    (void)qp_shape_elements(t->shape, t->rank, &n_elems); /* known not to overflow */
    *part = (struct qp_part){QP_CODES, place, {n_elems / t->shape[last], t->shape[last]}, entry};
    *entry = (struct qplan_entry){
        .name = t->name,
        .name_len = t->name_len,
        .storage = (uint8_t)qp_dtype_storage(t->scheme->dtype),
        .rank = t->rank,
        .shape = t->shape,
    };
    if (place->bits == 8)
        return true;
    memcpy(shape, t->shape, t->rank * sizeof *shape);
    shape[last] = qp_place_line_bytes(place, shape[last]);
    entry->shape = qp_arena_copy(arena, shape, t->rank, sizeof *shape);
    return entry->shape != NULL;
}

/* A stored tensor beside the codes, with a value for each set in the order of sets. */
static bool make_sidecar(const struct qp_tensor *t, const char *suffix, enum qplan_storage storage,
                         const struct qplan_entry *shaped, struct qp_arena *arena,
                         struct qplan_entry *entry)
{
    *entry = (struct qplan_entry){
        .name = qp_arena_join(arena, t->name, t->name_len, suffix),
        .name_len = t->name_len + (uint32_t)strlen(suffix),
        .storage = (uint8_t)storage,
        .rank = shaped->rank,
        .shape = shaped->shape,
    };
    return entry->name != NULL;
}

unsigned qp_native_parts(const struct qp_tensor *tensor, const struct qp_format_options *options,
                         struct qp_arena *arena, struct qp_part *parts, struct qplan_entry *entries)
{
    static const struct qp_place signed_zeros = {.bits = 8, .word_bytes = 1, .is_signed = true};
    static const struct qp_place unsigned_zeros = {.bits = 8, .word_bytes = 1};
    const struct qplan_scheme *scheme = tensor->scheme;
    const bool is_signed = qplan_dtype_is_signed(scheme->dtype);
    uint64_t shape[QPLAN_MAX_RANK], n_sets;
    struct qplan_entry shaped; /* rank and shape of both sidecars */
    shaped.rank = (uint8_t)qp_scale_shape(scheme, tensor->shape, tensor->rank, shape);
    shaped.shape = qp_arena_copy(arena, shape, shaped.rank, sizeof *shape);
    (void)qp_shape_elements(shape, shaped.rank, &n_sets); /* not above those of the tensor */
    const struct qp_matrix sets = {1, n_sets};
    if (!shaped.shape || !make_codes(tensor, arena, &parts[0], &entries[0]))
        return 0;
    parts[1] = (struct qp_part){QP_SCALE, place_of_scales(scheme->scale_dtype), sets, &entries[1]};
    if (!make_sidecar(tensor, "_scale", qp_dtype_storage(scheme->scale_dtype), &shaped, arena,
                      &entries[1]))
        return 0;
    if (options->zero_point != QPLAN_ZERO_POINT_ALWAYS && !scheme->asymmetric)
        return 2;
    parts[2] =
        (struct qp_part){QP_ZERO, is_signed ? &signed_zeros : &unsigned_zeros, sets, &entries[2]};
    return make_sidecar(tensor, "_zero_point", is_signed ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8,
                        &shaped, arena, &entries[2])
               ? 3
               : 0;
}
