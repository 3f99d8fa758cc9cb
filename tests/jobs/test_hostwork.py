#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pause while the GPU waits for a thread of the program, which waits in a CUDA call because of the pause."""
import re

import simlib    # noqa: F401  pylint: disable=unused-import
from snapshotjobs import connected, end_of
from gpulib import Job, check, cudaw, equal, main, until

FUNCTION, CALLBACK, GRAPH, VALUE, QUEUE = range(5)
KNOWN_CALLS = 20    # they are let in at once where it is known that a host function runs


def waiting(kind, calls, *args):
    job = Job("hostwork", "--kind", kind, "--calls", calls, *args)
    job.wait_line("waits")
    return job


def ends_well(job):
    job.wait_line("through")
    job.tell()
    job.result()


def goes_through(kind, calls, *args):
    """The thread makes its calls when the gate is closed, and the pause succeeds."""
    job = waiting(kind, calls, *args)
    pause = connected(job, b"pause 60000\n")
    until(lambda: b"progress drain" in pause.recv(4096), 10, "the gate is closed")
    job.tell()
    equal(end_of(pause), "end ok", "the answer")
    equal(job.state(), "paused", "the state")
    job.resume()
    ends_well(job)


def a_lock_for_a_host_function():
    goes_through(FUNCTION, KNOWN_CALLS)


def a_lock_of_a_thread_that_launches_host_functions():
    goes_through(FUNCTION, KNOWN_CALLS, "--launches", 3)


def a_lock_beside_a_thread_that_launches_host_functions():
    goes_through(FUNCTION, KNOWN_CALLS, "--beside", 1)


def a_lock_for_a_callback():
    goes_through(CALLBACK, KNOWN_CALLS)


def a_lock_for_a_host_function_in_a_graph():
    goes_through(GRAPH, 1)


def a_call_that_waits_for_the_gpu():
    goes_through(FUNCTION, KNOWN_CALLS, "--frees", 1)


def a_trim_beside_such_a_call():
    job = waiting(FUNCTION, KNOWN_CALLS, "--frees", 1)
    trim = connected(job, b"trim\n")
    equal(job.state(), "running", "the state, which is told after the trim has begun")
    job.tell()
    equal(end_of(trim), "end ok", "the answer")
    ends_well(job)


def a_value_in_memory():
    goes_through(VALUE, 1)


def host_functions_that_only_take_a_while():
    """If calls were let in for each, there would always be another one."""
    job = waiting(QUEUE, 1)
    job.pause()
    job.resume()
    job.tell()
    ends_well(job)


def what_did_not_end_is_named():
    for kind, what in ((FUNCTION, r"the host function 0x[0-9a-f]+ in stream 0x[0-9a-f]+"),
                       (VALUE, "kernels, host functions or waits for a value")):
        job = waiting(kind, 1)
        done = cudaw("pause", "--timeout", "0.3", job.pid)
        equal(done.returncode, 5, "the exit code")
        check(re.search(f"{what} did not end within", done.stderr), f"it says {done.stderr!r}")
        job.tell()
        ends_well(job)


main(a_lock_for_a_host_function, a_lock_of_a_thread_that_launches_host_functions,
     a_lock_beside_a_thread_that_launches_host_functions, a_lock_for_a_callback, a_lock_for_a_host_function_in_a_graph,
     a_call_that_waits_for_the_gpu, a_trim_beside_such_a_call, a_value_in_memory, host_functions_that_only_take_a_while,
     what_did_not_end_is_named)
