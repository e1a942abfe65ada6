#!/bin/sh
# Fails if clang-format would change a C file.
set -eu
cd "$(dirname "$0")/../.."
find cli lib kernels formats tests bench examples -name '*.[ch]' -print0 |
    xargs -0 -r clang-format --dry-run -Werror
