#!/bin/sh
# Installs a build into an empty prefix and uses it as a stranger would: with pkg-config and with
# find_package, shared and static.
#
#   run.sh BUILD CC
set -eu
build=$1
cc=$2
here=$(cd "$(dirname "$0")" && pwd)
checkpoint=$here/../../testdata/tiny-llama.safetensors

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
    echo "install test: $*" >&2
    exit 1
}

# The first argument says what is tried; the rest is a program that must print the tensor count.
expect_count() {
    what=$1
    shift
    found=$("$@" "$checkpoint") || fail "$what: the example failed"
    [ "$found" = "$count" ] || fail "$what: expected $count tensors, found $found"
}

DESTDIR="" cmake --install "$build" --prefix "$prefix" >"$work/log" || fail "cmake --install failed"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name qplan.pc)")
libdir=$(dirname "$PKG_CONFIG_PATH")
export LD_LIBRARY_PATH="$libdir"

# The count is taken from the file itself: its header begins at byte 8 and is JSON.
count=$(python3 -c 'import json, struct, sys
with open(sys.argv[1], "rb") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
print(sum(name != "__metadata__" for name in header))' "$checkpoint")

"$prefix/bin/qplan" --version >/dev/null || fail "the installed program does not run"

flags="-std=c11 -Wall -Wextra -Werror $here/example.c"
# shellcheck disable=SC2046,SC2086 # flags are words
"$cc" $flags -o "$work/shared" $(pkg-config --cflags --libs qplan)
expect_count "pkg-config" "$work/shared"
# shellcheck disable=SC2046,SC2086
"$cc" $flags -o "$work/static" \
    $(pkg-config --static --cflags --libs qplan | sed 's/-lqplan/-l:libqplan.a/')
expect_count "pkg-config --static" env -u LD_LIBRARY_PATH "$work/static"

{ cmake -S "$here/consumer" -B "$work/consumer" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$work/consumer"; } >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "find_package(qplan) failed"
}
expect_count "find_package, shared" "$work/consumer/shared"
expect_count "find_package, static" env -u LD_LIBRARY_PATH "$work/consumer/static"

names=$(nm -D --defined-only "$libdir/libqplan.so" | awk '{ print $3 }')
[ -n "$names" ] || fail "libqplan.so exports nothing"
others=$(echo "$names" | grep -v '^qplan_' || true)
[ -z "$others" ] || fail "libqplan.so exports more than qplan_*: $others"

# Every function of the header is there.
for name in $(grep -o 'qplan_[a-z0-9_]*(' "$prefix/include/qplan.h" | tr -d '(' | sort -u); do
    echo "$names" | grep -qx "$name" || fail "libqplan.so lacks $name"
done
