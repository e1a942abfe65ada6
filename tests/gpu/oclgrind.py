#!/usr/bin/env python3
"""Runs every kernel of a program in Oclgrind, which looks at each access: no races, nothing out of
bounds, nothing read that was never written, and the bits of the CPU.

    oclgrind.py --tiny PATH --program NAME GROUP_SIZE...     exit 77 without Oclgrind
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

LIBRARIES = ("/usr/lib/oclgrind/liboclgrind-rt-icd.so", "/usr/local/lib/oclgrind/liboclgrind-rt-icd.so")


def run(tiny, library, group_size, program, folder):
    """Oclgrind as the only driver of the loader, with its checks on; what it finds is in a log."""
    log = folder / f"{group_size}.log"
    (folder / "vendors").mkdir(exist_ok=True)
    (folder / "vendors" / "oclgrind.icd").write_text(f"{library}\n")
    env = dict(os.environ, OCL_ICD_VENDORS=f"{folder / 'vendors'}/", OCLGRIND_LOG=str(log),
               OCLGRIND_DATA_RACES="1", OCLGRIND_UNINITIALIZED="1", OCLGRIND_CHECK_API="1",
               OCLGRIND_MAX_ERRORS="20", OCLGRIND_BUILD_OPTIONS="-cl-opt-disable")
    done = subprocess.run([tiny, str(group_size), program], env=env, capture_output=True, text=True,
                          check=False)
    found = log.read_text().strip() if log.exists() else ""
    return done.returncode, done.stdout.strip(), done.stderr.strip(), found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiny", type=pathlib.Path, required=True)
    parser.add_argument("--program", required=True, help="of the device text: tiles, affine, ...")
    parser.add_argument("group_size", type=int, nargs="+")
    args = parser.parse_args()
    library = next((path for path in LIBRARIES if pathlib.Path(path).exists()), None)
    if not library:
        print("skipped: no Oclgrind")
        return 77
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for group_size in args.group_size:
            status, out, err, found = run(args.tiny.resolve(), library, group_size, args.program,
                                          pathlib.Path(folder))
            failed |= status != 0 or bool(found) or "Oclgrind" not in out
            print(f"groups of {group_size}: exit {status}: {out}\n{err[-2000:]}\n{found[-4000:]}".strip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
