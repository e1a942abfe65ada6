#ifndef QP_TRANSFER_TMP
#define QP_TRANSFER_TMP
#include "kernels/kernel.h"
#include "lib/base/check.h"
#include <string.h>
struct qp_code_form {
    bool packed, is_signed;
    const struct qp_code_kernels *kernels;
};
/* Unpacks row by row; returns the number of spare nibbles that are not 0. */
static inline uint64_t unpack_run(const struct qp_sets *sets, const struct qp_code_form *form,
                                  uint64_t elem, size_t n, const uint8_t *packed, uint8_t *codes)
{
    uint64_t bad_pads = 0, col = elem % sets->last_len;
    while (n > 0) {
        size_t row = (size_t)qp_min_u64(sets->last_len - col, n);
        bool ends_row = col + row == sets->last_len;
        if (ends_row && row % 2 && packed[row / 2] >> 4)
            bad_pads++;
        form->kernels->unpack4(packed, row, form->is_signed, codes);
        packed += qp_div_up(row, 2);
        codes += row;
        n -= row;
        col = 0;
    }
    return bad_pads;
}

/* Inside a byte: its first code comes along. */
static inline size_t codes_ahead(const struct qp_sets *sets, uint64_t elem)
{
    return (elem % sets->last_len) % 2;
}

static inline uint64_t qp_unpack_codes(const struct qp_sets *sets, const struct qp_code_form *form,
                                       uint64_t elem, size_t n, const uint8_t *bytes,
                                       uint8_t *codes)
{
    if (!form->packed) {
        memcpy(codes, bytes, n);
        return 0;
    }
    const size_t ahead = codes_ahead(sets, elem);
    uint64_t bad_pads = unpack_run(sets, form, elem - ahead, n + ahead, bytes, codes);
    if (ahead)
        memmove(codes, codes + 1, n);
    return bad_pads;
}

#endif
