/*
 * build.c - stored tensors of a layout, made one by one.
 */
#include "build.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <string.h>

bool qp_name_ends(const char *name, size_t n, const char *suffix)
{
    const size_t n_suffix = strlen(suffix);
    return n >= n_suffix && memcmp(name + n - n_suffix, suffix, n_suffix) == 0;
}

bool qp_build_entry(struct qplan_entry *entry, const struct qp_entry_wish *wish,
                    struct qp_arena *arena)
{
    *entry = (struct qplan_entry){
        .name = qp_arena_join(arena, wish->name, wish->n, wish->suffix),
        .name_len = (uint32_t)(wish->n + strlen(wish->suffix)),
        .storage = (uint8_t)wish->storage,
        .rank = (uint8_t)wish->rank,
        .shape = qp_arena_copy(arena, wish->shape, wish->rank, sizeof *wish->shape),
    };
    return entry->name && entry->shape;
}

enum qplan_dtype qp_weight_scale_type(enum qplan_storage storage)
{
    const enum qplan_dtype dtype = qp_storage_row(storage)->dtype;
    return dtype == QPLAN_F64 ? QPLAN_F32 : dtype;
}

const char *const qp_quantization_keys[] = {"quantization_config", NULL};

const struct qp_place *qp_scale_place(enum qplan_dtype dtype)
{
    static const struct qp_place of_8 = {.bits = 8, .word_bytes = 1};
    static const struct qp_place of_16 = {.bits = 16, .word_bytes = 2};
    static const struct qp_place of_32 = {.bits = 32, .word_bytes = 4};
    const unsigned bits = qplan_dtype_bits(dtype);
    return bits == 8 ? &of_8 : bits == 16 ? &of_16 : &of_32;
}

struct qp_part qp_factor_part(const struct qplan_entry *entry, bool divides)
{
    return (struct qp_part){.role = QP_FACTOR,
                            .place = qp_scale_place(QPLAN_F32),
                            .matrix = {1, 1},
                            .entry = entry,
                            .divides = divides};
}

struct qp_matrix qp_row_sets(const struct qplan_scheme *scheme, const uint64_t shape[2])
{
    const enum qplan_granularity by = scheme->granularity;
    if (by == QPLAN_PER_TENSOR)
        return (struct qp_matrix){1, 1};
    if (by == QPLAN_PER_CHANNEL)
        return (struct qp_matrix){shape[0], 1};
    if (by == QPLAN_PER_GROUP)
        return (struct qp_matrix){shape[0], qp_div_up(shape[1], scheme->group)};
    return (struct qp_matrix){qp_div_up(shape[0], scheme->block_rows),
                              qp_div_up(shape[1], scheme->block_cols)};
}

/* The room of an array doubles whenever it is full, which its length tells. */
bool qp_add_tensor(struct qp_tensor **tensors, size_t *n, const struct qp_tensor *tensor)
{
    if ((*n & (*n - 1)) == 0) {
        struct qp_tensor *grown = qp_realloc(*tensors, *n ? 2 * *n : 1, sizeof *grown);
        if (!grown)
            return false;
        *tensors = grown;
    }
    (*tensors)[(*n)++] = *tensor;
    return true;
}
