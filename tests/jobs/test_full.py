#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On a full GPU, memory that the program has freed is there for every call, whoever keeps it; and
a resume that gives up says which GPU lacks what, and who has it.
"""
import os
import re
import shutil
import tempfile

from simlib import MIB, SANITIZED, skipped
from gpulib import BUILD, SCRATCH, Job, check, cudaw, cudaw_ok, equal, hog, main

CALLS = ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemCreate",
         "cuArrayCreate", "cuModuleLoadData", "cuStreamCreate", "cuCtxCreate")
GPU = r"GPU 0 \(Simulated GPU, GPU-[0-9a-f-]{36}\)"


def freed_memory_serves_every_call():
    lines = Job("fidelity", "full").result().splitlines()
    for call in CALLS:
        found = [line for line in lines if line.startswith(f"{call} on a GPU with ")]
        check(found and all(line.endswith(" shown free: CUDA_SUCCESS") for line in found),
              f"{call}: {found or lines}")


def what_a_thread_gives_back_serves_another():
    equal(Job("fidelity", "full_threads").result(), "rounds in which a call failed: 0", "the answers")


def the_default_pool_serves_an_allocation():
    lines = Job("fidelity", "pool_gives_back").result().splitlines()
    equal(lines[0], "3/4 of the memory while the pool keeps half: CUDA_SUCCESS", "the first answer")


def gives_up(job, pattern):
    """Its message has this form; it is in cudaw ps, too, and the job is as it was."""
    done = cudaw("resume", "--timeout", 0.5, job.pid)
    equal(done.returncode, 5, f"the exit code of cudaw resume ({done.stderr.strip()})")
    message = done.stderr.strip().removeprefix(f"cudaw: resume {job.pid}: ")
    check(re.fullmatch(pattern, message), f"it says {message!r}")
    row = job.status()
    equal((row["state"], row["reason"]), ("paused", f"resume: {message}"), "what cudaw ps says")


def paused_job(release, **env):
    job = Job("counter", "--mib", 128, "--steps", 1000000, "--step-ms", 10, env=env)
    job.wait_steps(3)
    cudaw_ok("pause", "--release", release, job.pid)
    return job


def goes_on(job, other):
    other.discard()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def names_the_gpu(release, amount):
    job = paused_job(release)
    other, _ = hog()
    gives_up(job, f"{GPU} {amount}, after 0.5 s; the job stays paused")
    reason = job.status()["reason"]
    cudaw_ok("pause", "--release", "all", job.pid)
    equal(job.status()["reason"], reason, "the reason once its context is off the GPU, too")
    goes_on(job, other)


def a_resume_names_the_gpu():
    names_the_gpu("memory", r"lacks 0\.\d\d GiB of the 0\.13 GiB that are needed")


def a_resume_of_the_context_names_the_gpu():
    """Without NVML; nobody else had memory of the GPU, so that what it had is known."""
    names_the_gpu("all", r"has less free than the 0\.19 GiB that are needed")


def a_resume_names_who_has_the_memory():
    libraries = tempfile.mkdtemp(dir=SCRATCH)
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    job = paused_job("all", LD_LIBRARY_PATH=libraries)
    other, held = hog()
    # A PID that nobody has, this job itself, and two that are not among the largest.
    with open(os.path.join(libraries, "holders"), "w", encoding="ascii") as file:
        file.write(f"{1 << 30} {100 * MIB}\n{job.pid} {99 * MIB}\n{1 << 30} {2 * MIB}\n"
                   f"{other.pid} {held}\n{1 << 30} 9999\n{1 << 30} 999\n")
    gives_up(job, f"{GPU} lacks 0.19 GiB of the 0.19 GiB that are needed, after 0.5 s; "
             fr"{other.pid}( \(hog\))? has \d\.\d GiB, {1 << 30} has 100 MiB, {1 << 30} has 2.0 MiB, "
             "2 more have the rest; the job stays paused")
    with open(os.path.join(libraries, "holders"), "w", encoding="ascii"):
        goes_on(job, other)


main(freed_memory_serves_every_call, what_a_thread_gives_back_serves_another,
     the_default_pool_serves_an_allocation,
     a_resume_names_the_gpu,
     a_resume_of_the_context_names_the_gpu,
     skipped(a_resume_names_who_has_the_memory, "such jobs find cudaw by LD_LIBRARY_PATH")
     if SANITIZED else a_resume_names_who_has_the_memory)
