#!/bin/sh
# Builds and runs the whole test suite, and says at the end what ran and what failed.
#
#   scripts/test.sh [--fast] [--full] [-L LABEL]
#   scripts/test.sh --oracle
#   scripts/test.sh --interop
#   scripts/test.sh --device cuda|opencl
#
#   --fast     the first configuration only
#   --full     also the tests labelled slow (an hour of soak and one of mutants among them), three
#              more configurations, and five minutes of fuzzing per target, each time other
#              inputs, not 30 seconds of the same: hours
#   -L LABEL   only tests with this label: unit golden property fuzz fault cli ops gpu docs
#              static oracle interop slow
#   --oracle   only the comparisons with PyTorch and MLX, which it installs into build/oracle-venv and
#              build/mlx-venv: about 1 GB
#   --interop  only what the real engines make of our folders and we of theirs; it installs them into
#              build/interop-venv and build/interop-vllm-venv: about 6 GB, and half an hour of tests
#   --device   only the tests labelled gpu, those of this backend on the device of this machine, with
#              its own driver; without such a device they fail
#
# The configurations, one folder below build/ each (CMakePresets.json has their settings):
#   test    gcc, warnings are errors: every test, with the static checks
#   asan    clang with ASan, UBSan and libFuzzer: every test that is not static
#   clang   clang, warnings are errors: unit, property and golden tests
# and with --full:
#   msan      clang with MSan: readers, bad files, corpora of the fuzz targets, goldens, commands
#   tsan      clang with TSan: whatever works with several threads
#   coverage  gcc with counters: the suite, then lines and branches against the bar
set -eu

script=$(readlink -f -- "$0")
cd "${script%/scripts/*}"

label=""
fast=""
full=""
fuzz_seconds=30
fuzz_seed=1
timeout=900
skip="slow"
oracle=""
interop=""
device=""
while [ $# -gt 0 ]; do
    case $1 in
    --fast) fast=1 ;;
    --full)
        skip="none"
        fuzz_seconds=300
        fuzz_seed=0
        timeout=3600
        full=1
        export QPLAN_TEST_FULL=1 QPLAN_SOAK_SECONDS=${QPLAN_SOAK_SECONDS:-3600}
        ;;
    --oracle)
        oracle=oracle
        fast=1
        label=oracle
        ;;
    --interop)
        interop=oracle
        fast=1
        label=interop
        timeout=3600
        ;;
    --device)
        device=${2:?"--device needs cuda or opencl"}
        case $device in cuda | opencl) ;; *) echo "--device: expected cuda or opencl" >&2 && exit 2 ;; esac
        fast=1
        label=gpu
        shift
        ;;
    -L)
        label=${2:?"-L needs a label"}
        [ "$label" != slow ] || skip="none"
        shift
        ;;
    *)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' scripts/test.sh >&2
        exit 2
        ;;
    esac
    shift
done

[ "$label" = interop ] || skip="$skip|interop"

scripts/setup "${oracle:-${interop:-test}}"
# A python3 of the user's own may come first in PATH and lack what the distribution's has.
python3 -c 'import numpy' 2>/dev/null || PATH=/usr/bin:$PATH

# Where no package index can be reached the tests of the label say that they are skipped.
install_torch() {
    venv=build/oracle-venv
    ! "$venv/bin/python3" -c 'import torch' 2>/dev/null || return 0
    echo "==== oracle: install torch"
    mkdir -p build
    { python3 -m venv "$venv" &&
        timeout 900 "$venv/bin/python3" -m pip install -qq torch==2.13.0 numpy; } ||
        echo "no PyTorch: it could not be installed"
}
if [ -n "$interop" ]; then
    tests/interop/venvs.sh interop-venv interop-vllm-venv
elif [ -n "$oracle" ]; then
    install_torch
    tests/interop/venvs.sh mlx-venv
fi

failed=0
summary=""

note() { # configuration, what happened
    summary="$summary
  $(printf '%-8s' "$1") $2"
}

# Builds one configuration and runs its tests. Further arguments choose the tests.
run() {
    name=$1
    shift
    dir=build/$name
    start=$(date +%s)
    echo "==== $name: build"
    mkdir -p "$dir"
    if ! { cmake --preset "$name" -DQPLAN_FUZZ_SECONDS=$fuzz_seconds \
        -DQPLAN_FUZZ_SEED=$fuzz_seed -DQPLAN_TEST_DEVICE="$device" &&
        cmake --build "$dir" -j "$(nproc)"; } >"$dir/build.log" 2>&1; then
        cat "$dir/build.log"
        note "$name" "FAILED to build"
        failed=1
        return 0
    fi
    echo "==== $name: test"
    status=0
    [ -n "$label" ] || set -- "$@" --no-tests=error
    ctest --test-dir "$dir" -j 2 --output-on-failure --timeout $timeout -O "$dir/ctest.log" \
        ${label:+-L "^$label\$"} "$@" || status=$?
    result=$(grep -E 'tests passed|No tests were found' "$dir/ctest.log") || status=1 result="no result"
    if [ $status -ne 0 ]; then
        result="FAILED: $result"
        failed=1
    fi
    counts=$(sed -n 's/^\([a-z]*\) *= .*(\([0-9]*\) tests\{0,1\})$/, \1 \2/p' "$dir/ctest.log" | tr -d '\n')
    note "$name" "$result in $(($(date +%s) - start)) s${counts:+: ${counts#, }}"
}

run test -LE "^($skip)\$" --no-tests=error
if [ -z "$fast" ]; then
    # Limits of time and memory are meant for the plain program; a sanitizer needs more of both.
    export QPLAN_TEST_LIMITS=off
    export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
    run asan -LE "^($skip|static|oracle)\$"
    unset QPLAN_TEST_LIMITS ASAN_OPTIONS UBSAN_OPTIONS
    run clang -L '^(unit|property|golden)$' -LE "^($skip|static)\$"
fi

# Whether clang can make and run a program with this sanitizer here.
can_sanitize() {
    mkdir -p build && echo 'int main(void) { return 0; }' |
        clang -fsanitize="$1" -x c - -o build/sanitized 2>/dev/null && build/sanitized
}

run_sanitized() { # configuration, sanitizer, what chooses the tests
    configuration=$1 sanitizer=$2
    shift 2
    if can_sanitize "$sanitizer"; then
        run "$configuration" "$@"
    else
        note "$configuration" "skipped: clang -fsanitize=$sanitizer does not work here"
    fi
}

if [ -n "$full" ] && [ -z "$fast" ]; then
    export QPLAN_TEST_LIMITS=off
    # Arithmetic takes minutes there and reads no files; the goldens go through it once.
    run_sanitized msan memory -L '^(unit|golden|fuzz|fault|cli|slow)$' -LE '^(static|gpu)$' \
        -E '^(unit-(kernels|op|disassembly|dtypes|params)|fault-corpus-slow)'
    run_sanitized tsan thread -R \
        '^(tsan-.*|unit-(pool|cut|calibrate|measure|verify|op_scatter|op_sums)|property-(quantize|small_tensors))$'
    unset QPLAN_TEST_LIMITS
    # What compiles or disassembles sees the counters.
    run coverage -LE '^(slow|static|docs|oracle|interop)$' -E '^(cli-install|unit-disassembly)'
fi

echo "==== summary$summary"
[ $failed -eq 0 ] || {
    echo "FAILED"
    exit 1
}
echo "all passed"
