/*
 * inputs.c - the data that a plan is made with besides its source, as its document names them, and
 * what the output says of that:
 *
 *     "inputs":{"importance":["DIGITS",...],"hessian":["DIGITS"],"hessian_damp":"0.01"}
 *
 * Digits are those of the SHA-256 of files, in the order in which they are read. What is not used
 * is absent.
 */
#include "plan.h"

#include "lib/base/json.h"
#include "lib/base/json_tree.h"

#include <stdio.h>
#include <string.h>

void qp_plan_settle_making(struct qplan_plan *plan)
{
    struct qp_making *making = &plan->making;
    bool is_weighed = false, is_rounded = false;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        is_weighed |= qp_is_weighed(&plan->tensors[i]);
        is_rounded |= qp_is_rounded(&plan->tensors[i]);
    }
    if (!is_weighed)
        making->importance.n = 0;
    if (!is_rounded)
        making->hessians.n = 0;
    making->saturates = plan->nonfinite == QPLAN_NONFINITE_SATURATE && plan->n_quantized > 0;
}

enum qplan_status qp_plan_take_damp(const struct qp_making *recorded, double given, double *damp,
                                    struct qplan_error *err)
{
    const double usual = recorded->hessians.n ? recorded->hessian_damp : QPLAN_HESSIAN_DAMP;
    char expected[QP_F64_TEXT], found[QP_F64_TEXT];
    *damp = given > 0 ? given : usual;
    if (*damp == usual || !recorded->hessians.n)
        return QPLAN_OK;
    qp_format_f64(expected, usual);
    qp_format_f64(found, given);
    return qp_fail(err, QPLAN_ERR_INVALID, "hessian-damp",
                   "not the share that was used: expected %s, found %s", expected, found);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void put_digests(struct qp_writer *w, const char *key, const struct qp_digests *digests)
{
    if (digests->n == 0)
        return;
    qp_json_key(w, key);
    qp_json_open(w, '[');
    for (size_t i = 0; i < digests->n; i++)
        qp_json_put_str(w, digests->list[i].text + strlen(QP_DIGEST_PREFIX));
    qp_json_close(w, ']');
}

void qp_plan_put_inputs(struct qp_writer *w, const struct qp_making *making)
{
    char damp[QP_F64_TEXT];
    if (making->importance.n == 0 && making->hessians.n == 0)
        return;
    qp_json_key(w, "inputs");
    qp_json_open(w, '{');
    put_digests(w, "importance", &making->importance);
    put_digests(w, "hessian", &making->hessians);
    if (making->hessians.n > 0) {
        qp_format_f64(damp, making->hessian_damp);
        qp_json_key(w, "hessian_damp");
        qp_json_put_str(w, damp);
    }
    qp_json_close(w, '}');
}

/* ---- Reading --------------------------------------------------------------------------------- */

static enum qplan_status read_digests(const struct qp_tree *tree, const char *key,
                                      const struct qp_tree_value *value, struct qp_arena *arena,
                                      struct qp_digests *out)
{
    static const char expected[] = "an array of 64 hexadecimal digits in lower case for each file";
    char text[2 * QP_DIGEST_TEXT];
    struct qp_digest digest;
    if (!value)
        return QPLAN_OK;
    if (!qp_tree_is_array(value) || value->n == 0)
        return qp_tree_bad(tree, key, expected, NULL);
    const struct qp_tree_value *element = qp_tree_first(value);
    for (uint32_t i = 0; i < value->n; i++, element = qp_tree_next(element)) {
        const char *digits = qp_tree_text(tree, element);
        (void)snprintf(text, sizeof text, QP_DIGEST_PREFIX "%s", digits ? digits : "");
        if (!qp_digest_read(&digest, text, strlen(text)))
            return qp_tree_bad(tree, key, expected, digits);
        QP_TRY(qp_digests_add(out, &digest, arena, tree->err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_plan_read_inputs(const struct qp_tree *tree, const struct qp_tree_value *value,
                                      struct qp_arena *arena, struct qp_making *making)
{
    static const char *const keys[] = {"importance", "hessian", "hessian_damp", NULL};
    const struct qp_tree_value *m[QP_TREE_MAX_KEYS] = {NULL};
    if (!value)
        return QPLAN_OK;
    QP_TRY(qp_tree_members(tree, value, "inputs", keys, m));
    QP_TRY(read_digests(tree, "inputs.importance", m[0], arena, &making->importance));
    QP_TRY(read_digests(tree, "inputs.hessian", m[1], arena, &making->hessians));
    const char *damp = qp_tree_text(tree, m[2]);
    if ((m[1] != NULL) != (m[2] != NULL) ||
        (m[2] &&
         (!damp || !qp_parse_f64(damp, &making->hessian_damp) || !(making->hessian_damp > 0))))
        return qp_tree_bad(tree, "inputs.hessian_damp",
                           "a number above 0 as text beside inputs.hessian", damp);
    return QPLAN_OK;
}
