/*
 * fuzz_files.h - what targets that need files share: a private folder in memory, and a way to say
 * which promise was broken.
 */
#ifndef FUZZ_FILES_H
#define FUZZ_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the process with a message if a promise does not hold. */
static inline void promise(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "violated: %s\n", what);
        abort();
    }
}

/* Bytes that grow; all zero is empty, and free(data) releases them. */
struct bytes {
    char *data;
    size_t n;
};

void bytes_add(struct bytes *bytes, const void *data, size_t n);
void bytes_puts(struct bytes *bytes, const char *text);

/* A qplan_write_fn whose context is a struct bytes. */
int bytes_write(void *ctx, const void *data, size_t n);
bool bytes_equal(const struct bytes *a, const struct bytes *b);

/*
 * The path of a file of this name in the folder of this process, which is made at the first call
 * and removed at exit. After a crash it is still there, with the files of the input. The text lives
 * until the third call after this one.
 */
const char *own_path(const char *name);

void own_write(const char *name, const struct bytes *bytes);
struct bytes own_read(const char *name);
void own_remove(const char *name);

/* How many files there are, hidden ones too. */
size_t own_count(void);

#endif
