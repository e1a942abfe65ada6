/*
 * calibrate.c - the table of calibrators: how the parameters of a set are chosen.
 */
#include "calibrate.h"

#include <string.h>

static const struct calibrator {
    const char *name;
    bool can_clip;
} calibrators[] = {
    {"minmax", false},
};

static const struct calibrator *find_calibrator(const char *name)
{
    for (size_t i = 0; i < sizeof calibrators / sizeof calibrators[0]; i++) {
        if (strcmp(calibrators[i].name, name) == 0)
            return &calibrators[i];
    }
    return NULL;
}

const char *qp_calibrator_find(const char *name)
{
    const struct calibrator *row = find_calibrator(name);
    return row ? row->name : NULL;
}

bool qp_calibrator_can_clip(const char *name)
{
    const struct calibrator *row = find_calibrator(name);
    return row && row->can_clip;
}
