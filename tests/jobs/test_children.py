#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Children, in each way that a process can have some: those that share their parent's memory change
nothing of it, and those of a fork work whatever the parent's other threads were doing.
"""
import os
import signal
import socket
import sys

from simlib import SANITIZED, errors_of_cudaw, not_by_tsan, unsanitized
from gpulib import RUNTIME_DIR, Job, check, equal, main, proc_status, until

WAYS = ("vfork that resets handlers", "vfork that is ended by a signal",
        "vfork that handles signals otherwise", "vfork that gets signals",
        "clone that resets handlers", "clone that is ended by a signal",
        "clone that handles signals otherwise", "posix_spawn", "system", "popen")
EXITS_WITHIN = 11
OTHER_WAYS = {12: "a child with its parent's actions", 13: "a fork after a signal that pauses"}
# A fork of a program with sanitizers takes 100 times as long.
FORKS, STARTS = (100, 5) if SANITIZED else (2000, 60)


def quiet_result(job):
    result = job.result()
    equal(errors_of_cudaw(job), [], "what cudaw said")
    return result


def in_way(way):
    equal(quiet_result(Job("children", "--way", way)), f"children: way {way}: all handlers there",
          "the output")


def cases_of_ways():
    for way, name in enumerate(WAYS, 1):
        yield f"a child by {name}", not_by_tsan(lambda way=way: in_way(way))
    for way, name in OTHER_WAYS.items():
        yield name, not_by_tsan(lambda way=way: in_way(way))


def a_child_that_exits_in_our_memory():
    """The exit handlers that it runs are its parent's, which can be paused after it all the same."""
    job = Job("children", "--way", EXITS_WITHIN, "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    job.pause()
    job.check_still()
    job.resume()
    job.wait_steps(job.steps() + 3)
    job.discard()


def forks_beside_handlers_and_calls():
    equal(quiet_result(Job("fork_storm", "--forks", FORKS)), f"fork_storm: {FORKS} children ended",
          "the output")


def listens(pid):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
            return True
        except (FileNotFoundError, ConnectionRefusedError):
            return False


def forks_while_cuda_starts():
    """No child has the socket of its parent, whose death closes it."""
    for _ in range(STARTS):
        job = Job("fork_start")
        job.wait_line("ready")
        check(listens(job.pid), "the job does not listen")
        job.process.kill()
        job.process.wait()
        until(lambda: not listens(job.pid), 20, "no child listens for its dead parent")
        job.process.stdin.close()
        job.discard()


PYTHON = """
import signal, subprocess, sys, time
if sys.argv[1] == "TERM":
    def ended(*_):
        sys.exit("saved")
    signal.signal(signal.SIGTERM, ended)
for _ in range(3):
    subprocess.run(["true"], check=True)
print("ready", flush=True)
time.sleep(60)
"""


def python_ends(name):
    """Its exit status and what it said, natively and under cudaw."""
    ends = []
    for mode in ("native", "run"):
        job = Job(sys.executable, "-c", PYTHON, name, mode=mode)
        job.wait_line("ready")
        # It says where it was interrupted.
        job.until(lambda j=job: proc_status(j.pid)["State"].startswith("S"), 10, "it sleeps")
        job.send(getattr(signal, f"SIG{name}"))
        ends.append((job.wait_end(10), job.discard()))
    return ends


def sigint_after_a_subprocess_of_python():
    native, under = python_ends("INT")
    check("KeyboardInterrupt" in under[1], f"it said {under[1]!r}")
    equal(under, native, "the exit status and stderr")


def sigterm_after_a_subprocess_of_python():
    native, under = python_ends("TERM")
    equal(under, native, "the exit status and stderr")
    equal(under, (1, "saved\n"), "the exit status and stderr")


main(*cases_of_ways(), not_by_tsan(a_child_that_exits_in_our_memory),
     not_by_tsan(forks_beside_handlers_and_calls), not_by_tsan(forks_while_cuda_starts),
     unsanitized(sigint_after_a_subprocess_of_python),
     unsanitized(sigterm_after_a_subprocess_of_python))
