#!/usr/bin/env python3
"""Checks the models of the node's protocols with spin: all states, or as many as fit; and that planted faults are found.
Exit code 77: no spin here."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ALL = ["-DHC4"]  # states by a hash of 64 bits
SAMPLE = ["-DBITSTATE"]  # by three bits of 2^31: as many as come in SAMPLE_SECONDS
RUNS = [  # model, its parameters, how
    ("seqlock", "", ALL),
    ("ring", "-DREADERS=1", ALL),
    ("ring", "-DREADERS=1 -DORDERED", ALL),
    ("ring", "-DREADERS=2", ALL),
    ("ring", "-DREADERS=2 -DORDERED", ALL),
    ("worker0", "", ALL),
    ("agreement", "-DWORKERS=2 -DORDER=0 -DIDS=2 -DDIFFER", ALL),
    ("agreement", "-DWORKERS=2 -DORDER=0 -DIDS=3", ALL),
    ("agreement", "-DWORKERS=2 -DORDER=1 -DIDS=2", ALL),
    ("agreement", "-DWORKERS=2 -DORDER=3 -DIDS=3", ALL),
    ("agreement", "-DWORKERS=3 -DORDER=0 -DIDS=1 -DLOOKS=false", ALL),
    ("agreement", "-DWORKERS=3 -DORDER=0 -DIDS=2 -DDIFFER", SAMPLE),
    ("agreement", "-DWORKERS=3 -DORDER=2 -DIDS=3", SAMPLE),
]
FAULTS = [
    ("seqlock", "-DFAULT_NEVER_ODD", "assertion"),
    ("seqlock", "-DFAULT_DOES_NOT_LOOK_AGAIN", "assertion"),
    ("ring", "-DFAULT_HEAD_FIRST", "assertion"),
    ("ring", "-DREADERS=2 -DFAULT_ONE_TAIL", "assertion"),
    ("ring", "-DORDERED -DFAULT_SLEEPS_LONG", "invalid end state"),
    ("ring", "-DREADERS=2 -DORDERED -DFAULT_WAKES_ONCE", "invalid end state"),
    ("worker0", "-DFAULT_NO_SHORT_SLEEP", "invalid end state"),
    ("agreement", "-DWORKERS=2 -DORDER=3 -DIDS=3 -DFAULT_DOES_NOT_WAIT_FOR_TAKERS", "assertion"),
    ("agreement", "-DWORKERS=2 -DORDER=3 -DIDS=3 -DFAULT_TAKES_BEFORE_IT_READS", "assertion"),
    ("agreement", "-DWORKERS=2 -DORDER=1 -DIDS=2 -DFAULT_LEAVES_ON_FIRST_SUSPICION", "assertion"),
]
SAMPLE_SECONDS = 60


def check(model, parameters, how):
    """What pan says; the number of states."""
    with tempfile.TemporaryDirectory() as folder:
        words = parameters.split()
        source = str(FOLDER / f"{model}.pml")
        subprocess.run(["spin", "-a", *words, source], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["gcc", "-O2", "-w", "-DSAFETY", "-DNOFAIR", *how, "-o", "pan", "pan.c"], cwd=folder, check=True)
        limit = ["timeout", "--signal=INT", str(SAMPLE_SECONDS)] if how == SAMPLE else []
        sizes = ["-w31"] if how == SAMPLE else ["-w26"]
        command = [*limit, "./pan", "-m1000000", *sizes]
        said = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    states = re.search(r"([0-9.e+]+) states, stored", said)
    return said, int(float(states[1])) if states else 0


def main():
    if not (shutil.which("spin") and shutil.which("gcc")):
        print("skipped: no spin, or no gcc")
        return 77
    failed = 0
    for model, parameters, how in RUNS:
        begin = time.monotonic()
        said, states = check(model, parameters, how)
        is_whole = not re.search("max search depth too small|Search not completed|out of memory", said)
        is_well = "errors: 0" in said and states > 0 and (is_whole or how == SAMPLE)
        failed += not is_well
        size = f"{states:,} states{'' if how == ALL else ', a sample'}, {time.monotonic() - begin:.0f} s"
        print(f"{'ok' if is_well else 'FAILED'}: {model} {parameters}: {size}", flush=True)
        if not is_well:
            print(said)
    for model, parameters, expected in FAULTS:
        said, _ = check(model, parameters, ALL)
        is_found = expected in said and "errors: 1" in said
        failed += not is_found
        print(f"{'ok: found' if is_found else 'FAILED: not found'}: {model} {parameters}", flush=True)
    print(f"{len(RUNS) + len(FAULTS) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


sys.exit(main())
