#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw restore of what is damaged, or does not fit here: refused, with nothing started."""
import os
import shutil
import signal

from restorelib import (STAND_IN, Counting, allow_stand_in, directory, goes_on, need_criu, pretended_criu, refused,
                        restores, stands_in, stopped, watched_criu)
from simlib import unsanitized
from gpulib import BUILD, RUNTIME_DIR, Skip, check, cudaw, cudaw_ok, equal, main
from harness import sleeping_as
import snapshotlib


def nothing_is_started_that_cannot_go_on():
    job, path = stopped()
    edited = snapshotlib.edit_manifest

    def library(m):
        return next(f for f in m["files"] if "/libc.so" in f["path"])

    for change, message in [
            (lambda m: library(m).update(build_id="0" * 40), "with build-id 0000"),
            (lambda m: library(m).update(path="/lib/gone.so"), "needs /lib/gone.so: No such file"),
            (lambda m: library(m).update(size=5), "of 5 bytes, found"),
            (lambda m: m.update(cuda=12080), "expected a driver of CUDA 12.8, found 13.0"),
            (lambda m: m["devices"][0].update(name="NVIDIA H200"), "found Simulated GPU (9.0, "),
            (lambda m: m["devices"][0].update(major=8), "expected a free GPU like GPU 0 of the snapshot"),
            (lambda m: m["devices"][0].update(memory=5), "expected a free GPU like GPU 0 of the snapshot"),
            (lambda m: m["devices"].append(m["devices"][0]), "expected 2 GPUs, found 1"),
            (lambda m: m["process"].update(pid=os.getpid()), "the job's process needs the id"),
            (lambda m: m.update(image=False), "has no process image"),
            (lambda m: m["process"].update(runtime_dir=None), "had no runtime directory"),
            (lambda m: m.update(version=9), "version 9 is newer")]:
        copy = directory()
        shutil.copytree(path, copy)
        edited(copy, change)
        done = cudaw("restore", copy)
        check(done.returncode in (1, 6), f"exit code {done.returncode} ({done.stderr})")
        check(message in done.stderr, f"{message!r} is not in {done.stderr!r}")
        check(job.is_gone(), "a process was started")
        shutil.rmtree(copy)
    # Early writers list data, too, as it was before the job was stopped.
    edited(path, lambda m: m["files"].append({"path": "/gone", "size": 5, "build_id": None}))
    goes_on(job, path)


@unsanitized
def all_reasons_are_listed_at_once():
    job, path = stopped()
    ran, criu = watched_criu(job)
    equal(cudaw_ok("restore", "--check", path), f"{os.path.realpath(path)} can be restored here\n", "what it says")
    copy = directory()
    shutil.copytree(path, copy)
    snapshotlib.edit_manifest(copy, lambda m: (m.update(cuda=12080), next(
        file for file in m["files"] if "/libc.so" in file["path"]).update(build_id="0" * 40)))
    os.rename(job.log, job.log + ".away")
    no_signals = {"LD_PRELOAD": f"{BUILD}/tests/preload/nosignal.so"}
    said = refused("restore", "--check", copy, code=6, env={**criu, **no_signals})
    for reason in ("with build-id 0000", "expected a driver of CUDA 12.8", f"the job has {job.log} open: No such file",
                   "(pidfd_open), which signals to processes need"):
        check(reason in said, f"{reason!r} is not in {said!r}")
    check(not restores(criu) and not os.path.exists(ran), "CRIU was to start the job")
    said = refused("restore", "--check", path, code=6, env={"CUDAW_REAL_LIBCUDA": "/nowhere"})
    check(f"the job has {job.log} open: No such file" in said, f"without a driver: {said}")
    os.rename(job.log + ".away", job.log)
    check("(pidfd_open), which" in refused("restore", path, code=6, env=no_signals), "signals are not needed")
    goes_on(job, path)


def wrong_gpus_are_named():
    job, path = stopped()
    for choice, message, code in [("7=0", "there is no such GPU in the snapshot", 2),
                                  ("0=7", "there is no such GPU on this machine", 2),
                                  ("GPU-x", "there is no such GPU on this machine", 2),
                                  ("0=", "there is no such GPU on this machine", 2)]:
        check(message in refused("restore", "--gpu", choice, path, code=code), choice)
    check("given twice" in refused("restore", "--gpu", "0=0", "--gpu", "0=0", path, code=2), "twice")
    goes_on(job, "--gpu", "0=0", path)


def other_gpus_are_asked_for():
    """The simulated driver refuses them; then the new processes are ended."""
    need_criu()
    job, path = stopped()
    said = refused("restore", "--gpu", "1", path, env={"CUDAW_SIM_DEVICES": "2"})
    check("cuCheckpointProcessRestore: CUDA_ERROR_NOT_SUPPORTED" in said, said)
    check("the new processes were killed" in said, said)
    check(job.is_gone(), "the new process is still there")
    goes_on(job, path)


def damage_is_found_before_anything_runs():
    """The GPU memory is read while CRIU starts the processes, which are stopped."""
    job, path = stopped()
    ran, criu = watched_criu(job)
    host = next(name for name in os.listdir(path) if name.startswith("host-"))
    data = next(name for name in os.listdir(path) if name.startswith("data-"))

    def flip(name):
        with open(name, "r+b") as file:
            file.seek(os.path.getsize(name) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))

    steps = job.steps()
    pages = max((name for name in os.listdir(f"{path}/{host}") if name.startswith("pages-")),
                key=lambda name: os.path.getsize(f"{path}/{host}/{name}"))
    for name, message in [(f"{host}/{pages}", f"{host}: "), (f"{host}/pstree.img", f"{host}: "),
                          (f"{host}/host.json", "host.json"), (data, f"{data}: damaged at ")]:
        target = f"{path}/{name}"
        flip(target)
        for command in ("verify", "restore"):
            said = refused(command, path, env=criu)
            check(message in said, f"{message!r} is not in {said!r}")
        check(job.is_gone(), "a process is there")
        check(restores(criu) == (name == data), "what CRIU was to start")
        if name == data and not stands_in():
            said = refused("restore", "--no-verify", path, env=criu)
            check(message in said and "the new processes were killed" in said, said)
            check(restores(criu) and job.is_gone(), "CRIU did not start the job, or it is there")
        flip(target)
    for name in ("plugin.so", "pages-9.img"):
        with open(f"{path}/{host}/{name}", "w", encoding="ascii") as file:
            file.write("x")
        check(f"{name}: it is not in host.json" in refused("restore", path), name)
        os.unlink(f"{path}/{host}/{name}")
    os.mkfifo(f"{path}/{host}/{name}")
    check(f"{name}: it is not a regular file" in refused("restore", path), "a pipe")
    os.unlink(f"{path}/{host}/{name}")
    os.rename(f"{path}/{host}/pstree.img", f"{path}/pstree")
    for command in ("restore", "inspect"):
        check("expected" in refused(command, path), "a file is missing")
    os.rename(f"{path}/pstree", f"{path}/{host}/pstree.img")
    equal((job.steps(), os.path.exists(ran)), (steps, False), "the steps, and whether a process ran")
    goes_on(job, path)


def what_is_left_of_a_restore_is_ended():
    """CRIU is killed, or the first process, or the command is interrupted, or the job ends as it runs. This needs
    the stand-in."""
    job, path = stopped()
    ran, _ = watched_criu(job)
    for killed, message in [("criu", "CRIU: it failed without a message"), ("root", f"there is no process {job.pid}")]:
        said = refused("restore", "--wait", path, code=125, env={"CUDAW_CRIU": STAND_IN, "STAND_IN_STARTS": f"{job.pid}:{ran}",
                                             "STAND_IN_KILLS": killed})
        check(message in said and "the new processes were killed; the snapshot is unchanged" in said, said)
        with open(f"{ran}.child", encoding="ascii") as file:
            child = int(file.read())
        check(job.is_gone() and not os.path.exists(f"/proc/{child}"), f"{killed} was killed, and a process is left")
        check(not os.path.exists(ran), "a process ran")
    for options in ((), ("--no-verify",)):
        said = refused("restore", *options, path, code=-signal.SIGINT,
                       env=pretended_criu(f"[ $1 = restore ] && kill -INT $PPID\n"
                                          f'export STAND_IN_STARTS={job.pid}:{ran}\nexec {STAND_IN} "$@"\n'))
        check(f"{os.path.realpath(path)}: interrupted" in said and "the new processes were killed" in said, said)
        check(job.is_gone() and not os.path.exists(ran), "a process is there, or ran")
    said = refused("restore", path, env={"CUDAW_CRIU": STAND_IN, "STAND_IN_STARTS": f"{job.pid}:{ran}",
                                         "STAND_IN_ENDS": ""})
    check("the job does not answer" in said and "the new processes were killed" in said, said)
    with open(f"{ran}.later", encoding="ascii") as file:
        later = int(file.read())
    check(os.path.exists(ran) and not os.path.exists(f"{ran}.child.ran"), "which of the processes ran")
    check(not os.path.exists(f"/proc/{later}"), "what it has started is left")
    goes_on(job, path)


def a_path_that_no_request_can_name():
    job, path = stopped()
    os.rename(path, path + "\nx")
    check(f"{path}?x: expected a path without line breaks" in refused("restore", path + "\nx"), "it")
    check(job.is_gone(), "a process was started")
    os.rename(path + "\nx", path)
    goes_on(job, path)


def the_same_process_id_is_needed():
    need_criu()
    job, path = stopped()
    cudaw_ok("restore", path)
    check(f"the job's process needs the id {job.pid}, which 'counter' has now" in refused("restore", path), "it")
    job.finish()


def the_ids_of_its_threads_are_needed():
    job, path = stopped()
    host = next(name for name in os.listdir(path) if name.startswith("host-"))
    ids = [int(name[5:-4]) for name in os.listdir(f"{path}/{host}") if name.startswith("core-")]
    other = sleeping_as(max(set(ids) - {job.pid}))
    said = refused("restore", path)
    check(f"thread of the job needs the id {other.pid}, which 'sleep' has now" in said, said)
    other.kill()
    other.wait()
    snapshotlib.edit_manifest(path, lambda m: m["process"].update(pid=job.pid + 100000))
    said = refused("restore", path)
    check(f"{host}: expected the process {job.pid + 100000}, found others" in said, said)
    snapshotlib.edit_manifest(path, lambda m: m["process"].update(pid=job.pid))
    goes_on(job, path)


def the_runtime_directory_is_the_jobs_owners():
    """Root brings back the jobs of others, but makes no directory for them that is not the usual one."""
    job, path = stopped()
    if os.getuid() != 0:
        raise Skip("it takes root")
    snapshotlib.edit_manifest(path, lambda m: m["process"].update(uid=12345))
    check("it belongs to another user" in refused("restore", path), "root's directory is taken")
    os.rename(RUNTIME_DIR, RUNTIME_DIR + ".away")
    check(f"{RUNTIME_DIR} cannot be used: " in
          refused("restore", path, env={"CUDAW_RUNTIME_DIR": ""}), "a directory is made")
    os.rename(RUNTIME_DIR + ".away", RUNTIME_DIR)
    host = next(name for name in os.listdir(path) if name.startswith("host-"))
    os.chown(RUNTIME_DIR, 12345, -1)
    os.chown(f"{path}/{host}", 12345, -1)
    equal(refused("restore", path),
          f"cudaw: {path}: {host}: it belongs to user 12345; expected user 0\n", "what is said")
    os.chown(f"{path}/{host}", 0, -1)
    os.chown(path, 12346, -1)
    equal(refused("restore", path), f"cudaw: {path}: it belongs to user 12346, but its manifest names "
          "user 12345\n", "what is said")
    os.chown(path, 0, -1)
    os.chown(RUNTIME_DIR, 0, -1)
    snapshotlib.edit_manifest(path, lambda m: m["process"].update(uid=0))
    goes_on(job, path)


def links_of_the_jobs_user_are_refused():
    """Root would open what they point to."""
    job, path = stopped()
    if os.getuid() != 0:
        raise Skip("it takes root")
    own, where = job.log + ".own", os.path.dirname(job.log)
    os.rename(job.log, own)
    os.symlink(own, job.log)
    os.lchown(job.log, 12345, -1)
    os.symlink(where, where + ".link")
    os.lchown(where + ".link", 12345, -1)
    expected = "expected no symbolic link that users other than root can make, found"
    for cwd, said in [
            (os.getcwd(), f"the job has {job.log} open: {expected} {job.log}\n"),
            (where + ".link", f"the job's working directory {where}.link: {expected} {where}.link\n")]:
        snapshotlib.edit_manifest(path, lambda m: m["process"].update(uid=12345, cwd=cwd))
        check(said in refused("restore", path), f"it is not said: {said}")
    snapshotlib.edit_manifest(path, lambda m: m["process"].update(cwd=os.getcwd()))
    os.lchown(job.log, 0, -1)
    check("it belongs to another user" in refused("restore", path), "a link of root is refused")
    os.lchown(job.log, 12345, -1)
    snapshotlib.edit_manifest(path, lambda m: m["process"].update(uid=0))
    if stands_in():
        goes_on(job, path)
    os.rename(own, job.log)
    goes_on(job, path)


def directories_of_sockets_are_those_of_their_users():
    """Root makes them as their user; and none if the image, which may be forged, is of another user."""
    if os.getuid() != 0:
        raise Skip("it takes root")
    own, roots = directory(), directory()
    os.mkdir(own)
    os.chown(own, 12345, 12345)
    os.mkdir(roots)
    for uid, where, said in (12345, own, "no real CRIU"), (12345, roots, f"{roots}/sockets: Permission denied"):
        job, path = Counting(), directory()
        stand_in = {"CUDAW_CRIU": STAND_IN}
        refused("snapshot", "--stop", job.pid, path, code=0,
                env={**stand_in, "STAND_IN_SOCKET": f"{uid}:{where}/sockets/socket"})
        check(job.is_gone(), "the job is still there")
        host = next(name for name in os.listdir(path) if name.startswith("host-"))
        os.chown(f"{path}/{host}", 12345, -1)
        for options in ["--check"], []:
            equal(refused("restore", *options, path, env=stand_in),
                  f"cudaw: {path}: {host}: it belongs to user 12345; expected user 0\n", "what is said")
        check(not os.path.exists(f"{where}/sockets"), "a directory is made for a forged image")
        os.chown(f"{path}/{host}", 0, -1)
        check(said in refused("restore", path, env=stand_in), f"it is not said: {said}")
    equal((os.stat(f"{own}/sockets").st_uid, os.listdir(roots)), (12345, []), "the owner, and what is in root's")


if __name__ == "__main__":
    allow_stand_in()
    main(nothing_is_started_that_cannot_go_on, all_reasons_are_listed_at_once, wrong_gpus_are_named, other_gpus_are_asked_for,
         damage_is_found_before_anything_runs, what_is_left_of_a_restore_is_ended, a_path_that_no_request_can_name,
         the_same_process_id_is_needed, the_ids_of_its_threads_are_needed,
         directories_of_sockets_are_those_of_their_users, the_runtime_directory_is_the_jobs_owners,
         links_of_the_jobs_user_are_refused)
