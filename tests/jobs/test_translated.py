#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Translated addressing (CUDAW_ADDRESSING=translated) on the simulated driver."""
import os

os.environ["CUDAW_SIM_FRESH"] = "1"  # memory comes back at other addresses

from simlib import SANITIZED, errors_of_cudaw, paused_and_resumed, shared  # noqa: E402
from gpulib import Job, check, cudaw, equal, main  # noqa: E402

TRANSLATED = {"CUDAW_ADDRESSING": "translated"}
PAUSES = 1 if SANITIZED else 3


def through_pauses(steps, program, *args):
    return shared("translated.py", PAUSES, program, *args, "--step-ms", 5, "--steps", steps * PAUSES)


def without_vmm():
    """A device that cannot map memory: translated, its jobs can be paused."""
    job = Job("counter", "--steps", 100000000, "--step-ms", 2,
              env={**TRANSLATED, "CUDAW_SIM_NO_VMM": "1"})
    job.wait_steps(3)
    check(job.status()["managed"] > 0, "nothing is managed")
    paused_and_resumed(job, 3)
    check("every word right" in job.finish(), "the job did not verify its memory")
    equal(errors_of_cudaw(job), [], "what cudaw says on stderr")


def only_the_memory_is_released():
    job = Job("soak", "--threads", 4, "--contexts", 2, "--steps", 100000000,
              env={**TRANSLATED, "CUDAW_RELEASE": "memory"})
    job.wait_steps(3)
    paused_and_resumed(job, 5)
    check("every byte right" in job.finish(), "the job did not verify its memory")


def wrong(case, **env):
    job = Job("wrong", case, env={**TRANSLATED, **env})
    return job.result().splitlines(), errors_of_cudaw(job)


def every_launch_and_copy():
    for case in ("right-launches", "right-copies", "right-queries"):
        equal(wrong(case), (["CUDA_SUCCESS", "as before"], []), f"what came of {case}")


def checks_as_well():
    lines, said = wrong("launch-struct-freed", CUDAW_CHECK="1")
    equal(lines, ["CUDA_ERROR_ILLEGAL_ADDRESS", "as before"], "the result")
    check(len(said) == 1 and "which was freed" in said[0], f"cudaw says {said}")


def pointers_in_gpu_memory_are_reported():
    lines, said = wrong("right-list")
    equal(lines, ["CUDA_SUCCESS", "as before"], "the result")
    check(len(said) == 1 and "looks like a pointer" in said[0], f"cudaw says {said}")


def fixed_graphs_are_in_the_way_of_a_pause():
    """A graph with allocation nodes cannot be cloned: a pause is refused, and harms nothing."""
    job = Job("memory_kinds", "--kind", "graph_mem", "--steps", 100000000, "--step-ms", 2,
              env=TRANSLATED)
    job.wait_steps(3)
    done = cudaw("pause", job.pid)
    equal(done.returncode, 6, f"the exit code of cudaw pause: {done.stderr!r}")
    check("graphs (CUDAW_ADDRESSING=translated) cannot be carried: one has nodes that the driver "
          "does not clone" in done.stderr, f"cudaw pause says {done.stderr!r}")
    equal(job.state(), "running", "the state after it")
    job.wait_steps(job.steps() + 3)
    job.finish()


main(*through_pauses(10, "counter"), *through_pauses(10, "churn"),
     *through_pauses(10, "symbols"),
     *through_pauses(15, "soak", "--threads", 4), *through_pauses(60, "graph_nodes"),
     *through_pauses(15, "memory_kinds", "--kind", "graph_replay"), without_vmm,
     only_the_memory_is_released, every_launch_and_copy, checks_as_well,
     pointers_in_gpu_memory_are_reported, fixed_graphs_are_in_the_way_of_a_pause)
