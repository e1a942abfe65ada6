/*
 * floor.c - what the storage alone costs: reads the bytes of some files and writes so many, with
 * the threads and the block size of qplan, and computes nothing. Prints the seconds.
 *
 *     bench-floor OUT BYTES_OUT THREADS BLOCK IN...      (an IN may be named twice: two passes)
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_INPUTS 4

struct job {
    int in[MAX_INPUTS], out;
    uint64_t in_bytes[MAX_INPUTS], total_in, total_out;
    int n_in;
    size_t block;
    atomic_ullong next;
};

static void fail(const char *what)
{
    perror(what);
    exit(4);
}

/* The input and the offset in it of a byte of all inputs, one behind the other. */
static int locate(const struct job *job, uint64_t *at)
{
    int i = 0;
    while (*at >= job->in_bytes[i])
        *at -= job->in_bytes[i++];
    return i;
}

static void *work(void *ctx)
{
    struct job *job = ctx;
    char *buffer = aligned_alloc(4096, 8 * job->block); /* an output may be larger than its input */
    for (;;) {
        uint64_t begin = atomic_fetch_add(&job->next, job->block), at = begin;
        if (begin >= job->total_in)
            break;
        int i = locate(job, &at);
        uint64_t left = job->in_bytes[i] - at;
        size_t n = left < job->block ? (size_t)left : job->block;
        if (pread(job->in[i], buffer, n, (off_t)at) != (ssize_t)n)
            fail("read");
        /* The share of the output that this block stands for. */
        double share = (double)job->total_out / (double)job->total_in;
        uint64_t from = (uint64_t)((double)begin * share),
                 to = (uint64_t)((double)(begin + n) * share);
        if (to > from && pwrite(job->out, buffer, to - from, (off_t)from) != (ssize_t)(to - from))
            fail("write");
    }
    free(buffer);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc - 5 > MAX_INPUTS)
        return 2;
    struct job job = {.n_in = argc - 5, .block = strtoull(argv[4], NULL, 10)};
    job.total_out = strtoull(argv[2], NULL, 10);
    int threads = atoi(argv[3]);
    job.out = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0666);
    for (int i = 0; i < job.n_in; i++) {
        struct stat st;
        job.in[i] = open(argv[5 + i], O_RDONLY);
        if (job.in[i] < 0 || fstat(job.in[i], &st) != 0)
            fail(argv[5 + i]);
        /* Whole blocks, so that no block spans two files. */
        job.in_bytes[i] = (uint64_t)st.st_size / job.block * job.block;
        job.total_in += job.in_bytes[i];
    }
    pthread_t team[64];
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < threads && i < 64; i++)
        pthread_create(&team[i], NULL, work, &job);
    for (int i = 0; i < threads && i < 64; i++)
        pthread_join(team[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.4f\n", (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    return 0;
}
