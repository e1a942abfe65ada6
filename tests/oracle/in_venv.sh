#!/bin/sh
# Runs a test in a virtual environment below build/ that scripts/test.sh made; without it exit 77.
#
#   in_venv.sh NAME SCRIPT [ARGUMENT...]
set -eu

here=$(dirname -- "$(readlink -f -- "$0")")
python=$here/../../build/$1/bin/python3
if [ ! -x "$python" ]; then
    echo "skipped: no build/$1; scripts/test.sh --oracle makes it"
    exit 77
fi
shift
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
