/*
 * preload.c - makes chosen calls of a program fail, for the tests of the qplan program only.
 *
 *   LD_PRELOAD=libfault.so QPLAN_FAULT="call=pread,n=3,errno=EIO,mode=once;call=fsync" qplan ...
 *
 * Rules are separated by ';'. The fields of a rule:
 *   call=    open (not with O_TMPFILE), tmpfile (open with it), read, pread, write, pwrite, fsync,
 *            close, linkat, renameat, unlinkat, fstat, fstatvfs, pthread_create, malloc, clock;
 *            relatives count as the same call: openat is open, calloc is malloc, link is linkat
 *   path=    only calls whose path has this text in it; of two paths the new one; for a
 *            descriptor, what it is open on. A file without a name is "/#NUMBER"
 *   n=       the first call that the rule strikes [1]; with 0 it strikes none and only counts
 *   errno=   the error of modes once and forever [EIO]
 *   mode=    once          the n-th call fails
 *            forever       this one and all that follow
 *            eintr         from the n-th on, every other call fails with EINTR
 *            short         from the n-th on, reads and writes do half of what is asked
 *            one-byte      the same, with one byte
 *            zero          the same, with none
 *            every         the n-th call fails, and every n-th behind it
 *            slow          from the n-th on, reads and writes move one byte in a microsecond
 *            late          from the n-th on, a call begins a second later
 *            full          from the n-th on, fstatvfs sees one free block
 *            jump          from the n-th on, the clock is wrong, each time by another hour
 *            KILL, STOP, INT, TERM, HUP   the n-th call raises this signal before it is made
 *
 * QPLAN_FAULT_COUNT=FILE: at its end the program writes there how many calls each rule has seen,
 * one line for each rule.
 *
 * QPLAN_FAULT_LOG=FILE: calls that succeed and that change files or their names are written there,
 * a line for each, and behind the line of a write its bytes:
 *   make FD PATH           a new file, without a name if PATH is a folder
 *   write FD OFFSET N      OFFSET is -1 where the file's own position counts
 *   fsync FD               written before the call: what stands above it is what it covers
 *   close FD
 *   link FROM TO, rename FROM TO, unlink NAME
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum call {
    OPEN,
    TMPFILE,
    READ,
    PREAD,
    WRITE,
    PWRITE,
    FSYNC,
    CLOSE,
    LINK,
    RENAME,
    UNLINK,
    STAT,
    STATVFS,
    THREAD,
    MALLOC,
    CLOCK,
    N_CALLS
};

static const char *const call_names[N_CALLS] = {
    "open",   "tmpfile",  "read",     "pread", "write",    "pwrite",         "fsync",  "close",
    "linkat", "renameat", "unlinkat", "fstat", "fstatvfs", "pthread_create", "malloc", "clock"};

/* What a rule does to a call that it strikes. */
enum effect { NONE, FAIL, FAIL_EVERY_OTHER, FAIL_EVERY_N, HALF, ONE, ZERO, SLOW, LATE, FULL, JUMP };

static const struct mode {
    const char *name;
    enum effect effect;
    bool lasting;
    int signal;
} modes[] = {{"once", FAIL, false, 0},
             {"forever", FAIL, true, 0},
             {"eintr", FAIL_EVERY_OTHER, true, 0},
             {"every", FAIL_EVERY_N, true, 0},
             {"short", HALF, true, 0},
             {"one-byte", ONE, true, 0},
             {"zero", ZERO, true, 0},
             {"slow", SLOW, true, 0},
             {"late", LATE, true, 0},
             {"full", FULL, true, 0},
             {"jump", JUMP, true, 0},
             {"KILL", NONE, false, SIGKILL},
             {"STOP", NONE, false, SIGSTOP},
             {"INT", NONE, false, SIGINT},
             {"TERM", NONE, false, SIGTERM},
             {"HUP", NONE, false, SIGHUP}};

static struct rule {
    enum call call;
    const struct mode *mode;
    const char *path;
    int errnum;
    unsigned long n;
    atomic_ulong seen;
} rules[16];

static size_t n_rules; /* 0 until all are read: nothing is struck before */
static int log_fd = -1;

/* ---- Reading the rules ------------------------------------------------------------------------*/

static _Noreturn void refuse(const char *what, const char *text)
{
    dprintf(STDERR_FILENO, "QPLAN_FAULT: %s: %s\n", what, text);
    _exit(99);
}

static enum call call_named(const char *name)
{
    for (int i = 0; i < N_CALLS; i++)
        if (strcmp(call_names[i], name) == 0)
            return (enum call)i;
    refuse("unknown call", name);
}

static const struct mode *mode_named(const char *name)
{
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(modes[i].name, name) == 0)
            return &modes[i];
    refuse("unknown mode", name);
}

static int errno_named(const char *name)
{
    for (int i = 1; i < 200; i++) {
        const char *known = strerrorname_np(i);
        if (known && strcmp(known, name) == 0)
            return i;
    }
    refuse("unknown errno", name);
}

static void read_field(struct rule *rule, char *field)
{
    char *value = strchr(field, '=');
    if (!value)
        refuse("expected NAME=VALUE", field);
    *value++ = '\0';
    if (strcmp(field, "call") == 0)
        rule->call = call_named(value);
    else if (strcmp(field, "path") == 0)
        rule->path = value;
    else if (strcmp(field, "n") == 0)
        rule->n = strtoul(value, NULL, 10);
    else if (strcmp(field, "errno") == 0)
        rule->errnum = errno_named(value);
    else if (strcmp(field, "mode") == 0)
        rule->mode = mode_named(value);
    else
        refuse("unknown field", field);
}

static void read_rule(struct rule *rule, char *text)
{
    char *rest;
    *rule = (struct rule){.call = N_CALLS, .mode = &modes[0], .errnum = EIO, .n = 1};
    for (char *f = strtok_r(text, ",", &rest); f; f = strtok_r(NULL, ",", &rest))
        read_field(rule, f);
    if (rule->call == N_CALLS)
        refuse("a rule without call=", "");
}

__attribute__((constructor)) static void read_rules(void)
{
    static char text[4096];
    const char *given = getenv("QPLAN_FAULT");
    const char *log = getenv("QPLAN_FAULT_LOG");
    char *rest;
    size_t n = 0;
    if (!given)
        return;
    if (log)
        log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if ((size_t)snprintf(text, sizeof text, "%s", given) >= sizeof text)
        refuse("too long", given);
    for (char *r = strtok_r(text, ";", &rest); r; r = strtok_r(NULL, ";", &rest)) {
        if (n == sizeof rules / sizeof rules[0])
            refuse("too many rules", r);
        read_rule(&rules[n++], r);
    }
    n_rules = n;
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *path = getenv("QPLAN_FAULT_COUNT");
    size_t n = n_rules;
    n_rules = 0;
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    for (size_t i = 0; fd >= 0 && i < n; i++)
        dprintf(fd, "%lu\n", atomic_load(&rules[i].seen));
}

/* ---- Striking ---------------------------------------------------------------------------------*/

static bool concerns(const struct rule *rule, int fd, const char *path)
{
    char link[64], target[4096];
    if (!rule->path || path)
        return !rule->path || strstr(path, rule->path);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    return strstr(target, rule->path) != NULL;
}

/* What one rule does to its seen-th call; errno is set when that fails. */
static enum effect apply(const struct rule *rule, unsigned long seen)
{
    if (rule->n == 0 || seen < rule->n || (seen > rule->n && !rule->mode->lasting))
        return NONE;
    if (rule->mode->signal)
        (void)raise(rule->mode->signal);
    if (rule->mode->effect == LATE)
        (void)sleep(1);
    errno = rule->errnum;
    if (rule->mode->effect == FAIL_EVERY_N)
        return seen % rule->n == 0 ? FAIL : NONE;
    if (rule->mode->effect != FAIL_EVERY_OTHER)
        return rule->mode->effect;
    errno = EINTR;
    return (seen - rule->n) % 2 == 0 ? FAIL : NONE;
}

/* What becomes of a call: every rule that it concerns counts it, the first one to strike wins. */
static enum effect strike(enum call call, int fd, const char *path)
{
    enum effect effect = NONE;
    int errnum = errno;
    for (size_t i = 0; i < n_rules; i++) {
        if (rules[i].call != call || !concerns(&rules[i], fd, path))
            continue;
        unsigned long seen = atomic_fetch_add(&rules[i].seen, 1) + 1;
        if (effect != NONE)
            continue;
        effect = apply(&rules[i], seen);
        if (effect != NONE)
            errnum = errno;
    }
    errno = errnum;
    return effect;
}

static bool fails(enum call call, int fd, const char *path)
{
    return strike(call, fd, path) == FAIL;
}

/* How much of n bytes a read or write is to move. */
static size_t shortened(enum effect effect, size_t n)
{
    if (effect == SLOW)
        (void)usleep((useconds_t)n);
    size_t most = effect == HALF ? n / 2 + n % 2 : effect == ONE ? 1 : effect == ZERO ? 0 : n;
    return most < n ? most : n;
}

/* ---- The log ----------------------------------------------------------------------------------*/

/* One line and n bytes, by one call, so that those of several threads are not mixed. */
__attribute__((format(printf, 3, 4))) static void record(const void *bytes, size_t n,
                                                         const char *format, ...)
{
    char line[4096];
    int errnum = errno;
    va_list args;
    if (log_fd < 0)
        return;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    struct iovec parts[] = {{line, (size_t)length}, {(void *)(uintptr_t)bytes, n}};
    if (writev(log_fd, parts, 2) != (ssize_t)((size_t)length + n))
        refuse("the log cannot be written", line);
    errno = errnum;
}

static int named(int result, const char *call, const char *from, const char *to)
{
    if (result == 0)
        record(NULL, 0, "%s %s %s\n", call, from, to);
    return result;
}

static int opened(int fd, const char *path, int flags)
{
    if (fd >= 0 && (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE))
        record(NULL, 0, "make %d %s\n", fd, path);
    return fd;
}

static ssize_t written(ssize_t put, int fd, const void *bytes, long long off)
{
    if (put > 0)
        record(bytes, (size_t)put, "write %d %lld %zd\n", fd, off, put);
    return put;
}

/* ---- The calls --------------------------------------------------------------------------------*/

/* The function that the program would have called. */
#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static enum call kind_of_open(int flags)
{
    return (flags & O_TMPFILE) == O_TMPFILE ? TMPFILE : OPEN;
}

#define OPEN_CALL(name)                                                                            \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                    \
        va_end(args);                                                                              \
        if (fails(kind_of_open(flags), -1, path))                                                  \
            return -1;                                                                             \
        return opened(REAL(name)(path, flags, mode), path, flags);                                 \
    }
OPEN_CALL(open)
OPEN_CALL(open64)

#define OPENAT_CALL(name)                                                                          \
    int name(int folder, const char *path, int flags, ...)                                         \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                    \
        va_end(args);                                                                              \
        if (fails(kind_of_open(flags), -1, path))                                                  \
            return -1;                                                                             \
        return opened(REAL(name)(folder, path, flags, mode), path, flags);                         \
    }
OPENAT_CALL(openat)
OPENAT_CALL(openat64)

#define PREAD_CALL(name, off_type)                                                                 \
    ssize_t name(int fd, void *bytes, size_t n, off_type off)                                      \
    {                                                                                              \
        enum effect effect = strike(PREAD, fd, NULL);                                              \
        return effect == FAIL ? -1 : REAL(name)(fd, bytes, shortened(effect, n), off);             \
    }
PREAD_CALL(pread, off_t)
PREAD_CALL(pread64, off64_t)

#define PWRITE_CALL(name, off_type)                                                                \
    ssize_t name(int fd, const void *bytes, size_t n, off_type off)                                \
    {                                                                                              \
        enum effect effect = strike(PWRITE, fd, NULL);                                             \
        if (effect == FAIL)                                                                        \
            return -1;                                                                             \
        return written(REAL(name)(fd, bytes, shortened(effect, n), off), fd, bytes, off);          \
    }
PWRITE_CALL(pwrite, off_t)
PWRITE_CALL(pwrite64, off64_t)

ssize_t read(int fd, void *bytes, size_t n)
{
    enum effect effect = strike(READ, fd, NULL);
    return effect == FAIL ? -1 : REAL(read)(fd, bytes, shortened(effect, n));
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    enum effect effect = strike(WRITE, fd, NULL);
    if (effect == FAIL)
        return -1;
    return written(REAL(write)(fd, bytes, shortened(effect, n)), fd, bytes, -1);
}

int fsync(int fd)
{
    if (fails(FSYNC, fd, NULL))
        return -1;
    record(NULL, 0, "fsync %d\n", fd);
    return REAL(fsync)(fd);
}

int close(int fd)
{
    bool failed = fails(CLOSE, fd, NULL);
    record(NULL, 0, "close %d\n", fd);
    int errnum = errno, result = REAL(close)(fd); /* the descriptor is gone even so */
    errno = failed ? errnum : errno;
    return failed ? -1 : result;
}

int link(const char *from, const char *to)
{
    return fails(LINK, -1, to) ? -1 : named(REAL(link)(from, to), "link", from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    if (fails(LINK, -1, to))
        return -1;
    char number[32]; /* an empty path stands for the descriptor */
    (void)snprintf(number, sizeof number, "/proc/self/fd/%d", from_folder);
    return named(REAL(linkat)(from_folder, from, to_folder, to, flags), "link",
                 *from ? from : number, to);
}

int rename(const char *from, const char *to)
{
    return fails(RENAME, -1, to) ? -1 : named(REAL(rename)(from, to), "rename", from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    if (fails(RENAME, -1, to))
        return -1;
    return named(REAL(renameat)(from_folder, from, to_folder, to), "rename", from, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (fails(RENAME, -1, to))
        return -1;
    return named(REAL(renameat2)(from_folder, from, to_folder, to, flags), "rename", from, to);
}

int unlink(const char *path)
{
    return fails(UNLINK, -1, path) ? -1 : named(REAL(unlink)(path), "unlink", path, "");
}

int unlinkat(int folder, const char *path, int flags)
{
    return fails(UNLINK, -1, path) ? -1
                                   : named(REAL(unlinkat)(folder, path, flags), "unlink", path, "");
}

#define FSTAT_CALL(name, type)                                                                     \
    int name(int fd, struct type *out)                                                             \
    {                                                                                              \
        return fails(STAT, fd, NULL) ? -1 : REAL(name)(fd, out);                                   \
    }
FSTAT_CALL(fstat, stat)
FSTAT_CALL(fstat64, stat64)

#define FSTATAT_CALL(name, type)                                                                   \
    int name(int folder, const char *path, struct type *out, int flags)                            \
    {                                                                                              \
        return fails(STAT, -1, path) ? -1 : REAL(name)(folder, path, out, flags);                  \
    }
FSTATAT_CALL(fstatat, stat)
FSTATAT_CALL(fstatat64, stat64)

#define FSTATVFS_CALL(name, type)                                                                  \
    int name(int fd, struct type *out)                                                             \
    {                                                                                              \
        enum effect effect = strike(STATVFS, fd, NULL);                                            \
        int result = effect == FAIL ? -1 : REAL(name)(fd, out);                                    \
        if (effect == FULL)                                                                        \
            out->f_bfree = out->f_bavail = 1;                                                      \
        return result;                                                                             \
    }
FSTATVFS_CALL(fstatvfs, statvfs)
FSTATVFS_CALL(fstatvfs64, statvfs64)

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *arg)
{
    return fails(THREAD, -1, "") ? errno : REAL(pthread_create)(thread, attr, body, arg);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static atomic_long hours;
    enum effect effect = strike(CLOCK, -1, "");
    int result = effect == FAIL ? -1 : REAL(clock_gettime)(clock, out);
    if (effect == JUMP) {
        long n = atomic_fetch_add(&hours, 1) + 1;
        out->tv_sec += n % 2 ? n * 3600 : -n * 3600;
    }
    return result;
}

/* ---- Memory -----------------------------------------------------------------------------------*/

/* dlsym needs memory itself, so glibc's own names are used. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n)
{
    return fails(MALLOC, -1, "") ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails(MALLOC, -1, "") ? NULL : __libc_calloc(n, size);
}

void *realloc(void *block, size_t n)
{
    return fails(MALLOC, -1, "") ? NULL : __libc_realloc(block, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails(MALLOC, -1, "") ? NULL : __libc_memalign(alignment, n);
}
