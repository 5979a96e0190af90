#!/usr/bin/env bash
# check_bench.sh TUTTI MPIRUN: every collective of tutti bench, redistribute and checkpoint run, check their data, write JSON that is read as
# a baseline; wrong options are errors.
set -euo pipefail
tutti=$1 mpirun=$2
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for operation in allreduce reduce_scatter allgather broadcast scatter gather all_to_all sendrecv; do
  for memory in tutti foreign; do
    timeout 60 "$mpirun" -n 2 "$tutti" bench "$operation" -b 8 -e 1M -f 50 -n 2 -w 1 --memory "$memory" --format json >"$out"
    /usr/bin/python3 - "$out" "$operation" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["schema"] == "tutti.bench-collective/1" and report["operation"] == sys.argv[2], report
assert len(report["rows"]) >= 3 and all(row["out_of_place"]["wrong"] == 0 and row["out_of_place"]["us"] > 0 for row in report["rows"]), report
PY
  done
  timeout 60 "$mpirun" -n 2 "$tutti" bench "$operation" -b 8 -e 8K -f 50 -n 2 --memory foreign --baseline "$out" | grep "baseline" >/dev/null
done
timeout 60 "$mpirun" -n 3 "$tutti" bench allreduce -b 8 -e 64K -f 20 -n 3 -d bfloat16 -o avg --skew 100 | grep "wrong values: 0" >/dev/null
timeout 60 "$mpirun" -n 2 "$tutti" bench broadcast -b 8 -e 1K -f 20 -n 3 -r 1 --format osu | grep "Avg Latency" >/dev/null
if timeout 60 "$mpirun" -n 2 "$tutti" bench sendrecv -b 8 -e 8K -f 50 -n 2 --baseline "$out" >/dev/null 2>&1; then echo "a baseline with other options was taken"; exit 1; fi
if timeout 60 "$mpirun" -n 2 "$tutti" bench broadcast -r 2 -e 8 >"$out" 2>&1; then echo "-r 2 of 2 ranks was taken"; exit 1; fi
grep "expected a rank below 2" "$out" >/dev/null
if timeout 60 "$mpirun" -n 2 "$tutti" bench allreduce -b 1K -e 8 >"$out" 2>&1; then echo "-e below -b was taken"; exit 1; fi
grep "expected 1 <= -b <= -e" "$out" >/dev/null
timeout 60 "$mpirun" -n 2 "$tutti" bench copy --repeats 1 --format json >"$out"
for row in "scatter to all" "debug_get_from_remote of the last worker" "debug_copy_from to the last worker"; do
  grep "$row" "$out" >/dev/null
done
for n in 1 2 3; do timeout 60 "$mpirun" -n $n "$tutti" bench redistribute --repeats 1 -s 4M --format json >"$out"; done  # checks its data
for row in "S\[0\] to S\[1\]" "P to R"; do grep "$row" "$out" >/dev/null; done
for n in 1 3; do timeout 60 "$mpirun" -n $n "$tutti" bench checkpoint --repeats 1 -s 4M --folder "$(dirname "$out")" --format json >"$out"; done
for row in "save_async, until it returns" "load as S\[1\], no checksums"; do grep "$row" "$out" >/dev/null; done
echo "bench: fine"
