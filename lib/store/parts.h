/*
 * parts.h - the values of a part between memory and files, by ranges in flat order: which bytes
 * hold them follows from the place of the part.
 *
 * Values are one byte each up to 8 bits, else elements of 2 or 4 bytes (lib/model/tensor.h).
 */
#ifndef QP_STORE_PARTS_H
#define QP_STORE_PARTS_H

#include "outs.h"
#include "place.h"

/* Bytes of one value in memory. */
static inline size_t qp_value_bytes(const struct qp_part *part)
{
    return part->place->bits <= 8 ? 1 : part->place->bits / 8;
}

/*
 * Whether codes may be handed to a device, or taken from one, as the file has them: two in a byte,
 * the first in its lower half, and every row on a byte of its own. Other codes are one byte each
 * there.
 */
bool qp_part_is_nibbles(const struct qp_part *part);

/* Whether values of neighbouring rows lie behind each other, so that few rows are short runs. */
bool qp_part_is_turned(const struct qp_part *part);

/*
 * Room for the image of n values, and for the values behind it where they are not the image itself:
 * what qp_part_get needs. The image of a range has up to three words more than its values fill.
 */
#define QP_IMAGE_ROOM(n, value_bytes) ((n) * (value_bytes) + 64 + QP_IO_SPARE)
#define QP_PART_ROOM(n, value_bytes)  (QP_IMAGE_ROOM(n, value_bytes) + (n) * (value_bytes) + 64)

/*
 * Reads n values from the flat element elem on. *values is where they are in the room, which has
 * QP_PART_ROOM bytes. bad_fill, if not NULL, is raised by the number of lines in the range whose
 * filling bits are not 0.
 */
enum qplan_status qp_part_get(const struct qp_source *source, const struct qp_part *part,
                              uint64_t elem, size_t n, enum qplan_isa isa, void *room,
                              const void **values, uint64_t *bad_fill, struct qplan_error *err);

/* Takes bytes of a part that belong at its byte off. */
typedef enum qplan_status (*qp_put_fn)(void *ctx, const struct qp_part *part, uint64_t off,
                                       const void *bytes, size_t n, struct qplan_error *err);

/* Reads the runs of a rectangle to its image; hands them from its image to put. */
enum qplan_status qp_read_runs(const struct qp_source *source, const struct qp_part *part,
                               const struct qp_rect *rect, char *image, struct qplan_error *err);
enum qplan_status qp_put_runs(const struct qp_part *part, const struct qp_rect *rect,
                              const char *image, qp_put_fn put, void *ctx, struct qplan_error *err);

/*
 * Hands the bytes of n values from the flat element elem on to put, run by run. image has room for
 * QP_IMAGE_ROOM bytes; it is not used where the values are stored as they are.
 */
enum qplan_status qp_part_put(const struct qp_outs *outs, const struct qp_part *part, uint64_t elem,
                              size_t n, enum qplan_isa isa, const void *values, void *image,
                              qp_put_fn put, void *ctx, struct qplan_error *err);

#endif
