#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that is preempted by requeue is written to a snapshot first, and goes on from there when it runs again."""
import os
import re
import signal

from slurmlib import COUNTER, REPOSITORY, WHOLE, Cluster, equal, until
from detached import why_no_criu
from gpulib import main
from harness import Skip, check, sleeping_as
from simlib import SCRATCH

COUNTS = (COUNTER, "--mib", 140, "--verify", 1, "--steps", 10000000, "--step-ms", 2)


def submitted(cluster):
    """A job of contrib/slurm's script; what it says; the directory of its snapshot."""
    if why_no_criu():
        raise Skip(why_no_criu())
    job = cluster.submit_script(f"{REPOSITORY}/contrib/slurm/requeue", *COUNTS, options=WHOLE, partition="requeue")
    job.wait_steps(10)
    return job, f"{cluster.env['SNAPSHOTS']}/{job.number}"


def pid_of(snapshot):
    with open(f"{snapshot}/manifest.json", encoding="utf-8") as file:
        return int(re.search(r'"pid": *(\d+)', file.read())[1])


def preempted(cluster, job):
    """For a job that ends well; the steps that it had made."""
    high = cluster.counting(200, *WHOLE, partition="high")
    high.wait_steps(10, 100)
    steps = job.steps()
    equal(job.state(), "PENDING", "the state of the job that is preempted")
    high.finish()
    return steps


def ends_well(job, saved):
    os.kill(pid_of(saved), signal.SIGINT)
    job.wait_state("COMPLETED")
    steps = [int(step) for step in re.findall(r"^step (\d+)$", job.said(), re.M)]
    equal(steps, list(range(1, len(steps) + 1)), "its steps")
    check("every word right" in job.said(), f"it says {job.said()[-300:]!r}")
    equal(os.path.exists(saved), False, "whether the snapshot is still there")


def preempted_twice():
    cluster = Cluster(SNAPSHOTS=f"{SCRATCH}/snapshots")
    job, saved = submitted(cluster)
    for _ in range(2):
        steps = preempted(cluster, job)
        until(lambda s=steps: job.steps() > s + 10, 100, "it goes on")
    ends_well(job, saved)


def its_process_id_is_taken():
    """The job is held, with its snapshot, and goes on when it is released."""
    cluster = Cluster(SNAPSHOTS=f"{SCRATCH}/snapshots")
    job, saved = submitted(cluster)
    high = cluster.counting(200, *WHOLE, partition="high")
    high.wait_steps(10, 100)
    steps = job.steps()
    other = sleeping_as(pid_of(saved))
    high.finish()
    until(lambda: job.reason() == "job requeued in held state", 100, "the job is held")
    check(f"needs the id {pid_of(saved)}, which 'sleep' has now" in job.said(), f"it says {job.said()[-300:]!r}")
    other.kill()
    other.wait()
    cluster.run_ok("scontrol", "release", job.number)
    until(lambda: job.steps() > steps + 10, 100, "it goes on")
    ends_well(job, saved)


main(preempted_twice, its_process_id_is_taken)
