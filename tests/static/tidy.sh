#!/bin/sh
# Fails on any finding of clang-tidy in the library and the program.
#
#   tidy.sh BUILD [FILE...]    BUILD has compile_commands.json; no FILE means all
#
# The check set is in .clang-tidy; tidy_model.h helps its analyzer.
set -eu
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/../.."
model=$PWD/tests/static/tidy_model.h

if [ "${1:-}" = --one ]; then
    case $2 in
    cli/messages.c | lib/base/error.c | lib/ops/op_fail.c | lib/base/json_tree.c) set -- "$2" ;;
    cli/*) set -- "$2" --extra-arg=-DTIDY_CLI --extra-arg=-include --extra-arg="$model" ;;
    *) set -- "$2" --extra-arg=-include --extra-arg="$model" ;;
    esac
    # Options that only gcc knows are no finding. How much was found in system headers, which
    # clang-tidy says on stderr, is none either; findings are on stdout.
    exec clang-tidy -p "$build" --quiet --extra-arg=-Wno-ignored-optimization-argument \
        --extra-arg=-Wno-unknown-warning-option "$@" 2>/dev/null
fi

{ [ $# -gt 0 ] && printf '%s\n' "$@" || find cli lib kernels formats -name '*.c'; } |
    xargs -n 1 -P 2 tests/static/tidy.sh "$build" --one
