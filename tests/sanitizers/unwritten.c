/*
 * unwritten.c - writes a buffer that nobody has filled, which MemorySanitizer must not let pass.
 */
#include "lib/base/alloc.h"

#include <fcntl.h>
#include <unistd.h>

int main(void)
{
    char *buffer = qp_alloc_buffer(64);
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (!buffer || fd < 0)
        return 0;
    return pwrite(fd, buffer, 64, 0) == 64 ? 0 : 1;
}
