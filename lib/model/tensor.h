/*
 * tensor.h - what a tensor of a checkpoint is, without files. A plain tensor is a stored one. A
 * quantized tensor is a list of parts, each a stored tensor with a role and a place: codes and
 * parameters. A layout says which parts there are (formats/); arithmetic never sees them.
 */
#ifndef QP_MODEL_TENSOR_H
#define QP_MODEL_TENSOR_H

#include "sets.h"

/* ---- Places -----------------------------------------------------------------------------------
 */

/*
 * A place: how the values of a matrix become the bytes of a stored tensor, as data. Layouts make
 * places; lib/store/place.c is the one module that packs and unpacks by them.
 *
 * Values are numbers of `bits` bits. In memory a value of up to 8 bits is one byte; one of 16, 32
 * or 64 bits is an element of that size. They are put into words of word_bytes, little-endian, from
 * the lowest bit on. A line is a row of the matrix, or a column of it; the values of a line follow
 * each other bit by bit and may straddle words; behind its last value a line is filled up with zero
 * bits, or with a value, to a whole word. The stored tensor has the words of a line behind each
 * other, line by line, or, where lines are interleaved, the first word of all lines, then the
 * second of all:
 *
 *     tensor                     matrix     bits  word  lines    interleaved  else
 *     native codes               rows,last  2..8  1     rows     no
 *     compressed-tensors codes   out,in     2..8  4     rows     no           half_added
 *     ... zero points            out,G      2..8  4     columns  yes          half_added
 *     GPTQ qweight               out,in     2348  4     rows     yes
 *     GPTQ qzeros                out,G      2348  4     columns  no           one_less (v1)
 *     GPTQ, AWQ scales           out,G      16    2     columns  no
 *     AWQ qweight, qzeros        out,in     4     4     columns  no           order
 *     MLX weight                 out,in     2..8  4     rows     no
 *     bitsandbytes 4-bit         1,all      4     1     rows     no           order {1, 0}, NF4:
 *                                                                             filling 7
 *     ... FP4                   1,all      4     1     rows     no           order {1, 0}, codes
 *     ComfyUI 4-bit              out,in     4     1     rows     no           order {1, 0}
 *     ComfyUI block scales       out,in/16  8     1     -        -            swizzled
 *
 * Swizzled bytes are in tiles of 128 rows and 4 columns, as cuBLAS reads block scales; tiles follow
 * each other as words of rows do, and the matrix is filled up with zeros to whole tiles. Byte (r,
 * c) of a tile is at (r % 32) * 16 + r / 32 * 4 + c.
 */
#define QP_MOST_ORDER 8

struct qp_place {
    uint8_t bits;       /* of a value: 1 to 8, 16, 32 or 64 */
    uint8_t word_bytes; /* 1 or 4; of values of more than 8 bits the value itself */
    bool columns;       /* a line is a column of the matrix, not a row */
    bool interleaved;   /* word k of every line, before word k + 1 of any */
    bool is_signed;     /* values are two's complement: they are read back with their sign */
    bool half_added;    /* stored with 2^(bits - 1) added: signed values become unsigned codes */
    bool one_less;      /* stored with 1 subtracted; if bits divide the word, from every value of it
                         * and its filling, as one number that borrows. Words are of 4 bytes. */
    bool swizzled;      /* tiles of bytes: nothing else but bits and word_bytes is set */
    uint8_t filling; /* > 0: the code that fills up a line instead of zeros; bits divide the word */
    uint8_t n_order; /* > 0: the values of a word, which bits divide, are in another order */
    uint8_t order[QP_MOST_ORDER]; /* slot k of a word holds its value order[k]; never one_less */
    const uint8_t *codes; /* not NULL: the value that each stored number stands for. Such a place,
                           * of lines that are rows, is only read. */
};

/* Rows of values behind each other, each from a byte on: how qplan keeps codes in memory. */
static inline struct qp_place qp_row_place(uint8_t bits, bool is_signed)
{
    return (struct qp_place){.bits = bits, .word_bytes = 1, .is_signed = is_signed};
}

/* Bytes of a line of n values: whole words. */
static inline uint64_t qp_place_line_bytes(const struct qp_place *place, uint64_t n)
{
    const uint64_t word_bits = 8u * place->word_bytes;
    const uint64_t rest = (n % word_bits * place->bits + word_bits - 1) / word_bits;
    return (n / word_bits * place->bits + rest) * place->word_bytes;
}

/* A matrix that a place stores, and a rectangle of it. */
struct qp_matrix {
    uint64_t rows, cols;
};

struct qp_rect {
    uint64_t row, n_rows, col, n_cols;
};

/* ---- Parts ------------------------------------------------------------------------------------
 */

/*
 * A factor is one f32 for all scales of the tensor (kernels/codes/code.h). A constant has bytes
 * that are known without any value of the tensor. An index says for each column of the tensor which
 * set of its row it belongs to: in an output as the scheme has it, so it is known as well; in a
 * checkpoint of another tool in any way, and in one that is read there is an index only where that
 * is not what the scheme has. Nested are the scales of scales, of QP_NESTED_SETS each.
 */
#define QP_NESTED_SETS 256

enum qp_role { QP_CODES, QP_SCALE, QP_ZERO, QP_BIAS, QP_FACTOR, QP_CONSTANT, QP_INDEX, QP_NESTED };

struct qp_part {
    enum qp_role role;
    bool of_largest; /* of scales: stored is the value of the largest code, not that of a step */
    bool divides;    /* of a factor: scales are divided by it, not multiplied */
    bool is_text;    /* of a constant: JSON, of which other tools say the same in other words */
    bool is_input;   /* of a constant: a number for the inputs of the layer, which any tool chose */
    const uint8_t *nested; /* of scales that have scales: the f32 of each of 256 codes; else NULL */
    const struct qp_place *place; /* of a constant NULL */
    struct qp_matrix matrix; /* that the place stores: elements of the tensor, or of its sets */
    uint64_t each; /* > 0: so many rows of the matrix, in whole words, are stored as one by itself,
                    * one behind the other; only of places with columns, and only read */
    const struct qplan_entry *entry; /* the stored tensor */
    const void *bytes;               /* of a constant: as many as its type and shape have */
};

/* Parts that a tensor of any layout has at the most; and besides these, where another tool made it,
 * constants for the inputs of its layer. */
#define QP_MOST_PARTS  6
#define QP_MOST_INPUTS 3

/*
 * The elements of a tensor among those of others: of these, which have one shape, one behind the
 * other, it has those from `first` on. Or it has rows of one of them, which begin `down` elements
 * apart. Or it has matrices of one of them turned, which are stored one behind the other: then
 * columns begin `across` elements apart, and the elements of a column are `down` apart.
 */
struct qp_excerpt {
    const struct qp_tensor *const *of;
    size_t n;
    uint64_t first;
    uint64_t across;     /* 0 = it is not turned */
    uint64_t down;       /* 0 = all elements follow each other */
    uint64_t rows, cols; /* of a matrix, unless all elements follow each other */
};

struct qp_tensor {
    const char *name;      /* as people know it, NUL-terminated */
    const uint64_t *shape; /* before quantization */
    uint32_t name_len;
    uint8_t rank;
    uint8_t storage; /* enum qplan_storage before quantization */
    uint8_t n_parts;
    uint8_t variant;  /* which of the ways that its layout has to store it */
    bool rounds;      /* decoders of its layout round to qp_decoder_dtype */
    bool has_dtype;   /* the type of the weights is stored for decoders */
    bool is_flat;     /* its groups go on from row to row, over all elements */
    union {           /* of a quantized one that was read */
        float factor; /* of its scales, if it has one */
        float offset; /* that is added to its scales, if they have scales */
    };
    const struct qplan_entry *entry;   /* the stored tensor of a plain one; of others the codes */
    const struct qplan_scheme *scheme; /* with its axis resolved; NULL = a plain tensor */
    const char *calibrate;             /* the method that chose the parameters; NULL =
                                        * plain, or chosen by another tool */
    const struct qp_part *parts;       /* of a quantized tensor, codes first */
    const struct qp_tensor *encoded;   /* of a plain one that is decoded while it is read: what it
                                        * is decoded from. Then .entry is where that one begins,
                                        * and has the type and the size of the values. */
    const struct qp_excerpt
        *excerpt; /* of a plain one that is not stored by itself: its elements, and
                   * .entry is where the first is, with its own type and size */
};

/*
 * The type that decoders give, of a layout that rounds: that of the weights, where it is stored;
 * else that of the scales, or bf16 where these have one byte.
 */
enum qplan_dtype qp_decoder_dtype(const struct qp_tensor *tensor);

/* Whether the values of a plain tensor are the bytes of its entry. */
static inline bool qp_is_verbatim(const struct qp_tensor *tensor)
{
    return !tensor->encoded && !tensor->excerpt;
}

static inline bool qp_is_turned(const struct qp_tensor *tensor)
{
    return tensor->excerpt && tensor->excerpt->across > 0;
}

/* How many of n tensors, in byte-wise order of names, have a name before this one. */
size_t qp_tensors_before(const struct qp_tensor *tensors, size_t n, const char *name,
                         size_t n_name);

/* The tensor with this name among n in byte-wise order of names, or NULL. */
const struct qp_tensor *qp_tensors_find(const struct qp_tensor *tensors, size_t n, const char *name,
                                        size_t n_name);

/* The sets of a tensor with a scheme: where groups are flat, those of one row of all elements. */
void qp_tensor_sets(struct qp_sets *sets, const struct qp_tensor *tensor);

/* Whether groups begin anew in each row, and the last one of a row is shorter than the others. */
bool qp_has_ragged_groups(const struct qp_tensor *tensor);

/* The part of this role, or NULL if the tensor has none. */
const struct qp_part *qp_tensor_part(const struct qp_tensor *tensor, enum qp_role role);

/* Whether the scales of a quantized tensor are stored as the value of its largest code. */
bool qp_is_of_largest(const struct qp_tensor *tensor);

/*
 * Whether decoders of its layout give other values than scales, or steps, times codes: they round
 * to a narrower type than that in which we compute, the type of the scales, or multiply in another
 * order.
 */
static inline bool qp_decode_rounds(const struct qp_tensor *tensor)
{
    const bool is_narrow =
        qp_decoder_dtype(tensor) != QPLAN_F32 || tensor->storage == QPLAN_STORAGE_F64;
    return (tensor->rounds && is_narrow) || qp_is_of_largest(tensor);
}

#endif
