#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats C, C++ and Python; with --check only tells which files are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
# What matches the patterns and exists, committed or new.
sources() { git ls-files --cached --others --exclude-standard "$@" | while read -r file; do [ ! -f "$file" ] || echo "$file"; done; }
# clang-format over everything: C by the .clang-format next to it, C++ by the root's also where C stands in the same folder.
each() {
  local failed=0
  sources '*.c' '*.h' | xargs .venv/bin/clang-format "$@" || failed=1
  sources '*.cpp' '*.hpp' | xargs .venv/bin/clang-format --style=file:.clang-format "$@" || failed=1
  return $failed
}
if [ "${1:-}" = --check ]; then
  failed=0
  each --dry-run -Werror 2> >(grep -oE '^[^ :]+:[0-9]+:' | cut -d: -f1 | sort | uniq -c >&2) || failed=1
  .venv/bin/ruff format --check --quiet . || failed=1
  .venv/bin/ruff check --quiet . || failed=1
  [ $failed = 0 ] && echo "format: the C, C++ and Python files are formatted" || echo "format: run 'make format'"
  exit $failed
fi
each -i
.venv/bin/ruff check --fix --quiet . || true
.venv/bin/ruff format --quiet .
