#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# stage.sh BUILD STAGE [UCX [PACKAGES]]: gathers in STAGE what run.sh needs on a machine with GPUs, without compiler or repository. BUILD: a
# build folder with thalweg-perf, thalweg-gpu-floor, gpu_devices, conformance and the applications; UCX: a folder with bin/ucx_perftest, lib/
# ("" for none); PACKAGES: a folder with the package thalweg for the Python there (pip install --target PACKAGES).
set -euo pipefail
build=$1 stage=$2 ucx=${3:-} packages=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$stage"
mkdir -p "$stage"
programs=()
for program in tools/perf/thalweg-perf benchmarks/gpu/stage/thalweg-gpu-floor benchmarks/gpu/stage/thalweg-gpu-programs benchmarks/gpu/stage/thalweg-gpu-collectives benchmarks/gpu/stage/thalweg-gpu-dispatch benchmarks/gpu/stage/thalweg-gpu-pieces \
  tests/gpu/stage/gpu_devices tests/conformance/conformance tests/faults/faults \
  apps/himeno/thalweg-himeno apps/halo/thalweg-halo \
  benchmarks/gpu/stage/thalweg-gpu-kernel benchmarks/gpu/stage/gpu_device_code; do # the last two: ninja gpu_kernel_programs
  if [ -x "$build/$program" ]; then programs+=("$build/$program"); else echo "stage.sh: no $program: a part of run.sh cannot run"; fi
done
cp "${programs[@]}" "$stage/"
for image in persistent floors; do
  [ ! -f "$build/benchmarks/gpu/stage/$image.fatbin" ] || cp "$build/benchmarks/gpu/stage/$image.fatbin" "$stage/"
done
cp -L "$build/libthalweg.so.0" "$stage/"
# Of the system's libraries, those that another system may lack.
ldd "${programs[@]}" | awk '/(ssl|crypto|gtest)[^ ]* => \// {print $3}' | sort -u | xargs -r -I{} cp -L {} "$stage/"
find "$stage" -maxdepth 1 -type f -name 'lib*' -o -maxdepth 1 -type f -perm -u+x | xargs strip --strip-unneeded
cp "$here/programs/nccl_peer.cu" "$here/nccl_collectives.py" "$here/run.sh" "$here/perf_kernels.sh" "$here/routes.sh" "$here/perf_kernels.py" "$here/speed.py" "$here/kernel.py" "$here/../"{apps,compare,machine,report}.py "$here/../"targets-gpu{,-kernel}.json "$stage/"
cp "$here/../../tests/gpu/run.sh" "$stage/contract.sh"
[ -z "$ucx" ] || cp -r "$ucx" "$stage/ucx"
[ -z "$packages" ] || { mkdir "$stage/packages"; cp -r "$packages/thalweg" "$stage/packages/"; cp -r "$here/../../tests/gpu/frameworks" "$stage/"; cp "$here/../../tests/python/"{peers,fixtures}.py "$stage/frameworks/"; }
python3 -c "import json, pathlib, sys; sys.path.insert(0, sys.argv[1]); import machine
print(json.dumps(machine.built(pathlib.Path(sys.argv[1]))))" "$here/.." >"$stage/built.json"
du -sh "$stage"
