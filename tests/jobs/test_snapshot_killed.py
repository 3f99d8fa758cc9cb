#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Jobs, and commands, that are killed while a snapshot is made: the directory has the one before, or the
new one, and a job that was not killed goes on.
"""
import collections
import json
import os
import signal
import subprocess
import time

from snapshotjobs import contents
from gpulib import CUDAW, PATIENCE, base_environment, check, cudaw, cudaw_ok, equal, main, seeded, until
from restorelib import Counting, Snapshot, directory, pretended_criu
import proclib

KILLS = 60          # of jobs, and of commands, at the most
KILLING_S = 12      # after which one that came in time is enough


def kill(job):
    os.kill(job.pid, signal.SIGKILL)


def one_that_is_killed_while_criu_works():
    """Whether that fails then, or waits for ever; and is asked to end, which waits for the end."""
    for older in (True, False):
        for fails in (True, False):
            path = directory()
            job = Counting()
            if older:
                cudaw_ok("snapshot", "--gpu-only", job.pid, path)
            before = contents(path)
            snapshot = Snapshot(job, path=path).in_criu()
            kill(job)
            job.process.wait()
            snapshot.process.send_signal(signal.SIGTERM)
            if fails:
                snapshot.let_criu_go(1)
            begin = time.monotonic()
            equal(snapshot.end(1), f"cudaw: snapshot {job.pid}: it has ended\n", "what is said")
            check(time.monotonic() - begin < 20, "it waited for CRIU")
            equal(contents(path), before, "what is in the directory")
            if older:
                cudaw_ok("verify", path)


STOPS_ITSELF = """
[ "$1" = --version ] && { echo Version: 4.2; exit; }
sh -c 'echo $$ > "$0.new"; mv "$0.new" "$0"; kill -STOP $$' "$0.helper" &
wait
"""


def what_criu_has_stopped_stays_so():
    """It waits for a process of its own to stop, and the end of the command does not continue that."""
    job, criu = Counting(), pretended_criu(STOPS_ITSELF)
    named = criu["CUDAW_CRIU"] + ".helper"
    command = subprocess.Popen([CUDAW, "snapshot", str(job.pid), directory()], env={**base_environment(), **criu})
    until(lambda: os.path.exists(named), 30, "CRIU works")
    with open(named, encoding="ascii") as file:
        helper = int(file.read())
    until(lambda: proclib.state(helper) == "T", 30, "its helper has stopped itself")
    command.kill()
    command.wait()
    equal(proclib.state(helper), "T", "the state of the helper")
    os.kill(helper, signal.SIGKILL)
    until(lambda: job.state() == "running", 30, "the job runs on")
    job.finish()


def moments(job, path, found, wanted):
    """A snapshot is made there, and many moments while another one is: seconds from its begin. After one that
    was not @found to be as @wanted they come sooner, and later again after one that was."""
    rng = seeded()
    begin = time.monotonic()
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    most = longest = (time.monotonic() - begin) * 1.2
    end = time.monotonic() + KILLING_S
    for _ in range(KILLS):
        if time.monotonic() > end and found[wanted]:
            break
        before = found[wanted]
        yield rng.uniform(0, most)
        most = min(most * 1.25, longest) if found[wanted] > before else most * 0.8


def process_of(path):
    with open(os.path.join(path, "manifest.json"), encoding="ascii") as file:
        return json.load(file)["process"]["pid"]


def jobs_killed_at_any_moment():
    path, last = directory(), Counting()
    found = {"old": 0, "new": 0}
    for moment in moments(last, path, found, "old"):
        job, owner, before = Counting(), process_of(path), contents(path)
        snapshot = Snapshot(job, "--gpu-only", path=path)
        time.sleep(moment)
        kill(job)
        said, errors = snapshot.process.communicate(timeout=100 * PATIENCE)
        code = snapshot.process.returncode
        check((code, bool(said), bool(errors)) in [(0, True, False), (1, False, True), (3, False, True)],
              f"it ended with {code}: {said}{errors}")
        cudaw_ok("verify", path)
        if process_of(path) == owner:
            equal((code != 0, contents(path)), (True, before), "what is in the directory")
            found["old"] += 1
        else:
            equal(process_of(path), job.pid, "the process in the directory")
            found["new"] += 1
    print(f"# found: {found}", flush=True)
    check(found["old"], "no job was killed in time")
    last.finish()


def commands_killed_at_any_moment():
    """What they had asked for is seen through."""
    path, job = directory(), Counting()
    codes = collections.Counter()
    for moment in moments(job, path, codes, -signal.SIGKILL):
        snapshot = Snapshot(job, "--gpu-only", path=path)
        time.sleep(moment)
        snapshot.process.kill()
        snapshot.process.communicate()
        codes[snapshot.process.returncode] += 1
        verified = until(lambda: (done := cudaw("verify", path)) and
                         "another process" not in done.stderr and done, 20, "it is written")
        equal(verified.returncode, 0, f"the exit code of cudaw verify ({verified.stderr.strip()})")
        until(lambda: job.state() == "running", 20, "the job runs on")
        job.wait_steps(job.steps() + 2)
    check(codes[-signal.SIGKILL], "no command was killed in time")
    job.finish()


if __name__ == "__main__":
    main(one_that_is_killed_while_criu_works, what_criu_has_stopped_stays_so, jobs_killed_at_any_moment,
         commands_killed_at_any_moment)
