/*
 * qk_scale.inc.h - the scale of a set from its range, as a template for one working precision: part
 * of the templates that make parameters. The specification is kernels/codes/linear.h; each step
 * here is the same single operation.
 *
 * The including file defines IN(op), WORK and WORK_MAX.
 */

/* Before it is rounded to its stored dtype. */
QK_FN WORK IN(exact_scale)(qk_i32 q_min, qk_i32 q_max, qk_u32 asymmetric, WORK lo, WORK hi)
{
    WORK steps = (WORK)(q_max - q_min), half_steps = steps / 2;
    if (lo == hi)
        return 1;
    if (!asymmetric)
        return (-lo > hi ? -lo : hi) / half_steps;
    WORK width = hi - lo;
    return width > WORK_MAX ? (hi / 2 - lo / 2) / half_steps : width / steps;
}
