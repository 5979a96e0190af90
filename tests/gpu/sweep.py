#!/usr/bin/env python3
"""sweep.py PROGRAM [--every N]: in a short program on the stand-ins each call of the driver and of NCCL fails once, with each error. The
program must end by itself within seconds: with its results, with an error that names the call after which the session goes on, or with the
end of the session, which names it as well. Only the first uses of a function are tried. The last line: N passed, N failed, N skipped."""

import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys

options = argparse.ArgumentParser()
options.add_argument("program")
options.add_argument("--every", type=int, default=1, help="only every so many cases")
options.add_argument("--uses", type=int, default=4, help="of each function")
options = options.parse_args()

CODES = {"cu": [1, 2, 201, 400, 700, 719, 999], "nc": [1, 2, 3, 4, 5, 6]}
# of what is let go nobody waits for a result
FREES = {"cuMemFreeAsync", "cuStreamDestroy", "cuCtxSetCurrent", "ncclCommFinalize", "ncclCommDestroy", "cuMemPoolTrimTo"}
# why a session has no GPUs is found out once a process
ONCE = {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount"}
# calls that tell of other ones
TELLS = {"cuEventQuery": "the work on a stream", "ncclCommGetAsyncError": "ncclCommInitRankConfig"}


def run(fail=None, *args):
    env = os.environ | {"TUTTI_TIMEOUT": "10"} | ({"STANDIN_FAIL": fail} if fail else {})
    try:
        done = subprocess.run([options.program, *args], env=env, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired as error:
        return None, (error.stdout or b"").decode(), (error.stderr or b"").decode()
    return done.returncode, done.stdout, done.stderr


def judge(case):
    """"" or what is wrong."""
    function, use, code = case
    status, out, err = run(f"{function}:{use}:{code}", "uses")
    if status is None:
        return "hangs\n" + out + err
    ending = out.splitlines()[0] if out else ""
    if status != 0 or not re.match("done$|error, (goes on|stays): |at the end: |ended: ", ending):
        return f"exit code {status}\n" + out + err
    if ending == "done":
        if int(dict(re.findall(r"^use (\w+) (\d+)$", out, re.MULTILINE)).get(function, 0)) < use:
            return ""  # how often some are called is a matter of time: this time not so often
        # memory is freed, and it is tried again; some queries are about pinned pieces, which are not used again then
        is_met = function in FREES or (function, code) == ("cuMemAllocFromPoolAsync", 2) or function == "cuEventQuery"
        return "" if is_met else "nobody noticed it\n" + out + err
    if ending.startswith("error, stays") != (function in ONCE):
        return "the session can't be used any more\n" + out + err
    return "" if function in ending or TELLS.get(function, function) in ending else "the call is not named\n" + out + err


status, out, err = run(None, "uses")
uses = {name: int(number) for name, number in re.findall(r"^use (\w+) (\d+)$", out, re.MULTILINE)}
if status != 0 or not out.startswith("done\n") or len(uses) < 30:
    sys.exit(f"without a failure: exit code {status}\n{out}{err}\n0 passed, 1 failed, 0 skipped")
cases = [(function, use, code) for function in sorted(uses) for use in range(1, min(uses[function], options.uses) + 1)
         for code in CODES[function[:2]]][::options.every]
failed = collections.Counter()
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for case, wrong in zip(cases, pool.map(judge, cases)):
        if wrong:
            failed[case[0]] += 1
            print(f"{case[0]}, use {case[1]}, error {case[2]}: {wrong}", flush=True)
print(dict(failed) or f"{len(uses)} functions")
print(f"{len(cases) - failed.total()} passed, {failed.total()} failed, 0 skipped")
sys.exit(bool(failed))
