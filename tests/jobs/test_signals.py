#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals: those that pause and resume, at awkward moments and with handlers of the program's own,
and those that end a paused job. The capture of signals.py needs the CUDA runtime; test_calls.py has
one of the driver API.
"""
import signal
import time

from simlib import errors_of_cudaw, shared, unsanitized
from gpulib import Job, check, equal, jobs, main

HOW = {"signal()": 1, "SA_SIGINFO": 2, "SIG_IGN": 3, "a handler from before cudaw": 4}


def with_handlers(how):
    job = Job("handlers", "--how", HOW[how], "--steps", 10000000, "--step-ms", 2)
    job.wait_steps(3)
    for _ in range(2):
        job.pause("signal")
        job.check_still(0.1)
        job.resume("signal")
        job.wait_steps(job.steps() + 3)
    got = 0 if how == "SIG_IGN" else 2
    equal(job.finish().splitlines()[-1], f"handlers: got {got} and {got}", "the last line")


def handlers(how):
    return f"with {how} in the program", lambda: with_handlers(how)


def running(**env):
    job = Job("counter", "--mib", 64, "--steps", 1000000, "--step-ms", 2, env=env)
    job.wait_steps(3)
    return job


def goes_on(job):
    job.wait_steps(job.steps() + 3)
    equal(job.state(), "running", "the state")


def other_signals():
    job = running(CUDAW_SIGNAL_PAUSE="SIGWINCH", CUDAW_SIGNAL_RESUME="RTMIN+3")
    job.send(signal.SIGWINCH)
    job.wait_state("paused")
    job.check_still()
    job.send(signal.SIGRTMIN + 3)
    job.wait_state("running")
    job.send(signal.SIGUSR1)    # nobody handles it now
    equal(job.wait_end(), -signal.SIGUSR1, "the exit status after SIGUSR1")


def a_signal_by_number():
    job = running(CUDAW_SIGNAL_PAUSE=str(int(signal.SIGURG)))
    job.send(signal.SIGURG)
    job.wait_state("paused")
    job.resume("signal")
    job.finish()


def no_signal():
    """With none the signal is the program's own again; the command pauses it all the same."""
    job = running(CUDAW_SIGNAL_PAUSE="none", CUDAW_SIGNAL_RESUME="none")
    job.pause()
    job.resume()
    job.send(signal.SIGUSR1)
    equal(job.wait_end(), -signal.SIGUSR1, "the exit status after SIGUSR1")


def nonsense_for_a_signal():
    for name in ("SIGNONSENSE", "0", "KILL", "-1", "RTMIN+900", ""):
        job = running(CUDAW_SIGNAL_PAUSE=name)
        job.pause("signal")
        job.resume("signal")
        job.finish()
        said = [line for line in errors_of_cudaw(job) if "CUDAW_SIGNAL_PAUSE" in line]
        equal(len(said), 1, f"the number of lines about CUDAW_SIGNAL_PAUSE={name!r}")


def exit_while_paused_before_cuda():
    """Told to pause and to end before its first CUDA call, a program ends as it would."""
    job = Job("counter", "--start-ms", 500, "--steps", 1000000, "--step-ms", 5)
    time.sleep(0.2)
    job.send(signal.SIGUSR1)
    job.send(signal.SIGTERM)
    equal(job.wait_end(10), -signal.SIGTERM, "the exit status")


def sigkill_does_not_block_the_next_start():
    for _ in range(3):
        job = running()
        job.pause()
        job.send(signal.SIGKILL)
        equal(job.wait_end(10), -signal.SIGKILL, "the exit status")
        check(job.pid not in jobs(), "cudaw ps shows a dead job")
    job = running()
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


early = [handlers(how) for how in list(HOW)[:3]]
early.append((handlers(list(HOW)[3])[0], unsanitized(handlers(list(HOW)[3])[1])))

main(*shared("signals.py", leave_out=("while_a_capture_is_open",),
             sanitizers_leave_out=("handlers_of_the_program",)),
     *early, other_signals, a_signal_by_number, no_signal, nonsense_for_a_signal,
     exit_while_paused_before_cuda, sigkill_does_not_block_the_next_start,
     *shared("exits.py", leave_out=("sigterm_with_such_a_handler_and_the_runtime",),
             sanitizers_leave_out=("sigterm_with_a_handler_in_python",)))
