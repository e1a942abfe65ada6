/*
 * soak_library.c - random jobs of the library in one process for a while: nothing may pile up.
 *
 *   soak-library SECONDS SEED FOLDER FILE...
 *
 * FILEs are checkpoints, whole or broken, as files and as folders; beside each are FILE.importance
 * and FILE.hessian. Outputs go to FOLDER and are removed again. Faults come from preload.c, if it
 * is loaded. After each job all is closed; memory in use, open descriptors and resident memory must
 * be what they were after the first jobs. Exit 1 if they are not, or if a job ends in a way that it
 * must not.
 */
#include "lib/qplan.h"

#include <dirent.h>
#include <ftw.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP    300 /* jobs until all that is made once is made */
#define HEAP_SLACK ((size_t)64 << 10)
#define RSS_SLACK  ((size_t)32 << 20)

static const char *const schemes[] = {
    "int8:c0", "int8:t",         "int8:c1", "int4:g32:asym", "uint8:b16x8", "uint4:g16:f16",
    "int8:g7", "int8:c0:narrow", "nf4:g8",  "fp8:c0",        "mxfp4",       "uint3:g8:bias",
};
static const char *const methods[] = {NULL, NULL, "mse", "mse:best", "entropy", "percentile:99"};
static const char *const candidates[] = {"int4:g32,int8:c0,keep", "int8:c0,keep", "int2:t,int8:t"};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct soak {
    char **files;
    size_t n_files;
    const char *file; /* that the job starts from */
    char out[4096], back[4096], other[4096];
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

/* What a plan is asked for, and what that borrows. */
struct asked {
    struct qplan_plan_options options;
    struct qplan_budget budget;
    char path[4096]; /* of importance or of Hessians */
    const char *paths[1];
    bool within; /* the budget */
};

/* A preset, for folders, or a scheme, sometimes with sums of inputs; or several and a target. */
static enum qplan_status ask(struct asked *asked, const struct soak *soak, bool is_folder,
                             struct qplan_error *err)
{
    struct qplan_plan_options *options = &asked->options;
    size_t n_presets = 0;
    while (qplan_preset_at(n_presets))
        n_presets++;
    const struct qplan_preset *preset =
        is_folder && choose(3) ? qplan_preset_at(choose(n_presets)) : NULL;
    *asked = (struct asked){
        .options = {.indivisible =
                        preset ? QPLAN_INDIVISIBLE_KEEP : (enum qplan_indivisible)choose(3),
                    .format = preset ? preset->format : NULL,
                    .activations = preset ? preset->activations : QPLAN_ACTIVATIONS_USUAL,
                    .calibrate = methods[choose(COUNT(methods))]},
        .budget = {.candidates = candidates[choose(COUNT(candidates))], .target_bpw = 6},
        .within = !preset && choose(4) == 0};
    const size_t statistics = choose(6);
    (void)snprintf(asked->path, sizeof asked->path, "%s.%s", soak->file,
                   statistics == 0 ? "importance" : "hessian");
    asked->paths[0] = asked->path;
    if (statistics == 0) {
        options->importance = asked->paths;
        options->n_importance = 1;
        options->calibrate = "mse";
    } else if (statistics == 1) {
        options->hessian = asked->path;
        options->calibrate = NULL;
    }
    return qplan_scheme_parse(&options->scheme,
                              preset ? preset->scheme : schemes[choose(COUNT(schemes))], err);
}

static enum qplan_status make_plan(struct qplan_plan **plan, struct qplan_sensitivity **measured,
                                   const struct qplan_checkpoint *source, const struct asked *asked,
                                   const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_budget_facts facts;
    if (!asked->within)
        return qplan_plan_make(plan, source, &asked->options, err);
    enum qplan_status status =
        qplan_sensitivity_measure(measured, source, &asked->options, &asked->budget, run, err);
    if (status == QPLAN_OK) {
        (void)qplan_sensitivity_write_json(*measured, ignore, NULL, NULL);
        status = qplan_plan_make_within(plan, *measured, &facts, err);
    }
    return status;
}

static enum qplan_status quantize(struct soak *soak, const struct qplan_checkpoint *source,
                                  const struct qplan_run *run, struct qplan_error *err)
{
    struct asked asked;
    struct qplan_plan *plan = NULL;
    struct qplan_sensitivity *measured = NULL;
    struct qplan_report *report = NULL;
    enum qplan_status status = ask(&asked, soak, qplan_checkpoint_is_folder(source), err);
    if (status == QPLAN_OK)
        status = make_plan(&plan, &measured, source, &asked, run, err);
    if (status == QPLAN_OK) {
        const struct qplan_quantize_options how = {.out_path = soak->out, .verify = choose(2)};
        const struct qplan_explain_options told = {.asked = &asked.options};
        (void)qplan_plan_write_json(plan, ignore, NULL, NULL);
        (void)qplan_plan_explain(plan, &told, ignore, NULL, NULL);
        status = qplan_quantize(&report, plan, &how, run, err);
        show(report);
    }
    qplan_plan_free(plan);
    qplan_sensitivity_free(measured);
    return status;
}

/* Rules find what they find; another layout may not be able to hold the codes. */
static enum qplan_status hand_on(struct soak *soak, const struct qplan_checkpoint *written,
                                 const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_findings *findings = NULL;
    struct qplan_report *report = NULL;
    struct qplan_format_facts layout;
    size_t n_layouts = 0;
    enum qplan_status status = qplan_lint(&findings, soak->out, NULL, err);
    if (status == QPLAN_OK && findings)
        (void)qplan_findings_write_json(findings, ignore, NULL, NULL);
    qplan_findings_free(findings);
    if (status != QPLAN_OK)
        return status;
    while (qplan_format_at(n_layouts, &layout))
        n_layouts++;
    (void)qplan_format_at(choose(n_layouts), &layout);
    status = qplan_convert(&report, written, layout.name, soak->other, run, err);
    show(report);
    return status;
}

/* What was written is looked at, proven, decoded, held against the rules and converted. */
static enum qplan_status look_at(struct soak *soak, const struct qplan_checkpoint *source,
                                 const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_checkpoint *written = NULL;
    struct qplan_report *report = NULL;
    enum qplan_status status = qplan_checkpoint_open(&written, soak->out, err);
    if (status == QPLAN_OK) {
        const struct qplan_inspect_options options = {
            .against = source, .prove = choose(2), .allow_unproven = choose(2)};
        status = qplan_inspect(&report, written, &options, run, err);
        show(report);
    }
    if (status == QPLAN_OK) {
        report = NULL;
        status = qplan_dequantize(&report, written, soak->back, NULL, run, err);
        show(report);
    }
    if (status == QPLAN_OK)
        status = hand_on(soak, written, run, err);
    qplan_checkpoint_close(written);
    return status;
}

/* Removes a file, a folder or nothing, and what could not be removed of a folder. */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_output(const char *path)
{
    char partial[4200];
    (void)snprintf(partial, sizeof partial, "%s.partial", path);
    (void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    (void)nftw(partial, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static bool job(struct soak *soak)
{
    const struct qplan_run run = {.threads = 1 + (unsigned)choose(4),
                                  .memory_bytes = choose(2) ? (uint64_t)4 << 20 : 0,
                                  .force = choose(2)};
    struct qplan_checkpoint *source = NULL;
    struct qplan_error err = {.status = QPLAN_OK};
    soak->jobs++;
    soak->file = soak->files[choose(soak->n_files)];
    enum qplan_status status = qplan_checkpoint_open(&source, soak->file, &err);
    if (status == QPLAN_OK)
        status = quantize(soak, source, &run, &err);
    if (status == QPLAN_OK)
        status = look_at(soak, source, &run, &err);
    qplan_checkpoint_close(source);
    remove_output(soak->out);
    remove_output(soak->back);
    remove_output(soak->other);
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
    (void)snprintf(soak.other, sizeof soak.other, "%s/other", argv[3]);
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
