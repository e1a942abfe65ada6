/*
 * task.c - the frame around a run of the library: options in, report and summary out. Knows no
 * command.
 */
#include "task.h"
#include "values.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct arg_option device_options[] = {
    {.name = "device",
     .value = "auto|cpu|cuda|opencl",
     .help = "where to compute; cuda:N and opencl:N name one of several\n"
             "devices, which 'qplan devices' lists",
     .fallback = "auto"},
    {.name = "device-memory",
     .value = "SIZE",
     .help = "upper limit of the memory used on the device",
     .fallback = "half of what it has"},
};

static const struct arg_option machine_options[] = {
    {.name = "threads",
     .letter = "T",
     .value = "N",
     .help = "worker threads, 1 to 1024",
     .fallback = "the CPUs that this process may use"},
    {.name = "memory",
     .value = "SIZE",
     .help = "upper limit of the data buffers: bytes, or with K, M, G\n"
             "or T in powers of 1024",
     .fallback = "a few MiB a thread"},
};

#define GROUP(options)                                                                             \
    {                                                                                              \
        "Machine", options, sizeof(options) / sizeof(options)[0]                                   \
    }

const struct arg_group task_device_options = GROUP(device_options);
const struct arg_group task_machine_options = GROUP(machine_options);

/* ---- Options ----------------------------------------------------------------------------------*/

enum qplan_status task_open_device(struct qplan_device **out, const struct args *args,
                                   struct qplan_error *err)
{
    uint64_t memory_bytes = 0;
    CLI_TRY(value_size(args, "device-memory", &memory_bytes, err));
    const char *name = args_value(args, "device");
    enum qplan_status status = qplan_device_open(out, name ? name : "auto", memory_bytes, err);
    if (status == QPLAN_ERR_USAGE)
        (void)snprintf(err->subject, sizeof err->subject, "--device");
    return status;
}

static enum qplan_status read_machine(struct qplan_run *run, const struct args *args,
                                      struct qplan_error *err)
{
    CLI_TRY(task_open_device(&run->device, args, err));
    int64_t threads = 0;
    CLI_TRY(value_whole(args, "threads", (struct whole_range){1, 1024}, &threads, err));
    run->threads = (unsigned)threads;
    CLI_TRY(value_size(args, "memory", &run->memory_bytes, err));
    const char *isa = getenv("QPLAN_CPU");
    if (!isa || !*isa)
        return QPLAN_OK;
    enum qplan_status status = qplan_isa_parse(isa, &run->isa, err);
    if (status != QPLAN_OK)
        (void)snprintf(err->subject, sizeof err->subject, "QPLAN_CPU");
    return status;
}

enum qplan_status task_begin(struct task *task, const struct args *args, struct qplan_error *err)
{
    *task = (struct task){.quiet = args_has(args, "quiet"), .json = args_has(args, "json")};
    task->run.cancel = &cli_signal;
    task->began = cli_now();
    if (progress_wanted() && !task->quiet) {
        task->run.progress = progress_draw;
        task->run.progress_ctx = &task->progress;
    }
    return read_machine(&task->run, args, err);
}

enum qplan_status task_read_gates(struct task *task, const struct args *args,
                                  struct qplan_error *err)
{
    const char *const *texts;
    const size_t n = args_values(args, "fail-if", &texts);
    int64_t least = QPLAN_GATE_ELEMENTS;
    CLI_TRY(value_whole(args, "gate-min-elements", (struct whole_range){0, VALUE_MAX_EXTENT},
                        &least, err));
    if (n == 0 && args_has(args, "gate-min-elements"))
        return cli_fail(err, QPLAN_ERR_USAGE, "--gate-min-elements", "needs --fail-if");
    task->gates = calloc(n + 1, sizeof *task->gates);
    if (!task->gates)
        return cli_fail_memory(err);
    for (; task->n_gates < n; task->n_gates++) {
        CLI_TRY(qplan_gate_parse(&task->gates[task->n_gates], texts[task->n_gates], err));
        qplan_gate_set_least(task->gates[task->n_gates], (uint64_t)least);
    }
    return QPLAN_OK;
}

const struct qplan_gate *const *task_gates(const struct task *task)
{
    return (const struct qplan_gate *const *)task->gates;
}

void task_end(struct task *task)
{
    for (size_t i = 0; i < task->n_gates; i++)
        qplan_gate_free(task->gates[i]);
    free(task->gates);
    qplan_device_close(task->run.device);
}

/* ---- Paths ------------------------------------------------------------------------------------*/

enum qplan_status task_check_path(const char *subject, const char *path, struct qplan_error *err)
{
    if (!*path)
        return cli_fail(err, QPLAN_ERR_USAGE, subject, "expected a path, found ''");
    if (strcmp(path, "-") != 0)
        return QPLAN_OK;
    (void)cli_fail(err, QPLAN_ERR_USAGE, subject,
                   "a model cannot be piped: expected a path, found '-'");
    cli_hint(err, "tensors are read and written by position; for a file called '-' say './-'");
    return QPLAN_ERR_USAGE;
}

enum qplan_status task_model_path(const struct args *args, size_t place, const char *name,
                                  const char **out, struct qplan_error *err)
{
    const char *const *operands;
    (void)args_operands(args, &operands);
    *out = operands[place];
    return task_check_path(name, *out, err);
}

enum qplan_status task_output_path(const struct args *args, const char **out,
                                   struct qplan_error *err)
{
    *out = args_value(args, "output");
    return *out ? task_check_path("--output", *out, err) : QPLAN_OK;
}

char *task_path_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    const bool is_dots = strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
    const size_t n_folder = is_dots ? strlen(path) : (size_t)(last - path);
    const char *up = is_dots ? "/../" : "";
    const size_t n_out = n_folder + strlen(up) + strlen(name) + 1;
    char *out = malloc(n_out);
    if (out)
        (void)snprintf(out, n_out, "%.*s%s%s", (int)n_folder, path, up, name);
    return out;
}

/* ---- Results ----------------------------------------------------------------------------------*/

static enum qplan_status write_report(const struct task *task, enum task_report form,
                                      const struct qplan_report *report, struct qplan_error *err)
{
    enum qplan_status status = QPLAN_OK;
    if (task->json)
        status = qplan_report_write_json(report, cli_write_stdout, NULL, err);
    else if (form != TASK_REPORT_JSON_ONLY)
        status = qplan_report_write_text(report, form == TASK_REPORT_EVERY_TENSOR, cli_write_stdout,
                                         NULL, err);
    return cli_finish_stdout(status, "report", err);
}

enum qplan_status task_show(struct task *task, enum task_report form, enum qplan_status status,
                            const struct qplan_report *report, struct qplan_error *err)
{
    progress_end(&task->progress);
    if (!report)
        return status;
    for (size_t i = 0; i < qplan_report_warning_count(report); i++)
        cli_print_warning(qplan_report_warning(report, i));
    for (size_t i = 0; i < qplan_report_gate_failures(report); i++)
        cli_print_gate(qplan_report_gate_failure(report, i));
    if (status == QPLAN_OK)
        return write_report(task, form, report, err);
    /* The run has failed already: a lost report is told, but does not hide that. */
    struct qplan_error lost;
    if (write_report(task, form, report, &lost) != QPLAN_OK)
        cli_print_error(&lost);
    return status;
}

void task_summary(const struct task *task, const char *fmt, ...)
{
    if (task->quiet)
        return;
    char text[8 * CLI_SHOWN];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *device = qplan_device_used(task->run.device);
    fprintf(stderr, "%s, %s%s, %.1f s\n", text, device ? device : "cpu ",
            device ? "" : qplan_isa_name(qplan_isa_used(task->run.isa)), cli_now() - task->began);
}
