#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats C, C++ and Python; with --check only tells which files are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cpp' '*.hpp' | while read -r f; do [ -f "$f" ] && echo "$f"; done)
if [ "${1:-}" = --check ]; then
  failed=0
  .venv/bin/clang-format --dry-run -Werror "${sources[@]}" 2> >(grep -oE '^[^ :]+:[0-9]+:' | cut -d: -f1 | sort | uniq -c >&2) || failed=1
  .venv/bin/ruff format --check --quiet . || failed=1
  .venv/bin/ruff check --quiet . || failed=1
  [ $failed = 0 ] && echo "format: ${#sources[@]} sources and the Python files are formatted" || echo "format: run 'make format'"
  exit $failed
fi
.venv/bin/clang-format -i "${sources[@]}"
.venv/bin/ruff check --fix --quiet . || true
.venv/bin/ruff format --quiet .
