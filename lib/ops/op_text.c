/*
 * op_text.c - the table of operators as documents: JSON for programs, text for people. Everything
 * is read from the rows.
 */
#include "op.h"

#include "lib/base/json.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SKU_TEXT 256

static const char *type_name(const struct qplan_op_field_info *field)
{
    static const char *const names[] = {
        [QPLAN_FIELD_INT] = "int",
        [QPLAN_FIELD_BOOL] = "bool",
        [QPLAN_FIELD_REAL] = "real",
        [QPLAN_FIELD_NAME] = "name",
    };
    return names[field->type];
}

/* ---- JSON -------------------------------------------------------------------------------------
 */

static void put_pair(struct qp_writer *w, const char *key, const char *text)
{
    qp_json_key(w, key);
    qp_json_put_str(w, text);
}

static void put_flag(struct qp_writer *w, const char *key, bool value)
{
    qp_json_key(w, key);
    qp_json_put_bool(w, value);
}

static void put_guarantee(struct qp_writer *w, const struct qplan_op_guarantee *g)
{
    qp_json_key(w, "guarantee");
    qp_json_open(w, '{');
    put_pair(w, "math_precision", g->math_precision);
    put_pair(w, "accumulator", g->accumulator);
    put_flag(w, "deterministic", g->deterministic);
    put_flag(w, "bit_stable", g->bit_stable);
    put_flag(w, "thread_invariant", g->thread_invariant);
    put_flag(w, "correctly_rounded", g->correctly_rounded);
    qp_json_close(w, '}');
}

static void put_sku(struct qp_writer *w, const struct qplan_op_sku *sku)
{
    char text[SKU_TEXT];
    (void)qplan_op_sku_print(sku, text, sizeof text);
    put_pair(w, "sku", text);
    put_guarantee(w, &sku->guarantee);
}

static void put_field(struct qp_writer *w, const struct qplan_op_field_info *field)
{
    qp_json_open(w, '{');
    put_pair(w, "name", field->name);
    put_pair(w, "type", type_name(field));
    put_pair(w, "default", field->fallback);
    put_pair(w, "names", field->names);
    qp_json_close(w, '}');
}

static void put_arguments(struct qp_writer *w, const struct qplan_op_info *info, bool outputs)
{
    qp_json_key(w, outputs ? "outputs" : "inputs");
    qp_json_open(w, '[');
    for (size_t i = 0; i < info->n_arguments; i++) {
        const struct qplan_op_argument_info *argument = &info->arguments[i];
        bool update = argument->direction == QPLAN_OP_UPDATE;
        if (!update && (argument->direction == QPLAN_OP_OUT) != outputs)
            continue;
        qp_json_open(w, '{');
        put_pair(w, "name", argument->name);
        put_flag(w, "optional", argument->optional || (update && !outputs));
        put_pair(w, "dtypes", argument->dtypes);
        put_pair(w, "shape", argument->shape);
        qp_json_close(w, '}');
    }
    qp_json_close(w, ']');
}

static void put_operator(struct qp_writer *w, const struct qplan_op_info *info,
                         enum qplan_isa limit)
{
    struct qplan_op_sku sku;
    bool picked;
    qp_json_open(w, '{');
    put_pair(w, "name", info->name);
    qp_json_key(w, "fields");
    qp_json_open(w, '[');
    for (size_t i = 0; i < info->n_fields; i++)
        put_field(w, &info->fields[i]);
    qp_json_close(w, ']');
    put_arguments(w, info, false);
    put_arguments(w, info, true);
    qp_json_key(w, "kernels");
    qp_json_open(w, '[');
    for (size_t i = 0; qplan_op_kernel(info, i, limit, &sku, &picked); i++) {
        qp_json_open(w, '{');
        put_sku(w, &sku);
        put_flag(w, "picked", picked);
        qp_json_close(w, '}');
    }
    qp_json_close(w, ']');
    qp_json_close(w, '}');
}

enum qplan_status qplan_op_list_write_json(enum qplan_isa limit, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err)
{
    struct qp_writer w;
    const struct qplan_op_info *info;
    qp_writer_stream(&w, write, ctx);
    qp_json_open(&w, '{');
    put_pair(&w, "schema", "qplan-ops/1");
    qp_json_key(&w, "operators");
    qp_json_open(&w, '[');
    for (size_t i = 0; (info = qplan_op_at(i)) != NULL; i++)
        put_operator(&w, info, limit);
    qp_json_close(&w, ']');
    qp_json_close(&w, '}');
    qp_puts(&w, "\n");
    enum qplan_status status = qp_writer_finish(&w, "operators", err);
    qp_writer_free(&w);
    return status;
}

enum qplan_status qplan_op_result_write_json(const struct qplan_op_result *result,
                                             qplan_write_fn write, void *ctx,
                                             struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_stream(&w, write, ctx);
    qp_json_open(&w, '{');
    put_pair(&w, "schema", "qplan-op/1");
    put_pair(&w, "op", result->sku.op);
    put_sku(&w, &result->sku);
    qp_json_key(&w, "nonfinite");
    qp_json_put_u64(&w, result->counts.nonfinite);
    qp_json_key(&w, "skipped");
    qp_json_put_u64(&w, result->counts.skipped);
    qp_json_key(&w, "overflow");
    qp_json_put_u64(&w, result->counts.overflow);
    qp_json_close(&w, '}');
    qp_puts(&w, "\n");
    enum qplan_status status = qp_writer_finish(&w, "result", err);
    qp_writer_free(&w);
    return status;
}

/* ---- Text -------------------------------------------------------------------------------------
 */

enum qplan_status qplan_op_list_write_text(enum qplan_isa limit, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err)
{
    struct qp_writer w;
    const struct qplan_op_info *info;
    qp_writer_stream(&w, write, ctx);
    for (size_t i = 0; (info = qplan_op_at(i)) != NULL; i++) {
        struct qplan_op_sku sku;
        bool picked;
        qp_printf(&w, "%-32s  %s\n", info->name, info->summary);
        for (size_t k = 0; qplan_op_kernel(info, k, limit, &sku, &picked); k++) {
            char guarantee[SKU_TEXT];
            (void)qplan_op_guarantee_print(&sku.guarantee, guarantee, sizeof guarantee);
            qp_printf(&w, "  %c %-5s %s %-7s %s\n", picked ? '*' : ' ', sku.dtypes,
                      qplan_backend_name(sku.backend), sku.arch, guarantee);
        }
    }
    qp_puts(&w, "\n* is what this machine picks.\n");
    enum qplan_status status = qp_writer_finish(&w, "operators", err);
    qp_writer_free(&w);
    return status;
}

/* "whole number from 1 to 2^58, or none": what a field takes. */
static void describe_value(struct qp_writer *w, const struct qplan_op_field_info *field)
{
    if (field->type == QPLAN_FIELD_NAME) {
        qp_puts(w, field->names);
        return;
    }
    qp_puts(w, type_name(field));
    if (field->type == QPLAN_FIELD_INT && field->least > -(int64_t)QP_OP_MAX_ELEMS)
        qp_printf(w, " >= %" PRId64, field->least);
    if (field->type == QPLAN_FIELD_INT && field->most < (int64_t)QP_OP_MAX_ELEMS)
        qp_printf(w, " <= %" PRId64, field->most);
    if (field->names)
        qp_printf(w, " or %s", field->names);
}

static void describe_fields(struct qp_writer *w, const struct qplan_op_info *info)
{
    qp_puts(w, "\nfields:\n");
    for (size_t i = 0; i < info->n_fields; i++) {
        const struct qplan_op_field_info *field = &info->fields[i];
        qp_printf(w, "  %s: ", field->name);
        describe_value(w, field);
        if (!field->fallback)
            qp_puts(w, ", required");
        else if (field->fallback[0] == '(')
            qp_printf(w, ", default %.*s", (int)strlen(field->fallback) - 2, field->fallback + 1);
        else
            qp_printf(w, ", default %s", field->fallback);
        qp_printf(w, "\n      %s\n", field->about);
    }
    if (info->n_fields == 0)
        qp_puts(w, "  none\n");
}

static void describe_arguments(struct qp_writer *w, const struct qplan_op_info *info)
{
    static const char *const directions[] = {
        [QPLAN_OP_IN] = "input",
        [QPLAN_OP_OUT] = "output",
        [QPLAN_OP_UPDATE] = "output, with accumulate also input",
    };
    qp_puts(w, "\ntensors:\n");
    for (size_t i = 0; i < info->n_arguments; i++) {
        const struct qplan_op_argument_info *argument = &info->arguments[i];
        qp_printf(w, "  %s: %s%s, %s, %s%s\n", argument->name, directions[argument->direction],
                  argument->optional ? ", optional" : "", argument->dtypes, argument->shape,
                  argument->in_place ? "; an output may be this very tensor" : "");
    }
}

static void describe_kernels(struct qp_writer *w, const struct qplan_op_info *info,
                             enum qplan_isa limit)
{
    struct qplan_op_sku sku;
    bool picked;
    qp_puts(w, "\nkernels (* is what this machine picks):\n");
    for (size_t i = 0; qplan_op_kernel(info, i, limit, &sku, &picked); i++) {
        char text[SKU_TEXT], guarantee[SKU_TEXT];
        (void)qplan_op_sku_print(&sku, text, sizeof text);
        (void)qplan_op_guarantee_print(&sku.guarantee, guarantee, sizeof guarantee);
        qp_printf(w, "  %c %s\n      %s\n", picked ? '*' : ' ', text, guarantee);
    }
}

/* The refusals that all operators share; what a field or tensor must be is said above them. */
static void describe_errors(struct qp_writer *w)
{
    qp_puts(w, "\nerrors:\n"
               "  usage        an unknown field or name, a value that does not parse, a required\n"
               "               field left out, a field given twice\n"
               "  invalid      a field out of range or at odds with another; a tensor missing,\n"
               "               unknown, of another dtype, rank or shape; buffers that overlap\n"
               "  value        a number in a tensor; the message has its place\n"
               "  unsupported  no kernel here does it\n");
}

enum qplan_status qplan_op_describe_write(const struct qplan_op_info *info, enum qplan_isa limit,
                                          qplan_write_fn write, void *ctx, struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_stream(&w, write, ctx);
    qp_printf(&w, "%s: %s\n\nformula:\n  %s\n", info->name, info->summary, info->formula);
    describe_fields(&w, info);
    describe_arguments(&w, info);
    describe_kernels(&w, info, limit);
    describe_errors(&w);
    qp_printf(&w, "\noracle:\n  %s\n", info->oracle);
    enum qplan_status status = qp_writer_finish(&w, info->name, err);
    qp_writer_free(&w);
    return status;
}
