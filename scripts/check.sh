#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make check: format, types, lint, sanitizers, fuzzing. Each part runs even if one before it failed.
# usage: scripts/check.sh [format|types|lint|asan|tsan|fuzz ...]    (all without arguments)
# LINT=all lints every source file; otherwise those that differ from main's origin, or the last commit. FUZZ_SECONDS=20 each.
set -uo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(format types lint asan tsan fuzz)
jobs=$(nproc)
passed=0 failed=0 skipped=0

verdict() { # name, exit code
  if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "check: $1 passed"; else failed=$((failed + 1)); echo "check: $1 FAILED"; fi
}
skip() { skipped=$((skipped + 1)); echo "check: $1 skipped: $2"; }
first_of() { local c; for c in "$@"; do command -v "$c" && return; done; return 1; }

lint() {
  local tidy base
  tidy=$(first_of clang-tidy clang-tidy-19 clang-tidy-18 clang-tidy-14) || { skip lint "no clang-tidy (apt-get install clang-tidy)"; return; }
  cmake --preset dev -DTHALWEG_PYTHON=OFF >/dev/null || { verdict lint 1; return; }
  base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD~1 2>/dev/null || true)
  if [ "${LINT:-}" = all ] || [ -z "$base" ]; then
    mapfile -t files < <(git ls-files 'src/*.cpp')
  else
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp')
  fi
  [ ${#files[@]} -gt 0 ] || { skip lint "no changed source file (LINT=all for all)"; return; }
  # The compiler's own warnings are the compiler's job, and gcc's options are unknown to clang.
  printf '%s\0' "${files[@]}" | xargs -0 -P "$jobs" -n 4 timeout 1200 "$tidy" -p build/dev --quiet \
    --extra-arg=-Wno-everything
  verdict lint $?
}

sanitizer() { # preset, tests to leave out (a regular expression over their names)
  cmake --preset "$1" >/dev/null && cmake --build --preset "$1" -j "$jobs" || { verdict "$1" 1; return; }
  # intercept_tls_get_addr: the leak checker guesses where thread-local memory of a library opened later is (the fake driver),
  # and breaks when the guess is wrong.
  THALWEG_GPU_REPLAYS=50 ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:intercept_tls_get_addr=0 \
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
    timeout 3000 ctest --preset "$1" -E "$2" --timeout 300
  verdict "$1" $?
}

fuzz() {
  local compiler target
  [ -f tests/fuzz/CMakeLists.txt ] || { skip fuzz "no fuzz targets"; return; }
  compiler=$(first_of clang++ clang++-19 clang++-18 clang++-14) || { skip fuzz "no clang (apt-get install clang)"; return; }
  cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="${compiler/++/}" >/dev/null &&
    cmake --build --preset fuzz -j "$jobs" --target fuzz || { verdict fuzz 1; return; }
  for target in $(find build/fuzz -maxdepth 4 -type f -executable -name '*_fuzz'); do
    mkdir -p "build/fuzz/corpus/$(basename "$target")"
    timeout 300 "$target" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
      -verbosity=0 -artifact_prefix=build/fuzz/ "build/fuzz/corpus/$(basename "$target")"
    verdict "$(basename "$target")" $?
  done
}

for part in "${parts[@]}"; do
  echo "check: $part"
  case "$part" in
    format) scripts/format.sh --check; verdict format $? ;;
    types) .venv/bin/mypy; verdict types $? ;;
    lint) lint ;;
    # Instrumented code is several times slower: the conformance over one shared and one encrypted connection is enough here.
    asan) sanitizer asan '^(conformance\.(self|shm_one|tcp_one|tcp_two).*|stress|faults\..*|hosts)$' ;;
    tsan) sanitizer tsan '^(conformance\..*|faults\..*|device_faults\..*/(tcp_|shm_[^o]).*|hosts|processes\..*|example_.*)$' ;;
    fuzz) fuzz ;;
    *) echo "check: no part is called $part"; exit 2 ;;
  esac
done
echo "check: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
