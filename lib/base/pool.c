/*
 * pool.c - a team of threads for one job, and the number of CPUs it may use. Keeps nothing between
 * jobs: a job is minutes of work, a thread some microseconds.
 */
#include "pool.h"

#include "alloc.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Kernels need little; a fixed size keeps small `ulimit -s` values from mattering. */
#define STACK_BYTES (256u * 1024u)

struct member {
    qp_worker_fn work;
    void *ctx;
    unsigned index;
    pthread_t thread;
};

void qp_fenv_enter(fenv_t *saved)
{
    (void)fegetenv(saved);
    (void)fesetenv(FE_DFL_ENV);
}

void qp_fenv_leave(const fenv_t *saved)
{
    (void)fesetenv(saved);
}

static void run_in_default_environment(const struct member *m)
{
    fenv_t callers;
    qp_fenv_enter(&callers);
    m->work(m->ctx, m->index);
    qp_fenv_leave(&callers);
}

static void *thread_main(void *arg)
{
    run_in_default_environment(arg);
    return NULL;
}

static unsigned start_members(struct member *members, unsigned n)
{
    pthread_attr_t attr;
    unsigned started = 0;
    if (pthread_attr_init(&attr) != 0)
        return 0;
    if (pthread_attr_setstacksize(&attr, STACK_BYTES) == 0) {
        while (started < n &&
               pthread_create(&members[started].thread, &attr, thread_main, &members[started]) == 0)
            started++;
    }
    (void)pthread_attr_destroy(&attr);
    return started;
}

unsigned qp_team_run(unsigned n, qp_worker_fn work, void *ctx)
{
    unsigned n_others = n > 1 ? n - 1 : 0;
    struct member *others = n_others ? qp_alloc(n_others, sizeof *others) : NULL;
    if (!others)
        n_others = 0;
    for (unsigned i = 0; i < n_others; i++)
        others[i] = (struct member){.work = work, .ctx = ctx, .index = i + 1};
    unsigned started = start_members(others, n_others);
    run_in_default_environment(&(struct member){.work = work, .ctx = ctx, .index = 0});
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(others[i].thread, NULL);
    qp_free(others);
    return started + 1;
}

struct steps {
    const qp_step_fn *list;
    unsigned n;
    atomic_uint next; /* to claim */
    void *ctx;
};

static void do_steps(void *ctx, unsigned worker)
{
    struct steps *steps = ctx;
    unsigned i;
    (void)worker;
    while ((i = atomic_fetch_add(&steps->next, 1)) < steps->n)
        steps->list[i](steps->ctx);
}

void qp_steps_run(unsigned threads, const qp_step_fn *steps, unsigned n, void *ctx)
{
    struct steps all = {.list = steps, .n = n, .ctx = ctx};
    const unsigned most = threads ? threads : qp_cpu_count();
    atomic_init(&all.next, 0);
    (void)qp_team_run(most < n ? most : n, do_steps, &all);
}

/* The CPUs that a cgroup quota of "MAX PERIOD" microseconds amounts to, rounded up; 0 = no limit.
 */
static unsigned quota_cpus(void)
{
    char text[64] = "";
    int fd = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0 || strncmp(text, "max", 3) == 0)
        return 0;
    char *rest = text;
    unsigned long quota = strtoul(text, &rest, 10);
    unsigned long period = strtoul(rest, NULL, 10);
    if (period == 0)
        return 0;
    unsigned long cpus = (quota + period - 1) / period;
    return cpus < 1 ? 1 : (unsigned)(cpus < 1024 ? cpus : 1024);
}

unsigned qp_cpu_count(void)
{
    cpu_set_t set;
    unsigned n = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = (unsigned)CPU_COUNT(&set);
    unsigned quota = quota_cpus();
    if (quota && quota < n)
        n = quota;
    return n < 1 ? 1 : n > 1024 ? 1024 : n;
}
