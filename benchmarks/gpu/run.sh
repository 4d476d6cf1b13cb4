#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [PART...] [--device=emulated]: on a machine with two GPUs, in the folder that stage.sh made. Parts, each bounded:
#   speed        Thalweg, UCX and the floors in turn (95 s): gpu.json, speed.log
#   contract     the tests of the device contract, tests/gpu (60 to 100 s): contract.log
#   conformance  the conformance table with the devices' memory, its ways side by side (200 s): conformance.log
#   deaths       peers killed in the middle of every operation, devices' memory at both ends in every third one; memory of the
#                GPUs before and after (150 s): deaths.log
#   frameworks   the Python package with PyTorch, CuPy and Numba, where stage.sh was given one (150 s): frameworks.log
#   apps         Himeno on 1, 2 and 4 GPUs (or as many as there are) and halo exchanges, by every trigger (170 s): apps.json
#   floor        all floors (60 s): gpu-floor.json, floor.log
#   programs     programs of queues beside kernels for one purpose and NCCL, and plans of two processes (100 s):
#                gpu-programs.json, programs.log, planned.jsonl
#   collectives  captured collectives on queues of all GPUs beside NCCL (80 s): collectives.jsonl, nccl-collectives.jsonl
#   dispatch     dispatch and combine of a mixture of experts, counts in device memory, beside NCCL's, which the host knows (60 s):
#                dispatch.jsonl, nccl-dispatch.jsonl
#   pieces       plans of two steps, whole and by pieces, between two GPUs (40 s): pieces.jsonl
#   persistent   small messages and puts without and with a persistent copy kernel, taking turns (30 s): persistent.jsonl
#   check        thalweg tune --check: shm, tcp and memory of GPUs by every way and by choice, with the costs that this machine measures by
#                itself (300 s): check.log, check-shm,tcp.json, ...; costs.txt: the costs
#   waits        a channel on queues that wait in the kernel and ahead of it, taking turns (30 s): waits.jsonl
#   kernel       messages between kernels, beside floors and, where stage.sh was given one, nvshmem-peer (60 s): gpu-kernel.json
#   perf         thalweg-perf's kernels between GPUs and beside CPUs: perf_kernels.sh (150 s): gpu-perf-kernels.json, perf-kernels.log
#   routes       messages, puts and gets of device memory by the ways that are chosen: routes.sh (60 s): gpu-routes.json, routes.jsonl
#   order        device code's functions, 10,000,000 messages of each form, then the sanitizer's checks of them and of programs (60 +
#                260 s): order.log
# Results go to $OUT (default: a new temporary folder). Exit code 1: something failed.
set -uo pipefail
cd "$(dirname "$0")"
out=$(realpath -m "${OUT:-$(mktemp -d)}")
mkdir -p "$out"
device=cuda parts=()
for word in "$@"; do
  case $word in
    --device=*) device=${word#*=} ;;
    speed | contract | conformance | deaths | frameworks | apps | floor | programs | collectives | dispatch | pieces | persistent | check | waits | kernel | perf | routes | order) parts+=("$word") ;;
    *) echo "run.sh: no part $word; see its head"; exit 2 ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || { echo "run.sh: which part?"; exit 2; }
chmod u+x thalweg-* gpu_devices conformance contract.sh perf_kernels.sh routes.sh ucx/bin/* 2>/dev/null
export LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ "$device" = cuda ] || export THALWEG_EMULATED=devices=2

speed() { timeout 120 python3 speed.py --device "$device" --output "$out/gpu.json" 2>&1 | tee "$out/speed.log"; }

contract() {
  OUT="$out/contract" THALWEG_GPU_BACKENDS=$device THALWEG_GPU_TEST_SECONDS=15 timeout 150 ./contract.sh . 2>&1 | tee "$out/table.log"
  local code=$?
  cat "$out/table.log" "$out/contract"/*.log >"$out/contract.log"
  rm -rf "$out/contract" "$out/table.log"
  return $code
}

conformance_way() {
  THALWEG_CONFORMANCE_DEVICE=$device timeout --kill-after=2 200 ./conformance --gtest_filter="$1*" >"$out/$1.log" 2>&1
  local code=$?
  echo "== conformance $1: $(grep -c '^\[       OK' "$out/$1.log") passed, exit code $code (124: longer than 200 s)"
  [ $code != 124 ] || grep '^\[ RUN' "$out/$1.log" | tail -1
  grep -A6 'Failure$\|^\[  FAILED\|mismatch' "$out/$1.log" | cut -c1-300 | head -40
  return $code
}

conformance() {
  local failed=0 way ways=() running=()
  for way in shm_two tcp_two self; do
    conformance_way "$way" &
    running+=($!) ways+=("$out/$way.log")
  done
  for way in "${running[@]}"; do wait "$way" || failed=1; done
  cat "${ways[@]}" >"$out/conformance.log"
  rm -f "${ways[@]}"
  return $failed
}

memory_used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader | tr '\n' ' '; }

deaths() {
  local failed=0 over running=()
  echo "GPU memory used before: $(memory_used)" | tee "$out/deaths.log"
  for over in shm tcp; do
    THALWEG_CONFORMANCE_DEVICE=$device timeout 150 ./faults --gtest_filter="*Deaths*/$over" >"$out/deaths-$over.log" 2>&1 &
    running+=($!)
  done
  for over in "${running[@]}"; do wait "$over" || failed=1; done
  cat "$out"/deaths-???.log >>"$out/deaths.log"
  rm "$out"/deaths-???.log
  echo "GPU memory used after: $(memory_used)" >>"$out/deaths.log"
  grep '  OK \]\|FAILED\|Failure\|GPU memory used after' "$out/deaths.log"
  return $failed
}

frameworks() {
  local failed=0 file
  for file in frameworks/test_*.py; do # one that hangs ends its file
    PYTHONPATH=$PWD/packages THALWEG_PEERS=$PWD/frameworks timeout 75 python3 -m pytest -v -p no:cacheprovider --timeout 30 \
      --timeout-method thread "$file" >>"$out/frameworks.log" 2>&1 || failed=1
  done
  grep '::\|^E  \|^=.* in ' "$out/frameworks.log"
  return $failed
}

apps() {
  local processes=1,2
  [ "$(nvidia-smi --list-gpus | wc -l)" -lt 4 ] || processes=1,2,4
  timeout 175 python3 apps.py --memory cuda --processes $processes --rounds 2 --seconds 0.03 --limit 110 --job-seconds 60 --output "$out/apps.json" 2>&1 |
    tee "$out/apps.log"
}

floor() {
  timeout 70 python3 speed.py --floors --output "$out/gpu-floor.json" >"$out/floor.log" 2>&1
  local code=$?
  tail -3 "$out/floor.log"
  return $code
}

# Between two processes, the whole library in between: JSON lines.
planned() {
  local trigger
  for trigger in graph queue host; do
    timeout 20 ./thalweg-perf signal_lat --trigger $trigger --memory cuda:0 --peer-memory cuda:1 --seconds 0.2 --json
    timeout 20 ./thalweg-perf put_lat --trigger $trigger --size 8,4K,64K,1M --memory cuda:0 --peer-memory cuda:1 --seconds 0.2 --json
  done
  timeout 20 ./thalweg-perf chain --trigger graph --window 64 --size 64K,1M --memory cuda:0 --peer-memory cuda:1 --seconds 0.2 --json
}

persistent() {
  local test more
  for more in '' '--persistent 1' '--persistent 4' '' '--persistent 1' '--persistent 4'; do
    for test in tag_lat put_lat; do
      timeout 20 ./thalweg-perf $test --size 8,4K,64K,256K --memory cuda:0 --peer-memory cuda:1 --seconds 0.2 $more --json
    done
  done 2>&1 | tee "$out/persistent.jsonl"
}

waits() {
  local how
  for how in 'queue --waits kernel' 'queue --waits ahead' 'queue --waits auto' graph 'queue --waits kernel' 'queue --waits ahead' 'queue --waits auto' graph; do
    timeout 20 ./thalweg-perf tag_lat --trigger $how --size 8,64K,1M,64M --memory cuda:0 --peer-memory cuda:1 --seconds 0.2 --json
  done 2>&1 | tee "$out/waits.jsonl"
}

check() {
  local failed=0 path more
  mkdir -p "$out/cache"
  for path in shm,tcp device-device device-host host-device device-pinned pool-pool managed-managed; do
    more=60 && [ $path != shm,tcp ] || more=180
    XDG_CACHE_HOME=$out/cache timeout $more ./thalweg-perf tune --check --paths $path --seconds 0.05 --json >"$out/check-$path.json" 2>>"$out/check.log"
    local code=$?
    [ $code = 0 ] || failed=1
    python3 -c '
import json, sys
for path in json.load(open(sys.argv[1]))["paths"]:
    for row in path["rows"]:
        print("%(path)-16s %(size)9d  %(chosen)-34s %(us)10.2f us, predicted %(predicted_us)10.2f; best: %(best)-34s %(best_us)10.2f, behind %(behind).2f" % row)
    print("PASS" if path["good"] else "FAIL", path["path"], {key: path[key] for key in ("within_10_percent", "worst", "median_error")})
' "$out/check-$path.json" 2>&1 | tee -a "$out/check.log" || echo "FAIL $path: exit code $code" | tee -a "$out/check.log"
  done
  tail -n +1 "$out"/cache/thalweg/costs-* >"$out/costs.txt"
  return $failed
}

nccl_peer() {
  local nccl=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null)
  if [ -z "$nccl" ] || ! nvcc -std=c++20 -O2 -I"$nccl/include" -o "$out/nccl-peer" nccl_peer.cu -L"$nccl/lib" -l:libnccl.so.2; then
    echo "# no NCCL beside: no nvcc, or no NCCL"
    return 0
  fi
  LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nccl/lib NCCL_NVLS_ENABLE=0 timeout 30 "$out/nccl-peer"
  local code=$?
  rm -f "$out/nccl-peer"
  return $code
}

programs() {
  local failed=0
  timeout 60 ./thalweg-gpu-programs --json="$out/gpu-programs.json" 2>&1 | tee "$out/programs.log" || failed=1
  nccl_peer 2>&1 | tee -a "$out/programs.log" || failed=1
  planned 2>&1 | tee "$out/planned.jsonl" || failed=1
  return $failed
}

collectives() {
  local failed=0 gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
  timeout 120 ./thalweg-gpu-collectives $((gpus > 1 ? gpus : 2)) "$device" chosen,ll,ll128,simple,two_phases,symmetric >"$out/collectives.jsonl" || failed=1
  [ "$device" != cuda ] || timeout 100 python3 nccl_collectives.py "$gpus" >"$out/nccl-collectives.jsonl" 2>"$out/nccl-collectives.log" || failed=1
  python3 nccl_collectives.py --table "$out" | tee "$out/collectives.log"
  return $failed
}

dispatch() {
  local failed=0 gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
  timeout 120 ./thalweg-gpu-dispatch $((gpus > 1 ? gpus : 2)) "$device" >"$out/dispatch.jsonl" || failed=1
  [ "$device" != cuda ] || timeout 100 python3 nccl_collectives.py --dispatch "$gpus" >"$out/nccl-dispatch.jsonl" 2>"$out/nccl-dispatch.log" || failed=1
  python3 nccl_collectives.py --dispatch-table "$out" | tee "$out/dispatch.log"
  return $failed
}

pieces() { timeout 60 ./thalweg-gpu-pieces "$device:0" "$device:1" shm $([ "$device" = cuda ] && echo 256 || echo 4) | tee "$out/pieces.jsonl"; }

kernel() {
  local nvshmem=$(python3 -c 'import nvidia.nvshmem as n; print(list(n.__path__)[0])' 2>/dev/null)
  LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nvshmem/lib timeout 60 python3 kernel.py --output "$out/gpu-kernel.json" 2>&1 | tee "$out/kernel.log"
}

perf() { OUT=$out timeout 300 ./perf_kernels.sh 2>&1 | tee "$out/perf-kernels.log"; }

routes() { OUT="$out" timeout 150 ./routes.sh 2>&1 | tee "$out/routes.log"; }

order() {
  local failed=0 tool
  timeout 60 ./gpu_device_code --cases=30 --messages=10000000 >"$out/order.log" 2>&1 || failed=1
  for tool in memcheck racecheck; do
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here" >>"$out/order.log"; break; }
    echo "== compute-sanitizer --tool $tool" >>"$out/order.log"
    timeout 30 compute-sanitizer --error-exitcode 1 --tool $tool ./gpu_device_code --cases=2 --messages=2000 >>"$out/order.log" 2>&1 || failed=1
    THALWEG_GPU_REPLAYS=50 timeout 100 compute-sanitizer --error-exitcode 1 --tool $tool ./gpu_devices --backend=cuda \
      --gtest_filter='*Programs*:*ProgramCaptures*' >>"$out/order.log" 2>&1 || failed=1
  done
  grep 'FAILED\|passed\|SUMMARY\|== \|messages' "$out/order.log"
  return $failed
}

failed=0
for part in "${parts[@]}"; do
  begun=$SECONDS
  "$part" || failed=1
  echo "== $part: $((SECONDS - begun)) s"
done
exit $failed
