/*
 * handles.c - a few descriptors for many files.
 */
#include "handles.h"

#include "alloc.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

struct handle {
    const void *owner; /* NULL = free */
    int fd;
    unsigned users;
    uint64_t used; /* when, by the clock below */
};

struct qp_handles {
    pthread_mutex_t lock;
    pthread_cond_t given; /* back */
    uint64_t clock;
    unsigned most;
    struct handle list[];
};

/*
 * A command reads and writes up to three checkpoints, and has few files open besides. Two are
 * enough for workers at the border of two shards; more than this many gain nothing.
 */
#define FEWEST 2
#define SHARE  8
#define MOST   128

unsigned qp_handles_most(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / SHARE > MOST)
        return MOST;
    const unsigned share = (unsigned)(limit.rlim_cur / SHARE);
    return share > FEWEST ? share : FEWEST;
}

struct qp_handles *qp_handles_new(unsigned most)
{
    struct qp_handles *h = qp_alloc(1, sizeof *h + most * sizeof h->list[0]);
    if (!h)
        return NULL;
    (void)pthread_mutex_init(&h->lock, NULL);
    (void)pthread_cond_init(&h->given, NULL);
    h->most = most;
    return h;
}

void qp_handles_free(struct qp_handles *h)
{
    if (!h)
        return;
    for (unsigned i = 0; i < h->most; i++) {
        if (h->list[i].owner)
            (void)close(h->list[i].fd);
    }
    (void)pthread_cond_destroy(&h->given);
    (void)pthread_mutex_destroy(&h->lock);
    qp_free(h);
}

static struct handle *find(struct qp_handles *h, const void *owner)
{
    for (unsigned i = 0; i < h->most; i++) {
        if (h->list[i].owner == owner)
            return &h->list[i];
    }
    return NULL;
}

/* A free handle, or that of the file which nobody uses for the longest time; NULL if all are used.
 */
static struct handle *find_room(struct qp_handles *h)
{
    struct handle *oldest = NULL;
    for (unsigned i = 0; i < h->most; i++) {
        struct handle *handle = &h->list[i];
        if (!handle->owner)
            return handle;
        if (handle->users == 0 && (!oldest || handle->used < oldest->used))
            oldest = handle;
    }
    if (oldest) {
        (void)close(oldest->fd);
        oldest->owner = NULL;
    }
    return oldest;
}

enum qplan_status qp_handles_take(struct qp_handles *h, const void *owner, qp_open_fn open, int *fd,
                                  struct qplan_error *err)
{
    enum qplan_status status = QPLAN_OK;
    (void)pthread_mutex_lock(&h->lock);
    struct handle *handle = find(h, owner);
    while (!handle) {
        handle = find_room(h);
        if (!handle) {
            (void)pthread_cond_wait(&h->given, &h->lock);
            handle = find(h, owner); /* somebody else may have opened it */
            continue;
        }
        const int opened = open(owner, err);
        if (opened >= 0)
            *handle = (struct handle){.owner = owner, .fd = opened};
        else
            status = QPLAN_ERR_IO;
    }
    if (status == QPLAN_OK) {
        handle->users++;
        handle->used = ++h->clock;
        *fd = handle->fd;
    }
    (void)pthread_mutex_unlock(&h->lock);
    return status;
}

void qp_handles_give(struct qp_handles *h, const void *owner)
{
    (void)pthread_mutex_lock(&h->lock);
    find(h, owner)->users--;
    (void)pthread_cond_signal(&h->given);
    (void)pthread_mutex_unlock(&h->lock);
}

int qp_handles_close(struct qp_handles *h, const void *owner)
{
    int result = 0;
    (void)pthread_mutex_lock(&h->lock);
    struct handle *handle = find(h, owner);
    if (handle) {
        result = close(handle->fd);
        handle->owner = NULL;
    }
    (void)pthread_mutex_unlock(&h->lock);
    return result;
}
