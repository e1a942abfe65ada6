/*
 * checksum.h - tells bytes that were read back from other ones. Any change of a single word is
 * found, and chance ones with all but a probability of 2^-64. No protection against intent.
 */
#ifndef QP_CHECKSUM_H
#define QP_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* All zero to begin with; how the bytes are cut into pieces does not matter. */
struct qp_checksum {
    uint64_t states[4]; /* of every fourth word each */
    uint64_t word;      /* the bytes that do not fill one yet */
    uint64_t n_bytes;
};

void qp_checksum_add(struct qp_checksum *sum, const void *bytes, size_t n);
uint64_t qp_checksum_value(const struct qp_checksum *sum);

#endif
