#!/bin/sh
# check_tidy.sh BUILD_DIR [COMMITS]: clang-tidy has nothing to say about the sources, or those that the last commits have changed, and the
# headers they include.
set -eu
cd "$(dirname "$0")/../.."
database=$(mktemp -d)  # of each file's flags: the build itself compiles files by the dozen
trap 'rm -rf "$database"' EXIT
meson setup "$database" -Dunity=off >/dev/null 2>&1
if [ $# -gt 1 ] && git rev-parse -q --verify "HEAD~$2" >/dev/null; then
  for commit in $(git rev-list -n "$2" HEAD); do  # but those that only format
    grep -qs "$commit" .git-blame-ignore-revs || git show --format= --name-only "$commit" -- 'src/*.cpp'
  done | sort -u | while read -r file; do [ ! -f "$file" ] || echo "$file"; done
else
  find src -name '*.cpp'
fi | xargs -r -P "$(nproc)" -n 2 clang-tidy -quiet -p "$database" 2>/dev/null
