#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Another version is built in the same tree and installed beside the one that is there: a job of the old version goes
on, and the new command pauses and resumes it."""
import glob
import json
import os
import shutil
import subprocess

from simlib import REPOSITORY, unsanitized
from gpulib import BUILD, PATIENCE, RUNTIME_DIR, Job, Skip, base_environment, equal, main, scratch

NEW = "9.8.7"


def make(target, build, *args):
    """Of the sources of this tree, in another build directory."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(["make", "-C", REPOSITORY, f"O={build}", *args, target], env=env, text=True,
                          capture_output=True, timeout=120 * PATIENCE, check=False)
    equal(done.returncode, 0, f"the exit code of make {target} ({done.stderr})")


def built():
    """A copy of the build directory, as it is after "make"."""
    if not shutil.which("make"):
        raise Skip("no make here")
    copy = scratch()
    for name in ("obj", "gen", "lib", "bin", "tests/sim"):
        subprocess.run(["cp", "-a", "--parents", name, copy], cwd=BUILD, check=True)
    shutil.copy2(f"{BUILD}/.deps", copy)
    return copy


def run(command, *args):
    done = subprocess.run([command, *args], env=base_environment(), capture_output=True, text=True,
                          timeout=60 * PATIENCE, check=False)
    equal((done.returncode, done.stderr), (0, ""), f"the exit code of {args}, and its errors")
    return done.stdout


def started(command, name):
    job = Job(command, "run", "--name", name, "--", f"{BUILD}/tests/programs/counter", "--steps", 1000000,
              "--step-ms", 2, mode="by another command")
    job.wait_steps(3)
    return job


def library_of(job):
    with open(f"/proc/{job.pid}/maps", encoding="utf-8") as maps:
        return {line.split()[-1] for line in maps if "/lib/cudaw-" in line and "libcuda.so.1" in line}


@unsanitized
def an_upgrade_beside_a_job_of_the_old_version():
    build, prefix = built(), scratch()
    command = f"{prefix}/bin/cudaw"
    make("install", build, f"PREFIX={prefix}")
    old = run(command, "version").split()[1]
    job = started(command, "old")
    make("install", build, f"PREFIX={prefix}", f"VERSION={NEW}")
    equal((run(command, "version"), run(f"{prefix}/bin/cudawd", "--version")), (f"cudaw {NEW}\n", f"cudawd {NEW}\n"))
    equal(sorted(glob.glob("cudaw-*", root_dir=f"{prefix}/lib")), sorted([f"cudaw-{old}", f"cudaw-{NEW}"]), "the libraries")
    other = started(command, "new")
    equal([library_of(job), library_of(other)],
          [{f"{prefix}/lib/cudaw-{version}/libcuda.so.1"} for version in (old, NEW)], "the libraries of the jobs")
    run(command, "pause", "old", "new")
    equal({row["name"]: row["state"] for row in json.loads(run(command, "ps", "--json"))},
          {"old": "paused", "new": "paused"}, "the states")
    job.check_still()
    run(command, "resume", "--all")
    for each in (job, other):
        each.wait_steps(each.steps() + 3)
        each.finish()


main(an_upgrade_beside_a_job_of_the_old_version)
