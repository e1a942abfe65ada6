/*
 * msan_blocks.c - which memory MemorySanitizer takes for unwritten, in its build alone.
 *
 * It sees only what instrumented code writes. libnettle, cJSON, argtable and cmocka come from
 * packages that are not, so every block that they fill would look unwritten. Hence no block does,
 * but those that our own objects ask for: the linker sends their calls here (--wrap), and here they
 * are poisoned. What the C library fills is known to the sanitizer, but for the newer names of
 * stat; of what libnettle fills in blocks of ours, digests, it is told here.
 */
#include <nettle/sha2.h>
#include <nettle/version.h>
#include <sanitizer/allocator_interface.h>
#include <sanitizer/msan_interface.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

void *__real_malloc(size_t n);
void __real_free(void *block);
void *__real_aligned_alloc(size_t alignment, size_t n);
void *__wrap_malloc(size_t n);
void __wrap_free(void *block);
void *__wrap_realloc(void *block, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
const char *__msan_default_options(void);

/* 77, its usual exit code, would tell a test that the machine lacks something. */
const char *__msan_default_options(void)
{
    return "poison_in_malloc=0:poison_in_free=0:allocator_may_return_null=1:exitcode=99";
}

static void *unwritten(void *block, size_t n)
{
    if (block)
        __msan_poison(block, n);
    return block;
}

void *__wrap_malloc(size_t n)
{
    return unwritten(__real_malloc(n), n);
}

/* A package may get the block next. */
void __wrap_free(void *block)
{
    if (block)
        __msan_unpoison(block, __sanitizer_get_allocated_size(block));
    __real_free(block);
}

/* Always another block, so that the old one goes through free. */
void *__wrap_realloc(void *block, size_t n)
{
    size_t before = block ? __sanitizer_get_allocated_size(block) : 0;
    void *moved = __wrap_malloc(n);
    if (moved && before > 0)
        memcpy(moved, block, before < n ? before : n);
    if (moved)
        __wrap_free(block);
    return moved;
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    return unwritten(__real_aligned_alloc(alignment, n), n);
}

#define FILLED_BY(name, parameters, arguments)                                                     \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        int result = __real_##name arguments;                                                      \
        if (result == 0)                                                                           \
            __msan_unpoison(out, sizeof *out);                                                     \
        return result;                                                                             \
    }
FILLED_BY(stat64, (const char *path, struct stat *out), (path, out))
FILLED_BY(lstat64, (const char *path, struct stat *out), (path, out))
FILLED_BY(fstat64, (int fd, struct stat *out), (fd, out))
FILLED_BY(fstatat64, (int folder, const char *path, struct stat *out, int flags),
          (folder, path, out, flags))

#if NETTLE_VERSION_MAJOR < 4
#define DIGEST_PARAMETERS (struct sha256_ctx * hash, size_t n, uint8_t * out)
#define DIGEST_ARGUMENTS  (hash, n, out)
#else
#define DIGEST_PARAMETERS (struct sha256_ctx * hash, uint8_t * out)
#define DIGEST_ARGUMENTS  (hash, out)
#endif
void __real_nettle_sha256_digest DIGEST_PARAMETERS;
void __wrap_nettle_sha256_digest DIGEST_PARAMETERS;
void __wrap_nettle_sha256_digest DIGEST_PARAMETERS
{
    __real_nettle_sha256_digest DIGEST_ARGUMENTS;
    __msan_unpoison(out, SHA256_DIGEST_SIZE);
}
