#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast snapshots are written and read, beside plain direct I/O of as much in the same run.

Noise that no compression makes smaller is written with each --compress: none of them may be slower
than the disk. As what a disk does changes, plain I/O is measured before that and behind it, and the
mean counts. Memory that does shrink follows, of an eighth of the size, with each in turn. Only one of
the large sets of files is there at a time, and all are removed at the end.

A rate is GPU memory by the time of the phase "write", or by that of "read" for a job that has its
memory in the snapshot alone; "all" is the whole of the command, with the copy off the GPU. Sizes of
up to 4 GiB are measured three times, and the median counts.

BUILD is the build folder. Exit status: 1 where a target is missed.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

from benchlib import Table

SIMULATED = "--simulated" in sys.argv
if SIMULATED:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                    "jobs"))
    os.environ.setdefault("CUDAW_SIM_MEMORY", str(64 << 30))
    import simlib  # noqa: F401  puts the simulated driver under what follows

from bench_pause import MEMORY, Moved, ask, figures_of
from gpulib import Job, Skip, cudaw_ok, idle_gpu_used

DISK_SHARE = 0.90       # of plain direct I/O
NEVER_SLOWER = 0.95     # of the snapshot without compression, for one that compresses
THREADS = 16            # SNAPSHOT_IO_THREADS
SMALL_MIB = 4096
CODECS = ("lz4", "zstd", "none")
TURNS = 3
TIMEOUT_S = 300


def median(values, key=None):
    return sorted(values, key=key)[len(values) // 2]


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
    """A job with @mib of noise, and the folder that its snapshots go to."""

    def __init__(self, folder, mib, noise_bytes=8):
        self.path = os.path.join(folder, "snapshot")
        self.times = 3 if mib <= SMALL_MIB else 1
        self.bytes = mib << 20
        self.job = Job("noise", "--mib", mib, "--bytes", noise_bytes, env=MEMORY)
        self.job.wait_line("filled", timeout=TIMEOUT_S)

    def write_once(self, codec):
        """A full one, in the place of the one before."""
        self.remove()
        return Written(self.job, self.path, "--compress", codec)

    def write(self, codec):
        """The median of a few."""
        found = [self.write_once(codec) for _ in range(self.times)]
        return median(found, key=lambda one: one.seconds)

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
    def __init__(self, table, folder):
        self.table = table
        self.folder = folder
        self.disk = {"write": [], "read": []}   # GB/s of plain direct I/O

    def row(self, what, moved, seconds, share=None, verdict=""):
        rate = moved / 1e9 / seconds
        self.table.add(what, f"{seconds:.2f} s", f"{rate:.2f} GB/s", f"{share:.2f}" if share else "",
                       verdict)
        name = what.replace(" ", "_").replace(",", "")
        self.table.figure(name, seconds, "s")
        self.table.figure(f"{name}_rate", rate, "GB/s")

    def share(self, way, moved, seconds):
        return moved / 1e9 / seconds / statistics.mean(self.disk[way])

    def beside_disk(self, what, way, moved, seconds):
        share = self.share(way, moved, seconds)
        self.row(what, moved, seconds, share, self.table.at_least(share, DISK_SHARE))

    def plain(self, when, mib, times):
        """The files are as large as a snapshot of as much, and removed."""
        for way in ("write", "read"):
            found = [figures_of("bench/bench_disk", way, self.folder, mib, THREADS)
                     for _ in range(times)]
            one = median(found, key=lambda one: one["seconds"])
            self.disk[way].append(one["rate"])
            self.row(f"direct I/O, {way}, {when}", mib << 20, one["seconds"])
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))

    def noise(self, mib, codecs):
        job = Snapshots(self.folder, mib)
        self.plain("before", mib, job.times)
        written = {codec: job.write(codec) for codec in codecs}
        verified = median([job.verify() for _ in range(job.times)])
        changes = job.write_changes()
        job.remove()
        self.plain("behind", mib, job.times)
        fetched = job.fetch()
        job.end()
        for codec, one in written.items():
            self.beside_disk(f"write noise, {codec}", "write", one.bytes, one.seconds)
            self.row(f"all of it, {codec}", one.bytes, one.all_seconds)
        self.beside_disk("read, cudaw verify", "read", job.bytes, verified)
        self.row("write a tenth that changed", changes.bytes, changes.seconds)
        self.beside_disk("read, a resume", "read", job.bytes, fetched)

    def compressible(self, mib):
        """Of each 8 bytes, 3 are noise."""
        codecs = ("none", "lz4", "zstd")
        job = Snapshots(self.folder, mib, noise_bytes=3)
        written, read = ({codec: [] for codec in codecs} for _ in range(2))
        for _ in range(TURNS):
            for codec in codecs:
                written[codec].append(job.write_once(codec))
                read[codec].append(job.verify())
        job.end()
        ones = {codec: median(written[codec], key=lambda one: one.seconds) for codec in codecs}
        for codec, one in ones.items():
            self.row(f"write what shrinks, {codec}, to {one.stored / one.bytes:.0%}", one.bytes,
                     one.seconds, self.share("write", one.bytes, one.seconds),
                     self.table.at_least(ones["none"].seconds / one.seconds, NEVER_SLOWER))
            seconds = median(read[codec])
            self.row(f"read it, {codec}", job.bytes, seconds,
                     self.share("read", job.bytes, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--size", type=int, default=32, metavar="GIB", help="of noise (32)")
    parser.add_argument("--codecs", nargs="+", default=CODECS, choices=CODECS, metavar="CODEC",
                        help="to write noise with (all)")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="on the disk to measure")
    parser.add_argument("--simulated", action="store_true", help="on the simulated driver")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    table = Table("GPU memory", "time", "rate", "of direct I/O", "target")
    folder = tempfile.mkdtemp(prefix="cudaw-bench-", dir=args.dir)

    try:
        if not SIMULATED:
            idle_gpu_used()
        bench = Bench(table, folder)
        bench.noise(args.size << 10, args.codecs)
        bench.compressible(args.size << 7)
    except Skip as skip:
        print(f"skipped: {skip}")
        return 77
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        table.show()
        table.write(args.results)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
