/*
 * internal.h - what the files of the safetensors reader share. The order of the steps:
 *
 *     reader.c  framing: the length of the header, its place in the file
 *     header.c  JSON to entries, shapes and metadata, in header order
 *     layout.c  the proof: sizes, ranges, names; entries in name order, by names.c
 */
#ifndef QP_SAFETENSORS_INTERNAL_H
#define QP_SAFETENSORS_INTERNAL_H

#include "safetensors.h"

/* Bytes of the length field in front of the header. */
#define QP_ST_LENGTH_BYTES 8u

/* Bytes of a file that qp_st_recognise looks at. */
#define QP_ST_MAGIC_BYTES 64u

/*
 * INVALID with the name of the format if the first n bytes of a file are those of a known other
 * one, or of a text; OK if they say nothing.
 */
enum qplan_status qp_st_recognise(const char *bytes, size_t n, const char *subject,
                                  struct qplan_error *err);

/* Reads st->header into entries, shapes and metadata, all still in header order. */
enum qplan_status qp_st_read_header(struct qp_st *st, struct qplan_error *err);

/* Proves that the entries cover the data exactly once and sorts them by name. */
enum qplan_status qp_st_prove(struct qp_st *st, struct qplan_error *err);

/* The byte of the file where the string at text, which was decoded in place, begins. */
uint64_t qp_st_position(const struct qp_st *st, const char *text);

struct qp_st_name {
    const char *text;
    size_t n;
};

/* Byte-wise order of two names; a name before all longer ones that begin with it. */
int qp_st_compare(struct qp_st_name a, struct qp_st_name b);

/* The name of an entry or a pair. */
typedef struct qp_st_name (*qp_st_name_fn)(const void *record);
struct qp_st_name qp_st_entry_name(const void *entry);
struct qp_st_name qp_st_pair_name(const void *pair);

/* Whether the names of n records of size bytes ascend: then no two are the same. */
bool qp_st_ascending(const void *records, size_t n, size_t size, qp_st_name_fn name_of);

/*
 * Sorts n records of size bytes, at least one, by name; equal names keep their order. As with
 * realloc, the result takes the place of the block; NULL means that memory was refused and the
 * block is as it was.
 */
void *qp_st_sort(void *records, size_t n, size_t size, qp_st_name_fn name_of);

/* In sorted records the index of the first that has the name of the one before it, or 0. */
size_t qp_st_duplicate(const void *records, size_t n, size_t size, qp_st_name_fn name_of);

#endif
