#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""turns_soak.py HANDOVERS KILLS DAEMONS: jobs that do not fit on the GPU together take turns through so
many hand-overs. At random moments so many jobs are killed, or one of their processes first and then the
others, as launchers do; and the daemon is killed so often, and a new one comes at once or later. As many
jobs as are killed are told to yield, paused by their user, stopped for a moment, or told to end.

Every job that is not killed ends with every word right. A job that makes no step for STUCK_S seconds,
though its user has not paused it and nobody has stopped it, is stuck. SEED (printed) plans the same jobs
and deeds again. The first fault ends the soak; what the daemon and `cudaw ps` say then, the stacks, the
logs and the time of each deed are in results/turns-SEED of the build directory.
"""
import collections
import heapq
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import gpulib
from gpulib import (BUILD, CUDAW, PATIENCE, RUNTIME_DIR, SCRATCH, Job, base_environment, check, cudaw,
                    equal, figure, main)
import daemons
from daemons import leave, members
from harness import ends_with_us, until
from proclib import descendants, is_zombie, send, stacks

HANDOVERS, KILLS, DAEMONS = map(int, sys.argv[1:4])
SEED = os.environ.get("SEED") or str(random.SystemRandom().randrange(1 << 32))
ENV = {"CUDAW_TURNS": "user", "CUDAW_RELEASE": "memory"}
SANITIZED = False
STUCK_S = 60
# MiB: of the GPU's memory, what the jobs find; and by what their sizes are multiplied.
FREE_MIB, UNIT = 12 * 1024, 40
GPU_SLACK = 32      # MiB in use on the GPU at the end, beyond what was at the beginning
# The interactive job idles between its steps, or it would keep the others out.
TURNS = ("--quantum", "0.3", "--idle", "0.3", "--linger", "60")
INTERACTIVE_MS = 700
AFTER_S = 0.3       # from a hand-over to a deed, at most
AWAY_S = 1.5        # of the daemon, at most
HELD_S = 1          # by its user, or by SIGSTOP, at most
REST_S = 0.3        # from the kill of one process to the end of the others, at most
FOREVER = 100000000
TERM_EXIT = 7
OTHERS = ("yield", "pause", "stop", "interrupt", "terminate")
NO_MEMORY = re.compile("error [24]\n")     # of an allocation; of a call out of turn, for 10 s after a signal
# Calls that may find no memory: of a context, which waits for more than a small GPU has, and those that do not wait.
MAY_FAIL = re.compile("(?!)")   # none
KEPT = os.path.join(BUILD, "results", f"turns-{SEED}")


def start_daemon():
    return daemons.start_daemon(*TURNS)


def before_all():
    """Another process holds the rest of the GPU."""
    return leave(FREE_MIB)


# ---- what is planned, by the seed alone

# what: the deed; at: after so many hand-overs; after: and so many seconds; slot: of the jobs; process: which
# of the job's, from 0 to 1; part: of the longest time.
Plan = collections.namedtuple("Plan", "at after what slot process part")


def plans():
    rng = random.Random(f"{SEED} deeds")
    deeds = ["kill"] * KILLS + ["daemon"] * DAEMONS + [rng.choice(OTHERS) for _ in range(KILLS)]
    return sorted(Plan(rng.uniform(0, HANDOVERS), rng.uniform(0, AFTER_S), deed, rng.randrange(len(SLOTS)),
                       rng.random(), rng.random()) for deed in deeds)


def counter(rng, mib, step_ms):
    steps = rng.choice((rng.randrange(10, 200), FOREVER))
    return ["counter", "--mib", mib * UNIT, "--allocs", 12, "--verify", 1, "--term-exit", TERM_EXIT,
            "--step-ms", step_ms, "--steps", steps]


def batch(rng):
    return counter(rng, rng.choice((100, 120, 150)), 2), {}


def many(rng):
    """Two processes that share memory, or wait for each other."""
    if rng.random() < 0.5:
        program = ["sharing", "--objects", 4, "--mib", 4, "--ballast", 30 * UNIT]
    else:
        program = ["rank_kernels", "--shape", rng.choice((0, 1, 3)), "--ballast", 45 * UNIT]
    return [*program, "--ranks", 2, "--step-ms", 2, "--steps", FOREVER], {}


def interactive(rng):
    return counter(rng, rng.choice((50, 70)), INTERACTIVE_MS), {"CUDAW_TURNS_CLASS": "interactive"}


SLOTS = (batch, batch, many, interactive)


# ---- what happens

class Turns:
    """The hand-overs, by the events of all daemons: each process of a job has an event of its own."""

    def __init__(self):
        self.got = collections.Counter()
        self.events = []

    def follow(self):
        command = ends_with_us(subprocess.Popen([CUDAW, "events", "--follow", "--json"], text=True,
                                                stdout=subprocess.PIPE, env=base_environment(),
                                                stderr=subprocess.DEVNULL))
        threading.Thread(target=self.read, args=(command,), daemon=True).start()

    def read(self, command):
        for line in command.stdout:
            event = json.loads(line)
            self.events.append(line.rstrip())
            if event["event"] == "runs":
                self.got[event["id"], event["pid"]] += 1
        command.wait()

    def count(self):
        most = collections.Counter()
        for (job, _), turns in list(self.got.items()):
            most[job] = max(most[job], turns)
        return sum(most.values())


class SoakJob:
    numbers = itertools.count(1)

    def __init__(self, make, rng):
        words, env = make(rng)
        self.name = f"job{next(self.numbers)}"
        self.last_step = f"step {words[-1]}"
        self.job = Job(*words, name=self.name,
                       env={**ENV, **env, "CUDAW_LOG": "info",
                            "CUDAW_LOG_FILE": os.path.join(SCRATCH, f"log-{self.name}")})
        self.pids = [self.job.pid]
        self.allowed = {0}
        self.killed = self.told = self.may_lack = False
        self.held = 0       # by its user, and by SIGSTOP
        self.seen, self.since = 0, time.monotonic()

    def __str__(self):
        return f"{self.name} ({self.job.program}, PIDs {self.pids})"

    def find_processes(self):
        self.pids += [pid for pid in descendants(self.job.pid) if pid not in self.pids]

    def process(self, plan):
        return self.pids[int(plan.process * len(self.pids))]

    def uses_cuda(self):
        return [pid for pid in self.pids if os.path.exists(os.path.join(RUNTIME_DIR, f"{pid}.sock"))]

    def look(self, now):
        """Returns for how many seconds it has made no step, though it should have."""
        self.find_processes()
        lines = len(self.job.lines)
        if lines != self.seen or self.held:
            self.seen, self.since = lines, now
        if self.job.lines[-1:] == [self.last_step] and not self.told:
            self.tell()
            self.job.process.stdin.close()
        return now - self.since

    def send_all(self, name):
        for pid in self.pids:
            send(pid, name)

    def may_be_told(self):
        """Its handlers are there."""
        return bool(self.job.lines) and not self.told

    def tell(self):
        self.told, self.since = True, time.monotonic()

    def interrupt(self):
        self.tell()
        send(self.job.pid, "INT")

    def ended(self):
        return self.job.ended() and all(map(is_zombie, self.pids))

    def judge(self):
        """It must have ended right; returns how. Without a daemon, allocations fail as natively, and nobody
        makes room for one that a signal ends."""
        status = self.job.process.wait()
        self.job.reader.join(10)
        said, last = self.job.stderr(), (self.job.lines or [""])[-1]
        self.job.alive.remove(self.job)
        check(" word " not in said, f"{self} has said: {said[-2000:]}")
        if self.killed:
            return "killed"
        if status == 1 and (self.may_lack and NO_MEMORY.search(said) or MAY_FAIL.search(said)):
            return "without memory"
        check(status in self.allowed and (status or "right" in last),
              f"{self} ended with status {status}, allowed are {sorted(self.allowed)}; its last line is "
              f"{last!r}, on stderr are: {said[-2000:]}")
        return "terminated" if status else "right"


class Command:
    """A run of cudaw, after which something is done."""

    def __init__(self, words, then):
        self.words, self.then, self.since = words, then, time.monotonic()
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen([CUDAW, *words], stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT, env=base_environment())

    def __str__(self):
        self.output.seek(0)
        return f"cudaw {' '.join(self.words)} (PID {self.process.pid}): " + \
            self.output.read().decode(errors="replace")

    def ended(self, now):
        if self.process.poll() is None:
            check(now - self.since < STUCK_S, f"does not end: {self}")
            return False
        check(self.process.returncode in range(7) and "Sanitizer" not in str(self),
              f"ended with {self.process.returncode}: {self}")
        self.then()
        self.output.close()
        return True


class Soak:
    def __init__(self):
        self.begin = time.monotonic()
        self.turns, self.plans = Turns(), plans()
        self.jobs = [None] * len(SLOTS)
        self.rngs = [random.Random(f"{SEED} slot {slot}") for slot in range(len(SLOTS))]
        self.commands = []
        self.due, self.numbers = [], itertools.count()   # (time, number, what to call)
        self.daemon, self.joined, self.since = None, False, self.begin
        self.count = collections.Counter()
        self.turned = 0, self.begin     # hand-overs, and when the last one was seen
        self.longest = 0
        self.notes = []

    def note(self, text):
        self.notes.append(f"{time.monotonic() - self.begin:9.3f}  {text}")

    def later(self, seconds, action, *args):
        heapq.heappush(self.due, (time.monotonic() + seconds, next(self.numbers), action, args))

    def alive(self):
        return [job for job in self.jobs if job]

    # ---- deeds

    def do(self, plan):
        getattr(self, f"do_{plan.what}")(plan)

    def choose(self, plan, fits=lambda job: True):
        """The job that is meant, or the next one that fits; without one, the deed waits."""
        for job in filter(None, self.jobs[plan.slot:] + self.jobs[:plan.slot]):
            job.find_processes()
            if not job.killed and not job.job.ended() and fits(job):
                self.note(f"{plan.what}: {job}")
                return job
        self.later(0.1, self.do, plan)
        return None

    def do_kill(self, plan):
        if job := self.choose(plan):
            self.count["kills"] += 1
            job.killed, job.since = True, time.monotonic()
            send(job.process(plan), "KILL")
            self.later(plan.part * REST_S, job.send_all, "TERM")

    def do_daemon(self, plan):
        if not self.daemon:
            self.later(0.1, self.do, plan)
            return
        self.note("the daemon is killed")
        self.count["daemons"] += 1
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None
        for job in self.alive():
            job.may_lack |= not job.job.lines or job.told
        self.later(plan.part * AWAY_S if plan.process < 0.7 else 0, self.start)

    def start(self):
        self.daemon, self.joined, self.since = start_daemon(), False, time.monotonic()
        self.turns.follow()
        self.note(f"a daemon has started, PID {self.daemon.pid}")

    def command(self, *words, then=lambda: None):
        self.note(f"cudaw {' '.join(words)}")
        self.commands.append(Command(words, then))

    def do_yield(self, plan):
        if job := self.choose(plan):
            self.command("yield", job.name)

    def do_pause(self, plan):
        def resume():
            job.held -= 1
            self.command("resume", job.name)
        if job := self.choose(plan, lambda job: not job.held):
            job.held += 1
            self.command("pause", job.name, then=lambda: self.later(plan.part * HELD_S, resume))

    def do_stop(self, plan):
        def go_on():
            job.held -= 1
            send(process, "CONT")
        # LSan stops a process that ends, and waits for ever if a SIGCONT takes that back.
        if job := self.choose(plan, lambda job: not job.told and not job.held):
            process = job.process(plan)
            job.held += 1
            send(process, "STOP")
            self.later(plan.part * HELD_S, go_on)

    def do_interrupt(self, plan):
        if job := self.choose(plan, SoakJob.may_be_told):
            job.interrupt()

    def do_terminate(self, plan):
        """A job of several processes handles no SIGTERM: it is ended by it."""
        if job := self.choose(plan, SoakJob.may_be_told):
            job.tell()
            job.killed = len(job.pids) > 1
            job.allowed.add(TERM_EXIT)
            job.send_all("TERM")

    # ---- all the time

    def all_have_joined(self, now):
        """New jobs wait for it: their allocations would not wait for long for what others outside have."""
        if not self.daemon or self.joined:
            return self.joined
        wanted = {pid for job in self.alive() if not job.killed and not job.told and job.job.lines
                  for pid in job.uses_cuda()}
        self.joined = wanted <= members().keys()
        check(now - self.since < STUCK_S, f"of {wanted} the new daemon has only {set(members())}")
        return self.joined

    def refill(self, now):
        if None in self.jobs and self.daemon and self.all_have_joined(now):
            slot = self.jobs.index(None)
            self.jobs[slot] = SoakJob(SLOTS[slot], self.rngs[slot])
            self.note(f"starts: {self.jobs[slot]}")

    def watch(self, now):
        check(not self.daemon or self.daemon.poll() is None, "the daemon has ended by itself")
        for slot, job in enumerate(self.jobs):
            if job and job.ended():
                self.jobs[slot] = None
                how = job.judge()
                self.note(f"{how}: {job}")
                self.count[how] += 1
            elif job:
                still = job.look(now)
                self.longest = max(self.longest, still)
                check(still < STUCK_S, f"{job} has made no step for {still:.0f} s")
        self.commands = [command for command in self.commands if not command.ended(now)]

    def step(self, now):
        while self.due and self.due[0][0] <= now:
            _, _, action, args = heapq.heappop(self.due)
            action(*args)
        self.watch(now)
        time.sleep(0.01)

    def run(self):
        self.start()
        while self.plans or self.due or self.commands or self.turns.count() < HANDOVERS:
            now, turns = time.monotonic(), self.turns.count()
            if turns // 50 != self.turned[0] // 50:
                print(f"# {now - self.begin:.0f} s: {turns} hand-overs, {dict(self.count)}", flush=True)
            if turns != self.turned[0]:
                self.turned = turns, now
            check(now - self.turned[1] < STUCK_S, f"no hand-over for {STUCK_S} s, after {turns}")
            while self.plans and self.plans[0].at <= turns:
                plan = self.plans.pop(0)
                self.later(plan.after, self.do, plan)
            self.refill(now)
            self.step(now)
        while self.alive():
            for job in filter(SoakJob.may_be_told, self.alive()):
                job.interrupt()
            self.step(time.monotonic())

    # ---- at the end

    def report(self, fault):
        """What may tell the cause."""
        os.makedirs(KEPT, exist_ok=True)
        now = said_by("turns") + said_by("ps")
        text = f"SEED={SEED}\n{fault}\n{now}{said_by('events')}"
        for job in self.alive():
            text += f"\n==== {job}: {vars(job)}\n{job.job.lines[-3:]} {job.job.stderr()[-1000:]}\n"
            text += "".join(map(stacks, job.pids))
        for process in [command.process for command in self.commands] + [self.daemon] * bool(self.daemon):
            text += f"\n==== {process.args}\n{stacks(process.pid)}"
        for name, lines in (("report", [text]), ("deeds", self.notes), ("events", self.turns.events)):
            with open(os.path.join(KEPT, name), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        for name in os.listdir(SCRATCH):
            if name.startswith("log-"):
                shutil.copy(os.path.join(SCRATCH, name), KEPT)
        print(now.replace("\n", "\n# ") + f"\n# the report is in {KEPT}", flush=True)

    def end_all(self):
        for job in self.alive():
            job.send_all("KILL")
        for command in self.commands:
            command.process.kill()
            command.process.wait()


def said_by(word):
    try:
        done = cudaw(word, timeout=2)
        return f"\n==== cudaw {word}\n{done.stdout[-20000:]}{done.stderr}"
    except subprocess.TimeoutExpired:
        return f"\n==== cudaw {word} gives no answer\n"


def soak():
    before_all()
    used, found = gpulib.gpu_used(), Soak()
    try:
        found.run()
    except Exception as fault:
        found.report(fault)
        raise
    finally:
        found.end_all()
    until(lambda: gpulib.gpu_used() <= used + GPU_SLACK, 10 / PATIENCE,
          f"the GPU's memory in use is as before, {used} MiB")
    equal((found.count["kills"], found.count["daemons"]), (KILLS, DAEMONS), "kills of jobs and of the daemon")
    print(f"# {len(found.notes)} notes, {time.monotonic() - found.begin:.0f} s; the ends of jobs: "
          f"{dict(found.count)}", flush=True)
    figure("handovers", found.turns.count(), "turns")
    figure("longest_without_a_step", found.longest, "s")


print(f"# SEED={SEED}", flush=True)
main((f"handovers {HANDOVERS}, kills {KILLS}, daemons {DAEMONS}, SEED={SEED}", soak))
