/*
 * soak_library.c - random jobs of the library in one process for a while: nothing may pile up.
 *
 *   soak-library SECONDS SEED FOLDER FILE...
 *
 * FILEs are checkpoints, whole or broken; outputs go to FOLDER and are removed again. Faults come
 * from preload.c, if it is loaded. After each job all is closed; memory in use, open descriptors
 * and resident memory must be what they were after the first jobs. Exit 1 if they are not, or if a
 * job ends in a way that it must not.
 */
#include "lib/qplan.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP    300 /* jobs until all that is made once is made */
#define HEAP_SLACK ((size_t)64 << 10)
#define RSS_SLACK  ((size_t)32 << 20)

static const char *const schemes[] = {"int8:c0",       "int8:t",      "int8:c1",
                                      "int4:g32:asym", "uint8:b16x8", "uint4:g16:f16",
                                      "int8:c0",       "int8:g7",     "int8:c0:narrow"};

struct soak {
    char **files;
    size_t n_files;
    char out[4096], back[4096];
    unsigned long jobs, failed; /* failed: with a status that a fault explains */
};

static size_t choose(size_t n)
{
    return (size_t)random() % n;
}

/* Whether a status is one that jobs may end with; a bug of the library ends the soak. */
static bool usual(struct soak *soak, enum qplan_status status, const struct qplan_error *err)
{
    soak->failed += status != QPLAN_OK;
    if (status != QPLAN_ERR_INTERNAL)
        return true;
    (void)fprintf(stderr, "job %lu: %s: %s\n", soak->jobs, err->subject, err->message);
    return false;
}

static int ignore(void *ctx, const void *bytes, size_t n)
{
    (void)ctx, (void)bytes, (void)n;
    return 0;
}

static void show(struct qplan_report *report)
{
    if (report && choose(2) == 0)
        (void)qplan_report_write_json(report, ignore, NULL, NULL);
    else if (report)
        (void)qplan_report_write_text(report, true, ignore, NULL, NULL);
    qplan_report_free(report);
}

static enum qplan_status quantize(struct soak *soak, const struct qplan_checkpoint *source,
                                  const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_plan_options options = {.indivisible = (enum qplan_indivisible)choose(3)};
    const char *scheme = schemes[choose(sizeof schemes / sizeof schemes[0])];
    struct qplan_plan *plan = NULL;
    struct qplan_report *report = NULL;
    enum qplan_status status = qplan_scheme_parse(&options.scheme, scheme, err);
    if (status == QPLAN_OK)
        status = qplan_plan_make(&plan, source, &options, err);
    if (status == QPLAN_OK) {
        const struct qplan_quantize_options how = {.out_path = soak->out, .verify = choose(2)};
        (void)qplan_plan_write_json(plan, ignore, NULL, NULL);
        status = qplan_quantize(&report, plan, &how, run, err);
        show(report);
    }
    qplan_plan_free(plan);
    return status;
}

/* What was written is looked at, proven and decoded. */
static enum qplan_status look_at(struct soak *soak, const struct qplan_checkpoint *source,
                                 const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_checkpoint *written = NULL;
    struct qplan_report *report = NULL;
    enum qplan_status status = qplan_checkpoint_open(&written, soak->out, err);
    if (status == QPLAN_OK) {
        const struct qplan_inspect_options options = {.against = source, .prove = choose(2)};
        status = qplan_inspect(&report, written, &options, run, err);
        show(report);
    }
    if (status == QPLAN_OK) {
        report = NULL;
        status = qplan_dequantize(&report, written, soak->back, NULL, run, err);
        show(report);
    }
    qplan_checkpoint_close(written);
    return status;
}

static bool job(struct soak *soak)
{
    const struct qplan_run run = {.threads = 1 + (unsigned)choose(4),
                                  .memory_bytes = choose(2) ? (uint64_t)4 << 20 : 0,
                                  .force = choose(2)};
    struct qplan_checkpoint *source = NULL;
    struct qplan_error err = {.status = QPLAN_OK};
    soak->jobs++;
    enum qplan_status status =
        qplan_checkpoint_open(&source, soak->files[choose(soak->n_files)], &err);
    if (status == QPLAN_OK)
        status = quantize(soak, source, &run, &err);
    if (status == QPLAN_OK)
        status = look_at(soak, source, &run, &err);
    qplan_checkpoint_close(source);
    (void)unlink(soak->out);
    (void)unlink(soak->back);
    return usual(soak, status, &err);
}

/* ---- What must not grow ------------------------------------------------------------------------
 */

struct use {
    size_t heap, rss;
    unsigned fds;
};

/* The names in a folder without the two that every folder has; one more where it is open itself. */
static unsigned names_in(const char *path)
{
    unsigned n = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        n++;
    if (folder)
        (void)closedir(folder);
    return n;
}

static size_t resident(void)
{
    unsigned long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lu %lu", &all, &pages) != 2)
        pages = 0;
    if (file)
        (void)fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static struct use measure(void)
{
    return (struct use){mallinfo2().uordblks, resident(), names_in("/proc/self/fd")};
}

static bool flat(const struct use *first, const struct use *last)
{
    return last->heap <= first->heap + HEAP_SLACK && last->rss <= first->rss + RSS_SLACK &&
           last->fds == first->fds;
}

int main(int argc, char **argv)
{
    struct soak soak = {.files = argv + 4, .n_files = (size_t)(argc - 4)};
    if (argc < 5)
        return 2;
    const time_t end = time(NULL) + strtol(argv[1], NULL, 10);
    const unsigned names = names_in(argv[3]);
    struct use first = {0}, last = {0};
    srandom((unsigned)strtoul(argv[2], NULL, 10));
    (void)snprintf(soak.out, sizeof soak.out, "%s/out.safetensors", argv[3]);
    (void)snprintf(soak.back, sizeof soak.back, "%s/back.safetensors", argv[3]);
    do {
        if (!job(&soak))
            return 1;
        if (soak.jobs == WARM_UP)
            first = measure();
    } while (time(NULL) < end || soak.jobs < 2 * WARM_UP);
    last = measure();
    (void)printf("%lu jobs, %lu with an error; heap %zu to %zu, resident %zu to %zu, "
                 "descriptors %u to %u, names %u to %u\n",
                 soak.jobs, soak.failed, first.heap, last.heap, first.rss, last.rss, first.fds,
                 last.fds, names, names_in(argv[3]));
    return flat(&first, &last) && names == names_in(argv[3]) ? 0 : 1;
}
