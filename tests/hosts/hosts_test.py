#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: network namespaces joined by veth pairs; and containers with process namespaces of their own.
Needs root and iproute2; says so and skips (exit code 77) otherwise. usage: hosts_test.py PATH_TO_host_peer"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PEER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "host_peer"
KEY = "00112233445566778899aabbccddeeff"


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


class Peers(unittest.TestCase):
    """Processes that say what they do, a line each."""

    def expect(self, process, pattern, seconds=30):
        """The next line must match; the process is killed when it says nothing for that long."""
        watchdog = threading.Timer(seconds, process.kill)
        watchdog.start()
        line = process.stdout.readline().strip()
        watchdog.cancel()
        self.assertRegex(line, pattern)
        return line


class Network(Peers):
    """Two hosts with two links (10.77.1.x and 10.77.2.x, IPv6 fd77::x on the first) and a third host behind the first."""

    def setUp(self):
        self.tag = f"tw{os.getpid() % 10000}"
        self.directory = tempfile.mkdtemp(prefix="thalweg-hosts-")
        self.running = []
        self.names = [f"{self.tag}{c}" for c in "abc"]
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        a, b, c = self.names
        self.link(a, b, "one", "10.77.1")
        self.link(a, b, "two", "10.77.2")
        self.link(a, c, "three", "10.77.3")
        for name, last in ((a, 1), (b, 2)):
            ip("-n", name, "addr", "add", f"fd77::{last}/64", "dev", "one", "nodad")

    def link(self, left, right, name, net):
        ip("link", "add", "name", name, "netns", left, "type", "veth", "peer", "name", name, "netns", right)
        for host, last in ((left, 1), (right, 2)):
            ip("-n", host, "addr", "add", f"{net}.{last}/24", "dev", name)
            ip("-n", host, "link", "set", name, "up")

    def tearDown(self):
        for process in self.running:
            process.kill()
            process.wait()
            process.stdout.close()
        for name in self.names:
            ip("netns", "del", name, check=False)
        shutil.rmtree(self.directory)

    def start(self, host, *arguments, sockets=None, transports="self,tcp", interfaces=None):
        environment = dict(os.environ, THALWEG_JOB_KEY=KEY, THALWEG_SOCKET_DIR=sockets or tempfile.mkdtemp(dir=self.directory))
        environment.pop("THALWEG_TRANSPORTS", None)
        if transports:
            environment["THALWEG_TRANSPORTS"] = transports
        if interfaces:
            environment["THALWEG_INTERFACES"] = interfaces
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names["abc".index(host)], PEER, *arguments],
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
            env=environment,
        )
        self.running.append(process)
        return process

    def test_listener_by_ipv4_and_ipv6(self):
        for bind, target in (("10.77.1.1:0", "10.77.1.1"), ("[fd77::1]:0", "[fd77::1]"), (":0", "10.77.2.1")):
            with self.subTest(bind=bind):
                server = self.start("a", "listen", bind, "1")
                port = self.expect(server, r"listening \d+").split()[1]
                client = self.start("b", "connect", f"{target}:{port}")
                self.expect(server, r"client .*")
                self.expect(server, r"ok transport=tcp")
                self.expect(client, r"ok transport=tcp")

    def exchange(self, left_options=None, right_options=None, right="b", lost=False):
        mine, theirs = os.path.join(self.directory, "1"), os.path.join(self.directory, "2")
        for path in (mine, theirs):
            if os.path.exists(path):
                os.unlink(path)
        extra = ["lost"] if lost else []
        one = self.start("a", "exchange", mine, theirs, *extra, **(left_options or {}))
        two = self.start(right, "exchange", theirs, mine, *extra, **(right_options or {}))
        return one, two

    def test_worker_addresses(self):
        one, two = self.exchange()
        self.expect(one, "ok transport=tcp")
        self.expect(two, "ok transport=tcp")

    def test_interface_choice(self):
        """Only the second link may be used: by interface name on one side, by address on the other."""
        one, two = self.exchange({"interfaces": "two"}, {"interfaces": "10.77.2.0/24"}, lost=True)
        self.expect(one, "ok transport=tcp")
        self.expect(two, "ok transport=tcp")
        self.expect(one, "waiting")
        shown = subprocess.run(
            ["ip", "netns", "exec", self.names[0], "ss", "-tnH", "state", "established"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertRegex(shown, r"10\.77\.2\.")
        self.assertNotRegex(shown, r"10\.77\.1\.|fd77")

    def test_a_cut_link_is_a_lost_peer_in_time_and_hurts_nobody_else(self):
        # The hosts have two links: confine the connection to the one that is cut.
        one, two = self.exchange({"interfaces": "one"}, {"interfaces": "one"}, lost=True)
        for process in (one, two):
            self.expect(process, "ok transport=tcp")
            self.expect(process, "waiting")
        server = self.start("a", "listen", "10.77.3.1:0", "1", "lost")
        port = self.expect(server, r"listening \d+").split()[1]
        other = self.start("c", "connect", f"10.77.3.1:{port}", "lost")
        self.expect(other, "ok transport=tcp")
        self.expect(other, "waiting")
        cut = time.monotonic()
        ip("-n", self.names[1], "link", "set", "one", "down")
        line = self.expect(one, r"ended peer_lost after", seconds=20)
        elapsed = time.monotonic() - cut
        self.assertLess(elapsed, 8.0, line)
        self.assertIsNone(other.poll())
        self.assertIsNone(server.poll())

    def test_containers_that_share_a_socket_directory_use_shared_memory(self):
        shared = tempfile.mkdtemp(dir=self.directory)
        one, two = self.exchange({"sockets": shared, "transports": None}, {"sockets": shared, "transports": None}, right="c")
        self.expect(one, "ok transport=shm")
        self.expect(two, "ok transport=shm")

    def test_separate_socket_directories_fall_back_to_tcp(self):
        one, two = self.exchange({"transports": None}, {"transports": None})
        self.expect(one, "ok transport=tcp")
        self.expect(two, "ok transport=tcp")


class ProcessNamespaces(Peers):
    """Containers of one machine that see each other's process under another number, or not at all."""

    LIMIT = 2.0  # as for any death on one machine

    def setUp(self):
        probe = subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            self.skipTest("process namespaces are not allowed here: " + probe.stderr.strip())
        self.directory = tempfile.mkdtemp(prefix="thalweg-pids-")
        self.running = []

    def tearDown(self):
        for process in self.running:
            process.kill()
            process.wait()
            process.stdout.close()
        shutil.rmtree(self.directory)

    def start(self, mine, theirs, transport, apart):
        """A peer in a namespace of its own or in ours, and its process id as seen from here."""
        environment = dict(os.environ, THALWEG_JOB_KEY=KEY, THALWEG_SOCKET_DIR=self.directory)
        environment["THALWEG_TRANSPORTS"] = f"self,{transport}"
        files = [os.path.join(self.directory, name) for name in (mine, theirs)]
        command = (["unshare", "--pid", "--fork", "--kill-child"] if apart else []) + [PEER, "exchange", *files, "lost"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=environment)
        self.running.append(process)
        pid = process.pid
        while apart and pid == process.pid:  # unshare forks
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            pid = int(children[0]) if children else pid
            self.assertIsNone(process.poll())
        return process, pid

    def survive(self, transport, survivor_apart, victim_apart):
        for name in ("survivor", "victim"):
            pathlib.Path(self.directory, name).unlink(missing_ok=True)
        survivor, _ = self.start("survivor", "victim", transport, survivor_apart)
        victim, pid = self.start("victim", "survivor", transport, victim_apart)
        for process in (survivor, victim):
            self.expect(process, f"ok transport={transport}")
            self.expect(process, "waiting")
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        self.expect(survivor, "ended peer_lost after")
        return time.monotonic() - killed

    def test_a_killed_peer_is_noticed_as_in_the_same_namespace(self):
        for transport in ("shm", "tcp"):
            for survivor, victim in ((False, True), (True, False), (True, True), (False, False)):
                with self.subTest(transport=transport, survivor_apart=survivor, victim_apart=victim):
                    self.assertLess(self.survive(transport, survivor, victim), self.LIMIT)


def possible():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "needs root and iproute2"
    probe = f"twprobe{os.getpid() % 10000}"
    made = ip("netns", "add", probe, check=False)
    ip("netns", "del", probe, check=False)
    return "" if made.returncode == 0 else "network namespaces are not allowed here: " + made.stderr.strip()


if __name__ == "__main__":
    reason = possible()
    if reason:
        print("skipped:", reason)
        sys.exit(77)
    unittest.main(verbosity=2)
