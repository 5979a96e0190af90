"""examples/python, and the programs in the guides."""

import os
import re
import signal
import subprocess
import sys

import pytest
from test_launch import ENVIRONMENT, MPIRUN, mpi

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
EXAMPLES = os.path.join(ROOT, "examples", "python")


def test_digits(tmp_path):
    import numpy as np

    weights = []
    for n in (1, 2, 3, 4):
        out = mpi(n, "-m", "tutti", os.path.join(EXAMPLES, "digits.py"), "--weights", str(tmp_path / "w.npy")).stdout
        assert float(re.search(r"accuracy ([\d.]+)", out)[1]) >= 0.95
        weights.append(np.load(tmp_path / "w.npy"))
    assert len(weights[0]) > 1000 and max(abs(w - weights[0]).max() for w in weights) < 1e-4


def test_digits_on_a_mesh(tmp_path):
    """As one worker, whatever the mesh: images over its rows, hidden units over its columns; 48 units over 5 workers are uneven."""
    import numpy as np

    weights = []
    for n, tensor, mesh in [(1, 1, "1 x 1"), (2, 1, "2 x 1"), (4, 2, "2 x 2"), (5, 5, "1 x 5")]:
        out = mpi(n, "-m", "tutti", os.path.join(EXAMPLES, "digits_2d.py"), "--tensor", str(tensor), "--weights", str(tmp_path / "w.npz")).stdout
        assert float(re.search(mesh + r" workers: accuracy ([\d.]+)", out)[1]) >= 0.95
        weights.append(dict(np.load(tmp_path / "w.npz")))
    assert len(weights[0]) == 4 and max(abs(w[name] - weights[0][name]).max() for w in weights for name in w) < 1e-3


def test_digits_that_make_room(tmp_path):
    """Told to make room, then on other workers from where it was: the weights of a training that nothing has stopped."""
    import numpy as np

    args = ["-m", "tutti", os.path.join(EXAMPLES, "digits_2d.py"), "--epochs", "300"]
    checkpoint = str(tmp_path / "x.safetensors")
    mpi(2, *args, "--weights", str(tmp_path / "whole.npz"))
    first = subprocess.Popen([MPIRUN, "-n", "4", sys.executable, *args, "--tensor", "2", "--checkpoint", checkpoint],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)  # fmt: skip
    while not first.stdout.readline().startswith("epoch 50:"):
        assert first.poll() is None
    first.send_signal(signal.SIGUSR1)
    said = first.communicate(timeout=60)[0]
    assert first.returncode == 75, said
    out = mpi(3, *args, "--checkpoint", checkpoint, "--weights", str(tmp_path / "parts.npz")).stdout
    assert 50 < int(re.search(r"goes on after (\d+) epochs", out)[1]) < 300 and "3 x 1 workers" in out
    whole, parts = (dict(np.load(tmp_path / name)) for name in ("whole.npz", "parts.npz"))
    assert len(whole) == 4 and max(abs(whole[name] - parts[name]).max() for name in whole) < 1e-3
    assert os.listdir(tmp_path).count("x.safetensors") == 1 and len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("n, heads, columns", [(1, 6, 1), (2, 1, 2), (3, 6, 3), (4, 6, 2), (8, 6, 4)])
def test_transformer(n, heads, columns):
    out = mpi(n, "-m", "tutti", os.path.join(EXAMPLES, "tensor_parallel_transformer.py"), str(heads), "7", str(columns)).stdout
    assert f"{heads} heads on {n} workers, {n // columns} x {columns}" in out


def snippets():
    """Every program of a guide with what it prints: a ```python block, and a ```text block if one follows."""
    for name in ("python.md", "programs.md", "from_disco.md", "from_dtensor.md", "from_mpi4py.md"):
        with open(os.path.join(ROOT, "docs", name)) as guide:
            found = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", guide.read(), re.M | re.S)
        for i, (program, says) in enumerate(found):
            yield pytest.param(program, says, id=f"{name}-{i + 1}")


@pytest.mark.parametrize("program, says", snippets())
def test_programs_in_the_guides(tmp_path, program, says):
    """On two workers. `...` in what it says stands for anything."""
    (tmp_path / "script.py").write_text(program)
    if "from mpi4py" in program:  # the other side: run by the long suite
        return
    code = 1 if "Traceback" in says else 0
    done = mpi(2, "-m", "tutti", "script.py", code=code, cwd=tmp_path)
    said = re.sub(r"-{20,}\n.*?-{20,}\n", "", done.stdout + done.stderr, flags=re.S)  # mpirun's own words
    said = re.sub(r"^ +~*\^+\n|^ +~+\^*\n", "", said, flags=re.M)  # Python 3.13 underlines the calls of a traceback
    assert re.fullmatch(re.escape(says).replace(re.escape("..."), ".*?"), said, re.S), said
