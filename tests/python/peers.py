# SPDX-License-Identifier: Apache-2.0
"""Two connected processes for a test: this one, and one that multiprocessing spawns to run a function of the test's module."""

import contextlib
import multiprocessing
import secrets

import thalweg as tw

JOIN_SECONDS = 30
spawn = multiprocessing.get_context("spawn")


def context(key, transport=None):
    """A context of a test's own key, on one transport or all. "tls": tcp with TLS."""
    if transport == "tls":
        return tw.Context(job_key=key, transports="self,tcp", tls=True)
    return tw.Context(job_key=key, transports=f"self,{transport}" if transport else None)


def run_connected(pipe, key, transport, function, args):
    """The other process: connects, runs the function, and stays until the test is done."""
    worker = tw.Worker(context(key, transport))
    pipe.send(worker.address)
    endpoint = worker.connect(pipe.recv())
    function(endpoint, pipe, *args)
    pipe.send("done")
    while not pipe.poll(0):
        worker.wait(0.02)
    worker.close()


@contextlib.contextmanager
def connected(function, *args, transport=None):
    """(endpoint to a process that runs function(endpoint, pipe, *args), pipe to it). At the end that must have succeeded."""
    key = secrets.token_bytes(32)
    here, there = spawn.Pipe()
    process = spawn.Process(target=run_connected, args=(there, key, transport, function, args))
    process.start()
    there.close()
    worker = tw.Worker(context(key, transport))
    try:
        theirs = here.recv()
        here.send(worker.address)
        endpoint = worker.connect(theirs)
        yield endpoint, here
        while not here.poll(0):
            worker.wait(0.02)
        assert here.recv() == "done"
        here.send("done")
        process.join(JOIN_SECONDS)
        assert process.exitcode == 0
    finally:
        if process.is_alive():
            process.kill()
            process.join()
        worker.close()
