/*
 * ldlq_tensors.c - for each tensor that is rounded by a Hessian: the factor, which tensors with the
 * same inputs share, and then its rows.
 */
#include "ldlq_tensors.h"

#include "ldlq_rows.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- All tensors -------------------------------------------------------------------------------
 */

static bool is_rounded(const struct qp_plan_tensor *t)
{
    return qp_is_quantized(t) && t->calibrator->rounds && t->hessian;
}

static bool same_hessian(const struct qp_hessian *a, const struct qp_hessian *b)
{
    return a->source == b->source && a->entry == b->entry;
}

/* Those that share a Hessian follow each other. */
static int by_hessian(const void *a, const void *b)
{
    const struct qp_plan_tensor *x = *(const struct qp_plan_tensor *const *)a;
    const struct qp_plan_tensor *y = *(const struct qp_plan_tensor *const *)b;
    if (x->hessian->entry != y->hessian->entry)
        return x->hessian->entry < y->hessian->entry ? -1 : 1;
    return (x > y) - (x < y);
}

/* The tensors of a plan that are rounded, in the order in which that is done; *list is NULL if none
 * is. */
static enum qplan_status list_rounded(const struct qplan_plan *plan,
                                      const struct qp_plan_tensor ***list, size_t *n,
                                      struct qplan_error *err)
{
    *n = 0;
    *list = NULL;
    for (size_t i = 0; i < plan->n_tensors; i++)
        *n += is_rounded(&plan->tensors[i]);
    if (*n == 0)
        return QPLAN_OK;
    const struct qp_plan_tensor **made = qp_alloc(*n, sizeof(const struct qp_plan_tensor *));
    if (!made)
        return qp_fail_memory(err, "plan", *n * sizeof *made);
    size_t at = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (is_rounded(&plan->tensors[i]))
            made[at++] = &plan->tensors[i];
    }
    qsort(made, *n, sizeof *made, by_hessian);
    *list = made;
    return QPLAN_OK;
}

/* A run that has what a factor leaves of its memory. */
static struct qplan_run run_beside(const struct qplan_run *run, uint64_t factor_bytes)
{
    struct qplan_run beside = run ? *run : (struct qplan_run){.threads = 0};
    beside.device = NULL;
    beside.progress = NULL; /* all bytes were counted when parameters were found */
    if (beside.memory_bytes)
        beside.memory_bytes -= factor_bytes; /* more than none: it was checked */
    return beside;
}

static enum qplan_status note_damp(const struct qplan_plan *plan, const struct qp_ldlq_factor *f,
                                   struct qp_run_notes *notes, struct qplan_error *err)
{
    char subject[512], text[256], damp[QP_F64_TEXT];
    if (f->damp == plan->making.hessian_damp)
        return QPLAN_OK;
    qp_format_f64(damp, f->damp);
    (void)snprintf(text, sizeof text,
                   "not positive definite: %s times the mean of its diagonal was added", damp);
    return qp_warn(&notes->warnings, &notes->arena, "hessian-damp",
                   qp_listing_subject(subject, &f->hessian.source->listing, f->hessian.entry), text,
                   err);
}

/* The tensors that are rounded, in the order in which that is done. */
struct rounded {
    const struct qp_plan_tensor **list;
    size_t n;
};

static enum qplan_status round_list(const struct qp_ldlq_work *work, const struct rounded *rounded,
                                    const struct qplan_run *run, struct qp_run_notes *notes,
                                    struct qplan_error *err)
{
    const double damp = work->plan->making.hessian_damp;
    struct qp_ldlq_factor f = {.n_blocks = 0};
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; i < rounded->n && status == QPLAN_OK; i++) {
        const struct qp_plan_tensor *t = rounded->list[i];
        const struct qplan_run beside = run_beside(run, qp_ldlq_factor_bytes(t->hessian));
        if (!same_hessian(t->hessian, &f.hessian)) {
            qp_ldlq_factor_free(&f);
            status = qp_ldlq_factor_make(&f, t->hessian, damp, run, err);
            if (status == QPLAN_OK)
                status = note_damp(work->plan, &f, notes, err);
        }
        if (status == QPLAN_OK)
            status = qp_ldlq_round(work, t, &f, &beside, err);
    }
    qp_ldlq_factor_free(&f);
    return status;
}

/* Gives files their full length: those that end with codes are too short before these are made. */
static enum qplan_status set_lengths(const struct qp_outs *outs, const struct rounded *rounded,
                                     struct qplan_error *err)
{
    static const char last = 0;
    for (size_t i = 0; i < rounded->n; i++) {
        const struct qplan_entry *entry =
            qp_tensor_part(&rounded->list[i]->result, QP_CODES)->entry;
        QP_TRY(qp_outs_write(outs, entry, entry->end - entry->begin - 1, &last, 1, err));
    }
    return QPLAN_OK;
}

/* Parameters are read from what is there, or from what has just been written. */
static enum qplan_status round_all(const struct qp_ldlq_work *work, const struct rounded *rounded,
                                   const struct qplan_run *run, struct qp_run_notes *notes,
                                   struct qplan_error *err)
{
    struct qp_source written;
    struct qp_ldlq_work by_stored = *work;
    by_stored.stored = work->outs->there;
    if (by_stored.stored)
        return round_list(&by_stored, rounded, run, notes, err);
    QP_TRY(set_lengths(work->outs, rounded, err));
    QP_TRY(qp_outs_read_back(work->outs, &written, "output", err));
    by_stored.stored = &written;
    const enum qplan_status status = round_list(&by_stored, rounded, run, notes, err);
    qp_source_close(&written);
    return status;
}

enum qplan_status qp_ldlq_run(const struct qplan_plan *plan, const struct qp_outs *outs,
                              const float *factors, const struct qplan_run *run,
                              struct qp_run_notes *notes, struct qplan_error *err)
{
    const struct qp_ldlq_work work = {.plan = plan, .outs = outs, .factors = factors};
    struct rounded rounded;
    QP_TRY(list_rounded(plan, &rounded.list, &rounded.n, err));
    const enum qplan_status status =
        rounded.n > 0 ? round_all(&work, &rounded, run, notes, err) : QPLAN_OK;
    qp_free(rounded.list);
    return status;
}

/* ---- Before anything is done -------------------------------------------------------------------
 */

static enum qplan_status check_memory(const struct qplan_plan *plan, const struct qp_plan_tensor *t,
                                      uint64_t cap, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    const uint64_t peak = qp_ldlq_peak_bytes(t->hessian), kept = qp_ldlq_factor_bytes(t->hessian);
    uint64_t rows;
    if (peak == UINT64_MAX || !qp_add_u64(kept, qp_ldlq_least_bytes(plan, t), &rows))
        rows = UINT64_MAX;
    const uint64_t need = qp_max_u64(peak, rows);
    if (need <= cap)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_MEMORY, "memory",
                   "the cap is too small for the Hessian of %s: expected at least %" PRIu64
                   " bytes, found %" PRIu64,
                   qp_quote(quoted, t->source->name, t->source->name_len), need, cap);
}

enum qplan_status qp_ldlq_check(const struct qplan_plan *plan, const struct qplan_run *run,
                                struct qplan_error *err)
{
    const uint64_t cap = run && run->memory_bytes ? run->memory_bytes : UINT64_MAX - 1;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (is_rounded(&plan->tensors[i]))
            QP_TRY(check_memory(plan, &plan->tensors[i], cap, err));
    }
    return QPLAN_OK;
}
