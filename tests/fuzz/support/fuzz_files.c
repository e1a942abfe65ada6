/*
 * fuzz_files.c - the private folder, its files, and bytes that grow.
 */
#include "fuzz_files.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

/* ---- Bytes ------------------------------------------------------------------------------------
 */

void bytes_add(struct bytes *bytes, const void *data, size_t n)
{
    if (n == 0)
        return;
    bytes->data = realloc(bytes->data, bytes->n + n);
    promise(bytes->data, "memory");
    if (data)
        memcpy(bytes->data + bytes->n, data, n);
    else
        memset(bytes->data + bytes->n, 0, n);
    bytes->n += n;
}

void bytes_puts(struct bytes *bytes, const char *text)
{
    bytes_add(bytes, text, strlen(text));
}

int bytes_write(void *ctx, const void *data, size_t n)
{
    bytes_add(ctx, data, n);
    return 0;
}

bool bytes_equal(const struct bytes *a, const struct bytes *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->data, b->data, a->n) == 0);
}

/* ---- The folder -------------------------------------------------------------------------------
 */

static char folder[256];

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            own_remove(entry->d_name);
    }
    if (dir)
        (void)closedir(dir);
    (void)rmdir(folder);
}

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    if (!base)
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(folder, sizeof folder, "%s/qplan-fuzz-XXXXXX", base);
    promise(mkdtemp(folder), "a folder can be made");
    (void)atexit(remove_folder);
}

const char *own_path(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    if (!folder[0])
        make_folder();
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void own_write(const char *name, const struct bytes *bytes)
{
    FILE *file = fopen(own_path(name), "wb");
    promise(file && fwrite(bytes->data ? bytes->data : "", 1, bytes->n, file) == bytes->n,
            "a file can be written");
    promise(fclose(file) == 0, "a file can be written");
}

struct bytes own_read(const char *name)
{
    struct bytes all = {NULL, 0};
    char part[4096];
    FILE *file = fopen(own_path(name), "rb");
    promise(file, "a file can be read");
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        bytes_add(&all, part, n);
    (void)fclose(file);
    return all;
}

void own_remove(const char *name)
{
    (void)unlink(own_path(name));
}

size_t own_count(void)
{
    size_t n = 0;
    (void)own_path("");
    DIR *dir = opendir(folder);
    promise(dir, "the folder can be listed");
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n - 2; /* without "." and ".." */
}
