#!/bin/sh
# check_tidy.sh BUILD_DIR: clang-tidy has nothing to say about the sources and the headers they include.
set -eu
cd "$(dirname "$0")/../.."
find src -name '*.cpp' | xargs -P "$(nproc)" -n 4 clang-tidy -quiet -p "$1" 2>/dev/null
