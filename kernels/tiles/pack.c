/*
 * pack.c - two 4-bit codes in a byte: the even index in the low nibble, each row on its own bytes.
 *
 * Input and output may overlap, which a compiler must take into account: so steps of STEP bytes go
 * through a buffer that nothing else can be, and become vectors.
 */
#include "rows.h"

#include <string.h>

#define STEP 64 /* packed bytes: with fewer, clang unrolls the loop before it could use vectors */

static inline void pack_bytes(const uint8_t *codes, size_t n, uint8_t flip, uint8_t *packed)
{
    const unsigned both = flip | (unsigned)flip << 4;
    for (size_t i = 0; i < n; i++)
        packed[i] = (uint8_t)(((codes[2 * i] & 15u) | (unsigned)codes[2 * i + 1] << 4) ^ both);
}

static void pack4(const uint8_t *codes, size_t n, uint8_t flip, uint8_t *packed)
{
    uint8_t step[STEP];
    size_t i = 0;
    for (; i + STEP <= n / 2; i += STEP) {
        pack_bytes(codes + 2 * i, STEP, flip, step);
        memcpy(packed + i, step, STEP);
    }
    pack_bytes(codes + 2 * i, n / 2 - i, flip, packed + i);
    if (n % 2)
        packed[n / 2] = (codes[n - 1] & 15) ^ flip;
}

static inline uint8_t widen(unsigned nibble, unsigned flip, unsigned less)
{
    return (uint8_t)((nibble ^ flip) - less);
}

static inline void unpack_bytes(const uint8_t *packed, size_t n, uint8_t flip, uint8_t less,
                                uint8_t *codes)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned byte = packed[i];
        codes[2 * i] = widen(byte & 15, flip, less);
        codes[2 * i + 1] = widen(byte >> 4, flip, less);
    }
}

static void unpack4(const uint8_t *packed, size_t n, uint8_t flip, uint8_t less, uint8_t *codes)
{
    uint8_t step[2 * STEP];
    size_t i = 0;
    for (; i + STEP <= n / 2; i += STEP) {
        unpack_bytes(packed + i, STEP, flip, less, step);
        memcpy(codes + 2 * i, step, sizeof step);
    }
    unpack_bytes(packed + i, n / 2 - i, flip, less, codes + 2 * i);
    if (n % 2)
        codes[n - 1] = widen(packed[n / 2] & 15, flip, less);
}

const struct qp_code_kernels qp_scalar_codes = {QPLAN_ISA_SCALAR, pack4, unpack4};
