/*
 * transfer.c - moving pieces. Knows files and tiles, nothing of arithmetic.
 */
#include "transfer.h"

#include "lib/base/check.h"

#include <string.h>

struct qp_code_form qp_code_form(const struct qplan_scheme *scheme, enum qplan_isa isa)
{
    return (struct qp_code_form){qplan_dtype_bits(scheme->dtype) == 4,
                                 qplan_dtype_is_signed(scheme->dtype), qp_code_kernels(isa)};
}

/* A piece with all columns is one run of the file; another is a run a row. */
static bool is_contiguous(const struct qp_sets *sets, const struct qp_piece *piece)
{
    return piece->n_rows == 1 || piece->n_cols == sets->row_len;
}

/* A contiguous run of a piece: its first element and how many. */
struct run {
    uint64_t elem, n;
};

static uint64_t n_runs(const struct qp_sets *sets, const struct qp_piece *piece)
{
    return is_contiguous(sets, piece) ? 1 : piece->n_rows;
}

static struct run run_at(const struct qp_sets *sets, const struct qp_piece *piece, uint64_t i)
{
    uint64_t n = is_contiguous(sets, piece) ? piece->n_rows * piece->n_cols : piece->n_cols;
    return (struct run){(piece->row + i) * sets->row_len + piece->col, n};
}

enum qplan_status qp_read_piece(const struct qp_st *st, const struct qplan_entry *entry,
                                const struct qp_sets *sets, const struct qp_piece *piece,
                                size_t elem_bytes, void *tile, struct qplan_error *err)
{
    char *to = tile;
    for (uint64_t i = 0; i < n_runs(sets, piece); i++) {
        struct run run = run_at(sets, piece, i);
        uint64_t off = st->header_bytes + entry->begin + run.elem * elem_bytes;
        QP_TRY(qp_file_read(&st->file, off, to, (size_t)(run.n * elem_bytes), err));
        to += run.n * elem_bytes;
    }
    return QPLAN_OK;
}

size_t qp_pack_codes(const struct qp_sets *sets, const struct qp_code_form *form, uint64_t elem,
                     size_t n, uint8_t *codes)
{
    if (!form->packed)
        return n;
    uint8_t *const start = codes, *packed = codes;
    uint64_t col = elem % sets->last_len;
    while (n > 0) {
        size_t row = (size_t)qp_min_u64(sets->last_len - col, n);
        form->kernels->pack4(codes, row, packed);
        packed += qp_div_up(row, 2);
        codes += row;
        n -= row;
        col = 0;
    }
    return (size_t)(packed - start);
}

enum qplan_status qp_write_codes(const struct qp_out *out, uint64_t data_off,
                                 const struct qp_sets *sets, const struct qp_piece *piece,
                                 const struct qp_code_form *form, uint8_t *codes,
                                 struct qplan_error *err)
{
    for (uint64_t i = 0; i < n_runs(sets, piece); i++) {
        struct run run = run_at(sets, piece, i);
        size_t n = (size_t)run.n;
        size_t n_bytes = qp_pack_codes(sets, form, run.elem, n, codes);
        uint64_t off = data_off + qp_code_offset(sets, form->packed, run.elem);
        QP_TRY(qp_out_write(out, off, codes, n_bytes, err));
        codes += n;
    }
    return QPLAN_OK;
}

enum qplan_status qp_write_code_rows(const struct qp_out *out, uint64_t data_off,
                                     const struct qp_sets *sets, const struct qp_piece *piece,
                                     bool packed, const uint8_t *codes, uint64_t row_bytes,
                                     struct qplan_error *err)
{
    const uint64_t runs = n_runs(sets, piece), n_bytes = piece->n_rows * row_bytes / runs;
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t off = data_off + qp_code_offset(sets, packed, run_at(sets, piece, i).elem);
        QP_TRY(qp_out_write(out, off, codes + i * n_bytes, (size_t)n_bytes, err));
    }
    return QPLAN_OK;
}

size_t qp_code_bytes(const struct qp_sets *sets, bool packed, uint64_t elem, size_t n)
{
    uint64_t last = elem + n - 1;
    return (size_t)(qp_code_offset(sets, packed, last) - qp_code_offset(sets, packed, elem) + 1);
}

enum qplan_status qp_read_code_bytes(const struct qp_st *st, const struct qplan_entry *entry,
                                     const struct qp_sets *sets, bool packed, uint64_t elem,
                                     size_t n, uint8_t *room, const uint8_t **bytes,
                                     struct qplan_error *err)
{
    uint64_t off = st->header_bytes + entry->begin + qp_code_offset(sets, packed, elem);
    uint8_t *to = qp_io_room(room, off, off);
    *bytes = to;
    return qp_file_read(&st->file, off, to, qp_code_bytes(sets, packed, elem, n), err);
}

/* Unpacks row by row; returns the number of spare nibbles that are not 0. */
static uint64_t unpack_run(const struct qp_sets *sets, const struct qp_code_form *form,
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

/* Reads and unpacks n 4-bit codes; elem is at the beginning of a byte. */
static enum qplan_status read_packed(const struct qp_st *st, const struct qplan_entry *entry,
                                     const struct qp_sets *sets, const struct qp_code_form *form,
                                     uint64_t elem, size_t n, uint8_t *codes,
                                     struct qplan_error *err)
{
    /* Packed bytes wait near the end of the buffer: reading stays ahead of writing. */
    uint8_t *tail = codes + QP_CODE_ROOM(n) - QP_IO_SPARE - qp_code_bytes(sets, true, elem, n);
    const uint8_t *bytes;
    QP_TRY(qp_read_code_bytes(st, entry, sets, true, elem, n, tail, &bytes, err));
    (void)unpack_run(sets, form, elem, n, bytes, codes);
    return QPLAN_OK;
}

/* Inside a byte: its first code comes along. */
static size_t codes_ahead(const struct qp_sets *sets, uint64_t elem)
{
    return (elem % sets->last_len) % 2;
}

uint64_t qp_unpack_codes(const struct qp_sets *sets, const struct qp_code_form *form, uint64_t elem,
                         size_t n, const uint8_t *bytes, uint8_t *codes)
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

enum qplan_status qp_read_codes(const struct qp_st *st, const struct qplan_entry *entry,
                                const struct qp_sets *sets, const struct qp_code_form *form,
                                uint64_t elem, size_t n, uint8_t *room, const uint8_t **codes,
                                struct qplan_error *err)
{
    if (!form->packed)
        return qp_read_code_bytes(st, entry, sets, false, elem, n, room, codes, err);
    const size_t ahead = codes_ahead(sets, elem);
    *codes = room + ahead;
    return read_packed(st, entry, sets, form, elem - ahead, n + ahead, room, err);
}
