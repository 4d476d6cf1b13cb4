#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The device tests on real GPUs (one or more), in one call. Needs only a staged folder:
#
#   cmake --build build/release --target gpu_stage     here: into build/release/tests/gpu/stage (12 MB)
#   stage/run.sh stage                                  there, without compiler and cmake
#
# or, where it was built: tests/gpu/run.sh build/release. Each test is a process of its own with a time limit (a hung GPU
# takes only that one down). Full logs go to $OUT (default: a new temporary folder); a table comes last. Exit code 1: a
# test failed. THALWEG_GPU_TEST_SECONDS: the limit, 60. THALWEG_GPU_BACKENDS="emulated fake cuda": others beside GPUs.
set -uo pipefail
folder=${1:?usage: run.sh BUILD_OR_STAGE_FOLDER [GoogleTest filter]}
filter=${2:-*}
[ -x "$folder/gpu_devices" ] || folder="$folder/tests/gpu/stage"
program=$folder/gpu_devices
[ -x "$program" ] || { echo "run.sh: no gpu_devices in $folder: cmake --build ... --target gpu_stage"; exit 2; }
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
limit=${THALWEG_GPU_TEST_SECONDS:-60}
backends=${THALWEG_GPU_BACKENDS:-cuda}

(nvidia-smi; nvidia-smi topo -m; uname -a) >"$out/machine.log" 2>&1
failed=0 table=""
for backend in $backends; do
  mapfile -t tests < <("$program" --backend="$backend" --gtest_list_tests --gtest_filter="$filter" 2>"$out/list.$backend.log" |
    awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}')
  [ ${#tests[@]} -gt 0 ] || { cat "$out/list.$backend.log"; table+="$backend: no tests run"$'\n'; failed=1; }
  for test in "${tests[@]}"; do
    start=$(date +%s%N)
    log="$out/devices.$backend.log"
    echo "==== $test" >>"$log"
    timeout --kill-after=5 "$limit" "$program" --backend="$backend" --gtest_filter="$test" >"$out/one.log" 2>&1
    code=$?
    cat "$out/one.log" >>"$log"
    result=ok
    if [ $code = 124 ] || [ $code = 137 ]; then
      result="TIMED OUT"
    elif [ $code != 0 ]; then
      result="FAILED ($code)"
    elif grep -q '\[  SKIPPED \]' "$out/one.log"; then
      result=skipped
    fi
    case $result in ok | skipped) ;; *) failed=1; grep -A8 -m2 'Failure' "$out/one.log" ;; esac
    table+=$(printf '%-8s %-58s %-12s %6d ms' "$backend" "$test" "$result" $((($(date +%s%N) - start) / 1000000)))$'\n'
  done
done
rm -f "$out/one.log"
grep -m4 'NVIDIA.*MiB\|Driver Version\|| .*NVIDIA' "$out/machine.log"
printf '\n%slogs: %s\n' "$table" "$out"
exit $failed
