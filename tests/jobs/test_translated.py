#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Translated addressing (CUDAW_ADDRESSING=translated) on the simulated driver."""
import os
import re

os.environ["CUDAW_SIM_FRESH"] = "1"  # memory comes back at other addresses

from simlib import (SANITIZED, TSAN, errors_of_cudaw, paused_and_resumed,  # noqa: E402
                    shared, unsanitized)
from gpulib import (SCRATCH, Job, check, cudaw, equal, main,  # noqa: E402
                    same_lines)

TRANSLATED = {"CUDAW_ADDRESSING": "translated"}
GRAPHS = {**TRANSLATED, "CUDAW_RELEASE": "memory"}
OUTSIDE = "has a pointer that may be of two allocations, or lies outside of one"
PAUSES = 2 if SANITIZED else 4


def through_pauses(steps, program, *args):
    return shared("translated.py", PAUSES, program, *args, "--step-ms", 5, "--steps",
                  steps * PAUSES, TAKER={}, RELEASE="memory" if TSAN else "all")


@unsanitized
def what_a_pause_left_is_taken():
    """As on a GPU, where memory comes back where it was as long as nobody else is there."""
    (_, moves), = shared("translated.py", 2, "counter", "--step-ms", 5, "--steps", 80)
    os.environ["CUDAW_SIM_FRESH"] = "0"
    try:
        moves()
    finally:
        os.environ["CUDAW_SIM_FRESH"] = "1"


def without_vmm(program):
    """Where a device cannot map memory addresses are translated, and it is said where one looks."""
    log = os.path.join(SCRATCH, f"log-{program}")
    job = Job(program, "--steps", 100000000, "--step-ms", 10,
              env={"CUDAW_SIM_NO_VMM": "1", "CUDAW_LOG": "debug", "CUDAW_LOG_FILE": log})
    job.wait_steps(3)
    check(job.status()["carried"] > 0, "nothing is managed")
    equal(job.status()["addressing"], "translated", "the addressing")
    paused_and_resumed(job, 3)
    why = "GPU 0 (Simulated GPU) has no virtual memory management"
    lines = cudaw("ps").stdout.splitlines()
    check(f"{job.pid}: translated addresses: {why}" in lines, f"cudaw ps says {lines}")
    check("every word right" in job.finish(), "the job did not verify its memory")
    equal(errors_of_cudaw(job), [], "what cudaw says on stderr")
    with open(log, encoding="utf-8") as file:
        said = file.read()
    equal(said.count(f"addresses are translated: {why}"), 1, "times that it is logged")
    halves = re.findall(r"bytes at 0x[0-9a-f]{4}([0-9a-f]{8}) are", said)
    check(halves and min(halves) >= "50000000", f"lower halves of addresses: {halves}")


def devices_without_vmm():
    without_vmm("counter")


def functions_from_before_cuinit():
    without_vmm("early")


def devices_that_can_map():
    for name, value, addressing in (("ADDRESSING", "", "mapped"), ("ADDRESSING", "mapped", "mapped"),
                                    ("TO_DRIVER", "memory", "native")):
        job = Job("early", "--steps", 100000000, "--step-ms", 10, env={f"CUDAW_{name}": value})
        job.wait_steps(3)
        equal(job.status()["addressing"], addressing, "the addressing")
        check("every word right" in job.finish(), "the job did not verify its memory")


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
    for case in ("right-launches", "right-copies", "right-batch", "right-queries",
                 "right-ranges"):
        equal(wrong(case), (["CUDA_SUCCESS", "as before"], []), f"what came of {case}")


def buffers_of_any_size():
    equal(wrong("launch-too-large"), (["CUDA_ERROR_INVALID_VALUE", "as before"], []),
          "what came of a buffer of 1 TiB")


def the_bench_of_launches_finds_the_driver():
    """Beside it every mode would cost nothing."""
    for addressing in ("mapped", "translated"):
        job = Job("launches", env={"CUDAW_ADDRESSING": addressing})
        job.wait_line("ready")
        check("the driver is another" in job.lines, f"launches says {job.lines}")
        job.process.stdin.close()
        job.result()


def what_cannot_be_followed_is_refused():
    equal(wrong("params-set"), (["CUDA_ERROR_NOT_SUPPORTED", "as before"], []),
          "what came of a pointer for cuLaunch()")


def pointers_in_gpu_memory_are_reported():
    lines, said = wrong("right-list")
    equal(lines, ["CUDA_SUCCESS", "as before"], "the result")
    check(len(said) == 1 and "looks like a pointer" in said[0], f"cudaw says {said}")


def pause_is_refused(job, why):
    """It harms nothing."""
    job.wait_steps(3)
    done = cudaw("pause", job.pid)
    equal(done.returncode, 6, f"the exit code of cudaw pause: {done.stderr!r}")
    check(why in done.stderr, f"cudaw pause says {done.stderr!r}")
    equal(job.state(), "running", "the state after it")
    job.wait_steps(job.steps() + 3)


def node_writes(pauses, **env):
    counts = os.path.join(SCRATCH, "counts")
    job = replay(CUDAW_SIM_COUNT=counts, **env)
    paused_and_resumed(job, pauses)
    job.wait_steps(job.steps() + 3)
    job.finish()
    with open(counts, encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file
                   if line.startswith("cuGraphKernelNodeSetParams"))


def graphs_are_written_anew_where_nothing_moves():
    """As often as where everything does: what was allocated there before is not there now."""
    moving = node_writes(6)
    check(moving > 0, "no node was written")
    equal(node_writes(6, CUDAW_SIM_FRESH="0"), moving, "nodes written")


def fixed_graphs_are_in_the_way_of_a_pause():
    """A graph with allocation nodes cannot be cloned."""
    job = Job("memory_kinds", "--kind", "graph_mem", "--steps", 100000000, "--step-ms", 10,
              env=GRAPHS)
    pause_is_refused(job, "graphs (CUDAW_ADDRESSING=translated) cannot be carried: one has nodes "
                          "that the driver does not clone")
    job.finish()


def refused(why, *args):
    job = Job("graph_nodes", *args, "--steps", 100000000, "--step-ms", 10, env=GRAPHS)
    pause_is_refused(job, why)
    job.finish()


def pointers_of_two_allocations():
    """The simulator puts one right behind the other: what is the end of one begins the next."""
    refused(OUTSIDE, "--outside", 1)


def pointers_before_an_allocation():
    refused(OUTSIDE, "--outside", 2)


def pointers_that_a_pool_may_have():
    """The simulator puts what is allocated later right before it."""
    refused(OUTSIDE, "--outside", 3)


def windows_of_kernels():
    refused("has a kernel with an access policy window", "--windows", 2)


def nodes_of_another_graph():
    refused("has a node that was changed, of a graph that it was not last updated with",
            "--stray", 1, "--only", 7)


def replay(**env):
    job = Job("memory_kinds", "--kind", "graph_replay", "--steps", 100000000, "--step-ms", 10,
              env={**GRAPHS, **env})
    job.wait_steps(3)
    return job


def an_update_that_is_refused():
    """It is tried before memory moves: the pause fails, and can be asked for again."""
    job = replay(CUDAW_SIM_FAULT="cuGraphExecUpdate_v2:1:910")
    pause_is_refused(job, "1 graph (CUDAW_ADDRESSING=translated) cannot be carried: it has nodes "
                          "that the driver does not update")
    paused_and_resumed(job)
    job.wait_steps(job.steps() + 3)
    job.finish()


def an_update_that_fails():
    """The graph has the addresses before the move: it must not run."""
    job = replay(CUDAW_SIM_FAULT="cuGraphExecUpdate_v2:2:999")
    job.pause()
    done = cudaw("resume", job.pid)
    why = "1 graph could not be given the addresses that memory has now (driver error 999)"
    said = done.stdout + done.stderr
    # It may have ended before the answer.
    check(why in said or "it has ended since" in said, f"cudaw resume says {said!r}")
    equal(job.wait_end(10), 1, "the exit status")
    stderr = job.stderr()
    check(why in stderr, f"cudaw says {stderr!r}")
    check("cuGraphLaunch" in stderr and "910" in stderr, f"the program says {stderr!r}")


def a_graph_that_is_updated_after_that():
    """The update gives it the addresses of now: it may run again, and be carried again."""
    steps = 800
    args = ("--only", 3, "--mend", 1, "--steps", steps, "--step-ms", 5)
    native = Job("graph_nodes", *args, mode="native")
    # A pause tries both graphs, so that the fourth update is the second graph's in the resume.
    job = Job("graph_nodes", *args, env={**GRAPHS, "CUDAW_SIM_FAULT": "cuGraphExecUpdate_v2:4:999"})
    job.wait_steps(3)
    job.pause()
    cudaw("resume", job.pid)
    job.wait_steps(min(steps, job.steps() + 3))
    paused_and_resumed(job)
    lines = job.result().splitlines()
    equal(lines.count("mended"), 1, "how often its launch was refused")
    same_lines("\n".join(line for line in lines if line != "mended"), native.result(),
               "after its update")


main(*through_pauses(40, "counter"), *through_pauses(40, "churn"),
     *through_pauses(40, "symbols"), *through_pauses(40, "soak", "--threads", 4),
     *through_pauses(60, "graph_nodes", "--windows", 1, "--unload", 1),
     *through_pauses(30, "graph_nodes", "--stray", 2, "--only", 7),
     nodes_of_another_graph,
     *through_pauses(40, "calls", "--all", 1),
     *through_pauses(60, "memory_kinds", "--kind", "graph_replay"),
     what_a_pause_left_is_taken, devices_without_vmm, functions_from_before_cuinit,
     devices_that_can_map, only_the_memory_is_released, every_launch_and_copy,
     buffers_of_any_size, the_bench_of_launches_finds_the_driver,
     what_cannot_be_followed_is_refused, pointers_in_gpu_memory_are_reported,
     graphs_are_written_anew_where_nothing_moves, fixed_graphs_are_in_the_way_of_a_pause,
     pointers_of_two_allocations, pointers_before_an_allocation,
     pointers_that_a_pool_may_have, windows_of_kernels,
     an_update_that_is_refused, an_update_that_fails, a_graph_that_is_updated_after_that)
