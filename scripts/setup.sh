#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing to build and test: system packages (as root, with apt), and .venv with its Python packages.
# As another user it only checks, and says what to install. What is optional and absent is reported.
# usage: scripts/setup.sh [check|programs|cuda|torch]   check: also what `make check` needs (clang, chromium, aarch64's compiler and qemu)
#                                                 programs: also other people's programs for `make check-programs` (hpcc)
#                                                 cuda: also nvcc, into .venv (optional: it compiles the CUDA kernels)
#                                                 torch: also PyTorch, into .venv (up to 5 GB; worlds of the real torchrun are tested)
set -euo pipefail
cd "$(dirname "$0")/.."

needed=(g++ cmake ninja-build make pkg-config libssl-dev libgtest-dev libgmock-dev python3 python3-dev python3-venv)
optional=(ccache libspdlog-dev libfmt-dev libbenchmark-dev iproute2 git)
optional+=(libhwloc-dev libhwloc15) # the topology of the machine; without them it is read from /sys
optional+=(openmpi-bin libopenmpi-dev ucx-utils) # programs of UCX's users, a few of which `make test` runs on adapters/ucp
optional+=(slurm-wlm munge) # srun, under which a test starts a world
[ "${1:-}" = check ] && optional+=(clang libclang-rt-dev clang-tidy g++-aarch64-linux-gnu qemu-user-static chromium)
foreign=(libssl-dev:arm64 libgtest-dev:arm64 libgmock-dev:arm64) # what aarch64 links to, from Debian's packages
[ "${1:-}" = check ] && [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] && optional+=("${foreign[@]}")
[ "${1:-}" = programs ] && optional+=(hpcc)

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
# What came from elsewhere than the distribution's packages is good enough.
have() {
  case "$1" in
    ninja-build) command -v ninja >/dev/null ;;
    g++ | cmake | make | pkg-config | ccache | patchelf | git | clang | clang-tidy) command -v "$1" >/dev/null ;;
    iproute2) command -v ip >/dev/null ;;
    python3) command -v python3 >/dev/null ;;
    *) false ;;
  esac || installed "$1"
}
missing() {
  local package
  for package in "$@"; do have "$package" || echo "$package"; done
}

mapfile -t absent < <(missing "${needed[@]}")
mapfile -t absent_optional < <(missing "${optional[@]}")
if [ $((${#absent[@]} + ${#absent_optional[@]})) -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: installing ${absent[*]} ${absent_optional[*]}"
  export DEBIAN_FRONTEND=noninteractive
  case "${absent_optional[*]}" in *:arm64*) dpkg --add-architecture arm64 ;; esac
  apt-get update -qq || echo "setup: apt-get update failed; trying with the lists there are"
  [ ${#absent[@]} -eq 0 ] || apt-get install -y -qq --no-install-recommends "${absent[@]}" >/dev/null
  for package in "${absent_optional[@]}"; do
    apt-get install -y -qq --no-install-recommends "$package" >/dev/null || echo "setup: optional package $package is not available"
  done
  mapfile -t absent < <(missing "${needed[@]}")
  mapfile -t absent_optional < <(missing "${optional[@]}")
fi
if [ ${#absent[@]} -gt 0 ]; then
  echo "setup: missing: ${absent[*]}"
  echo "setup: install them as root:  apt-get install ${absent[*]}"
  exit 1
fi
for package in "${absent_optional[@]}"; do echo "setup: optional and absent: $package"; done

# .venv: made anew when its interpreter is gone, filled again when the list of requirements has changed.
if ! .venv/bin/python -c 'import sys' 2>/dev/null; then
  rm -rf .venv
  python3 -m venv .venv || {
    echo "setup: python3 cannot make a virtual environment; install python3-venv"
    exit 1
  }
fi
stamp=.venv/requirements.stamp
if ! cmp -s scripts/requirements-dev.txt "$stamp"; then
  echo "setup: installing Python packages into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip >/dev/null 2>&1 || true
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r scripts/requirements-dev.txt
  cp scripts/requirements-dev.txt "$stamp"
fi
# CUDA's compiler as Python packages: no system package of the distribution's has a recent one.
if [ "${1:-}" = cuda ] && ! compgen -G '.venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc' >/dev/null; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' \
    'nvidia-nvvm==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' || echo "setup: nvcc could not be installed"
fi
if [ "${1:-}" = torch ] && ! .venv/bin/python -c 'import torch' 2>/dev/null; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.*' || echo "setup: PyTorch could not be installed"
fi
# UCX's headers of 1.22 for the adapter: the distribution's are older. 43 MB; it needs no CUDA, whatever its name says.
if ! compgen -G '.venv/lib/python3*/site-packages/libucx_cu12-1.22.*' >/dev/null; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'libucx-cu12==1.22.*' ||
    echo "setup: optional and absent: libucx-cu12 (adapters/ucp is built only where another UCX's headers are, by their version)"
fi
command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || compgen -G '.venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc' >/dev/null ||
  echo "setup: optional and absent: nvcc (the library is built without CUDA kernels; scripts/setup.sh cuda installs it)"
echo "setup: done"
