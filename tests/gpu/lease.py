# SPDX-License-Identifier: Apache-2.0
"""A client that takes a job's memory in parts, and gives it back (yield and room of protocol.h)."""
import os
import socket

from gpulib import RUNTIME_DIR, check, equal

PATIENCE_S = 60
EVERYTHING = 1 << 40


class Lease:
    """A client that has the lease of a job, or of another process with a pid."""

    def __init__(self, job):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(os.path.join(RUNTIME_DIR, f"{job.pid}.sock"))
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.seen = []

    def send(self, line):
        self.socket.sendall(f"{line}\n".encode())

    def read(self):
        line = self.lines.readline()
        check(line, f"the job closed the connection after {self.seen}")
        self.seen.append(line.rstrip("\n"))
        return self.seen[-1]

    def until(self, word):
        """The rest of the next line that begins with @word."""
        while True:
            key, _, value = self.read().partition(" ")
            if key == word:
                return value

    def last(self, word):
        """The last number that came with @word."""
        return [int(line.split()[1]) for line in self.seen if line.startswith(word + " ")][-1]

    def phase(self, name):
        """How many seconds that phase of the last yield took."""
        words = (line.split() for line in self.seen if line.startswith("yield_phase "))
        return next(int(us) / 1e6 for _, phase, us in words if phase == name)

    def take(self, size):
        """Returns how many bytes were freed; self.last("mapped") is what is left."""
        self.seen.clear()
        self.send(f"yield {size}")
        equal(self.until("end"), "ok", "the end of a yield")
        return self.last("freed") if any(s.startswith("freed") for s in self.seen) else 0

    def fill(self, size=EVERYTHING):
        """Room for all: the job runs."""
        self.seen.clear()
        self.send(f"room {size}")
        equal(self.until("end"), "ok", "the end of a fill")
        check("ready" in self.seen, f"no 'ready' in {self.seen}")
        return self.last("mapped")

    def hang_up(self):
        self.lines.close()
        self.socket.close()
