#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Snapshots of jobs of which several processes use CUDA. test_several_more.py has more kinds of them, and what may happen
meanwhile.
"""
import contextlib
import fcntl
import glob
import json
import os
import re
import resource
import signal

from jointlib import Pauser, pact
from restorelib import Snapshot, allow_stand_in, directory, refused, stands_in
from severallib import Server, Sharing, held_before_its_lock, stopped_and_restored, taken, watchers_of, watching
from simlib import is_stopped, unsanitized
from gpulib import RUNTIME_DIR, check, cudaw, cudaw_ok, equal, jobs, main, until
import proclib


def ranks_that_share_memory_go_and_come_back():
    job = Sharing()
    stopped_and_restored(job)
    if not stands_in():
        job.finish()


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@unsanitized
def few_descriptors_are_raised():
    """A restore of many reads all parts at once, by several threads each."""
    job = Sharing("--ballast", 64)
    path = directory()
    cudaw_ok("snapshot", "--stop", job.engines[0], path, preexec_fn=limit_descriptors)
    equal(job.states(), "", "what runs of it")
    if stands_in():
        check("no real CRIU" in refused("restore", path, preexec_fn=limit_descriptors), "something does not fit")
    else:
        cudaw_ok("restore", path, preexec_fn=limit_descriptors)
        job.goes_on()
        job.finish()


@unsanitized
def one_that_has_only_initialised_cuda():
    """It has files of the driver all the same, which its checkpoint takes."""
    job = Server("--inits", 1, engines=1)
    path = taken(job)
    equal(job.engines[0], job.pid, "the first process that uses CUDA")
    with open(f"{path}/manifest.json", encoding="ascii") as file:
        phases = [phase["name"] for phase in json.load(file)["phases"]]
    check("release" in phases, f"the phases of its snapshot: {phases}")
    job.goes_on()
    if not stands_in():
        stopped_and_restored(job)
    job.finish()


def keep_some(job, path):
    """Which of the processes have memory in the snapshot that the one before it has stored."""
    kept = {}
    for name in (f"{path}/manifest.json", *glob.glob(f"{path}/parts-*/*/manifest.json")):
        with open(name, encoding="ascii") as file:
            manifest = json.load(file)
        kept[manifest["process"]["pid"]] = manifest["totals"]["unchanged"] > 0
    return [kept[pid] for pid in job.engines]


def a_second_one_writes_what_has_changed():
    """In each process. Files that were altered since, or are missing, are written anew."""
    job = Sharing("--ballast", 16)
    path = taken(job)
    for harm, keep in ((None, [True, True]), (os.utime, [True, False]), (os.unlink, [True, False])):
        job.goes_on()
        for name in glob.glob(f"{path}/parts-*/{job.engines[1]}/data-*") if harm else ():
            harm(name)
        taken(job, "--incremental", path=path)
        equal(keep_some(job, path), keep, f"which of them keep something after {harm}")
        equal(len(glob.glob(f"{path}/parts-*/*/index-*")), 1, "the indices of the other one's memory")
    job.goes_on()
    stopped_and_restored(job, path=path, taking=["--incremental"])
    equal(keep_some(job, path), [True, True], "which of them keep something at last")
    if not stands_in():
        job.finish()


@unsanitized
def one_that_watches_the_gpu_by_nvml():
    """
    It does not use CUDA, and was forked by a process that does. Calls of NVML wait while the driver's checkpoint has
    it, and not a moment longer.
    """
    with watching() as (options, left):
        job = Server(*options, "--inits", 1, engines=1)
        taken(job)
        job.goes_on()
        snapshot = Snapshot(job.in_command, "--stop", path=directory()).in_criu()
        equal(left(job), [], "the files of GPUs that are open while CRIU works")
        snapshot.process.kill()
        snapshot.end(-9)
        snapshot.let_criu_go(1)
        cudaw_ok("resume", job.id)
        job.goes_on()
        stopped_and_restored(job, "--gpu", "0=1", "--gpu", "1=0")
        if not stands_in():
            equal(len(left(job)), 1, "the files of GPUs that are open after the restore")
            job.finish()


@unsanitized
def those_that_watch_may_end_meanwhile():
    """After the driver's checkpoint of them, or before it; the snapshot has the others, and can be restored."""
    with watching() as (options, left):
        job, path = Server(*options, "--watchers", 2, engines=1), directory()
        watchers = watchers_of(job, 2)
        with held_before_its_lock(job, watchers[1], "--stop", path=path):
            for pid in watchers:
                proclib.send(pid, "KILL")
                until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), 20, "it is gone")
        job.pids = [pid for pid in job.pids if pid not in watchers]
        equal(job.states(), "", "what runs of it")
        if stands_in():
            check("no real CRIU" in refused("restore", path), "something does not fit")
            return
        cudaw_ok("restore", path)
        job.goes_on()
        equal(len(left(job)), 1, "the files of GPUs that are open after the restore")
        job.finish()


@contextlib.contextmanager
def other_command(pids):
    """One works on these processes by the driver, or begins to. Gives the files by which it says so."""
    paths = [os.path.join(RUNTIME_DIR, f"{pid}.driver") for pid in pids]
    with contextlib.ExitStack() as files:
        for path in paths:
            fcntl.flock(files.enter_context(open(path, "w", opener=private, encoding="ascii")), fcntl.LOCK_EX)
        yield paths


def private(path, flags):
    return os.open(path, flags, 0o600)


@unsanitized
def a_command_that_is_killed_with_its_children():
    """
    Nobody is left to give NVML back. A snapshot without it is refused, and a resume gives it back, unless another
    command is at work there.
    """
    with watching() as (options, left):
        job = Server(*options, engines=1)
        for is_refused in (False, True):
            snapshot = Snapshot(job.in_command, "--stop", path=directory()).in_criu()
            for pid in (snapshot.process.pid, *proclib.descendants(snapshot.process.pid)):
                proclib.send(pid, "KILL")
            snapshot.end(-9)
            equal(job.states(), "T", "the states")
            if is_refused:
                for pid in job.pids:
                    proclib.send(pid, "CONT")
                until(lambda: job.cuda_states() == {"running"}, 30, "it runs")
                said = refused("snapshot", job.id, directory(), code=6)
                check("the driver has locked or checkpointed its process" in said, said)
                with other_command(job.pids) as records:
                    resume = cudaw("resume", job.id)
                one, = re.findall(r"process (\d+) is left alone: another command works on it\n", resume.stderr)
                equal(resume.returncode, 0, "the exit code of a resume that leaves it alone")
                # What may be a record, and is not to be had.
                record = os.path.join(RUNTIME_DIR, f"{one}.driver")
                os.remove(record)
                os.symlink("/nowhere", record)
                said = refused("resume", job.id)
                check(f"process {one} is left alone: {record} cannot be used" in said, said)
                os.remove(record)
            equal(left(job), [], "the files of GPUs that are open")
            cudaw_ok("resume", job.id)
            job.goes_on()
        equal(sum(not os.path.exists(path) for path in records), 1, "the processes whose records a resume looks at")
        job.finish()


def they_run_on_when_the_command_is_done_or_killed():
    """Paused for it, not as the user wants it; a pause by the user is another matter, and so is another snapshot."""
    job = Sharing()
    pauser = Pauser(job.engines, pact(2))
    equal(job.cuda_states(), {"paused"}, "the states")
    said = refused("snapshot", job.id, directory())
    check("another snapshot is under way" in said, said)
    equal(job.cuda_states(), {"paused"}, "the states after another snapshot was refused")
    for pid in job.engines:
        pauser.say_done(pid)
    job.goes_on()
    pauser.kill()
    pauser = Pauser(job.engines)
    cudaw_ok("pause", job.id)
    pauser.kill()
    until(lambda: not cudaw("snapshot", job.id, directory()).returncode, 30, "they notice")
    equal(job.cuda_states(), {"paused"}, "the states after a pause by the user")
    cudaw_ok("resume", job.id)
    job.goes_on()
    job.finish()


def the_last_word_of_a_command_that_has_ended_counts():
    """One that is stopped hears it then, and resumes together with the others. Nobody has waited for the command yet."""
    job = Sharing()
    pauser = Pauser(job.engines, pact(2))
    late, other = job.engines
    os.kill(late, signal.SIGSTOP)
    until(lambda: is_stopped(late), 10, "it is stopped")
    pauser.say_done(late)
    pauser.say_done(other)
    until(lambda: jobs()[other]["state"] != "paused", 10, "the other one has heard it")
    pauser.process.kill()
    until(lambda: proclib.is_zombie(pauser.process.pid), 10, "it has ended")
    os.kill(late, signal.SIGCONT)
    job.goes_on()
    pauser.kill()
    job.finish()


allow_stand_in()
main(a_command_that_is_killed_with_its_children, a_second_one_writes_what_has_changed,
     one_that_has_only_initialised_cuda, one_that_watches_the_gpu_by_nvml, those_that_watch_may_end_meanwhile,
     they_run_on_when_the_command_is_done_or_killed, the_last_word_of_a_command_that_has_ended_counts, ranks_that_share_memory_go_and_come_back,
     few_descriptors_are_raised)
