#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stream-ordered allocations and memory pools are carried, and no memory is used again before its
stream has passed: ordered.c checks every word, the cases of fidelity.c ask.
"""
import subprocess

from simlib import MIB, SANITIZED, process_used, shared
from gpulib import CUDAW, PATIENCE, Job, base_environment, check, cudaw_ok, equal, main, until

STEPS = 60
BUSY = 2    # see ordered.c
ORDER = """\
  its own stream gets it at once: yes
  another stream gets it while the first is busy: no
  the other stream's memory has its contents: yes
"""
FULL = """\
its own stream, as much: CUDA_SUCCESS
another stream, half: CUDA_SUCCESS
  the first is still busy: yes
  so is the other: yes
another pool, half: CUDA_ERROR_OUT_OF_MEMORY
  the pointer: 0
the other stream's memory has its contents: yes
cuMemAlloc of half: CUDA_SUCCESS
"""
CAPTURED = """\
beside a {mode} capture: CUDA_SUCCESS
freed beside a {mode} capture: CUDA_SUCCESS
the end of the {mode} capture: CUDA_SUCCESS
nodes of the {mode} capture: 2
the graph's memory has its contents: yes
a free of it outside: CUDA_SUCCESS
"""
PIECES = "the pieces are freed: yes\nhalf: CUDA_SUCCESS\n"
ANSWERS = {
    "pool_order": "".join(f"in {where}\n{ORDER}" for where in (
        "a pool of the program", "the default pool", "the legacy stream", "the thread's stream",
        "a stream beside the thread's", "a stream after the end of a blocking one")),
    "pool_sizes": "".join(f"{size} bytes, other memory after their free: 0 times of 100\n"
                          "  the pool has no more memory than before: yes\n"
                          for size in (1000, (100 << 10) + 1, 2 * MIB - 1, 2 * MIB, 3 * MIB + 5, 5 * MIB + 1,
                                       11 * MIB, 17 * MIB, 33 * MIB)),
    "pool_legacy": "".join(f"freed in {where} stream, a stream apart gets it: no\n" * looks +
                           f"freed in {where} stream, it is the same memory: yes\n"
                           "  the later memory has its contents: yes\n" +
                           "  that of the stream apart, too: yes\n" * bool(looks)
                           for looks in (0, 3)
                           for where in ("the legacy", "a blocking", "the thread's")),
    "pool_reuse": "".join(f"after {how} synchronisation another stream gets it: yes\n"
                          "  the pool has no more memory than before: yes\n"
                          for how in ("a stream", "a context", "an event", "no")),
    "pool_events": """\
without an event another stream gets it: no
behind an event: yes
behind one of before the free: no
behind one that another stream has recorded since: no
behind a stream that is behind an event: yes
behind an event that the pool does not follow: no
""",
    "pool_ends": """\
a busy stream ends: CUDA_SUCCESS
the device's pool ends: CUDA_SUCCESS
the device has its default pool: yes
the end of the default pool: CUDA_ERROR_INVALID_VALUE
an allocation after it: CUDA_SUCCESS
memory of the pool that ended has its contents: yes
memory of the default pool, too: yes
a free of the memory whose pool ended: CUDA_SUCCESS
an allocation of that pool: CUDA_ERROR_INVALID_VALUE
""",
    "pool_captured": f"""\
{CAPTURED.format(mode="relaxed")}\
a free in a capture of memory from before: CUDA_ERROR_INVALID_VALUE
the end of that: CUDA_SUCCESS
freed then: CUDA_SUCCESS
{CAPTURED.format(mode="global")}""",
    "pool_access": """\
access at first: 0
cuMemPoolSetAccess: CUDA_SUCCESS
access then: 3
a set of earlier memory by the other GPU: CUDA_SUCCESS
a set of later memory: CUDA_SUCCESS
synchronising: CUDA_SUCCESS
the earlier memory has its contents: yes
the later memory, too: yes
""",
    "pool_access_usual": """\
cuMemPoolSetAccess: CUDA_SUCCESS
a set by the other GPU: CUDA_SUCCESS
synchronising: CUDA_SUCCESS
the memory has its contents: yes
""",
    "pool_free_busy": """\
cuMemFree while another stream is busy: CUDA_SUCCESS
  it has waited: no
  the pool has it for an allocation: yes
freed once more: CUDA_SUCCESS
freed twice: CUDA_ERROR_INVALID_VALUE
""",
    "pool_free_unused": "".join(f"in a stream{state}\n"
                                "  its own stream gets it at once: yes\n"
                                "  cuMemFree of it, unused: CUDA_SUCCESS\n"
                                "  another stream's memory has its contents: yes\n"
                                "  once the work has ended, another stream has got it: yes\n"
                                for state in ("", " that has ended")),
    "pool_seeks": "captures that broke: 0\n",
    "pool_waits": "the stream that waits is idle: no\n" +
                  3 * "another stream gets its memory: no\n",
    "pool_full": "".join(f"in {where} stream\n{FULL}" for where in ("a", "the thread's", "the legacy")),
    "pool_full_apart": """\
another stream, half: CUDA_ERROR_OUT_OF_MEMORY
  the first is still busy: yes
  so is the other: no
""",
    "pool_full_captured": """\
beside a capture, half: CUDA_ERROR_OUT_OF_MEMORY
  it returns at once: yes
  the capture's end: CUDA_SUCCESS
""",
    "pool_pieces": """\
half, of pieces that its own stream frees: CUDA_SUCCESS, waits for the kernel
half, of pieces that another stream frees: CUDA_SUCCESS, waits for the kernel
""",
    "pool_captured_ends": """\
the end of a stream that captures: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
  nodes of the capture: 1
another stream gets the memory: yes
""",
    "pool_threads": "after 40 threads the pool has memory for more than 10: no\n",
    "pool_pieces_synced": "allocations that failed: 0\n",
    "pool_pieces_calls": PIECES,
    "pool_too_much": """\
more than the GPU has free, beside a busy stream: CUDA_ERROR_OUT_OF_MEMORY
  it returns at once: yes
""",
    "pool_plain": "all memory was freed: yes\n",
    "pool_full_ends": "the stream's end: CUDA_SUCCESS\n",
}
# Of many answers; they name what is asked.
SOME_ANSWERS = {
    "pool_numbers": (
        "with 64 MiB and 1000 bytes, KiB used: 65536", "freed, KiB used: 0",
        "freed, KiB used at most: 65536", "synchronised, more is reserved than used: yes",
        "trimmed, more is reserved than used: yes", "reset, KiB used at most: 0",
        "64 MiB freed are still the pool's: yes", "after a synchronisation: no",
        "more than the threshold is reserved after a synchronisation: no"),
    "pool_pointers": (
        "  the value: none", "MEMPOOL_HANDLE: CUDA_SUCCESS", "  it is the pool: yes",
        "RANGE_SIZE: CUDA_SUCCESS", "  the value: 3145733", "no bytes: CUDA_SUCCESS",
        "cuMemFreeAsync of 0: CUDA_SUCCESS",
        "cuMemFreeAsync inside the memory: CUDA_ERROR_INVALID_VALUE",
        "cuMemFree of it: CUDA_SUCCESS", "more than the GPU has: CUDA_ERROR_OUT_OF_MEMORY"),
    "pool_context": (
        "an allocation in a stream of another context: CUDA_SUCCESS",
        "its free in the own one: CUDA_SUCCESS", "the context's end: CUDA_SUCCESS",
        "an allocation after it: CUDA_SUCCESS", "synchronising: CUDA_SUCCESS"),
}


def answers(name):
    def case():
        equal(Job("fidelity", name, env={"CUDAW_SIM_DEVICES": "2"}).result(), ANSWERS[name].rstrip(), "the answers")
    return name.replace("_", " "), case


def some_answers(name):
    def case():
        lines = Job("fidelity", name).result().splitlines()
        missing = [line for line in SOME_ANSWERS[name] if line not in lines]
        check(not missing, f"missing: {missing}, found {lines}")
    return name.replace("_", " "), case


def a_pause_takes_no_time_of_an_allocation_that_waits():
    """The work that it waits for goes on after the pause has given up."""
    job = Job("fidelity", "pool_pieces_calls")
    job.wait_line("the pieces are freed: yes")
    pause = subprocess.Popen([CUDAW, "pause", "--timeout", "12", str(job.pid)], text=True,
                             env=base_environment(), stderr=subprocess.PIPE)
    said = pause.communicate(timeout=60 * PATIENCE)[1]
    job.tell()      # until then it calls, so that a call waits for the pause
    equal(pause.returncode, 5, f"the exit status of the pause, which says {said!r}")
    equal(job.result(), PIECES.rstrip(), "the answers")


def the_memory_is_carried():
    job = Job("ordered", "--mib", 48, "--steps", 1000000, "--step-ms", 10, "--streams-end", BUSY)
    job.wait_steps(5)
    check(job.status()["carried"] >= 48 * MIB, f"{job.status()['carried']} bytes are carried")
    equal(job.status()["left_to_driver"], 0, "what is left to the driver")
    job.finish()


def trim_gives_back_what_pools_keep():
    """The program sleeps with a pool that keeps what it has freed; a step may be under way."""
    job = Job("ordered", "--mib", 4, "--threads", 1, "--keep-mib", 96, "--steps", 1000000,
              "--step-ms", 300)
    job.wait_steps(2)

    def given():
        said = cudaw_ok("trim", job.pid)
        return float(said.split("GiB of host memory and ")[1].split()[0])
    until(lambda: given() >= 0.09, 10, "trim gives back what the pool keeps")
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_resume_needs_no_memory_for_what_pools_keep():
    job = Job("ordered", "--mib", 4, "--threads", 1, "--keep-mib", 96, "--steps", 1000000,
              "--step-ms", 20)
    job.wait_steps(2)
    before = process_used(job.pid)
    job.pause()
    job.resume()
    after = process_used(job.pid)
    check(after < before - 64, f"{before} MiB before the pause, {after} after the resume")
    check("every word right" in job.finish(), "the job did not verify its memory")


main(*map(answers, ANSWERS), *map(some_answers, SOME_ANSWERS),
     a_pause_takes_no_time_of_an_allocation_that_waits, the_memory_is_carried,
     trim_gives_back_what_pools_keep, a_resume_needs_no_memory_for_what_pools_keep,
     *shared("pauses.py", 6, "ordered", "--steps", STEPS, "--step-ms", 2,
             "--streams-end", BUSY, "--pools-end", BUSY, "--green", 1),
     *shared("checked.py", "ordered", "--steps", 30, "--threads", 1, "--green", 1))
