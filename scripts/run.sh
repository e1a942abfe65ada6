#!/bin/sh
# Runs qplan from this source tree: sets up and builds if needed, then becomes `qplan ARGS`.
#
#   scripts/run.sh quantize --per-channel --axis 0 testdata/tiny-llama.safetensors
#
# Operands are relative to the caller's folder. Set-up and build speak on stderr only, and only
# when there is something to do.
set -eu

script=$(readlink -f -- "$0")
root=${script%/scripts/*}
build=$root/build

# The stamp is as old as the start of the last good build. Folders count too: their time tells of
# files that came or went.
is_current() {
    [ -x "$build/qplan" ] && [ -e "$build/run.stamp" ] &&
        [ -z "$(find "$root/CMakeLists.txt" "$root/CMakePresets.json" "$root/cmake" "$root/cli" \
            "$root/lib" "$root/formats" "$root/kernels" -newer "$build/run.stamp" -print -quit)" ]
}

compile() {
    cd "$root" || return
    # A cache of a tree that was moved or copied here is of no use.
    grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" build/CMakeCache.txt ||
        rm -rf build/CMakeCache.txt build/CMakeFiles build/Makefile
    touch build/run.stamp.new &&
        { [ -e build/Makefile ] || cmake --preset release; } &&
        cmake --build build --target qplan -j "$(nproc)" &&
        mv build/run.stamp.new build/run.stamp
}

if ! is_current; then
    "$root/scripts/setup" run
    mkdir -p "$build"
    # Two callers at once must not build into one folder; the second one finds the work done.
    exec 9>"$build/run.lock"
    flock 9
    if ! is_current; then
        echo "qplan: building" >&2
        (compile) >"$build/build.log" 2>&1 || {
            cat "$build/build.log" >&2
            echo "qplan: the build failed; the text above is also in $build/build.log" >&2
            exit 1
        }
    fi
    exec 9>&-
fi

exec "$build/qplan" "$@"
