/*
 * transfer.h - pieces of tensors between files and tiles: rows that lie apart in the file, and
 * 4-bit codes that share bytes.
 */
#ifndef QP_TRANSFER_H
#define QP_TRANSFER_H

#include "formats/safetensors/safetensors.h"
#include "kernels/kernel.h"

/* How codes are kept in a file, and the kernels that pack and unpack them. */
struct qp_code_form {
    bool packed, is_signed;
    const struct qp_code_kernels *kernels;
};

struct qp_code_form qp_code_form(const struct qplan_scheme *scheme, enum qplan_isa isa);

/* Reads a piece of a tensor of elem_bytes into a contiguous tile. */
enum qplan_status qp_read_piece(const struct qp_st *st, const struct qplan_entry *entry,
                                const struct qp_sets *sets, const struct qp_piece *piece,
                                size_t elem_bytes, void *tile, struct qplan_error *err);

/* Writes the codes of a piece, one byte each, at data_off + where they belong; packs in place. */
enum qplan_status qp_write_codes(const struct qp_out *out, uint64_t data_off,
                                 const struct qp_sets *sets, const struct qp_piece *piece,
                                 const struct qp_code_form *form, uint8_t *codes,
                                 struct qplan_error *err);

/* The same for codes that are as the file has them: row_bytes for each row of the piece. */
enum qplan_status qp_write_code_rows(const struct qp_out *out, uint64_t data_off,
                                     const struct qp_sets *sets, const struct qp_piece *piece,
                                     bool packed, const uint8_t *codes, uint64_t row_bytes,
                                     struct qplan_error *err);

/*
 * Packs the codes of n consecutive elements from elem on over themselves, if the form asks for it.
 * Returns the bytes; elem is at the beginning of a byte.
 */
size_t qp_pack_codes(const struct qp_sets *sets, const struct qp_code_form *form, uint64_t elem,
                     size_t n, uint8_t *codes);

/* Room for the bytes and the unpacked codes of n elements at once. */
#define QP_CODE_ROOM(n) ((n) + 64 + QP_IO_SPARE)

/*
 * Reads the codes of n consecutive elements from elem on, one byte each, sign-extended: *codes is
 * where they are in room, which has QP_CODE_ROOM(n) + 1 bytes.
 */
enum qplan_status qp_read_codes(const struct qp_st *st, const struct qplan_entry *entry,
                                const struct qp_sets *sets, const struct qp_code_form *form,
                                uint64_t elem, size_t n, uint8_t *room, const uint8_t **codes,
                                struct qplan_error *err);

/* Bytes of the file that hold the codes of n consecutive elements from elem on. */
size_t qp_code_bytes(const struct qp_sets *sets, bool packed, uint64_t elem, size_t n);

/* Reads these bytes as they are: *bytes is where in room, which has QP_IO_SPARE more. */
enum qplan_status qp_read_code_bytes(const struct qp_st *st, const struct qplan_entry *entry,
                                     const struct qp_sets *sets, bool packed, uint64_t elem,
                                     size_t n, uint8_t *room, const uint8_t **bytes,
                                     struct qplan_error *err);

/*
 * The codes in such bytes, one byte each, sign-extended. Returns the number of spare nibbles that
 * are not 0; codes has room for n + 1.
 */
uint64_t qp_unpack_codes(const struct qp_sets *sets, const struct qp_code_form *form, uint64_t elem,
                         size_t n, const uint8_t *bytes, uint8_t *codes);

#endif
