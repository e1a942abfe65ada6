/*
 * tensor.c - finding parts of a tensor.
 */
#include "tensor.h"

const struct qp_part *qp_tensor_part(const struct qp_tensor *tensor, enum qp_role role)
{
    for (unsigned i = 0; i < tensor->n_parts; i++) {
        if (tensor->parts[i].role == role)
            return &tensor->parts[i];
    }
    return NULL;
}
