/*
 * dtype.h - facts about the 22 storage types and the numeric types, one row each.
 */
#ifndef QP_BASE_DTYPE_H
#define QP_BASE_DTYPE_H

#include "lib/qplan.h"

struct qp_storage_row {
    const char *name; /* in a safetensors header */
    uint8_t bits;
    bool is_integer;
    bool is_f8;
    bool is_source;         /* a float type that can be quantized */
    enum qplan_dtype dtype; /* where is_source */
};

/* The row of a storage type; storage is inside the enum. */
const struct qp_storage_row *qp_storage_row(enum qplan_storage storage);

/* Finds a storage type by the n bytes of its name. */
bool qp_storage_find(const char *name, size_t n, enum qplan_storage *out);

/* The integer type of so many bits, with a sign or without; QPLAN_DTYPE_COUNT if there is none. */
enum qplan_dtype qp_integer_type(unsigned bits, bool is_signed);

/* The bits of an integer type; 0 of any other. */
unsigned qp_integer_bits(enum qplan_dtype dtype);

/* The storage type that holds elements of dtype: packed codes are held as U8. */
enum qplan_storage qp_dtype_storage(enum qplan_dtype dtype);

#endif
