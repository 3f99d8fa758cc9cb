#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a job, on a GPU: what the driver's calls, frameworks and nvidia-smi see, and get."""
import os
import shutil
import subprocess

from gpulib import CUDAW, Job, Skip, base_environment, check, equal, jobs, main

MIB = 1 << 20
FULL = "64 MiB, CUDA_ERROR_OUT_OF_MEMORY"
LIMIT_MIB = 4096


def every_way_to_take_memory_ends_there():
    """Graphs whose memory comes and goes share it on a GPU: there 64 of them may fit."""
    job = Job("quota", env={"CUDAW_MEM": "64M"})
    *lines, memory = job.result().splitlines()
    for call, answered in (line.split(": ") for line in lines):
        check(answered == FULL or call.startswith("graph"), f"{call}: {answered}")
    equal(memory, "free 64 of 64 MiB, device 64", "what the program sees at the end")


def a_pause_keeps_it():
    job = Job("quota", "--hold", 7, "--each-line", 1, env={"CUDAW_MEM": "64M"})
    job.wait_line("holds 56 MiB")
    job.pause()
    job.resume()
    job.make_steps(2)
    equal([line for line in job.lines if line.startswith("one more: ")], ["one more: CUDA_SUCCESS"] * 2, "one more")
    job.result()


def frameworks(name, least):
    """It takes no more than the limit, at least so much of it, and goes on after that."""
    job = Job("limited.py", name, env={"CUDAW_MEM": f"{LIMIT_MIB}M"})
    said = dict(line.split(" ", 1) for line in job.result(timeout=300).splitlines())
    check("refused:" in said, f"it got {said['taken']} MiB, and none was refused")
    for what in ("total", "shown"):
        check(int(said.get(what, 0)) <= LIMIT_MIB, f"{what} is {said.get(what)} MiB")
    check(least * LIMIT_MIB <= int(said["taken"]) <= LIMIT_MIB, f"it has taken {said['taken']} MiB")
    equal(said["sum"], "1000", "what it reckons after that")


def pytorch_obeys_it():
    frameworks("torch", 0.9)


def cupy_obeys_it():
    frameworks("cupy", 0.9)


def jax_obeys_it():
    """It takes 75 % of what it sees at the start."""
    frameworks("jax", 0.6)


def two_processes_have_it_together():
    env = {"CUDAW_MEM": "64M", "CUDAW_JOB": "abcdef"}
    first = Job("quota", "--hold", 5, "--each-line", 1, mode="path", env=env)
    first.wait_line("holds 40 MiB")
    second = Job("quota", mode="path", env=env)
    second.wait_line("cuMemAlloc: 24 MiB, CUDA_ERROR_OUT_OF_MEMORY")
    second.result()
    equal(jobs()[first.pid]["gpu"][0]["limit_used"], 40 * MIB, "what the job has")
    first.result()


def nvidia_smi_shows_it():
    if not shutil.which("nvidia-smi"):
        raise Skip("no nvidia-smi on this machine")
    done = subprocess.run([CUDAW, "run", "--mem", f"{LIMIT_MIB}M", "nvidia-smi", "--query-gpu=memory.total,memory.used",
                           "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=60,
                          env={**base_environment(), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}, check=False)
    equal((done.returncode, done.stdout.splitlines()[:1]), (0, [f"{LIMIT_MIB}, 0"]), f"nvidia-smi ({done.stderr.strip()})")


main(every_way_to_take_memory_ends_there, a_pause_keeps_it, two_processes_have_it_together, pytorch_obeys_it,
     cupy_obeys_it, jax_obeys_it, nvidia_smi_shows_it)
