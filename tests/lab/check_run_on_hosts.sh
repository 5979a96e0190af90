#!/usr/bin/env bash
# check_run_on_hosts.sh BUILD_DIR: tutti run, test and doctor on 3 hosts in network namespaces: the digits, a cut link, a blocked port. Root.
# Exit code 77: this machine can't make network namespaces.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
export HOSTS_STATE HOSTS_PREFIX=tuttir HOSTS_NET=10.204.0
HOSTS_STATE=$(mktemp -d)
out=$HOSTS_STATE/out
trap '"$here/hosts-down" "$HOSTS_STATE" >/dev/null; rm -rf "$HOSTS_STATE"' EXIT
for program in ip iptables; do command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }; done
"$here/hosts-up" 3 "$HOSTS_STATE" >/dev/null || { echo "skipped: no network namespaces here"; exit 77; }
fail() { echo "FAILED: $1"; tail -n 40 "$out"; exit 1; }
# tutti ARGUMENTS...: as if typed on the first host
tutti() {
  timeout -k 5 120 "$HOSTS_STATE/agent" tuttir1 "exec env $(tr '\n' ' ' <"$HOSTS_STATE/env") $build/launcher/tutti $(printf '%q ' "$@")" >"$out" 2>&1
}
hosts=(--hosts tuttir1:2,tuttir2:2,tuttir3:2)

tutti run -n 6 "${hosts[@]}" -- hostname && [ "$(grep -cE '^\[[0-5]\] tuttir[123]$' "$out")" = 6 ] || fail "hostname"
for host in 1 2 3; do [ "$(grep -c "tuttir$host$" "$out")" = 2 ] || fail "two ranks on tuttir$host"; done
tutti run -n 6 "${hosts[@]}" -- "$build/examples/digits" && grep -q 'accuracy 0.9' "$out" || fail "the digits"
tutti test -n 3,6 "${hosts[@]}" --junit "$HOSTS_STATE/junit" -- "$build/tests/launcher/spmd" && grep -q '2 passed, 0 failed' "$out" || fail "tutti test"
grep -q 'name="spmd, 6 ranks" tests="6"' "$HOSTS_STATE/junit" || fail "results of rank 0: $(cat "$HOSTS_STATE/junit")"
tutti run -n 6 "${hosts[@]}" -- bash -c '[ $OMPI_COMM_WORLD_RANK != 5 ] || exit 5; sleep 60'; [ $? = 5 ] || fail "the exit code of a rank on another host"
echo "ok: jobs on 3 hosts"

# cut COMMAND...: a link is cut while it works; the job has ended within 10 s, on a busy machine in one of three tries, and the host is named
cut() {
  local job start took code
  for _ in 1 2 3; do
    rm -f "$out"
    tutti "$@" &
    job=$!
    for _ in $(seq 200); do grep -q 'at work' "$out" 2>/dev/null && break; sleep 0.1; done
    grep -q 'at work' "$out" || fail "a job whose link is to be cut is not at work after 20 s"
    sleep 0.5
    kill -0 $job 2>/dev/null || fail "a job whose link is to be cut has ended by itself"
    "$here/hosts-fault" tuttir3 link-down
    start=$(date +%s%N)
    wait $job; code=$?
    took=$((($(date +%s%N) - start) / 1000000))
    "$here/hosts-fault" tuttir3 link-up
    [ $code = 1 ] || [ $code = 205 ] || fail "a cut link: exit code $code, the guide says 1 or 205"
    grep -q tuttir3 "$out" || fail "a cut link: the host is not named"
    echo "ok: ${*:6}: the job ended $took ms after a link was cut, exit code $code: $(grep -m1 tuttir3 "$out")"
    [ $took -gt 10000 ] || return 0
  done
  fail "a cut link: the job ended after $took ms, expected 10 s at most: $*"
}
cut run -n 6 "${hosts[@]}" -- "$build/tests/control/host_faults" work 1000
cut run -n 6 "${hosts[@]}" -- bash -c 'echo at work; sleep 60'

# a firewall between two of them, not between them and where mpirun runs
block() { "$HOSTS_STATE/agent" tuttir2 "iptables $1 INPUT -s 10.204.0.3 -p tcp --dport 1024:65535 -j DROP; iptables $1 OUTPUT -d 10.204.0.3 -p tcp --dport 1024:65535 -j DROP"; }
tutti doctor "${hosts[@]}" || fail "tutti doctor, all is well"
grep -q '^ok .*ranks on all 3 start and exchange messages' "$out" || fail "tutti doctor, all is well"
block -A
tutti doctor --timeout 6 "${hosts[@]}"; [ $? = 1 ] || fail "tutti doctor finds a firewall"
[ "$(grep -c '^PROBLEM' "$out")" = 1 ] && grep -q '^PROBLEM .*tuttir2 and tuttir3 start ranks, but messages between them do not arrive' "$out" || fail "tutti doctor names the two hosts"
block -D
"$here/hosts-fault" tuttir3 link-down
tutti doctor --timeout 6 "${hosts[@]}"; [ $? = 1 ] || fail "tutti doctor finds a host that can't be reached"
grep -q '^PROBLEM .*no rank starts on tuttir3' "$out" || fail "tutti doctor names the host"
echo "ok: tutti doctor on 3 hosts"
