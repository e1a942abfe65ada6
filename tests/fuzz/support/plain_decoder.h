/*
 * plain_decoder.h - a quantized tensor decoded element by element, by the formula that users read:
 * x' = scale * (code - zero_point). It shares no arithmetic, no packing and no geometry with the
 * library; of the library's it takes what a record says, and which stored tensors belong to it.
 */
#ifndef PLAIN_DECODER_H
#define PLAIN_DECODER_H

#include "fuzz_files.h"
#include "plain_floats.h"

#include "lib/store/checkpoint.h"

/* A quantized tensor of the native layout in the bytes of its file. */
struct plain_tensor {
    const struct qp_tensor *tensor;
    const unsigned char *codes, *scales, *zeros; /* NULL zeros: 0, or the middle */
    const struct plain_float *source, *scale;
    uint64_t n, last; /* elements, and those of a row */
    unsigned bits;
    bool is_signed;
    int q_min, q_max; /* of the codes that the record allows */
};

/* Finds a tensor in the bytes of an open file; it has a scheme. */
void plain_open(struct plain_tensor *out, const struct qplan_checkpoint *file,
                const struct bytes *bytes, const struct qp_tensor *tensor);

/* Bytes of a row of codes: a stream of bits, lowest first, filled up to a whole byte. */
uint64_t plain_row_bytes(const struct plain_tensor *t);

/* Of the i-th element: its set, its code, the scale and zero point of its set. */
struct plain_element {
    uint64_t set;
    int code, zero;
    double scale;
};
struct plain_element plain_at(const struct plain_tensor *t, uint64_t i);

/* x' in working precision: that of the source, and no less than f32. */
double plain_decode(const struct plain_tensor *t, const struct plain_element *e, int code);

/* The largest error that verify may prove for this element. */
double plain_bound(const struct plain_tensor *t, const struct plain_element *e);

#endif
