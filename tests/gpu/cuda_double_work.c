/*
 * cuda_double_work.c - the double's things, faults and queues, and the look at what is left over.
 */
#include "cuda_double.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char *const call_names[N_CALLS] = {
#define NAME(call) #call,
    CALLS(NAME)
#undef NAME
};

/* ---- Things that the driver gives out ---------------------------------------------------------
 */

static const char *const kind_names[] = {"context", "module", "function",     "stream",
                                         "event",   "memory", "pinned memory"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists, not of what runs */
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER;
static struct object *objects;
static atomic_int n_retained, lost, started, n_unreachable;
static atomic_long counts[N_CALLS], n_kernels, n_results, n_overlaps;
/* Of device memory and of memory that is pinned. */
static struct {
    atomic_long now, most;
} taken[2];
static _Thread_local int depth; /* of the thread's stack of contexts */

void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "cuda_double: %s%s\n", what, name);
    (void)fflush(NULL);
    _exit(99);
}

struct object *add(enum kind kind)
{
    struct object *o = calloc(1, sizeof *o);
    if (!o)
        die("no memory", "");
    o->kind = kind;
    (void)pthread_mutex_init(&o->running, NULL);
    (void)pthread_mutex_lock(&lock);
    o->next = objects;
    objects = o;
    (void)pthread_mutex_unlock(&lock);
    return o;
}

bool is_alive(const void *handle, enum kind kind)
{
    (void)pthread_mutex_lock(&lock);
    const struct object *o = objects;
    while (o && o != handle)
        o = o->next;
    (void)pthread_mutex_unlock(&lock);
    return o && o->kind == kind;
}

struct object *find_range(enum kind kind, const unsigned char *at, size_t n)
{
    (void)pthread_mutex_lock(&lock);
    struct object *o = objects;
    while (o && (o->kind != kind || at < o->bytes || at - o->bytes > (ptrdiff_t)o->n_bytes ||
                 n > o->n_bytes - (size_t)(at - o->bytes)))
        o = o->next;
    (void)pthread_mutex_unlock(&lock);
    return o;
}

/* ---- Faults -----------------------------------------------------------------------------------
 */

const char *fault_text(const char *name)
{
    const char *fault = getenv("QPLAN_TEST_FAULT");
    size_t n = strlen(name);
    return fault && strncmp(fault, name, n) == 0 && fault[n] == ':' ? fault + n + 1 : NULL;
}

long fault_number(const char *name, long otherwise)
{
    const char *text = fault_text(name);
    return text ? strtol(text, NULL, 0) : otherwise;
}

/* The error of a fault that is meant for the count-th, or 0. */
static int fault_at(const char *name, long count)
{
    const char *text = fault_text(name);
    char *end;
    if (!text)
        return QP_CU_OK;
    long wanted = strtol(text, &end, 0);
    return wanted == 0 || wanted == count ? (int)strtol(end + 1, NULL, 0) : QP_CU_OK;
}

/* Whether a call is made with a context. */
static bool needs_context(enum call call)
{
    const char *name = call_names[call] + 2;
    return strncmp(name, "Mod", 3) == 0 || strncmp(name, "Mem", 3) == 0 ||
           strncmp(name, "Stream", 6) == 0 || strncmp(name, "Event", 5) == 0 ||
           strncmp(name, "Launch", 6) == 0;
}

int begin(enum call call)
{
    int error = fault_at(call_names[call], atomic_fetch_add(&counts[call], 1) + 1);
    if (error != QP_CU_OK && call == ID_cuCtxPushCurrent_v2)
        atomic_fetch_add(&n_unreachable, 1); /* what should have been freed now cannot be */
    if (error != QP_CU_OK)
        return error;
    if (needs_context(call) && depth == 0)
        return INVALID_CONTEXT;
    if (needs_context(call) && lost)
        return lost;
    return call == ID_cuDriverGetVersion || call == ID_cuInit || call == ID_cuGetErrorName ||
                   started
               ? QP_CU_OK
               : NOT_INITIALIZED;
}

void count_bytes(enum kind kind, long n_bytes)
{
    const int i = kind == PINNED;
    long now = atomic_fetch_add(&taken[i].now, n_bytes) + n_bytes, most = taken[i].most;
    while (now > most && !atomic_compare_exchange_weak(&taken[i].most, &most, now))
        continue;
}

void start(void)
{
    started = 1;
}

int *stack_depth(void)
{
    return &depth;
}

/* ---- Streams ----------------------------------------------------------------------------------
 */

static bool has_kernel(const struct object *stream)
{
    const struct op *op = stream->first;
    while (op && !op->kernel)
        op = op->next;
    return op != NULL;
}

/* Whether a stream has work queued while a kernel of another has not ended; under the lock. */
static bool overlaps(void)
{
    for (const struct object *a = objects; a; a = a->next) {
        for (const struct object *b = objects; b && a->kind == STREAM; b = b->next) {
            if (a != b && b->kind == STREAM && has_kernel(a) && b->first)
                return true;
        }
    }
    return false;
}

static int count_streams(void)
{
    int n = 0;
    for (const struct object *o = objects; o; o = o->next)
        n += o->kind == STREAM;
    return n;
}

void enqueue(struct object *stream, struct op op)
{
    struct op *copy = malloc(sizeof *copy);
    if (!copy)
        die("no memory", "");
    *copy = op;
    copy->next = NULL;
    (void)pthread_mutex_lock(&lock);
    if (stream->first)
        stream->last->next = copy;
    else
        stream->first = copy;
    stream->last = copy;
    stream->n_queued++;
    if (overlaps())
        atomic_fetch_add(&n_overlaps, 1);
    (void)pthread_cond_broadcast(&queued);
    (void)pthread_mutex_unlock(&lock);
}

void await_overlap(const struct object *stream)
{
    static bool gave_up;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    (void)pthread_mutex_lock(&lock);
    if (fault_text("overlap") && count_streams() > 1 && has_kernel(stream)) {
        while (n_overlaps == 0 && !gave_up)
            gave_up = pthread_cond_timedwait(&queued, &lock, &until) == ETIMEDOUT;
    }
    (void)pthread_mutex_unlock(&lock);
}

static void run_kernel(const struct op *op)
{
    int error = fault_at("lost", atomic_fetch_add(&n_kernels, 1) + 1);
    if (error != QP_CU_OK)
        lost = error;
    for (size_t i = 0; i < op->n && !lost; i++)
        op->kernel->run((qk_u32)i, op->to, op->args);
}

static void run_copy(const struct op *op)
{
    memcpy(op->to, op->from, op->n);
    if (op->is_result && op->n > 64 &&
        atomic_fetch_add(&n_results, 1) + 1 == fault_number("flip", -1))
        op->to[op->n - 1] ^= 4;
}

static struct op *next_op(struct object *stream, uint64_t until)
{
    struct op *op = NULL;
    (void)pthread_mutex_lock(&lock);
    if (stream->n_done < until && stream->first) {
        op = stream->first;
        stream->first = op->next;
        stream->n_done++;
    }
    (void)pthread_mutex_unlock(&lock);
    return op;
}

int run(struct object *stream, uint64_t until)
{
    struct op *op;
    (void)pthread_mutex_lock(&stream->running);
    while ((op = next_op(stream, until)) != NULL) {
        if (op->kernel && !lost)
            run_kernel(op);
        else if (!lost)
            run_copy(op);
        free(op->args);
        free(op);
    }
    (void)pthread_mutex_unlock(&stream->running);
    return lost;
}

/* Giving memory back waits for all that may use it. */
static void run_all(void)
{
    for (struct object *o = objects; o; o = o->next) {
        if (o->kind == STREAM)
            (void)run(o, UINT64_MAX);
    }
}

/* ---- Giving back ------------------------------------------------------------------------------
 */

void drop(struct object *gone)
{
    (void)pthread_mutex_lock(&lock);
    struct object **at = &objects;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_mutex_destroy(&gone->running);
    if (gone->kind == MEMORY || gone->kind == PINNED) {
        count_bytes(gone->kind, -(long)gone->n_bytes);
        free(gone->bytes);
    }
    free(gone);
}

int give_back(enum call call, void *handle, enum kind kind)
{
    int error = begin(call);
    if (error == INVALID_CONTEXT || (error == lost && lost))
        return error;
    if (!is_alive(handle, kind))
        return INVALID_HANDLE;
    run_all();
    drop(handle);
    return error;
}

/* Ends the process if something is left over that could have been given back. */
static void check_left(void)
{
    const struct object *o = objects;
    while (o && o->kind == FUNCTION)
        o = o->next;
    if (lost || n_unreachable)
        return;
    if (o)
        die("left over: ", kind_names[o->kind]);
}

void drop_functions(const struct object *module)
{
    struct object *o = objects;
    while (o) {
        struct object *next = o->next;
        if (o->kind == FUNCTION && o->owner == module)
            drop(o);
        o = next;
    }
}

void retain(void)
{
    n_retained++;
}

bool is_retained(void)
{
    return n_retained > 0;
}

bool release(void)
{
    if (n_retained == 0)
        return false;
    if (--n_retained == 0)
        check_left();
    return true;
}

__attribute__((destructor)) static void finish(void)
{
    const char *path = getenv("QPLAN_TEST_COUNT");
    FILE *to = path && started ? fopen(path, "w") : NULL;
    for (int i = 0; i < N_CALLS && to; i++)
        (void)fprintf(to, "%s %ld\n", call_names[i], counts[i]);
    if (to) {
        (void)fprintf(to, "kernels %ld\nflip %ld\noverlaps %ld\n", n_kernels, n_results,
                      n_overlaps);
        (void)fprintf(to, "memory %ld\npinned %ld\n", taken[0].most, taken[1].most);
        (void)fclose(to);
    }
    if (n_retained)
        die("left over: ", "the context");
    if (depth)
        die("left over: ", "a current context");
    check_left();
}
