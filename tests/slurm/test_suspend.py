#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm suspends jobs: by hand, for a job of a higher partition, and in time slices. Each gives the GPU up before it
stops, and gets it back when it goes on.
"""
import os
import signal

from slurmlib import (BUILD, CONTEXT_MIB, COUNTER, WHOLE, Cluster, check_suspended, equal, is_stopped, on_gpu,
                      until)
from gpulib import main
from proclib import fields


def by_hand():
    cluster = Cluster()
    job = cluster.counting(140)
    job.wait_steps(10)
    pid = job.pid()
    for _ in range(2):
        cluster.run_ok("scontrol", "suspend", job.number)
        check_suspended(job, pid)
        cluster.run_ok("scontrol", "resume", job.number)
        job.wait_steps(10)
    job.finish()


def begin_preempted():
    """A cluster, a job that is suspended, its PID, and the job for which it is."""
    cluster = Cluster()
    low = cluster.counting(140, *WHOLE)
    low.wait_steps(10)
    pid = low.pid()
    high = cluster.counting(200, *WHOLE, partition="high")
    high.wait_steps(10)
    check_suspended(low, pid)
    return cluster, low, pid, high


def preempted():
    """Both fit only one after the other. Slurm's restart changes nothing."""
    cluster, low, pid, high = begin_preempted()
    for server in ("slurmd", "slurmctld"):
        cluster.restart(server)
    until(lambda: high.state() == "RUNNING", 30, "slurmctld answers")
    high.wait_steps(10)
    check_suspended(low, pid)
    high.finish()
    low.wait_steps(10)
    low.finish()


def several_processes():
    """Which wait for each other on the GPU: both give it up, and go on together."""
    cluster = Cluster()
    low = cluster.submit(f"exec {BUILD}/tests/programs/rank_kernels --ranks 2 --ballast 60 --steps 10000000 --step-ms 10",
                         *WHOLE)
    low.wait_steps(10)
    until(lambda: len(low.rows()) == 2, 30, "both processes have joined cudawd")
    pids = [row["pid"] for row in low.rows()]
    high = cluster.counting(200, *WHOLE, partition="high")
    high.wait_steps(10, 100)
    for pid in pids:
        check_suspended(low, pid)
    high.finish()
    low.wait_steps(10)
    equal([row["pid"] for row in low.rows()], pids, "its processes")
    os.kill(int(fields(pids[0])[1]), signal.SIGINT)     # their parent, which ends them
    low.wait_state("COMPLETED")


def a_step_of_two_tasks():
    """Of srun's: both give the GPU up, whichever of them is signalled, and go on together."""
    cluster = Cluster()
    job = cluster.submit(f"exec srun {COUNTER} --mib 60 --verify 1 --steps 10000000 --step-ms 2", "-n", 2, "-c", 4)
    job.wait_steps(10)
    until(lambda: len(job.rows()) == 2, 30, "both processes have joined cudawd")
    pids = [row["pid"] for row in job.rows()]
    for pid, other in (pids, pids[::-1]):
        os.kill(pid, signal.SIGTSTP)
        until(lambda p=pid: is_stopped(p), 30, "the process that is signalled is stopped")
        equal((on_gpu(job), is_stopped(other)), (0, False), "bytes on the GPU; if the other process is stopped")
        os.kill(pid, signal.SIGCONT)
        until(lambda: all(row["state"] == "runs" for row in job.rows()), 30, "both run")
    cluster.run_ok("scontrol", "suspend", job.number)
    for pid in pids:
        check_suspended(job, pid)
    cluster.run_ok("scontrol", "resume", job.number)
    job.wait_steps(10)
    cluster.run_ok("scancel", "-s", "INT", f"{job.number}.0")
    job.wait_state("COMPLETED")
    equal(job.said().count("every word right"), 2, "how many tasks verified their memory")


def workers_in_sessions_of_their_own():
    """As torchrun starts them: the kernel ignores SIGTSTP there. Both give the GPU up, whichever of them is signalled;
    Slurm's SIGSTOP then stops them.
    """
    cluster = Cluster()
    worker = f"setsid {COUNTER} --mib 60 --verify 1 --steps 10000000 --step-ms 2 &"
    low = cluster.submit(f"{worker}\n{worker}\nwait", *WHOLE)
    low.wait_steps(10)
    until(lambda: len(low.rows()) == 2, 30, "both processes have joined cudawd")
    pids = [row["pid"] for row in low.rows()]
    for pid in pids:
        os.kill(pid, signal.SIGTSTP)
        until(lambda: on_gpu(low) == 0, 30, "both have given their memory")
        equal([is_stopped(each) for each in pids], [False, False], "if they are stopped")
        os.kill(pid, signal.SIGCONT)
        until(lambda: all(row["state"] == "runs" for row in low.rows()), 30, "both run")
    high = cluster.counting(200, *WHOLE, partition="high")
    high.wait_steps(10, 100)
    for pid in pids:
        check_suspended(low, pid)
    high.finish()
    low.wait_steps(10)
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    low.wait_state("COMPLETED")
    equal(low.said().count("every word right"), 2, "how many workers verified their memory")


def killed_while_suspended():
    _, low, pid, high = begin_preempted()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not low.rows(), 30, "cudawd knows that it is gone")
    high.finish()
    until(lambda: low.state() == "FAILED", 60, "Slurm knows, too")


def time_slices():
    cluster = Cluster()
    jobs = [cluster.counting(200, *WHOLE, partition="gang") for _ in range(2)]
    for job, other in (jobs, jobs[::-1]):
        job.wait_steps(10)
        pid = job.pid()
        other.wait_steps(10)
        check_suspended(job, pid)
    cluster.run_ok("scancel", "-s", "KILL", "--full", jobs[0].number)
    jobs[1].wait_steps(10)
    jobs[1].finish()


def several_on_a_gpu():
    """No job is suspended: they have a shard each, and take turns as they do not fit. The next one begins when the one
    before has its memory, so that there is room for its context: this GPU has less than a context may take, and cudawd
    refuses one that has to wait.
    """
    cluster = Cluster("--margin", f"{2 * CONTEXT_MIB}M")
    jobs = []
    for _ in range(3):
        jobs.append(cluster.counting(140))
        jobs[-1].wait_steps(1)
    for _ in range(2):
        for job in jobs:
            job.wait_steps(5)
    equal({job.state() for job in jobs}, {"RUNNING"}, "their states")
    for job in jobs:
        until(lambda j=job: j.rows()[0]["state"] in ("runs", "idle"), 60, "it has its turn")
        job.finish()


main(by_hand, preempted, several_processes, a_step_of_two_tasks, workers_in_sessions_of_their_own,
     killed_while_suspended, time_slices, several_on_a_gpu)
