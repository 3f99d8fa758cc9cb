#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that exchange GPU memory, beside what the driver allows two processes (tests/programs/exchange.c)
and a plain pinned copy, in the same run.

Parts:
  probe     two native processes exchange memory in parts of three sizes, on a GPU that is full: rate
            each way, and the longest driver call
  beside    the same beside a third process that computes: how many steps it makes meanwhile
  handover  two jobs that do not fit together: the time from the moment at which the GPU has done the
            work of the one to that at which the other runs, and how long the work took beside it
  turns, interactive, fairness, fit, alone, ranks: jobs that take turns under cudawd (turns_two.py)

Each part prints its figures as a line of JSON, too.

BUILD is the build directory. Exit status: 1 where a target is missed.
"""
import argparse
import json
import subprocess
import sys
import time

from benchlib import Table, need

from bench_pause import figures_of
import gpulib
from gpulib import Failure, Job, check, cudaw, hog, idle_gpu_used, job_command
from harness import ends_with_us
from lease import EVERYTHING, Lease
import turns_two

MIB, GIB = 1 << 20, 1 << 30
PART_MIB = (64, 256, 1024)
HANDOVER_RATE = 90      # GB/s in and out together
START_BYTES = 1 << 30   # for the context of a job that starts
SPARE_BYTES = 256 << 20 # left free
STEPS_MIB = 1024        # that the third process computes with
BESIDE_SHARE = 0.98     # of the steps that a third process makes alone
MEMORY = {"CUDAW_RELEASE": "memory", "CUDAW_HOST_POOL": "32G"}


class Exchange:
    """Two native processes; each has its host memory when it is ready."""

    def __init__(self, mib, part_mib):
        args = ("--mib", mib, "--part-mib", part_mib)
        self.gives = self.start(args, subprocess.PIPE, subprocess.PIPE)
        self.takes = self.start((*args, "--takes", 1), self.gives.stdout, subprocess.DEVNULL)
        self.gives.stdout.close()
        for process in (self.gives, self.takes):
            line = process.stderr.readline()
            check(line == "ready\n", f"exchange says {line!r}")

    @staticmethod
    def start(args, stdin, stdout):
        command, env = job_command("exchange", args, "native")
        return ends_with_us(subprocess.Popen([*map(str, command)], env=env, text=True, stdin=stdin,
                                             stdout=stdout, stderr=subprocess.PIPE))

    def run(self):
        """Returns the figures of both."""
        self.gives.stdin.write("go\n")
        self.gives.stdin.flush()
        return self.figures(self.gives), self.figures(self.takes)

    @staticmethod
    def figures(process):
        lines = [line.split() for line in process.stderr]
        check(process.wait(60) == 0, f"exchange ended with {process.returncode}: {lines}")
        return {words[1]: float(words[2]) for words in lines}


class Bench:
    def __init__(self, table, args):
        self.table, self.args = table, args

    def row(self, what, seconds="", rates="", calls="", verdict=""):
        self.table.add(what, seconds, rates, calls, verdict)

    def figure(self, what, value, unit):
        self.table.figure(what.replace(" ", "_"), value, unit)

    def ceiling(self):
        rates = figures_of("bench/bench_copy")
        for name, rate in rates.items():
            self.row(f"plain copy, {name}", rates=f"{rate:.2f} GB/s")
            self.figure(f"plain {name}", rate, "GB/s")

    def exchange(self, mib, part_mib, beside=None):
        """On a GPU whose other memory is in use."""
        pair = Exchange(mib, part_mib)
        other, _ = hog()
        if beside:
            beside.begin()
        gives, takes = pair.run()
        if beside:
            beside.end()
        other.discard()
        name = f"exchange, parts of {part_mib} MiB"
        seconds = max(gives["seconds"], takes["seconds"])
        self.row(name, f"{seconds:.3f} s", f"{gives['gbps']:.1f} + {takes['gbps']:.1f} GB/s",
                 f"unmap {gives['longest_unmap_ms']:.2f}, create {takes['longest_create_ms']:.2f}, "
                 f"copy {gives['longest_part_ms']:.2f}, {takes['longest_part_ms']:.2f} ms; "
                 f"short {takes['short']:.0f}")
        for who, figures in (("gives", gives), ("takes", takes)):
            for key, value in figures.items():
                self.figure(f"{name} {who} {key}", value, key.rpartition("_")[2])

    def probe(self):
        for part_mib in PART_MIB:
            self.exchange(int(self.args.exchange_gib * 1024), part_mib)

    def beside(self):
        for part_mib in PART_MIB:
            steps = Steps()
            self.exchange(int(self.args.exchange_gib * 1024), part_mib, steps)
            alone, shared = steps.rates()
            self.row("a third process beside it", "", f"{alone:.1f}, {shared:.1f} steps/s", "",
                     self.table.at_least(shared, BESIDE_SHARE * alone))
            self.figure(f"steps alone, parts of {part_mib} MiB", alone, "1/s")
            self.figure(f"steps beside, parts of {part_mib} MiB", shared, "1/s")

    def handover(self):
        """The first job makes room for the second; then they change places, again and again."""
        mib = int(self.args.gib * 1024)
        first = Turn(mib)
        first.give(mib * MIB + START_BYTES - free_bytes())
        second = Turn(mib)
        times = []
        gives, takes = second, first
        for number in range(1, self.args.turns + 1):
            times.append(hand_over(gives, takes))
            self.show_turn(f"hand-over {number}", *times[-1])
            gives, takes = takes, gives
            time.sleep(self.args.rest)
        seconds, moved, _ = sorted(times[2:] or times)[len(times[2:] or times) // 2]
        rate = moved / 1e9 / seconds
        self.row("median from the third on", f"{seconds:.3f} s", f"{rate:.1f} GB/s", "",
                 self.table.at_least(rate, HANDOVER_RATE))
        self.figure("handover", seconds, "s")
        self.figure("handover rate", rate, "GB/s")
        gives.end()
        takes.lease.hang_up()   # takes has its memory when gives has ended
        takes.end()

    def show_turn(self, what, seconds, moved, drain):
        self.row(what, f"{seconds:.3f} s", f"{moved / 1e9 / seconds:.1f} GB/s",
                 f"{moved / GIB:.1f} GiB out and in; drain {drain * 1000:.0f} ms")


class Turn:
    """A job that takes turns."""

    def __init__(self, mib):
        self.job = Job("counter", "--mib", mib, "--allocs", 64, "--steps", 1000000, "--step-ms", 20,
                       env=MEMORY)
        self.job.wait_steps(2, timeout=120)
        self.lease = Lease(self.job)
        self.out = 0        # bytes, as is
        self.mapped = 0     # what a yield has left

    def give(self, size):
        self.out = self.lease.take(max(0, size))
        self.mapped = self.lease.last("mapped")

    def end(self):
        check("every word right" in self.job.finish(timeout=240), "a job did not verify its memory")


def free_bytes():
    return int(gpulib.smi("gpu=memory.free")[0][0]) * MIB - SPARE_BYTES


def hand_over(gives, takes):
    """The room of the one grows by what the other has freed. Returns the seconds from the end of the
    drain, the bytes that went out and came in, and the seconds of the drain."""
    free = free_bytes()
    room, needed = takes.mapped + free, takes.out - free
    for turn in (gives, takes):
        turn.lease.seen.clear()
    start = time.monotonic()
    takes.lease.send(f"room {room}")
    gives.lease.send(f"yield {max(0, needed)}")
    gives.out = 0
    while True:
        word, _, value = gives.lease.read().partition(" ")
        if word == "freed":
            gives.out = int(value)
            takes.lease.send(f"room {room + gives.out}")
        elif word == "end":
            check(value == "ok", f"a yield ends: {value}")
            break
    takes.lease.send(f"room {EVERYTHING}")
    check(takes.lease.until("end") == "ok", f"a fill ends: {takes.lease.seen[-1]}")
    end = time.monotonic()
    gives.mapped = gives.lease.last("mapped")
    moved, takes.out = gives.out + takes.out, 0
    drain = gives.lease.phase("drain")
    return end - start - drain, moved, drain


class Steps:
    """A native process that computes, and when it made its steps."""

    def __init__(self, warm_s=2):
        self.job = Job("counter", "--mib", STEPS_MIB, "--allocs", 4, "--steps", 10000000, "--step-ms", 0,
                       mode="native")
        self.job.wait_steps(10)
        time.sleep(warm_s)
        start, steps = time.monotonic(), self.job.steps()
        time.sleep(warm_s)
        self.alone = (self.job.steps() - steps) / (time.monotonic() - start)

    def begin(self):
        self.start, self.steps = time.monotonic(), self.job.steps()

    def end(self):
        self.shared = (self.job.steps() - self.steps) / (time.monotonic() - self.start)
        self.job.discard()

    def rates(self):
        return self.alone, self.shared


def run_parts(bench, args):
    exchanges = {"probe": bench.probe, "beside": bench.beside, "handover": bench.handover}
    turns = turns_two.Turns(bench, args)
    parts = {**exchanges, "turns": turns.turns, "interactive": turns.interactive,
             "fairness": turns.fairness, "fit": turns.fit, "alone": turns.alone_step,
             "ranks": turns.ranks}
    idle_gpu_used()
    if any(part in exchanges for part in args.part.split(",")):
        bench.ceiling()
    for part in args.part.split(","):
        begun = len(bench.table.figures)
        parts[part]()
        figures = {row["name"]: row["value"] for row in bench.table.figures[begun:]}
        print(json.dumps({"part": part, **figures}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--part", default="probe,beside,handover", help="which, with commas (all)")
    parser.add_argument("--gib", type=float, default=80, help="what each job holds (80)")
    parser.add_argument("--exchange-gib", type=float, default=22, help="of the native processes (22)")
    parser.add_argument("--turns", type=int, default=8, help="hand-overs (8)")
    parser.add_argument("--rest", type=float, default=1, help="seconds between them (1)")
    turns_two.add_options(parser)
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    need("bench/bench_copy", "programs/counter", "programs/exchange")
    table = Table("", "time", "rates", "longest", "target")

    def measure():
        try:
            run_parts(Bench(table, args), args)
        except Failure:
            for command in ("turns", "events"):
                print(cudaw(command).stdout[-4000:])
            gpulib.discard_jobs(good=False)
            raise
    return table.fill(measure, args.results)


if __name__ == "__main__":
    sys.exit(main())
