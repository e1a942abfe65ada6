/*
 * replay.c - runs a fuzz target over saved inputs, with any compiler and without libFuzzer.
 *
 *     fuzz-replay-NAME FILE-OR-FOLDER...
 *
 * Every input is copied to memory of exactly its size, so that ASan sees a read past its end.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs one file. Returns 1, the number of inputs, or -1 if it cannot be read. */
static long replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size); /* not NULL for an empty input either, as with libFuzzer */
    long n = -1;

    if (file && data && fread(data, 1, size, file) == size) {
        LLVMFuzzerTestOneInput(data, size);
        n = 1;
    } else {
        perror(path);
    }
    free(data);
    if (file)
        fclose(file);
    return n;
}

static long replay(const char *path);

/* Runs every file of a folder in the order of names. */
static long replay_folder(const char *path)
{
    struct dirent **names;
    int n_names = scandir(path, &names, NULL, alphasort);
    long total = 0;

    if (n_names < 0) {
        perror(path);
        return -1;
    }
    for (int i = 0; i < n_names; i++) {
        char child[4096];
        snprintf(child, sizeof child, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && total >= 0) {
            long n = replay(child);
            total = n < 0 ? -1 : total + n;
        }
        free(names[i]);
    }
    free(names);
    return total;
}

/* Returns the number of inputs run, or -1. */
static long replay(const char *path)
{
    struct stat st;

    if (stat(path, &st)) {
        perror(path);
        return -1;
    }
    return S_ISDIR(st.st_mode) ? replay_folder(path) : replay_file(path, (size_t)st.st_size);
}

int main(int argc, char **argv)
{
    long total = 0;

    for (int i = 1; i < argc; i++) {
        long n = replay(argv[i]);
        if (n < 0)
            return 1;
        total += n;
    }
    printf("%ld inputs\n", total);
    return total ? 0 : 1; /* a corpus that went missing must not pass */
}
