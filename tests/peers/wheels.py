"""PyPI's wheels of other libraries, each in a virtual environment of its own, in a folder that is used again: PEERS_FOLDER."""

import os
import pathlib
import subprocess
import sys


def folder(default):
    return pathlib.Path(os.environ.get("PEERS_FOLDER", default)).resolve()


def venv(parent, name, packages):
    """The environment, or None: what can't be had is left out, by name."""
    where = parent / name
    if (where / "is_complete").exists():
        return where
    install = [where / "bin" / "pip", "install", "--quiet", *packages]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", where], check=True)
        if subprocess.run(install).returncode != 0:
            subprocess.run(install, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return None
    (where / "is_complete").touch()
    return where
