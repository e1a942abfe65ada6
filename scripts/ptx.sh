#!/bin/sh
# Makes the PTX of kernels/gpu/ptx again from the device text, with the nvcc of PATH; tests/gpu/ptx.py
# says how, and checks what is kept. To be run after every change of kernels/gpu.
#
#   scripts/ptx.sh
set -eu
script=$(readlink -f -- "$0")
exec python3 "${script%/scripts/*}/tests/gpu/ptx.py" --write
