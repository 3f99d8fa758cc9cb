#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a job, and of the next one, when it is stopped or killed in any of its states;
jobs that wait for the same memory; and what cudaw ps says of all that.
"""
import fcntl
import os
import re
import signal
import subprocess
import time

from simlib import HELD, SCRATCH, gpu_used, hold, is_stopped, let_go, waits_for_memory
from gpulib import (BUILD, CUDAW, PATIENCE, RUNTIME_DIR, Job, base_environment, check, cudaw, cudaw_ok, equal, hog, jobs,
                    main, until)

ENDLESS = ("--steps", 1000000, "--step-ms", 10)
GPU_MIB, CONTEXT_MIB = 4096, 64     # of the simulated GPU
ENDING = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM}


def counter(mib=16, **env):
    job = Job("counter", "--mib", mib, *ENDLESS, env=env)
    job.wait_steps(3)
    return job


def in_a_constructor():
    """Its thread has the loader's lock, and waits at the gate: we need it before that closes."""
    for before in (False, True):
        job = Job("constructor", env={
            "TEST_LIBRARY": os.path.join(BUILD, "tests", "preload", "constructor.so")})
        job.wait_line("ready")
        if before:      # a pause has found what a resume needs
            job.pause()
            job.resume()
        job.tell()
        job.wait_line("constructing")
        time.sleep(0.1)
        job.pause()
        job.resume()
        job.wait_line("constructed")
        job.tell()
        check("every word right" in job.result(), "the job did not verify its memory")


def goes_on(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def check_ps_says(job, reason, more="(; for .*)?"):
    table = cudaw("ps").stdout
    check(re.search(rf"^{job.pid}: {re.escape(reason)}{more}$", table, re.MULTILINE), f"the table of cudaw ps does not say it:\n{table}")


def pausing():
    job = counter(32, **HELD)
    hold("out")
    job.send(signal.SIGUSR1)
    job.wait_state("pausing")
    return job


def draining():
    job = Job("spin", *ENDLESS)
    job.wait_steps(3)
    job.send(signal.SIGUSR1)
    job.wait_state("pausing")
    return job


def resuming():
    job = counter(32, **HELD)
    job.pause()
    hold("in")
    job.send(signal.SIGUSR2)
    job.wait_state("resuming")
    return job


HOLDS = {pausing: "out", resuming: "in"}


def waiting():
    job = counter()
    waits_for_memory(job)
    return job


def stopped_while_paused(by):
    """It has lost nothing when it is continued, which cudaw resume does."""
    def case():
        job = counter()
        job.pause()
        job.send(signal.SIGSTOP)
        until(lambda: is_stopped(job.pid), 5, "the job is stopped")
        equal(job.status()["error"], "stopped", "what cudaw ps says of a stopped job")
        if by == "command":
            cudaw_ok("resume", job.pid)
        else:
            job.send(signal.SIGUSR2)
            job.send(signal.SIGCONT)
            job.wait_state("running")
        goes_on(job)
    return f"stopped while paused, resumed by {by}", case


def stopped_in(state):
    """What was under way goes on where it was."""
    def case():
        job = state()
        wanted = "paused" if state == pausing else "running"
        job.send(signal.SIGSTOP)
        until(lambda: is_stopped(job.pid), 5, "the job is stopped")
        job.send(signal.SIGCONT)
        let_go(HOLDS[state])
        job.wait_state(wanted)
        if wanted == "paused":
            job.resume()
        goes_on(job)
    return f"stopped while {state.__name__}", case


def locks_are_free():
    try:
        for name in os.listdir(RUNTIME_DIR):
            with open(os.path.join(RUNTIME_DIR, name), encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def ended_in(state, name):
    """Nothing of it is left, and nothing holds up the next job."""
    def case():
        job = state()
        job.send(ENDING[name])
        if state in HOLDS:
            let_go(HOLDS[state])
        equal(job.wait_end(10), -ENDING[name], "the exit status")
        for other in [other for other in Job.alive if other is not job]:
            other.discard()
        equal(jobs(), {}, "what cudaw ps shows")
        equal([file for file in os.listdir(RUNTIME_DIR) if file.endswith(".sock")], [],
              "the sockets that are left")
        until(locks_are_free, 10, "the locks are free")
        until(lambda: gpu_used() == 0, 5, "the GPU's memory is free")
        following = counter()
        following.pause()
        following.resume()
        goes_on(following)
    return f"{name} while {state.__name__}", case


def two_wait_for_memory(room_for):
    """Both go on when there is room; where there is room for one, the other goes on waiting."""
    def case():
        pair = [counter(256), counter(256)]
        for job in pair:
            job.pause()
        hog("--mib", GPU_MIB - CONTEXT_MIB - room_for * 400)
        rest, _ = hog()
        for job in pair:
            job.send(signal.SIGUSR2)
        for job in pair:
            job.wait_state("waiting")
        rest.discard()
        if room_for == 1:
            until(lambda: {job.state() for job in pair} == {"running", "waiting"}, 20,
                  "one of the two runs")
            time.sleep(1)
            equal({job.state() for job in pair}, {"running", "waiting"}, "the states later")
            runs = next(job for job in pair if job.state() == "running")
            pair.remove(runs)
            goes_on(runs)
        for job in pair:
            job.wait_state("running")
            goes_on(job)
    return f"two wait for memory, with room for {room_for}", case


def the_reason_for_waiting():
    job = waiting()
    # When it has tried, it says that, too.
    job.until(lambda: "GPU 0" in (job.status()["reason"] or ""), 30, "it says which GPU lacks memory")
    reason = job.status()["reason"]
    check("18.0 MiB" in reason and "GPU memory" in reason, f"the reason is {reason!r}")
    check_ps_says(job, reason)
    job.pause()


def the_reason_for_failed():
    """It is there until the resume that succeeds."""
    job = counter(64, CUDAW_SIM_FAULT="cuMemcpyHtoDAsync_v2:2:999")
    job.pause()
    equal(cudaw("resume", job.pid).returncode, 1, "the exit code of cudaw resume")
    row = job.status()
    equal(row["state"], "failed", "the state")
    check("CUDA_ERROR_UNKNOWN" in row["reason"], f"the reason is {row['reason']!r}")
    check(row["failed_ms"] > 0, "it does not say how long ago it failed")
    check_ps_says(job, row["reason"], "; .* ago")
    job.resume()
    row = job.status()
    equal((row["reason"], row["failed_ms"]), (None, None), "the reason once it runs")
    goes_on(job)


def ended_as_it_runs_on():
    """Before it is answered that the resume is done, which it is."""
    job = Job("ends", *ENDLESS)
    job.wait_steps(3)
    job.pause()
    equal(cudaw_ok("resume", job.pid), f"resumed {job.pid}; it has ended since\n", "what is said")
    equal(job.wait_end(30), 0, "the exit status")


def unwritten(*args):
    """The exit codes of the command where its output cannot be written, and where nobody reads it."""
    theirs, nobody = os.pipe()
    os.close(theirs)
    codes = []
    for output in os.open("/dev/full", os.O_WRONLY), nobody:
        done = subprocess.run([CUDAW, *map(str, args)], stdout=output, stderr=subprocess.PIPE, text=True, check=False,
                              env=base_environment(), timeout=60 * PATIENCE)
        os.close(output)
        check(done.returncode < 0 or "cudaw: stdout: " in done.stderr, f"it says {done.stderr!r}")
        codes.append(done.returncode)
    return codes


def lost_output_is_no_failure_of_what_was_done():
    """The exit code tells what has become of the job. Without an action it tells that the output was lost."""
    job, path = counter(), os.path.join(SCRATCH, "unwritten")
    lost = [1, -signal.SIGPIPE]
    for state, args in (("paused", ["pause", job.pid]), ("paused", ["wait", "--json", "--for", "paused", job.pid]),
                        ("running", ["resume", "--json", job.pid]), ("running", ["trim", job.pid]),
                        ("running", ["snapshot", "--gpu-only", job.pid, path])):
        equal((unwritten(*args), job.state()), ([0, 0], state), f"the exit codes of {args}, and the state")
    for args in ["ps"], ["pause", "--dry-run", job.pid], ["inspect", path], ["events"], ["pause", "-t", 1, "-h"]:
        equal(unwritten(*args), lost, f"the exit codes of {args}")
    goes_on(job)


if __name__ == "__main__":
    main(in_a_constructor, ended_as_it_runs_on, lost_output_is_no_failure_of_what_was_done,
         *[stopped_while_paused(by) for by in ("command", "signal")],
         *[stopped_in(state) for state in (pausing, resuming)],
         *[ended_in(state, name) for state in (draining, pausing, resuming, waiting)
           for name in ENDING],
         *[two_wait_for_memory(room_for) for room_for in (2, 1)],
         the_reason_for_waiting, the_reason_for_failed)
