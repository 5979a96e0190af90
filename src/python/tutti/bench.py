"""How fast tutti is from Python:

    mpirun -n 2 python3 -m tutti -m tutti.bench        # ranks
    python3 -m tutti.bench                             # threads

Medians; every figure beside what bounds it in the same run.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy

import tutti
from tutti._worker import is_rank
from tutti.distributed import DeviceMesh, random


def seconds(function):
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def median(function, repeats):
    return sorted(function() for _ in range(repeats))[repeats // 2]


def calls_per_second(session, call, times=100_000):
    def issue():
        for _ in range(times):
            call(1)
        session.sync_all()

    return times / seconds(issue)


def call_and_sync_us(session, call, times=5_000):
    def issue():
        for _ in range(times):
            call(1)
            session.sync_all()

    return seconds(issue) / times * 1e6


def copy_ratio(session, mib=64):
    """numpy.copyto's time by ours."""
    host, other = numpy.ones(mib << 18, "float32"), numpy.zeros(mib << 18, "float32")
    remote = session.empty(host.shape, "float32", worker0_only=True)

    def ours():
        session.copy_to_worker_0(host, remote)
        session.sync_worker_0()

    ours(), numpy.copyto(other, host)
    ratios = sorted(seconds(lambda: numpy.copyto(other, host)) / seconds(ours) for _ in range(9))
    return ratios[4]


def sum_us(session, times=1_000):
    """A sum of two small DTensors."""
    mesh = DeviceMesh(session.num_workers)
    x, y = (random(session, (8, 8), mesh, "S[0]", seed=seed) for seed in (0, 1))

    def issue():
        for _ in range(times):
            x + y
        session.sync_all()

    return seconds(issue) / times * 1e6


def product_ratio(session, extent=1024):
    """numpy's time for a product of matrices, by one process, by ours with its rows shared out."""
    mesh = DeviceMesh(session.num_workers)
    x, w = random(session, (extent, extent), mesh, "S[0]"), random(session, (extent, extent), mesh, "R", seed=1)
    a, b = x.full().numpy(), w.full().numpy()

    def ours():
        x @ w
        session.sync_all()

    ours(), a @ b
    ratios = sorted(seconds(lambda: a @ b) / seconds(ours) for _ in range(9))
    return ratios[4]


def of_tvm(session, repeats, times=20_000):
    """A compiled function of TVM's virtual machine on every worker, of the same one called in this process; and what it takes to hand tensors over."""
    import tempfile

    import tvm
    import tvm_ffi
    from tvm import relax
    from tvm.script import relax as R

    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((8, 8), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    compiled = tvm.compile(builder.finalize(), target="llvm")
    alone, host = relax.VirtualMachine(compiled, tvm.cpu())["main"], tvm.runtime.tensor(numpy.ones((8, 8), "float32"))
    with tempfile.TemporaryDirectory() as folder:
        compiled.export_library(folder + "/model.so")
        remote, everywhere = session.load_vm_module(folder + "/model.so")["main"], session.broadcast(host)
        session.sync_all()

    def repeat(function, *arguments):
        for _ in range(times):
            function(*arguments)
        session.sync_all()

    def ns(function, *arguments):
        repeat(function, *arguments)  # warm
        return median(lambda: seconds(lambda: repeat(function, *arguments)), repeats) / times * 1e9

    in_process, ours = ns(alone, host), tutti.tensor(host)
    return [
        ["calls of a compiled function of TVM's, in this process", 1e9 / in_process, "/s"],
        ["the same on every worker, of that", in_process / ns(remote, everywhere), "x"],
        ["tvm_ffi.from_dlpack(tutti's tensor)", ns(tvm_ffi.from_dlpack, ours), "ns"],
        ["tvm_ffi.from_dlpack(TVM's tensor)", ns(tvm_ffi.from_dlpack, host), "ns"],
        ["tutti.from_dlpack(TVM's tensor)", ns(tutti.from_dlpack, host), "ns"],
        ["numpy.from_dlpack(tutti's tensor)", ns(numpy.from_dlpack, ours), "ns"],
    ]


def import_seconds(module="tutti"):
    def once():
        code = f"import time; b = time.perf_counter(); import {module}; print(time.perf_counter() - b)"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ).stdout)

    once()
    return median(once, 5)


def start_seconds(workers=4):
    def once():
        code = (f"import time, tutti; b = time.perf_counter(); s = tutti.ProcessSession({workers}); s.sync_all(); "
                "print(time.perf_counter() - b)")
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ).stdout)

    return median(once, 5)


def measure(session, repeats):
    @session.define
    def echo(x):
        return x

    native, quick = session.get_global_func("tutti.echo"), session.get_global_func("tutti.quick_echo")
    rows = []
    for name, function in (("native", native), ("quick native", quick), ("Python", echo)):
        calls_per_second(session, function, 10_000)  # warm
        rows.append([f"calls of a {name} function", median(lambda: calls_per_second(session, function), repeats), "/s"])
        rows.append([f"call and sync of a {name} function", median(lambda: call_and_sync_us(session, function), repeats), "us"])
    rows.append(["copy_to_worker_0 of 64 MiB, of numpy.copyto", copy_ratio(session), "x"])
    rows.append(["a sum of small DTensors", median(lambda: sum_us(session), repeats), "us"])
    rows.append(["x @ w, 1024 x 1024 float32, as numpy in one process", product_ratio(session), "x"])
    return rows


def main():
    parser = argparse.ArgumentParser(prog="python3 -m tutti.bench", description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the median is shown")
    parser.add_argument("--workers", type=int, default=2, help="threads, without mpirun")
    parser.add_argument("--tvm", action="store_true", help="also calls of a model that TVM compiles, and tensors handed over")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with tutti.Session() if is_rank() else tutti.ThreadedSession(options.workers) as session:
        about = repr(session)
        rows = measure(session, options.repeats)
        if options.tvm:
            rows += of_tvm(session, options.repeats)
    if not is_rank():  # they start processes
        rows.append(["import tutti", import_seconds(), "s"])
        rows.append(["import numpy", import_seconds("numpy"), "s"])
        rows.append(["ProcessSession(4) with Python in the workers", start_seconds(), "s"])
    if options.format == "json":
        print(json.dumps({"schema": "tutti.bench.python/1", "session": about, "rows": [dict(zip(("what", "value", "unit"), row)) for row in rows]}))
        return
    print(about)
    for what, value, unit in rows:
        print(f"{what:<52} {value:>12,.3f} {unit}" if value < 1000 else f"{what:<52} {value:>12,.0f} {unit}")


if __name__ == "__main__":
    main()
