#!/usr/bin/env bash
# run_suites.sh BUILD_DIR [meson test options]: runs tests; the last line is "N passed, N failed, N skipped".
set -uo pipefail
build=$1; shift
meson test -C "$build" --no-rebuild --print-errorlogs --num-processes 3 "$@" 2>&1 | tee "$build/tests.log"
code=${PIPESTATUS[0]}
count() { awk -v name="$1" '$0 ~ "^" name ":" { n += $NF } END { print n + 0 }' "$build/tests.log"; }
failed=$(($(count Fail) + $(count Timeout) + $(count "Unexpected Pass")))
[ "$code" = 0 ] || [ "$failed" -gt 0 ] || failed=1
[ $(($(count Ok) + failed + $(count Skipped))) -gt 0 ] || failed=1  # no test ran
grep -E ' SKIP ' "$build/tests.log" | sed 's/^/skipped: /'
echo "$(count Ok) passed, $failed failed, $(count Skipped) skipped"
[ "$failed" = 0 ]
