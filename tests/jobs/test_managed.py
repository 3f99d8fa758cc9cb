#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CUDAW_MANAGED=host on the simulated driver: managed memory from host memory, answered for as if it
were the driver's, and no obstacle for a pause. managed.txt has the answers that are expected.
"""
import os

from simlib import MIB, SANITIZED, errors_of_cudaw, paused_and_resumed, shared, unsanitized
from gpulib import SCRATCH, Group, Job, check, cudaw, cudaw_ok, equal, main, same_lines

HOST = {"CUDAW_MANAGED": "host"}
ANSWERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "managed.txt")


def expected():
    """{case: its answers}"""
    with open(ANSWERS, encoding="ascii") as file:
        sections = file.read().split("== ")[1:]
    return dict(section.split("\n", 1) for section in sections)


def answers_are_those_of_managed_memory(case, text):
    def run():
        job = Job("managed", case, env={**HOST, "CUDAW_SIM_DEVICES": "2"})
        same_lines(job.result(), text, f"in the case {case}")
        equal(errors_of_cudaw(job), [], "what cudaw says on stderr")
    return f"managed {case}", run


def the_driver_serves_it_without_the_setting():
    """Then a pause that releases the GPU is refused, and its message names the setting."""
    job = Job("managed_run", "--mib", 4, "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    equal(job.status()["left_to_driver"], 4 << 20, "the bytes left to the driver")
    done = cudaw("pause", "--release", "all", job.pid)
    equal(done.returncode, 6, "the exit code of cudaw pause")
    check("1 managed allocation (cuMemAllocManaged) cannot be carried" in done.stderr and
          "CUDAW_MANAGED=host" in done.stderr, f"cudaw pause says {done.stderr!r}")
    job.finish()


def a_managed_variable_keeps_the_context_on_the_gpu():
    """The driver has it, with the setting too; the pause says what may be the reason."""
    job = Job("memory_kinds", "--kind", "managed_var", "--steps", 1000000, "--step-ms", 10, env=HOST)
    job.wait_steps(3)
    for _ in range(2):
        done = cudaw("pause", "--release", "all", job.pid)
        equal(done.returncode, 0, "the exit code of cudaw pause")
        check("the context stays on the GPU" in done.stdout + done.stderr and
              "__managed__ variables" in done.stdout + done.stderr, f"cudaw pause says {done}")
        job.check_still()
        job.resume()
        job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def with_other_settings(**env):
    job = Job("managed_run", "--mib", 4, "--steps", 1000000, "--step-ms", 10, env={**HOST, **env})
    job.wait_steps(3)
    equal(job.status()["left_to_driver"] < 4 << 20, True, "little is left to the driver")
    paused_and_resumed(job, 2)
    check("every word right" in job.finish(), "the job did not verify its memory")


def with_translated_addresses():
    """Also what the driver is told of other memory, in all forms of the calls."""
    with_other_settings(CUDAW_ADDRESSING="translated")
    for case in ("hints", "batches"):
        job = Job("managed", case, env={**HOST, "CUDAW_ADDRESSING": "translated"})
        same_lines(job.result(), expected()[case], f"in the case {case}")


def with_native_addresses_and_checks():
    with_other_settings(CUDAW_TO_DRIVER="memory")
    with_other_settings(CUDAW_CHECK="strict")


def a_snapshot_of_the_gpu_memory():
    job = Job("managed_run", "--mib", 4, "--steps", 1000000, "--step-ms", 10, env=HOST)
    job.wait_steps(3)
    cudaw_ok("snapshot", "--gpu-only", job.pid, os.path.join(SCRATCH, "snapshot"))
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def with_little_gpu_memory():
    """The driver needs some for what maps the host memory: it gets what cudaw keeps."""
    job = Job("managed", "kept", env={**HOST, "CUDAW_SIM_FAULT": "cuMemHostAlloc:1:2"})
    equal(job.result(), "cuMemAllocManaged: CUDA_SUCCESS", "the answer")


def more_than_there_is():
    """The allocation fails, and says why: no other process is killed for it."""
    job = Job("managed_run", "--mib", 1 << 26, env=HOST)
    job.wait_end()
    equal(job.process.returncode, 1, "the exit code of the program")
    check("error 2" in job.stderr(), f"the program says {job.stderr()!r}")
    check(any("bytes of host memory are available" in line for line in errors_of_cudaw(job)),
          f"cudaw says {errors_of_cudaw(job)}")


def more_than_there_is_in_small_pieces():
    with Group(1000 * MIB) as group:
        job = Job(*group.command("managed", "small_ones"), env=HOST)
        equal(job.result(), "one of many small allocations: CUDA_ERROR_OUT_OF_MEMORY", "the answer")


main(*[answers_are_those_of_managed_memory(case, text) for case, text in expected().items()],
     *[(name, case)
       for name, case in shared("managed.py", STEPS=120, STEP_MS=3, STILL=0.04, MIB=1 if SANITIZED else 8)
       if name.startswith("paused")],
     the_driver_serves_it_without_the_setting, a_managed_variable_keeps_the_context_on_the_gpu,
     with_translated_addresses, with_native_addresses_and_checks, a_snapshot_of_the_gpu_memory,
     with_little_gpu_memory, more_than_there_is, unsanitized(more_than_there_is_in_small_pieces))
