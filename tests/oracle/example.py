"""Runs examples/embedding.sh, which checks an operator against PyTorch, as it stands."""

import os
import pathlib
import subprocess
import sys
import tempfile


def check(qplan, root):
    """Failures: none, or what the script said."""
    with tempfile.TemporaryDirectory(prefix="qplan-oracle-") as name:
        programs = pathlib.Path(name)
        (programs / "qplan").symlink_to(qplan)
        (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" -B "$@"\n')
        (programs / "python3").chmod(0o755)
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "examples/embedding.sh"], cwd=root, env=env, check=False,
                              capture_output=True, text=True)
    if done.returncode == 0 and done.stdout == "True\n":
        return []
    return [f"examples/embedding.sh: exit {done.returncode}\n{done.stdout}{done.stderr}"]
