#!/bin/sh
# Builds qplan and the benchmark programs, then measures: see `bench/run.sh --help`.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root" -B "$root/build/bench" -DQPLAN_TESTS=OFF -DQPLAN_BENCH=ON >/dev/null
cmake --build "$root/build/bench" -j2 >/dev/null
exec python3 "$root/bench/run.py" --build "$root/build/bench" "$@"
