#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals: those that pause and resume, at awkward moments and with handlers of the program's own,
and those that end a paused job. The capture of signals.py needs the CUDA runtime; test_calls.py has
one of the driver API.
"""
import os
import signal
import subprocess
import sys

from simlib import errors_of_cudaw, shared, unsanitized
from gpulib import SCRATCH, Job, Skip, base_environment, check, equal, faces, is_pending, jobs, main

HOW = {"signal()": 1, "SA_SIGINFO": 2, "SIG_IGN": 3, "a handler from before cudaw": 4,
       "SA_RESETHAND": 5}
GOT = {"SIG_IGN": 0, "SA_RESETHAND": 1}
TERM_ONE_SHOT, TERM_BIG = 1, 2
NAMED = {"CUDAW_SIGNAL_PAUSE": "USR1", "CUDAW_SIGNAL_RESUME": "USR2"}


def handling(*args, **env):
    job = Job("handlers", *args, "--steps", 10000000, "--step-ms", 10, env=env)
    job.wait_steps(3)
    return job


def with_handlers(how):
    """The user has named the signals: the handlers and cudaw get them."""
    job = handling("--how", HOW[how], **NAMED)
    for _ in range(2):
        job.pause("signal")
        job.check_still(0.1)
        job.resume("signal")
        job.wait_steps(job.steps() + 3)
    got = GOT.get(how, 2)
    equal(job.finish().splitlines()[-1], f"handlers: got {got} and {got}", "the last line")


def handlers(how):
    return f"with {how} in the program", lambda: with_handlers(how)


def goes_on(job):
    job.wait_steps(job.steps() + 3)
    equal(job.state(), "running", "the state")


def without_names(how):
    """What the program handles is the program's, and only that."""
    job = handling("--how", HOW[how])
    for _ in range(2):
        job.send(signal.SIGUSR1)
        goes_on(job)
    equal(job.status()["signals"], "signal USR1 does not pause this process: the program has a handler for it; "
          "'cudaw pause' does", "what ps says")
    job.pause()
    job.send(signal.SIGUSR2)
    job.check_still(0.3)
    equal(job.state(), "paused", "the state after SIGUSR2")
    job.resume()
    equal(job.finish().splitlines()[-1], "handlers: got 2 and 1", "the last line")


def one_is_named():
    """Each signal is decided alone."""
    job = handling("--how", HOW["signal()"], CUDAW_SIGNAL_PAUSE="USR1")
    job.pause("signal")
    job.send(signal.SIGUSR2)
    job.check_still(0.3)
    job.resume()
    equal(job.finish().splitlines()[-1], "handlers: got 1 and 1", "the last line")


def after_a_one_shot_handler():
    """It is reset by its signal: the next one is ours."""
    job = handling("--how", HOW["SA_RESETHAND"])
    job.send(signal.SIGUSR1)
    goes_on(job)
    job.pause("signal")
    job.send(signal.SIGUSR2)
    job.until(lambda: not is_pending(job.pid, signal.SIGUSR2), 10, "the handler has run")
    job.resume("signal")
    equal(job.finish().splitlines()[-1], "handlers: got 1 and 1", "the last line")


def running(**env):
    job = Job("counter", "--mib", 16, "--steps", 1000000, "--step-ms", 10, env=env)
    job.wait_steps(3)
    return job


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


def one_signal_for_both():
    """The second variable is refused; the command resumes all the same."""
    for env in ({"CUDAW_SIGNAL_RESUME": "USR1"}, {"CUDAW_SIGNAL_PAUSE": "USR2"}):
        job = running(**env)
        job.send(signal.SIGUSR2 if "CUDAW_SIGNAL_PAUSE" in env else signal.SIGUSR1)
        job.wait_state("paused")
        job.resume()
        job.finish()
        said = [line for line in errors_of_cudaw(job) if "CUDAW_SIGNAL_RESUME" in line]
        equal(len(said), 1, f"the number of lines about CUDAW_SIGNAL_RESUME with {env}")


def sigterm_that_pauses_and_was_handled_before_cudaw():
    """Our handler is in the kernel already; it must not become its own successor."""
    job = handling("--how", HOW["a handler from before cudaw"], CUDAW_SIGNAL_PAUSE="TERM")
    job.send(signal.SIGTERM)
    job.wait_state("paused")
    job.resume()
    job.finish()


def a_one_shot_handler_that_raises_again():
    for paused in (False, True):
        job = handling("--term", TERM_ONE_SHOT)
        if paused:
            job.pause()
        job.send(signal.SIGTERM)
        equal(job.wait_end(10), -signal.SIGTERM, "the exit status")


def a_handler_too_big_for_the_alternate_stack():
    job = handling("--term", TERM_BIG)
    job.send(signal.SIGTERM)
    equal(job.wait_end(10), 9, "the exit status")


def sighup_does_not_resume():
    job = handling()
    job.pause()
    job.send(signal.SIGHUP)
    job.check_still(0.5)
    equal(job.state(), "paused", "the state after SIGHUP")
    job.resume()
    job.finish()


def a_set_uid_program():
    """Where the real user is not the effective one, the environment is not trusted."""
    if os.geteuid():
        raise Skip("only root can start a process whose user is another than its caller's")
    log = os.path.join(SCRATCH, "set-uid.log")
    code = ("import ctypes, sys\n"
            "print(ctypes.CDLL(None).getauxval(23))\n"     # AT_SECURE
            "ctypes.CDLL(sys.argv[1]).cuInit(0)\n")
    env = {**base_environment(), "CUDAW_LOG": "debug", "CUDAW_LOG_FILE": log,
           "CUDAW_SIGNAL_PAUSE": "nonsense"}
    done = subprocess.run([sys.executable, "-c", code, os.path.join(faces(), "libcuda.so.1")],
                          env=env, preexec_fn=lambda: os.setresuid(65534, 0, 0), text=True,
                          capture_output=True, timeout=150)
    equal(done.returncode, 0, f"the exit status ({done.stderr.strip()})")
    if done.stdout.strip() != "1":
        raise Skip("this kernel does not mark such a process as secure")
    check(not os.path.exists(log), "it wrote to CUDAW_LOG_FILE")
    check("CUDAW_SIGNAL_PAUSE" not in done.stderr, "it read CUDAW_SIGNAL_PAUSE")


def exit_while_paused_before_cuda():
    """Told to pause and to end before its first CUDA call, a program ends as it would."""
    job = Job("counter", "--start-line", 1, "--steps", 1000000, "--step-ms", 10)
    job.wait_line("before CUDA")
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


def a_cancelled_thread_ends_where_it_says():
    check("handlers: got 0 and 0" in handling("--cancel", 1).finish(), "the last line")


early = [handlers(how) for how in HOW if HOW[how] != 4]
own = [(f"the program's own by {how}", lambda how=how: without_names(how)) for how in HOW if HOW[how] in (1, 2)]
early.append((handlers(list(HOW)[3])[0], unsanitized(handlers(list(HOW)[3])[1])))

main(*shared("signals.py", MIB=16, leave_out=("while_a_capture_is_open",),
             sanitizers_leave_out=("handlers_of_the_program",)),
     *early, *own, one_is_named, after_a_one_shot_handler, other_signals, a_signal_by_number, no_signal, nonsense_for_a_signal,
     one_signal_for_both, unsanitized(sigterm_that_pauses_and_was_handled_before_cudaw),
     a_one_shot_handler_that_raises_again, a_handler_too_big_for_the_alternate_stack,
     a_cancelled_thread_ends_where_it_says, sighup_does_not_resume, unsanitized(a_set_uid_program),
     exit_while_paused_before_cuda, sigkill_does_not_block_the_next_start,
     *shared("exits.py", MIB=64, leave_out=("sigterm_with_such_a_handler_and_the_runtime",),
             sanitizers_leave_out=("sigterm_with_a_handler_in_python",)))
