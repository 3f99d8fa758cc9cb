#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command on a machine with a GPU: what is wrong is said, and costs nobody's job."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from gpulib import CUDAW, SCRATCH, Job, Skip, check, cudaw, equal, main

NOBODY = 65534
MIB = 256


def fails(code, *args):
    done = cudaw(*args)
    equal(done.returncode, code, f"the exit code of cudaw {' '.join(map(str, args))}")
    check(done.stderr.strip(), "it says nothing on stderr")


def counter(**options):
    job = Job("counter", "--mib", MIB, "--steps", 1000000, "--step-ms", 5, **options)
    job.wait_steps(3)
    return job


def unknown_jobs():
    for verb in ("pause", "resume"):
        fails(3, verb, "no-such-job")
        fails(3, verb, os.getpid())


def a_job_that_is_dead():
    job = counter()
    job.discard()
    fails(3, "pause", job.pid)


def missing_arguments():
    fails(2, "run")
    fails(2, "pause")
    fails(127, "run", "--", "no-such-command")


def the_job_of_another_user():
    """The other user is nobody; it gets a directory of its own, and a copy of the command in it."""
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    job = counter()
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chown(directory, NOBODY, NOBODY)
        copy = shutil.copy(CUDAW, directory)
        for verb in ("pause", "resume"):
            done = subprocess.run([copy, verb, str(job.pid)], user=NOBODY, group=NOBODY,
                                  env={"CUDAW_RUNTIME_DIR": directory}, capture_output=True,
                                  text=True, timeout=30)
            equal(done.returncode, 4, f"the exit code of {verb} ({done.stderr.strip()})")
    equal(job.state(), "running", "the state of the job")
    check("every word right" in job.finish(), "the job was disturbed")


def a_runtime_directory_that_can_not_be_used():
    """The job runs, and says once why it cannot be paused."""
    path = os.path.join(SCRATCH, "a-file")
    with open(path, "w", encoding="utf-8"):
        pass
    job = Job("counter", "--mib", 64, "--steps", 20, env={"CUDAW_RUNTIME_DIR": path})
    check("every word right" in job.result(), "the job was disturbed")
    said = [line for line in job.stderr().splitlines() if path in line]
    equal(len(said), 1, f"the number of lines on stderr about {path}")


def the_status_of_the_program():
    equal(cudaw("run", "--", sys.executable, "-c", "raise SystemExit(41)").returncode, 41,
          "the exit code of cudaw run")


def doctor():
    done = cudaw("doctor")
    print("".join(f"# {line}\n" for line in done.stdout.splitlines()), end="")
    equal(done.returncode, 0, "the exit code of cudaw doctor")
    json.loads(cudaw("doctor", "--json").stdout)


main(unknown_jobs, a_job_that_is_dead, missing_arguments, the_job_of_another_user,
     a_runtime_directory_that_can_not_be_used, the_status_of_the_program, doctor)
