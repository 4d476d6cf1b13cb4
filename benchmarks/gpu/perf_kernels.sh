#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# perf_kernels.sh [PERF]: kernels of thalweg-perf (default: ./thalweg-perf, as stage.sh lays it) on one or two GPUs, beside CPUs with
# host memory: each case verified, bounded by a timeout, and a short table last. Rows go to $OUT/perf-kernels.jsonl (default: a new
# temporary folder). Exit code 1: a case failed; 77: there is no GPU. SECONDS_EACH: of each size (0.2). ONLY: a regular expression.
set -uo pipefail
perf=${1:-./thalweg-perf}
out=$(realpath -m "${OUT:-$(mktemp -d)}")
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
  timeout --kill-after=5 60 "$perf" "${words[@]}" >"$out/case.out" 2>"$out/case.err"
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

python3 - "$rows" <<'END'
import json, sys
print(f"{'test':12} {'memory':18} {'size':>9} {'p50 us':>9} {'GB/s':>8}  figures and route")
for row in map(json.loads, open(sys.argv[1])):
    latency = f"{row['latency_us']['p50']:9.3f}" if "latency_us" in row else f"{'-':>9}"
    more = " ".join(f"{name} {value:.4g}" for name, value in row.get("figures", {}).items())
    bad = "" if row["verified"] else "NOT VERIFIED "
    print(f"{row['test']:12} {'>'.join(row['memory']):18} {row['size']:9} {latency} {row['bandwidth_GBps']:8.2f}  {bad}{more} | {row['route']}")
END
echo "== perf kernels on $gpus GPUs: $([ $failed = 0 ] && echo all passed || echo FAILED); rows in $rows"
exit $failed
