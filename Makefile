# SPDX-License-Identifier: Apache-2.0
# Thin: what it does stands in scripts/.
.PHONY: help setup build demo test check check-programs format bench wheel clean

help:
	@echo "make demo    set up what is missing, build, install into .venv, and show how fast this machine's processes talk"
	@echo "make test    set up what is missing, build, run all tests and examples"
	@echo "make check   format, types, lint, all of the conformance, sanitizers, hostile peers, fuzzing, clang, aarch64, the wheel: tests/check.json"
	@echo "make check-programs   with other people's programs: MPIs, OpenSHMEM, hpcc, ucx_perftest, UCXX"
	@echo "make bench   Thalweg, its peers and the machine's floors in one run; docs/performance.md"
	@echo "make wheel   the wheel, looked at and repaired by auditwheel, in wheelhouse/"
	@echo "make format  format all sources"

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh release all

demo: setup
	@scripts/build.sh release
	@.venv/bin/thalweg demo

test: setup
	@.venv/bin/python scripts/test.py

check:
	@scripts/setup.sh check
	@.venv/bin/python scripts/check.py

check-programs:
	@scripts/setup.sh programs
	@.venv/bin/python scripts/check.py programs

format: setup
	@scripts/format.sh

bench: build
	@.venv/bin/python benchmarks/run.py --build build/release

wheel: setup
	@scripts/wheel.sh

clean:
	rm -rf build dist wheelhouse
