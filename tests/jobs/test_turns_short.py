#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that cannot give memory, memory that others take, and jobs of several users or PID namespaces: the one
that runs goes on, the one that waits gets its turn, and every word is right in the end.
"""
import contextlib
import os
import shutil
import signal
import time

from simlib import MIB, SCRATCH, gpu_used, gpus_used, is_stopped, let_all_go, unsanitized
from gpulib import BUILD, RUNTIME_DIR, Group, Skip, check, cudaw_ok, equal, hog, main
from harness import contains, need_other_users, scratch, until
from momentslib import ALLOCS, SIZE_MIB, holdable, is_asked, one, quick, short_silence, start_daemon, state, \
    verify, wait_for
from turnslib import FOREVER, counting, events, members, started, take_turns

COUNTER = os.path.join(BUILD, "tests", "programs", "counter")
FULL = ("--mib", SIZE_MIB, "--allocs", ALLOCS, "--verify", 1, "--step-ms", 2, "--steps", FOREVER)
COUNTS = os.path.join(SCRATCH, "counts")
SILENCE_S = 5       # for which no job that can answer is held up
LASTS_S = 15        # until memory of others is theirs


def gives_up(job, why):
    """It could not give memory, and runs on."""
    found = until(lambda: events("failed", job.name), 10, f"{job.name} does not give memory")
    contains(found[0]["text"], why)
    equal(job.state(), "running", "the state of a job that has given no memory")


def a_kernel_does_not_end():
    start_daemon()
    spins = started("spins", "orders")
    for order in (f"alloc {SIZE_MIB}", "spin"):
        spins.process.stdin.write(f"{order}\n")
        spins.wait_line(f"{order.split()[0]}: ok")
    other = one("other")
    gives_up(spins, "timeout")
    equal(other.steps(), 0, "the steps of the other job")
    spins.process.stdin.write("end\n")
    spins.wait_line("end: ok")
    other.wait_steps(10)
    spins.process.stdin.write("check\n")
    spins.wait_line("check: every word right")
    spins.result()
    verify([other])


UNPIN = "cuMemHostUnregister"
UNPINS = {"CUDAW_SIM_FAULT": ",".join(f"{UNPIN}:{number}:999" for number in range(1, 17))}  # and says so


def out_with_pinned_memory(name, *command):
    """Paused by its user; and how often its copies have unpinned their buffers."""
    job = started(name, *command, **holdable(name), **UNPINS)
    job.wait_steps(3)
    cudaw_ok("pause", "--release", "memory", job.pid)
    return job, job.stderr().count(UNPIN)


def no_host_memory():
    """The memory of a simulated GPU counts for the group, too, and 256 MiB are left to others."""
    with Group(4096 * MIB) as group:
        start_daemon()
        beside, before = out_with_pinned_memory("beside", *group.command("counter", *FULL))
        apart, none = out_with_pinned_memory("apart", "counter", *FULL)
        poor = started("poor", *group.command("counter", *FULL), CUDAW_HOST_POOL="16M")
        poor.wait_steps(3)
        other = one("other")
        take_turns([poor, other])
        until(lambda: poor.status()["pool"] == 16 * MIB, 20, "it has pinned what it may")
        group.set_limit(300 * MIB)
        failed = until(lambda: events("failed", "poor"), 20, "it does not give memory")
        contains(failed[0]["text"], "of host memory available")
        until(lambda: not poor.status()["pool"], 10, "it unpins what is too little for itself")
        until(lambda: beside.stderr().count(UNPIN) > before, 10, "what others of its group could use is unpinned")
        equal(apart.stderr().count(UNPIN), none, "how often one in another group has unpinned memory")
        for job in beside, apart:
            job.discard()
        before = other.steps()
        poor.wait_steps(poor.steps() + 10)
        equal(other.steps(), before, "the steps of the other job")
        group.set_limit(4096 * MIB)
        other.wait_steps(other.steps() + 10)
        verify([poor, other])


def calls_driver(function):
    """How often a job does so that takes no turns."""
    counting("counts", SIZE_MIB, 3, ALLOCS, CUDAW_SIM_COUNT=COUNTS).result()
    with open(COUNTS, encoding="ascii") as file:
        return int(dict(map(str.split, file))[function])


def the_driver_fails():
    """One cannot give at first, and the other one cannot take."""
    maps = calls_driver("cuMemMap")
    start_daemon()
    # The taker has all of its memory before the other one wants some: so the number of its calls is known.
    faults = {"taker": f"cuMemMap:{maps + 1}:999,cuMemcpyHtoDAsync_v2:2:999,cuMemUnmap:3:999",
              "giver": "cuMemcpyDtoHAsync_v2:1:999"}
    jobs = []
    for name, fault in faults.items():
        jobs.append(one(name, CUDAW_SIM_FAULT=fault))
        jobs[-1].wait_steps(1)
    for name in faults:
        until(lambda name=name: events("failed", name), 30, f"{name} has failed")
    verify(jobs)


def two(silence=SILENCE_S):
    start_daemon(silence=silence)
    jobs = [one("first"), one("second")]
    take_turns(jobs)
    return jobs


def ends_well(jobs, stranger):
    """Those who wait for memory are not taken for silent."""
    time.sleep(SILENCE_S + 0.5)
    stranger.discard()
    verify(jobs)
    equal(events("silent"), [], "who was left alone")


def a_stranger_takes_all_that_is_free():
    """What a job leaves that its user has paused."""
    jobs = two()
    cudaw_ok("pause", jobs[0].pid)
    wait_for(jobs[1], "runs")
    stranger, _ = hog()
    cudaw_ok("resume", "--no-wait", jobs[0].pid)
    take_turns(jobs[1:], 20)
    ends_well(jobs, stranger)


def a_stranger_takes(mib):
    """While both are out."""
    jobs = two()
    for job in jobs:
        cudaw_ok("pause", job.pid)
    stranger, _ = hog("--mib", mib)
    for job in jobs:
        cudaw_ok("resume", "--no-wait", job.pid)
    return jobs, stranger


def a_stranger_leaves_enough_for_one():
    jobs, stranger = a_stranger_takes(20)
    for _ in range(2):
        take_turns(jobs)
    ends_well(jobs, stranger)


def a_stranger_leaves_too_little_for_one():
    jobs, stranger = a_stranger_takes(32)
    for job in jobs:
        job.check_still(0.5)
    ends_well(jobs, stranger)


def a_stranger_takes_what_is_given():
    """The one that was to have it is stopped."""
    jobs = two(silence=60)
    giver, getter = is_asked(jobs)
    getter.send(signal.SIGSTOP)
    until(lambda: is_stopped(getter.pid), 10, "it is stopped")
    let_all_go()
    wait_for(giver, "waits")
    stranger, _ = hog()
    getter.send(signal.SIGCONT)
    until(lambda: not is_stopped(getter.pid), 10, "it goes on")
    cudaw_ok("turns", "set", f"silence={SILENCE_S}")
    ends_well(jobs, stranger)


def mapped(job):
    """The bytes that the daemon knows to be on the GPUs."""
    member = members().get(job.pid)
    return sum(gpu["mapped"] for gpu in member["gpu"]) if member else 0


def an_allocation_waits_for_a_job_that_is_stopped():
    """It does not fail because the user of the other has typed Ctrl-Z."""
    start_daemon()
    stopped = one("stopped")
    until(lambda: mapped(stopped) >= SIZE_MIB * MIB, 20, "it has told of all of its memory")
    needs = started("needs", "orders")
    needs.process.stdin.write("alloc 4\n")
    needs.wait_line("alloc: ok")
    stopped.send(signal.SIGSTOP)
    until(lambda: is_stopped(stopped.pid), 10, "it is stopped")
    needs.process.stdin.write(f"alloc {SIZE_MIB - 4}\n")
    with short_silence():
        until(lambda: state(stopped) == "silent", 20, "it is left alone")
    time.sleep(LASTS_S)
    equal(needs.lines[1:], ["alloc: ok"], "the answers while it is stopped")
    equal(members()[needs.pid]["waits_for"], stopped.pid, "for whom the allocation waits")
    stopped.send(signal.SIGCONT)
    until(lambda: needs.lines[1:] == ["alloc: ok"] * 2, 20, "the allocation has its memory")
    needs.process.stdin.write("check\n")
    needs.wait_line("check: every word right")
    needs.result()
    verify([stopped])


def one_that_cannot_fit_stops_nobody():
    """A process outside has taken what it needs. It gets its turn when that one has gone."""
    start_daemon()
    big = counting("big", 60, FOREVER, ALLOCS, CUDAW_NOTICES="1", **holdable("big"))
    big.wait_steps(3)
    cudaw_ok("pause", big.pid)
    small = one("small")
    small.wait_steps(3)
    stranger, _ = hog("--mib", 20)
    cudaw_ok("resume", "--no-wait", big.pid)
    unfit = until(lambda: members()[big.pid]["unfit"], 10, "it does not fit")
    check(unfit["needs"] >= 60 * MIB > unfit["there"], f"what is said of it: {unfit}")
    contains(cudaw_ok("turns"), f"process {big.pid} gets no turn: its job needs ")
    contains(events("unfit", "big")[0]["text"], "its job needs ")
    until(lambda: "no turn can give it" in big.stderr(), 20, "it says so")
    before = len(events("gives", "small"))
    small.wait_steps(small.steps() + 200)
    equal(len(events("gives", "small")), before, "how often the other was stopped")
    stranger.discard()
    take_turns([big, small])
    equal(members()[big.pid]["unfit"], None, "what is said of it when it fits")
    verify([big, small])


# ---- users and namespaces

def need_root(*programs):
    if os.geteuid():
        raise Skip("takes root")
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"no {program} on this machine")


@contextlib.contextmanager
def environment(**values):
    saved = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in saved.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def directory_of(uid):
    """The runtime directory of a user."""
    path = scratch(0o700)
    os.chown(path, uid, uid)
    return path


def two_users():
    """One daemon of root serves both."""
    need_root("setpriv")
    need_other_users()
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    shared = scratch()
    path, gpu = os.path.join(shared, "node.sock"), os.path.join(shared, "gpu")
    with environment(CUDAW_TURNS=path, CUDAW_SIM_SHARED=gpu):
        start_daemon("--socket", path)
        jobs = []
        for uid, under in ((0, ["env"]), (65534, as_nobody)):
            jobs.append(started(f"of{uid}", shutil.which(under[0]), *under[1:], COUNTER, *FULL,
                                CUDAW_TURNS=path, CUDAW_RUNTIME_DIR=directory_of(uid)))
            jobs[-1].wait_steps(1)
            os.chmod(gpu, 0o666)
        for _ in range(3):
            take_turns(jobs)
        equal({row["uid"] for row in members().values()}, {0, 65534}, "the users of the jobs")
        for job in jobs:
            check("every word right" in job.finish(), f"{job.name} did not verify its memory")
        until(lambda: not sum(gpus_used(gpu)), 5, "the GPU is free")


def in_a_namespace(name, *args):
    return started(name, shutil.which("unshare"), "--pid", "--fork", "--kill-child", COUNTER, *FULL, *args,
                   CUDAW_TURNS=os.path.join(RUNTIME_DIR, "cudawd.sock"), CUDAW_RUNTIME_DIR=scratch(0o700))


def two_pid_namespaces():
    """Both have the PID 1 there; the daemon knows them apart, and notices their ends."""
    need_root("unshare")
    start_daemon()
    jobs = [in_a_namespace("first", "--steps", 100), in_a_namespace("second")]
    for job in jobs:
        job.wait_steps(1)
    for _ in range(2):
        take_turns(jobs)
    equal(sorted(row["name"] for row in members().values()), ["first", "second"], "the members")
    jobs[1].discard()
    check("every word right" in jobs[0].result(), "it did not verify its memory")
    until(lambda: not members() and not gpu_used(), 10, "both have left")


main(quick(a_kernel_does_not_end), unsanitized(no_host_memory), the_driver_fails,
     *map(quick, (a_stranger_takes_all_that_is_free, a_stranger_leaves_enough_for_one,
                  a_stranger_leaves_too_little_for_one, a_stranger_takes_what_is_given,
                  an_allocation_waits_for_a_job_that_is_stopped, one_that_cannot_fit_stops_nobody)),
     unsanitized(two_users), unsanitized(two_pid_namespaces))
