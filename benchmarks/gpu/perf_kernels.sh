#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# perf_kernels.sh, in the folder that stage.sh made: kernels of thalweg-perf on one or two GPUs, also beside a CPU with host memory. Each
# case is verified and bounded by a timeout; a short table comes last. Rows go to $OUT/perf-kernels.jsonl (default: a new temporary
# folder), and with the machine's facts to gpu-perf-kernels.json, for benchmarks/report.py. Exit code 1: a case failed; 77: there is no
# GPU. SECONDS_EACH: of each size (0.2). ONLY: a regular expression of the cases to run.
set -uo pipefail
out=$(realpath -m "${OUT:-$(mktemp -d)}")
cd "$(dirname "$0")"
export LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out"
rows=$out/perf-kernels.jsonl
: >"$rows"
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
[ "$gpus" -gt 0 ] || { echo "perf_kernels.sh: no GPU here"; exit 77; }
a=cuda:0 b=cuda:1
[ "$gpus" -gt 1 ] || b=cuda:0
failed=0

# EXPECTED-CODE MINE THEIRS TEST SIZES [OPTION...]
one() {
  local expected=$1 mine=$2 theirs=$3 test=$4 sizes=$5
  shift 5
  local words=("$test" --memory "$mine" --peer-memory "$theirs" --transport shm --seconds "${SECONDS_EACH:-0.2}" --json "$@")
  [ "$sizes" = - ] || words+=(--size "$sizes")
  [[ "${words[*]}" =~ ${ONLY:-.} ]] || return 0
  timeout --kill-after=5 60 ./thalweg-perf "${words[@]}" >"$out/case.out" 2>"$out/case.err"
  local code=$?
  [ $code = "$expected" ] || failed=1
  [ "$(grep -c '"verified": false' "$out/case.out")" = 0 ] || failed=1
  cat "$out/case.out" >>"$rows"
  echo "exit code $code$([ $code = "$expected" ] || echo ", EXPECTED $expected"): ${words[*]}"
  cat "$out/case.err"
}

kernel=(--trigger kernel)
one 0 $a $b signal_lat 8 "${kernel[@]}"
one 0 $a $b put_lat 8,64,1000,4K,16K,64K,1M,16M "${kernel[@]}"
one 0 $a $b put_lat 5001,70001 "${kernel[@]}"
one 0 $a $b put_bw 4K,64K,1M,16M "${kernel[@]}" --window 16
one 0 $a $b put_bw 5001 "${kernel[@]}" --window 100
one 0 $a $b tag_lat 8,4K,64K,1M "${kernel[@]}"
one 0 $a $b strided_put - "${kernel[@]}"
one 0 $a $b daxpy 1M,16M,256M
one 0 $a $b daxpy 1000008
one 0 $a host daxpy 1M,16M,64M
one 0 $a pinned daxpy 64M
one 0 host $b daxpy 16M,64M
one 0 $a host signal_lat 8 "${kernel[@]}"
one 0 $a host put_lat 8,4K,64K,1M "${kernel[@]}"
one 0 host $b put_lat 8,4K,64K,1M "${kernel[@]}"
one 0 $a host put_bw 64K,1M,16M "${kernel[@]}" --window 8
one 0 $a host strided_put 32K "${kernel[@]}"
one 0 vmm:0 vmm:${b#cuda:} put_lat 8,64K "${kernel[@]}"
one 0 vmm:0 vmm:${b#cuda:} daxpy 16M
rm -f "$out/case.out" "$out/case.err"

python3 perf_kernels.py "$rows" --output "$out/gpu-perf-kernels.json" || failed=1
echo "== perf kernels on $gpus GPUs: $([ $failed = 0 ] && echo all passed || echo FAILED); rows in $rows"
exit $failed
