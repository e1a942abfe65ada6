/*
 * params_cases.h - what the tests of parameters share.
 */
#ifndef PARAMS_CASES_H
#define PARAMS_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "lib/qplan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define OK(call) assert_int_equal((call), QPLAN_OK)

/* Parameters of one set, found from a range. */
static struct qplan_params from_range(enum qplan_dtype dtype, enum qplan_param_scheme scheme,
                                      double min, double max)
{
    struct qplan_params params;
    OK(qplan_params_channel_wise(&params, 1, dtype, NULL));
    params.scheme = scheme;
    params.block_size = scheme == QPLAN_BLOCK_WISE ? 32 : 0;
    OK(qplan_params_from_statistics(&params, &min, &max, 1, NULL));
    OK(qplan_params_validate(&params, NULL));
    return params;
}

static void assert_pair(const struct qplan_params *params, double scale, int32_t zero_point)
{
    if (params->scale[0] != scale || params->zero_point[0] != zero_point)
        fail_msg("found (%.17g, %d), expected (%.17g, %d)", params->scale[0], params->zero_point[0],
                 scale, zero_point);
}

#endif
