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
python3 - "$build/meson-logs/testlog.json" <<'EOF'
import collections, json, sys
reasons = collections.Counter()
for line in open(sys.argv[1]):
    test = json.loads(line)
    if test["result"] == "SKIP":
        said = (test.get("stdout", "") + test.get("stderr", "")).strip().splitlines()
        print("skipped:", test["name"])
        reasons[said[-1] if said else "it does not say why"] += 1
for reason, count in reasons.items():
    print(f"{count} skipped: {reason}")
EOF
echo "$(count Ok) passed, $failed failed, $(count Skipped) skipped"
[ "$failed" = 0 ]
