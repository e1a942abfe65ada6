/*
 * format.h - what a layout of quantized checkpoints is: which stored tensors stand for a quantized
 * one, and how they are told apart from others. A layout is a folder of formats/ with a row of this
 * kind; the build finds the folder, and everything else finds the row in the registry.
 *
 * Layouts know names, types, shapes, places and text. They do no arithmetic on values.
 */
#ifndef QP_FORMAT_H
#define QP_FORMAT_H

#include "lib/model/tensor.h"
#include "safetensors/safetensors.h"

/* What a layout may look at: the stored tensors of all files of a checkpoint, and their metadata.
 */
struct qp_listing {
    const struct qp_st *files;
    size_t n_files;
    const struct qplan_entry *entries; /* of all files, in byte-wise order of names */
    size_t n_entries;
    const char *shown; /* the path of the checkpoint, for messages */
};

/* The stored tensor with this name, or NULL. */
const struct qplan_entry *qp_listing_find(const struct qp_listing *listing, const char *name,
                                          size_t n);

/* "file.safetensors: 'tensor'" for messages. */
const char *qp_listing_subject(char out[512], const struct qp_listing *listing,
                               const struct qplan_entry *entry);

/* What a person may choose of a layout. */
struct qp_format_options {
    enum qplan_zero_point zero_point;
};

struct qp_format {
    const char *name;

    /* Whether a checkpoint says that it has this layout. */
    bool (*is)(const struct qp_listing *listing);

    /*
     * The quantized tensors of a checkpoint that has this layout, in the order of their names, with
     * every claim on names, types and shapes proven. The array is released with qp_free; what it
     * points to is in the arena or in the listing.
     */
    enum qplan_status (*read)(const struct qp_listing *listing, struct qp_arena *arena,
                              struct qp_tensor **tensors, size_t *n, struct qplan_error *err);

    /*
     * Why a tensor cannot be stored with its scheme, as the reason of a report, or NULL if it can.
     * No function: every tensor can, with every scheme.
     */
    const char *(*misfit)(const struct qp_tensor *tensor);

    /*
     * The parts of a tensor with a scheme, and for each part the stored tensor, which has no
     * offsets yet; both arrays have room for QP_MOST_PARTS. Returns how many, or 0 when out of
     * memory.
     */
    unsigned (*parts)(const struct qp_tensor *tensor, const struct qp_format_options *options,
                      struct qp_arena *arena, struct qp_part *parts, struct qplan_entry *entries);
};

/* The i-th layout, or NULL behind the last; the one of this name, or NULL. */
const struct qp_format *qp_format_at(size_t i);
const struct qp_format *qp_format_find(const char *name);

/* The layout that a checkpoint has, or NULL for a plain one. */
const struct qp_format *qp_format_of(const struct qp_listing *listing);

/*
 * Finds a stored tensor whose name says that some tool quantized this checkpoint before, in
 * whatever layout; NULL if there is none. Those with an owner, if owners are given by stored
 * tensor, are not looked at.
 */
enum qplan_status qp_find_quantized(const struct qp_listing *listing,
                                    const struct qp_tensor **owner,
                                    const struct qplan_entry **found, struct qplan_error *err);

#endif
