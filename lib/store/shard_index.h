/*
 * shard_index.h - the index of a folder: which tensor is in which shard.
 */
#ifndef QP_STORE_SHARD_INDEX_H
#define QP_STORE_SHARD_INDEX_H

#include "folder.h"
#include "formats/format.h"

/* Reads folder->index: names of shards, the map, and the total that it states. */
enum qplan_status qp_index_read(struct qp_folder *folder, struct qplan_error *err);

/* Appends the index of files with these names, whose stored tensors are those of the listing. */
void qp_index_put(struct qp_writer *w, const struct qp_listing *listing, char *const *names,
                  uint64_t n_bytes);

#endif
