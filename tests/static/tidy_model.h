/*
 * tidy_model.h - what clang-tidy cannot see, because it looks at one file at a time: a failure
 * function returns the failure it is given, never QPLAN_OK. tidy.sh includes this before each file
 * but those that define the functions.
 */
#ifdef TIDY_CLI
#include "../../cli/cli.h"
#define cli_fail(err, status, ...) ((void)cli_fail(err, status, __VA_ARGS__), (status))
#define cli_fail_errno(...)        ((void)cli_fail_errno(__VA_ARGS__), QPLAN_ERR_IO)
#define cli_fail_memory(err)       ((void)cli_fail_memory(err), QPLAN_ERR_MEMORY)
#else
#include "../../lib/base/error.h"
#include "../../lib/base/json_tree.h"
#include "../../lib/ops/op.h"

#define qp_fail(err, status, ...)    ((void)qp_fail(err, status, __VA_ARGS__), (status))
#define qp_fail_at(err, status, ...) ((void)qp_fail_at(err, status, __VA_ARGS__), (status))
#define qp_fail_errno(...)           ((void)qp_fail_errno(__VA_ARGS__), QPLAN_ERR_IO)
#define qp_fail_memory(...)          ((void)qp_fail_memory(__VA_ARGS__), QPLAN_ERR_MEMORY)
#define qp_op_fail_field(op, status, ...)                                                          \
    ((void)qp_op_fail_field(op, status, __VA_ARGS__), (status))
#define qp_op_fail_tensor(op, status, ...)                                                         \
    ((void)qp_op_fail_tensor(op, status, __VA_ARGS__), (status))
#define qp_tree_bad(...)      ((void)qp_tree_bad(__VA_ARGS__), QPLAN_ERR_INVALID)
#define qp_op_fail_value(...) ((void)qp_op_fail_value(__VA_ARGS__), QPLAN_ERR_VALUE)
#endif
