#!/usr/bin/env bash
# check_debian13.sh COMMAND [DIR]: COMMAND, run by bash in a fresh Debian 13, on tutti's sources as they are committed. Root.
# Nothing is left behind but DIR, where one is named: what is there is used again. Exit code 77: no debootstrap here.
set -euo pipefail
command=$1 dir=${2:-}
source=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
command -v debootstrap >/dev/null || { echo "skipped: no debootstrap"; exit 77; }
if [ -z "$dir" ]; then
  dir=$(mktemp -d -p "${TUTTI_DEBIAN13:-/var/tmp}")
  trap 'rm -rf --one-file-system "$dir"' EXIT
fi
[ -f "$dir/etc/debian_version" ] || debootstrap --variant=minbase --include=ca-certificates,git trixie "$dir" >"$dir.log" 2>&1 ||
  { tail -n 20 "$dir.log"; echo "debootstrap failed"; exit 1; }
rm -f "$dir.log"
chmod 755 "$dir"
mkdir -p "$dir/root/tutti"
git -C "$source" archive HEAD | tar -x -C "$dir/root/tutti"
# processes, mounts, shared memory and names of System V of its own: all end with it. Its folder is the root, not by chroot:
# nsenter, by which tests/lab/hosts-* reach their hosts, leaves a chroot
unshare --mount --pid --ipc --fork --kill-child=KILL bash -euc '
  mount --bind "$1" "$1"
  cd "$1"
  mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc
  for own in dev/shm tmp run; do mount -t tmpfs -o mode=1777 own "$own"; done
  pivot_root . mnt
  umount -l /mnt
  exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash -c "cd /root/tutti; $2"' - "$dir" "$command"
