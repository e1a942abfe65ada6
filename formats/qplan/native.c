/*
 * native.c - the native layout, writing side: names, types and shapes of the output tensors, and
 * the record that the metadata keeps of each. Reading is native_read.c.
 */
#include "native.h"

#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <string.h>

static const char *const suffixes[QP_NATIVE_PARTS] = {"", "_scale", "_zero_point"};

uint64_t qp_code_extent(const struct qplan_scheme *scheme, uint64_t last_extent)
{
    return qplan_dtype_bits(scheme->dtype) == 4 ? qp_div_up(last_extent, 2) : last_extent;
}

static enum qplan_storage part_storage(const struct qplan_scheme *scheme, enum qp_native_part part)
{
    if (part == QP_SCALE)
        return qp_dtype_storage(scheme->scale_dtype);
    if (part == QP_ZERO_POINT)
        return qplan_dtype_is_signed(scheme->dtype) ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8;
    return qp_dtype_storage(scheme->dtype);
}

/* Name and, mostly, shape of the codes are those of the source. */
static bool make_codes(const struct qplan_entry *source, const struct qplan_scheme *scheme,
                       struct qp_labels *labels, struct qplan_entry *out)
{
    const unsigned last = source->rank - 1u;
    const uint64_t extent = qp_code_extent(scheme, source->shape[last]);
    *out = (struct qplan_entry){
        .name = source->name,
        .name_len = source->name_len,
        .storage = (uint8_t)part_storage(scheme, QP_CODES),
        .rank = source->rank,
        .shape = source->shape,
    };
    if (extent == source->shape[last])
        return true;
    uint64_t shape[QPLAN_MAX_RANK];
    memcpy(shape, source->shape, source->rank * sizeof *shape);
    shape[last] = extent;
    out->shape = qp_labels_shape(labels, shape, source->rank);
    return out->shape != NULL;
}

static bool make_sidecar(const struct qplan_entry *source, const struct qplan_scheme *scheme,
                         enum qp_native_part part, struct qp_labels *labels,
                         struct qplan_entry *out)
{
    out->name = qp_arena_join(&labels->arena, source->name, source->name_len, suffixes[part]);
    out->name_len = source->name_len + (uint32_t)strlen(suffixes[part]);
    out->storage = (uint8_t)part_storage(scheme, part);
    return out->name != NULL;
}

unsigned qp_native_count(const struct qplan_scheme *scheme, enum qplan_zero_point zero_point)
{
    const bool has_zero_point = zero_point == QPLAN_ZERO_POINT_ALWAYS || scheme->asymmetric;
    return has_zero_point ? QP_NATIVE_PARTS : QP_ZERO_POINT;
}

unsigned qp_native_outputs(const struct qplan_entry *source, const struct qplan_scheme *scheme,
                           enum qplan_zero_point zero_point, struct qp_labels *labels,
                           struct qplan_entry out[QP_NATIVE_PARTS])
{
    uint64_t extents[QPLAN_MAX_RANK];
    unsigned rank = qp_scale_shape(scheme, source->shape, source->rank, extents);
    const unsigned n = qp_native_count(scheme, zero_point);
    const uint64_t *shape = qp_labels_shape(labels, extents, rank); /* of both sidecars */
    if (!shape || !make_codes(source, scheme, labels, &out[QP_CODES]))
        return 0;
    for (unsigned part = QP_SCALE; part < n; part++) {
        out[part] = (struct qplan_entry){.rank = (uint8_t)rank, .shape = shape};
        if (!make_sidecar(source, scheme, (enum qp_native_part)part, labels, &out[part]))
            return 0;
    }
    return n;
}

void qp_native_put_name(struct qp_writer *w, const struct qplan_entry *source,
                        enum qp_native_part part)
{
    qp_put(w, source->name, source->name_len);
    qp_puts(w, suffixes[part]);
}

size_t qp_native_name_bytes(const struct qplan_entry *source, enum qp_native_part part)
{
    return source->name_len + strlen(suffixes[part]);
}

bool qp_native_is_sidecar_name(const char *name, size_t n)
{
    for (unsigned part = QP_SCALE; part < QP_NATIVE_PARTS; part++) {
        const size_t n_suffix = strlen(suffixes[part]);
        if (n >= n_suffix && memcmp(name + n - n_suffix, suffixes[part], n_suffix) == 0)
            return true;
    }
    return false;
}

bool qp_native_owns_key(const char *key)
{
    return strncmp(key, "qplan.", 6) == 0;
}

void qp_native_put_record(struct qp_writer *w, const struct qplan_entry *source, const char *scheme,
                          const char *calibrate)
{
    qp_puts(w, scheme);
    qp_put(w, " ", 1);
    qp_puts(w, calibrate);
    qp_put(w, " ", 1);
    qp_puts(w, qplan_storage_name((enum qplan_storage)source->storage));
    for (unsigned i = 0; i < source->rank; i++) {
        qp_put(w, i ? "x" : " ", 1);
        qp_put_u64(w, source->shape[i]);
    }
}
