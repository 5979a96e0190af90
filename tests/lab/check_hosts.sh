#!/usr/bin/env bash
# check_hosts.sh BUILD_DIR: the session suites and an example on 3 hosts x 2 ranks in network namespaces, over TCP. Root.
# Exit code 77: this machine can't make network namespaces.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
export HOSTS_STATE HOSTS_PREFIX=tutti HOSTS_NET=10.202.0
HOSTS_STATE=$(mktemp -d)
trap '"$here/hosts-down" "$HOSTS_STATE" >/dev/null; rm -rf "$HOSTS_STATE"' EXIT
command -v ip >/dev/null || { echo "skipped: no ip command (iproute2)"; exit 77; }
"$here/hosts-up" 3 "$HOSTS_STATE" || { echo "skipped: no network namespaces here"; exit 77; }
on_hosts() { timeout 300 "$here/hosts-mpirun" -n 6 -x TUTTI_TEST_KIND=mpi -x TUTTI_TEST_WORKERS=6 -x TUTTI_TEST_ONE_NODE=0 "$@"; }
set -e
on_hosts "$build/examples/hello"
on_hosts "$build/examples/heat"
on_hosts -x TUTTI_TEST_SECONDS=5 "$build/tests/collective/stress_test" --gtest_brief=1 --gtest_color=no
for program in session failure channel; do on_hosts "$build/tests/control/${program}_test" --gtest_brief=1 --gtest_color=no; done
on_hosts -x TUTTI_TEST_PROGRAMS=30 "$build/tests/control/differential_test" --gtest_brief=1 --gtest_color=no
echo "3 hosts: fine"
