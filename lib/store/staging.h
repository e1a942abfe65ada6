/*
 * staging.h - the folder OUT.partial in which a run builds OUT: how other runs know it, whether a
 * run is at work in it, and its removal.
 */
#ifndef QP_STORE_STAGING_H
#define QP_STORE_STAGING_H

#include "lib/base/error.h"

#define QP_STAGING_SUFFIX ".partial"

/* A file of the folder that no output has. A run has it locked for as long as it lives. */
#define QP_STAGING_MARK ".qplan-staging"

/* Makes the mark in a folder and locks it; the descriptor, or -1 with errno. */
int qp_staging_mark(int dir);

/* Takes the mark away; 0, or -1 with errno. It stays locked until the descriptor is closed. */
int qp_staging_unmark(int dir);

/* Whether a folder, or one that a path names, has a mark. */
bool qp_staging_is_marked(const char *path);

/*
 * Removes a folder of files, and the mark as the last of them, so that what a kill leaves is known.
 * What cannot be removed stays; 0, or -1 with errno.
 */
int qp_staging_remove(int parent, const char *name);

#endif
