/*
 * op_pick.c - which kernel takes a problem, and what that means: workers, workspace, SKU and
 * guarantee. Everything follows from the rows; nothing is claimed by hand.
 */
#include "lib/device/device.h"
#include "op.h"

#include "kernels/kernel.h"
#include "lib/base/check.h"
#include "lib/base/pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Guarantees -------------------------------------------------------------------------------
 */

static struct qplan_op_guarantee make_guarantee(const struct qp_op_kernel *kernel,
                                                enum qplan_dtype work, bool correctly_rounded)
{
    struct qplan_op_guarantee g = {
        .math_precision = qplan_dtype_name(work),
        .accumulator = "none",
        .deterministic = !kernel->unordered,
        .bit_stable = !kernel->unordered && !kernel->host_math,
        .thread_invariant = !kernel->unordered,
        .correctly_rounded = correctly_rounded,
    };
    if (kernel->class == QP_OP_COPY) {
        g.math_precision = "copy";
        g.correctly_rounded = true;
    } else if (kernel->unordered) { /* added to the results themselves */
        g.accumulator = g.math_precision;
    } else if (kernel->class == QP_OP_SUM) {
        g.math_precision = "f64";
        g.accumulator = work == QPLAN_F64 ? "f64x2" : "f64";
    } else if (kernel->class == QP_OP_WIDE) {
        g.math_precision = "f64";
    } else if (kernel->class == QP_OP_TAPS || kernel->class == QP_OP_TAP_SUM) {
        const bool errors = kernel->class == QP_OP_TAP_SUM && work == QPLAN_F64;
        g.accumulator = errors ? "f64x2" : "f64";
    }
    return g;
}

size_t qplan_op_guarantee_print(const struct qplan_op_guarantee *g, char *out, size_t n_bytes)
{
    const bool sums = strcmp(g->accumulator, "none") != 0;
    return (size_t)snprintf(out, n_bytes, "%s%s%s%s%s%s%s", g->math_precision,
                            sums ? ", accumulator " : "", sums ? g->accumulator : "",
                            g->deterministic ? ", deterministic" : ", not deterministic",
                            g->bit_stable      ? ", bit-stable"
                            : g->deterministic ? ", not bit-stable"
                                               : "",
                            g->thread_invariant ? ", thread-invariant" : "",
                            g->correctly_rounded ? ", correctly rounded" : "");
}

/* ---- SKUs -------------------------------------------------------------------------------------
 */

size_t qplan_op_sku_print(const struct qplan_op_sku *sku, char *out, size_t n_bytes)
{
    return (size_t)snprintf(out, n_bytes, "%s/%s/%s/%s/%s", sku->category, sku->op, sku->dtypes,
                            qplan_backend_name(sku->backend), sku->arch);
}

/* FNV-1a of the text and of the guarantee. */
uint64_t qplan_op_sku_hash(const struct qplan_op_sku *sku)
{
    char text[512];
    size_t n = qplan_op_sku_print(sku, text, sizeof text);
    n = n < sizeof text ? n : sizeof text - 1;
    (void)qplan_op_guarantee_print(&sku->guarantee, text + n, sizeof text - n);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return hash;
}

/* "F32,F32,I32>I8": of the arguments that the problem has, outputs behind the sign. */
static void put_dtypes(const struct qplan_op *op, char *out, size_t n_out)
{
    size_t used = 0;
    for (int written = 0; written < 2; written++) {
        const char *joint = written ? ">" : "";
        for (size_t i = 0; i < op->row->info.n_arguments; i++) {
            const struct qp_op_tensor *tensor = &op->tensors[i];
            bool has = written ? tensor->written : tensor->read && !tensor->written;
            if (!has || used >= n_out)
                continue;
            used += (size_t)snprintf(out + used, n_out - used, "%s%s", joint,
                                     qplan_storage_name(tensor->dtype));
            joint = ",";
        }
    }
}

/* A kernel for devices is one of any backend, until it has been picked for a device. */
static struct qplan_op_sku make_sku(const struct qp_op_row *row, const struct qp_op_kernel *kernel,
                                    enum qplan_dtype work, bool correctly_rounded)
{
    struct qplan_op_sku sku = {.category = row->info.category,
                               .op = row->info.name,
                               .backend = kernel->backend,
                               .guarantee = make_guarantee(kernel, work, correctly_rounded)};
    (void)snprintf(sku.arch, sizeof sku.arch, "%s",
                   qp_op_is_for_devices(kernel) ? "device" : qplan_isa_name(kernel->isa));
    return sku;
}

/* The name of the device, as one word. */
static void put_device(const struct qp_gpu *gpu, struct qplan_op_sku *sku)
{
    sku->backend = gpu->backend->id;
    (void)snprintf(sku->arch, sizeof sku->arch, "%.*s", (int)sizeof sku->arch - 1, gpu->info.name);
    for (char *c = sku->arch; *c; c++)
        *c = *c == ' ' || *c == '/' ? '-' : *c;
}

/* ---- Picking ----------------------------------------------------------------------------------
 */

static enum qplan_isa isa_limit(const struct qplan_op_preference *preference)
{
    const enum qplan_isa best = qp_isa_detect(), limit = preference->isa;
    return limit == QPLAN_ISA_BEST || limit > best ? best : limit;
}

/* Whether a preference lets a kernel take a key, on a device or on the CPU. */
static bool is_allowed(const struct qp_op_kernel *kernel, enum qplan_storage key, bool on_device,
                       const struct qplan_op_preference *preference)
{
    return kernel->isa <= isa_limit(preference) && qp_op_is_for_devices(kernel) == on_device &&
           !(kernel->unordered && preference->deterministic) && (kernel->keys & QP_BIT(key));
}

/*
 * The space to align the workspace is asked for too. For a device, values are checked in what then
 * takes its results and the buffers of those that are made again.
 */
static uint64_t workspace_of(const struct qplan_op *op)
{
    uint64_t n = op->kernel->workspace ? op->kernel->workspace(op) : 0;
    if (op->device)
        n = qp_max_u64(n, qp_max_u64(qp_op_staging_bytes(op), qp_op_check_bytes(op)));
    return n ? n + 64 : 0;
}

/* The workers that were asked for, or fewer where their workspace passes the limit. */
static bool size_team(struct qplan_op *op, const struct qplan_op_preference *preference)
{
    op->n_workers = preference->threads ? preference->threads : qp_cpu_count();
    op->workspace = workspace_of(op);
    while (op->workspace > preference->max_workspace_bytes && op->n_workers > 1) {
        op->n_workers--;
        op->workspace = workspace_of(op);
    }
    return op->workspace <= preference->max_workspace_bytes;
}

/*
 * Sets the first kernel that is allowed and content with the workspace. False if there is none:
 * the kernel is then NULL, or the one that wanted least.
 */
static bool find_kernel(struct qplan_op *op, const struct qplan_op_preference *preference)
{
    const struct qp_op_kernel *least = NULL;
    uint64_t least_bytes = UINT64_MAX;
    for (size_t i = 0; i < op->row->n_kernels; i++) {
        const struct qp_op_kernel *kernel = &op->row->kernels[i];
        if (!is_allowed(kernel, op->key, op->device != NULL, preference) ||
            (kernel->takes && !kernel->takes(op)))
            continue;
        op->kernel = kernel;
        if (size_team(op, preference))
            return true;
        if (!least || op->workspace < least_bytes) {
            least = kernel;
            least_bytes = op->workspace;
        }
    }
    op->kernel = least;
    op->workspace = least_bytes;
    return false;
}

static enum qplan_status fail_pick(const struct qplan_op *op,
                                   const struct qplan_op_preference *preference,
                                   struct qplan_error *err)
{
    const char *subject = op->row->info.name;
    if (op->kernel)
        return qp_fail(err, QPLAN_ERR_UNSUPPORTED, subject,
                       "no kernel with so small a workspace: expected a limit of at least %" PRIu64
                       " bytes, found %" PRIu64,
                       op->workspace, preference->max_workspace_bytes);
    return qp_fail(err, QPLAN_ERR_UNSUPPORTED, subject, "no kernel for %s data",
                   qplan_storage_name(op->key));
}

enum qplan_status qp_op_pick(struct qplan_op *op, const struct qplan_op_preference *preference,
                             struct qplan_error *err)
{
    if (preference->threads > 1024)
        return qp_fail(err, QPLAN_ERR_USAGE, op->row->info.name,
                       "threads: expected at most 1024, found %u", preference->threads);
    QP_TRY(qp_op_take_device(op, preference, err));
    bool found = find_kernel(op, preference);
    if (!found && op->device && op->device->backend == QPLAN_BACKEND_ANY) { /* auto: else the CPU */
        op->device = NULL;
        found = find_kernel(op, preference);
    }
    if (!found)
        return fail_pick(op, preference, err);
    op->isa = op->device ? isa_limit(preference) : op->kernel->isa;
    op->sku = make_sku(op->row, op->kernel, op->work, op->correctly_rounded);
    if (op->device)
        put_device(op->device->gpu, &op->sku);
    put_dtypes(op, op->sku.dtypes, sizeof op->sku.dtypes);
    return QPLAN_OK;
}

/* ---- Listing ----------------------------------------------------------------------------------
 */

/* Whether a kernel is the first that is allowed to take a key, for some problems at least. */
static bool is_first(const struct qp_op_row *row, const struct qp_op_kernel *kernel,
                     enum qplan_storage key, const struct qplan_op_preference *preference)
{
    const struct qp_op_kernel *k = row->kernels;
    while (k->takes != kernel->takes || !is_allowed(k, key, false, preference)) {
        if (++k == row->kernels + row->n_kernels)
            return false;
    }
    return k == kernel;
}

bool qplan_op_kernel(const struct qplan_op_info *info, size_t i, enum qplan_isa limit,
                     struct qplan_op_sku *sku, bool *picked)
{
    const struct qp_op_row *row = qp_op_row_of(info);
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    preference.isa = limit;
    for (size_t k = 0; k < row->n_kernels; k++) {
        const struct qp_op_kernel *kernel = &row->kernels[k];
        for (unsigned key = 0; key < QPLAN_STORAGE_COUNT; key++) {
            const enum qplan_storage storage = (enum qplan_storage)key;
            if (!(kernel->keys & QP_BIT(key)) || i-- > 0)
                continue;
            *sku = make_sku(row, kernel, qp_op_working(storage), false);
            (void)snprintf(sku->dtypes, sizeof sku->dtypes, "%s", qplan_storage_name(storage));
            *picked = is_first(row, kernel, storage, &preference);
            return true;
        }
    }
    return false;
}
