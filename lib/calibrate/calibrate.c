/*
 * calibrate.c - the table of calibrators.
 */
#include "calibrate.h"

#include <string.h>

static const struct qp_calibrator *const calibrators[] = {
    &qp_calibrate_minmax,
};

const struct qp_calibrator *qp_calibrator_at(size_t i)
{
    return i < sizeof calibrators / sizeof calibrators[0] ? calibrators[i] : NULL;
}

const struct qp_calibrator *qp_calibrator_find(const char *name)
{
    for (size_t i = 0; i < sizeof calibrators / sizeof calibrators[0]; i++) {
        if (strcmp(calibrators[i]->name, name) == 0)
            return calibrators[i];
    }
    return NULL;
}

const char *qplan_calibrator_name(size_t i)
{
    return qp_calibrator_at(i) ? qp_calibrator_at(i)->name : NULL;
}
