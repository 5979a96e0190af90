#!/usr/bin/env bash
# check_host_faults.sh BUILD_DIR: what goes wrong on 3 hosts x 2 ranks over TCP: a throw, a killed rank, a cut link, a slow one. Root.
# Exit code 77: this machine can't make network namespaces.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
export HOSTS_STATE HOSTS_PREFIX=tuttif HOSTS_NET=10.203.0
HOSTS_STATE=$(mktemp -d)
out=$(mktemp)
trap '"$here/hosts-down" "$HOSTS_STATE" >/dev/null; rm -rf "$HOSTS_STATE" "$out"' EXIT
command -v ip >/dev/null || { echo "skipped: no ip command (iproute2)"; exit 77; }
"$here/hosts-up" 3 "$HOSTS_STATE" || { echo "skipped: no network namespaces here"; exit 77; }
bad=0
# mpirun itself gives a host up after these seconds, not 498 (and before our ranks' last words queue up for it: unsent data puts it off)
keepalive=(--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2)
on_hosts() { timeout -s KILL 60 "$here/hosts-mpirun" -n 6 "$@"; }
says() { # NAME CODE TEXT: of what ran last
  if [ "$code" != "$2" ] || ! grep -q -- "$3" "$out"; then
    echo "FAILED: $1: exit code $code, expected $2 and '$3'"; tail -n 40 "$out"; bad=1
  else
    echo "ok: $1"
  fi
}
ranks_left() { # HOST...: processes of the program
  local host
  for host; do ip netns pids "$host" | xargs -r ps -o pid=,args= -p | grep 'host_faults ' | grep -vE 'mpirun|prterun'; done
}
program=$build/tests/control/host_faults

on_hosts "$program" throw >"$out" 2>&1; code=$?
says "throw on one host" 0 'RemoteError: \[worker 5 tuttif3 .*told to throw'
on_hosts "$program" kill >"$out" 2>&1; code=$?
says "SIGKILL of a rank" 137 'rank 5 .*on node tuttif3 exited'
[ -z "$(ranks_left tuttif1 tuttif2 tuttif3)" ] || { echo "FAILED: ranks are left"; bad=1; }


"$here/hosts-fault" tuttif3 slow 500 || bad=1
on_hosts "$program" work 100 >"$out" 2>&1; code=$?
says "a slow link (500 kbit/s)" 0 'all is well'
ip netns exec tuttif3 tc qdisc del dev eth0 root

# cut HOST LAUNCHER WHAT...: the link of that host goes down; all ranks are gone within 10 s, and those that can be heard say why
cut() {
  local host=$1 launcher=$2 options=() job start took left
  shift 2
  [ "$launcher" = alone ] || options=("${keepalive[@]}")
  : >"$out"
  on_hosts "${options[@]}" "$program" "$@" >"$out" 2>&1 &
  job=$!
  for _ in $(seq 200); do grep -q 'at work' "$out" && break; sleep 0.1; done
  grep -q 'at work' "$out" && [ "$(ranks_left tuttif1 tuttif2 tuttif3 | wc -l)" -ge 6 ] || { echo "FAILED: $*: not at work when the link is to be cut"; bad=1; }
  "$here/hosts-fault" "$host" link-down
  start=$(date +%s%N)
  while [ -n "$(ranks_left tuttif1 tuttif2 tuttif3)" ] && [ $(($(date +%s%N) - start)) -lt 12000000000 ]; do sleep 0.1; done
  took=$((($(date +%s%N) - start) / 1000000))
  left=$(ranks_left tuttif1 tuttif2 tuttif3)
  [ -z "$left" ] || { echo "FAILED: a cut link, $*: ranks run after 12 s: $left"; bad=1; }
  [ "$took" -le 10500 ] || { echo "FAILED: a cut link, $*: the ranks were gone after $took ms, expected 10 s at most"; bad=1; }
  if [ "$launcher" = alone ]; then
    pkill -KILL -f "(mpirun|prterun) --hostfile $HOSTS_STATE" # it waits for TCP to give up, which takes minutes
    wait $job
    code=0
    says "$host cut off, $*: all ranks gone after $took ms" 0 "on tuttif$([ "$host" = tuttif1 ] && echo '[23]' || echo 3) has not been heard from for"
  else
    wait $job; code=$?
    took=$((($(date +%s%N) - start) / 1000000))
    [ "$code" != 0 ] || ! command -v prterun >/dev/null || code=1  # Open MPI 5's own; tutti run makes 1 of it
    [ "$code" = 0 ] || [ "$code" = 137 ] || [ "$took" -gt 12000 ] || code=ended
    says "$host cut off, with keepalive, $*: mpirun gone too after $took ms" ended 'tuttif3'
  fi
  "$here/hosts-fault" "$host" link-up
}
cut tuttif3 alone work 1000
cut tuttif3 alone compute 5  # the others wait for it in a collective
cut tuttif3 alone compute 0
cut tuttif1 alone work 1000  # the controller's, and mpirun's
cut tuttif3 keepalive work 1000
cut tuttif3 keepalive compute 5
exit $bad
