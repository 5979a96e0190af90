#!/usr/bin/python3
"""Ranks killed at random moments of a program that is busy with collectives: it ends, and leaves neither processes nor shared memory behind.

    random_kills.py STRESS_TEST MPIRUN ROUNDS [SEED]   rounds on processes, ranks of one node and ranks of two
"""
import os
import random
import subprocess
import sys
import time
import uuid

from left_behind import orphans, shared_memory, sweep, what_is_left

WORKERS = 4
LIMIT_S = 10  # from the kill to the end of everything
START_S = 60


def workers_of(mark, stress_test):
    return sorted((pid for pid in orphans(mark) if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(stress_test)), key=int)


def all_workers_of(mark, stress_test):
    """None when they do not come up."""
    begun = time.monotonic()
    while len(workers := workers_of(mark, stress_test)) < WORKERS:
        if time.monotonic() - begun > START_S:
            return None
        time.sleep(0.02)
    return workers


def kill_one(stress_test, mpirun, kind, after, chosen):
    """None, or what is wrong."""
    mark = f"TUTTI_TEST_CELL={uuid.uuid4().hex}"
    env = dict(os.environ, TUTTI_TEST_KIND=kind.split()[0], TUTTI_TEST_WORKERS=str(WORKERS), TUTTI_TEST_SECONDS="60", TUTTI_TEST_CELL=mark.split("=")[1])
    if kind == "mpi 2 nodes":
        env["TUTTI_RANKS_PER_NODE"] = "2"
    command = [stress_test] if kind == "process" else [mpirun, "-n", str(WORKERS), stress_test]
    names = shared_memory()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
        workers = all_workers_of(mark, stress_test)
        time.sleep(after)
        if not workers or process.poll() is not None:
            sweep(orphans(mark))
            return f"{'ended before the kill' if workers else 'does not start'}: {process.communicate()[0]}"
        victim = workers[chosen]
        sweep([victim])
        begun = time.monotonic()
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            left = orphans(mark)
            workers = workers_of(mark, stress_test)
            sweep(left)
            if kind == "process" and len(workers) == WORKERS and victim not in workers:
                process.communicate()
                return None  # killed between two sessions: another process has taken its place, and the program goes on
            output, _ = process.communicate()
            if left == [str(process.pid)] and "PMIX ERROR: UNREACHABLE" in output:
                print(f"mpirun hangs, without ranks: {victim} was killed while it connected to it, in MPI_Init", flush=True)
                return None  # Open MPI 4.1; nothing of ours is left
            return f"hangs; processes {left}; killed was {victim}\n{output}"
    if process.returncode == 0:
        return f"the exit code is 0 though process {victim} was killed\n{output}"
    left = what_is_left(mark, names, begun + LIMIT_S)
    return f"{left}\n{output}" if left else None


def main():
    stress_test, mpirun, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    failed = 0
    for i in range(rounds):
        for kind in ["process", "mpi", "mpi 2 nodes"]:
            after, chosen = chance.uniform(0, 2), chance.randrange(WORKERS)
            if wrong := kill_one(stress_test, mpirun, kind, after, chosen):
                failed += 1
                print(f"FAILED: round {i}, {kind}, after {after:.2f} s: {wrong}", flush=True)
    print(f"{3 * rounds - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
