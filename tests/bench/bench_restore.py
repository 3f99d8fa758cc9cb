#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast an inference server goes into a snapshot and comes back, beside plain direct I/O of as much in the same run.

Of each directory, on the disk to measure or in memory (a tmpfs): how long the server stands while it is put into a
snapshot and runs on; then it is stopped into one, and restored. A restore counts from the start of the command to the
server's next answers, and is held against the lower bound: the plain reading of all bytes or CRIU's own work, whichever
takes longer, and then the driver's. What CRIU reads comes from the disk, too: it is put out of the page cache before.

The server is tests/real/programs/server.py with 16 GB of weights; --program is another one, which prints "step N".
BUILD is the build directory. It needs root and CRIU. Exit status: 1 where a target is missed.
"""
import argparse
import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from benchlib import Table, need

SIMULATED = "--simulated" in sys.argv
if SIMULATED:
    import simlib  # noqa: F401  puts the simulated driver under what follows

from bench_pause import figures_of
from detached import Detached, why_no_criu
from gpulib import CUDAW, TESTS, Skip, base_environment, check, equal, idle_gpu_used, until

SERVER = f"{TESTS}/real/programs/server.py --width 9216 --tokens 32 --seconds 100000"
DIRS = (tempfile.gettempdir(), "/dev/shm")
STANDS_SHARE, STANDS_S = 1.1, 2     # of a plain write, and beside it
RESTORE_SHARE = 1.1     # of the lower bound
ANSWER_S = 4            # from memory
TIMEOUT_S = 240
THREADS = 16            # SNAPSHOT_IO_THREADS


class Server(Detached):
    """The last word of a line is the same whenever the same is asked, or the number of a step."""

    def answers(self):
        with open(self.log, encoding="utf-8") as file:
            return [line.split() for line in file if line.endswith("\n") and line.startswith(("round ", "step "))]

    def wait_more(self, before, failed=None):
        """Unless that says that it failed."""
        failed = failed or self.is_gone
        until(lambda: len(self.answers()) > before or failed(), TIMEOUT_S, "its next answer")
        check(len(self.answers()) > before, f"no answer, but: {self.lines()[-3:]}")

    def verify(self):
        answers = self.answers()
        steps = [int(words[1]) for words in answers]
        check(steps == list(range(steps[0], steps[0] + len(steps))), "an answer is missing, or there twice")
        check(len({words[2] for words in answers if words[0] == "round"}) <= 1, "its answers differ")


def drop_pages(path):
    """Of the image's files, which are on the disk."""
    for name in glob.glob(f"{path}/host-*/*"):
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Bench:
    def __init__(self, table, job, where):
        self.table, self.job, self.where = table, job, where
        self.directory = tempfile.mkdtemp(prefix="cudaw-bench-", dir=where)
        self.path = f"{self.directory}/snapshot"

    def row(self, what, moved, seconds, beside="", verdict=""):
        self.table.add(f"{self.where}: {what}", f"{moved / 1e9:.2f} GB", f"{seconds:.2f} s", beside, verdict)
        self.table.figure(f"{self.where} {what}".replace(" ", "_"), seconds, "s")

    def plain(self, size):
        """Seconds that writing as much takes, and reading."""
        seconds = []
        for way in ("write", "read"):
            seconds.append(figures_of("bench/bench_disk", way, self.directory, -(-size >> 20), THREADS)["seconds"])
            self.row(f"direct I/O, {way}", size, seconds[-1])
        for name in os.listdir(self.directory):
            if name != "snapshot":
                os.unlink(f"{self.directory}/{name}")
        return seconds

    def snapshot(self, *options):
        """Into a new directory. All bytes of it, and the longest time without an answer."""
        shutil.rmtree(self.path, ignore_errors=True)
        answers, last, longest, ended = len(self.job.answers()), time.monotonic(), 0, False
        with subprocess.Popen([CUDAW, "snapshot", "--json", *options, str(self.job.pid), self.path],
                              stdout=subprocess.PIPE, text=True, env=base_environment()) as command:
            def is_over():
                nonlocal answers, last, longest, ended
                found, now, over = len(self.job.answers()), time.monotonic(), ended and self.job.is_gone()
                if found > answers:
                    longest, over = max(longest, now - last), ended
                    answers, last = found, now
                ended = command.poll() is not None
                return over
            until(is_over, TIMEOUT_S, "the snapshot, and an answer after it")
            text = command.communicate(timeout=TIMEOUT_S)[0]
        equal(command.returncode, 0, "the exit code of cudaw snapshot")
        said = json.loads(text)
        self.show_phases("snapshot", said)
        return said["totals"]["written"] + said["image"], longest

    def run(self):
        size, stands = self.snapshot()
        write, read = self.plain(size)
        most = STANDS_SHARE * write + STANDS_S
        self.row("stands for a snapshot", size, stands, f"{most:.2f} s", self.table.verdict(stands, most))
        self.restore(read / size)

    def show_phases(self, what, said):
        """Returns the seconds of each."""
        phases = {phase["name"]: phase["ms"] / 1e3 for phase in said["phases"]}
        print(f"# {self.where}, {what}: {phases}", flush=True)
        return phases

    def restore(self, read):
        """@read: seconds for a byte."""
        size, _ = self.snapshot("--stop")
        check(self.job.is_gone(), "it is still there")
        drop_pages(self.path)
        before, start = len(self.job.answers()), time.monotonic()
        with subprocess.Popen([CUDAW, "restore", "--json", self.path], stdout=subprocess.PIPE, text=True,
                              env=base_environment()) as command:
            self.job.wait_more(before, command.poll)
            seconds = time.monotonic() - start
            said = command.communicate(timeout=TIMEOUT_S)[0]
        phases = self.show_phases("restore", json.loads(said))
        bound = max(read * size, phases["criu"]) + phases.get("restore", 0)
        most = ANSWER_S if self.where == "/dev/shm" else RESTORE_SHARE * bound
        self.row("restore to the next answers", size, seconds, f"{bound:.2f} s", self.table.verdict(seconds, most))
        self.job.verify()

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--dir", action="append", help=f"may be repeated ({' '.join(DIRS)})")
    parser.add_argument("--program", default=SERVER, help="of tests/programs, with its arguments, or a path")
    parser.add_argument("--simulated", action="store_true", help="on the simulated driver")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    need("bench/bench_disk")
    table = Table("where, what", "bytes", "time", "beside", "target")

    def measure():
        if why_no_criu():
            raise Skip(why_no_criu())
        if not SIMULATED:
            idle_gpu_used()
        job = Server(*shlex.split(args.program))
        job.wait_more(1)
        for where in args.dir or DIRS:
            bench = Bench(table, job, where)
            try:
                bench.run()
            finally:
                bench.remove()
    return table.fill(measure, args.results)


if __name__ == "__main__":
    sys.exit(main())
