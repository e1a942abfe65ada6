/*
 * list.c - what backends and devices there are, and why one cannot be used, as a JSON
 * document and as a table for people.
 */
#include "device.h"

#include "lib/base/json.h"
#include "lib/base/text.h"

#include <stdio.h>
#include <string.h>

/* One line: a device, or a backend that has none. */
typedef void (*put_fn)(struct qp_writer *w, const char *backend, const struct qp_device_info *info,
                       size_t place, const char *reason);

/* Tests a device that is usable so far; the reason says what went wrong. */
static void test_device(const struct qp_backend *backend, size_t place, qp_self_test_fn self_test,
                        char reason[QP_REASON])
{
    struct qp_gpu *gpu;
    struct qplan_error err;
    enum qplan_status status = backend->open(&gpu, place, &err);
    if (status == QPLAN_OK)
        status = self_test(gpu, &err);
    backend->close(gpu);
    if (status != QPLAN_OK)
        (void)snprintf(reason, QP_REASON, "%.*s", QP_REASON - 1, err.message);
}

static void put_backend(struct qp_writer *w, const struct qp_backend *backend,
                        qp_self_test_fn self_test, put_fn put)
{
    struct qp_device_info infos[QP_MOST_DEVICES];
    char reason[QP_REASON];
    const char *name = qplan_backend_name(backend->id);
    size_t n = backend->probe(infos, QP_MOST_DEVICES, reason);
    if (n == 0)
        put(w, name, NULL, 0, reason);
    for (size_t i = 0; i < n && i < QP_MOST_DEVICES; i++) {
        if (self_test && !infos[i].reason[0])
            test_device(backend, i, self_test, infos[i].reason);
        put(w, name, &infos[i], i, infos[i].reason);
    }
}

static void put_json(struct qp_writer *w, const char *backend, const struct qp_device_info *info,
                     size_t place, const char *reason)
{
    qp_json_open(w, '{');
    qp_json_key(w, "backend");
    qp_json_put_str(w, backend);
    qp_json_key(w, "id");
    if (info)
        qp_json_put_u64(w, place);
    else
        qp_json_put_null(w);
    qp_json_key(w, "name");
    qp_json_put_str(w, info ? info->name : NULL);
    qp_json_key(w, "memory_bytes");
    if (info)
        qp_json_put_u64(w, info->memory_bytes);
    else
        qp_json_put_null(w);
    qp_json_key(w, "driver");
    qp_json_put_str(w, info ? info->driver : NULL);
    qp_json_key(w, "usable");
    qp_json_put_bool(w, info && !*reason);
    qp_json_key(w, "reason");
    qp_json_put_str(w, *reason ? reason : NULL);
    qp_json_close(w, '}');
}

static void put_text(struct qp_writer *w, const char *backend, const struct qp_device_info *info,
                     size_t place, const char *reason)
{
    char name[QP_QUOTED], driver[QP_QUOTED], why[QP_QUOTED];
    qp_puts(w, backend);
    if (info)
        qp_printf(w, ":%zu  %s, %.1f GB, driver %s%s", place,
                  qp_escape(name, sizeof name, info->name, strlen(info->name)),
                  (double)info->memory_bytes / 1e9,
                  qp_escape(driver, sizeof driver, info->driver, strlen(info->driver)),
                  info->is_cpu ? ", runs on the CPU" : "");
    qp_printf(w, "%s\n", info && !*reason ? ": usable" : "");
    if (*reason)
        qp_printf(w, "    not usable: %s\n", qp_escape(why, sizeof why, reason, strlen(reason)));
}

enum qplan_status qp_devices_write(bool json, qp_self_test_fn self_test, qplan_write_fn write,
                                   void *ctx, struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_stream(&w, write, ctx);
    if (json) {
        qp_json_open(&w, '{');
        qp_json_key(&w, "schema");
        qp_json_put_str(&w, "qplan-devices/1");
        qp_json_key(&w, "devices");
        qp_json_open(&w, '[');
    }
    for (size_t i = 0; qp_backends[i]; i++)
        put_backend(&w, qp_backends[i], self_test, json ? put_json : put_text);
    if (json) {
        qp_json_close(&w, ']');
        qp_json_close(&w, '}');
        qp_puts(&w, "\n");
    }
    enum qplan_status status = qp_writer_finish(&w, "devices", err);
    qp_writer_free(&w);
    return status;
}
