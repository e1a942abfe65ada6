/*
 * test_op_levels.c - the instruction sets of operators: a row offers every level that its kernels
 * have, and every level gives the bits of the scalar kernels on the examples of all rows.
 */
#include "tests/unit/support.h"

#include "kernels/ops/affine.h"
#include "lib/ops/op_example.h"

/* ---- What rows offer --------------------------------------------------------------------------
 */

static bool begins(const char *name, const char *part)
{
    return strncmp(name, part, strlen(part)) == 0;
}

/* Whether codes are made or decoded, by the kernels that quantize tiles of checkpoints. */
static bool works_on_codes(const char *name)
{
    const bool codes = begins(name, "quantize_") || begins(name, "dequantize_") ||
                       begins(name, "dynamic_quantize_");
    return codes && !strstr(name, "_backward");
}

/* The instruction set of the kernel that a row picks for a dtype under a limit. */
static const char *picked_arch(const struct qplan_op_info *info, const char *dtype,
                               enum qplan_isa limit)
{
    static struct qplan_op_sku sku;
    bool picked;
    for (size_t i = 0; qplan_op_kernel(info, i, limit, &sku, &picked); i++) {
        if (picked && strcmp(sku.dtypes, dtype) == 0)
            return sku.arch;
    }
    return NULL;
}

/* Rows name levels; the tables of kernels have them. Neither may promise less than the other. */
static void test_every_level_is_offered(void **state)
{
    static const enum qplan_dtype dtypes[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
    static const char *const storages[] = {"F32", "F16", "BF16", "F64"};
    const struct qplan_op_info *info;
    size_t n = 0;
    (void)state;
    for (size_t k = 0; (info = qplan_op_at(k)) != NULL; k++) {
        if (strcmp(info->category, "quantize") != 0 || qp_op_row_of(info)->on_host)
            continue;
        for (size_t i = 0; i < COUNT(dtypes) * qp_isa_detect(); i++) {
            const enum qplan_isa limit = (enum qplan_isa)(1 + i / COUNT(dtypes));
            const enum qplan_dtype dtype = dtypes[i % COUNT(dtypes)];
            const char *arch = picked_arch(info, storages[i % COUNT(dtypes)], limit);
            const enum qplan_isa isa = works_on_codes(info->name)
                                           ? qp_source_kernels(dtype, limit)->isa
                                           : qp_affine_kernels(dtype, limit)->isa;
            if (arch && strcmp(arch, qplan_isa_name(isa)) != 0) /* decoding picks by precision */
                fail_msg("%s of %s: expected %s, found %s", info->name, storages[i % COUNT(dtypes)],
                         qplan_isa_name(isa), arch);
            n += arch != NULL;
        }
    }
    assert_true(n > 100);
}

/* ---- The same bits ----------------------------------------------------------------------------
 */

static enum qplan_status run_at(struct qp_op_example *p, const struct qp_op_row *row,
                                enum qplan_isa isa, struct qplan_error *err)
{
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    const struct qplan_op_desc desc = qp_op_example_desc(p, row);
    struct qplan_op *op;
    preference.isa = isa;
    enum qplan_status status = qplan_op_select(&op, &desc, &preference, err);
    if (status == QPLAN_OK)
        status = qp_op_run_example(p, op, err);
    qplan_op_free(op);
    return status;
}

static size_t check_example(const struct qp_op_row *row, const char *text, enum qplan_storage key)
{
    struct qp_op_example scalar = {0};
    struct qplan_error err;
    size_t n = 0;
    OK(qp_op_read_example(&scalar, row, text, key, &err), &err);
    struct qp_op_example inputs = scalar;
    OK(run_at(&scalar, row, QPLAN_ISA_SCALAR, &err), &err);
    for (enum qplan_isa isa = QPLAN_ISA_SCALAR + 1; isa <= qp_isa_detect(); isa++, n++) {
        struct qp_op_example other = inputs;
        OK(run_at(&other, row, isa, &err), &err);
        if (!qp_op_same_results(&scalar, &other))
            fail_msg("%s of %s at %s: other bits for %s", row->info.name, qplan_storage_name(key),
                     qplan_isa_name(isa), text);
        qp_op_free_tensors(&other, other.n_inputs);
    }
    qp_op_free_tensors(&scalar, 0);
    return n;
}

static void test_every_level_agrees(void **state)
{
    const struct qplan_op_info *info;
    size_t n = 0;
    (void)state;
    for (size_t k = 0; (info = qplan_op_at(k)) != NULL; k++) {
        const struct qp_op_row *row = qp_op_row_of(info);
        uint32_t keys = 0;
        for (size_t i = 0; i < row->n_kernels; i++)
            keys |= row->kernels[i].keys;
        for (unsigned key = 0; key < QPLAN_STORAGE_COUNT; key++) {
            for (size_t i = 0; i < row->n_examples && (keys & QP_BIT(key)); i++)
                n += check_example(row, row->examples[i], (enum qplan_storage)key);
        }
    }
    printf("%zu examples compared with the scalar kernels\n", n);
    assert_true(n > 0 || qp_isa_detect() == QPLAN_ISA_SCALAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_level_is_offered),
        cmocka_unit_test(test_every_level_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
