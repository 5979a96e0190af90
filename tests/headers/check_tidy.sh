#!/bin/sh
# check_tidy.sh BUILD_DIR [COMMITS]: clang-tidy has nothing to say about the sources, or those that the last commits have changed, and the
# headers they include.
set -eu
cd "$(dirname "$0")/../.."
database=$(mktemp -d)  # of each file's flags: the build itself compiles files by the dozen
trap 'rm -rf "$database"' EXIT
meson setup "$database" -Dunity=off >/dev/null 2>&1
if [ $# -gt 1 ] && git rev-parse -q --verify "HEAD~$2" >/dev/null; then git diff --name-only --diff-filter=d "HEAD~$2" -- 'src/*.cpp'
else find src -name '*.cpp'; fi | xargs -r -P "$(nproc)" -n 2 clang-tidy -quiet -p "$database" 2>/dev/null
