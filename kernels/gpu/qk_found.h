/*
 * qk_found.h - what a thread finds while it compares values with their source, and how the threads
 * of a group join it: largest and first in any order, sums never.
 */
#ifndef QK_FOUND_H
#define QK_FOUND_H

#include "qk_flat.h"

#define QK_NOWHERE 0xffffffffu

/* Elements that a group keeps in local memory at a time, and the sums that it has under way. */
#define QK_STAGE 1024u
#define QK_LANES 16u

struct qk_found {
    double max_error, max_clip; /* -1 without a finite value; 0 */
    qk_u32 max_at;
    qk_u32 offences, first_offence, clipped, first_clipped;
    qk_u32 nonfinite, bad_pads;
};

QK_FN struct qk_found qk_found_none(void)
{
    struct qk_found f;
    f.max_error = -1;
    f.max_clip = 0;
    f.max_at = f.first_offence = f.first_clipped = QK_NOWHERE;
    f.offences = f.clipped = f.nonfinite = f.bad_pads = 0;
    return f;
}

QK_FN void qk_found_join(QK_LOCAL struct qk_found *f, const QK_LOCAL struct qk_found *other)
{
    if (other->max_error > f->max_error ||
        (other->max_error == f->max_error && other->max_at < f->max_at)) {
        f->max_error = other->max_error;
        f->max_at = other->max_at;
    }
    f->max_clip = other->max_clip > f->max_clip ? other->max_clip : f->max_clip;
    f->offences += other->offences;
    f->first_offence = qk_min(f->first_offence, other->first_offence);
    f->clipped += other->clipped;
    f->first_clipped = qk_min(f->first_clipped, other->first_clipped);
    f->nonfinite += other->nonfinite;
    f->bad_pads += other->bad_pads;
}

/* Afterwards found[0] holds for the whole group, for any size of it. */
QK_FN void qk_found_join_group(QK_LOCAL struct qk_found *found)
{
    qk_u32 n = QK_LSIZE, me = QK_LID;
    QK_BARRIER;
    while (n > 1) {
        qk_u32 middle = (n + 1) / 2;
        if (me < n - middle)
            qk_found_join(&found[me], &found[me + middle]);
        QK_BARRIER;
        n = middle;
    }
}

/* The fixed tree over the lanes of one sum. */
QK_FN double qk_tree16(QK_LOCAL double *lane)
{
    for (qk_u32 width = QK_LANES / 2; width > 0; width /= 2) {
        for (qk_u32 i = 0; i < width; i++)
            lane[i] += lane[i + width];
    }
    return lane[0];
}

/* One thread writes what the group found of its block. */
QK_FN void qk_found_store(QK_GLOBAL qk_u8 *block, const struct qk_flat_args *a, qk_u32 number,
                          QK_LOCAL double *lanes, const QK_LOCAL struct qk_found *f)
{
    QK_GLOBAL double *sums = (QK_GLOBAL double *)(block + a->sums) + number * QK_BLOCK_SUMS;
    QK_GLOBAL qk_u32 *counts = (QK_GLOBAL qk_u32 *)(block + a->counts) + number * QK_BLOCK_COUNTS;
    for (qk_u32 k = QK_SUM_E2; k <= QK_SUM_Y2; k++)
        sums[k] = qk_tree16(lanes + k * QK_LANES);
    sums[QK_MAX_ERROR] = f->max_error;
    sums[QK_MAX_CLIP] = f->max_clip;
    counts[QK_MAX_AT] = f->max_at;
    counts[QK_OFFENCES] = f->offences;
    counts[QK_FIRST_OFFENCE] = f->first_offence;
    counts[QK_CLIPPED] = f->clipped;
    counts[QK_FIRST_CLIPPED] = f->first_clipped;
    counts[QK_NONFINITE] = f->nonfinite;
    counts[QK_BAD_PADS] = f->bad_pads;
    counts[QK_BLOCK_COUNTS - 1] = 0;
}

#endif
