#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""While a job is paused its GPU memory is really gone: to nvidia-smi and to other processes."""
from gpulib import (Job, check, cudaw_ok, equal, figure, gpu_used, hog, idle_gpu_used, main, process_used,
                    until)

MIB = 8192
CONTEXT_MIB = 1024      # more than a context takes on any GPU
CLIENT_MIB = 8          # more than the driver has for a process without one


def counter(**options):
    job = Job("counter", "--mib", MIB, "--steps", 1000000, "--step-ms", 5, **options)
    job.wait_steps(3)
    return job


def full_release():
    idle = idle_gpu_used()
    whole, all_bytes = hog()
    whole.discard()
    until(lambda: gpu_used() <= idle, 10, "the first hog's memory is free again")
    job = counter()
    check(gpu_used() >= idle + MIB, f"the running job uses {gpu_used()} MiB, not {MIB}")
    listed = process_used(job.pid) is not None
    if not listed:
        print("# nvidia-smi lists no processes here: the job's own row is not checked")
    job.pause()
    figure("used_while_paused", gpu_used() - idle, "MiB")
    equal(gpu_used() - idle, 0, "the memory in use while paused, in MiB")
    if listed:
        equal(process_used(job.pid) or 0, 0, "nvidia-smi's MiB for the paused job")
    second, second_bytes = hog()
    figure("free_while_paused", second_bytes / all_bytes, "of_all")
    check(second_bytes >= all_bytes, f"another process gets {second_bytes} bytes while the job is "
          f"paused, {all_bytes} without the job")
    second.discard()
    job.resume()
    check(gpu_used() >= idle + MIB, f"the resumed job uses {gpu_used()} MiB")
    check("every word right" in job.finish(), "the job did not verify its memory")


def memory_release_leaves_the_context():
    idle = idle_gpu_used()
    job = counter(env={"CUDAW_RELEASE": "memory"})
    job.pause()
    left = gpu_used() - idle
    figure("context_while_paused", left, "MiB")
    check(0 < left <= CONTEXT_MIB, f"{left} MiB are in use while paused")
    paused = job.status()["paused"] >> 20
    check(MIB <= paused <= MIB + 64, f"cudaw ps shows {paused} MiB as paused, not {MIB}")
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def one_that_has_no_context():
    """The driver keeps 4 MiB of each GPU while a process that has initialised CUDA is there [H200]."""
    idle = idle_gpu_used()
    job = Job("hold", "--initialised", 1)
    job.wait_line("initialised")
    job.pause()
    left = gpu_used() - idle
    figure("used_without_context", left, "MiB")
    check(left <= CLIENT_MIB, f"{left} MiB are in use while paused")
    job.resume()
    job.tell()
    job.wait_line("holding")
    job.pause()
    equal(gpu_used() - idle, 0, "the memory in use while paused, in MiB")
    job.resume()
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


def a_paused_job_gives_back_the_rest():
    """If it is asked for; and what it has given back stays so."""
    idle = idle_gpu_used()
    job = counter()
    cudaw_ok("pause", "--release", "memory", job.pid)
    left = gpu_used() - idle
    check(left > 0, "nothing is left on the GPU")
    for args in (("--release", "memory"), ()):
        equal(cudaw_ok("pause", *args, job.pid),
              f"paused {job.pid}: already paused; its CUDA context stays on the GPU\n", "what it says")
    # The context grows by a few MiB at times [H200: 543, then 545].
    again = gpu_used() - idle
    check(left <= again <= left + 16, f"the memory in use after that is {again}, not {left}")
    equal(cudaw_ok("pause", "--release", "all", job.pid),
          f"paused {job.pid}: already paused; the rest of its GPU memory is given back now\n",
          "what it says")
    equal((job.state(), gpu_used() - idle), ("paused", 0), "the state, and the memory in use")
    for args in (("--release", "memory"), ("--release", "all"), ()):
        equal(cudaw_ok("pause", *args, job.pid),
              f"paused {job.pid}: already paused, with nothing left on the GPU\n", "what it says")
    job.check_still()
    job.resume()
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


main(full_release, memory_release_leaves_the_context, one_that_has_no_context,
     a_paused_job_gives_back_the_rest)
