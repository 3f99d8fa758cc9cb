# SPDX-License-Identifier: Apache-2.0
"""The parts of bench_turns.py about jobs that take turns under cudawd. Each measures what one job does
alone in the same run, and has every job verify its memory.

  turns        two trainings of 80 GiB, a run for each quantum: of serial, which is 1 if a turn costs nothing
  interactive  a job that works now and then beside a training
  fairness     jobs of the given weights
  fit          two jobs of 60 GiB, which fit together, natively, with cudaw, and with cudawd
  alone        a training step natively, with cudaw, and with cudawd
  ranks        two trainings of two ranks, a GPU each, that hold 84 GiB of both: of serial, beside one natively

On the simulated driver, with --simulated, it takes --scale 0.002, and the figures mean nothing.
"""
import importlib.util
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import time

from bench import Racer, take_turns
from gpulib import (BUILD, PATIENCE, RUNTIME_DIR, SCRATCH, Job, base_environment, check, cudaw, cudaw_ok,
                    equal, seeded)
from harness import ends_with_us, until
from proclib import descendants

CUDAWD = os.path.join(BUILD, "bin", "cudawd")
GPU_GIB = 139           # of the simulated GPU, before --scale
ENDLESS = 10000000
# Targets.
OF_SERIAL = {30: 0.97, 10: 0.93}
CALL_P50, CALL_P99, TRAINING_KEEPS = 0.5, 1.0, 0.90
JAIN, POINTS = 0.99, 2
RANKS_GIB, RANKS_OF_SERIAL = 84, 0.90
FIT, ALONE = 0.99, 1.003
HOST = 1.05     # of what is out


def add_options(parser):
    parser.add_argument("--quantum", default="30,10", help="turns: seconds, with commas (30,10)")
    parser.add_argument("--job", choices=("torch", "counter"), help="turns: PyTorch, if it is there")
    parser.add_argument("--seconds", type=float, default=100, help="turns: at least, a quantum (100)")
    parser.add_argument("--alone-seconds", type=float, default=12, help="measure a job alone (12)")
    parser.add_argument("--bursts", type=int, default=40, help="interactive: bursts (40)")
    parser.add_argument("--burst-seconds", type=float, default=0.2, help="interactive: each (0.2)")
    parser.add_argument("--think", default="2,6", help="interactive: seconds between them (2,6)")
    parser.add_argument("--idle", help="interactive: cudawd's --idle (its default)")
    parser.add_argument("--visitor-gib", type=float, default=40, help="interactive: of the visitor (40)")
    parser.add_argument("--beside-gib", type=float, default=110, help="interactive: of the training (110)")
    parser.add_argument("--weights", default="1:1:1,1:2:1", help="fairness: of the jobs of each run (1:1:1,1:2:1)")
    parser.add_argument("--fair-gib", type=float, default=60, help="fairness: of each job (60)")
    parser.add_argument("--fair-seconds", type=float, default=150, help="fairness: each weights (150)")
    parser.add_argument("--rounds", type=int, default=3, help="fit: of each kind (3)")
    parser.add_argument("--pairs", type=int, default=4, help="alone: processes of each kind (4)")
    parser.add_argument("--race-rounds", type=int, default=8, help="alone: of each process (8)")
    parser.add_argument("--scale", type=float, default=1, help="of all sizes (1)")
    parser.add_argument("--simulated", action="store_true", help="on the simulated driver")


class Timed(Job):
    """A job, and when each of its steps came."""

    def __init__(self, *args, **options):
        self.times = []
        self.name = options.get("name")
        super().__init__(*args, **options)

    def take(self, line):
        if line.startswith("step "):
            self.times.append(time.monotonic())
        super().take(line)

    def count(self, start, end):
        return sum(start <= moment < end for moment in self.times)

    def rate(self, start, end):
        """Steps per second, of whole steps."""
        times = [moment for moment in self.times if start <= moment < end]
        check(len(times) >= 3, f"only {len(times)} steps of {self.program} in {end - start:.1f} s")
        return (len(times) - 1) / (times[-1] - times[0])


def measured(seconds):
    """A window of time, from now."""
    start = time.monotonic()
    time.sleep(seconds)
    return start, time.monotonic()


def members():
    """A row of each job by its name: of one of its processes, which have their turns together."""
    return {row["name"]: row for row in json.loads(cudaw_ok("turns", "--json"))["members"]}


def handover_ms():
    """Median of what it took to begin a turn, of those that the daemon remembers."""
    found = [float(number) * {"ms": 1, "s": 1000}[unit]
             for number, unit in re.findall(r"back after ([0-9.]+) (ms|s)\b", cudaw_ok("events"))]
    return statistics.median(found) if found else math.nan


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def farthest(values, weights):
    """The percentage points by which one of them is off its weight, at most."""
    return max(abs(100 * value / sum(values) - 100 * weight / sum(weights))
               for value, weight in zip(values, weights))


def runner(jobs):
    """One of the jobs whose turn it is."""
    def found():
        rows = members()
        return [job for job in jobs if rows.get(job.name, {}).get("state") in ("runs", "idle")]
    return until(found, 60, "a job has its turn")[0]


def finish(job):
    check("every word right" in job.finish(timeout=60), f"{job.program} did not verify its memory")


def finish_all(jobs):
    """Each in its turn."""
    left = list(jobs)
    while left:
        job = runner(left)
        finish(job)
        left.remove(job)


def same_steps(jobs):
    """All jobs are the same program: they print the same for the same step."""
    found = [[line for line in job.lines if line.startswith("step ")] for job in jobs]
    for number, lines in enumerate(zip(*found), 1):
        check(len(set(lines)) == 1, f"step {number} of the jobs differs: {lines}")


def host_kib(pid):
    """The memory of its processes."""
    found = 0
    for process in (pid, *descendants(pid)):
        with open(f"/proc/{process}/status", encoding="ascii") as lines:
            found += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return found


class Watch:
    """The seconds of the GPU that each job had so far, as cudawd counts them: those that run together
    have parts of it. look() is called often."""

    def __init__(self, jobs):
        self.had = {job.name: 0 for job in jobs}
        self.looked, self.ran = time.monotonic(), []

    def look(self):
        now = time.monotonic()
        for name in self.ran:
            self.had[name] += (now - self.looked) / len(self.ran)
        rows = members()
        self.looked, self.ran = now, [name for name in self.had if rows.get(name, {}).get("state") == "runs"]


def whole_cycles(jobs, seconds, more=120, look=lambda: None):
    """From the begin of a turn to a begin of a turn of the same job, after at least @seconds; if it has
    kept its turn for @more seconds then, to that moment. Meanwhile look() is called often."""
    def turns():
        rows = members()
        return {job.name: rows[job.name]["turns"] for job in jobs if job.name in rows}

    def begun():
        """A job whose turn has begun since the last call."""
        nonlocal before
        before, last = turns(), before
        return next((name for name, count in before.items() if count > last.get(name, count)), None)
    before = {}
    until(lambda: len(turns()) == len(jobs), 30, "all jobs have joined")
    whose = until(begun, 120 / PATIENCE, "a turn begins")
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        look()
        time.sleep(0.1)
    turn = turns()[whose]
    while turns()[whose] == turn and time.monotonic() < start + seconds + more:
        look()
        time.sleep(0.02)
    return start, time.monotonic()


class Turns:
    def __init__(self, bench, args):
        self.bench, self.args = bench, args
        self.table = bench.table
        self.daemon = None
        if args.simulated:
            self.simulate()

    def simulate(self):
        import simlib   # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        os.environ["CUDAW_SIM_MEMORY"] = str(self.mib(GPU_GIB) << 20)
        os.environ["CUDAW_SIM_CONTEXT"] = str(1 << 20)

    def mib(self, gib):
        return int(gib * 1024 * self.args.scale)

    # ---- daemon and jobs

    def start_daemon(self, *options):
        self.end_daemon()
        os.makedirs(RUNTIME_DIR, mode=0o700, exist_ok=True)
        env = base_environment()
        if self.args.simulated:
            libraries = os.path.join(SCRATCH, "nvml")
            os.makedirs(libraries, exist_ok=True)
            shutil.copy(os.path.join(BUILD, "tests", "preload", "nvml.so"),
                        os.path.join(libraries, "libnvidia-ml.so.1"))
            env.update(LD_LIBRARY_PATH=libraries, TEST_NVML_FILE=os.environ["CUDAW_SIM_SHARED"])
            options = (*options, "--margin", "1M")
        self.daemon = ends_with_us(subprocess.Popen([CUDAWD, "--linger", "600", *options], env=env))
        until(lambda: cudaw("turns").returncode == 0, 10, "cudawd answers")

    def end_daemon(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()
        self.daemon = None

    def started(self, name, source, weight=1, kind="batch", mode="run", turns="user"):
        env = {"CUDAW_RELEASE": "memory", "CUDAW_TURNS": turns, "CUDAW_TURNS_CLASS": kind,
               "CUDAW_TURNS_WEIGHT": str(weight)}
        return Timed(*source, name=name, mode=mode, env=env)

    def counter(self, gib, *more):
        # Small buffers would be rounded up too much.
        buffers = 64 if self.mib(gib) >= 64 * 64 else 16
        return ("counter", "--mib", self.mib(gib), "--allocs", buffers, "--steps", ENDLESS, *more)

    def alone(self, job):
        job.wait_steps(job.steps() + 3, timeout=120)
        return job.rate(*measured(self.args.alone_seconds))

    # ---- the parts

    def turns(self):
        torch = self.args.job != "counter" and importlib.util.find_spec("torch")
        check(torch or self.args.job != "torch", "no PyTorch on this machine")
        source = ("large_train.py", "--gib", 80, "--steps", ENDLESS) if torch else self.counter(80)
        windows, jobs, alone = [], [], {}
        for quantum in self.args.quantum.split(","):
            self.start_daemon("--quantum", quantum)
            if not jobs:
                jobs.append(self.started("first", source))
                alone[jobs[0]] = self.alone(jobs[0])
                before = host_kib(jobs[0].pid)
                jobs.append(self.started("second", source))
            windows.append((float(quantum), *whole_cycles(jobs, self.args.seconds), handover_ms()))
        self.show_host(jobs[0], before)
        same_steps(jobs)
        finish(runner(jobs[:1]))
        alone[jobs[1]] = self.alone(jobs[1])
        finish(jobs[1])
        self.show_turns(source[0], jobs, alone, windows)

    def show_turns(self, program, jobs, alone, windows):
        for number, job in enumerate(jobs, 1):
            self.bench.row(f"{program} {number} alone", rates=f"{alone[job]:.3f} steps/s")
            self.bench.figure(f"turns steps alone {number}", alone[job], "1/s")
        for quantum, start, end, handover in windows:
            steps = [job.count(start, end) for job in jobs]
            together = sum(steps) / (end - start)
            of_serial = sum(count / alone[job] for job, count in zip(jobs, steps)) / (end - start)
            least = OF_SERIAL.get(quantum)
            self.bench.row(f"in turns of {quantum:g} s", f"{handover:.0f} ms to begin one",
                           f"{together:.3f} steps/s", f"of serial {of_serial:.4f}, {end - start:.0f} s",
                           self.table.at_least(of_serial, least) if least else "none")
            for what, value, unit in (("of serial", of_serial, "x"), ("steps", together, "1/s"),
                                      ("begins after", handover, "ms"), ("window", end - start, "s")):
                self.bench.figure(f"turns quantum {quantum:g} {what}", value, unit)

    def show_host(self, job, before):
        """What it holds while it is out, beyond @before, when it had never been."""
        row = until(lambda: next((row for row in members().values()
                                  if row["name"] == job.name and row["state"] == "waits"), None), 150, "it is out")
        out = sum(gpu["total"] - gpu["mapped"] for gpu in row["gpu"])
        held = (host_kib(job.pid) - before) * 1024
        self.bench.row("host memory of one that is out", rates=f"{held / 2 ** 30:.2f} GiB",
                       calls=f"{out / 2 ** 30:.2f} GiB are out",
                       verdict=self.table.verdict(held / out, HOST))
        self.bench.figure("turns host memory of what is out", held / out, "x")

    def interactive(self):
        self.start_daemon(*(("--idle", self.args.idle) if self.args.idle else ()))
        visitor = self.started("visitor", self.counter(self.args.visitor_gib, "--each-line", 1), kind="interactive")
        self.burst(visitor, 0)
        calls_alone = [self.burst(visitor, self.args.burst_seconds) for _ in range(5)]
        training = self.started("training", self.counter(self.args.beside_gib))
        alone = self.alone(training)
        calls, start = [], time.monotonic()
        rng, think = seeded(), [float(word) for word in self.args.think.split(",")]
        for _ in range(self.args.bursts):
            time.sleep(rng.uniform(*think))
            calls.append(self.burst(visitor, self.args.burst_seconds))
        end = time.monotonic()
        keeps = training.count(start, end) / (end - start) / alone
        handover = handover_ms()
        check("every word right" in visitor.result(), "the interactive job did not verify its memory")
        finish(training)
        calls.sort()
        p50, p99 = statistics.median(calls), calls[math.ceil(0.99 * len(calls)) - 1]
        least = 1 - self.args.bursts * self.args.burst_seconds / (end - start)
        self.bench.row("call to first step, alone", f"{statistics.median(calls_alone):.3f} s")
        self.bench.row("the same beside a training, p50", f"{p50:.3f} s", "", f"{handover:.0f} ms to begin",
                       self.table.verdict(p50, CALL_P50))
        self.bench.row("p99", f"{p99:.3f} s", "", "", self.table.verdict(p99, CALL_P99))
        self.bench.row("the training alone", rates=f"{alone:.3f} steps/s")
        self.bench.row("what it keeps", rates=f"{keeps:.4f}",
                       calls=f"the bursts alone would leave {least:.4f}",
                       verdict=self.table.at_least(keeps, TRAINING_KEEPS))
        for what, value, unit in (("call alone p50", statistics.median(calls_alone), "s"),
                                  ("call p50", p50, "s"), ("call p99", p99, "s"),
                                  ("begins after", handover, "ms"), ("training alone", alone, "1/s"),
                                  ("training keeps", keeps, "x"), ("bursts leave", least, "x")):
            self.bench.figure(f"interactive {what}", value, unit)

    @staticmethod
    def burst(visitor, seconds):
        """Steps one after another, for so long after the first; returns what the first one took."""
        def step():
            made, patience = len(visitor.times), time.monotonic() + 120
            visitor.tell()
            while len(visitor.times) == made:
                check(time.monotonic() < patience and not visitor.ended(), "no step of the visitor")
                time.sleep(0.0005)
            return visitor.times[made]
        start = time.monotonic()
        first = last = step()
        while last < first + seconds:
            last = step()
        return first - start

    def fairness(self):
        self.start_daemon("--quantum", "10" if not self.args.simulated else "0.5")
        for run in self.args.weights.split(","):
            weights = [int(weight) for weight in run.split(":")]
            jobs = [self.started("job1", self.counter(self.args.fair_gib), weights[0])]
            alone = self.alone(jobs[0])
            jobs += [self.started(f"job{number}", self.counter(self.args.fair_gib), weight)
                     for number, weight in enumerate(weights[1:], 2)]
            watch = Watch(jobs)
            start, end = whole_cycles(jobs, self.args.fair_seconds, more=45, look=watch.look)
            steps = [job.count(start, end) for job in jobs]
            finish_all(jobs)
            self.show_fairness(weights, steps, alone * (end - start))
            self.show_time(weights, list(watch.had.values()))

    def show_fairness(self, weights, steps, serial):
        name = ":".join(map(str, weights))
        index = jain([count / weight for count, weight in zip(steps, weights)])
        points = farthest(steps, weights)
        self.bench.row(f"weights {name}", f"Jain {index:.4f}", f"{sum(steps) / serial:.3f} of one alone",
                       f"steps {steps}", self.table.at_least(index, JAIN))
        self.bench.row("farthest from its weight", f"{points:.2f} points",
                       verdict=self.table.verdict(points, POINTS))
        self.bench.figure(f"fairness {name} jain", index, "")
        self.bench.figure(f"fairness {name} points", points, "")
        self.bench.figure(f"fairness {name} of one alone", sum(steps) / serial, "x")

    def show_time(self, weights, had):
        """How the policy divides the GPU; what the GPU makes of it is what show_fairness() shows."""
        parts = [100 * seconds / sum(had) for seconds in had]
        points = farthest(had, weights)
        self.bench.row("time of the GPU", ", ".join(f"{part:.1f}" for part in parts),
                       f"farthest {points:.2f} points")
        self.bench.figure(f"fairness {':'.join(map(str, weights))} time points", points, "")

    def fit(self):
        rates = {"native": [], "cudaw": [], "cudawd": []}
        self.start_daemon()
        for number in range(self.args.rounds):
            kinds = list(rates) if number % 2 else list(reversed(rates))
            for kind in kinds:
                rates[kind].append(self.pair_rate(kind))
        medians = {kind: statistics.median(values) for kind, values in rates.items()}
        for kind, values in rates.items():
            self.bench.row(f"two that fit, {kind}", rates=f"{medians[kind]:.3f} steps/s",
                           calls=", ".join(f"{value:.3f}" for value in values))
            self.bench.figure(f"fit {kind}", medians[kind], "1/s")
        ratio = medians["cudawd"] / medians["cudaw"]
        self.bench.row("with cudawd / without", rates=f"{ratio:.4f}", verdict=self.table.at_least(ratio, FIT))
        self.bench.figure("fit ratio", ratio, "x")
        self.bench.figure("fit ratio to native", medians["cudawd"] / medians["native"], "x")

    def pair_rate(self, kind):
        """Steps per second that two jobs make together."""
        jobs = [self.started(name, self.counter(60), mode="native" if kind == "native" else "run",
                             turns="user" if kind == "cudawd" else "off") for name in ("first", "second")]
        for job in jobs:
            job.wait_steps(5, timeout=120)
        window = measured(self.args.alone_seconds)
        if kind == "cudawd":
            rows = members()
            equal([rows[job.name]["turns"] for job in jobs], [0, 0], "turns of jobs that fit")
        for job in jobs:
            finish(job)
        return sum(job.rate(*window) for job in jobs)

    def alone_step(self):
        """The part "alone"."""
        self.start_daemon()
        torch = importlib.util.find_spec("torch")
        sources = [("train.py", "--bench", "--steps", 50, "--modes", mode)
                   for mode in ("eager", "graph")] if torch else [("bursts",)]
        for source in sources:
            runs = [self.race(source) for _ in range(self.args.pairs)]
            self.show_race(runs)

    def race(self, source):
        kinds = (("native", "off"), ("run", "off"), ("run", "user"))
        racers = [Racer(source, mode, {"CUDAW_TURNS": turns, "CUDAW_RELEASE": "memory"})
                  for mode, turns in kinds]
        for racer in racers:
            racer.ready()
        until(members, 10, "one has joined")
        equal([row["pid"] for row in members().values()], [racers[2].job.pid], "who has joined")
        take_turns(racers, self.args.race_rounds)
        losses = [[line for line in racer.job.lines if line.startswith("loss ")] for racer in racers]
        check(losses[0] == losses[1] == losses[2], f"the losses differ: {losses}")
        return racers

    def show_race(self, runs):
        for name, unit in runs[0][0].units.items():
            native, cudaw_alone, cudawd = (
                statistics.median(statistics.median(run[kind].values[name]) for run in runs)
                for kind in range(3))
            # Of each pair, whose rounds were made in turns.
            ratio = statistics.median(statistics.median(run[2].values[name]) /
                                      statistics.median(run[1].values[name]) for run in runs)
            self.bench.row(name, f"{cudawd:.4f} {unit}",
                           f"without cudawd {cudaw_alone:.4f}, native {native:.4f}", f"ratio {ratio:.5f}",
                           self.table.verdict(ratio, ALONE) if name.startswith("train_") else "none")
            for what, value in (("native", native), ("cudaw", cudaw_alone), ("cudawd", cudawd)):
                self.bench.figure(f"alone {name} {what}", value, unit)
            self.bench.figure(f"alone {name} ratio", ratio, "x")

    def ranks(self):
        """Of each job, the daemon's row is that of one of its processes."""
        if self.args.simulated:
            os.environ["CUDAW_SIM_DEVICES"] = "2"
            source = ("sharing", "--gpus", 2, "--ipc", 1, "--kib", 2048, "--ballast", self.mib(RANKS_GIB),
                      "--steps", ENDLESS)
        else:
            source = ("nccl_training.py", "--kind", "ddp", "--transport", "default", "--gib", RANKS_GIB,
                      "--steps", ENDLESS)
        native = self.started("native", source, mode="native", turns="off")
        alone = [self.alone(native)]
        native.discard()
        self.start_daemon("--quantum", "10")
        jobs = [self.started(name, source) for name in ("first", "second")]
        for job in jobs:
            job.wait_steps(2, timeout=120)
        start, end = whole_cycles(jobs, self.args.seconds)
        same_steps(jobs)
        same_steps([native, jobs[0]])
        steps = [job.count(start, end) for job in jobs]
        for job in jobs:
            job.discard()
        native = self.started("native", source, mode="native", turns="off")
        alone.append(self.alone(native))
        native.discard()
        self.show_ranks(alone, steps, end - start)

    def show_ranks(self, alone, steps, seconds):
        of_serial = sum(steps) / seconds / statistics.mean(alone)
        handover = handover_ms()
        self.bench.row("two ranks, natively and alone, before and after",
                       rates=", ".join(f"{rate:.3f}" for rate in alone) + " steps/s")
        self.bench.row("two such jobs in turns of 10 s", f"{handover:.0f} ms to begin one",
                       f"{sum(steps) / seconds:.3f} steps/s", f"of serial {of_serial:.4f}, {seconds:.0f} s",
                       self.table.at_least(of_serial, RANKS_OF_SERIAL))
        for what, value, unit in (("alone before", alone[0], "1/s"), ("alone after", alone[1], "1/s"),
                                  ("of serial", of_serial, "x"), ("begins after", handover, "ms"),
                                  ("window", seconds, "s")):
            self.bench.figure(f"ranks {what}", value, unit)
