#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The connection between a job and the daemon is cut off after each line, either way. The job goes on, or
joins again, and every word is right in the end.
"""
import os
import select
import socket
import threading

from simlib import SANITIZED, SCRATCH
from gpulib import RUNTIME_DIR, after_case, main
from harness import until
from momentslib import one, quick, start_daemon, two_processes, verify
from daemons import end_daemons
from turnslib import rows, take_turns

LINES = 30      # of a connection: the introduction has ten, and turns follow
proxies = []


class Proxy:
    """Stands between jobs and the daemon. Each of @cuts is for one connection, which is cut off after so many
    lines, or after that line; those that follow are left alone."""

    def __init__(self, cuts):
        self.path = os.path.join(SCRATCH, "proxy.sock")
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.cuts = list(cuts)
        self.done = 0       # cuts
        self.threads = [threading.Thread(target=self.listen, daemon=True)]
        self.threads[0].start()
        proxies.append(self)

    def listen(self):
        while True:
            try:
                job = self.listener.accept()[0]
            except OSError:
                return
            self.threads.append(threading.Thread(target=self.pass_lines, args=(job,), daemon=True))
            self.threads[-1].start()

    def pass_lines(self, job):
        daemon = socket.socket(socket.AF_UNIX)
        cut = self.cuts.pop(0) if self.cuts else None
        was_cut = False
        try:
            daemon.connect(os.path.join(RUNTIME_DIR, "cudawd.sock"))
            was_cut = self.pass_until(job, daemon, cut)
        except OSError:
            pass
        if was_cut:
            self.done += 1
        elif cut:
            self.cuts.insert(0, cut)    # the connection ended by itself before
        job.close()
        daemon.close()

    @staticmethod
    def pass_until(job, daemon, cut):
        """True if it was cut off, and not ended by one of them."""
        passed, unread = 0, {job: b"", daemon: b""}
        while True:
            for side in select.select([job, daemon], [], [])[0]:
                other = daemon if side is job else job
                got = side.recv(4096)
                if not got:
                    return False
                *lines, unread[side] = (unread[side] + got).split(b"\n")
                for line in lines:
                    other.sendall(line + b"\n")
                    passed += 1
                    if cut in (passed, line):
                        return True

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def end_proxies(_good):
    while proxies:
        proxies.pop().end()


after_case.append(end_proxies)


def each_cut(proxy, count):
    for done in range(count):
        until(lambda done=done: proxy.done > done, 20, f"cut {done + 1} of {count}")


def after_each_line():
    """After a connection that is cut off before its welcome comes one that is not, or the job would wait for
    longer and longer."""
    half = LINES // 2
    cuts = [cut for early in range(1, half + 1, 5 if SANITIZED else 1) for cut in (early, early + half)]
    proxy = Proxy(cuts)
    start_daemon()
    first = one("cut", CUDAW_TURNS=proxy.path)
    first.wait_steps(1)     # while its connection is cut off, it cannot wait for memory
    jobs = [first, one("other")]
    each_cut(proxy, len(cuts))
    verify(jobs)


def of_one_of_two_processes():
    """When both are at rest; and when both are out, so that one takes its memory back by itself."""
    for line in (b"commit", b"end ok"):
        proxy = Proxy([line])
        start_daemon()
        first = two_processes("cut", CUDAW_TURNS=proxy.path)
        first.wait_steps(1)
        jobs = [first, one("other")]
        each_cut(proxy, 1)
        take_turns(jobs)
        until(lambda: len(rows("cut")) == 2, 20, "both have joined again")
        jobs[0].finish()    # it looks at every word
        verify(jobs[1:])
        end_daemons(True)


main(after_each_line, quick(of_one_of_two_processes))
