#!/usr/bin/env bash
# check_bench.sh TUTTI MPIRUN: every collective of tutti bench on GPUs (stand-ins), beside the raw NCCL call.
set -euo pipefail
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for operation in allreduce reduce_scatter allgather broadcast scatter gather all_to_all sendrecv; do
  timeout 60 "$2" -n 2 "$1" bench "$operation" -b 8 -e 64K -f 90 -n 2 -w 1 --device cuda --format json >"$out"
  /usr/bin/python3 - "$out" "$operation" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["operation"] == sys.argv[2] and report["device"] == "cuda" and report["ccl"] == "nccl", report
ways = [row[way] for row in report["rows"] for way in ("out_of_place", "in_place") if way in row]
assert all(row["out_of_place"]["start_us"] > 0 and row["out_of_place"]["nccl_start_us"] > 0 for row in report["rows"]), report
assert len(ways) >= 2 and all(way["wrong"] == 0 and way["us"] > 0 and way["nccl_us"] > 0 for way in ways), report
PY
done
timeout 60 "$2" -n 2 "$1" bench allreduce -e 8 -n 2 --device cuda >"$out"
grep "x: how many times as fast as NCCL" "$out" >/dev/null
if TUTTI_NCCL_LIBRARY=/nowhere timeout 60 "$2" -n 2 "$1" bench allreduce -e 8 --device cuda >"$out" 2>&1; then echo "no NCCL is no error"; exit 1; fi
grep "no NCCL on" "$out" >/dev/null
echo "bench of GPUs: fine"
