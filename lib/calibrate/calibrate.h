/*
 * calibrate.h - the methods that choose the parameters of a set.
 */
#ifndef QP_CALIBRATE_H
#define QP_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>

/* The calibrator of this name, as a string that lives for ever; NULL if there is none. */
const char *qp_calibrator_find(const char *name);

/* Whether a calibrator may leave values outside the range of the codes. */
bool qp_calibrator_can_clip(const char *name);

#endif
