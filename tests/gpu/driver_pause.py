#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw pause --driver: a process that does not run under cudaw gives the GPU back, and gets its
memory again, by the driver's own checkpoint."""
import os
import time

from gpulib import (BUILD, Job, check, cudaw, cudaw_ok, equal, figure, gpu_used, hog, idle_gpu_used,
                    main, until)

MIB = 8192


def counter(*args, mode="native"):
    job = Job("counter", "--mib", MIB, "--steps", 1000000, "--step-ms", 5, *args, mode=mode)
    job.wait_steps(3)
    return job


def row_of(job, state):
    row = job.status()
    check(row, f"cudaw ps does not list the process, which is {state}")
    equal((row["state"], row["by_driver"]), (state, True), "what cudaw ps says")


def ends_well(job):
    equal(job.status(), None, "the row of the resumed process")
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def timed(name, *args):
    begin = time.monotonic()
    said = cudaw_ok(*args, timeout=600)
    figure(name, time.monotonic() - begin, "s")
    print(f"# {said.strip()}")
    return said


def the_gpu_is_given_back():
    idle = idle_gpu_used()
    job = counter()
    timed("ps_beside_a_native_process", "ps")
    equal(cudaw("pause", job.pid).returncode, 3, "the exit code of a pause without --driver")
    for _ in range(3):
        timed("driver_pause", "pause", "--driver", job.pid)
        until(lambda: gpu_used() <= idle, 5, "the GPU's memory is free")
        row_of(job, "paused")
        job.check_still()
        check("already paused" in cudaw_ok("pause", "--driver", job.pid), "it is not paused")
        equal(cudaw("snapshot", job.pid, "/tmp/cudaw-none").returncode, 6, "the code of a snapshot")
        timed("driver_resume", "resume", job.pid)
        check(gpu_used() >= idle + MIB, f"the resumed process uses {gpu_used()} MiB")
        job.wait_steps(job.steps() + 3)
    ends_well(job)


def a_resume_waits_for_free_memory():
    job = counter()
    cudaw_ok("pause", "--driver", job.pid, timeout=600)
    other, _ = hog()
    done = cudaw("resume", "--timeout", 2, job.pid)
    print(f"# {done.stderr.strip()}")
    equal(done.returncode, 5, "the exit code of a resume on a full GPU")
    row_of(job, "paused")
    other.discard()
    timed("driver_resume_after_a_wait", "resume", job.pid)
    ends_well(job)


def paused_by_another_tool():
    """drvckpt takes the driver's steps up to the one that it is told, as cuda-checkpoint does."""
    for state in "locked", "paused":
        job = counter()
        Job("drvckpt", "--pid", job.pid, "--until", {"locked": 1, "paused": 2}[state],
            mode="native").result()
        row_of(job, state)
        print(f"# {cudaw_ok('resume', '--timeout', 300, job.pid, timeout=600).strip()}")
        ends_well(job)


def a_long_kernel():
    job = Job("spin", "--steps", 1000000, "--step-ms", 5, mode="native")
    job.wait_line("spinning")
    job.wait_steps(5)
    done = cudaw("pause", "--driver", "--timeout", 2, job.pid)
    print(f"# {done.stderr.strip()}")
    equal(done.returncode, 5, "the exit code of a pause beside a long kernel")
    equal(job.status(), None, "its row")
    job.wait_steps(job.steps() + 3)
    check("spin: the kernel ended" in job.finish(), "the job did not end by itself")


def strangers_on_one_gpu():
    """Nothing that the driver itself does makes peers of them."""
    idle = idle_gpu_used()
    strangers = [Job("/usr/bin/setsid", os.path.join(BUILD, "tests", "programs", "counter"), "--mib",
                     MIB // 4, "--steps", 1000000, "--step-ms", 5, mode="native") for _ in range(2)]
    for job in strangers:
        job.wait_steps(3)
    cudaw_ok("pause", "--driver", *[job.pid for job in strangers], timeout=600)
    until(lambda: gpu_used() <= idle, 5, "the GPU's memory is free")
    for job in strangers:
        row_of(job, "paused")
    cudaw_ok("resume", *[job.pid for job in strangers], timeout=600)
    for job in strangers:
        ends_well(job)


def what_it_refuses():
    job, under = counter(), counter(mode="run")
    for process, text in (job, "in one process group"), (under, f"'cudaw pause {under.pid}'"):
        done = cudaw("pause", "--driver", process.pid)
        equal(done.returncode, 6, f"the exit code for {process.pid}")
        check(text in done.stderr, f"{text!r} is not in {done.stderr!r}")
    under.pause()
    equal(under.status()["by_driver"], False, "whether the driver paused the cudaw job")
    under.resume()
    check("every word right" in under.finish(), "the cudaw job did not verify its memory")
    ends_well(job)


main(the_gpu_is_given_back, a_resume_waits_for_free_memory, paused_by_another_tool, a_long_kernel,
     strangers_on_one_gpu, what_it_refuses)
