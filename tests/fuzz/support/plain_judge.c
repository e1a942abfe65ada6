/*
 * plain_judge.c - the promises of verify and dequantize, element by element.
 */
#include "plain_judge.h"

#include "plain_quantizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *bytes_of(const struct judged *file, const struct qplan_entry *entry)
{
    return file->bytes->data + file->checkpoint->source.files[0].header_bytes + entry->begin;
}

/* Whether a stored tensor has the name, the shape and this type of a tensor. */
static bool stands_for(const struct qplan_entry *entry, const struct qp_tensor *tensor,
                       enum qplan_storage storage)
{
    return entry && entry->name_len == tensor->name_len &&
           memcmp(entry->name, tensor->name, tensor->name_len) == 0 &&
           (enum qplan_storage)entry->storage == storage &&
           qp_same_shape(entry->shape, entry->rank, tensor->shape, tensor->rank);
}

static bool is_copy(const struct judged *file, const struct qp_tensor *tensor, const char *bytes)
{
    return memcmp(bytes, bytes_of(file, tensor->entry),
                  (size_t)(tensor->entry->end - tensor->entry->begin)) == 0;
}

/* ---- Codes ------------------------------------------------------------------------------------
 */

static bool has_spare_bits(const struct plain_tensor *t)
{
    const uint64_t used = t->last * t->bits % 8; /* bits of the last byte of a row, 0 = all */
    for (uint64_t row = 1; used && row <= t->n / t->last; row++) {
        if (t->codes[row * plain_row_bytes(t) - 1] >> used)
            return true;
    }
    return false;
}

static bool has_code_out_of_range(const struct plain_tensor *t)
{
    for (uint64_t i = 0; i < t->n; i++) {
        const struct plain_element e = plain_at(t, i);
        if (e.code < t->q_min || e.code > t->q_max)
            return true;
    }
    return false;
}

bool has_bad_codes(const struct judged *file)
{
    for (size_t i = 0; i < file->checkpoint->n_tensors; i++) {
        const struct qp_tensor *tensor = &file->checkpoint->tensors[i];
        struct plain_tensor plain;
        if (!tensor->scheme)
            continue;
        plain_open(&plain, file->checkpoint, file->bytes, tensor);
        if (has_spare_bits(&plain) || has_code_out_of_range(&plain))
            return true;
    }
    return false;
}

/* ---- Verify -----------------------------------------------------------------------------------
 */

/* The end of what the codes of a set represent that is nearer to an infinity. */
static double end_near(const struct plain_tensor *t, const struct plain_element *e, double x)
{
    return plain_decode(t, e, x > 0 ? t->q_max : t->q_min);
}

static void judge_element(const struct plain_tensor *t, uint64_t i, double x)
{
    const struct plain_element e = plain_at(t, i);
    const double y = plain_decode(t, &e, e.code);
    promise(e.scale > 0 && !isinf(e.scale), "a proven scale is a finite number above 0");
    if (isnan(x))
        promise(y == 0, "a proven NaN decodes to 0");
    else if (isinf(x))
        promise(y == end_near(t, &e, x), "a proven infinity decodes to the nearer end");
    else
        promise(fabs(x - y) <= plain_bound(t, &e), "a proven element is within its bound");
}

/* The parameters that minmax makes of the sets of a tensor, in the order of its scales. */
static struct plain_params *find_params(const struct plain_tensor *t, const char *values)
{
    const uint64_t n_sets = plain_at(t, t->n - 1).set + 1; /* the last element is in the last set */
    struct plain_range *ranges = calloc(n_sets, sizeof *ranges);
    struct plain_params *params = calloc(n_sets, sizeof *params);
    promise(ranges && params, "memory");
    for (uint64_t i = 0; i < t->n; i++) {
        struct plain_range *range = &ranges[plain_at(t, i).set];
        const double x = plain_get(t->source, values, i);
        if (isnan(x) || isinf(x))
            continue;
        range->low = fmin(range->low, x);
        range->high = fmax(range->high, x);
    }
    for (uint64_t i = 0; i < n_sets; i++)
        params[i] = plain_minmax(t, &ranges[i]);
    free(ranges);
    return params;
}

/* Judges a quantized tensor; returns whether its codes are those of the plain quantizer. */
static bool judge_quantized(const struct plain_tensor *t, const char *values)
{
    struct plain_params *params = find_params(t, values);
    bool same = true;
    for (uint64_t i = 0; i < t->n; i++) {
        const struct plain_element e = plain_at(t, i);
        const double x = plain_get(t->source, values, i);
        promise(e.scale == params[e.set].scale && e.zero == params[e.set].zero,
                "proven parameters are those of minmax");
        judge_element(t, i, x);
        same = same && e.code == plain_code(t, &params[e.set], x);
    }
    free(params);
    return same;
}

static bool judge_tensor(const struct judged *file, const struct qp_tensor *tensor,
                         const char *values)
{
    struct plain_tensor plain;
    if (!tensor->scheme) {
        promise(is_copy(file, tensor, values), "a proven kept tensor is the same");
        return true;
    }
    promise(strcmp(tensor->calibrate, "minmax") == 0, "a proven calibrator is known");
    plain_open(&plain, file->checkpoint, file->bytes, tensor);
    return judge_quantized(&plain, values);
}

bool judge_proven(const struct judged *file, const struct judged *source)
{
    const struct qp_st *st = &source->checkpoint->source.files[0];
    bool same = true;
    promise(st->n_entries == file->checkpoint->n_tensors,
            "as many tensors are proven as there are");
    promise(!has_bad_codes(file), "proven codes are those that the record allows");
    for (size_t i = 0; i < file->checkpoint->n_tensors; i++) {
        const struct qp_tensor *tensor = &file->checkpoint->tensors[i];
        const struct qplan_entry *entry = qp_st_find(st, tensor->name, tensor->name_len);
        promise(stands_for(entry, tensor, (enum qplan_storage)tensor->storage),
                "a proven tensor is in the source");
        same = judge_tensor(file, tensor, bytes_of(source, entry)) && same;
    }
    return same;
}

/* ---- Dequantize -------------------------------------------------------------------------------
 */

static void judge_values(const struct judged *file, const struct qp_tensor *tensor,
                         enum qplan_storage storage, const char *values)
{
    const struct plain_float *form = plain_float_of(storage);
    struct plain_tensor plain;
    plain_open(&plain, file->checkpoint, file->bytes, tensor);
    for (uint64_t i = 0; i < plain.n; i++) {
        const struct plain_element e = plain_at(&plain, i);
        const double y = plain_round(form, plain_decode(&plain, &e, e.code));
        promise(plain_get(form, values, i) == y, "a dequantized value is scale * (code - zero)");
    }
}

void judge_output(const struct judged *file, const char *path, const struct bytes *written,
                  const enum qplan_dtype *dtype)
{
    static const enum qplan_storage storages[QPLAN_DTYPE_COUNT] = {
        [QPLAN_F32] = QPLAN_STORAGE_F32,
        [QPLAN_F16] = QPLAN_STORAGE_F16,
        [QPLAN_BF16] = QPLAN_STORAGE_BF16,
    };
    struct qplan_checkpoint *out;
    promise(qplan_checkpoint_open(&out, path, NULL) == QPLAN_OK && !out->format,
            "the output of dequantize is a plain file");
    promise(qplan_checkpoint_count(out) == file->checkpoint->n_tensors, "it has all tensors");
    const struct judged output = {out, written};
    for (size_t i = 0; i < file->checkpoint->n_tensors; i++) {
        const struct qp_tensor *tensor = &file->checkpoint->tensors[i];
        const struct qplan_entry *entry = qplan_checkpoint_entry(out, i);
        const enum qplan_storage storage =
            tensor->scheme && dtype ? storages[*dtype] : (enum qplan_storage)tensor->storage;
        promise(stands_for(entry, tensor, storage),
                "it has the names, shapes and dtypes of the records");
        if (tensor->scheme)
            judge_values(file, tensor, storage, bytes_of(&output, entry));
        else
            promise(is_copy(file, tensor, bytes_of(&output, entry)),
                    "it has the bytes of kept tensors");
    }
    qplan_checkpoint_close(out);
}
