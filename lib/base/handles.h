/*
 * handles.h - descriptors of more files than a process may have open: a file is opened when it is
 * needed, and one that has not been used for the longest time is closed for it.
 */
#ifndef QP_BASE_HANDLES_H
#define QP_BASE_HANDLES_H

#include "error.h"

struct qp_handles;

/* Opens the file of an owner: a descriptor, or -1 with err set. */
typedef int (*qp_open_fn)(const void *owner, struct qplan_error *err);

/* How many files of one checkpoint should be open at once, by the limit of the process. */
unsigned qp_handles_most(void);

/* Handles for at most `most` open files; NULL when out of memory. */
struct qp_handles *qp_handles_new(unsigned most);
void qp_handles_free(struct qp_handles *handles);

/*
 * Gives the descriptor of an owner's file, which stays open until it is given back. Callable from
 * several threads at once; waits while all files are in use.
 */
enum qplan_status qp_handles_take(struct qp_handles *handles, const void *owner, qp_open_fn open,
                                  int *fd, struct qplan_error *err);
void qp_handles_give(struct qp_handles *handles, const void *owner);

/* Closes the file of an owner that nobody uses, if it is open; -1 with errno if that fails. */
int qp_handles_close(struct qp_handles *handles, const void *owner);

#endif
