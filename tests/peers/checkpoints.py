"""Checkpoints of tutti beside torch.distributed.checkpoint: 16 float32 tensors, cut by rows, on 4 processes of one machine, in turns.

    tests/peers/checkpoints.py [MiB [repeats]]      PEERS_PYTHON: a python that has torch; PYTHONPATH: build/src/python

Prints medians of four figures: how long a save takes; how long an asynchronous one blocks; how long a load takes, from the page cache, into
memory that is there; and the memory that a save and a load take besides, of the process that takes most. Checks what has been loaded.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

RANKS, TENSORS, COLUMNS = 4, 16, 1024


def peak(reset=False):
    """The most memory that this process has had, in KiB."""
    if reset:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return int(status["VmRSS" if reset else "VmHWM"].split()[0])


def of_torch(folder, rows):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    mesh, rank = init_device_mesh("cpu", (RANKS,)), dist.get_rank()

    def state(value):
        return {f"t{i}": DTensor.from_local(torch.full((rows // RANKS, COLUMNS), float(value + i)), mesh, [Shard(0)]) for i in range(TENSORS)}

    saved, loaded, figures = state(rank), state(-1), []
    for step in (lambda: dcp.save(saved, checkpoint_id=f"{folder}/a"), lambda: dcp.async_save(saved, checkpoint_id=f"{folder}/b"),
                 lambda: dcp.load(loaded, checkpoint_id=f"{folder}/a")):
        before = peak(reset=True)
        dist.barrier()
        begun = time.perf_counter()
        done = step()
        dist.barrier()
        figures += [time.perf_counter() - begun, (peak() - before) / 1024]
        if done is not None and hasattr(done, "result"):
            done.result()
    assert all((loaded[name].to_local() == saved[name].to_local()).all() for name in saved)
    worst = torch.tensor(figures)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if rank == 0:
        print(*worst.tolist())
    dist.destroy_process_group()


def of_tutti(folder, rows):
    import tutti
    from tutti.distributed import DeviceMesh, full

    with tutti.Session() as session:
        mesh = DeviceMesh(session.num_workers)
        session.import_python_module("checkpoints")
        peaks = session.get_global_func("peers.peak")
        saved = {f"t{i}": full(session, (rows, COLUMNS), i, mesh, "S[0]") for i in range(TENSORS)}
        loaded, figures = {name: full(session, (rows, COLUMNS), -1, mesh, "S[0]") for name in saved}, []
        session.sync_all()
        del loaded  # what a load finds, as torch's does
        for step in (lambda: session.save(f"{folder}/a.safetensors", saved), lambda: session.save_async(f"{folder}/b.safetensors", saved),
                     lambda: session.load(f"{folder}/a.safetensors", mesh, "S[0]")):
            before = [peaks(True).debug_get_from_remote(worker) for worker in range(RANKS)]
            session.sync_all()
            begun = time.perf_counter()
            done = step()
            figures.append(time.perf_counter() - begun)
            after = peaks(False)
            figures.append(max(after.debug_get_from_remote(worker) - before[worker] for worker in range(RANKS)) / 1024)
            if hasattr(done, "wait"):
                done.wait()
        assert all((done[name] == saved[name]).all().item() for name in saved)
        print(*figures)


def run(folder, command):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return [float(figure) for figure in done.stdout.split()]


def main(mib=256, repeats=3):
    rows = mib * (1 << 20) // 4 // COLUMNS // TENSORS // RANKS * RANKS
    peer = os.environ["PEERS_PYTHON"]
    found = {"tutti": [], "torch": []}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
        for _ in range(repeats):
            found["tutti"].append(run(f"{folder}/t", ["mpirun", "-n", str(RANKS), sys.executable, "-m", "tutti", __file__, "tutti", f"{folder}/t", str(rows)]))
            found["torch"].append(run(f"{folder}/t", [peer, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), __file__, "torch", f"{folder}/t", str(rows)]))
    medians = {name: [statistics.median(figures) for figures in zip(*runs)] for name, runs in found.items()}
    print(f"{mib} MiB in {TENSORS} tensors on {RANKS} processes, medians of {repeats}")
    for i, what in enumerate(["save, s", "  memory, MiB", "save_async, until it returns, s", "  memory, MiB", "load, s", "  memory, MiB"]):
        ours, theirs = medians["tutti"][i], medians["torch"][i]
        print(f"{what:<36} {ours:>10.3f} {theirs:>10.3f} torch" + ("" if "memory" in what else f"   x {theirs / ours:.2f}"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["torch"]:
        of_torch(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["tutti"]:
        of_tutti(sys.argv[2], int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
else:  # a worker of tutti's has imported it
    import tutti

    tutti.register_global_func("peers.peak", peak, override=True)
