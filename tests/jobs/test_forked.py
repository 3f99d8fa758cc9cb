#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The child of a fork, whenever it comes, has nothing that the library has open: a snapshot of the job
would need that where it goes on. And its environment counts.
"""
import json
import os
import shutil
import subprocess
import tempfile

from simlib import HELD, SCRATCH, hold, let_go
from gpulib import (BUILD, CUDAW, PATIENCE, RUNTIME_DIR, Group, Job, base_environment, check, cudaw,
                    cudaw_ok, equal, main, until)
from proclib import descriptors
from snapshotjobs import contents, directory

CLAIMS = os.path.join(RUNTIME_DIR, "host-memory.lock")
OPTIONS = "--children 0 --ask 1 --steps 1000000 --step-ms 10"


def started(job):
    job.wait_steps(3)
    return job


def forker(**env):
    return started(Job("forker", *OPTIONS.split(), env=env))


def child_of(job):
    before = [line for line in job.lines if line.startswith("child ")]
    job.tell()
    job.until(lambda: sum(line.startswith("child ") for line in job.lines) > len(before), 20,
              "a child")
    return int([line for line in job.lines if line.startswith("child ")][-1].split()[1])


def opened(pid):
    """What it has open, and mapped."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return set(descriptors(pid).values()) | {line.split(None, 5)[5].strip() for line in maps if "/" in line}


def of(pid, place):
    return sorted(path for path in opened(pid) if path.startswith(place))


def after_a_pause():
    job = forker()
    job.pause()
    job.resume()
    equal(of(job.pid, CLAIMS), [], "what the job has")
    equal(of(child_of(job), RUNTIME_DIR), [], "what its child has")
    job.discard()


def while_a_snapshot_is_written():
    """The claim of host memory is open too, as not all of it is taken."""
    path = directory()
    job = forker(**HELD)
    hold("out")
    with subprocess.Popen([CUDAW, "snapshot", "--gpu-only", str(job.pid), path],
                          env=base_environment(), stdout=subprocess.DEVNULL) as command:
        until(lambda: "manifest.new" in contents(path), 20, "it has begun")
        child = child_of(job)
        has = [of(job.pid, path), of(job.pid, CLAIMS), of(child, path) + of(child, RUNTIME_DIR)]
        let_go("out")
        equal(command.wait(60 * PATIENCE), 0, "the exit code of cudaw snapshot")
    equal(has, [[path], [CLAIMS], []], "what the job and its child have")
    cudaw_ok("verify", path)
    job.discard()


def while_memory_is_on_disk():
    with Group(256 << 20) as group:
        job = started(Job(*group.command("forker", *OPTIONS.split()),
                          env={"CUDAW_RELEASE": "memory", "CUDAW_SPILL_DIR": SCRATCH}))
        job.pause()
        check(of(job.pid, f"{SCRATCH}/#"), "the job has no file there")
        equal(of(child_of(job), f"{SCRATCH}/#"), [], "what its child has")
        job.resume()
        job.discard()


def after_a_directory_was_refused():
    """What is there is the program's: the child's own code, too."""
    where = tempfile.mkdtemp(dir=SCRATCH)
    program = shutil.copy(os.path.join(BUILD, "tests", "programs", "forker"), where)
    job = started(Job(program, *OPTIONS.split()))
    done = cudaw("snapshot", "--gpu-only", job.pid, where)
    check(done.returncode == 1 and "found forker in it" in done.stderr, f"it says {done.stderr}")
    equal(of(child_of(job), where), [program], "what the child has there")
    job.discard()


def sets_its_own_name():
    """Between the fork and its cuInit(); its parent has made calls before that."""
    job = Job("early", "--fork", 1, "--each-line", 1, env={"CUDAW_NAME": "parent"})
    job.make_steps(1)
    equal({row["name"] for row in json.loads(cudaw_ok("ps", "--json"))}, {"parent", "child"}, "the names in ps")
    job.result()


main(sets_its_own_name, after_a_pause, while_a_snapshot_is_written, while_memory_is_on_disk,
     after_a_directory_was_refused)
