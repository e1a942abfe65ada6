#!/bin/sh
# Runs the tests of kernels, code types and float formats on aarch64, under an emulator.
#
#   aarch64.sh BUILD    BUILD has the table of code types
#
# The kernels have no vector rows there: the compiler makes vectors of the scalar ones, and these
# must still give the bits of the contract. Skipped (77) without the compiler or the emulator;
# Debian has them in gcc-aarch64-linux-gnu and qemu-user.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
cc=${QPLAN_AARCH64_CC:-aarch64-linux-gnu-gcc}
emulator=${QPLAN_AARCH64_RUN:-qemu-aarch64}
for program in $cc $emulator; do
    if ! command -v "$program" >/dev/null 2>&1; then
        echo "skipped: $program is not installed"
        exit 77
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=c11 -D_GNU_SOURCE -I. -O3 -ffp-contract=off -fno-fast-math -Wall -Wextra"

for source in kernels/isa.c kernels/table.c kernels/tiles/*.c kernels/codes/*.c lib/base/*.c \
    lib/model/*.c; do
    [ "$source" != lib/base/digest.c ] || continue # libnettle is not there, nor needed
    $cc $flags -c "$source" -o "$work/$(basename "$source" .c).o"
done
for test in tests/unit/test_kernels*.c tests/unit/test_codes.c tests/unit/test_dtypes.c; do
    $cc $flags -Itests/cross -Ilib "$test" "$work"/*.o -static -lm -o "$work/run"
    echo "$test"
    $emulator "$work/run"
done
