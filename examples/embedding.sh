#!/bin/sh
# embedding.sh - shows how an operator is checked against PyTorch from the shell
#
#   sh examples/embedding.sh
#
# An operator takes its tensors from a safetensors file and writes its outputs to another. Run it at
# the top of the source, with qplan in PATH and a python3 that has torch: tests/oracle has the
# reader and writer of such files, and does the same for every operator on random problems.
set -eu
export PYTHONPATH=tests/oracle
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 - "$folder/in.st" <<'END'
import sys, tensors, torch
tensors.write(sys.argv[1], weight=torch.randn(9, 4), indices=torch.tensor([3, 8]))
END
qplan op run embedding -q -o "$folder/out.st" "$folder/in.st"
python3 - "$folder/in.st" "$folder/out.st" <<'END'
import sys, tensors, torch
given, made = (tensors.read(path) for path in sys.argv[1:])
print(torch.equal(made["output"], torch.nn.functional.embedding(given["indices"], given["weight"])))
END
