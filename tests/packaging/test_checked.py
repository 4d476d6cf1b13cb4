# SPDX-License-Identifier: Apache-2.0
"""An ignored status is a warning: a plan triggered in a loop and never finished returned busy, and did nothing."""

import os
import re
import subprocess

import pytest
from conftest import ROOT

INCLUDE = ROOT / "include"
C_HEADERS = sorted((INCLUDE / "thalweg").glob("*.h"))
CPP_HEADERS = sorted((INCLUDE / "thalweg").glob("*.hpp"))

IGNORES = {
    "c": """
#include <thalweg/thalweg.h>
void loop(tw_plan *plan) { for (int i = 0; i < 100; i++) tw_plan_trigger(plan, NULL); }
void end(tw_request request) { tw_request_finish(request); }
void leak(tw_context *context) { tw_allocate(context, 8); }
""",
    "cpp": """
#include <thalweg/plans.hpp>
void loop(thalweg::Plan& plan) { for (int i = 0; i < 100; i++) plan.trigger(); }
void end(thalweg::Request& request) { request.wait(); }
void leak(const thalweg::Context& context) { context.allocate(8); }
""",
}
LOOKS = {
    "c": """
#include <thalweg/thalweg.h>
tw_status loop(tw_plan *plan) {
  tw_status status = TW_OK;
  for (int i = 0; i < 100 && status == TW_OK; i++) status = tw_plan_run(plan, TW_FOREVER);
  return status;
}
""",
    "cpp": """
#include <thalweg/plans.hpp>
void loop(thalweg::Plan& plan) { for (int i = 0; i < 100; i++) thalweg::check(plan.run()); }
void end(thalweg::Request& request) { (void)request.wait(); }
""",
}
COMPILERS = {"c": [os.environ.get("CC", "cc"), "-std=c11"], "cpp": [os.environ.get("CXX", "c++"), "-std=c++20"]}


def warnings_of(language, text, tmp_path):
    """How many results the compiler calls unused."""
    source = tmp_path / f"user.{language}"
    source.write_text(text)
    command = [*COMPILERS[language], "-Wall", "-Wextra", f"-I{INCLUDE}", "-c", str(source), "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr or "-Wunused-result" in done.stderr, done.stderr
    return done.stderr.count("[-Wunused-result]")


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_an_ignored_status_is_a_warning(language, tmp_path):
    assert warnings_of(language, IGNORES[language], tmp_path) == 3
    assert warnings_of(language, LOOKS[language], tmp_path) == 0


def test_every_function_with_a_status_is_checked():
    declared = [line for header in C_HEADERS for line in header.read_text().splitlines() if line.startswith("TW_")]
    plain = [line for line in declared if re.match(r"TW_API tw_status\b", line)]
    assert not plain, plain
    assert len([line for line in declared if line.startswith("TW_CHECKED tw_status tw_")]) > 100


def test_every_method_with_a_status_is_checked():
    methods = [
        line
        for header in CPP_HEADERS
        for line in header.read_text().splitlines()
        if re.match(r"  (?!static ).*\btw_status \w+\(", line)  # static: given to C as a function
    ]
    plain = [line for line in methods if not line.strip().startswith("[[nodiscard]]") and "return" not in line]
    assert methods and not plain, plain


def test_every_class_that_owns_a_handle_is_checked():
    """So are the functions that return one: what nobody keeps ends at once."""
    plain, classes = [], 0
    for header in CPP_HEADERS:
        for found in re.finditer(r"^class (\[\[nodiscard\]\] )?(\w+)(.*?)^};", header.read_text(), re.MULTILINE | re.DOTALL):
            if re.search(r"\b(handle_|number_)\b", found.group(3)) and found.group(2) not in ("Handle", "OpOptions"):
                classes += 1
                plain += [] if found.group(1) else [found.group(2)]
    assert classes > 15 and not plain, plain
