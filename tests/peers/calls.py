"""Calls to two workers of one machine by tutti and by others, in turns, each by its fastest way from Python.

    PYTHONPATH=build/src/python tests/peers/calls.py [rounds]
    PEERS_FOLDER: for the others' wheels, build/peers; what can't be had is left out, by name

Prints a table of medians, and fails if a replay of tutti's is not ten times as fast as the fastest of the others. "call and wait": a function of two ints on both workers, and the controller has both answers. "calls a second": one
call after the other, a wait at the end. "replayed": the call in a loop that runs without the controller, where there is such a way.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import wheels

WORKERS = 2
HERE = os.path.abspath(__file__)
PACKAGES = {"mpi4py.futures": "mpi4py", "ipyparallel": "ipyparallel", "Ray": "ray", "Monarch": "torchmonarch"}


def add(a, b):
    return a + b


def us(once, times):
    """Of the median of five runs, after one that is not counted."""
    runs = []
    for _ in range(6):
        begun = time.perf_counter()
        for _ in range(times):
            once()
        runs.append((time.perf_counter() - begun) / times * 1e6)
    return statistics.median(runs[1:])


def per_second(issue, wait, times):
    def run():
        for _ in range(times):
            issue()
        wait()

    return times / us(run, 1) * 1e6


def of_tutti(native):
    import tutti

    session = tutti.ProcessSession(WORKERS)
    function, arguments = (session.get_global_func("tutti.echo"), (1,)) if native == "native" else (session.define(add), (1, 2))
    session.sync_all()

    def call_and_wait():
        function(*arguments)
        session.sync_all()

    figures = {"call and wait": us(call_and_wait, 2000),
               "calls a second": per_second(lambda: function(*arguments), session.sync_all, 100000)}
    with session.record() as program:
        function(*arguments)
    program.repeat(100)
    session.sync_all()
    times = 100000

    def replay():
        program.repeat(times)
        session.sync_all()

    figures["replayed"] = times / us(replay, 1) * 1e6
    session.shutdown()
    return figures


def of_mpi4py():
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor(max_workers=WORKERS) as pool:

        def call_and_wait():
            for answer in [pool.submit(add, 1, 2) for _ in range(WORKERS)]:
                answer.result()

        answers = []

        def wait():
            for answer in answers:
                answer.result()
            answers.clear()

        return {"call and wait": us(call_and_wait, 300),
                "calls a second": per_second(lambda: answers.append(pool.submit(add, 1, 2)), wait, 2000 * WORKERS) / WORKERS}


def of_ipyparallel():
    import ipyparallel

    cluster = ipyparallel.Cluster(n=WORKERS, log_level=40)
    client = cluster.start_and_connect_sync()
    try:
        view = client[:]
        answers = []

        def wait():
            for answer in answers:
                answer.get()
            answers.clear()

        return {"call and wait": us(lambda: view.apply_sync(add, 1, 2), 100),
                "calls a second": per_second(lambda: answers.append(view.apply_async(add, 1, 2)), wait, 300)}
    finally:
        cluster.stop_cluster_sync()


def of_ray():
    import ray
    from ray.dag import InputNode, MultiOutputNode

    ray.init(num_cpus=WORKERS + 1, log_to_driver=False, include_dashboard=False, logging_level="ERROR")

    @ray.remote(num_cpus=0)
    class Worker:
        def add(self, a):
            return a + 2

    workers = [Worker.remote() for _ in range(WORKERS)]
    figures = {"call and wait": us(lambda: ray.get([w.add.remote(1) for w in workers]), 200)}
    answers = []

    def wait():
        ray.get(answers)
        answers.clear()

    figures["calls a second"] = per_second(lambda: answers.extend(w.add.remote(1) for w in workers), wait, 1000)
    with InputNode() as value:
        graph = MultiOutputNode([w.add.bind(value) for w in workers])
    compiled = graph.experimental_compile()
    figures["compiled: call and wait"] = us(lambda: ray.get(compiled.execute(1)), 300)

    def some():  # as many as may be under way
        for refs in [compiled.execute(1) for _ in range(8)]:
            ray.get(refs)

    figures["compiled: calls a second"] = 8 / us(some, 50) * 1e6
    compiled.teardown()
    ray.shutdown()
    return figures


def of_monarch():
    from monarch.actor import Actor, endpoint, this_host

    class Worker(Actor):
        @endpoint
        def add(self, a: int, b: int) -> int:
            return a + b

    workers = this_host().spawn_procs(per_host={"workers": WORKERS}).spawn("workers", Worker)
    workers.add.call(1, 2).get()
    return {"call and wait": us(lambda: workers.add.call(1, 2).get(), 200),
            "calls a second": per_second(lambda: workers.add.broadcast(1, 2), lambda: workers.add.call(1, 2).get(), 2000)}


PEERS = {"tutti, a native function": (of_tutti, "native"), "tutti, a function of Python": (of_tutti, "python"), "mpi4py.futures": (of_mpi4py,),
         "ipyparallel": (of_ipyparallel,), "Ray": (of_ray,), "Monarch": (of_monarch,)}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    folder = wheels.folder("build/peers")
    venvs = {name: wheels.venv(folder, package, [package]) for name, package in PACKAGES.items()}
    found = {name: [] for name in PEERS}
    for _ in range(rounds):
        for name in PEERS:
            if venvs.get(name, folder) is None:
                continue
            python = str(venvs[name] / "bin" / "python") if name in venvs else sys.executable
            command = [python, HERE, "--one", name]
            if name == "mpi4py.futures":
                command = [os.environ.get("MPIRUN", "mpirun"), "-n", str(WORKERS + 1), python, "-m", name, *command[1:]]
            said = ""
            try:
                out, said = wheels.run([command])
                found[name].append(json.loads(out.strip().splitlines()[-1]))
            except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
                print(f"{name} is left out: {error!r} {said.strip()[-300:]}", file=sys.stderr)
    print(f"{WORKERS} workers, medians of {rounds} runs\n\n| | call and wait | calls a second |\n|---|---|---|")
    for name, runs in found.items():
        if not runs:
            continue
        medians = {what: statistics.median(run[what] for run in runs) for what in runs[0]}
        print(f"| {name} | {medians['call and wait']:.1f} µs | {medians['calls a second']:,.0f} |")
        if "compiled: call and wait" in medians:
            print(f"| {name}, compiled graph | {medians['compiled: call and wait']:.1f} µs | {medians['compiled: calls a second']:,.0f} |")
        if "replayed" in medians:
            print(f"| {name}, replayed | | {medians['replayed']:,.0f} |")
    if not all(runs for name, runs in found.items() if name.startswith("tutti")):
        sys.exit("tutti did not run")
    replayed = min(statistics.median(run["replayed"] for run in found[name]) for name in found if name.startswith("tutti"))
    others = [max(run.get("compiled: calls a second", 0), run["calls a second"]) for name in PACKAGES for run in found[name]]
    if others and replayed < 10 * max(others):
        sys.exit(f"a replay of tutti's runs {replayed:,.0f} calls a second, another's {max(others):,.0f}: expected ten times as many")
    if not all(found.values()):
        print("left out: " + ", ".join(name for name, runs in found.items() if not runs))
        sys.exit(77)


if __name__ == "__main__":
    if "--one" in sys.argv:
        which, *arguments = PEERS[sys.argv[sys.argv.index("--one") + 1]]
        print(json.dumps(which(*arguments)), flush=True)
    else:
        main()
