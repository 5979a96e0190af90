#!/usr/bin/env bash
# check_format.sh [--fix]: C and C++ are formatted as .clang-format says. Exit code 77: no clang-format 14, other ones differ.
set -euo pipefail
cd "$(dirname "$0")/../.."
format=$(command -v clang-format-14 || command -v clang-format || true)
[[ $("${format:-false}" --version 2>/dev/null) == *" version 14."* ]] || { echo "skipped: no clang-format 14"; exit 77; }
how=(--dry-run --Werror)
[ "${1:-}" != --fix ] || how=(-i)
git ls-files '*.cpp' '*.h' '*.c' | xargs -n 20 -P 2 "$format" "${how[@]}"
