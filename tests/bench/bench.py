#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What cudaw costs: medians of a native and a wrapped run, and their ratio.

Both run at once and are timed in turns, a round each, so that what drifts (clocks, temperature)
hits both alike. With --trace the wrapped runs write traces, which has no targets. BUILD is the
build directory. Exit status: 1 where a target is missed.
"""
import argparse
import collections
import os
import statistics
import sys

from benchlib import Table, need

from gpulib import BUILD, SCRATCH, Job, Skip, check, jobs

# The most that wrapped may take of native. A free in the default stream is an event more under cudaw,
# and has no target.
TARGETS = {
    "launch": 1.02,
    "malloc_4KiB": 1.0,
    "malloc_1MiB": 1.0,
    "malloc_64MiB": 1.0,
    "malloc_async": 1.1,
    "malloc_async_64MiB": 1.1,
    "burst_1.5MiB": 1.0,
    "burst_4MiB": 1.0,
    "burst_32MiB": 1.0,
    "burst_300MiB": 1.0,
    "burst_mixed": 1.0,
    "threads_4KiB": 1.0,
    "threads_1MiB": 1.0,
    "threads_4KiB_2gpus": 1.0,
    "threads_1MiB_2gpus": 1.0,
    "train_eager": 1.01,
    "train_graph": 1.01,
    "nccl_8B": 1.02,
    "nccl_1GiB": 1.01,
}
BENCH_CALLS = os.path.join(BUILD, "tests", "bench", "bench_calls")
SOURCES = (
    (BENCH_CALLS,),
    ("bursts",),
    ("train.py", "--bench", "--steps", 50, "--modes", "eager"),
    ("train.py", "--bench", "--steps", 50, "--modes", "graph"),
    ("nccl_reduce.py",),
)


class Racer:
    """One of the two runs: answers each line with the figures of a round."""

    def __init__(self, source, mode, env=None):
        self.job = Job(*source, mode=mode, env=env)
        self.values = collections.defaultdict(list)
        self.units = {}

    def ready(self):
        self.job.wait_line("ready", timeout=120)

    def round(self, keep):
        seen = self.job.lines.count("done")
        first = len(self.job.lines)
        self.job.process.stdin.write("\n")
        self.job.until(lambda: self.job.lines.count("done") > seen, 120, "a round is done")
        for line in self.job.lines[first:]:
            words = line.split()
            if keep and words[0] == "round":
                self.values[words[1]].append(float(words[2]))
                self.units[words[1]] = words[3]


def take_turns(racers, rounds):
    """The first round warms up; then each goes first every other time. They end with it."""
    for number in range(rounds + 1):
        for racer in racers if number % 2 else reversed(racers):
            racer.round(keep=number > 0)
    for racer in racers:
        racer.job.discard()


def race_pair(source, rounds, traced):
    """A native and a wrapped process, timed in turns: two Racers with their figures."""
    trace = os.path.join(SCRATCH, "trace")
    pair = [Racer(source, "native"), Racer(source, "run", {"CUDAW_TRACE": trace} if traced else {})]
    for racer in pair:
        racer.ready()
    check(jobs(), "cudaw ps does not show the wrapped run")
    take_turns(pair, rounds)
    if traced:
        os.unlink(trace)
    return pair


def race(table, source, rounds, pairs, traced):
    # Where a process's memory lands moves its speed by a few percent: several of each are timed.
    runs = [race_pair(source, rounds, traced) for _ in range(pairs)]
    for name, unit in runs[0][0].units.items():
        medians = [statistics.median(value for run in runs for value in run[side].values[name])
                   for side in (0, 1)]
        ratio = medians[1] / medians[0]
        table.add(name, f"{medians[0]:.3f} {unit}", f"{medians[1]:.3f} {unit}", f"{ratio:.3f}",
                  "traced" if traced else table.verdict(ratio, TARGETS[name]) if name in TARGETS else "none")
        for kind, median in zip(("native", "wrapped"), medians):
            table.figure(f"{name}_{kind}", median, unit)
        table.figure(f"{name}_ratio", ratio, "x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--cpus", type=int, default=2, help="how many processors to run on")
    parser.add_argument("--only", metavar="NAME", default="", help="sources with NAME in them")
    parser.add_argument("--trace", action="store_true", help="have the wrapped runs traced")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    need("bench/bench_calls")
    # The same few processors for both: those of a shared machine differ by more than cudaw costs.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.cpus])
    table = Table("median of", "native", "wrapped", "ratio", "target")
    for source in SOURCES:
        if args.only not in " ".join(map(str, source)):
            continue
        try:
            race(table, source, args.rounds, args.pairs, args.trace)
        except Skip as skip:
            table.add(source[0], "-", "-", "-", f"skipped: {skip}")
    table.show()
    table.write(args.results)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
