"""Checkpoints of programs that are killed."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from test_launch import mpi

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
        for _ in range(50):  # workers of the last one may still be there, on a busy host, and have their lock
            session.save(path, {"x": session.distribute(np.arange(6), mesh, "S[0]")})
            if len(os.listdir(path.parent)) == (1 if name == "x.safetensors" else 2):
                break
            time.sleep(0.1)
        assert len(os.listdir(path.parent)) == (1 if name == "x.safetensors" else 2)


ROOM = """
import os
import signal
import sys
import numpy as np
import tutti
from tutti.distributed import DeviceMesh

with tutti.Session() as session:
    mesh = DeviceMesh(session.num_workers)
    last, other = (session.distribute(np.full(5, value, "float32"), mesh, "S[0]") for value in (1, 2))
    session.sync_all()
    session.on_preemption(lambda: session.save(sys.argv[1], {"last": last}))
    os.kill(os.getpid(), signal.SIGUSR1)
    session.save_async(sys.argv[1], {"other": other}).wait()
"""


def test_a_hook_that_saves_while_another_save_begins(tmp_path):
    (tmp_path / "room.py").write_text(ROOM)
    path = tmp_path / "data" / "x.safetensors"
    path.parent.mkdir()
    mpi(2, "-m", "tutti", str(tmp_path / "room.py"), str(path), code=75)
    with tutti.ThreadedSession(1) as session:
        assert (session.load(path, DeviceMesh(1), "R")["last"].full().numpy() == 1).all()
    assert os.listdir(path.parent) == ["x.safetensors"]


MEMORY = """
import sys
import tutti
from tutti.distributed import DeviceMesh, random

SIZE, WORKERS = 96 << 20, 3


def reset():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(key))


def on_all(session, key):
    value = session.define(status)(key)
    return [value.debug_get_from_remote(worker) for worker in range(WORKERS)]


def peak_of(session, work):
    session.define(reset)()
    before = on_all(session, "VmRSS")
    kept = work()
    taken = [after - now for after, now in zip(on_all(session, "VmHWM"), before)]
    print(min(taken), max(taken))


if __name__ == "__main__":
    path, by = sys.argv[1:]
    with tutti.ProcessSession(WORKERS) as session:
        mesh = DeviceMesh(WORKERS)
        x = random(session, (SIZE // 4 // 8192, 8192), mesh, by)
        session.save(path, {"x": x})  # what is taken once
        peak_of(session, lambda: session.save(path, {"x": x}))
        peak_of(session, lambda: session.save_async(path, {"x": x}).wait())
        peak_of(session, lambda: (session.load(path, mesh, by), session.load(path, mesh, by)))
"""


@pytest.mark.parametrize("by", ["S[0]", "S[1]"])
def test_memory(tmp_path, by):
    """Saving takes a few buffers, an asynchronous save the parts again; loading the parts and a few buffers, by columns, too."""
    part, buffers, script = 32 << 20, 8 << 20, tmp_path / "memory.py"
    script.write_text(MEMORY)
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "x.safetensors"), by], capture_output=True, text=True, check=True)
    save, save_async, load = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert save[1] <= buffers
    assert part - buffers <= save_async[0] and save_async[1] <= part + buffers
    assert part - buffers <= load[0] and load[1] <= 2 * part + buffers  # one part lies where the copy lay
