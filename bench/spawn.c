/*
 * spawn.c - runs a command and prints its seconds, its peak memory in KiB, and the seconds that it
 * took of any core. A small parent: the peak that the system reports for a child begins with that
 * of the process it was forked from.
 *
 *     bench-spawn COMMAND [ARGUMENT]...
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

int main(int argc, char **argv)
{
    struct rusage usage;
    int status;
    if (argc < 2)
        return 2;
    double start = now();
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        (void)dup2(nowhere, STDOUT_FILENO);
        execv(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child)
        return 70;
    printf("%.6f %ld %.6f\n", now() - start, usage.ru_maxrss,
           seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 70;
}
