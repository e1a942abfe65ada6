/*
 * fuzz_quantized.c - any bytes as a file that says it is quantized, through every command that
 * reads one: inspect, inspect --against, verify, dequantize. support/described.h has the form of
 * the input; support/fitting_source.h makes the source.
 *
 * What must hold, besides that nothing is read or written out of bounds:
 *  - A command fails by the content of a file alone, with a message, and never in another way.
 *  - Status, message, report and output are the same for 1 and for 3 threads, and for any memory.
 *  - Every stored tensor is one tensor, or one part of one; the totals of the report say so too.
 *  - What verify proves, inspect and dequantize accept; and by a plain model every tensor is on
 * both sides, every kept byte the same, every element within its bound, and parameters are those
 * that minmax makes of the source. With .exact the codes are too, and if they are it is proven.
 *  - The output of dequantize has the names, shapes, dtypes and values that the records promise; a
 *    dequantize that fails leaves no file.
 */
#include "support/fitting_source.h"
#include "support/plain_judge.h"
#include "support/roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME   "file.safetensors"
#define SOURCE_NAME "source.safetensors"
#define OUT_NAME    "out.safetensors"

/* What a command gave. */
struct outcome {
    enum qplan_status status;
    struct qplan_error err;
    struct bytes json, text; /* the report, if there is one */
    uint64_t file_bytes, data_bytes, quantized, kept;
};

struct trial {
    struct description d;
    struct bytes bytes, source_bytes;
    struct qplan_checkpoint *file, *source;
    struct qplan_gate *gates[MOST_LINES];
    const char *includes[MOST_LINES];
    size_t n_gates, n_includes;
    size_t n_files; /* in the folder, while no command runs */
    bool all;       /* every way to ask: some inputs only, for threads take most of the time */
};

/* With QPLAN_FUZZ_SAY in the environment: what became of an input, for tests of the inputs. */
static void say(const char *command, enum qplan_status status, const struct qplan_error *err)
{
    if (getenv("QPLAN_FUZZ_SAY"))
        printf("%s %s: %s\n", command, qplan_status_name(status), status ? err->message : "");
}

/* ---- Commands ---------------------------------------------------------------------------------
 */

/* One thread with little memory, so that a small tensor has several units; or three with more. */
static const struct qplan_run runs[2] = {{.threads = 1, .memory_bytes = (uint64_t)320 << 10},
                                         {.threads = 3}};

static void take_report(const struct trial *t, struct outcome *out, struct qplan_report *report)
{
    promise(out->status == QPLAN_OK || (out->err.status == out->status && out->err.message[0]),
            "a failure has a message");
    promise((out->status == QPLAN_OK || out->status == QPLAN_ERR_PROOF) == (report != NULL),
            "there is a report on success and on PROOF");
    if (!report)
        return;
    const struct qplan_totals *totals = qplan_report_totals(report);
    promise(qplan_report_write_json(report, bytes_write, &out->json, NULL) == QPLAN_OK,
            "a report can be written");
    for (int every = 0; t->all && every < 2; every++)
        promise(qplan_report_write_text(report, every, bytes_write, &out->text, NULL) == QPLAN_OK,
                "a report can be written for people");
    for (size_t i = 0; i < qplan_report_gate_failures(report); i++)
        bytes_puts(&out->text, qplan_report_gate_failure(report, i));
    for (size_t i = 0; i < qplan_report_warning_count(report); i++)
        bytes_puts(&out->text, qplan_report_warning(report, i));
    out->file_bytes = totals->file_bytes;
    out->data_bytes = totals->code_bytes + totals->param_bytes + totals->kept_bytes;
    out->quantized = totals->quantized;
    out->kept = totals->kept;
    promise(out->data_bytes == totals->data_bytes, "the bytes of a report add up");
    qplan_report_free(report);
}

static void free_outcome(struct outcome *out)
{
    free(out->json.data);
    free(out->text.data);
}

static void require_same(const struct outcome *a, const struct outcome *b)
{
    promise(a->status == b->status, "the status does not depend on threads");
    promise(a->status == QPLAN_OK || (strcmp(a->err.message, b->err.message) == 0 &&
                                      strcmp(a->err.subject, b->err.subject) == 0),
            "the message does not depend on threads");
    promise(bytes_equal(&a->json, &b->json), "the report does not depend on threads");
    promise(bytes_equal(&a->text, &b->text), "the text does not depend on threads");
}

static struct outcome look_once(const struct trial *t, const struct qplan_inspect_options *options,
                                const struct qplan_run *run)
{
    struct outcome out = {.status = QPLAN_OK};
    struct qplan_report *report;
    out.status = qplan_inspect(&report, t->file, options, run, &out.err);
    take_report(t, &out, report);
    return out;
}

static struct outcome look(const struct trial *t, const struct qplan_inspect_options *options)
{
    struct outcome out = look_once(t, options, &runs[0]);
    if (t->all) {
        struct outcome again = look_once(t, options, &runs[1]);
        require_same(&out, &again);
        free_outcome(&again);
    }
    return out;
}

static struct outcome dequantize(const struct trial *t, const enum qplan_dtype *dtype,
                                 const struct qplan_run *run)
{
    struct outcome out = {.status = QPLAN_OK};
    struct qplan_report *report;
    out.status = qplan_dequantize(&report, t->file, own_path(OUT_NAME), dtype, run, &out.err);
    promise(out.status != QPLAN_ERR_PROOF, "dequantize proves nothing");
    take_report(t, &out, report);
    promise(own_count() == t->n_files + (out.status == QPLAN_OK),
            "dequantize leaves its output, or nothing");
    return out;
}

/* ---- What a file is ---------------------------------------------------------------------------
 */

static void check_totals(const struct trial *t, const struct outcome *out)
{
    if (out->status != QPLAN_OK)
        return;
    promise(out->file_bytes == t->bytes.n, "the report has the size of the file");
    promise(out->data_bytes == t->file->source.data_bytes, "all bytes of data are accounted for");
    promise(out->quantized + out->kept == t->file->n_tensors, "all tensors are accounted for");
}

/* ---- Dequantize --------------------------------------------------------------------------------
 */

/* Dequantizes again with threads: the same outcome, and the same bytes. */
static void dequantize_again(const struct trial *t, const enum qplan_dtype *dtype,
                             const struct outcome *first, const struct bytes *written)
{
    struct outcome out = dequantize(t, dtype, &runs[1]);
    require_same(first, &out);
    if (out.status == QPLAN_OK) {
        struct bytes again = own_read(OUT_NAME);
        promise(bytes_equal(written, &again), "the output does not depend on threads");
        free(again.data);
    }
    own_remove(OUT_NAME);
    free_outcome(&out);
}

static enum qplan_status check_dequantize(const struct trial *t)
{
    enum qplan_dtype dtype;
    const enum qplan_dtype *as =
        qplan_dtype_parse(t->d.as, &dtype) && dtype <= QPLAN_BF16 && dtype != QPLAN_F64 ? &dtype
                                                                                        : NULL;
    const struct judged file = {t->file, &t->bytes};
    struct outcome first = dequantize(t, as, &runs[0]);
    say("dequantize", first.status, &first.err);
    struct bytes written = {NULL, 0};
    if (first.status == QPLAN_OK) {
        written = own_read(OUT_NAME);
        judge_output(&file, own_path(OUT_NAME), &written, as);
    }
    own_remove(OUT_NAME);
    if (t->all)
        dequantize_again(t, as, &first, &written);
    promise(first.status == QPLAN_OK || first.status == QPLAN_ERR_INVALID,
            "dequantize refuses a file by its content alone");
    free(written.data);
    free_outcome(&first);
    return first.status;
}

/* One input in four, always the same ones: by the sum of its bytes. */
static bool wants_all(const uint8_t *data, size_t size)
{
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += data[i];
    return sum % 4 == 0;
}

/* ---- A trial ----------------------------------------------------------------------------------
 */

/* With every code computed again: proven if the proof holds and the plain quantizer agrees. */
static void check_exact(const struct trial *t, const struct qplan_inspect_options *prove,
                        enum qplan_status verified)
{
    struct qplan_inspect_options options = *prove;
    if (verified != QPLAN_OK && !t->all)
        return;
    options.exact = true;
    struct outcome exact = look(t, &options);
    const struct judged file = {t->file, &t->bytes}, source = {t->source, &t->source_bytes};
    say("exact", exact.status, &exact.err);
    const bool in_other_words = exact.status == QPLAN_ERR_PROOF &&
                                strstr(exact.err.message, "expected the records of the tensors");
    if (verified == QPLAN_OK && !in_other_words)
        promise(judge_proven(&file, &source) == (exact.status == QPLAN_OK),
                "exactly proven codes are those that the source gives");
    else if (verified != QPLAN_OK)
        promise(exact.status == verified, "what is not proven is not exactly proven");
    free_outcome(&exact);
}

/* The commands that need a source; inspected and dequantized are what those without it gave. */
static void check_against_source(struct trial *t, enum qplan_status inspected,
                                 enum qplan_status dequantized)
{
    const struct qplan_inspect_options measure = {.against = t->source,
                                                  .include = t->includes,
                                                  .n_include = t->n_includes,
                                                  .gates =
                                                      (const struct qplan_gate *const *)t->gates,
                                                  .n_gates = t->n_gates};
    const struct qplan_inspect_options prove = {
        .against = t->source,
        .prove = true,
        .allow_unquantized = !t->file->format, /* a plain file may be a copy */
        .gates = measure.gates,
        .n_gates = t->n_gates};
    const bool chosen = t->n_gates > 0 || t->n_includes > 0;
    struct outcome against = look(t, &measure), verified = look(t, &prove);
    say("against", against.status, &against.err);
    say("verify", verified.status, &verified.err);
    promise(
        against.status == QPLAN_OK || against.status == QPLAN_ERR_INVALID ||
            (chosen && (against.status == QPLAN_ERR_USAGE || against.status == QPLAN_ERR_PROOF)),
        "inspect --against refuses a file by its content alone");
    promise(verified.status == QPLAN_OK || verified.status == QPLAN_ERR_PROOF ||
                verified.status == QPLAN_ERR_INVALID ||
                (chosen && verified.status == QPLAN_ERR_USAGE),
            "verify refuses a file by its content alone");
    promise(against.status != QPLAN_OK || inspected == QPLAN_OK || t->n_includes > 0,
            "what can be measured can be inspected");
    if (verified.status == QPLAN_OK) {
        promise(inspected == QPLAN_OK, "what is proven can be inspected");
        promise(dequantized == QPLAN_OK || !t->file->format, "what is proven can be dequantized");
        promise(against.status == QPLAN_OK || chosen, "what is proven can be measured");
        check_totals(t, &verified);
    }
    check_exact(t, &prove, verified.status);
    free_outcome(&against);
    free_outcome(&verified);
}

static void read_choices(struct trial *t)
{
    for (size_t i = 0; i < t->d.includes.n; i++)
        t->includes[t->n_includes++] = t->d.includes.items[i].key;
    for (size_t i = 0; i < t->d.gates.n; i++) {
        if (qplan_gate_parse(&t->gates[t->n_gates], t->d.gates.items[i].key, NULL) == QPLAN_OK)
            t->n_gates++;
    }
}

static void try_accepted(struct trial *t)
{
    const struct qplan_inspect_options alone = {.against = NULL};
    struct qplan_error err;
    check_roles(t->file);
    struct outcome inspected = look(t, &alone);
    say("inspect", inspected.status, &inspected.err);
    promise(inspected.status == QPLAN_OK || inspected.status == QPLAN_ERR_INVALID,
            "inspect refuses a file by its content alone");
    check_totals(t, &inspected);
    const enum qplan_status dequantized = check_dequantize(t);
    promise(dequantized != QPLAN_OK || inspected.status == QPLAN_OK,
            "what can be dequantized can be inspected");
    promise(dequantized == QPLAN_OK || inspected.status != QPLAN_OK || !t->file->format ||
                has_bad_codes(&(struct judged){t->file, &t->bytes}),
            "what can be inspected can be dequantized, unless its codes are bad");
    free_outcome(&inspected);
    if (!fitting_source(&t->d, t->file, &t->bytes, &t->source_bytes))
        return;
    own_write(SOURCE_NAME, &t->source_bytes);
    t->n_files = own_count();
    if (qplan_checkpoint_open(&t->source, own_path(SOURCE_NAME), &err) == QPLAN_OK) {
        read_choices(t);
        check_against_source(t, inspected.status, dequantized);
    }
}

static void try_file(struct trial *t)
{
    struct qplan_error err = {.status = QPLAN_OK};
    own_write(FILE_NAME, &t->bytes);
    t->n_files = own_count();
    const enum qplan_status status = qplan_checkpoint_open(&t->file, own_path(FILE_NAME), &err);
    say("open", status, &err);
    if (status == QPLAN_OK)
        try_accepted(t);
    else
        promise(err.status == QPLAN_ERR_INVALID && err.message[0],
                "a file is refused by its content, with a message");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trial *t = calloc(1, sizeof *t);
    promise(t, "memory");
    t->all = wants_all(data, size);
    describe(&t->d, data, size);
    if (describe_file(&t->d, &t->bytes))
        try_file(t);
    for (size_t i = 0; i < t->n_gates; i++)
        qplan_gate_free(t->gates[i]);
    qplan_checkpoint_close(t->source);
    qplan_checkpoint_close(t->file);
    free(t->bytes.data);
    free(t->source_bytes.data);
    describe_end(&t->d);
    free(t);
    return 0;
}
