/*
 * proof.c - what verify proves: all of it is decided here, from what compare.c and measure.c find.
 *
 * Proven of every tensor:
 *  - A tensor of the file is in the source under its name, and type and shape before quantization
 *    are those of the source. Where nothing records the type, it is that of the source. No tensor
 *    is left over: every stored tensor is a part of one.
 *  - A tensor of the source is in the file under its name, exactly once, as a tensor of its own;
 *    experts that the file has one by one, or all in one, under the names that these have.
 *  - A kept tensor is identical byte for byte.
 *
 * Proven of every element x of a quantized tensor and the value x' that its stored code, scale s
 * and zero point give, for codes of b bits:
 *  - |x - x'| <= bound = s (1/2 + 2^(b-21)) + 2^-149, for f64 sources with 2^(b-50); the bound is
 *    evaluated in double precision and rounded up.
 *  - Or, where the recorded calibrator can clip, x lies outside of what the codes of its set can
 *    represent by more than that, and x' is the nearer end. minmax cannot clip: then it offends.
 *  - An infinite x gives the nearer end, and NaN gives 0.
 *  - Spare bits of rows of codes are 0.
 *
 * Proven of the parameters of every set:
 *  - Where the recorded calibrator chooses them from the source alone (minmax), scale and zero
 * point are, byte for byte, those that it chooses. So no file passes with wider parameters.
 *  - Where a recipe of another tool made the codes, every code is byte for byte what that recipe
 *    gives, and nothing is claimed of |x - x'|.
 *  - Where codes were rounded by a Hessian they need not be the nearest: nothing is claimed of
 *    |x - x'|. With the Hessian that the file was made with every byte is the one that it gives;
 *    without, that is an offence unless .allow_unproven.
 *  - With .exact also every code: the bytes of each quantized tensor are those that this source,
 *    this record and, where errors were weighted, this importance give. Without that importance it
 *    is not proven, and neither is a tensor of which nothing tells how its parameters were chosen.
 *  - Where they cannot be computed again, since importance or a Hessian had its say and is not
 *    given, or nothing tells how they were chosen: a scale with its factor is at most 4 of
 *    minmax's, and 1/256 of it at the least where a value is clipped; codes with a bias stand for
 *    some values in the range of the source and 0, and those with a zero point, where a value is
 *    clipped, reach 1/256 of each end (window.c). And where most of its values are clipped, the
 *    sum of squared errors is no more than that of the values; without a record half of it.
 *
 * Proven of the file:
 *  - Its metadata are those of the source as bytes, apart from the keys that qplan owns and
 *    "format", which is "pt". Of a file without a record, those that both have. With .exact the
 *    records are, byte for byte, as they are written.
 *  - Where a value is not finite, its metadata say that such values were brought to codes.
 *  - Something in it is quantized, unless .allow_unquantized.
 *  - Neither file has changed while it was read.
 *
 * Not judged here but refused, by every command, when a file is opened or read:
 *  - Parts whose types and shapes are not those that the record gives (formats/reading.c), another
 *    layout or numerics revision, unknown keys of ours (formats/record.c).
 *  - A stored tensor that is a part of two tensors or has two roles, quantized weights without a
 *    record, an unknown calibrator (lib/store/checkpoint.c).
 *  - A scale that is no finite number above 0, a zero point that is no code or not that of a
 *    symmetric scheme, a code outside a narrow range (lib/run/stored.c).
 *
 * Not proven:
 *  - The order of tensors in the file.
 *  - Without .strict (inspect with a source): that the file has all tensors and the metadata of the
 *    source, and something quantized. Only the tensors that were given are compared.
 */
#include "prover.h"

#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/importance/hessian.h"
#include "lib/model/dtype.h"
#include "recompute.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Only the first offence is described. */
void qp_offend(struct qp_prover *p, const char *subject, const char *fmt, ...)
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
static enum qplan_status misfit(struct qp_prover *p, const struct qp_tested *tested,
                                const char *what)
{
    const struct qp_proof *proof = p->proof;
    const char *source = proof->source->source.listing.shown;
    char subject[512];
    (void)qp_checkpoint_subject(subject, proof->file, tested->tensor);
    if (!proof->strict)
        return qp_fail(p->err, QPLAN_ERR_INVALID, subject, "%s %s", what, source);
    qp_offend(p, subject, "%s %s", what, source);
    return QPLAN_OK;
}

/* The tensor of the source whose type another one has that nothing records, or NULL. */
static const struct qp_tensor *source_of_type(const struct qp_proof *proof,
                                              const struct qp_tensor *t)
{
    if (!t->scheme || t->calibrate)
        return NULL;
    const struct qp_tensor *source = qp_arranged_find(&proof->sources, t->name, t->name_len);
    return source && t->storage != source->storage &&
                   qp_storage_row((enum qplan_storage)source->storage)->is_source
               ? source
               : NULL;
}

/* Gives tensors that another tool has quantized, and whose type nothing records, the source's. */
static enum qplan_status take_types(struct qp_proof *proof, struct qplan_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < proof->n_tested; i++)
        n += source_of_type(proof, proof->tested[i].tensor) != NULL;
    if (n == 0)
        return QPLAN_OK;
    struct qp_tensor *typed = proof->typed = qp_alloc(n, sizeof *typed);
    if (!typed)
        return qp_fail_memory(err, "report", n * sizeof *typed);
    for (size_t i = 0; i < proof->n_tested; i++) {
        struct qp_tested *tested = &proof->tested[i];
        const struct qp_tensor *source = source_of_type(proof, tested->tensor);
        if (!source)
            continue;
        *typed = *tested->tensor;
        typed->storage = source->storage;
        tested->tensor = typed++;
    }
    return QPLAN_OK;
}

/* Makes a pair of every tensor that has a partner in the source. */
static enum qplan_status find_partners(struct qp_prover *p)
{
    const struct qp_proof *proof = p->proof;
    for (size_t i = 0; i < proof->n_tested; i++) {
        struct qp_tested *tested = &proof->tested[i];
        const struct qp_tensor *t = tested->tensor;
        const struct qp_tensor *source = qp_arranged_find(&proof->sources, t->name, t->name_len);
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

/* Whether nothing says how a quantized tensor was made: another tool may round by data. */
static bool is_unrecorded(const struct qp_pair *pair)
{
    return pair->file->scheme && !pair->file->calibrate;
}

static void offend_by_pair(struct qp_prover *p, const struct qp_pair *pair)
{
    const struct qp_measure *m = &pair->result;
    const bool first = !p->failed;
    char subject[512], at[256], x[QP_F64_TEXT], y[QP_F64_TEXT], bound[QP_F64_TEXT];
    (void)qp_checkpoint_subject(subject, p->proof->file, pair->file);
    if (m->offences && !pair->file->scheme) {
        qp_offend(p, subject,
                  "a kept tensor differs from the source: expected byte %.0f, found %.0f at byte "
                  "%" PRIu64 " of the tensor, and %" PRIu64 " such bytes in all",
                  m->x, m->y, m->first, m->offences);
    } else if (m->offences) {
        qp_format_f64(x, m->x);
        qp_format_f64(y, m->y);
        qp_format_f64(bound, m->bound);
        qp_offend(
            p, subject,
            "outside the bound at %s: source %s, decoded %s, allowed error %s, and %" PRIu64
            " such elements in all%s",
            qp_format_coordinates(at, sizeof at, pair->source->shape, pair->source->rank, m->first),
            x, y, bound, m->offences,
            is_unrecorded(pair) ? "; no record says how it was made, and its codes are not the "
                                  "nearest that its scales allow"
                                : "");
        if (first && p->proof->strict && is_unrecorded(pair))
            qp_advise(p->err, QPLAN_ADVICE_UNRECORDED);
    } else {
        qp_offend(p, subject, "spare bits must be 0: found %" PRIu64 " rows where they are not",
                  m->bad_fill);
    }
}

/* ---- Every parameter, and if asked every code, is what the source gives ------------------------
 */

/* An element of a stored tensor as text: a float as a number, any other by its bits. */
static void format_element(char out[QP_F64_TEXT], const struct qplan_entry *entry,
                           const char *bytes)
{
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)entry->storage);
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    uint64_t bits = 0;
    double value;
    memcpy(&bits, bytes, row->bits / 8);
    if (row->is_source) {
        f64->load(row->dtype, 1, bytes, &value);
        qp_format_f64(out, value);
    } else {
        (void)snprintf(out, QP_F64_TEXT, "0x%0*" PRIx64, row->bits / 4, bits);
    }
}

static enum qplan_status offend_by_bytes(struct qp_prover *p, const struct qp_pair *pair)
{
    const struct qp_source *file = &p->proof->file->source;
    const struct qp_wrong *wrong = &pair->result.wrong;
    const struct qplan_entry *entry = wrong->entry;
    const size_t size = qplan_storage_bits((enum qplan_storage)entry->storage) / 8;
    char subject[512], at[256], computed[QP_F64_TEXT], found[QP_F64_TEXT], stored[8];
    QP_TRY(qp_source_read(file, entry, wrong->elem * size, stored, size, p->err));
    format_element(computed, entry, wrong->computed);
    format_element(found, entry, stored);
    qp_offend(p, qp_listing_subject(subject, &file->listing, entry),
              "not what %s gives for the source at %s: expected %s, found %s, and %" PRIu64
              " such bytes in all",
              pair->file->calibrate,
              qp_format_coordinates(at, sizeof at, entry->shape, entry->rank, wrong->elem),
              computed, found, wrong->n_bytes);
    return QPLAN_OK;
}

/* Parameters that cannot be computed again, and are not near what the source needs. */
static void offend_by_far(struct qp_prover *p, const struct qp_pair *pair)
{
    const struct qp_far *far = &pair->result.far;
    const struct qp_part *part = qp_tensor_part(pair->file, QP_SCALE);
    char subject[512], least[QP_F64_TEXT], most[QP_F64_TEXT], a[QP_F64_TEXT], b[QP_F64_TEXT];
    qp_format_f64(least, far->least);
    qp_format_f64(most, far->most);
    qp_format_f64(a, far->is_scale ? far->found : far->lo);
    qp_format_f64(b, far->hi);
    if (!far->is_scale)
        part = qp_tensor_part(pair->file, qp_tensor_part(pair->file, QP_BIAS) ? QP_BIAS : QP_ZERO);
    (void)qp_listing_subject(subject, &p->proof->file->source.listing, part->entry);
    if (far->is_scale)
        qp_offend(p, subject,
                  "far from what the source needs in set %" PRIu64
                  ": expected a scale of a size from %s to %s, found %s, and %" PRIu64
                  " such sets in all",
                  far->set, least, most, a, far->n_sets);
    else
        qp_offend(p, subject,
                  "far from what the source needs in set %" PRIu64
                  ": expected codes for %s to %s, found codes for %s to %s, and %" PRIu64
                  " such sets in all",
                  far->set, a, b, least, most, far->n_sets);
}

/*
 * Whether most values of a tensor are clipped, and so little is left of them that its parameters
 * cannot be what somebody has chosen: sets may each be near enough, and all of them no use.
 */
static bool is_noise(const struct qp_pair *pair)
{
    const struct qp_wide_sums *sums = &pair->result.sums;
    if (!pair->file->scheme || pair->computed || sums->x2.value == 0 ||
        pair->result.clipped <= qp_entry_elements(pair->source->entry) / 2)
        return false;
    const struct qp_scaled lost = qp_scaled_ratio(sums->e2, sums->x2);
    return ldexp(lost.value, lost.exponent) > (is_unrecorded(pair) ? 0.5 : 1);
}

static void offend_by_noise(struct qp_prover *p, const struct qp_pair *pair)
{
    char subject[512];
    qp_offend(p, qp_checkpoint_subject(subject, p->proof->file, pair->file),
              "far from what the source needs: %" PRIu64 " of %" PRIu64
              " elements are clipped, and the sum of squared errors is more than %s of the values",
              pair->result.clipped, qp_entry_elements(pair->source->entry),
              is_unrecorded(pair) ? "half of that" : "that");
}

/* Values that are not finite, in a file that does not say that they were brought to codes. */
static bool is_refused(const struct qp_prover *p, const struct qp_pair *pair)
{
    return pair->file->calibrate && pair->result.nonfinite > 0 && !p->proof->file->making.saturates;
}

static void offend_by_nonfinite(struct qp_prover *p, const struct qp_pair *pair)
{
    char subject[512];
    qp_offend(p, qp_checkpoint_subject(subject, p->proof->file, pair->file),
              "values that are not finite in the source, %" PRIu64
              " in all: expected metadata " QP_NONFINITE_KEY " saturate, found none",
              pair->result.nonfinite);
}

/* Computes again what the file says; a scale that the source cannot have is an offence. */
static enum qplan_status recompute(struct qp_prover *p, const struct qplan_run *run)
{
    const struct qp_proof *proof = p->proof;
    struct qplan_error why;
    const enum qplan_status status =
        qp_recompute_pairs(proof->pairs, p->n_pairs, proof->file, proof->source, proof->exact,
                           &proof->with, run, &why);
    p->impossible = status == QPLAN_ERR_VALUE;
    if (p->impossible)
        qp_offend(p, why.subject, "%s", why.message);
    else if (status != QPLAN_OK && p->err)
        *p->err = why;
    return p->impossible ? QPLAN_OK : status;
}

/* What a pair needs that is not known, beside the source. */
enum beyond {
    NOTHING,
    WEIGHTS, /* nobody has asked for more than that its scales are near */
    CODES,   /* that need not be the nearest */
    METHOD   /* nothing tells by which one its parameters were chosen */
};

static enum beyond find_beyond(const struct qp_prover *p, const struct qp_pair *pair)
{
    struct qp_calibrator calibrator;
    if (!pair->file->scheme || pair->computed)
        return NOTHING;
    if (!qp_calibrator_recorded(pair->file->calibrate, pair->file->scheme, &calibrator))
        return p->proof->exact ? METHOD : NOTHING;
    if (calibrator.from_source)
        return NOTHING;
    return calibrator.rounds ? CODES : p->proof->exact ? WEIGHTS : NOTHING;
}

/* An offence, unless it is allowed. */
static void judge_beyond(struct qp_prover *p, const struct qp_pair *pair, enum beyond beyond)
{
    char subject[512];
    const bool first = !p->failed;
    if (beyond == CODES && p->proof->allow_unproven) {
        p->proof->unproven++;
        return;
    }
    (void)qp_checkpoint_subject(subject, p->proof->file, pair->file);
    if (beyond == METHOD) {
        qp_offend(p, subject, "not provable: %s",
                  qp_has_records(&p->proof->file->source.listing)
                      ? "by its record it is unknown how its parameters were chosen"
                      : "without a record it is unknown how its parameters were chosen");
        return;
    }
    if (p->proof->exact)
        qp_offend(p, subject, "%s needs more than the source: it cannot be computed again",
                  pair->file->calibrate);
    else
        qp_offend(p, subject,
                  "codes of %s need not be the nearest: not provable unless they are "
                  "computed again",
                  pair->file->calibrate);
    if (first && p->proof->strict)
        qp_advise(p->err, beyond == CODES ? QPLAN_ADVICE_EXACT : QPLAN_ADVICE_IMPORTANCE);
}

/* Walks tensors and pairs in step: the pairs are some of the tensors, in their order. */
static enum qplan_status judge_pairs(struct qp_prover *p)
{
    struct qp_tested *tested = p->proof->tested;
    for (size_t i = 0; i < p->n_pairs; i++, tested++) {
        const struct qp_pair *pair = &p->proof->pairs[i];
        while (tested->tensor != pair->file)
            tested++;
        if (pair->file->scheme)
            tested->measure = &pair->result;
        const bool within = pair->result.offences == 0 && pair->result.bad_fill == 0;
        const enum beyond beyond = find_beyond(p, pair);
        const bool is_far = pair->result.far.n_sets > 0;
        tested->proven = within && beyond == NOTHING && pair->result.wrong.n_bytes == 0 &&
                         !is_far && !is_noise(pair) && !is_refused(p, pair) &&
                         !(p->impossible && pair->file->scheme);
        if (!within && p->proof->allow_unproven && is_unrecorded(pair) &&
            pair->result.bad_fill == 0)
            p->proof->unproven++;
        else if (!within)
            offend_by_pair(p, pair);
        else if (pair->result.wrong.n_bytes > 0)
            QP_TRY(offend_by_bytes(p, pair));
        else if (is_far)
            offend_by_far(p, pair);
        else if (is_noise(pair))
            offend_by_noise(p, pair);
        else if (is_refused(p, pair))
            offend_by_nonfinite(p, pair);
        else if (beyond != NOTHING)
            judge_beyond(p, pair, beyond);
    }
    return QPLAN_OK;
}

/* ---- Every tensor of the source is in the file -------------------------------------------------
 */

static void find_missing(struct qp_prover *p)
{
    const struct qplan_checkpoint *source = p->proof->source, *file = p->proof->file;
    char subject[512];
    for (size_t i = 0; i < p->proof->sources.n; i++) {
        const struct qp_tensor *t = &p->proof->sources.list[i];
        if (qp_checkpoint_find(file, t->name, t->name_len))
            continue;
        p->proof->missing++;
        if (p->proof->strict)
            qp_offend(p, qp_checkpoint_subject(subject, source, t),
                      "this tensor of the source is missing in %s", file->source.listing.shown);
    }
}

/* ---- Something is quantized --------------------------------------------------------------------
 */

static void find_quantized(struct qp_prover *p)
{
    const struct qp_proof *proof = p->proof;
    const bool first = !p->failed;
    for (size_t i = 0; i < proof->n_tested; i++) {
        if (proof->tested[i].tensor->scheme)
            return;
    }
    qp_offend(p, proof->file->source.listing.shown, "nothing is quantized");
    if (first)
        qp_advise(p->err, QPLAN_ADVICE_UNQUANTIZED);
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

enum qplan_status qp_prove(struct qp_proof *proof, const struct qplan_run *run,
                           struct qplan_error *err)
{
    struct qp_prover p = {.proof = proof, .err = err};
    const struct qp_arrangement as_the_file = {
        .split = true, .stack = true, .unstack = true, .like = proof->file};
    const struct qp_source *file = &proof->file->source, *source = &proof->source->source;
    proof->pairs = qp_alloc(proof->n_tested, sizeof *proof->pairs);
    if (!proof->pairs)
        return qp_fail_memory(err, "report", proof->n_tested * sizeof *proof->pairs);
    QP_TRY(qp_arrange(&proof->sources, proof->source, &as_the_file, err));
    QP_TRY(take_types(proof, err));
    QP_TRY(find_partners(&p));
    QP_TRY(qp_find_weights(proof->pairs, p.n_pairs, proof->plan, &proof->weighed_by, &proof->arena,
                           err));
    /* What cannot be read to its end is not judged: such a failure takes the place of an offence.
     */
    QP_TRY(qp_measure_pairs(proof->pairs, p.n_pairs, file, source, !proof->exact, run, err));
    QP_TRY(recompute(&p, run));
    QP_TRY(qp_source_unchanged(source, err));
    QP_TRY(qp_source_unchanged(file, err));
    if (proof->with.hessians)
        QP_TRY(qp_source_unchanged(&proof->with.hessians->source, err));
    QP_TRY(judge_pairs(&p));
    find_missing(&p);
    if (proof->strict)
        QP_TRY(qp_prove_metadata(&p));
    if (proof->strict && !proof->allow_unquantized)
        find_quantized(&p);
    if (p.failed && proof->strict && proof->source->format && !proof->file->format)
        qp_advise(err, QPLAN_ADVICE_EXCHANGE);
    proof->holds = !p.failed && proof->unproven == 0;
    return proof->strict && p.failed ? QPLAN_ERR_PROOF : QPLAN_OK;
}

void qp_proof_free(struct qp_proof *proof)
{
    qp_free(proof->pairs);
    qp_free(proof->typed);
    qp_arranged_free(&proof->sources);
    qp_free(proof->tested);
    qp_arena_free(&proof->arena);
}
