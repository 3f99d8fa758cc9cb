#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs with an action of their own for the signal that pauses, set in each way that libc has:
where the user names the signal, they are paused by it, and their handler runs. Where a program keeps the signal from us, `cudaw ps`
and the log say so, and the command pauses it.
"""
import json
import os

from simlib import errors_of_cudaw
from gpulib import SCRATCH, Job, check, cudaw_ok, equal, main

SET = {"bsd_signal": "got 2, has its handler", "ssignal": "got 2, has its handler",
       "sysv_signal": "got 1, has the default", "sigset": "got 2, has its handler",
       "sigignore": "got 0, has nothing",
       "siginterrupt": "got 2, has its handler, was interrupted"}
KEPT = {"a system call of its own": "by a system call of its own",
        "all threads blocking it": "all threads of the program block it",
        "sigwait": "all threads of the program block it",
        "signalfd": "all threads of the program block it"}


def reach(how, **env):
    job = Job("reach", "--how", how, "--steps", 1000000, "--step-ms", 10, env=env)
    job.wait_steps(3)
    return job


def is_paused_by_it(how, last):
    job = reach(how, CUDAW_SIGNAL_PAUSE="USR1")
    equal(job.status()["signals"], None, "what ps says of signals")
    for _ in range(2):
        job.pause("signal")
        job.check_still(0.1)
        job.resume("signal")
        job.wait_steps(job.steps() + 3)
    equal(job.finish().splitlines()[-1], f"reach: {last}", "the last line")


def is_told(how, why):
    log = os.path.join(SCRATCH, f"reach-{how}.log")
    job = reach(how, CUDAW_LOG="warn", CUDAW_LOG_FILE=log)
    says = job.status()["signals"]
    check(says and says.startswith("signal USR1 does not pause this process: ") and why in says,
          f"ps says {says!r}")
    check(f"{job.pid}: {says}" in cudaw_ok("ps").splitlines(), "the table does not say it")
    job.until(lambda: os.path.exists(log) and says in open(log, encoding="utf-8").read(), 20,
              "the log says it")
    job.pause()
    job.resume()
    job.wait_steps(job.steps() + 3)
    job.finish()
    with open(log, encoding="utf-8") as text:
        equal(text.read().count(says), 1, "how often the log says it")
    equal(errors_of_cudaw(job), [], "what stderr says")


def a_signal_for_the_resume():
    job = reach(7, CUDAW_SIGNAL_PAUSE="none", CUDAW_SIGNAL_RESUME="USR1")
    check("signal USR1 does not resume this process" in job.status()["signals"], "ps says nothing")
    job.discard()


def no_signals():
    job = reach(8, CUDAW_SIGNAL_PAUSE="none")
    equal(json.loads(cudaw_ok("ps", "--json"))[0]["signals"], None, "what ps says of signals")
    job.discard()


def cases():
    for how, (name, last) in enumerate(SET.items(), 1):
        yield f"{name} pauses", lambda how=how, last=last: is_paused_by_it(how, last)
    for how, (name, why) in enumerate(KEPT.items(), len(SET) + 1):
        yield f"{name} is told", lambda how=how, why=why: is_told(how, why)


main(*cases(), a_signal_for_the_resume, no_signals)
