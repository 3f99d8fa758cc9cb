#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Jobs of which several processes use CUDA, in and out of snapshots many times: SEVERAL_SOAK="ROUNDS KILLS", few without
that. And a snapshot of which any file is damaged, or has no room.
"""
import os
import resource
import signal
import subprocess
import time

from restorelib import allow_stand_in, directory, killed_at_any_moment, need_criu, nvml, refused, stands_in
from severallib import Server, Sharing, stopped_and_restored, taken
from simlib import SCRATCH, unsanitized
from gpulib import CUDAW, base_environment, check, cudaw, cudaw_ok, equal, main, seeded, until
import proclib

ROUNDS, KILLS = map(int, os.environ.get("SEVERAL_SOAK", "1 12").split())
KINDS = {"tickets": [], "IPC": ["--ipc", 1], "ring": ["--ipc", 1, "--ring", 1]}
SWAP = ("--gpu", "0=1", "--gpu", "1=0")


def rounds(name, ranks):
    """--stop, running, rolled back; on the same GPUs, and on others."""
    @unsanitized
    def case():
        need_criu()
        machine = {"CUDAW_SIM_DEVICES": "2", **nvml(COUNT=2)}
        os.environ.update(machine)
        job = Sharing(*KINDS[name], "--gpus", 2, ranks=ranks)
        for _ in range(ROUNDS):
            for moved in (), SWAP:
                stopped_and_restored(job, *moved)
                path = taken(job)
                job.goes_on()
                job.kill()
                cudaw_ok("restore", *moved, path)
                job.goes_on()
        job.finish(back=2 * ROUNDS)
        for variable in machine:
            del os.environ[variable]
    return f"{name} of {ranks} ranks", case


def links():
    return [name for name in os.listdir("/dev/shm") if name.startswith("link_remap")]


def is_there(path):
    return os.path.exists(f"{path}/manifest.json")


def came_through(job, path):
    """What became of a job whose command was killed, after what a user would do."""
    running = [pid for pid in job.pids if os.path.exists(f"/proc/{pid}") and proclib.state(pid) not in "XZ"]
    if len(running) < len(job.pids):
        job.kill()
        cudaw_ok("verify", path)
        cudaw_ok("restore", path)
        job.goes_on()
        return "in the directory"
    how = "runs on"
    if "T" in job.states():
        cudaw_ok("resume", job.id)
        how = "resumed"
    job.goes_on()
    return how


def kills(make, *options):
    """The command is killed at any moment. It runs on with a stand-in for CRIU, too."""
    @unsanitized
    def case():
        if options:
            need_criu()
        rng, job, found = seeded(), make(), {}
        begin = time.monotonic()
        taken(job)
        longest = time.monotonic() - begin
        job.goes_on()
        for _ in range(KILLS // len(CASES)):
            path = directory()
            ended = killed_at_any_moment(rng, longest, *options, job.id, path) != -signal.SIGKILL
            how = came_through(job, path)
            found[how, ended] = found.get((how, ended), 0) + 1
            equal(links(), [], "the names that are left")
        print(f"# {found}", flush=True)
        os.kill(job.pid, signal.SIGINT)
        equal(job.wait_end(60)[-1], job.END, "the last line")
    return f"a command is killed at any moment, {make.__name__} {' '.join(options) or 'running'}", case


CASES = [(make, options) for make in (Sharing, Server) for options in ((), ("--stop",))]


def files(path):
    return [os.path.join(where, name) for where, _, names in os.walk(path) for name in names]


@unsanitized
def any_damaged_file_is_found_by_name():
    """By a restore, too, before a process runs."""
    job = Server()
    path = taken(job, "--stop")
    equal(job.states(), "", "what runs of it")
    lines = job.lines()
    for name in files(path):
        size = os.path.getsize(name)
        if not size:
            continue
        with open(name, "r+b") as file:
            file.seek(size // 2)
            byte = file.read(1)
            file.seek(size // 2)
            file.write(bytes([byte[0] ^ 0x55]))
        short = os.path.relpath(name, path)
        where, what = os.path.split(short)
        for command in ("verify",) if stands_in() else ("verify", "restore"):
            done = cudaw(command, path)
            check(done.returncode, f"{short} is damaged, and {command} does not find it")
            check(where in done.stderr and what in done.stderr, f"{short} is damaged: {command} says {done.stderr}")
            equal((job.states(), job.lines()), ("", lines), f"what runs, and has been printed, with a damaged {short}")
        with open(name, "r+b") as file:
            file.seek(size // 2)
            file.write(byte)
    cudaw_ok("verify", path)


# Of the driver, in a resume.
CALLS = ("cuCheckpointProcessRestore", "cuCheckpointProcessUnlock", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
         "cuMemcpyHtoDAsync_v2", "cuMemImportFromShareableHandle", "cuMemExportToShareableHandle", "cuCtxSetCurrent",
         "cuStreamSynchronize", "cuStreamCreateWithPriority", "cuMemHostRegister_v2")


@unsanitized
def any_call_of_the_driver_fails_once_at_a_restore():
    """In one process: then none is left, and another restore works; unless it could be tried again."""
    need_criu()
    at = {call: os.path.join(SCRATCH, f"fails-{call}") for call in CALLS}
    os.environ["CUDAW_SIM_FAULT"] = ",".join(f"{call}:{at[call]}:999" for call in CALLS)
    job = Sharing()
    del os.environ["CUDAW_SIM_FAULT"]
    path, failed = taken(job, "--stop"), []
    equal(job.states(), "", "what runs of it")
    for call in CALLS:
        with open(at[call], "wb"):
            pass
        done = cudaw("restore", path)
        struck = not os.path.exists(at[call])
        if done.returncode:
            check(struck, f"without a fault of {call}: {done.stderr}")
            until(lambda: not job.states(), 20, f"none is left after {call}: {done.stderr}")
            failed.append(call)
            continue
        job.goes_on()
        if not struck:
            os.unlink(at[call])
        path = taken(job, "--stop")
        equal(job.states(), "", f"what runs of it after {call}")
    print(f"# a restore failed: {failed}", flush=True)
    check({"cuCheckpointProcessRestore", "cuMemMap", "cuMemcpyHtoDAsync_v2"} <= set(failed), f"only {failed}")
    cudaw_ok("restore", path)
    job.goes_on()
    job.finish()


def limited(size):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


@unsanitized
def no_room_for_any_file():
    """Of the command and CRIU, then of each process."""
    need_criu()
    job = Server()
    whole = max(map(os.path.getsize, files(taken(job))))
    job.goes_on()
    for options in (), ("--stop",):
        size, failed = 4096, 0
        while size < whole:
            path = directory()
            done = subprocess.run([CUDAW, "snapshot", *options, job.id, path], env=base_environment(), text=True,
                                  capture_output=True, check=False, preexec_fn=limited(size), timeout=300)
            failed += done.returncode == 1
            equal((done.returncode, is_there(path)), (1, False), f"with {size} bytes for a file: {done.stderr}")
            job.goes_on()
            size *= 8
        check(failed > 1, "too few failed")
    for pid in job.engines:
        for size in 4096, 1 << 16:
            before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            path = directory()
            refused("snapshot", "--stop", job.id, path)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
            equal(is_there(path), False, "whether there is a snapshot")
            job.goes_on()
    job.finish()


allow_stand_in()
main(*(rounds(name, ranks) for name in KINDS for ranks in (2, 4)),
     *(kills(make, *options) for make, options in CASES),
     any_damaged_file_is_found_by_name, any_call_of_the_driver_fails_once_at_a_restore, no_room_for_any_file)
