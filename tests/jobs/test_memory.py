#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Too little memory, on the host or on the GPU, and a driver that cannot map memory."""
import json
import os
import re
import signal
import time

from simlib import (HELD, MIB, SCRATCH, errors_of_cudaw, gpu_used, hold, let_go, unsanitized,
                    waits_for_memory)
from gpulib import BUILD, Group, Job, check, cudaw, cudaw_ok, equal, hog, main

COUNTER = os.path.join(BUILD, "tests", "programs", "counter")
HOSTMEM_RESERVE = 256 * MIB     # as common/system/hostmem.h has it
ENDLESS = ("--steps", 1000000, "--step-ms", 10)


def counter_in(group, mib, **env):
    job = Job(*group.command("counter", "--mib", mib, *ENDLESS), env=env)
    job.wait_steps(3)
    return job


def refused_for_host_memory(group):
    """In words and figures; and the job runs on."""
    job = counter_in(group, 768, CUDAW_RELEASE="memory")
    done = cudaw("pause", job.pid)
    equal(done.returncode, 1, f"the exit code of cudaw pause ({done.stderr.strip()})")
    figures = re.search(r"([\d.]+) GiB to be saved, ([\d.]+) GiB of host memory available .*"
                        r": ([\d.]+) GiB are missing", done.stderr)
    check(figures, f"stderr does not say why: {done.stderr!r}")
    needed, available, missing = map(float, figures.groups())
    check(0.7 < needed < 0.8 and abs(needed - available - missing) < 0.02,
          f"the figures are {figures[0]!r}")
    equal(job.state(), "running", "the state after it")
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def too_little_host_memory():
    """The simulated GPU's memory is shared memory of the group: page cache, but not free."""
    with Group(1400 * MIB) as group:
        job = counter_in(group, 64)
        job.pause()
        job.resume()
        job.finish()
        refused_for_host_memory(group)


def too_little_host_memory_for_the_group_around():
    with Group(1400 * MIB, inner=True) as group:
        refused_for_host_memory(group)


def no_host_memory_but_a_disk():
    """What is left alone is not there itself: all that is saved goes to disk."""
    with Group(HOSTMEM_RESERVE) as group:
        job = counter_in(group, 32, CUDAW_RELEASE="memory", CUDAW_SPILL_DIR=SCRATCH)
        job.pause()
        status = job.status()
        equal(status["paused"], 0, "the bytes in host memory")
        check(status["spilled"] >= 32 * MIB, f"{status['spilled']} bytes spilled")
        told = [json.loads(line) for line in cudaw_ok("events", "--json").splitlines()][-1]
        equal((told["event"], told["bytes"]), ("paused", status["spilled"]), "the last event, and how much went out")
        job.resume()
        check("every word right" in job.finish(), "the job did not verify its memory")


def a_pause_that_ends_a_resume():
    """The host memory of the one is free for the other."""
    with Group(1000 * MIB) as group:
        job = counter_in(group, 256, CUDAW_RELEASE="memory", CUDAW_HOST_POOL="0", **HELD)
        for _ in range(3):
            job.pause()
            hold("in")
            job.send(signal.SIGUSR2)
            job.wait_state("resuming")
            cudaw_ok("pause", "--no-wait", job.pid)
            let_go("in")
            job.wait_state("paused")
            job.resume()
        check("every word right" in job.finish(), "the job did not verify its memory")


def captures_while_host_memory_is_prepared():
    """Pinning is forbidden beside a global capture, and would break it."""
    job = Job("capture", "--capture-ms", 100, "--global", 1, "--grow-mib", 64, "--steps", 30,
              env={"CUDAW_PREPARE": "1", "CUDAW_RELEASE": "memory"})
    check("every word right" in job.result(), "the job did not verify its memory")


def too_few_addresses():
    """Under ulimit -v the program has the memory that it would get natively."""
    job = Job("/bin/sh", "-c", f"ulimit -v 60000000 && exec {COUNTER} --mib 64 "
              "--steps 1000000 --step-ms 10")
    job.wait_steps(3)
    equal(job.status()["carried"], 0, "the bytes managed")
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")
    said = [line for line in errors_of_cudaw(job) if "cannot reserve" in line]
    check(len(said) == 1 and "ulimit -v" in said[0], f"cudaw says {errors_of_cudaw(job)}")


def waiting():
    """A job that waits for GPU memory, and the process that has it."""
    job = Job("counter", "--mib", 32, *ENDLESS)
    job.wait_steps(3)
    return job, waits_for_memory(job)


def a_pause_cancels_a_waiting_resume():
    job, other = waiting()
    job.pause()
    other.discard()
    time.sleep(0.5)
    equal(job.state(), "paused", "the state once there is memory")
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_waiting_resume_by_the_command_ends_with_success():
    job, other = waiting()
    other.process.kill()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def sigterm_while_waiting():
    job, _ = waiting()
    job.send(signal.SIGTERM)
    equal(job.wait_end(10), -signal.SIGTERM, "the exit status")


def no_virtual_memory_management():
    """With mapped addressing asked for: the program runs on; the driver alone moves its memory."""
    job = Job("counter", "--mib", 64, *ENDLESS,
              env={"CUDAW_SIM_NO_VMM": "1", "CUDAW_ADDRESSING": "mapped"})
    job.wait_steps(3)
    equal(job.status()["carried"], 0, "the bytes managed")
    check(job.status()["left_to_driver"] >= 64 * MIB, "cudaw ps shows nothing left to the driver")
    job.pause()
    job.check_still()
    equal(gpu_used(), 0, "the MiB in use while paused")
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")
    said = errors_of_cudaw(job)
    check(len(said) == 1 and "CUDAW_ADDRESSING=mapped: the driver gives no virtual memory" in
          said[0], f"cudaw says {said}")


def the_gpu_is_full():
    """The program gets the error that it would get; what it has is as it was."""
    other, _ = hog("--mib", 3900)
    job = Job("counter", "--mib", 1024, *ENDLESS)
    equal(job.wait_end(), 1, "the exit status of a program that finds no memory")
    check("cuMemAlloc" in job.stderr(), f"it says {job.stderr()!r}")
    check(not errors_of_cudaw(job), f"cudaw says {errors_of_cudaw(job)}")
    check(not other.ended(), "the other program ended")


main(unsanitized(too_little_host_memory),
     unsanitized(too_little_host_memory_for_the_group_around),
     unsanitized(no_host_memory_but_a_disk), unsanitized(a_pause_that_ends_a_resume),
     captures_while_host_memory_is_prepared, unsanitized(too_few_addresses),
     a_pause_cancels_a_waiting_resume,
     a_waiting_resume_by_the_command_ends_with_success, sigterm_while_waiting,
     no_virtual_memory_management, the_gpu_is_full)
