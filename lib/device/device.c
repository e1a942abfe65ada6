/*
 * device.c - which device a job runs on. Names, the choice of `auto`, and the proof before use.
 */
#include "device.h"

#include "lib/base/alloc.h"
#include "lib/base/pool.h"
#include "lib/base/text.h"
#include "prove.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* The place of a device that was named without a number. */
#define FIRST SIZE_MAX

/* ---- Names ------------------------------------------------------------------------------------
 */

static bool parse_place(const char *text, size_t *place)
{
    *place = 0;
    if (!*text || (text[0] == '0' && text[1]))
        return false;
    for (; *text >= '0' && *text <= '9' && *place < 1000; text++)
        *place = *place * 10 + (size_t)(*text - '0');
    return *text == '\0';
}

/* A backend of devices, with or without ":N"; "auto" is any, without a number. */
static bool parse_name(const char *text, enum qplan_backend *backend, size_t *place)
{
    static const enum qplan_backend named[] = {QPLAN_BACKEND_CUDA, QPLAN_BACKEND_OPENCL};
    *place = FIRST;
    *backend = strcmp(text, "cpu") == 0 ? QPLAN_BACKEND_CPU : QPLAN_BACKEND_ANY;
    if (*backend == QPLAN_BACKEND_CPU || strcmp(text, "auto") == 0)
        return true;
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        const char *name = qplan_backend_name(named[i]);
        const size_t n = strlen(name);
        *backend = named[i];
        if (strncmp(text, name, n) == 0)
            return !text[n] || (text[n] == ':' && parse_place(text + n + 1, place));
    }
    return false;
}

enum qplan_status qplan_device_open(struct qplan_device **out, const char *name,
                                    uint64_t memory_bytes, struct qplan_error *err)
{
    struct qplan_device *device = qp_alloc(1, sizeof *device);
    *out = NULL;
    if (!device)
        return qp_fail_memory(err, "device", sizeof *device);
    device->memory_bytes = memory_bytes;
    if (!parse_name(name, &device->backend, &device->place)) {
        char shown[QP_QUOTED];
        qp_free(device);
        return qp_fail(err, QPLAN_ERR_USAGE, "device",
                       "unknown device: expected auto, cpu, cuda[:N] or opencl[:N], found %s",
                       qp_quote(shown, name, strlen(name)));
    }
    *out = device;
    return QPLAN_OK;
}

void qplan_device_close(struct qplan_device *device)
{
    if (!device)
        return;
    if (device->gpu)
        device->gpu->backend->close(device->gpu);
    qp_free(device);
}

const char *qplan_device_used(const struct qplan_device *device)
{
    return device && device->used ? device->gpu->info.label : NULL;
}

/* ---- Opening one ------------------------------------------------------------------------------
 */

static enum qplan_status refuse(const struct qp_device_info *info, const char *reason,
                                struct qplan_error *err)
{
    return qp_fail(err, QPLAN_ERR_DEVICE, info->label, "the device cannot be used: %s (%s)", reason,
                   info->name);
}

static enum qplan_status open_place(struct qplan_device *device, const struct qp_backend *backend,
                                    const struct qp_device_info *info, size_t place,
                                    struct qplan_error *err)
{
    if (info->reason[0])
        return refuse(info, info->reason, err);
    if (device->memory_bytes && device->memory_bytes < qp_device_proof_bytes())
        return qp_fail(err, QPLAN_ERR_MEMORY, info->label,
                       "the cap on device memory is too small: expected at least %" PRIu64
                       " bytes, found %" PRIu64,
                       qp_device_proof_bytes(), device->memory_bytes);
    QP_TRY(backend->open(&device->gpu, place, err));
    if (!device->memory_bytes)
        device->memory_bytes = info->memory_bytes / 2;
    return QPLAN_OK;
}

static const struct qp_backend *backend_of(enum qplan_backend id)
{
    size_t i = 0;
    while (qp_backends[i] && qp_backends[i]->id != id)
        i++;
    return qp_backends[i];
}

static enum qplan_status open_named(struct qplan_device *device, struct qplan_error *err)
{
    const struct qp_backend *backend = backend_of(device->backend);
    const char *name = qplan_backend_name(device->backend);
    struct qp_device_info infos[QP_MOST_DEVICES];
    char reason[QP_REASON];
    if (!backend)
        return qp_fail(err, QPLAN_ERR_DEVICE, name, "this build has no such backend");
    size_t n = backend->probe(infos, QP_MOST_DEVICES, reason);
    if (n == 0)
        return qp_fail(err, QPLAN_ERR_DEVICE, name, "%s", reason);
    size_t place = device->place == FIRST ? 0 : device->place;
    if (place >= n || place >= QP_MOST_DEVICES)
        return qp_fail(err, QPLAN_ERR_DEVICE, name, "no such device: expected 0 to %zu, found %zu",
                       n - 1, place);
    return open_place(device, backend, &infos[place], place, err);
}

/* ---- What a job needs -------------------------------------------------------------------------
 */

enum qplan_status qp_device_fail_fp64(const struct qplan_device *device, const char *what,
                                      struct qplan_error *err)
{
    return qp_fail(err, QPLAN_ERR_DEVICE, device->gpu->info.label,
                   "the device has no 64-bit floats, which %s needs (%s)", what,
                   device->gpu->info.name);
}

/* The rows of a job. */
static enum qplan_status prove_rows(struct qplan_device *device, const void *what,
                                    struct qplan_error *err)
{
    const struct qp_device_need *need = what;
    char shown[QP_QUOTED];
    if (need->fp64_name && !device->gpu->info.has_fp64)
        return qp_device_fail_fp64(device,
                                   need->measures
                                       ? "measuring errors"
                                       : qp_quote(shown, need->fp64_name, need->fp64_name_len),
                                   err);
    if (need->has_more)
        return qp_fail(err, QPLAN_ERR_DEVICE, device->gpu->info.label,
                       "too many kinds of work in one job: expected at most %d pairs of dtype and "
                       "scheme (%s)",
                       QP_MOST_ROWS, device->gpu->info.name);
    return qp_device_prove_rows(device, need->rows, need->n_rows, err);
}

/* Whether the device that is open can do what a job wants, and may. */
static enum qplan_status prove_wish(struct qplan_device *device, const struct qp_device_wish *wish,
                                    struct qplan_error *err)
{
    QP_TRY(qp_device_check_trust(device, err));
    return wish->prove(device, wish->what, err);
}

/* ---- auto -------------------------------------------------------------------------------------
 */

/*
 * A device takes about a third of a second to open and then as long as the bytes take over the bus;
 * a core quantizes at about 1.5 GB/s. Both are rough and on the side of the CPU.
 */
static bool copying_pays(uint64_t n_bytes, unsigned threads)
{
    const double on_device = 0.3 + (double)n_bytes / 8e9;
    return (double)n_bytes / (1.5e9 * threads) > on_device;
}

static bool try_place(struct qplan_device *device, const struct qp_backend *backend,
                      const struct qp_device_info *info, size_t place,
                      const struct qp_device_wish *wish)
{
    if (info->is_cpu || open_place(device, backend, info, place, NULL) != QPLAN_OK)
        return false;
    if (prove_wish(device, wish, NULL) == QPLAN_OK)
        return true;
    backend->close(device->gpu);
    device->gpu = NULL;
    qp_device_forget(device);
    return false;
}

/*
 * Whether the system has a GPU at all, by the files of its drivers: loading their libraries to ask
 * takes more time and memory than most jobs.
 */
static bool system_has_gpu(void)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/dri", "/dev/kfd", "/dev/dxg",
                                        "/dev/mali0"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (access(files[i], F_OK) == 0)
            return true;
    }
    return false;
}

static bool open_any(struct qplan_device *device, const struct qp_device_wish *wish)
{
    struct qp_device_info infos[QP_MOST_DEVICES];
    char reason[QP_REASON];
    for (size_t i = 0; system_has_gpu() && qp_backends[i]; i++) {
        size_t n = qp_backends[i]->probe(infos, QP_MOST_DEVICES, reason);
        for (size_t k = 0; k < n && k < QP_MOST_DEVICES; k++) {
            if (try_place(device, qp_backends[i], &infos[k], k, wish))
                return true;
        }
    }
    return false;
}

/* A device that an earlier job found is asked whether it can do this one. */
static bool use_any(struct qplan_device *device, const struct qp_device_wish *wish,
                    unsigned threads)
{
    if (!copying_pays(wish->n_bytes, threads ? threads : qp_cpu_count()))
        return false;
    return device->gpu ? prove_wish(device, wish, NULL) == QPLAN_OK : open_any(device, wish);
}

/* ---- Taking -----------------------------------------------------------------------------------
 */

enum qplan_status qp_device_use(struct qplan_device *device, const struct qp_device_wish *wish,
                                unsigned threads, struct qplan_error *err)
{
    if (!device || device->backend == QPLAN_BACKEND_CPU)
        return QPLAN_OK;
    device->used = false;
    if (device->backend == QPLAN_BACKEND_ANY) {
        device->used = use_any(device, wish, threads);
        return QPLAN_OK;
    }
    if (!device->gpu)
        QP_TRY(open_named(device, err));
    QP_TRY(prove_wish(device, wish, err));
    device->used = true;
    return QPLAN_OK;
}

enum qplan_status qp_device_take(struct qplan_device *device, const struct qp_device_need *need,
                                 unsigned threads, struct qplan_error *err)
{
    const struct qp_device_wish wish = {need->n_bytes, prove_rows, need};
    return qp_device_use(device, &wish, threads, err);
}

bool qp_device_wanted(const struct qplan_device *device)
{
    if (!device || device->backend == QPLAN_BACKEND_CPU)
        return false;
    return device->backend != QPLAN_BACKEND_ANY || device->gpu || system_has_gpu();
}

struct qplan_device *qp_device_of(const struct qplan_run *run)
{
    return run && run->device && run->device->used ? run->device : NULL;
}
