#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/locked-gpu.md says: who is on the GPU, and what others see, if a pause or a resume does not end. Beside it,
test_states.py kills and stops jobs in all states, and test_faults.py lets each call of the driver fail.
"""
import json
import os
import signal
import subprocess

from simlib import HELD, MIB, gpu_used, hold, let_go, waits_for_memory
from proclib import is_zombie
from gpulib import CUDAW, Job, base_environment, check, cudaw, cudaw_ok, equal, hog, main, until

ENDLESS = ("--steps", 1000000, "--step-ms", 10)
DONE, FAILED, NO_JOB, TIMEOUT = 0, 1, 3, 5


def counter(mib=32, **env):
    job = Job("counter", "--mib", mib, *ENDLESS, env=env)
    job.wait_steps(3)
    return job


def wait(state, job, seconds=0.1):
    return cudaw("wait", "--for", state, "--timeout", seconds, job.pid).returncode


def last_events(job):
    rows = [json.loads(line) for line in cudaw_ok("events", "--json").splitlines()]
    return [row["event"] for row in rows if row["pid"] == job.pid]


def goes_on(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def kernels_that_do_not_end():
    """The job runs on, with all that it had, and everybody is told."""
    job = Job("spin", *ENDLESS)
    job.wait_steps(3)
    before = gpu_used()
    equal(cudaw("pause", "--timeout", 0.2, job.pid).returncode, TIMEOUT, "the exit code of the pause")
    row = job.status()
    equal((row["state"], row["freed"], gpu_used()), ("running", False, before), "the job, and what it has")
    check("timeout" in row["reason"] or "did not end" in row["reason"], f"the reason is {row['reason']!r}")
    equal(last_events(job), ["pause", "failed"], "the events")


def a_copy_that_hangs():
    """The job answers meanwhile, and is taken back once the driver returns; nothing is said to be free before."""
    job = counter(**HELD)
    before = gpu_used()
    hold("out")
    cudaw_ok("pause", "--no-wait", job.pid)
    job.wait_state("pausing")
    equal((wait("paused", job), wait("freed", job)), (TIMEOUT, TIMEOUT), "who waits")
    cudaw_ok("resume", "--no-wait", job.pid)
    equal((job.state(), job.status()["freed"]), ("pausing", False), "while the copy hangs")
    let_go("out")
    job.wait_state("running")
    equal((gpu_used(), last_events(job)[-1]), (before, "resume"), "what it has, and the events")
    goes_on(job)


def a_kill_while_a_copy_hangs():
    """SIGKILL always frees the GPU: of who waits it ends the wait."""
    job = counter(**HELD)
    hold("out")
    cudaw_ok("pause", "--no-wait", job.pid)
    job.wait_state("pausing")
    waiting = subprocess.Popen([CUDAW, "wait", "--for", "freed", str(job.pid)], env=base_environment(),
                               stderr=subprocess.DEVNULL)
    job.process.kill()
    let_go("out")
    equal(waiting.wait(60), NO_JOB, "who waits")
    until(lambda: gpu_used() == 0, 10, "the GPU's memory is free")


def a_checkpoint_that_fails():
    """The job is paused, its context is left on the GPU, and nobody is told that it has left."""
    job = counter(CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:999")
    said = cudaw_ok("pause", job.pid)
    check("the context stays on the GPU" in said, f"it said {said!r}")
    equal((job.state(), job.status()["freed"], wait("freed", job)), ("paused", False, TIMEOUT), "the job")
    check(0 < gpu_used() < 32 * MIB, "its memory is off the GPU, its context is not")
    check("freed" not in last_events(job), "no event says that it has left")
    cudaw_ok("pause", "--release", "all", job.pid)
    equal((job.status()["freed"], wait("freed", job), gpu_used()), (True, DONE, 0), "asked again")
    job.resume()
    goes_on(job)


def an_unmap_that_fails():
    """What is out comes back, and the job runs on."""
    job = counter(CUDAW_SIM_FAULT="cuMemUnmap:1:999")
    before = gpu_used()
    equal(cudaw("pause", job.pid).returncode, FAILED, "the exit code")
    row = job.status()
    equal((row["state"], row["freed"], gpu_used(), last_events(job)), ("running", False, before, ["pause", "failed"]),
          "the job, what it has, and the events")
    goes_on(job)


def a_process_that_stays_locked():
    """The driver does not unlock it after a checkpoint that failed: nobody is told that it has left."""
    job = counter(CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:999,cuCheckpointProcessUnlock:1:999")
    cudaw_ok("pause", job.pid)
    equal((job.state(), job.status()["freed"], wait("freed", job)), ("paused", False, TIMEOUT), "the job")
    check("freed" not in last_events(job) and gpu_used() > 0, "no event says that it has left")
    job.resume()
    goes_on(job)


def a_resume_without_memory():
    """It is paused all the time, takes nothing, and a later pause or its time limit ends it."""
    job = counter()
    waits_for_memory(job)
    held = gpu_used()
    equal(wait("freed", job), TIMEOUT, "it is not paused")
    cudaw_ok("pause", job.pid)
    equal((job.state(), wait("freed", job), gpu_used()), ("paused", DONE, held), "after the pause")
    equal(cudaw("resume", "--timeout", 0.2, job.pid).returncode, TIMEOUT, "with a time limit")
    equal((job.state(), wait("freed", job)), ("paused", DONE), "it stays paused")


def a_resume_that_fails():
    """All is kept, the state says so, and it can be asked for again."""
    job = counter(CUDAW_SIM_FAULT="cuMemcpyHtoDAsync_v2:2:999")
    job.pause()
    equal(cudaw("resume", job.pid).returncode, FAILED, "the exit code of the resume")
    row = job.status()
    equal((row["state"], row["freed"], last_events(job)[-1]), ("failed", False, "failed"), "the job")
    equal(wait("paused", job), TIMEOUT, "it is not paused")
    job.resume()
    goes_on(job)


def who_asked_is_killed():
    """The pause of a process goes on without the command."""
    job = counter(**HELD)
    hold("out")
    asks = subprocess.Popen([CUDAW, "pause", str(job.pid)], env=base_environment(), stdout=subprocess.DEVNULL)
    job.wait_state("pausing")
    asks.kill()
    asks.wait()
    let_go("out")
    equal(wait("freed", job, 30), DONE, "it is paused all the same")
    equal(gpu_used(), 0, "what it has")
    job.resume()
    goes_on(job)


def a_job_that_is_stopped():
    """It answers nobody and keeps what it has; a kill frees it."""
    job = counter()
    before = gpu_used()
    job.send(signal.SIGSTOP)
    until(lambda: open(f"/proc/{job.pid}/stat", encoding="ascii").read().rsplit(") ", 1)[1][0] == "T", 10, "it stops")
    done = cudaw("pause", job.pid)
    equal((done.returncode, gpu_used()), (FAILED, before), "the exit code, and what it has")
    check("stopped" in done.stderr, f"it said {done.stderr!r}")
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: is_zombie(job.pid), 10, "it has ended")
    until(lambda: gpu_used() == 0, 10, "the GPU's memory is free")


main(kernels_that_do_not_end, a_copy_that_hangs, a_kill_while_a_copy_hangs, a_checkpoint_that_fails,
     an_unmap_that_fails,
     a_process_that_stays_locked, a_resume_without_memory, a_resume_that_fails, who_asked_is_killed,
     a_job_that_is_stopped)
