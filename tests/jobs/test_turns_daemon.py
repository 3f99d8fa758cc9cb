#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real jobs that do not fit together take turns, as cudawd decides."""
import os
import signal
import time

from simlib import SCRATCH, call_in_handlers, process_used, unsanitized
from gpulib import Job, check, cudaw_ok, equal, main
from harness import until
from turnslib import ENV, FOREVER, counting, events, finish, members, start_daemon, take_turns

SIZE_MIB = 140      # two do not fit


def started(name, size=SIZE_MIB, **env):
    return counting(name, size, FOREVER, **env)


def two():
    first = started("first")
    first.wait_steps(3)
    until(lambda: first.pid in members(), 5, "the first has joined")
    return first, started("second")


def two_that_do_not_fit():
    start_daemon()
    jobs = two()
    for _ in range(4):
        take_turns(jobs)
    check(sum(row["turns"] for row in members().values()) >= 2, f"the turns are {members()}")
    for kind in ("joined", "grows", "gives", "gave", "runs"):
        check(events(kind), f"there is no event '{kind}'")
    for job in jobs:
        finish(job)
    until(lambda: not members(), 5, "both have left")


def told(job, order, answer):
    job.process.stdin.write(f"{order}\n")
    job.wait_line(answer)


def two_whose_captures_wait():
    """Neither can give way: the one that came later is refused; and it is stopped for the other."""
    start_daemon("--quantum", "60", "--idle", "60")     # the second keeps its memory until its capture
    jobs = []
    for name in ("first", "second"):
        jobs.append(Job("orders", name=name, env=ENV))
        told(jobs[-1], f"alloc {SIZE_MIB * 3 // 4}", "alloc: ok")
        until(lambda: jobs[-1].pid in members(), 5, "it has joined")
    jobs[0].process.stdin.write("capture 60\n")
    until(lambda: members()[jobs[0].pid]["state"] == "waits", 5, "the first waits")
    told(jobs[1], "capture 60", "capture: error 2")
    cudaw_ok("turns", "set", "quantum=0.5")
    jobs[0].wait_line("capture: ok")
    for job in jobs:
        told(job, "check", "check: every word right")
        job.result()


def an_allocation_that_no_gpu_has():
    """It is larger than any number that the daemon takes. It fails, and the job takes turns as before."""
    start_daemon()
    job = Job("orders", name="first", env=ENV)
    told(job, "alloc 8", "alloc: ok")
    until(lambda: job.pid in members(), 5, "it has joined")
    for order in ("alloc", "capture"):
        told(job, f"{order} {2 ** 31}", f"{order}: error 2")
        equal(job.status()["no_turns"], None, "why it takes no turns")
        check(job.pid in members(), f"it has left after {order}")
    told(job, "check", "check: every word right")
    job.result()
    equal(len(events("joined")), 1, "how often it has joined")


def an_allocation_that_memory_does_not_help():
    """It fails for another reason than GPU memory, of which there is enough. Nobody is stopped for it."""
    start_daemon()
    other = started("other", 100)
    other.wait_steps(3)
    job = Job("orders", name="first",
              env={**ENV, "CUDAW_SIM_FAULT": ",".join(f"cuMemCreate:{n}:2" for n in range(2, 1000))})
    told(job, "alloc 8", "alloc: ok")
    until(lambda: len(members()) == 2, 5, "both have joined")
    job.process.stdin.write("alloc 90\n")

    def is_refused():
        equal(events("gives"), [], "who was asked for memory")
        return job.lines[-1] == "alloc: error 2"
    job.until(is_refused, 20, "the allocation fails")
    told(job, "check", "check: every word right")
    job.result()
    finish(other)


def an_allocation_that_a_signal_ends():
    """Its job waits no more, for cudawd as well."""
    start_daemon()
    other = started("other", CUDAW_TURNS_CLASS="interactive")
    other.wait_steps(3)
    job = Job("orders", name="first", env=ENV)
    told(job, "alloc 8", "alloc: ok")
    job.process.stdin.write(f"alloc {SIZE_MIB}\n")
    until(lambda: job.pid in members() and members()[job.pid]["state"] == "waits", 5, "it waits")
    job.send(signal.SIGINT)
    job.wait_line("alloc: error 2")
    until(lambda: members()[job.pid]["state"] in ("runs", "idle"), 5, "it waits no more")
    told(job, "check", "check: every word right")
    job.result()
    finish(other)


def two_that_fit():
    start_daemon()
    jobs = [started(name, 60) for name in ("first", "second")]
    take_turns(jobs, 20)
    time.sleep(1)
    # One that gets no processor for a while seems idle.
    until(lambda: [row["state"] for row in members().values()] == ["runs"] * 2, 5, "both run")
    equal([row["turns"] for row in members().values()], [0, 0], "their turns")
    equal(events("gives"), [], "who was asked for memory")
    for job in jobs:
        finish(job)


def the_daemon_is_killed():
    """Who is out waits for memory as ever; and a new daemon lets them take turns again."""
    daemon = start_daemon()
    jobs = two()
    take_turns(jobs)
    daemon.kill()
    daemon.wait()
    time.sleep(0.5)
    start_daemon()
    until(lambda: len(members()) == 2, 10, "both have joined again")
    for _ in range(2):
        take_turns(jobs)
    for job in jobs:
        finish(job)


def one_is_killed():
    start_daemon()
    for moment in ("leaving", "enters"):
        first, second = two()
        take_turns((first, second))
        until(lambda: members()[second.pid]["state"] == moment, 20, f"the second is {moment}")
        second.send(signal.SIGKILL)
        second.process.wait()
        second.discard()
        take_turns([first], 20)
        equal(process_used(second.pid), None, "the MiB of a job that was killed")
        finish(first)


def out_for_good(program, *args):
    """A job out of its turn: the other one is of a higher class."""
    call_in_handlers()
    first = Job(program, *args, "--mib", SIZE_MIB, "--steps", FOREVER, env=ENV)
    first.wait_steps(3)
    until(lambda: first.pid in members(), 5, "it has joined")
    second = started("second", CUDAW_TURNS_CLASS="interactive")
    until(lambda: members()[first.pid]["state"] == "waits", 10, "it is out")
    return first, second


def interrupted_out_of_its_turn():
    """Its handler runs at once, and it waits for its turn as before."""
    start_daemon("--quantum", "30")
    first, second = out_for_good("interrupts", "--reads", 1)
    first.send(signal.SIGINT)
    first.wait_line("got 2")
    first.status()  # what answers this has heard of the signal
    take_turns([second])
    equal((members()[first.pid]["state"], first.lines.count("read: right"), events("ends")), ("waits", 0, []),
          "its state, what it has read, and who ends")
    check("every word right" in second.finish(), "the other one did not verify its memory")
    check("every byte right" in first.result(), "the job did not verify its memory")


def told_to_end_out_of_its_turn():
    """It gets one turn before all others, for its handler."""
    start_daemon("--quantum", "30")
    for paused in (False, True):
        first, second = out_for_good("interrupts", "--reads", 1)
        if paused:
            first.pause()
        first.send(signal.SIGTERM)
        first.wait_line("read: right")
        until(lambda: members()[second.pid]["state"] == "waits", 10, "the other one is out")
        check("every byte right" in first.finish(), "the job did not verify its memory")
        check("every word right" in second.finish(), "the other one did not verify its memory")


def resumed_out_of_its_turn():
    """Its user wants it to run, though its program makes no call: a snapshot meanwhile changes nothing of that."""
    start_daemon("--quantum", "30")
    first = Job("orders", name="first", env=ENV)
    told(first, f"alloc {SIZE_MIB}", "alloc: ok")
    until(lambda: first.pid in members(), 5, "it has joined")
    second = started("second", CUDAW_TURNS_CLASS="interactive")
    second.wait_steps(3)

    def state():
        return members()[first.pid]["state"]
    equal(state(), "out", "the state of a job that needs no turn")
    cudaw_ok("pause", first.pid)
    cudaw_ok("resume", "--no-wait", first.pid)
    until(lambda: state() == "waits", 5, "it waits for its turn")
    cudaw_ok("snapshot", "--gpu-only", first.pid, os.path.join(SCRATCH, "snapshot"))
    until(lambda: state() == "waits", 5, "it waits for its turn, as before the snapshot")
    check("every word right" in second.finish(), "the other one did not verify its memory")
    until(lambda: state() in ("runs", "idle"), 10, "it has its turn")
    told(first, "check", "check: every word right")
    first.result()


def an_exit_out_of_its_turn():
    """Its exit handler waits for the turn."""
    start_daemon("--quantum", "30")
    first, second = out_for_good("interrupts", "--term", 1, "--exits", 1)
    first.send(signal.SIGTERM)
    equal((first.wait_end(), first.lines.count("read: right")), (7, 1), "its exit status, and what it has read")
    first.discard()
    check("every word right" in second.finish(), "the other one did not verify its memory")


def a_python_job_told_to_end_out_of_its_turn():
    """Its handlers run when the call in which it waits returns."""
    start_daemon("--quantum", "30")
    first, second = out_for_good("ctypes_job.py")
    first.send(signal.SIGTERM)
    equal(first.wait_end(), 7, "its exit status")
    first.discard()
    check("every word right" in second.finish(), "the other one did not verify its memory")


main(interrupted_out_of_its_turn, told_to_end_out_of_its_turn, an_exit_out_of_its_turn,
     unsanitized(a_python_job_told_to_end_out_of_its_turn), resumed_out_of_its_turn, two_that_do_not_fit,
     two_whose_captures_wait, an_allocation_that_no_gpu_has, an_allocation_that_memory_does_not_help,
     an_allocation_that_a_signal_ends, two_that_fit, the_daemon_is_killed, one_is_killed)
