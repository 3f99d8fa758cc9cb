#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A storm: jobs of many kinds on the simulated driver, and all that can be done to them, at random
and at once. After each burst of it comes a calm, in which

- every socket answers a status request;
- every command ends, those that were stopped as soon as they are continued;
- every job runs after a `cudaw resume --all`, also while those commands are stopped, and goes on;
- what lies in a directory for snapshots is whole.

Every job that was not killed ends right. SEED (printed) makes every actor do the same again, in the
same order; STORM_SECONDS is how long new bursts begin. STORM_WITHOUT names programs, commands and requests
(their first words) that are left out, while a fault of theirs is known and others are looked for. The first fault ends the storm; what the jobs
said, their stacks and the order of events are then in results/storm-SEED of the build directory.
"""
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import BUILD, PATIENCE, Failure, check, main, until  # noqa: E402
from simlib import SANITIZED, SCRATCH, TSAN  # noqa: E402
from gpulib import cudaw  # noqa: E402
from proclib import descendants, is_zombie, stacks  # noqa: E402
import plans  # noqa: E402
from deeds import Command, Deeds, asked  # noqa: E402

SEED = os.environ.get("SEED") or str(random.SystemRandom().randrange(1 << 32))
SECONDS = float(os.environ.get("STORM_SECONDS") or 60)
# An image takes a pause of the whole GPU, which starts a program: TSan does not bear the fork.
WITHOUT = os.environ.get("STORM_WITHOUT", "").split() + (["snapshot"] if TSAN else [])
LIMIT = 180 if SANITIZED else 60    # seconds without progress: nothing here takes a second alone
KEPT = os.path.join(BUILD, "results", f"storm-{SEED}")

os.environ["CUDAW_SIM_DEVICES"] = "2"
os.environ["CUDAW_SIM_MEMORY"] = str(1 << 30)


class Storm:
    def __init__(self):
        self.deeds = Deeds(WITHOUT)
        self.actors = plans.actors(SEED)
        self.begin = time.monotonic()
        self.events = []
        self.failures = []      # messages

    def note(self, who, text):
        self.events.append(f"{time.monotonic() - self.begin:9.3f}  {who:10} {text}")

    # ---- a burst

    def act(self, actor, planned):
        for plan in planned:
            time.sleep(plan.after)
            if self.failures:
                return
            self.note(actor.name, plan_text(plan))
            try:
                self.deeds.do(plan)
            except Failure as failure:
                self.failures.append(str(failure))
            except Exception:
                self.failures.append(traceback.format_exc())

    def burst(self):
        threads = [threading.Thread(target=self.act, args=(actor, list(actor.plans())))
                   for actor in self.actors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not self.failures, "\n".join(self.failures))

    # ---- a calm

    def ended_are_judged(self):
        for slot, job in enumerate(self.deeds.jobs):
            if job and job.ended():
                self.deeds.jobs[slot] = None
                job.judge()

    def commands_end(self, stopped):
        """All that run; those that are stopped, too, if @stopped, once they are continued."""
        mine = [c for c in self.deeds.commands if stopped or not c.stopped]
        for command in mine:
            if command.stopped:
                command.send("CONT")
        end = time.monotonic() + LIMIT
        for command in mine:
            check(command.ended(max(end - time.monotonic(), 0.1)), f"{command} does not end")
            command.judge()
            self.deeds.commands.remove(command)

    def state(self, pid):
        """What its socket says; None if the process ends, which answers nobody any more."""
        end = time.monotonic() + LIMIT
        while not is_zombie(pid):
            if lines := asked(pid, b"status\n", LIMIT):
                return next(line.split()[1] for line in lines if line.startswith("state "))
            check(time.monotonic() < end, f"the socket of {pid} is dead")
            time.sleep(0.05)
        return None

    def states(self):
        return {pid: self.state(pid) for job in self.deeds.alive() for pid in job.processes()}

    def all_run(self, when):
        """`cudaw resume --all` makes all run, whatever the commands before it wanted."""
        end = time.monotonic() + LIMIT
        while True:
            resume = Command(["resume", "--all", "--timeout", "5"])
            check(resume.ended(LIMIT), f"{resume} hangs {when}")
            resume.judge()
            self.ended_are_judged()
            states = self.states()
            if all(state in ("running", None) for state in states.values()):
                return
            self.note("calm", f"states {when}: {states}")
            check(time.monotonic() < end, f"after resume --all {when} the states are {states}")
            time.sleep(0.2)

    def all_go_on(self):
        before = {job: len(job.job.lines) for job in self.deeds.alive()}
        for job, lines in before.items():
            end = time.monotonic() + LIMIT
            while not job.ended() and len(job.job.lines) < lines + 2:
                check(time.monotonic() < end, f"{job} makes no step in {LIMIT} s")
                time.sleep(0.02)
        self.ended_are_judged()

    def told_end(self):
        """Who was told to end has the calm to do it."""
        for job in [job for job in self.deeds.alive() if job.told]:
            until(job.ended, LIMIT / PATIENCE, f"{job} ends")
        self.ended_are_judged()

    def directories_are_whole(self):
        for directory in self.deeds.directories:
            if os.path.exists(os.path.join(directory, "manifest.json")):
                done = cudaw("verify", directory)
                check(done.returncode == 0, f"cudaw verify {directory} says {done.stderr.strip()}")

    def calm(self):
        self.note("calm", "begins")
        for job in self.deeds.alive():
            job.goes_on()
        for command in self.deeds.commands:     # a snapshot that CRIU works on is not called off
            if command.stopped and command.words[0] not in ("pause", "resume", "trim"):
                command.send("CONT")
        while self.deeds.requested:
            pid, directory = self.deeds.requested.pop()
            if os.path.exists(f"/proc/{pid}") and not is_zombie(pid):
                asked(pid, f"done {directory}\n".encode(), LIMIT)
        self.all_run("while commands are under way")
        self.commands_end(stopped=False)
        self.all_run("while commands are stopped")
        self.commands_end(stopped=True)
        self.all_run("after all commands")
        self.told_end()
        self.all_go_on()
        self.directories_are_whole()
        self.note("calm", "ends")

    def last_calm(self):
        for job in self.deeds.alive():
            job.end(job.program.last)
        for job in self.deeds.alive():
            until(job.ended, LIMIT / PATIENCE, f"{job} ends")
        self.ended_are_judged()

    # ---- after a fault

    def keep(self, message):
        """What may tell the cause."""
        os.makedirs(KEPT, exist_ok=True)
        with open(os.path.join(KEPT, "report"), "w", encoding="utf-8") as file:
            file.write(f"SEED={SEED}\n{message}\n\n{processes_text(self.deeds)}")
        with open(os.path.join(KEPT, "events"), "w", encoding="utf-8") as file:
            file.write("\n".join(self.events) + "\n")
        for name in os.listdir(SCRATCH):
            if name.startswith("log-"):
                shutil.copy(os.path.join(SCRATCH, name), KEPT)
        print(f"# the report is in {KEPT}", flush=True)

    def run(self):
        bursts = 0
        try:
            while time.monotonic() - self.begin < SECONDS:
                self.burst()
                self.calm()
                bursts += 1
            self.last_calm()
        except Exception as fault:
            self.keep(str(fault))
            raise
        finally:
            for command in self.deeds.commands:
                command.send("KILL")
            for job in filter(None, self.deeds.jobs):
                job.kill()
        print(f"# {bursts} bursts, {len(self.events)} events, "
              f"{time.monotonic() - self.begin:.0f} s", flush=True)


def plan_text(plan):
    return f"{plan.what} slot {plan.slot} process {plan.process}: {plan.args}"


def processes_text(deeds):
    """Each job and command that is alive: its threads' stacks, what it said and its log."""
    try:
        text = cudaw("ps", timeout=10).stdout
    except subprocess.TimeoutExpired:
        text = "cudaw ps gives no answer\n"
    for job in deeds.alive():
        text += f"\n==== {job}: {job.job.lines[-3:]} {job.job.stderr()[-1000:]}\nlog: {job.log}\n"
        for pid in [job.job.pid, *descendants(job.job.pid)]:
            text += stacks(pid)
    for command in deeds.commands:
        if not command.ended():
            text += f"\n==== {command}\n" + stacks(command.process.pid)
    return text


def the_seed_decides():
    """Two runs of a seed plan the same, however they fare."""
    twice = [[[plan_text(plan) for _ in range(3) for plan in actor.plans()]
              for actor in plans.actors(SEED)] for _ in range(2)]
    check(twice[0] == twice[1], "the plans differ")
    check(twice[0] != [[plan_text(plan) for _ in range(3) for plan in actor.plans()]
                       for actor in plans.actors(SEED + " ")], "another seed plans the same")


if __name__ == "__main__":
    print(f"# SEED={SEED} STORM_SECONDS={SECONDS:g}", flush=True)
    main(("the seed decides", the_seed_decides), (f"storm, SEED={SEED}", lambda: Storm().run()))
