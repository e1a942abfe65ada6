/*
 * dtype.c - the two tables of types. Storage facts only: the codecs are in kernels/dtypes.
 */
#include "dtype.h"

#include <string.h>

struct dtype_row {
    const char *name;
    uint8_t bits;
    bool is_signed, is_integer;
    int32_t q_min, q_max;
    enum qplan_storage storage;
};

static const struct dtype_row dtypes[QPLAN_DTYPE_COUNT] = {
    [QPLAN_F64] = {"f64", 64, true, false, 0, 0, QPLAN_STORAGE_F64},
    [QPLAN_F32] = {"f32", 32, true, false, 0, 0, QPLAN_STORAGE_F32},
    [QPLAN_F16] = {"f16", 16, true, false, 0, 0, QPLAN_STORAGE_F16},
    [QPLAN_BF16] = {"bf16", 16, true, false, 0, 0, QPLAN_STORAGE_BF16},
    [QPLAN_INT8] = {"int8", 8, true, true, -128, 127, QPLAN_STORAGE_I8},
    [QPLAN_UINT8] = {"uint8", 8, false, true, 0, 255, QPLAN_STORAGE_U8},
    [QPLAN_INT4] = {"int4", 4, true, true, -8, 7, QPLAN_STORAGE_U8},
    [QPLAN_UINT4] = {"uint4", 4, false, true, 0, 15, QPLAN_STORAGE_U8},
    [QPLAN_INT16] = {"int16", 16, true, true, -32768, 32767, QPLAN_STORAGE_I16},
    [QPLAN_UINT16] = {"uint16", 16, false, true, 0, 65535, QPLAN_STORAGE_U16},
    [QPLAN_BINARY] = {"binary", 1, false, true, 0, 1, QPLAN_STORAGE_U8},
    [QPLAN_INT2] = {"int2", 2, true, true, -2, 1, QPLAN_STORAGE_U8},
    [QPLAN_INT3] = {"int3", 3, true, true, -4, 3, QPLAN_STORAGE_U8},
    [QPLAN_INT5] = {"int5", 5, true, true, -16, 15, QPLAN_STORAGE_U8},
    [QPLAN_INT6] = {"int6", 6, true, true, -32, 31, QPLAN_STORAGE_U8},
    [QPLAN_INT7] = {"int7", 7, true, true, -64, 63, QPLAN_STORAGE_U8},
    [QPLAN_UINT2] = {"uint2", 2, false, true, 0, 3, QPLAN_STORAGE_U8},
    [QPLAN_UINT3] = {"uint3", 3, false, true, 0, 7, QPLAN_STORAGE_U8},
    [QPLAN_UINT5] = {"uint5", 5, false, true, 0, 31, QPLAN_STORAGE_U8},
    [QPLAN_UINT6] = {"uint6", 6, false, true, 0, 63, QPLAN_STORAGE_U8},
    [QPLAN_UINT7] = {"uint7", 7, false, true, 0, 127, QPLAN_STORAGE_U8},
    [QPLAN_F8E4M3] = {"f8e4m3", 8, true, false, 0, 0, QPLAN_STORAGE_F8_E4M3},
    [QPLAN_F8E5M2] = {"f8e5m2", 8, true, false, 0, 0, QPLAN_STORAGE_F8_E5M2},
    [QPLAN_F4E2M1] = {"f4e2m1", 4, true, false, 0, 0, QPLAN_STORAGE_U8},
    [QPLAN_NF4] = {"nf4", 4, true, false, 0, 0, QPLAN_STORAGE_U8},
    [QPLAN_FP4] = {"fp4", 4, true, false, 0, 0, QPLAN_STORAGE_U8},
    [QPLAN_E8M0] = {"e8m0", 8, false, false, 0, 0, QPLAN_STORAGE_U8},
};

static const struct qp_storage_row storages[QPLAN_STORAGE_COUNT] = {
    [QPLAN_STORAGE_BOOL] = {.name = "BOOL", .bits = 8},
    [QPLAN_STORAGE_F4] = {.name = "F4", .bits = 4},
    [QPLAN_STORAGE_F6_E2M3] = {.name = "F6_E2M3", .bits = 6},
    [QPLAN_STORAGE_F6_E3M2] = {.name = "F6_E3M2", .bits = 6},
    [QPLAN_STORAGE_U8] = {.name = "U8", .bits = 8, .is_integer = true},
    [QPLAN_STORAGE_I8] = {.name = "I8", .bits = 8, .is_integer = true},
    [QPLAN_STORAGE_F8_E5M2] = {.name = "F8_E5M2", .bits = 8, .is_f8 = true},
    [QPLAN_STORAGE_F8_E4M3] = {.name = "F8_E4M3", .bits = 8, .is_f8 = true},
    [QPLAN_STORAGE_F8_E8M0] = {.name = "F8_E8M0", .bits = 8, .is_f8 = true},
    [QPLAN_STORAGE_F8_E4M3FNUZ] = {.name = "F8_E4M3FNUZ", .bits = 8, .is_f8 = true},
    [QPLAN_STORAGE_F8_E5M2FNUZ] = {.name = "F8_E5M2FNUZ", .bits = 8, .is_f8 = true},
    [QPLAN_STORAGE_I16] = {.name = "I16", .bits = 16, .is_integer = true},
    [QPLAN_STORAGE_U16] = {.name = "U16", .bits = 16, .is_integer = true},
    [QPLAN_STORAGE_F16] = {.name = "F16", .bits = 16, .is_source = true, .dtype = QPLAN_F16},
    [QPLAN_STORAGE_BF16] = {.name = "BF16", .bits = 16, .is_source = true, .dtype = QPLAN_BF16},
    [QPLAN_STORAGE_I32] = {.name = "I32", .bits = 32, .is_integer = true},
    [QPLAN_STORAGE_U32] = {.name = "U32", .bits = 32, .is_integer = true},
    [QPLAN_STORAGE_F32] = {.name = "F32", .bits = 32, .is_source = true, .dtype = QPLAN_F32},
    [QPLAN_STORAGE_C64] = {.name = "C64", .bits = 64},
    [QPLAN_STORAGE_F64] = {.name = "F64", .bits = 64, .is_source = true, .dtype = QPLAN_F64},
    [QPLAN_STORAGE_I64] = {.name = "I64", .bits = 64, .is_integer = true},
    [QPLAN_STORAGE_U64] = {.name = "U64", .bits = 64, .is_integer = true},
};

static const struct dtype_row *dtype_row(enum qplan_dtype dtype)
{
    return (unsigned)dtype < QPLAN_DTYPE_COUNT ? &dtypes[dtype] : NULL;
}

const char *qplan_dtype_name(enum qplan_dtype dtype)
{
    const struct dtype_row *row = dtype_row(dtype);
    return row ? row->name : NULL;
}

bool qplan_dtype_parse(const char *name, enum qplan_dtype *out)
{
    if (strcmp(name, "fp8") == 0)
        name = dtypes[QPLAN_F8E4M3].name;
    for (unsigned i = 0; i < QPLAN_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (enum qplan_dtype)i;
            return true;
        }
    }
    return false;
}

unsigned qplan_dtype_bits(enum qplan_dtype dtype)
{
    const struct dtype_row *row = dtype_row(dtype);
    return row ? row->bits : 0;
}

bool qplan_dtype_is_signed(enum qplan_dtype dtype)
{
    const struct dtype_row *row = dtype_row(dtype);
    return row && row->is_signed;
}

bool qplan_dtype_range(enum qplan_dtype dtype, int32_t *q_min, int32_t *q_max)
{
    const struct dtype_row *row = dtype_row(dtype);
    if (!row || !row->is_integer)
        return false;
    *q_min = row->q_min;
    *q_max = row->q_max;
    return true;
}

enum qplan_dtype qp_integer_type(unsigned bits, bool is_signed)
{
    unsigned i = 0;
    while (i < QPLAN_DTYPE_COUNT &&
           !(dtypes[i].is_integer && dtypes[i].bits == bits && dtypes[i].is_signed == is_signed))
        i++;
    return (enum qplan_dtype)i;
}

unsigned qp_integer_bits(enum qplan_dtype dtype)
{
    const struct dtype_row *row = dtype_row(dtype);
    return row && row->is_integer ? row->bits : 0;
}

enum qplan_storage qp_dtype_storage(enum qplan_dtype dtype)
{
    return dtypes[dtype].storage;
}

const struct qp_storage_row *qp_storage_row(enum qplan_storage storage)
{
    return &storages[storage];
}

const char *qplan_storage_name(enum qplan_storage storage)
{
    return (unsigned)storage < QPLAN_STORAGE_COUNT ? storages[storage].name : NULL;
}

unsigned qplan_storage_bits(enum qplan_storage storage)
{
    return (unsigned)storage < QPLAN_STORAGE_COUNT ? storages[storage].bits : 0;
}

bool qp_storage_find(const char *name, size_t n, enum qplan_storage *out)
{
    for (unsigned i = 0; i < QPLAN_STORAGE_COUNT; i++) {
        if (storages[i].name[0] == name[0] && strlen(storages[i].name) == n &&
            memcmp(storages[i].name, name, n) == 0) {
            *out = (enum qplan_storage)i;
            return true;
        }
    }
    return false;
}
