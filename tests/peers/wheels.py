"""PyPI's wheels of other libraries, each in a virtual environment of its own, in a folder that is used again: PEERS_FOLDER. And how
their programs are run."""

import os
import pathlib
import signal
import subprocess
import sys

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe"}
missing = set()


def folder(default):
    return pathlib.Path(os.environ.get("PEERS_FOLDER", default)).resolve()


def venv(parent, name, packages):
    """The environment, or None: what can't be had is left out, by name."""
    where = parent / name
    if (where / "is_complete").exists():
        return where
    if name in missing:
        return None
    install = [where / "bin" / "pip", "install", "--quiet", "--retries", "2", *packages]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", where], check=True, timeout=120)
        if subprocess.run(install, timeout=300).returncode != 0:
            subprocess.run(install, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        missing.add(name)
        return None
    (where / "is_complete").touch()
    return where


def run(commands, variables={}, timeout=300):
    """Side by side. What the first has said; none of them, nor of what they start, is left when this returns."""
    env = {**os.environ, **ROOT, **variables}
    running = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
               for command in commands]
    try:
        return [each.communicate(timeout=timeout) for each in running][0]
    finally:
        for each in running:
            if each.poll() is None:
                each.terminate()  # mpirun ends its ranks
                try:
                    each.wait(10)
                except subprocess.TimeoutExpired:
                    pass
            try:
                os.killpg(each.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            each.wait()
