"""A fresh folder with what the examples assume, and commands run in it as a user would."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "testdata" / "tiny-llama.safetensors"
TIMEOUT_SECONDS = 120


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)


class Tools:
    """The programs that examples use, and the installed library; made once."""

    def __init__(self, qplan, build=None, cc=None):
        self.folder = tempfile.TemporaryDirectory(prefix="qplan-docs-")
        self.bin = pathlib.Path(self.folder.name) / "bin"
        self.qplan = os.path.abspath(qplan)
        self.build = build
        script(self.bin / "qplan", f'exec "{self.qplan}" "$@"')
        script(self.bin / "python3", f'exec "{sys.executable}" -B "$@"')
        if cc:
            script(self.bin / "cc", f'exec "{cc}" -std=c11 -Wall -Wextra -Werror "$@"')
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("QPLAN_") and key != "POSIXLY_CORRECT"}
        self.env.update(PATH=f"{self.bin}:{self.env['PATH']}", LC_ALL="C.UTF-8")

    def install(self):
        """Makes pkg-config find an installed library. False if there is no build to install."""
        if not self.build:
            return False
        prefix = pathlib.Path(self.folder.name) / "prefix"
        if not prefix.exists():
            env = {key: value for key, value in self.env.items() if key != "DESTDIR"}
            subprocess.run(["cmake", "--install", self.build, "--prefix", prefix], check=True,
                           env=env, stdout=subprocess.DEVNULL)
            found = next(prefix.rglob("qplan.pc")).parent
            self.env.update(PKG_CONFIG_PATH=str(found), LD_LIBRARY_PATH=str(found.parent))
        return True


class Sandbox:
    """A folder for the examples of one document."""

    def __init__(self, tools):
        self.tools = tools
        self.folder = tempfile.TemporaryDirectory(prefix="qplan-docs-")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "testdata").mkdir()
        shutil.copy(TINY, self.path / "testdata")
        shutil.copy(TINY, self.path / "model.safetensors")
        shutil.copytree(ROOT / "examples", self.path / "examples")
        (self.path / "tests").symlink_to(ROOT / "tests")
        script(self.path / "scripts" / "run.sh", 'exec qplan "$@"')

    def run(self, *args, **env):
        """One program; its exit code, stdout and stderr."""
        done = subprocess.run(args, cwd=self.path, env={**self.tools.env, **env}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=TIMEOUT_SECONDS, check=False)
        return done.returncode, done.stdout, done.stderr

    def qplan(self, *args):
        """A command that must succeed; its stdout."""
        code, out, err = self.run("qplan", *args)
        if code != 0:
            raise RuntimeError(f"qplan {' '.join(args)}: exit {code}\n{err}")
        return out

    def shell(self, commands):
        """Runs commands in one shell; of each the output, both streams in one, and the exit code.

        A mark behind each command tells them apart."""
        mark = uuid.uuid4().hex
        text = "\n".join(f"{command}\necho {mark} $?" for command in commands)
        done = subprocess.run(["sh", "-c", text], cwd=self.path, env=self.tools.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=TIMEOUT_SECONDS, check=False)
        parts = done.stdout.decode("utf-8", "backslashreplace").split(mark)
        for i, part in enumerate(parts[:-1]):
            output = part if i == 0 else part.split("\n", 1)[1]
            yield output.splitlines(), int(parts[i + 1].split("\n", 1)[0])
