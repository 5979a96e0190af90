#!/usr/bin/env bash
# check_fuzz.sh BUILD_DIR SECONDS: builds the fuzzers there (clang, ASan, UBSan) and gives each its seconds.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1 seconds=$2
command -v clang++ >/dev/null || { echo "no clang++"; exit 77; }
[ -f "$build/build.ninja" ] || CC=clang CXX=clang++ meson setup "$build" "$root" -Dfuzz=true -Dtests=disabled -Dexamples=false -Dpython=disabled -Doptimization=1 \
  -Db_sanitize=address,undefined -Db_lundef=false -Dwerror=false
ninja -C "$build" fuzzers
found=0
for fuzzer in "$build"/tests/fuzz/fuzz_*; do
  [ -f "$fuzzer" ] && [ -x "$fuzzer" ] || continue
  "$fuzzer" -max_total_time="$seconds" -rss_limit_mb=4096
  found=$((found + 1))
done
[ "$found" -ge 10 ] || { echo "expected 10 fuzzers, found $found"; exit 1; }
