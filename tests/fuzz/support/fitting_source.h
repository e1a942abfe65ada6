/*
 * fitting_source.h - the source that a quantized file could have been made from: decoded values
 * with an error that the description chooses, but the ends of a range where the codes are at
 * theirs, and every kept tensor as it is.
 */
#ifndef FITTING_SOURCE_H
#define FITTING_SOURCE_H

#include "described.h"
#include "plain_decoder.h"

/* Makes the source of an open file whose bytes these are; false if it would not be small. */
bool fitting_source(const struct description *d, const struct qplan_checkpoint *file,
                    const struct bytes *bytes, struct bytes *out);

#endif
