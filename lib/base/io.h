/*
 * io.h - files by position: inputs that are proven regular and unchanged, an output that appears
 * complete or not at all. EINTR and short counts are handled here and nowhere else.
 */
#ifndef QP_BASE_IO_H
#define QP_BASE_IO_H

#include "handles.h"

#include <sys/types.h>
#include <time.h>

/* An input file, open for reading. Never mapped: a file that shrinks must give an error. */
struct qp_file {
    int fd;                     /* -1 = closed, or opened when it is needed */
    struct qp_handles *handles; /* which open it then; the file must not move */
    bool borrowed_fd;           /* the fd belongs to somebody else */
    char *path;                 /* as given */
    char shown[512];            /* path, escaped for messages */
    uint64_t size;
    dev_t dev;
    ino_t ino;
    mode_t mode;
    nlink_t n_links;
    struct timespec mtime, ctime;
};

/* Opens a regular file; INVALID for any other kind (never blocks on a FIFO), IO otherwise. */
enum qplan_status qp_file_open(struct qp_file *file, const char *path, struct qplan_error *err);

/* Wraps an open descriptor, which stays the caller's. */
enum qplan_status qp_file_wrap(struct qp_file *file, int fd, const char *path,
                               struct qplan_error *err);
void qp_file_close(struct qp_file *file);

/* Closes the descriptor of a file, which handles open again whenever it is needed. */
void qp_file_park(struct qp_file *file, struct qp_handles *handles);

/* Reads exactly n bytes at off. IO if the file ends before (it became shorter). */
enum qplan_status qp_file_read(const struct qp_file *file, uint64_t off, void *out, size_t n,
                               struct qplan_error *err);

/*
 * Where in a buffer bytes of a file are best copied to and from: at its beginning or a little
 * behind, so that it needs QP_IO_SPARE bytes more than are copied. Processors compare the last
 * twelve bits of addresses to see whether a load needs a store before it. If the buffer is a few
 * bytes ahead of the page cache in them, every load of the copy seems to, and it takes three times
 * as long. off and other are two places of files, or the same.
 */
#define QP_IO_SPARE 320
void *qp_io_room(void *buffer, uint64_t off, uint64_t other);

/*
 * IO if the file changed since it was opened, also if somebody put its modification time back
 * afterwards. That it was linked, unlinked or renamed is no change.
 */
enum qplan_status qp_file_unchanged(const struct qp_file *file, struct qplan_error *err);

/*
 * An output file. It has no name (O_TMPFILE), or where that is not offered a hidden one, until
 * qp_out_commit gives it its own.
 */
struct qp_out {
    int fd;    /* -1 = closed */
    int dirfd; /* the folder of the target */
    char *path;
    char shown[512];
    const char *name; /* last component, inside path */
    char hidden[64];  /* name of the temporary file, or "" */
    bool force;
    uint64_t n_bytes; /* that it will have; 0 = not known */
    bool linkable;    /* made by O_TMPFILE; gets its name by linkat */
    bool by_proc;     /* ... through /proc/self/fd, else AT_EMPTY_PATH */
};

/* What is wanted of an output. */
struct qp_out_request {
    const char *path;
    bool force;                  /* replace the file that has this name */
    uint64_t n_bytes;            /* that it will have; 0 = not known */
    const struct qp_file *input; /* which must not be replaced; NULL = none */
    bool like_input;             /* it gets the mode of the input, or of the file that it replaces;
                                    else, as a document, that of any new file */
};

/*
 * Checks the target and makes the temporary file, which is never open to more users than the
 * finished one; the umask takes from its mode in any case. USAGE if the target is the input, by
 * whatever path; IO if it exists without force, is a folder, or fewer than n_bytes are free.
 */
enum qplan_status qp_out_open(struct qp_out *out, const struct qp_out_request *request,
                              struct qplan_error *err);

/* Writes n bytes at off. Callable from several threads at once. */
enum qplan_status qp_out_write(const struct qp_out *out, uint64_t off, const void *bytes, size_t n,
                               struct qplan_error *err);

/*
 * Syncs the file, gives it its name and syncs the folder. On failure the target is as before, but
 * for a failure of the last steps: then it is complete and may not be on disk. *synced is false on
 * a file system that cannot sync.
 */
enum qplan_status qp_out_commit(struct qp_out *out, bool *synced, struct qplan_error *err);

/* Removes whatever was made and closes. Does nothing after a commit, and nothing twice. */
void qp_out_discard(struct qp_out *out);

#endif
