#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first pause of a second job, while the memory of a first job lies in host memory.

It needs host memory that no process, or even no virtual machine, has used before. The ceiling is
that of 16 threads which touch fresh memory and copy into it (bench_touch), measured just before and
just after the pause: the more of the machine's memory is in use, the more of the rest was never used.
Both jobs keep their contexts (CUDAW_RELEASE=memory).

BUILD is the build directory. Exit status: 1 if the target is missed.
"""
import argparse
import os
import statistics
import subprocess
import sys

from benchlib import Table, need

from bench_pause import MEMORY, Moved, end_verified, start_job
from gpulib import BUILD, check, idle_gpu_used
from harness import ends_with_us

SHARE = 0.90            # of the ceiling
STEPS_MIB = (16, 4)     # that the ceiling's threads make present at a time; the faster one counts


class Toucher:
    """bench_touch: it keeps what it has touched for as long as the bench runs."""

    def __init__(self):
        self.process = ends_with_us(subprocess.Popen(
            [os.path.join(BUILD, "tests", "bench", "bench_touch")], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1))
        self.rates = {step: [] for step in STEPS_MIB}

    def measure(self, mib):
        """Touch so much in all, half of it with each step."""
        for step, rates in self.rates.items():
            self.process.stdin.write(f"{step} {mib // len(self.rates)}\n")
            line = self.process.stdout.readline()
            check(line.endswith(" GB/s\n"), "bench_touch ended")
            rates.append(float(line.split()[0]))


class Bench:
    def __init__(self, table, mib, touch_mib):
        self.table, self.mib, self.touch_mib = table, mib, touch_mib
        self.toucher = Toucher()

    def row(self, what, rate, moved=None, verdict=""):
        times = (f"{moved.seconds:.3f} s", f"{moved.phases.get('copy', 0):.3f} s") if moved else ("", "")
        self.table.add(what, *times, f"{rate:.2f} GB/s", verdict)
        self.table.figure(what.replace(" ", "_").replace(",", ""), rate, "GB/s")

    def ceiling(self):
        """The mean rate of the faster step."""
        for step, rates in self.toucher.rates.items():
            for when, rate in zip(("before", "after"), rates):
                self.row(f"touch and copy, steps of {step} MiB, {when}", rate)
        return max(statistics.mean(rates) for rates in self.toucher.rates.values())

    def run(self):
        first = start_job(self.mib, env=MEMORY)
        moved = Moved("pause", first)
        self.row("the first job's first pause", moved.rate, moved)
        second = start_job(self.mib, env=MEMORY)
        self.toucher.measure(self.touch_mib)
        moved = Moved("pause", second)
        self.toucher.measure(self.touch_mib)
        ceiling = self.ceiling()
        self.row("the second job's first pause", moved.rate, moved,
                 self.table.at_least(moved.rate, SHARE * ceiling))
        for job in (second, first):
            Moved("resume", job)
            end_verified(job)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--gib", type=float, default=40, help="what each job holds (40)")
    parser.add_argument("--touch-gib", type=float, default=8,
                        help="what is touched before the pause, and again after it (8)")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    need("bench/bench_touch", "programs/counter")
    table = Table("", "time", "of which copy", "rate", "target")

    def measure():
        idle_gpu_used()
        Bench(table, int(args.gib * 1024), int(args.touch_gib * 1024)).run()
    return table.fill(measure, args.results)


if __name__ == "__main__":
    sys.exit(main())
