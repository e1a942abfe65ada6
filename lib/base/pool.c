/*
 * pool.c - a team of threads for one job, and the number of CPUs it may use. Keeps nothing between
 * jobs: a job is minutes of work, a thread some microseconds.
 */
#include "pool.h"

#include "alloc.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
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
    const cpu_set_t *cpus; /* that it may run on; NULL = as it began */
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
    const struct member *m = arg;
    if (m->cpus)
        (void)sched_setaffinity(0, sizeof *m->cpus, m->cpus);
    run_in_default_environment(m);
    return NULL;
}

/*
 * A new thread may be put on the CPU of the one that made it and wait there, for milliseconds,
 * while others are idle. So it begins on another; thread_main lets it run wherever its maker may.
 * False if there is no other, or no way to say so.
 */
static bool begin_elsewhere(pthread_attr_t *attr, cpu_set_t *cpus)
{
#ifdef __GLIBC__
    const int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof *cpus, cpus) != 0)
        return false;
    cpu_set_t others = *cpus;
    CPU_CLR((size_t)here, &others);
    return CPU_COUNT(&others) > 0 && pthread_attr_setaffinity_np(attr, sizeof others, &others) == 0;
#else
    (void)attr;
    (void)cpus;
    return false;
#endif
}

static bool start(struct member *m, pthread_attr_t *attr, const cpu_set_t *cpus)
{
    m->cpus = cpus;
    return pthread_create(&m->thread, attr, thread_main, m) == 0;
}

/* cpus must last as long as they do. */
static unsigned start_members(struct member *members, unsigned n, cpu_set_t *cpus)
{
    pthread_attr_t plain, elsewhere;
    unsigned started = 0;
    if (pthread_attr_init(&plain) != 0)
        return 0;
    if (pthread_attr_init(&elsewhere) != 0) {
        (void)pthread_attr_destroy(&plain);
        return 0;
    }
    bool moved = pthread_attr_setstacksize(&elsewhere, STACK_BYTES) == 0 &&
                 begin_elsewhere(&elsewhere, cpus);
    if (pthread_attr_setstacksize(&plain, STACK_BYTES) == 0) {
        while (started < n && ((moved && start(&members[started], &elsewhere, cpus)) ||
                               start(&members[started], &plain, NULL)))
            started++;
    }
    (void)pthread_attr_destroy(&elsewhere);
    (void)pthread_attr_destroy(&plain);
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
    cpu_set_t cpus;
    unsigned started = n_others ? start_members(others, n_others, &cpus) : 0;
    run_in_default_environment(&(struct member){.work = work, .ctx = ctx, .index = 0});
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(others[i].thread, NULL);
    qp_free(others);
    return started + 1;
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
