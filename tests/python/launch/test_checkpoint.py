"""Checkpoints of programs that are killed."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tutti
from tutti.distributed import DeviceMesh

KILLS = int(os.environ.get("TUTTI_TEST_KILLS", "12"))

SAVES = """
import sys
import numpy as np
import tutti
from tutti.distributed import DeviceMesh

path, kind, first, is_async = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "async"
if __name__ == "__main__":
    with getattr(tutti, kind)(3) as session:
        mesh = DeviceMesh(3)
        for step in range(first, first + 10000):
            tensors = {name: session.distribute(np.full((300, 1000), step, "int32"), mesh, "S[0]") for name in "abc"}
            if is_async:
                session.save_async(path, tensors, file_bytes=1 << 20).wait()
            else:
                session.save(path, tensors, file_bytes=1 << 20)
            print(step, flush=True)
"""


@pytest.mark.parametrize("name", ["x.safetensors", "x.safetensors.index.json"])
def test_killed_at_any_moment(tmp_path, name):
    """The file is that of one save, not older than the last that ended; the next save removes what the dead ones have left."""
    path, script, draw = tmp_path / "data" / name, tmp_path / "saves.py", random.Random(name)
    path.parent.mkdir()
    script.write_text(SAVES)
    ended, remains = 0, 0
    with tutti.ThreadedSession(2) as session:
        mesh = DeviceMesh(2)

        def check():
            found = [np.unique(tensor.full().numpy()) for tensor in session.load(path, mesh, "S[1]").values()]
            assert len(found) == 3 and all(len(values) == 1 for values in found) and len(set(map(int, found))) == 1
            return int(found[0])

        for kill in range(KILLS):
            kind = draw.choice(["ThreadedSession", "ProcessSession"])
            child = subprocess.Popen([sys.executable, str(script), str(path), kind, str(ended + 1), draw.choice(["async", "sync"])], stdout=subprocess.PIPE, text=True)
            ended = int(child.stdout.readline())
            time.sleep(draw.random() * 0.1)
            child.send_signal(signal.SIGKILL)
            ended = max([ended, *map(int, child.communicate()[0].split())])
            time.sleep(0.2)  # its workers go
            remains += len(os.listdir(path.parent)) > (1 if name == "x.safetensors" else 4)
            step = check()
            assert ended <= step <= ended + 1
            ended = step
        assert remains > 0  # some were killed in the middle
        session.save(path, {"x": session.distribute(np.arange(6), mesh, "S[0]")})
        assert len(os.listdir(path.parent)) == (1 if name == "x.safetensors" else 2)
