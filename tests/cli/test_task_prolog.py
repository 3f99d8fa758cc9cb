#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The environment of jobs from contrib/slurm/task-prolog, beginning with that of the job that has submitted them."""
import os
import subprocess

from clilib import CUDAW, LIMIT_S, equal, main
from harness import Skip, check

PROLOG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib", "slurm", "task-prolog")
OURS = ["CUDAW_JOB", "CUDAW_NAME", "GLIBC_TUNABLES", "LD_AUDIT", "LD_PRELOAD"]


def task(job, shards, **env):
    """The environment of a task of a Slurm job with @env, as slurmd makes it of what the prolog says."""
    if os.environ.get("SANITIZE"):
        raise Skip("the shell cannot load what is built so")
    env = {**env, "SLURM_JOB_ID": str(job), "PATH": f"{os.path.dirname(CUDAW)}:{os.environ['PATH']}"}
    env.pop("SLURM_SHARDS_ON_NODE", None)
    if shards:
        env["SLURM_SHARDS_ON_NODE"] = "1"
    said = subprocess.run(["sh", PROLOG], env=env, text=True, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    for line in said.stdout.splitlines():
        verb, rest = line.split(" ", 1)
        name, _, value = rest.partition("=")
        if verb == "export":
            env[name] = value
        else:
            equal(verb, "unset", line)
            env.pop(name, None)
    return env


def ours(env):
    return {name: env.get(name, "") for name in OURS}


def test_a_job_with_shards():
    env = task(4711, True)
    equal((env["CUDAW_NAME"], env["CUDAW_JOB"]), ("slurm-4711", "001267"), "who it is")
    check("/libcuda.so.1" in env["LD_PRELOAD"] and env["LD_AUDIT"], f"what the loader gets: {env}")
    equal(task(4711, True, **env), env, "a later step")
    equal(task(4711, True, CUDAW_NAME="train")["CUDAW_NAME"], "train", "a name of the user")
    equal(task(4711, True, CUDAW_NAME="slurm-7-again")["CUDAW_NAME"], "slurm-7-again", "a name like ours")


def test_a_job_without_shards():
    equal(ours(task(4711, False)), dict.fromkeys(OURS, ""), "what it gets")
    of_user = {"CUDAW_NAME": "train", "CUDAW_JOB": "123456", "LD_PRELOAD": "/opt/lib/cudaw-0.1.0/libcuda.so.1"}
    equal(ours(task(4711, False, **of_user)), ours(of_user), "what its user has set")


def test_a_job_that_a_job_with_shards_submits():
    other = task(4711, True)
    equal(ours(task(4712, True, **other)), ours(task(4712, True)), "with shards")
    equal(ours(task(4712, False, **other)), ours({}), "without")


def test_lists_of_others_stay():
    env = {"LD_PRELOAD": "libm.so.6:libdl.so.2",
           "GLIBC_TUNABLES": "glibc.malloc.check=1:glibc.malloc.perturb=0"}
    other = task(4711, True, **env)
    other["LD_AUDIT"] += ":/opt/audit.so"
    other["LD_PRELOAD"] += ":/opt/cudaw-0.1.0/limited/libnvidia-ml.so.1"
    equal(ours(task(4712, False, **other)), ours({**env, "LD_AUDIT": "/opt/audit.so"}), "what is left")


if __name__ == "__main__":
    main()
