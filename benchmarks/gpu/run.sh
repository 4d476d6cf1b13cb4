#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [PART...] [--device=emulated]: on a machine with two GPUs, in the folder that stage.sh made. Parts, each bounded:
#   speed        Thalweg, UCX and the floors in turn (95 s): gpu.json, speed.log
#   contract     the tests of the device contract, tests/gpu (60 s): contract.log
#   conformance  the conformance table with the devices' memory (3 x 40 s): conformance.log
#   floor        all floors (60 s): gpu-floor.json, floor.log
# Results go to $OUT (default: a new temporary folder). Exit code 1: something failed.
set -uo pipefail
cd "$(dirname "$0")"
out=$(realpath -m "${OUT:-$(mktemp -d)}")
mkdir -p "$out"
device=cuda parts=()
for word in "$@"; do
  case $word in
    --device=*) device=${word#*=} ;;
    speed | contract | conformance | floor) parts+=("$word") ;;
    *) echo "run.sh: no part $word; see its head"; exit 2 ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || { echo "run.sh: which part?"; exit 2; }
chmod u+x thalweg-* gpu_devices conformance contract.sh ucx/bin/* 2>/dev/null
export LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ "$device" = cuda ] || export THALWEG_EMULATED=devices=2

speed() { timeout 120 python3 speed.py --device "$device" --output "$out/gpu.json" 2>&1 | tee "$out/speed.log"; }

contract() {
  OUT="$out/contract" THALWEG_GPU_BACKENDS=$device THALWEG_GPU_TEST_SECONDS=15 timeout 60 ./contract.sh . 2>&1 | tee "$out/table.log"
  local code=$?
  cat "$out/table.log" "$out/contract"/*.log >"$out/contract.log"
  rm -rf "$out/contract" "$out/table.log"
  return $code
}

conformance() {
  local failed=0 way
  : >"$out/conformance.log"
  for way in 'shm_two*' 'self*' 'tcp_two*'; do
    echo "== $way"
    THALWEG_CONFORMANCE_DEVICE=$device timeout --kill-after=2 40 ./conformance --gtest_brief=1 --gtest_filter="$way" \
      >"$out/way.log" 2>&1 || { failed=1; echo "FAILED or too slow ($?)"; }
    cat "$out/way.log" >>"$out/conformance.log"
    tail -12 "$out/way.log" | cut -c1-300
  done
  rm -f "$out/way.log"
  return $failed
}

floor() {
  timeout 70 python3 speed.py --floors --output "$out/gpu-floor.json" >"$out/floor.log" 2>&1
  local code=$?
  tail -3 "$out/floor.log"
  return $code
}

failed=0
for part in "${parts[@]}"; do
  begun=$SECONDS
  "$part" || failed=1
  echo "== $part: $((SECONDS - begun)) s"
done
exit $failed
