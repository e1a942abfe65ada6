/*
 * pack.c - two 4-bit codes in a byte: the even index in the low nibble, each row on its own bytes.
 */
#include "rows.h"

static void pack4(const uint8_t *codes, size_t n, uint8_t *packed)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        packed[i / 2] = (uint8_t)((codes[i] & 15) | (codes[i + 1] & 15) << 4);
    if (n % 2)
        packed[n / 2] = codes[n - 1] & 15;
}

/* A nibble as a byte: two's complement if signed. */
static uint8_t widen(unsigned nibble, bool is_signed)
{
    return (uint8_t)(is_signed ? (nibble ^ 8u) - 8u : nibble);
}

static void unpack4(const uint8_t *packed, size_t n, bool is_signed, uint8_t *codes)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = widen(i % 2 ? packed[i / 2] >> 4 : packed[i / 2] & 15, is_signed);
}

const struct qp_code_kernels qp_scalar_codes = {QPLAN_ISA_SCALAR, pack4, unpack4};
