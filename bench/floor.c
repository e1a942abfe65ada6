/*
 * floor.c - what the storage alone costs: reads every byte of some files and writes so many, with
 * the threads and the block size of qplan, and computes nothing.
 *
 *     bench-floor [--sync] OUT BYTES_OUT THREADS BLOCK IN...
 *
 * An IN may be named twice: two passes. Each thread claims blocks by a counter, reads one into a
 * buffer of its own and writes the share of the output that it stands for, a block at a time, both
 * by position.
 * BYTES_OUT 0 writes nothing and makes no file. --sync waits for the disk at the end, as qplan
 * does.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INPUTS  4
#define MAX_THREADS 64

struct input {
    int fd;
    uint64_t n_bytes, n_blocks;
    uint64_t before; /* bytes of the inputs before it */
};

struct job {
    struct input in[MAX_INPUTS];
    int n_in, out;
    uint64_t total_in, total_out;
    size_t block;
    atomic_ullong next; /* block, counted over all inputs */
};

static void fail(const char *what)
{
    perror(what);
    exit(4);
}

/* The end of the output that the first done bytes of the inputs stand for. */
static uint64_t out_end(const struct job *job, uint64_t done)
{
    if (done == job->total_in)
        return job->total_out;
    return (uint64_t)((double)job->total_out * ((double)done / (double)job->total_in));
}

static void copy_block(const struct job *job, const struct input *in, uint64_t index, char *buffer)
{
    uint64_t at = index * job->block, left = in->n_bytes - at;
    size_t n = left < job->block ? (size_t)left : job->block;
    if (pread(in->fd, buffer, n, (off_t)at) != (ssize_t)n)
        fail("read");
    uint64_t from = out_end(job, in->before + at), to = out_end(job, in->before + at + n);
    while (from < to) {
        size_t length = to - from < job->block ? (size_t)(to - from) : job->block;
        if (pwrite(job->out, buffer, length, (off_t)from) != (ssize_t)length)
            fail("write");
        from += length;
    }
}

static void *work(void *ctx)
{
    struct job *job = ctx;
    char *buffer = aligned_alloc(4096, job->block);
    if (!buffer)
        fail("buffer");
    memset(buffer, 1, job->block); /* pages of its own, not the one of zeros */
    for (;;) {
        uint64_t index = atomic_fetch_add(&job->next, 1);
        int i = 0;
        while (i < job->n_in && index >= job->in[i].n_blocks)
            index -= job->in[i++].n_blocks;
        if (i == job->n_in)
            break;
        copy_block(job, &job->in[i], index, buffer);
    }
    free(buffer);
    return NULL;
}

static void open_inputs(struct job *job, char **paths)
{
    for (int i = 0; i < job->n_in; i++) {
        struct input *in = &job->in[i];
        struct stat st;
        in->fd = open(paths[i], O_RDONLY);
        if (in->fd < 0 || fstat(in->fd, &st) != 0)
            fail(paths[i]);
        in->n_bytes = (uint64_t)st.st_size;
        in->n_blocks = (in->n_bytes + job->block - 1) / job->block;
        in->before = job->total_in;
        job->total_in += in->n_bytes;
    }
}

static void run_team(struct job *job, int threads)
{
    pthread_t team[MAX_THREADS];
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&team[i], NULL, work, job) != 0)
            fail("thread");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(team[i], NULL);
}

int main(int argc, char **argv)
{
    const int sync = argc > 1 && strcmp(argv[1], "--sync") == 0;
    argv += sync;
    argc -= sync;
    if (argc < 6 || argc - 5 > MAX_INPUTS)
        return 2;
    struct job job = {.n_in = argc - 5, .out = -1};
    job.total_out = strtoull(argv[2], NULL, 10);
    job.block = strtoull(argv[4], NULL, 10);
    const int threads = atoi(argv[3]);
    if (job.block == 0 || threads < 1 || threads > MAX_THREADS)
        return 2;
    open_inputs(&job, argv + 5);
    if (job.total_out > 0 && (job.out = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0666)) < 0)
        fail(argv[1]);
    run_team(&job, threads);
    if (job.out >= 0 && ((sync && fsync(job.out) != 0) || close(job.out) != 0))
        fail(argv[1]);
    return 0;
}
