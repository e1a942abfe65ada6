#!/bin/sh
# Builds qplan and bench-device, then measures a device: see `bench/device.sh --help`.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root" -B "$root/build/bench" -DQPLAN_TESTS=OFF -DQPLAN_BENCH=ON >/dev/null
cmake --build "$root/build/bench" -j2 >/dev/null
exec python3 -B "$root/bench/device.py" --build "$root/build/bench" "$@"
