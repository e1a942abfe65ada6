/*
 * codes.c - shows an operator: a matrix of the caller's own becomes codes, with one scale per row,
 * and the operator says which kernel it is and what it guarantees.
 *
 *     cc -o codes codes.c $(pkg-config --cflags --libs qplan)
 */
#include <qplan.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    float weight[2][4] = {{0.5f, -1.0f, 0.25f, 1.0f}, {3.0f, 2.0f, -4.0f, 0.0f}};
    float scale[2] = {0.0078125f, 0.03125f};
    signed char codes[2][4];
    int64_t shape[] = {2, 4}, sets[] = {2};
    struct qplan_tensor tensors[] = {
        {"input", QPLAN_STORAGE_F32, 2, shape, NULL, weight, sizeof weight},
        {"scale", QPLAN_STORAGE_F32, 1, sets, NULL, scale, sizeof scale},
        {"output", QPLAN_STORAGE_I8, 2, shape, NULL, codes, sizeof codes},
    };
    struct qplan_op_field fields[] = {{.name = "axis", .number = 0}};
    struct qplan_op_desc desc = {"quantize_per_channel", fields, 1, tensors, 3};
    struct qplan_op_args args = {tensors, 3, NULL};
    struct qplan_op *op;
    struct qplan_error err;
    char text[256];

    enum qplan_status status = qplan_op_select(&op, &desc, NULL, &err);
    if (status == QPLAN_OK) {
        uint64_t n_bytes = qplan_op_workspace_size(op);
        void *workspace = malloc(n_bytes);
        status = qplan_op_run(op, NULL, workspace, workspace ? n_bytes : 0, &args, &err);
        free(workspace);
    }
    if (status != QPLAN_OK) {
        fprintf(stderr, "%s: %s\n", err.subject, err.message);
        qplan_op_free(op);
        return 1;
    }
    for (int i = 0; i < 2; i++)
        printf("%4d %4d %4d %4d\n", codes[i][0], codes[i][1], codes[i][2], codes[i][3]);
    qplan_op_sku_print(qplan_op_sku(op), text, sizeof text);
    printf("%s\n", text);
    qplan_op_guarantee_print(qplan_op_precision_guarantee(op), text, sizeof text);
    printf("%s\n", text);
    qplan_op_free(op);
    return 0;
}
