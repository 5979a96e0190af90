#!/bin/sh
# simulate.sh BUILD_DIR RANKS [BATCH MESSAGES SYNCS]: runs build/tests/sim/leaders on so many simulated hosts.
set -eu
build=$1 ranks=$2; shift 2
[ $# -gt 0 ] || set -- 32 64 3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$(dirname "$0")/platform.py" "$ranks" "$dir/platform"
# messages cost 0.3 us to send and 0.2 us to receive; computing costs nothing; one image for all ranks, which share no state of ours
smpirun -quiet -np "$ranks" -platform "$dir/platform.xml" -hostfile "$dir/platform.hosts" --cfg=smpi/privatization:no \
  --cfg=smpi/simulate-computation:no --cfg=smpi/bw-factor:0:1 --cfg=smpi/lat-factor:0:1 --cfg=smpi/os:0:3e-7:0 --cfg=smpi/ois:0:3e-7:0 \
  --cfg=smpi/or:0:2e-7:0 --cfg=smpi/async-small-thresh:65536 --cfg=smpi/test:1e-7 --cfg=smpi/iprobe:4e-7 --cfg=smpi/grow-injected-times:no \
  --cfg=contexts/stack-size:256 --cfg=contexts/guard-size:0 --log=root.thresh:warning "$build/tests/sim/leaders" "$@"
