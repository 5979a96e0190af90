"""Checkpoints and huggingface's safetensors, a wheel in an environment of its own: each reads what the other writes."""

import subprocess
import sys
import venv

import numpy as np

import tutti
from tutti.distributed import DeviceMesh

THEIRS = """
import sys
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

expected, ours, theirs = dict(np.load(sys.argv[1])), *sys.argv[2:]
found = load_file(ours)
assert found.keys() == expected.keys(), found.keys()
for name, array in expected.items():
    assert found[name].dtype == array.dtype and found[name].shape == array.shape and found[name].tobytes() == array.tobytes(), name
with safe_open(ours, "np") as file:
    assert file.metadata()["step"] == "5"
save_file(expected, theirs, metadata={"format": "np"})
"""


def test_both_ways(tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "safetensors", "numpy"], check=True)
    draw = np.random.default_rng(3)
    arrays = {f"layer.{dtype}": (100 * draw.random((7, 5))).astype(dtype) for dtype in ("float16", "float32", "float64", "int8", "uint16", "int64", "bool")}
    arrays |= {"scalar": np.array(2.5), "empty": np.zeros((0, 4), "float32"), "\u00e4 \"x\"": draw.random((3, 2, 4))}
    np.savez(tmp_path / "expected.npz", **arrays)
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    with tutti.ProcessSession(3) as session:
        mesh = DeviceMesh(3)
        tensors = {name: session.distribute(array, mesh, "S[0]" if array.ndim else "R") for name, array in arrays.items()}
        session.save(ours, tensors, metadata={"step": "5"})
        subprocess.run([python, "-c", THEIRS, tmp_path / "expected.npz", ours, theirs], check=True)
        loaded = session.load(theirs, DeviceMesh(2, [2, 0]), lambda name, info: f"S[{len(info.shape) - 1}]" if info.shape else "R")
        assert loaded.keys() == arrays.keys()
        for name, array in arrays.items():
            found = loaded[name].full().numpy()
            assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes(), name
