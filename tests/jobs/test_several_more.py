#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of which several processes use CUDA: how they share memory, on which GPUs, and what may happen meanwhile."""
import contextlib
import fcntl
import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess

from restorelib import Snapshot, allow_stand_in, commit_held, directory, need_criu, nvml, pretended_criu, refused
from severallib import Server, Sharing, held_before_its_lock, rolled_back, stopped_and_restored, taken, watchers_of, watching
from simlib import HELD, held_back, hold, let_go, unsanitized
from snapshotjobs import ask
from gpulib import CUDAW, RUNTIME_DIR, base_environment, check, cudaw_ok, equal, jobs, main, until
import proclib

KINDS = {"tickets": ([], 4), "a ring of legacy IPC": (["--ipc", 1, "--ring", 1], 4), "IPC": (["--ipc", 1], 2)}


def kind(name):
    options, ranks = KINDS[name]

    @unsanitized
    def case():
        need_criu()
        job = Sharing(*options, ranks=ranks)
        for _ in range(2):
            stopped_and_restored(job)
        rolled_back(job)
        job.finish(back=1)
    return f"{name} of {ranks} ranks", case


@unsanitized
def a_server_without_cuda_and_engines_over_tcp():
    """With a file of /dev/shm, which a rollback gives its old contents."""
    need_criu()
    job = Server("--bytes", 1 << 18, "--shares", 1)
    stopped_and_restored(job)
    path = rolled_back(job)
    cudaw_ok("snapshot", "--stop", job.id, path)
    cudaw_ok("restore", "--paused", path)
    equal(job.cuda_states(), {"paused"}, "the states")
    cudaw_ok("resume", job.id)
    job.goes_on()
    job.finish(back=1)


def gpus_of(job):
    return [jobs()[pid]["gpu"][0]["uuid"][-2:] for pid in job.engines]


@unsanitized
def on_other_gpus():
    """By one map for the whole job, also where each process sees its own GPU alone."""
    need_criu()
    machine = {"CUDAW_SIM_DEVICES": "4", **nvml(COUNT=4)}
    os.environ.update(machine)
    for options, moves in (([], ["0=1", "1=0"]), (["--visible", 1], ["0=1", "1=0"]), (["--visible", 1], ["0=2"])):
        job = Sharing("--gpus", 2, *options)
        before = gpus_of(job)
        equal(len(set(before)), 2, "the GPUs")
        stopped_and_restored(job, *(word for move in moves for word in ("--gpu", move)))
        wanted = before[::-1] if len(moves) == 2 else ["02", before[1]]
        equal(gpus_of(job) if options else before[::-1], wanted, "the GPUs after the restore")
        stopped_and_restored(job)
        job.finish()
    for name in machine:
        del os.environ[name]


@unsanitized
def what_fails_leaves_all_as_they_were():
    job = Sharing()
    for options in ([], ["--stop"]):
        snapshot = Snapshot(job.in_command, *options, path=directory()).in_criu()
        equal(job.states(), "T", "the states while CRIU works")
        snapshot.let_criu_go(1)
        check("CRIU: " in snapshot.end(1), "it does not say so")
        equal(os.listdir(snapshot.path), [], "what is left")
        job.goes_on()
    snapshot = Snapshot(job.in_command, "--stop", path=directory()).in_criu()
    os.kill(job.engines[1], signal.SIGCONT)
    snapshot.let_criu_go(0)
    snapshot.end(1)
    job.goes_on()
    # The second process cannot write its memory.
    limits = resource.prlimit(job.engines[1], resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    path = directory()
    said = refused("snapshot", "--stop", job.id, path)
    check(f"snapshot {job.engines[1]}" in said, said)
    resource.prlimit(job.engines[1], resource.RLIMIT_FSIZE, limits)
    equal(os.listdir(path), [], "what is left")
    job.goes_on()
    job.finish()


@unsanitized
def a_job_that_was_paused_stays_so():
    job = Sharing()
    cudaw_ok("pause", job.id)
    path = taken(job)
    equal(job.cuda_states(), {"paused"}, "the states")
    cudaw_ok("resume", job.id)
    job.goes_on()
    path = taken(job, path=path)
    equal(len(glob.glob(f"{path}/parts-*")), 1, "the directories of parts: the first one's is removed")
    job.goes_on()
    job.finish()


def held_in(call):
    """A job whose calls of the driver's function wait."""
    held = {**HELD, "CUDAW_SIM_HELD_CALL": call}
    os.environ.update(held)
    job = Sharing()
    for name in held:
        del os.environ[name]
    hold("call")
    return job


@unsanitized
def a_command_that_is_killed():
    job = Sharing()
    snapshot = Snapshot(job.in_command, "--stop", path=directory()).in_criu()
    snapshot.process.kill()
    snapshot.process.wait()
    snapshot.let_criu_go(1)
    equal(job.states(), "T", "the states")
    cudaw_ok("resume", job.id)
    job.goes_on()
    job.finish()


@unsanitized
def a_command_that_is_killed_while_they_pause():
    """They have agreed to pause, and run on by themselves."""
    job = held_in("cuMemUnmap")
    snapshot = Snapshot(job.in_command, path=directory())
    until(lambda: held_back("call"), 30, "they give their memory back")
    snapshot.process.kill()
    snapshot.process.wait()
    let_go("call")
    job.goes_on()
    job.finish()


def image_of_all(snapshot, job):
    """The pretended CRIU makes that of its first process alone."""
    image, = glob.glob(f"{snapshot.path}/host-*")
    for pid in job.pids:
        with open(f"{image}/core-{pid}.img", "wb"):
            pass


@unsanitized
def a_running_job_runs_on_after_an_interrupt():
    """While it pauses, there is no snapshot; while CRIU works, it is complete all the same."""
    job = held_in("cuMemUnmap")
    snapshot = Snapshot(job.in_command, path=directory())
    until(lambda: held_back("call"), 30, "they give their memory back")
    os.kill(snapshot.process.pid, signal.SIGINT)
    let_go("call")
    check("interrupted" in snapshot.end(-signal.SIGINT), "it does not say so")
    job.goes_on()
    snapshot = Snapshot(job.in_command, path=snapshot.path).in_criu()
    image_of_all(snapshot, job)
    os.kill(snapshot.process.pid, signal.SIGINT)
    snapshot.let_criu_go(0)
    snapshot.end(-signal.SIGINT)
    job.goes_on()
    cudaw_ok("verify", snapshot.path)
    job.finish()


@unsanitized
def what_was_saved_comes_back_without_a_read():
    job = Sharing()
    snapshot = Snapshot(job.in_command, "--json", path=directory()).in_criu()
    image_of_all(snapshot, job)
    snapshot.let_criu_go()
    said = json.loads(snapshot.end())
    for resume in said["resume"], *(process["resume"] for process in said["further"]):
        names = [phase["name"] for phase in resume]
        check("copy" in names and "read" not in names, f"a resume had {names}")
    equal(len(said["further"]), len(job.engines) - 1, "the other processes")
    job.goes_on()
    job.finish()


@unsanitized
def all_go_on_before_the_commit():
    job = Sharing()
    with commit_held(job.in_command) as snapshot:
        image_of_all(snapshot, job)
        equal(job.states(), "T", "the states while CRIU works")
        snapshot.let_criu_go()
        job.goes_on()
    snapshot.end()
    cudaw_ok("verify", snapshot.path)
    with commit_held(job.in_command, fails="yes") as snapshot:
        image_of_all(snapshot, job)
        snapshot.let_criu_go()
        job.goes_on()
    check("Input/output error" in snapshot.end(1), "the reason is not told")
    equal(os.listdir(snapshot.path), [], "what is left")
    job.finish()


@unsanitized
def another_snapshot_under_way_is_left_alone():
    """This process makes it, and has the pause, until it says that it is done."""
    job = Sharing()
    cudaw_ok("pause", "--release", "all", job.id)
    path = directory()
    parts = " ".join(map(str, job.engines))
    said = ask(job.in_command, f"snapshot hold image parts {parts} none {path}")[-1]
    equal(said.split()[:2], ["end", "ok"], "the other one's answer")
    for there in (path, directory()):
        said = refused("snapshot", job.id, there)
        check("another snapshot is under way" in said, said)
    equal(job.cuda_states(), {"paused"}, "the states")
    with locked(path):
        pass
    ask(job.in_command, f"done {path}")
    cudaw_ok("resume", job.id)
    job.goes_on()
    job.finish()


def state(pid):
    """As in ps(1); "-": it is not there."""
    try:
        return proclib.state(pid)
    except OSError:
        return "-"


@unsanitized
def an_interrupt_of_a_restore_as_they_begin_to_run():
    """Before they are asked to resume: they do, without the command, and so do the others."""
    need_criu()
    job = Server()
    path = taken(job, "--stop")
    equal(job.states(), "", "what runs of it")
    # The second one cannot be asked anything while a directory has the name of its socket.
    socket, criu = f"{RUNTIME_DIR}/{job.engines[1]}.sock", os.environ["CUDAW_CRIU"]
    holding = pretended_criu(f'[ "$1" = restore ] || exec {criu} "$@"\n{criu} "$@" && rm {socket} && mkdir {socket}\n')
    restore = subprocess.Popen([CUDAW, "restore", path], env={**base_environment(), **holding})
    until(lambda: os.path.isdir(socket) and all(state(pid) in "SR" for pid in job.engines), 60,
          "those that use CUDA run")
    restore.send_signal(signal.SIGINT)
    os.rmdir(socket)
    restore.wait(60)
    job.goes_on()
    job.finish()


@unsanitized
def one_that_ends_meanwhile():
    """The others run on, and find that. Without memory that it has shared they cannot, and stay paused."""
    for job in (Server(), Sharing()):
        snapshot = Snapshot(job.in_command, "--stop", path=directory()).in_criu()
        os.kill(job.engines[1], signal.SIGKILL)
        snapshot.let_criu_go(0)
        said = snapshot.end(1)
        # A server ends the others, and some of them may be named, too.
        ended = re.search(r"its process(?:es)? ([0-9, ]+) ha(?:s|ve) ended", said)
        check(ended and str(job.engines[1]) in ended[1].split(", "), said)
        if isinstance(job, Server):
            until(lambda job=job: not job.states(), 30, "the others have ended")
        else:
            check("the job stays paused" in said, said)
            equal("T" in job.states(), False, "whether one of its processes is stopped")
            job.kill()


# In a way that passes, and NVML does not come back.
FAILS = """
[ "$1" = --version ] && {{ echo Version: 4.2; exit; }}
rm -f {}
while [ $# -gt 1 ]; do
    case $1 in
    --work-dir) work=$2 ;;
    --log-file) log=$2 ;;
    esac
    shift
done
echo "Error (pretended): Connected TCP socket" > $work/$log
exit 1
"""


@unsanitized
def nvml_that_does_not_come_back():
    """The commands say so. The others go on."""
    need_criu()
    with watching() as (options, _):
        job, device = Server(*options, engines=1), options[2]
        path = taken(job, "--stop")
        equal(job.states(), "", "what runs of it")
        count = os.environ.pop("TEST_NVML_COUNT")
        said = refused("restore", "--gpu", "0=1", "--gpu", "1=0", path, code=6)
        check("uses NVML alone, and goes to other GPUs only if" in said, said)
        os.environ["TEST_NVML_COUNT"] = count
        os.unlink(device)
        said = refused("restore", path)
        check("NVML: cuCheckpointProcessRestore fails with CUDA_ERROR_OPERATING_SYSTEM" in said, said)
        equal(job.cuda_states(), {"running"}, "the states")
        job.kill()
        with open(device, "w", encoding="ascii"):
            cudaw_ok("restore", path)
        job.goes_on()
        snapshot = Snapshot(job.in_command, path=directory()).in_criu()
        os.unlink(device)
        image_of_all(snapshot, job)
        snapshot.let_criu_go(0)
        said = snapshot.end(1)
        cudaw_ok("verify", snapshot.path)
        check("NVML stays blocked there" in said, said)
        check(f"{job.in_command.pid} is in {snapshot.path}" in said, said)
        equal(job.cuda_states(), {"running"}, "the states")
        job.kill()
        with open(device, "w", encoding="ascii"):
            cudaw_ok("restore", path)
        job.goes_on()
        said = refused("snapshot", "--stop", job.id, directory(), env=pretended_criu(FAILS.format(device)))
        equal(said.count("NVML stays blocked there"), 1, f"how often it says so ({said})")
        equal(job.cuda_states(), {"running"}, "the states")
        job.kill()


@unsanitized
def one_that_watches_and_is_stopped_meanwhile():
    """The others get NVML back at once, and it once it is continued."""
    with watching() as (options, left):
        job = Server(*options, "--watchers", 2, engines=1)
        watchers = watchers_of(job, 2)
        with held_before_its_lock(job, watchers[1]):
            proclib.send(watchers[0], "STOP")
        job.pids.remove(watchers[0])
        job.goes_on()
        equal(len(left(job)), 2, "the files of GPUs that are open of the others")
        job.pids.append(watchers[0])
        proclib.send(watchers[0], "CONT")
        until(lambda: len(left(job)) == 3, 30, "it has NVML back")
        job.goes_on()
        # After an interrupt no other one is locked, and the command ends once all have NVML back.
        for_ever = f"{os.environ['CUDAW_SIM_REMOTE']}/{watchers[1]}.held"
        os.mkfifo(for_ever)
        with held_before_its_lock(job, watchers[0], fails="interrupted") as command:
            command.send_signal(signal.SIGINT)
            until(lambda: len(pipes(command.pid)) == 2, 30, "only its output is left")
        equal(len(left(job)), 3, "the files of GPUs that are open after an interrupt")
        os.unlink(for_ever)
        # Nor are they left without NVML if the child crashes as well.
        with held_before_its_lock(job, watchers[1], fails="the driver crashed") as command:
            child, = proclib.descendants(command.pid)
            command.send_signal(signal.SIGSTOP)
            until(lambda: proclib.state(command.pid) == "T", 30, "the command is stopped")
            command.send_signal(signal.SIGINT)
            proclib.send(child, "KILL")
            command.send_signal(signal.SIGCONT)
        equal(len(left(job)), 3, "the files of GPUs that are open after a crash")
        job.goes_on()
        job.finish()


def pipes(pid):
    return {path for path in proclib.descriptors(pid).values() if path.startswith("pipe:")}


@unsanitized
def what_is_refused_by_name():
    job = Sharing()
    said = refused("snapshot", "--gpu-only", job.id, directory(), code=6)
    check("expected one process that uses the GPU, found 2" in said, said)
    with watching() as (options, _):
        remote = os.environ.pop("CUDAW_SIM_REMOTE")     # the driver does not know it
        server = Server(*options, engines=1)
        os.environ["CUDAW_SIM_REMOTE"] = remote
        said = refused("snapshot", server.id, directory(), code=6)
        check("open, and does not use CUDA under cudaw" in said, said)
        server.finish()
        os.environ["TEST_NVML_MAPS"] = "1"              # as one that uses CUDA
        server = Server(*options, engines=1)
        del os.environ["TEST_NVML_MAPS"]
        said = refused("snapshot", server.id, directory(), code=6)
        check("open, and does not use CUDA under cudaw" in said, said)
        server.finish()
        server = Server(*options, "--watchers", 1, engines=1)
        watcher, = watchers_of(server, 1)
        proclib.send(watcher, "STOP")
        said = refused("snapshot", server.id, directory(), code=6)
        check(f"its process {watcher} is stopped and has loaded NVML" in said, said)
        proclib.send(watcher, "CONT")
        server.finish()
    os.environ["SHARING_JOB"] = "abcdef"
    mixed = Sharing()
    del os.environ["SHARING_JOB"]
    said = refused("snapshot", mixed.engines[0], directory(), code=6)
    check(f"its process {mixed.engines[1]} uses the GPU, too, but as another job" in said, said)
    mixed.finish()
    said = cudaw_ok("snapshot", "--check", job.id)
    check("can be put into a snapshot" in said, said)
    other = Sharing()
    cudaw_ok("pause", other.id)
    path = taken(other)
    said = refused("snapshot", job.id, path)
    check("may have its memory in it" in said, said)
    cudaw_ok("resume", other.id)
    job.goes_on()
    other.goes_on()
    other.finish()
    job.finish()


def forged(path, change):
    copy = directory()
    shutil.copytree(path, copy, symlinks=True)
    change(copy, *glob.glob(f"{copy}/parts-*/*"))
    return copy


def swap(path):
    """Whoever owns the snapshot may do so, and root follows no such link."""
    os.rename(path, path + ".other")
    os.symlink(path + ".other", path)


@contextlib.contextmanager
def locked(path):
    """As nobody else may have it locked."""
    there = os.open(path, os.O_RDONLY)
    fcntl.flock(there, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield
    os.close(there)


@unsanitized
def a_damaged_or_forged_part_starts_nothing():
    job, other = Sharing(), Sharing()
    others = taken(other, "--stop")
    path = taken(job, "--stop")
    equal(job.states() + other.states(), "", "what runs of them")

    def replace(_, part):
        shutil.rmtree(part)
        shutil.copytree(glob.glob(f"{others}/parts-*/*")[0], part)

    def damage(_, part):
        with open(glob.glob(f"{part}/data-*")[0], "r+b") as file:
            file.write(b"damaged.")

    lines = job.lines()
    for change, why in ((lambda _, part: shutil.rmtree(part), "No such file or directory"),
                        (replace, "it is not of the snapshot in"),
                        (lambda _, part: swap(part), "Not a directory"),
                        (lambda _, part: swap(os.path.dirname(part)), "Not a directory"),
                        (lambda _, part: os.chown(part, 1, -1), "it is not of the snapshot in"),
                        (lambda _, part: os.remove(f"{part}/manifest.json"), "manifest.json: it is missing")):
        check(why in refused("restore", "--check", forged(path, change)), why)
    check("damaged" in refused("verify", forged(path, damage)), "verify does not find it")
    part, = glob.glob(f"{path}/parts-*/*")
    check("it is a part of the snapshot" in refused("restore", "--check", part), "it does not say so")
    need_criu()
    said = refused("restore", forged(path, damage))
    check("damaged" in said, said)
    equal((job.states(), job.lines()), ("", lines), "what runs, and what it has printed")
    cudaw_ok("restore", path)
    job.goes_on()
    job.finish()


allow_stand_in()
main(*map(kind, KINDS), a_server_without_cuda_and_engines_over_tcp, on_other_gpus, what_fails_leaves_all_as_they_were,
     a_job_that_was_paused_stays_so, a_command_that_is_killed, a_command_that_is_killed_while_they_pause,
     a_running_job_runs_on_after_an_interrupt, what_was_saved_comes_back_without_a_read,
     all_go_on_before_the_commit, another_snapshot_under_way_is_left_alone,
     an_interrupt_of_a_restore_as_they_begin_to_run,
     one_that_ends_meanwhile, one_that_watches_and_is_stopped_meanwhile, nvml_that_does_not_come_back, what_is_refused_by_name,
     a_damaged_or_forged_part_starts_nothing)
