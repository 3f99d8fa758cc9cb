#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw snapshot, killed: the job goes on, or can be made to, from itself or from a whole snapshot."""
import os
import random
import signal
import subprocess

from restorelib import Counting, directory, killed_at_any_moment, need_criu, pretended_criu, refused, unheard
from gpulib import CUDAW, base_environment, check, cudaw_ok, equal, jobs, main, until

KILLS = 15


def real():
    return subprocess.run(["sh", "-c", "command -v ${CUDAW_CRIU:-criu}"], capture_output=True,
                          text=True, check=True).stdout.strip()


def a_killed_command_loses_nothing():
    need_criu()
    rng = random.Random(4)
    path, seen = directory(), set()
    job = Counting()
    cudaw_ok("snapshot", job.pid, path)
    for attempt in range(KILLS):
        seen.add(killed_at_any_moment(rng, 0.4, job.pid, path))
        # What it had asked for is seen through.
        until(lambda: job.state() == "running", 20, f"attempt {attempt}: it runs on")
        cudaw_ok("verify", path)
        job.wait_steps(job.steps() + 2)
    check(-signal.SIGKILL in seen, "no command was killed in time")
    job.finish()


STOPS = """
"$REAL" "$@" || exit
[ "$1" = --version ] || kill -9 $PPID
"""


def a_command_killed_while_the_job_is_stopped():
    """Between CRIU and the end of the job, which a command that is killed leaves stopped."""
    need_criu()
    path = directory()
    job = Counting()
    refused("snapshot", "--stop", job.pid, path, code=-signal.SIGKILL,
            env={"REAL": real(), **pretended_criu(STOPS)})
    row = jobs()[job.pid]
    equal((row["state"], row["error"]), (None, "stopped"), "what cudaw ps says")
    check("stopped" in cudaw_ok("ps"), "the table of cudaw ps")
    for verb in (["pause"], ["trim"], ["pause", "--all"]):
        check(f"{verb[0]} {job.pid}: it is stopped; SIGCONT, 'cudaw resume'" in
              refused(*verb, *([job.pid] if len(verb) == 1 else [])), verb)
    check(f"snapshot {job.pid}: it is stopped" in refused("snapshot", job.pid, path), "snapshot")
    other = Counting()
    said = refused("snapshot", "--gpu-only", other.pid, path)
    check(f"{job.pid} may have its memory in it; 'cudaw resume {job.pid}' first" in said, said)
    other.finish()
    cudaw_ok("resume", job.pid)
    equal(job.state(), "running", "the state")
    check(f"{path}: manifest.json: it is missing" in refused("restore", path), "a snapshot")
    job.wait_steps(job.steps() + 3)
    cudaw_ok("snapshot", job.pid, path)
    cudaw_ok("verify", path)
    job.finish()


ENDS_RESTORE = """
"$REAL" "$@" || exit
stopped() { grep -q "^State:.T" /proc/PID/status; }
[ "$1" != restore ] || { until stopped || ! kill -0 $PPID; do sleep 0.01; done
                         until ! stopped; do sleep 0.01; done
                         kill -TERM $PPID; } > /dev/null 2>&1 &
"""


def a_restore_that_is_told_to_end():
    """Its processes run by then, and learn where the snapshot has been moved to."""
    need_criu()
    path, moved = directory(), directory()
    job = Counting()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    until(job.is_gone, 20, "the job is gone")
    os.rename(path, moved)
    script = ENDS_RESTORE.replace("PID/", f"{job.pid}/")
    done = subprocess.run([CUDAW, "restore", "--paused", moved], check=False, timeout=300,
                          env={**base_environment(), "REAL": real(), **pretended_criu(script)})
    check(done.returncode in (0, -signal.SIGTERM), f"it ended with {done.returncode}")
    equal(job.state(), "paused", "the state")
    cudaw_ok("resume", job.pid)
    job.wait_steps(job.steps() + 3)
    cudaw_ok("verify", moved)
    job.finish()


def a_restore_that_fails_where_nobody_listens():
    """The new processes are ended all the same."""
    need_criu()
    path = directory()
    job = Counting()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    until(job.is_gone, 20, "the job is gone")
    data = os.path.join(path, next(n for n in os.listdir(path) if n.startswith("data-")))
    with open(data, "r+b") as file:
        file.write(b"damage")
    with unheard() as nobody:
        done = subprocess.run([CUDAW, "restore", "--no-verify", path], env=base_environment(),
                              check=False, timeout=300, stdout=nobody, stderr=nobody)
    equal(done.returncode, 1, "the exit code")
    check(job.is_gone(), "the new process is still there")


def how(job):
    row = jobs().get(job.pid)
    return "gone" if job.is_gone() else row and (row["state"] or row["error"])


def killed_commands_that_stop_lose_nothing():
    """The job is there, if stopped, or its snapshot is."""
    need_criu()
    rng = random.Random(5)
    path, seen = directory(), set()
    job = Counting()
    for attempt in range(KILLS):
        killed_at_any_moment(rng, 0.4, "--stop", job.pid, path)
        until(lambda: how(job) in ("gone", "running", "stopped"), 20, f"{attempt}: a state")
        seen.add(how(job))
        if how(job) in ("gone", "stopped"):
            cudaw_ok(*(["restore", path] if job.is_gone() else ["resume", job.pid]))
        until(lambda: job.state() == "running", 20, "it runs on")
        job.wait_steps(job.steps() + 2)
    print("#", seen, flush=True)
    job.finish()


if __name__ == "__main__":
    main(a_killed_command_loses_nothing, a_command_killed_while_the_job_is_stopped,
         a_restore_that_is_told_to_end, a_restore_that_fails_where_nobody_listens,
         killed_commands_that_stop_lose_nothing)
