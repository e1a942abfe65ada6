/*
 * tensor.c - finding tensors, and parts of one; what decoders give.
 */
#include "tensor.h"

#include "dtype.h"
#include "lib/base/text.h"

size_t qp_tensors_before(const struct qp_tensor *tensors, size_t n, const char *name, size_t n_name)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct qp_tensor *t = &tensors[middle];
        if (qp_compare_text(t->name, t->name_len, name, n_name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct qp_tensor *qp_tensors_find(const struct qp_tensor *tensors, size_t n, const char *name,
                                        size_t n_name)
{
    const size_t i = qp_tensors_before(tensors, n, name, n_name);
    return i < n && qp_compare_text(tensors[i].name, tensors[i].name_len, name, n_name) == 0
               ? &tensors[i]
               : NULL;
}

enum qplan_dtype qp_decoder_dtype(const struct qp_tensor *tensor)
{
    const enum qplan_dtype dtype = tensor->scheme->scale_dtype;
    if (tensor->has_dtype)
        return qp_storage_row((enum qplan_storage)tensor->storage)->dtype;
    return qplan_dtype_bits(dtype) == 8 ? QPLAN_BF16 : dtype;
}

void qp_tensor_sets(struct qp_sets *sets, const struct qp_tensor *tensor)
{
    const bool is_flat = tensor->is_flat && tensor->scheme->granularity == QPLAN_PER_GROUP;
    (is_flat ? qp_sets_make_flat : qp_sets_make)(sets, tensor->scheme, tensor->shape, tensor->rank);
}

bool qp_has_ragged_groups(const struct qp_tensor *tensor)
{
    const struct qplan_scheme *scheme = tensor->scheme;
    return !tensor->is_flat && scheme->granularity == QPLAN_PER_GROUP &&
           tensor->shape[tensor->rank - 1] % scheme->group != 0;
}

const struct qp_part *qp_tensor_part(const struct qp_tensor *tensor, enum qp_role role)
{
    for (unsigned i = 0; i < tensor->n_parts; i++) {
        if (tensor->parts[i].role == role)
            return &tensor->parts[i];
    }
    return NULL;
}

bool qp_is_of_largest(const struct qp_tensor *tensor)
{
    return qp_tensor_part(tensor, QP_SCALE)->of_largest;
}
