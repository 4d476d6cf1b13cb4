# SPDX-License-Identifier: Apache-2.0
"""The job key in the environment: a process reads it once, and what the process starts does not have it."""

import pytest

LOOK = """
import os, subprocess
def look(context):
    inherited = subprocess.run(["printenv", "THALWEG_JOB_KEY"], capture_output=True, text=True).stdout.strip()
    told = subprocess.run(["printenv", "THALWEG_JOB_KEY"], capture_output=True, text=True, env=dict(os.environ)).stdout.strip()
    return {"inherited": inherited, "told": told, "kernel": open("/proc/self/environ").read()}
"""


@pytest.mark.parametrize("first", ["tw.Context()", 'tw.Store("serve:127.0.0.1:0")'])
def test_what_a_process_starts_does_not_inherit_the_key(victim, key, first):
    a = victim(LOOK + f"first = {first}\nsay(**look(first))\nsecond = tw.Context()\nsay(source=second.info()['job_key'])")
    said = a.hear()
    assert (said["inherited"], said["told"]) == ("taken", "taken")
    assert key.hex() not in said["kernel"]
    assert a.hear()["source"] == "THALWEG_JOB_KEY"
    a.end()


def test_a_program_that_is_to_inherit_it_says_so(victim, key):
    a = victim(LOOK + "context = tw.Context()\nsay(**look(context))", THALWEG_KEEP_JOB_KEY="1")
    said = a.hear()
    assert (said["inherited"], said["told"]) == (key.hex(), key.hex())
    a.end()


def test_a_program_without_the_key_is_told_why(victim):
    a = victim("say(**attempt(tw.Context))", THALWEG_JOB_KEY="taken")
    said = a.hear()
    assert said["error"] == "KeyFileError" and "THALWEG_KEEP_JOB_KEY" in said["text"], said
    a.end()
