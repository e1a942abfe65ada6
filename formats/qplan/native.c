/*
 * native.c - the native layout of a quantized checkpoint, which man/qplan-native.5 describes.
 *
 * A quantized tensor NAME is three stored tensors: the codes under NAME itself, NAME_scale and
 * NAME_zero_point, or NAME_offset where the scheme has a bias; codes of floats and tables have
 * neither. Scales of the type f8e4m3 have their factor in NAME_scale_2. The records in the metadata
 * say how each was made.
 */
#include "formats/build.h"

#include "lib/model/dtype.h"
#include "lib/model/sets.h"

#include <string.h>

/* A symmetric tensor may come without its zero points, which are all the same. */
enum { WITH_ZEROS, WITHOUT_ZEROS, VARIANTS };

static unsigned variant(const struct qp_tensor *tensor, const struct qp_format_options *options)
{
    const bool needed = tensor->scheme->asymmetric;
    return needed || options->zero_point != QPLAN_ZERO_POINT_ASYMMETRIC ? WITH_ZEROS
                                                                        : WITHOUT_ZEROS;
}

/* Codes of so many bits, without a sign and with it. */
#define PLACES(BITS)                                                                               \
    [BITS] = {{.bits = (BITS), .word_bytes = 1},                                                   \
              {.bits = (BITS), .word_bytes = 1, .is_signed = true}}

/* Codes of up to 8 bits: the lowest bits of a byte first, and each row ends on a byte. */
static const struct qp_place *place_of_codes(enum qplan_dtype dtype)
{
    static const struct qp_place places[][2] = {PLACES(0), PLACES(1), PLACES(2),
                                                PLACES(3), PLACES(4), PLACES(5),
                                                PLACES(6), PLACES(7), PLACES(8)};
    const bool is_signed = qp_integer_bits(dtype) && qplan_dtype_is_signed(dtype);
    return &places[qplan_dtype_bits(dtype)][is_signed];
}

/* The codes have the name of the tensor and, but for the bytes of its last axis, its shape. */
static bool make_codes(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *part,
                       struct qplan_entry *entry)
{
    const unsigned last = t->rank - 1u;
    const struct qp_place *place = place_of_codes(t->scheme->dtype);
    uint64_t shape[QPLAN_MAX_RANK], n_elems;
    (void)qp_shape_elements(t->shape, t->rank, &n_elems); /* known not to overflow */
    *part = (struct qp_part){.role = QP_CODES,
                             .place = place,
                             .matrix = {n_elems / t->shape[last], t->shape[last]},
                             .entry = entry};
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

/* A stored tensor beside the codes, of this rank and shape. */
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

static unsigned make_parts(const struct qp_tensor *tensor, struct qp_arena *arena,
                           struct qp_part *parts, struct qplan_entry *entries)
{
    static const struct qp_place signed_zeros = {.bits = 8, .word_bytes = 1, .is_signed = true};
    static const struct qp_place unsigned_zeros = {.bits = 8, .word_bytes = 1};
    static const uint64_t of_one[1] = {1};
    static const struct qplan_entry one = {.rank = 1, .shape = of_one}; /* of a factor */
    const struct qplan_scheme *scheme = tensor->scheme;
    const bool is_signed = qplan_dtype_is_signed(scheme->dtype);
    uint64_t shape[QPLAN_MAX_RANK], n_sets;
    const enum qplan_storage of_scales = qp_dtype_storage(scheme->scale_dtype);
    const enum qplan_storage of_zeros = is_signed ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8;
    const struct qp_place *scale_place = qp_scale_place(scheme->scale_dtype);
    const struct qp_place *zero_place = is_signed ? &signed_zeros : &unsigned_zeros;
    struct qplan_entry shaped; /* rank and shape of both sidecars */
    shaped.rank = (uint8_t)qp_scale_shape(scheme, tensor->shape, tensor->rank, shape);
    shaped.shape = qp_arena_copy(arena, shape, shaped.rank, sizeof *shape);
    (void)qp_shape_elements(shape, shaped.rank, &n_sets); /* not above those of the tensor */
    const struct qp_matrix sets = {1, n_sets};
    unsigned n = 2;
    if (!shaped.shape || !make_codes(tensor, arena, &parts[0], &entries[0]))
        return 0;
    parts[1] = (struct qp_part){
        .role = QP_SCALE, .place = scale_place, .matrix = sets, .entry = &entries[1]};
    if (!make_sidecar(tensor, "_scale", of_scales, &shaped, arena, &entries[1]))
        return 0;
    if (scheme->scale_dtype == QPLAN_F8E4M3) {
        parts[n] = qp_factor_part(&entries[n], false);
        if (!make_sidecar(tensor, "_scale_2", QPLAN_STORAGE_F32, &one, arena, &entries[n++]))
            return 0;
    }
    if (!qp_integer_bits(scheme->dtype) ||
        (tensor->variant == WITHOUT_ZEROS && !scheme->asymmetric))
        return n;
    parts[n] = (struct qp_part){.role = scheme->bias ? QP_BIAS : QP_ZERO,
                                .place = scheme->bias ? scale_place : zero_place,
                                .matrix = sets,
                                .entry = &entries[n]};
    return make_sidecar(tensor, scheme->bias ? "_offset" : "_zero_point",
                        scheme->bias ? of_scales : of_zeros, &shaped, arena, &entries[n])
               ? n + 1
               : 0;
}

const struct qp_format qp_format_qplan = {
    .name = "qplan",
    .schemes = "every scheme",
    .has_ragged_groups = true,
    .may_omit_zeros = true,
    .may_divide = true,
    .n_variants = VARIANTS,
    .variant = variant,
    .parts = make_parts,
};
