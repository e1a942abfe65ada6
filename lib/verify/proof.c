/*
 * proof.c - what verify proves: all of it is decided here, from what compare.c and measure.c find.
 *
 * Proven of every tensor:
 *  - A tensor of the file is in the source under its name, and type and shape before quantization
 *    are those of the source. No tensor is left over: every stored tensor is a part of one.
 *  - A tensor of the source is in the file under its name, exactly once, as a tensor of its own.
 *  - A kept tensor is identical byte for byte.
 *
 * Proven of every element x of a quantized tensor and the value x' that its stored code, scale s
 * and zero point give, for codes of b bits:
 *  - |x - x'| <= bound = s (1/2 + 2^(b-21)) + 2^-149, for f64 sources with 2^(b-50); the bound is
 *    evaluated in double precision and rounded up.
 *  - Or, where the recorded calibrator can clip, x lies outside of what the codes of its set can
 *    represent by more than that, and x' is the nearer end. minmax cannot clip: then it offends.
 *  - An infinite x gives the nearer end, and NaN gives 0.
 *  - A scale that is no finite number above 0 proves nothing: every element of its set offends.
 *  - Spare nibbles of rows of 4-bit codes are 0.
 *
 * Proven of the file:
 *  - Its metadata are those of the source, apart from "format" and the keys that qplan owns.
 *  - Something in it is quantized, unless .allow_unquantized.
 *  - Neither file has changed while it was read.
 *  - Of the layout, before anything here runs: the parts of each tensor have the types and shapes
 *    that its record gives (formats/qplan/native_read.c).
 *
 * Not proven:
 *  - That scales and zero points are those that the recorded calibrator chooses: wider ones pass,
 *    with the wider bound that the report shows. Nor that zero points are codes, or those of a
 *    symmetric scheme, nor that codes keep to a narrow range.
 *  - The order of tensors in the file, the value of "format", and the numerics revision.
 *  - Without .strict (inspect with a source): that the file has all tensors and the metadata of the
 *    source, and something quantized. Only the tensors that were given are compared.
 */
#include "proof.h"

#include "formats/record.h"
#include "lib/base/alloc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct prover {
    struct qp_proof *proof;
    size_t n_pairs;
    bool failed; /* err describes the first offence, if .strict */
    struct qplan_error *err;
};

/* Only the first offence is described. */
static void QP_PRINTF(3, 4) offend(struct prover *p, const char *subject, const char *fmt, ...)
{
    const bool first = !p->failed;
    p->failed = true;
    if (!first || !p->proof->strict)
        return;
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)qp_fail(p->err, QPLAN_ERR_PROOF, subject, "%s", text);
}

/* ---- Every tensor of the file is one of the source --------------------------------------------
 */

static bool fits_source(const struct qp_tensor *t, const struct qp_tensor *source)
{
    return t->storage == source->storage &&
           qp_same_shape(t->shape, t->rank, source->shape, source->rank);
}

/* A tensor that is not what the source has: an offence, or else the wrong source. */
static enum qplan_status misfit(struct prover *p, const struct qp_tested *tested, const char *what)
{
    const struct qp_proof *proof = p->proof;
    const char *source = proof->source->source.listing.shown;
    char subject[512];
    (void)qp_checkpoint_subject(subject, proof->file, tested->tensor);
    if (!proof->strict)
        return qp_fail(p->err, QPLAN_ERR_INVALID, subject, "%s %s", what, source);
    offend(p, subject, "%s %s", what, source);
    return QPLAN_OK;
}

/* Makes a pair of every tensor that has a partner in the source. */
static enum qplan_status find_partners(struct prover *p)
{
    const struct qp_proof *proof = p->proof;
    for (size_t i = 0; i < proof->n_tested; i++) {
        struct qp_tested *tested = &proof->tested[i];
        const struct qp_tensor *t = tested->tensor;
        const struct qp_tensor *source = qp_checkpoint_find(proof->source, t->name, t->name_len);
        tested->proven = source && fits_source(t, source);
        if (!source)
            QP_TRY(misfit(p, tested, "this tensor is not in the source"));
        else if (!tested->proven)
            QP_TRY(misfit(p, tested, "type or shape is not that of the source"));
        else
            proof->pairs[p->n_pairs++] = (struct qp_pair){.file = t, .source = source};
    }
    return QPLAN_OK;
}

/* ---- Every element is within its bound, every kept byte is the same ----------------------------
 */

static void offend_by_pair(struct prover *p, const struct qp_pair *pair)
{
    const struct qp_measure *m = &pair->result;
    char subject[512], at[256], x[QP_F64_TEXT], y[QP_F64_TEXT], bound[QP_F64_TEXT];
    (void)qp_checkpoint_subject(subject, p->proof->file, pair->file);
    if (m->offences && !pair->file->scheme) {
        offend(p, subject,
               "a kept tensor differs from the source: expected byte %.0f, found %.0f at byte "
               "%" PRIu64 " of the tensor, and %" PRIu64 " such bytes in all",
               m->x, m->y, m->first, m->offences);
    } else if (m->offences) {
        qp_format_f64(x, m->x);
        qp_format_f64(y, m->y);
        qp_format_f64(bound, m->bound);
        offend(
            p, subject,
            "outside the bound at %s: source %s, decoded %s, allowed error %s, and %" PRIu64
            " such elements in all",
            qp_format_coordinates(at, sizeof at, pair->source->shape, pair->source->rank, m->first),
            x, y, bound, m->offences);
    } else {
        offend(p, subject, "spare nibbles must be 0: found %" PRIu64 " that are not", m->bad_fill);
    }
}

/* Walks tensors and pairs in step: the pairs are some of the tensors, in their order. */
static void judge_pairs(struct prover *p)
{
    struct qp_tested *tested = p->proof->tested;
    for (size_t i = 0; i < p->n_pairs; i++, tested++) {
        const struct qp_pair *pair = &p->proof->pairs[i];
        while (tested->tensor != pair->file)
            tested++;
        if (pair->file->scheme)
            tested->measure = &pair->result;
        tested->proven = pair->result.offences == 0 && pair->result.bad_fill == 0;
        if (!tested->proven)
            offend_by_pair(p, pair);
    }
}

/* ---- Every tensor of the source is in the file -------------------------------------------------
 */

static void find_missing(struct prover *p)
{
    const struct qplan_checkpoint *source = p->proof->source, *file = p->proof->file;
    char subject[512];
    for (size_t i = 0; i < source->n_tensors; i++) {
        const struct qp_tensor *t = &source->tensors[i];
        if (qp_checkpoint_find(file, t->name, t->name_len))
            continue;
        p->proof->missing++;
        if (p->proof->strict)
            offend(p, qp_checkpoint_subject(subject, source, t),
                   "this tensor of the source is missing in %s", file->source.listing.shown);
    }
}

/* ---- The metadata are those of the source ------------------------------------------------------
 */

static bool same_value(const struct qp_st_pair *a, const struct qp_st_pair *b)
{
    return a->value_len == b->value_len && memcmp(a->value, b->value, a->value_len) == 0;
}

/* Whatever key one of the files has, the other one has too, with the same value. */
static void compare_metadata(struct prover *p)
{
    const struct qp_st *sides[2] = {&p->proof->source->source.files[0],
                                    &p->proof->file->source.files[0]};
    char quoted[QP_QUOTED];
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < sides[side]->n_metadata; i++) {
            const struct qp_st_pair *pair = &sides[side]->metadata[i];
            if (qp_owns_key(pair->key) || strcmp(pair->key, "format") == 0)
                continue;
            const struct qp_st_pair *other = qp_st_metadata(sides[1 - side], pair->key);
            if (!other || !same_value(pair, other))
                offend(p, p->proof->file->source.listing.shown,
                       "metadata %s is not that of the source",
                       qp_quote(quoted, pair->key, pair->key_len));
        }
    }
}

/* ---- Something is quantized --------------------------------------------------------------------
 */

static void find_quantized(struct prover *p)
{
    const struct qp_proof *proof = p->proof;
    const bool first = !p->failed;
    for (size_t i = 0; i < proof->n_tested; i++) {
        if (proof->tested[i].tensor->scheme)
            return;
    }
    offend(p, proof->file->source.listing.shown, "nothing is quantized");
    if (first)
        qp_advise(p->err, QPLAN_ADVICE_UNQUANTIZED);
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

enum qplan_status qp_prove(struct qp_proof *proof, const struct qplan_run *run,
                           struct qplan_error *err)
{
    struct prover p = {.proof = proof, .err = err};
    const struct qp_source *file = &proof->file->source, *source = &proof->source->source;
    proof->pairs = qp_alloc(proof->n_tested, sizeof *proof->pairs);
    if (!proof->pairs)
        return qp_fail_memory(err, "report", proof->n_tested * sizeof *proof->pairs);
    QP_TRY(find_partners(&p));
    /* What cannot be read to its end is not judged: such a failure takes the place of an offence.
     */
    QP_TRY(qp_measure_pairs(proof->pairs, p.n_pairs, file, source, run, err));
    QP_TRY(qp_source_unchanged(source, err));
    QP_TRY(qp_source_unchanged(file, err));
    judge_pairs(&p);
    find_missing(&p);
    if (proof->strict)
        compare_metadata(&p);
    if (proof->strict && !proof->allow_unquantized)
        find_quantized(&p);
    proof->holds = !p.failed;
    return proof->strict && p.failed ? QPLAN_ERR_PROOF : QPLAN_OK;
}

void qp_proof_free(struct qp_proof *proof)
{
    qp_free(proof->pairs);
    qp_free(proof->tested);
}
