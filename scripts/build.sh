#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds build/PRESET with the Python module, and installs the package from that same build into .venv (not editable): the library is
# compiled once. Incremental.
# usage: scripts/build.sh PRESET [TARGET ...]   no target: what the package needs; all: tests, examples and benchmarks, too
set -euo pipefail
cd "$(dirname "$0")/.."
preset="${1:?usage: scripts/build.sh PRESET [TARGET ...]}"
shift
[ $# -gt 0 ] || set -- thalweg_package
# A clone in another folder finds in the compiler's cache what this one has compiled.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
if [ -n "${THALWEG_CUDA_ARCHITECTURES:-}" ]; then # else all, also where an earlier build was of some
  architectures="-DTHALWEG_CUDA_ARCHITECTURES=$THALWEG_CUDA_ARCHITECTURES"
else
  architectures=-UTHALWEG_CUDA_ARCHITECTURES
fi
cmake --preset "$preset" -DTHALWEG_PYTHON=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" "$architectures"
cmake --build "build/$preset" -j "$(nproc)" --target "$@"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
  --config-settings=build-dir="build/$preset/package" --config-settings=cmake.define.THALWEG_PREBUILT="$PWD/build/$preset" .
.venv/bin/python -c 'import thalweg; print("package: thalweg", thalweg.__version__, "is in .venv")'
