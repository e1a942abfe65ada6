/*
 * ratio.c - shows the main job from C: open, plan, quantize with the proof, read the report.
 *
 *     cc -o ratio ratio.c $(pkg-config --cflags --libs qplan)
 *     ratio MODEL OUT    quantizes a checkpoint and prints how much smaller it is
 *
 * `man libqplan` has the overview, qplan.h every detail.
 */
#include <qplan.h>
#include <stdio.h>

static int fail(const struct qplan_error *err)
{
    fprintf(stderr, "%s: %s\n", err->subject, err->message);
    return 1;
}

int main(int argc, char **argv)
{
    struct qplan_checkpoint *model = NULL;
    struct qplan_plan *plan = NULL;
    struct qplan_report *report = NULL;
    struct qplan_plan_options what = {.indivisible = QPLAN_INDIVISIBLE_RAGGED};
    struct qplan_quantize_options how = {.verify = true};
    struct qplan_run run = {.force = true};
    struct qplan_error err;
    enum qplan_status status;

    if (argc != 3) {
        fprintf(stderr, "usage: ratio MODEL OUT\n");
        return 2;
    }
    how.out_path = argv[2];
    status = qplan_scheme_parse(&what.scheme, "int4:g32:bf16", &err);
    if (status == QPLAN_OK)
        status = qplan_checkpoint_open(&model, argv[1], &err);
    if (status == QPLAN_OK)
        status = qplan_plan_make(&plan, model, &what, &err);
    if (status == QPLAN_OK)
        status = qplan_quantize(&report, plan, &how, &run, &err);
    if (status == QPLAN_OK) {
        const struct qplan_totals *totals = qplan_report_totals(report);
        printf("%s: %.2f times smaller, %.2f bits per weight\n", argv[2], totals->ratio.value,
               totals->bpw.value);
    }
    qplan_report_free(report); /* borrows from the plan, and the plan from the model */
    qplan_plan_free(plan);
    qplan_checkpoint_close(model);
    return status == QPLAN_OK ? 0 : fail(&err);
}
