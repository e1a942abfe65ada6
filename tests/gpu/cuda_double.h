/*
 * cuda_double.h - what the parts of the double share: the things that it gives out, its faults, and
 * the queues of its streams. cuda_double.c says what it is.
 */
#ifndef TESTS_CUDA_DOUBLE_H
#define TESTS_CUDA_DOUBLE_H

#include "host_kernels.h"
#pragma GCC visibility push(default)
#include "kernels/backends/cuda_api.h"
#pragma GCC visibility pop

#include <pthread.h>

#define CALLS(X) X(cuDriverGetVersion) QP_CU_CALLS(X)

enum call {
#define ID(call) ID_##call,
    CALLS(ID)
#undef ID
        N_CALLS
};

enum kind { CONTEXT, MODULE, FUNCTION, STREAM, EVENT, MEMORY, PINNED };

/* Something queued in a stream. */
struct op {
    struct op *next;
    const struct host_kernel *kernel; /* NULL for a copy */
    unsigned char *to, *args;
    const unsigned char *from;
    size_t n; /* bytes or groups */
    bool is_result;
};

struct object {
    struct object *next;
    enum kind kind;
    unsigned char *bytes; /* memory */
    size_t n_bytes;
    const char *ptx; /* of a module; NULL for machine code */
    const struct host_kernel *kernel;
    struct object *owner; /* the module of a function, the stream of an event */
    struct op *first, *last;
    uint64_t n_queued, n_done; /* of a stream; the place of an event is n_queued */
    pthread_mutex_t running;
};

/* Errors that the rules of the driver give. */
enum {
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
};

/* Ends the process: the caller broke a rule. */
void die(const char *what, const char *name);

struct object *add(enum kind kind);
bool is_alive(const void *handle, enum kind kind);

/* The object of that kind that holds the range, or NULL. */
struct object *find_range(enum kind kind, const unsigned char *at, size_t n);

/* What stands behind "NAME:" in the fault, or NULL; and as a number. */
const char *fault_text(const char *name);
long fault_number(const char *name, long otherwise);

/* What every call does first: an error that it returns, or 0. */
int begin(enum call call);

#define BEGIN(call)                                                                                \
    do {                                                                                           \
        int begin_error = begin(ID_##call);                                                        \
        if (begin_error != QP_CU_OK)                                                               \
            return begin_error;                                                                    \
    } while (0)

/* The driver was started; contexts that are in use; the depth of the thread's stack of them. */
void start(void);
void retain(void);
bool release(void);
bool is_retained(void);
int *stack_depth(void);

/* The end of a thing. A call that gives back does so even when it is made to fail. */
void drop(struct object *gone);
void drop_functions(const struct object *module);
int give_back(enum call call, void *handle, enum kind kind);

/* Memory of the device, or of the host and pinned: taken, or with a negative number given back. */
void count_bytes(enum kind kind, long n_bytes);

void enqueue(struct object *stream, struct op op);

/* Runs what a stream has, up to a place; the error of a device that is lost, or 0. */
int run(struct object *stream, uint64_t until);

/* With the fault "overlap": waits, once in a run, until another stream has work. */
void await_overlap(const struct object *stream);

#endif
