#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose memory goes out and comes back in parts (yield and room of protocol.h), beside the
commands of their user."""
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

from simlib import HELD, LEFT_MIB, MIB, SANITIZED, SCRATCH, hold, let_go, passed, process_used, shared
from gpulib import (BUILD, CUDAW, Group, Job, base_environment, check, cudaw, cudaw_ok, equal, hog, jobs, main, seeded,
                    until)
from harness import contains
from lease import EVERYTHING, Lease

SIZE_MIB = 24
PART = 5 * MIB      # more than one of the large buffers, of 4 MiB
LARGE_MIB = 64      # of which several threads copy a part
HALF = 8        # copies of 1 MiB that are let through


def started(program="counter", *args, mib=SIZE_MIB, **env):
    if program == "counter":
        args += ("--mib", mib, "--allocs", 12, "--verify", 1)
    job = Job(program, *args, "--steps", 1000000, "--step-ms", 10, env=env)
    job.wait_steps(3)
    return job


def finish(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def out_in_parts_and_back_in_parts():
    job = started()
    lease, before = Lease(job), process_used(job.pid)
    begun = time.monotonic()
    freed = lease.take(PART)
    took = time.monotonic() - begun
    check(PART <= freed < 2 * PART, f"{freed} bytes were freed")
    left = lease.last("mapped")
    phases = [lease.phase("drain"), lease.phase("copy")]
    check(min(phases) > 0 and sum(phases) < took, f"phases of {phases} s in {took} s: {lease.seen}")
    equal(process_used(job.pid), before - (freed >> 20), "the MiB on the GPU after a yield")
    job.check_still()
    equal(job.state(), "waiting", "the state of a job that has yielded")
    more = lease.take(PART)
    check(PART <= more < 2 * PART, f"{more} bytes were freed then")
    equal(lease.last("mapped"), left - more, "the bytes that are mapped")
    equal(process_used(job.pid), before - (freed >> 20) - (more >> 20), "the MiB after two yields")
    job.check_still()
    lease.send(f"room {SIZE_MIB * MIB - PART}")
    mapped = 0
    while mapped <= SIZE_MIB * MIB - 2 * PART:      # a slow fill says how far it is
        mapped = int(lease.until("mapped"))
    check(mapped <= SIZE_MIB * MIB - PART, f"{mapped} bytes are mapped")
    time.sleep(0.3)
    job.check_still()
    equal(job.state(), "waiting", "the state of a job that has room for a part")
    lease.fill()
    equal(process_used(job.pid), before, "the MiB on the GPU in the end")
    finish(job)


def room_that_grows_during_the_fill():
    job = started()
    lease, before = Lease(job), process_used(job.pid)
    lease.take(EVERYTHING)
    for mib in range(0, SIZE_MIB, 2):
        lease.send(f"room {mib * MIB}")
        time.sleep(0.01)
    check(process_used(job.pid) < before, "it has more than it has room for")
    job.check_still()
    lease.fill()
    finish(job)


def the_users_pause_wins():
    for release in ("all", "memory"):
        job = started()
        lease = Lease(job)
        lease.take(PART)
        cudaw_ok("pause", "--release", release, job.pid)
        equal(job.state(), "paused", "the state after cudaw pause")
        equal(process_used(job.pid) or 0, 0 if release == "all" else LEFT_MIB, "the MiB on the GPU")
        lease.send(f"room {EVERYTHING}")
        time.sleep(0.3)
        equal(job.state(), "paused", "the state of a paused job that has room")
        job.check_still()
        cudaw_ok("resume", job.pid)
        equal(lease.until("end"), "ok", "the end of the fill")
        finish(job)


@contextlib.contextmanager
def resuming(job, *options):
    with subprocess.Popen([CUDAW, "resume", *options, str(job.pid)], env=base_environment(),
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        yield command


def a_resume_waits_for_its_turn():
    job = started()
    lease = Lease(job)
    lease.take(PART)
    job.pause()
    done = cudaw("resume", "--timeout", 0.5, job.pid)
    equal(done.returncode, 5, "the exit code of a resume that gets no turn")
    contains(done.stderr, "no turn on the GPU came in time; the job stays paused")
    job.wait_state("paused")
    with resuming(job, "--timeout", "60") as command:
        job.wait_state("waiting")
        job.check_still()
        equal(command.poll(), None, "the exit code of a resume that waits for its turn")
        job.pause()
        equal(command.wait(), 1, "the exit code of a resume that a pause supersedes")
    equal(cudaw_ok("resume", "--no-wait", job.pid), f"resuming {job.pid}\n", "what a resume says that waits for nothing")
    equal(job.state(), "waiting", "the state after it")
    with resuming(job) as command:
        lease.fill()
        equal(command.wait(), 0, "the exit code of a resume whose job has its turn")
    finish(job)


def a_resume_that_is_given_up_pauses_nobody():
    """As cudaw gives it up if it fails for another process of the job."""
    job = started()
    lease, user = Lease(job), Lease(job)
    lease.send(f"yield {EVERYTHING} 60000 hold")
    while lease.until("held") != "drained 0":
        pass
    user.send("regain\nabort")
    equal(job.state(), "pausing", "the state during the yield")
    lease.send("commit")
    equal(lease.until("end"), "ok", "the end of the yield")
    check(user.until("end").startswith("turn "), f"the resume hears {user.seen}")
    equal(job.state(), "waiting", "the state after it")
    lease.fill()
    finish(job)


def a_lease_that_is_lost_comes_back():
    """While it waits; while it yields; and while the user has it paused."""
    job = started()
    for moment in ("waiting", "yielding", "paused"):
        lease = Lease(job)
        if moment == "yielding":
            lease.send(f"yield {EVERYTHING}")
        else:
            lease.take(PART)
        if moment == "paused":
            job.pause()
        lease.hang_up()
        if moment == "paused":
            time.sleep(0.2)
            equal(job.state(), "paused", "the state of a job that its user has paused")
            job.resume()
        job.wait_state("running")
        job.wait_steps(job.steps() + 3)
    finish(job)


def a_part_is_out_while_memory_is_not_there():
    job = started()
    lease = Lease(job)
    lease.take(PART)
    other, _ = hog()
    lease.send(f"room {EVERYTHING}")
    job.wait_state("waiting")
    time.sleep(0.3)
    job.check_still()
    other.discard()
    equal(lease.until("end"), "ok", "the end of the fill")
    finish(job)


def snapshots():
    for release in ("all", "memory"):
        job = started(CUDAW_RELEASE=release)
        lease = Lease(job)
        lease.take(PART)
        path = os.path.join(SCRATCH, f"snapshot-{release}")
        cudaw_ok("snapshot", "--gpu-only", job.pid, path)
        cudaw_ok("verify", path)
        equal(job.state(), "waiting", "the state after a snapshot of a job that has yielded")
        job.check_still()
        lease.fill()
        finish(job)


def a_fill_that_fails_waits_for_another_room():
    job = started(CUDAW_SIM_FAULT="cuCheckpointProcessRestore:1:999")
    lease = Lease(job)
    lease.take(PART)
    cudaw_ok("pause", "--release", "all", job.pid)
    cudaw_ok("resume", "--no-wait", job.pid)
    lease.send(f"room {EVERYTHING}")
    check(lease.until("end").startswith("failed"), f"the lease hears {lease.seen}")
    time.sleep(0.5)
    equal(job.state(), "waiting", "the state after a fill that failed")
    job.check_still()
    lease.fill()
    finish(job)


def a_process_image_has_no_lease():
    job = started()
    lease, asks = Lease(job), Lease(job)
    lease.take(PART)
    path = os.path.join(SCRATCH, "image")
    asks.send(f"snapshot pause image {path}")
    equal(asks.until("end"), "ok", "the end of the snapshot")
    check(lease.until("end").startswith("busy"), f"the lease hears {lease.seen}")
    equal(lease.lines.readline(), "", "what follows on the lease's connection")
    equal(job.state(), "paused", "the state of a job whose image is to be made")
    asks = Lease(job)
    asks.send(f"done {path}")
    equal(asks.until("end"), "ok", "the end of the request")
    finish(job)


def trims_change_nothing():
    job = started()
    lease = Lease(job)
    freed = lease.take(PART)
    before = process_used(job.pid)
    cudaw_ok("trim", job.pid)
    equal(process_used(job.pid), before, "the MiB on the GPU after a trim")
    check(freed + lease.take(1) > freed, "nothing is freed after a trim")
    lease.fill()
    finish(job)


def signals_reach_the_program():
    """The handler of SIGINT runs at once, and the program ends when it has its memory; SIGKILL is not handled."""
    job = started()
    lease = Lease(job)
    lease.take(PART)
    job.send(signal.SIGINT)
    job.check_still()
    equal(job.state(), "waiting", "the state after SIGINT")
    lease.fill()
    check("every word right" in job.result(), "the job did not verify its memory")
    job = started()
    lease = Lease(job)
    lease.take(PART)
    job.send(signal.SIGKILL)
    job.wait_end()
    equal(process_used(job.pid), None, "the MiB of a job that was killed")
    job.discard()


def kernels_that_do_not_end():
    job = Job("spin", "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    lease = Lease(job)
    lease.send(f"yield {MIB} 100")
    check(lease.until("end").startswith("timeout"), f"the job answered {lease.seen}")
    equal(job.state(), "running", "the state after a yield that timed out")
    job.wait_steps(job.steps() + 3)
    job.finish()


def one_process_of_several():
    """Other processes would wait for its kernels."""
    job = Job("rank_kernels", "--ranks", 2, "--shape", 0, "--steps", 100000000, "--step-ms", 10)
    job.wait_steps(5)
    for rank in jobs().values():
        lease = Lease(SimpleNamespace(**rank))
        lease.send(f"yield {MIB}")
        answer = lease.until("end")
        check(answer.startswith("unsupported") and "this process alone" in answer,
              f"the process answered {answer!r}")
        equal(jobs()[rank["pid"]]["state"], "running", "the state after it")
    check("every rank right" in job.finish(), "not every rank verified its result")


def sharing(*args, **env):
    job = Job("sharing", "--objects", 4, "--mib", 2, "--steps", 100000000, "--step-ms", 10, *args,
              env=env)
    job.wait_steps(3)
    return job


def one_that_shares_memory():
    """The others use its memory."""
    job = sharing("--ranks", 2)
    for rank in jobs().values():
        lease = Lease(SimpleNamespace(**rank))
        lease.send(f"yield {MIB}")
        answer = lease.until("end")
        check(answer.startswith("unsupported") and "GPU memory with it" in answer,
              f"the process answered {answer!r}")
        equal(jobs()[rank["pid"]]["state"], "running", "the state after it")
    check("every word right" in job.finish(), "not every rank verified its memory")


def one_that_imports_its_own_memory():
    job = sharing("--ranks", 1, "--self", 1)
    lease, before = Lease(job), process_used(job.pid)
    for size in (4 * MIB, EVERYTHING):
        freed = lease.take(size)
        equal(process_used(job.pid), before - (freed >> 20), "the MiB on the GPU after a yield")
        job.check_still()
        lease.fill()
        equal(process_used(job.pid), before, "the MiB on the GPU after the fill")
        job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def one_that_imports_its_own_memory_and_runs_on():
    """The first unmap is of an import; the fifth is of memory, and the imports are back by then."""
    for unmap in (1, 5):
        job = sharing("--ranks", 1, "--self", 1, CUDAW_SIM_FAULT=f"cuMemUnmap:{unmap}:999")
        lease, before = Lease(job), process_used(job.pid)
        lease.send(f"yield {EVERYTHING}")
        check(lease.until("end").startswith("failed"), f"the job answered {lease.seen}")
        check(not any(line.startswith("freed") for line in lease.seen), f"something is freed: {lease.seen}")
        equal(job.state(), "running", "the state after it")
        job.wait_steps(job.steps() + 3)
        lease.take(EVERYTHING)
        lease.fill()
        equal(process_used(job.pid), before, "the MiB on the GPU after the fill")
        check("every word right" in job.finish(), "the job did not verify its memory")


def bring_to_rest(*leases):
    """All may free memory from then on."""
    for lease in leases:
        lease.send(f"yield {EVERYTHING} 60000 hold")
    for lease in leases:
        while lease.until("held") != "drained 0":
            pass
    for lease in leases:
        lease.send("commit")


def one_of_several_that_shares_memory_and_fails():
    """The other one has no way back, so that it stays at rest, too, though nothing of it is freed."""
    fails = os.path.join(SCRATCH, "fails")
    job = sharing("--ranks", 2, CUDAW_SIM_FAULT=f"cuMemUnmap:{fails}:999")
    leases = [Lease(SimpleNamespace(**rank)) for rank in jobs().values()]
    with open(fails, "x", encoding="ascii"):
        pass
    bring_to_rest(*leases)
    ends = [lease.until("end") for lease in leases]
    equal(sorted(end.split()[0] for end in ends), ["failed", "ok"], "how the yields end")
    failed = next(lease for lease, end in zip(leases, ends) if end != "ok")
    keys = {line.split()[0] for line in failed.seen}
    equal(keys & {"freed", "mapped"}, {"mapped"}, "what it said of its memory")
    equal([rank["state"] for rank in jobs().values()], ["waiting"] * 2, "the states after it")
    for lease in leases:
        lease.send(f"room {EVERYTHING}")
    for lease in leases:
        equal(lease.until("end"), "ok", "the end of a fill")
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "not every rank verified its memory")


def one_of_several_that_fails():
    """If the first unmap fails, nothing is freed, and it runs on, as it shares nothing; if the third one does, it keeps
    the rest."""
    for unmap in (1, 3):
        job = started(CUDAW_SIM_FAULT=f"cuMemUnmap:{unmap}:999")
        lease, before = Lease(job), process_used(job.pid)
        bring_to_rest(lease)
        check("unmap" in lease.until("end"), f"the job answered {lease.seen}")
        keys = {line.split()[0] for line in lease.seen}
        equal(keys & {"freed", "mapped"}, {"freed", "mapped"} if unmap > 1 else set(), "what it said of its memory")
        equal(job.state(), "waiting" if unmap > 1 else "running", "the state after it")
        if unmap > 1:
            equal(process_used(job.pid), before - (lease.last("freed") >> 20), "the MiB on the GPU after it")
            job.check_still()
            lease.fill()
        equal(process_used(job.pid), before, "the MiB on the GPU in the end")
        finish(job)


def what_a_client_must_not_say():
    job = started()
    lease, other = Lease(job), Lease(job)
    other.send("room 5")
    check(other.until("end").startswith("busy"), f"a room without a yield: {other.seen}")
    lease.take(MIB)
    other = Lease(job)
    other.send("yield 5")
    check(other.until("end").startswith("busy"), f"a second lease: {other.seen}")
    for line in ("yield", "yield x", "yield -1", "yield 5 x", "room", "room 1 2"):
        other = Lease(job)
        other.send(line)
        check(other.until("end").startswith("invalid"), f"'{line}': {other.seen}")
    lease.send("status")
    check(lease.until("end").startswith("invalid"), f"a status by the lease: {lease.seen}")
    job.wait_state("running")
    finish(job)


# Runs a program without fallocate(2), as on a file system that cannot reserve: a filter of seccomp(2).
UNRESERVED = """\
import ctypes, errno, os, struct, sys
ALLOW, ERRNO, FALLOCATE = 0x7fff0000, 0x00050000, 285
rules = ((0x20, 0, 0, 0), (0x15, 0, 1, FALLOCATE), (0x06, 0, 0, ERRNO | errno.EOPNOTSUPP), (0x06, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code))):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""


def spilling(group, *under):
    """A job that finds no host memory, and a client that has its lease."""
    job = Job(*group.command(*under, f"{BUILD}/tests/programs/counter", "--mib", 32, "--allocs", 8, "--verify", 1, "--steps", 1000000,
                             "--step-ms", 10),
              env={"CUDAW_RELEASE": "memory", "CUDAW_SPILL_DIR": SCRATCH})
    job.wait_steps(3)
    return job, Lease(job)


def on_a_disk():
    """Part after part into the spill file, and back."""
    with Group(256 * MIB) as group:
        job, lease = spilling(group)
        for _ in range(3):
            first = lease.take(4 * MIB)
            spilled = job.status()["spilled"]
            check(spilled >= first, f"{spilled} bytes spilled of {first}")
            lease.take(4 * MIB)
            check(job.status()["spilled"] >= spilled + 4 * MIB, "the second part is not on disk")
            job.pause()
            cudaw_ok("resume", "--no-wait", job.pid)
            lease.fill()
            job.wait_steps(job.steps() + 3)
        finish(job)


def a_part_for_which_the_disk_has_no_room():
    """What is on disk already stays there."""
    with Group(256 * MIB) as group:
        job, lease = spilling(group)
        lease.take(4 * MIB)
        resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (8 * MIB, resource.RLIM_INFINITY))
        lease.send(f"yield {12 * MIB}")
        check(lease.until("end").startswith("nomem"), f"the second part ends: {lease.seen[-1]}")
        lease.fill()
        finish(job)


def a_disk_that_cannot_reserve():
    """A write may find no room, so no memory goes before all is written: a pause works."""
    with Group(256 * MIB) as group:
        job, lease = spilling(group, sys.executable, "-c", UNRESERVED)
        lease.send(f"yield {4 * MIB}")
        check(lease.until("end").startswith("nomem"), f"the yield ends: {lease.seen[-1]}")
        contains(lease.seen[-1], "CUDAW_SPILL_DIR cannot reserve ")
        job.wait_steps(job.steps() + 3)
        job.pause()
        check(job.status()["spilled"], "nothing is on disk")
        cudaw_ok("resume", "--no-wait", job.pid)
        finish(job)


def both_ways_at_once():
    """One job gives what it has while the other one is half-way to having its own, and the reverse."""
    giver = started(CUDAW_RELEASE="memory")
    # It copies nothing by itself; and 1 MiB at once, where nothing is pinned.
    taker = Job("hold", env={"CUDAW_RELEASE": "memory", "CUDAW_HOST_POOL": "0", **HELD})
    taker.wait_line("holding")
    gives, takes = Lease(giver), Lease(taker)
    takes.take(EVERYTHING)
    hold("in", after=HALF)
    takes.send(f"room {EVERYTHING}")
    until(lambda: passed("in"), 10, "some of it is back")
    gives.take(EVERYTHING)
    equal(taker.state(), "resuming", "the state of one that is half-way in")
    let_go("in")
    equal(takes.until("end"), "ok", "the end of the fill")
    hold("out", after=HALF)
    takes.seen.clear()
    takes.send(f"yield {EVERYTHING}")
    until(lambda: passed("out"), 10, "some of it is out")
    gives.fill()
    equal(taker.state(), "pausing", "the state of one that is half-way out")
    let_go("out")
    equal(takes.until("end"), "ok", "the end of the yield")
    takes.fill()
    finish(giver)
    taker.tell()
    check("every byte right" in taker.result(), "the job did not verify its memory")


PROGRAMS = (("counter", LARGE_MIB, (), {}), ("counter", SIZE_MIB, (), {"CUDAW_ADDRESSING": "translated"}),
            ("counter", SIZE_MIB, (), {"CUDAW_VERIFY": "1"}), ("counter", SIZE_MIB, ("--chunk-mib", 8), {}),
            ("objects", SIZE_MIB, (), {}), ("soak", SIZE_MIB, ("--threads", 8), {}))


def at_random(program, mib, args, env):
    rng = seeded()
    job = started(program, *args, mib=mib, **env)
    lease = Lease(job)
    gone = user = False
    freed = left = 0
    for _ in range(12 if SANITIZED else 25):
        deed = rng.choice(("take", "take", "room", "fill", "pause", "resume", "trim", "snapshot",
                           "hang up"))
        if deed == "take":
            freed = lease.take(rng.randrange(mib * MIB))
            left, gone = lease.last("mapped"), True
        elif deed == "room" and gone:
            # Never for all of its memory: then it would run.
            lease.send(f"room {left + rng.randrange(freed or 1)}")
        elif deed == "fill" and gone and not user:
            lease.fill()
            gone = False
        elif deed == "pause":
            cudaw_ok("pause", "--release", rng.choice(("all", "memory")), job.pid)
            user = True
        elif deed == "resume":
            cudaw_ok("resume", *(("--no-wait",) if gone else ()), job.pid)
            user = False
        elif deed == "trim":
            cudaw_ok("trim", job.pid)
        elif deed == "snapshot":
            cudaw_ok("snapshot", "--gpu-only", job.pid, os.path.join(SCRATCH, f"at-random-{job.pid}"))
        elif deed == "hang up":
            lease.hang_up()
            lease, gone = Lease(job), False
            if not user:
                job.wait_state("running")
        if gone or user:
            job.check_still(0.02)
        else:
            job.wait_steps(job.steps() + 2)
    lease.hang_up()
    if user:
        job.resume()
    job.wait_state("running")
    job.wait_steps(job.steps() + 3)
    job.finish()


GPU_TESTS = (("counter", "--mib", 40, "--allocs", 8, "--steps", 60, "--step-ms", 5),
             ("objects", "--steps", 60, "--step-ms", 5))

main(*(case for program in GPU_TESTS for case in shared("parts.py", *program, STILL=0.03)),
     out_in_parts_and_back_in_parts, room_that_grows_during_the_fill, the_users_pause_wins,
     a_resume_waits_for_its_turn, a_resume_that_is_given_up_pauses_nobody,
     a_lease_that_is_lost_comes_back,
     a_part_is_out_while_memory_is_not_there, snapshots, a_fill_that_fails_waits_for_another_room,
     a_process_image_has_no_lease, trims_change_nothing,
     signals_reach_the_program, kernels_that_do_not_end, one_process_of_several,
     one_that_shares_memory, one_of_several_that_shares_memory_and_fails, one_that_imports_its_own_memory,
     one_that_imports_its_own_memory_and_runs_on,
     one_of_several_that_fails,
     what_a_client_must_not_say, on_a_disk, a_part_for_which_the_disk_has_no_room, a_disk_that_cannot_reserve,
     both_ways_at_once,
     *((f"at random: {' '.join(map(str, (program, *args, *env)))}",
        lambda program=program, mib=mib, args=args, env=env: at_random(program, mib, args, env))
       for program, mib, args, env in PROGRAMS))
