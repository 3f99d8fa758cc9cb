# SPDX-License-Identifier: Apache-2.0
"""A stand-in for cudawd: it says what a test wants said, and nothing by itself."""
import os
import socket
import time

import simlib    # noqa: F401  pylint: disable=unused-import
from gpulib import PATIENCE, RUNTIME_DIR, Job, check, equal
from lease import Lease

IDLE_MS = 150


class Member(Lease):
    """A job's connection to the stand-in."""

    def __init__(self, connection):     # pylint: disable=super-init-not-called
        self.socket = connection
        self.socket.settimeout(4 * PATIENCE)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.seen = []
        self.introduction = []
        self.grown = []     # serial and bytes of growths that came before they were asked for

    def read(self):
        """The next line; a daemon that does not hang answers to a ping."""
        deadline = time.monotonic() + 4 * PATIENCE
        while (line := super().read()) == "ping":
            check(time.monotonic() < deadline, f"nothing but pings comes after {self.seen}")
            self.send("pong")
        if line.startswith("grow "):
            _, serial, _, size = line.split()
            self.grown.append((int(serial), int(size)))
        return line

    def introduced(self):
        """Read the introduction."""
        while not self.introduction or self.introduction[-1] != "joined":
            self.introduction.append(self.read())
        self.seen.clear()
        return self

    def said(self, word):
        """What the introduction says of @word."""
        found = [line.partition(" ")[2] for line in self.introduction
                 if line.partition(" ")[0] == word]
        equal(len(found), 1, f"the number of lines '{word}' in {self.introduction}")
        return found[0]

    def need(self):
        """What the next line "need" says: bytes on the GPU, and in all."""
        return tuple(int(word) for word in self.until("need").split()[1:])

    def grow(self):
        """The serial and the bytes of the next growth, which may have come before the end of a fill."""
        while not self.grown:
            self.read()
        return self.grown.pop(0)

    def pinned(self):
        """The serial and the bytes of the next growth during a capture."""
        serial, _, size = self.until("pinned").split()
        return int(serial), int(size)

    def quiet(self, word, seconds):
        """No line that begins with @word comes for so long."""
        self.send("noop")
        self.socket.settimeout(seconds)
        try:
            while True:
                line = self.lines.readline()
                check(line, f"the job closed the connection after {self.seen}")
                check(not line.startswith(word + " ") and line != word + "\n", f"the job says {line!r}")
        except (TimeoutError, OSError):
            # A reader that timed out cannot be used again.
            self.lines = self.socket.makefile("r", encoding="utf-8")
        self.socket.settimeout(4 * PATIENCE)


class Daemon:
    def __init__(self, path=None):
        self.path = path or os.path.join(RUNTIME_DIR, "cudawd.sock")
        os.makedirs(RUNTIME_DIR, mode=0o700, exist_ok=True)
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(16)
        self.socket.settimeout(4 * PATIENCE)

    def joined(self):
        return Member(self.socket.accept()[0]).introduced()

    def member(self):
        """The next job that joins, welcomed."""
        member = self.joined()
        member.send(f"welcome {IDLE_MS}")
        return member

    def end(self):
        self.socket.close()
        os.unlink(self.path)


def member(program, *args, daemon=None, name=None, first=(), **env):
    """A job that is given lines on stdin at first, and its connection to the stand-in."""
    own = daemon or Daemon()
    job = Job(program, *args, name=name, env={"CUDAW_TURNS": own.path if daemon else "user", **env})
    for line in first:
        job.process.stdin.write(f"{line}\n")
    joined = own.member()
    if not daemon:
        own.end()
    return job, joined
