"""Programs that need what a bare machine has not."""

import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def mpi(*command):
    return subprocess.run([os.environ["MPIRUN"], "-n", "2", sys.executable, *command], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def test_the_program_of_mpi4py(tmp_path):
    with open(os.path.join(ROOT, "docs", "from_mpi4py.md")) as guide:
        (tmp_path / "script.py").write_text(re.search(r"^```python\n(from mpi4py.*?)^```", guide.read(), re.M | re.S)[1])
    assert mpi(str(tmp_path / "script.py")) == "140.0\n"


def test_the_loss_curve(tmp_path):
    mpi("-m", "tutti", os.path.join(ROOT, "examples", "python", "digits.py"), "--plot", str(tmp_path / "loss.png"))
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
