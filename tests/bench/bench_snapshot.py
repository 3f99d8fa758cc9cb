#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast snapshots are written and read, beside plain direct I/O of as much in the same run.

What a disk does changes by the minute: plain I/O and ours are measured in turn, and the mean of all
counts. Then an eighth of the size is written with each --compress, of noise that no compression makes
smaller, and of memory that does shrink: none may be slower than without. Only one of the large sets of
files is there at a time, and all are removed at the end.

A rate is GPU memory by the time of the phase "write", or by that of "read" for a job that has its
memory in the snapshot alone; "all" is the whole of the command, with the copy off the GPU.

BUILD is the build directory. Exit status: 1 where a target is missed.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from statistics import mean

from benchlib import Table, need

SIMULATED = "--simulated" in sys.argv
if SIMULATED:
    os.environ.setdefault("CUDAW_SIM_MEMORY", str(64 << 30))
    import simlib  # noqa: F401  puts the simulated driver under what follows

from bench_pause import MEMORY, Moved, ask, figures_of
from gpulib import Job, cudaw_ok, idle_gpu_used

DISK_SHARE = 0.90       # of plain direct I/O
NEVER_SLOWER = 0.95     # of the snapshot without compression, for one that compresses
THREADS = 16            # SNAPSHOT_IO_THREADS
CODECS = ("none", "lz4", "zstd")
TURNS = 2               # of ours, between turns of plain I/O
CODEC_TURNS = len(CODECS)    # each begins with another
TIMEOUT_S = 300


class Written:
    """What cudaw snapshot says of what it did, and what all of it took."""

    def __init__(self, job, path, *options):
        start = time.monotonic()
        said = json.loads(cudaw_ok("snapshot", "--gpu-only", "--json", *options, job.pid, path,
                                   timeout=TIMEOUT_S))
        self.all_seconds = time.monotonic() - start
        phases = {phase["name"]: phase["ms"] / 1e3 for phase in said["phases"]}
        self.seconds = phases["write"]
        self.bytes = said["totals"]["written"]
        self.stored = said["totals"]["stored"]


class Snapshots:
    """A job with @mib of noise, and the directory that its snapshots go to."""

    def __init__(self, directory, mib, noise_bytes=8):
        self.path = os.path.join(directory, "snapshot")
        self.bytes = mib << 20
        self.job = Job("noise", "--mib", mib, "--bytes", noise_bytes, env=MEMORY)
        self.job.wait_line("filled", timeout=TIMEOUT_S)

    def write(self, codec):
        """A full one, in the place of the one before."""
        self.remove()
        return Written(self.job, self.path, "--compress", codec)

    def write_changes(self):
        """An incremental one, after a tenth of the memory became other noise."""
        self.tell("change", "changed")
        return Written(self.job, self.path, "--incremental")

    def verify(self):
        """Seconds that it takes to read it all."""
        start = time.monotonic()
        cudaw_ok("verify", self.path, timeout=TIMEOUT_S)
        return time.monotonic() - start

    def fetch(self):
        """Seconds that a resume reads, where the snapshot alone has the memory."""
        self.remove()
        Moved("pause", self.job)
        ask(self.job, f"snapshot hold {self.path}")
        return Moved("resume", self.job).phases["read"]

    def tell(self, line, answer):
        before = self.job.lines.count(answer)
        self.job.process.stdin.write(f"{line}\n")
        self.job.until(lambda: self.job.lines.count(answer) > before, TIMEOUT_S, answer)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)

    def end(self):
        self.tell("verify", "every byte right")
        self.job.process.stdin.close()
        self.job.result(timeout=TIMEOUT_S)
        self.remove()


class Bench:
    def __init__(self, table, directory):
        self.table = table
        self.directory = directory
        self.disk = {"write": [], "read": []}   # seconds of plain direct I/O
        self.disk_bytes = 0                     # by each

    def row(self, what, moved, seconds, share=None, verdict=""):
        rate = moved / 1e9 / seconds
        self.table.add(what, f"{seconds:.2f} s", f"{rate:.2f} GB/s", f"{share:.2f}" if share else "",
                       verdict)
        name = what.replace(" ", "_").replace(",", "")
        self.table.figure(name, seconds, "s")
        self.table.figure(f"{name}_rate", rate, "GB/s")

    def share(self, way, moved, seconds):
        """Of what the disk did by itself."""
        return moved / seconds / (self.disk_bytes / mean(self.disk[way]))

    def beside_disk(self, what, way, moved, turns):
        for number, seconds in enumerate(turns, 1):
            self.row(f"{what}, {number}", moved, seconds)
        share = self.share(way, moved, mean(turns))
        self.row(f"{what}, mean", moved, mean(turns), share, self.table.at_least(share, DISK_SHARE))

    def plain(self, mib):
        """The files are as large as a snapshot of as much, and removed."""
        self.disk_bytes = mib << 20
        for way, turns in self.disk.items():
            turns.append(figures_of("bench/bench_disk", way, self.directory, mib, THREADS)["seconds"])
        for name in os.listdir(self.directory):
            os.unlink(os.path.join(self.directory, name))

    def large(self, mib):
        job = Snapshots(self.directory, mib)
        written, verified, fetched = [], [], []
        self.plain(mib)
        for _ in range(TURNS):
            written.append(job.write("none"))
            verified.append(job.verify())
            changes = job.write_changes()
            fetched.append(job.fetch())
            job.remove()
            self.plain(mib)
        job.end()
        for way, turns in self.disk.items():
            for number, seconds in enumerate(turns, 1):
                self.row(f"direct I/O, {way}, {number}", self.disk_bytes, seconds)
        self.beside_disk("write", "write", job.bytes, [one.seconds for one in written])
        self.row("all of it", job.bytes, mean(one.all_seconds for one in written))
        self.row("write a tenth that changed", changes.bytes, changes.seconds)
        self.beside_disk("read, cudaw verify", "read", job.bytes, verified)
        self.beside_disk("read, a resume", "read", job.bytes, fetched)

    def codecs(self, what, mib, noise_bytes):
        job = Snapshots(self.directory, mib, noise_bytes)
        written, read = ({codec: [] for codec in CODECS} for _ in range(2))
        for turn in range(CODEC_TURNS):
            for codec in CODECS[turn:] + CODECS[:turn]:
                written[codec].append(job.write(codec))
                read[codec].append(job.verify())
        job.end()
        seconds = {codec: mean(one.seconds for one in written[codec]) for codec in CODECS}
        for codec in CODECS:
            stored = written[codec][-1].stored / job.bytes
            self.row(f"write {what}, {codec}, to {stored:.0%}", job.bytes, seconds[codec],
                     self.share("write", job.bytes, seconds[codec]),
                     self.table.at_least(seconds["none"] / seconds[codec], NEVER_SLOWER))
            self.row(f"read {what}, {codec}", job.bytes, mean(read[codec]),
                     self.share("read", job.bytes, mean(read[codec])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--size", type=int, default=32, metavar="GIB", help="of GPU memory (32)")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="on the disk to measure")
    parser.add_argument("--simulated", action="store_true", help="on the simulated driver")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    need("bench/bench_disk", "programs/noise")
    table = Table("GPU memory", "time", "rate", "of direct I/O", "target")
    directory = tempfile.mkdtemp(prefix="cudaw-bench-", dir=args.dir)

    def measure():
        if not SIMULATED:
            idle_gpu_used()
        bench = Bench(table, directory)
        bench.large(args.size << 10)
        bench.codecs("noise", args.size << 7, 8)
        bench.codecs("what shrinks", args.size << 7, 3)     # of each 8 bytes
    try:
        return table.fill(measure, args.results)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
