#!/usr/bin/env python3
"""check_scale.py BUILD_DIR RANKS...: the tree between leaders on so many simulated hosts, smallest first. Simulated time is the same in
every run, so it may decide: a call and its sync cost no more than the logarithm of the ranks."""
import math
import pathlib
import re
import subprocess
import sys

build, sizes = sys.argv[1], [int(n) for n in sys.argv[2:]]
here = pathlib.Path(__file__).parent
subprocess.run([here / "build_leaders.sh", build], check=True)
first = None
for ranks in sizes:
    line = subprocess.run([here / "simulate.sh", build, str(ranks)], check=True, capture_output=True, text=True).stdout.strip()
    print(line, flush=True)
    cost = float(re.fullmatch(rf"{ranks} ranks: call\+sync ([0-9.]+) us, .*", line)[1]) / math.log2(ranks)
    first = first or cost
    if cost > 1.25 * first:
        sys.exit(f"FAILED: {cost:.2f} us for each doubling, {first:.2f} us at {sizes[0]} ranks: the cost grows faster than log(ranks)")
