#!/bin/sh
# check_tutti_trace.sh TUTTI WAYS: the command on files that a program wrote.
set -eu
. "$(dirname "$0")/../support/mpi_env.sh"
tutti=$1 ways=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$tutti" --version | grep -qx '[0-9.]*'
TUTTI_TRACE=$dir "$ways" drop 2>/dev/null
"$tutti" trace report "$dir" >"$dir/report"
grep -q 'first failing command 2: ways.fail on worker 0' "$dir/report"
if "$tutti" trace report "$dir" >/dev/full 2>/dev/null; then
  echo 'FAILED: a report that could not be written, exit code 0'
  exit 1
fi
"$tutti" trace timeline "$dir" -o "$dir/x.json"
grep -q '"traceEvents":\[.*"name":"ways.fail"' "$dir/x.json"
refused() { # TEXT COMMAND...
  text=$1
  shift
  if "$@" >"$dir/out" 2>&1 || ! grep -q -- "$text" "$dir/out"; then
    echo "FAILED: $*: expected an error that says '$text', got"
    cat "$dir/out"
    exit 1
  fi
}
mkfifo "$dir/tutti-a.json" # nobody writes into it
timeout 20 "$tutti" trace report "$dir" 2>&1 | grep -q 'left out: .*tutti-a.json is no regular file'
rm "$dir/tutti-a.json"
mkdir "$dir/empty"
refused 'holds no traces' "$tutti" trace report "$dir/empty"
refused 'No such file' "$tutti" trace report "$dir/none"
refused 'Is a directory' "$tutti" trace timeline "$dir" -o "$dir/empty"
refused 'output is required' "$tutti" trace timeline "$dir"
refused 'subcommand is required' "$tutti"
echo '{"schema": 7}' >"$dir/tutti-x.json"
"$tutti" trace report "$dir" 2>&1 | grep -q 'left out: .*tutti-x.json is no trace of tutti'
mv "$dir/tutti-x.json" "$dir/empty"
refused 'no traces that can be read' "$tutti" trace report "$dir/empty"
