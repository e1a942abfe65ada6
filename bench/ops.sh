#!/bin/sh
# Builds the library and bench-ops, then measures every operator: see `bench/ops.sh --help`.
#
#   bench/ops.sh [--venv DIR] [OPTION]...
#
#   --venv DIR   a virtual environment with PyTorch, for example build/oracle-venv
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=python3
if [ "${1:-}" = --venv ]; then
    python=${2:?"--venv needs a folder"}/bin/python3
    shift 2
fi
cmake -S "$root" -B "$root/build/bench" -DQPLAN_TESTS=OFF -DQPLAN_BENCH=ON >/dev/null
cmake --build "$root/build/bench" -j2 >/dev/null
# What PyTorch frees stays with the process, so that its outputs are used pages, as qplan's are.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000
exec "$python" -B "$root/bench/ops.py" --build "$root/build/bench" "$@"
