"""The lines of shell in the README that check an operator against PyTorch, run as they stand."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile


def check(qplan, root):
    """Failures: none, or what the lines said."""
    blocks = re.findall(r"```sh\n(.*?)```", (root / "README.md").read_text(), re.S)
    blocks = [block for block in blocks if "import tensors" in block]
    if len(blocks) != 1:
        return [f"README.md: expected one block that uses tensors.py, found {len(blocks)}"]
    with tempfile.TemporaryDirectory(prefix="qplan-oracle-") as name:
        folder = pathlib.Path(name)
        (folder / "tests").symlink_to(root / "tests")
        (folder / "bin").mkdir()
        (folder / "bin" / "qplan").symlink_to(qplan)
        (folder / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" -B "$@"\n')
        (folder / "bin" / "python3").chmod(0o755)
        env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-e", "-c", blocks[0]], cwd=folder, env=env, check=False,
                              capture_output=True, text=True)
    if done.returncode == 0 and done.stdout.endswith("True\n"):
        return []
    return [f"README.md: exit {done.returncode}\n{done.stdout}{done.stderr}"]
