/*
 * described.h - a safetensors file as lines of text, so that a mutation changes what a file says
 * and not whether it is one: offsets, sizes and the header are made from the lines.
 *
 *     meta format pt                        a pair of __metadata__
 *     record a int8:c0 minmax F32 2x3       a line of qplan.tensors, true or not
 *     tensor a I8 2x3 0102ff                a stored tensor; its bytes are repeated to fill it
 *     quantized a int4:g2:asym minmax BF16 2x3 07a1 803f 01
 *                                           its record, and a, a_scale and a_zero_point as a reader
 *                                           wants them; without the last word no zero points
 *     source a F32 2x3 0000803f             a tensor of the source, in place of the one that fits
 *     lack a                                a tensor or key that the source has not
 *     hint k v                              a pair of __metadata__ of the source alone
 *     nudge 00ff                            how far the values of the source are from decoded ones
 *     as f16                                the dtype of dequantize
 *     gate sqnr_db<30                       a gate
 *     include a*                            a pattern of inspect --include
 *     op embedding                          the operator of op run
 *     set mode=sum                          a field of it
 *
 * A rank of 0 is "-". Names and values are what stands between the quotes in JSON, so that escapes
 * can be written. A later tensor of the same name replaces the one before. "raw" on the first line:
 * the bytes behind it are the file itself.
 */
#ifndef DESCRIBED_H
#define DESCRIBED_H

#include "fuzz_files.h"

#include "lib/qplan.h"

#define MOST_LINES 48

struct described_pair {
    const char *key, *value;
};

struct described_tensor {
    char name[96];
    const char *dtype, *data;
    uint64_t shape[QPLAN_MAX_RANK];
    unsigned rank;
};

struct described_list {
    struct described_tensor items[MOST_LINES];
    size_t n;
};

struct described_pairs {
    struct described_pair items[MOST_LINES];
    size_t n;
};

struct description {
    char *text; /* all words point into it */
    struct bytes raw;
    bool is_raw;
    struct described_pairs meta, records, hints, lacks, gates, includes, fields;
    struct described_list tensors, sources;
    const char *nudge, *as, *op;
};

/* Reads an input; describe_end releases what it made. */
void describe(struct description *d, const uint8_t *data, size_t size);
void describe_end(struct description *d);

/* Makes the file. False if it would not be small. */
bool describe_file(const struct description *d, struct bytes *out);

/* Makes the n bytes of a tensor from the digits of its line, repeated. */
void describe_data(const char *digits, unsigned char *out, size_t n);

/* Bytes that a tensor of this type and shape has; false if that is too many. */
bool describe_bytes(const char *dtype, const uint64_t *shape, unsigned rank, uint64_t *out);

#endif
