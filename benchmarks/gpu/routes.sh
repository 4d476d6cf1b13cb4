#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# routes.sh, in the folder that stage.sh made: messages, puts and gets of device memory on two GPUs by the ways that are chosen, each kind of
# memory at the other end, transfers that nobody progresses, and GPUs as if they had no access to each other. Each row is verified and
# bounded by a timeout; a table comes last. Rows go to $OUT/routes.jsonl (default: a new temporary folder), and with the machine's facts to
# gpu-routes.json, for benchmarks/report.py. Exit code 1: a row failed; 77: there are no two GPUs. SECONDS_EACH: of each size (0.15).
set -uo pipefail
out=$(realpath -m "${OUT:-$(mktemp -d)}")
cd "$(dirname "$0")"
export LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out"
rows=$out/routes.jsonl
: >"$rows"
[ "$(nvidia-smi --list-gpus 2>/dev/null | wc -l)" -gt 1 ] || { echo "routes.sh: no two GPUs here"; exit 77; }
failed=0

# MINE THEIRS TEST SIZES [OPTION...]
one() {
  local mine=$1 theirs=$2 test=$3 sizes=$4
  shift 4
  timeout --kill-after=5 40 ./thalweg-perf "$test" --memory "$mine" --peer-memory "$theirs" --transport shm --size "$sizes" \
    --seconds "${SECONDS_EACH:-0.15}" --window 4 --json "$@" >"$out/case.out" 2>"$out/case.err"
  local code=$?
  cat "$out/case.out" >>"$rows"
  [ $code = 0 ] && return
  failed=1
  echo "exit code $code: $test $mine $theirs $sizes $*: $(tail -2 "$out/case.err")"
}

one cuda:0 cuda:1 tag_lat 8,4K,64K,1M,16M
one cuda:0 cuda:1 tag_lat 8,4K,64K --persistent 4
one cuda:0 cuda:1 tag_bw 64K,1M,64M,256M
for kind in pool managed; do
  one $kind:0 $kind:1 tag_lat 8,64K,1M,4M,16M
  one $kind:0 $kind:1 tag_bw 1M,64M,256M
done
for memory in plain host pinned; do
  one cuda:0 $memory tag_lat 64K,1M,16M
  one cuda:0 $memory tag_bw 64M
  one cuda:0 $memory put_bw 1M,64M
  one cuda:0 $memory get_bw 1M,64M
done
one plain plain put_bw 64M # what the copy alone gives
one plain cuda:0 tag_lat 64K,1M,16M
one cuda:0 cuda:1 tag_bw 64M --way staging
for memory in cuda:1 plain host; do
  mine=$memory
  [ $memory = cuda:1 ] && mine=cuda:0
  one $mine $memory overlap 16M
done
THALWEG_CUDA_PEERS=off one cuda:0 cuda:1 tag_lat 8,1M
THALWEG_CUDA_PEERS=off one cuda:0 cuda:1 tag_bw 64M
rm -f "$out/case.out" "$out/case.err"

python3 perf_kernels.py "$rows" --command benchmarks/gpu/routes.sh --about "Routes of device memory" --output "$out/gpu-routes.json" || failed=1
echo "== routes: $([ $failed = 0 ] && echo all passed || echo FAILED); rows in $rows"
exit $failed
