#!/usr/bin/python3
"""The fault matrix: what goes wrong x who x when x kind of session, each cell a program of its own with a time limit; and, for an exception
and a kill, x the collective, whose data may take another path.

    matrix.py FAULT_CELL MPIRUN [--every N]   every N-th cell (default: all)

docs/errors.md states the outcomes. The last line is "N passed, N failed, N skipped"; cells that make no sense are skipped with the reason.
"""
import argparse
import collections
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import uuid

from left_behind import orphans, shared_memory, sweep, what_is_left

LIMIT_S = 20  # of a cell, start-up included; an end that takes longer counts as a hang
WORKERS = 4
FAULTS = ["throw", "throw_int", "module", "exit", "kill", "segv", "loop", "mismatch", "skip"]
WHO = {"worker 0": 0, "last worker": WORKERS - 1, "all": -1}
WHEN = ["before", "inside", "after"]
KINDS = ["thread", "process", "mpi", "mpi 2 nodes"]
COLLECTIVES = ["large allreduce", "large allgather", "large reduce_scatter", "large foreign broadcast", "scatter", "large scatter", "gather", "large gather",
               "lent broadcast", "lent scatter"]  # beside allreduce, which has every cell
# worker functions run no code inside a collective: what can go wrong there is asked for with TUTTI_FAULT in=transfer
INSIDE = {"throw": "throw", "exit": "exit", "kill": "kill", "segv": "segv", "loop": "stall"}
CODE = {"exit": 3, "kill": 128 + signal.SIGKILL, "segv": 128 + signal.SIGSEGV}
ENDED = {"exit": "ended with exit code 3", "kill": r"killed by signal 9", "segv": r"killed by signal 11"}


def why_not(fault, when):
    if when != "inside" or fault in INSIDE:
        return None
    return {"throw_int": "the same as throw: all that leaves a back end is caught alike", "module": "a module's code does not run there",
            "mismatch": "operands are compared before data moves", "skip": "who is inside has not skipped"}[fault]


def expected(fault, who, when, kind):
    """(exit code, patterns that the output has)"""
    workers = "workers 0-3" if who < 0 else f"worker {who}"
    mine = rf"RemoteError: \[{workers} "
    on = "the session after it works"
    if when == "inside" and fault == "throw":  # others have begun to move data and can't be told
        over = r"failed inside a collective that the others may have agreed on"
        if kind.startswith("mpi"):
            return 1, [over]
        return (0, ["TransportError: .*" + over, "the next session works"]) if kind == "process" else (1, ["TransportError: .*" + over])
    if fault in ("throw", "throw_int", "module"):
        what = {"throw": "std::runtime_error: told to throw", "throw_int": "an exception that is not a std::exception", "module": "TypeError: length of what has none"}
        return 0, [mine + ".*cell.run: .*" + what[fault], "issued at .*cell.cpp", on]
    if fault == "fork":
        return 0, ["nothing was raised", on]
    if fault == "thread_exit":
        lost = rf"worker {who if who >= 0 else '[0-3]'} .*has ended the worker's thread"
        return (0, [lost, "the next session works"]) if kind == "process" else (1, [lost])
    if fault == "mismatch":
        lines = [rf"worker {who}: allreduce sum of {100 + who} float32", "workers? .*: allreduce sum of 50 float32"] if who >= 0 else \
                [f"worker {w}: allreduce sum of {100 + w} float32" for w in range(WORKERS)]
        return 0, ["RemoteError: .*operands differ"] + lines + [on]
    if fault == "skip":
        return (0, ["nothing was raised", on]) if who < 0 else \
               (0, [rf"RemoteError: \[workers? .* allreduce: worker {who} left the command without joining", on])
    if fault == "loop":
        doing = "computes cell.run in" if when != "inside" else r"moves data in allreduce #0 \(sum float32 x 50\) of"
        code = 0 if kind == "process" and who > 0 else 124
        if when == "inside" and who >= 0 and kind == "process":
            code = 124 if who == 0 else 0  # the others wait in shared memory, which can be taken from them
        return code, [rf"TimeoutError: .*\n(.*\n)*  worker {max(who, 0)} \(.*\): {doing} command"]
    if kind == "process" and who > 0:
        return 0, [rf"TransportError: worker {who} \(pid \d+ on .*\) was lost: {ENDED[fault]}", "the next session works"]
    if kind.startswith("mpi"):
        names = {"exit": r"Process name: \[\[\d+,\d+\],%s\]", "kill": r"process rank %s with PID .* on node .* exited on signal 9",
                 "segv": r"process rank %s with PID .* on node .* exited on signal 11"}
        return CODE[fault], [names[fault] % (r"\d" if who < 0 else who)]
    return CODE[fault], []  # the controller's own process


def run(cell, mpirun, fault, who, when, kind, collective):
    """None, or what is wrong."""
    mark = f"TUTTI_TEST_CELL={uuid.uuid4().hex}"
    env = dict(os.environ, TUTTI_TEST_CELL=mark.split("=")[1])
    if when == "inside":
        command = 13 if collective.startswith("lent") else 9  # as counted from the session's start
        env["TUTTI_FAULT"] = f"{INSIDE[fault]} command={command} in=transfer" + (f" worker={who}" if who >= 0 else "")
    if kind == "mpi 2 nodes":
        env["TUTTI_RANKS_PER_NODE"] = "2"
    command = [cell, kind.split()[0], fault if when != "inside" else INSIDE[fault], str(who), when, collective]
    if kind.startswith("mpi"):
        command = [mpirun, "-n", str(WORKERS)] + command
    code, patterns = expected(fault, who, when, kind)
    begun, memory = time.monotonic(), shared_memory()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            sweep(orphans(mark))
            return f"hangs\n{output}"
    got = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if left := what_is_left(mark, memory, begun + LIMIT_S):
        return f"{left}\n{output}"
    if got != code:
        return f"exit code {got}, expected {code}\n{output}"
    for pattern in ["the session works"] + patterns:
        if not re.search(pattern, output) and not (pattern == "the session works" and got in (3, 137, 139)):
            return f"the output lacks '{pattern}'\n{output}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cell")
    parser.add_argument("mpirun")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", help="a part of the cell's name")
    args = parser.parse_args()
    passed = failed = 0
    slowest = collections.Counter()  # of deaths, start-up included
    skipped = collections.Counter()
    cells = list(itertools.product(FAULTS, WHO, WHEN, KINDS, ["allreduce"]))
    cells += itertools.product(["throw", "kill"], ["worker 0", "last worker"], ["before", "inside"], KINDS, COLLECTIVES)
    cells += itertools.product(["fork", "thread_exit"], WHO, ["after"], KINDS, ["allreduce"])
    for i, (fault, who, when, kind, collective) in enumerate(cells):
        name = f"{fault}, {who}, {when} a collective, {kind}, {collective}"
        if i % args.every or (args.only and args.only not in name):
            continue
        if reason := why_not(fault, when):
            skipped[f"{fault} inside a collective: {reason}"] += 1
            continue
        begun = time.monotonic()
        wrong = run(args.cell, args.mpirun, fault, WHO[who], when, kind, collective)
        if fault in ENDED:
            slowest[kind] = max(slowest[kind], time.monotonic() - begun)
        passed += not wrong
        failed += bool(wrong)
        if wrong:
            print(f"FAILED: {name}: {wrong}", flush=True)
    print("slowest end after a death, in seconds: " + ", ".join(f"{kind} {took:.1f}" for kind, took in slowest.items()))
    for reason, n in skipped.items():
        print(f"skipped {n}: {reason}")
    print(f"{passed} passed, {failed} failed, {sum(skipped.values())} skipped")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
