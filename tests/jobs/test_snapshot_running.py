#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of running jobs, which are written while memory is still being copied off the GPU."""
import concurrent.futures
import json
import os
import random
import re
import resource
import struct
import subprocess
import time

from simlib import HELD, MIB, SCRATCH, hold, is_quiet, let_go, let_through, passed, unsanitized
from gpulib import (BUILD, CUDAW, PATIENCE, Group, Job, Skip, base_environment, check, cudaw, cudaw_ok,
                    equal, main, until)
from restorelib import IMAGE, WAITS, pretended_criu
from proclib import descendants
from snapshotjobs import LARGE_MIB, ask, contents, counter, finish, directory, told


def taken(job, path, *options):
    """What cudaw snapshot --json says; afterwards the job runs, and the snapshot is whole."""
    said = json.loads(cudaw_ok("snapshot", "--gpu-only", "--json", *options, job.pid, path))
    equal(job.state(), "running", "the state")
    cudaw_ok("verify", path)
    return said


def refused(job, path, message):
    """A snapshot that fails: the job runs on, and the directory is as it was."""
    before = contents(path)
    done = cudaw("snapshot", "--gpu-only", job.pid, path)
    equal(done.returncode, 1, f"the exit code ({done.stderr.strip()})")
    check(message in done.stderr, f"{message!r} is not in {done.stderr!r}")
    equal(job.state(), "running", "the state")
    equal(contents(path), before, "what is in the directory")
    job.wait_steps(job.steps() + 2)
    return done.stderr


def in_files(path):
    """Bytes of data that are in the files."""
    return sum(os.path.getsize(f"{path}/{name}") for name in contents(path) if name.startswith("data-"))


def what_runs_is_written_while_it_is_copied():
    job = counter(256, CUDAW_HOST_POOL="0", **HELD)     # a copy is 1 MiB, where nothing is pinned
    path = directory()
    hold("out", after=200)
    command = subprocess.Popen([CUDAW, "snapshot", "--gpu-only", "--json", "--timeout", "1000000",
                                str(job.pid), path], env=base_environment(), stdout=subprocess.PIPE)
    until(lambda: in_files(path) >= 64 * MIB, 30, "it is being written")
    equal(job.state(), "pausing", "the state while it is still copied")
    let_go("out")
    said = json.loads(command.communicate(timeout=300)[0])
    equal(job.state(), "running", "the state")
    cudaw_ok("verify", path)
    for what, without, names in (("phases", "release", ["drain", "copy", "unmap", "write"]),
                                 ("resume", "restore", ["map", "copy"])):
        equal([phase["name"] for phase in said[what] if phase["name"] != without], names, f"the {what}")
    totals = said["totals"]
    check(totals["bytes"] >= 256 * MIB, f"totals are {totals}")
    equal(sum(totals[key] for key in ("zero", "duplicate", "unchanged", "written")),
          totals["bytes"], "the sum of the totals")
    equal(json.loads(cudaw_ok("inspect", "--json", path))["phases"], said["phases"],
          "the phases in the manifest")
    finish(job)


def digests(path):
    """Of the chunks that have contents, by the index."""
    index = next(name for name in os.listdir(path) if name.startswith("index-"))
    with open(f"{path}/{index}", "rb") as file:
        records = file.read()[64:]
    return [struct.unpack_from("<2Q", records, at + 48) for at in range(0, len(records), 64)
            if struct.unpack_from("<I", records, at + 24)[0]]


def the_gpu_tells_what_changed():
    """However small the job: without digests all of it would have to be read and hashed."""
    path = directory()
    job = Job("hold")
    job.wait_line("holding")
    first = taken(job, path)
    check(all(any(digest) for digest in digests(path)), "chunks have no digests")
    kept = contents(path)
    second = taken(job, path, "--incremental")
    equal((second["totals"]["written"], second["totals"]["unchanged"]),
          (0, first["totals"]["written"]), "bytes written, and as before")
    equal([name for name in contents(path) if name.startswith("data-")],
          [name for name in kept if name.startswith("data-")], "the data files")
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


def changed(path, how):
    """Change the first file of data, or the index; nobody would read it until the job resumes."""
    name = next(n for n in contents(path) if n.startswith("index-" if how == "index" else "data-"))
    size = os.path.getsize(f"{path}/{name}")
    with open(f"{path}/{name}", "r+b") as file:
        if how == "short":
            file.truncate(size - 4096)
        else:
            file.seek(size // 2)
            byte = file.read(1)
            file.seek(size // 2)
            file.write(bytes([byte[0] ^ 1]))
    if how == "short":
        past = os.stat(f"{path}/manifest.json").st_mtime_ns
        os.utime(f"{path}/{name}", ns=(past, past))


def what_was_changed_is_written_anew():
    path = directory()
    job = Job("hold")
    job.wait_line("holding")
    first = taken(job, path)
    for how in ("flipped", "short", "index"):
        changed(path, how)
        again = taken(job, path, "--incremental")
        written, all_of_it = (said["totals"]["written"] for said in (again, first))
        check(written == all_of_it if how == "index" else written > 0,
              f"{written} bytes of {all_of_it} are written after {how}")
    again = taken(job, path, "--incremental")
    equal(again["totals"]["written"], 0, "bytes written when all is well")
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


def a_full_disk_is_no_harm():
    """The write fails while memory is still being copied out: the job is not even unmapped."""
    path = directory()
    job = counter(64, CUDAW_HOST_POOL="0", **HELD)      # a copy is 1 MiB, where nothing is pinned
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (MIB, resource.RLIM_INFINITY))
    for _ in range(2):
        hold("out", after=32)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            snapshot = pool.submit(refused, job, path, path)    # of several requests in flight, any may end first
            # After each copy it has the time to write, and to see that it cannot.
            while not snapshot.done():
                until(lambda s=snapshot: s.done() or passed("out") and is_quiet(job.pid), 30, "it waits for a copy")
                let_through("out")
        let_go("out")
        said = snapshot.result()
        check(re.search(r"data-\d+: writing at \d+: File too large", said), f"it says {said!r}")
    equal(told(job, "pause_ms"), None, "the time of the last pause")
    finish(job)
    job = counter(LARGE_MIB)
    taken(job, path)
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (4 * MIB, resource.RLIM_INFINITY))
    refused(job, path, "File too large")
    cudaw_ok("verify", path)
    job.pause()     # the limit is none for what comes back
    job.resume()
    finish(job)


def a_directory_of_others_is_no_harm():
    """Also where its names are such as a snapshot has."""
    job = counter()
    for name, found in (("thesis", "thesis in it"), ("data-1", "data-1 in it and no manifest"),
                        ("data-0", "data-0 in it"), ("host-1/log", "host-1 in it and no manifest"),
                        ("manifest.json", "a manifest.json in it that does not belong to one")):
        path = directory()
        os.makedirs(os.path.dirname(f"{path}/{name}"))
        with open(f"{path}/{name}", "w", encoding="ascii") as file:
            file.write("x")
        refused(job, path, f"found {found}")
        check(os.path.exists(f"{path}/{name}"), f"{name} is gone")
        equal(told(job, "pause_ms"), None, "the time of the last pause")
        check(found in job.status()["reason"], "ps does not say why")
    finish(job)


def what_a_killed_one_left_makes_room_first():
    path = directory()
    job = counter()
    taken(job, path)
    with open(f"{path}/data-99", "w", encoding="ascii") as file:
        file.write("x")
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (MIB, resource.RLIM_INFINITY))
    done = cudaw("snapshot", "--gpu-only", job.pid, path)
    check("File too large" in done.stderr, f"it says {done.stderr!r}")
    check("data-99" not in contents(path), "it is still there")
    cudaw_ok("verify", path)
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    finish(job)


COUNTER = os.path.join(BUILD, "tests", "programs", "counter")


def in_a_pid_namespace(*options):
    """The start of a command line."""
    unshare = ["/usr/bin/unshare", "--pid", "--fork", "--kill-child", *options]
    if not os.path.exists(unshare[0]) or subprocess.run([*unshare, "true"], check=False).returncode:
        raise Skip("no PID namespace can be made")
    return unshare


@unsanitized
def one_of_another_pid_namespace_is_not_taken_for_another():
    """Its number there is that of another process here."""
    job = Job(*in_a_pid_namespace(), COUNTER, "--steps", 1000000, "--step-ms", 10, name="apart")
    job.wait_steps(3)
    path = directory()
    done = subprocess.run([CUDAW, "snapshot", "apart", path], check=False, text=True, timeout=100,
                          capture_output=True, env={**base_environment(), **pretended_criu(WAITS)})
    equal(done.returncode, 6, f"the exit code ({done.stderr.strip()})")
    check("it is in another PID namespace" in done.stderr and "process 1:" in done.stderr, done.stderr)
    equal(contents(path), [], "what is in the directory")
    cudaw_ok("snapshot", "--gpu-only", "apart", path)
    job.wait_steps(job.steps() + 3)
    job.discard()


@unsanitized
def the_init_of_a_container_is_refused():
    """No restore can give its id, 1. The command enters the job's namespaces, as one does with a container's."""
    job = [*in_a_pid_namespace("--mount-proc"), CUDAW, "run", COUNTER, "--steps", "1000000", "--step-ms", "10"]
    with subprocess.Popen(job, env=base_environment(), stdout=subprocess.PIPE, text=True) as container:
        until(lambda: container.stdout.readline() == "step 3\n", 30, "step 3")
        init, = descendants(container.pid)
        inside = ["nsenter", "--target", str(init), "--pid", "--mount"]
        done = subprocess.run([*inside, CUDAW, "snapshot", "1", directory()], check=False, timeout=100 * PATIENCE,
                              env={**base_environment(), **pretended_criu(WAITS)}, capture_output=True, text=True)
        container.kill()
    equal(done.returncode, 6, f"the exit code ({done.stderr})")
    check("its process 1 is the init of a container, whose id no restore can give" in done.stderr, done.stderr)


@unsanitized
def an_id_may_have_seven_digits():
    """As many as /proc/sys/kernel/pid_max allows; the command runs in the job's PID namespace."""
    path, log = directory(), directory()
    script = f"""echo 1000000 > /proc/sys/kernel/ns_last_pid || exit 77
                 {CUDAW} run -- {COUNTER} --steps 1000000 --step-ms 10 > {log} 2>&1 &
                 until grep -sq "step 3" {log}; do sleep 0.02; done
                 {CUDAW} snapshot $! {path}"""
    criu = pretended_criu('[ "$1" = --version ] && { echo Version: 4.2; exit; }' + IMAGE)
    done = subprocess.run([*in_a_pid_namespace("--mount-proc"), "sh", "-c", script], check=False,
                          text=True, timeout=100 * PATIENCE, capture_output=True, env={**base_environment(), **criu})
    if done.returncode == 77:
        raise Skip(f"no process can have such an id: {done.stderr.strip()}")
    equal(done.returncode, 0, f"the exit code ({done.stderr.strip()})")
    check(done.stdout.startswith("1000001 is in "), done.stdout)
    cudaw_ok("verify", path)


def a_copy_that_fails_is_no_harm():
    """In the middle of it, and the older snapshot stays. Where nothing is pinned a copy is 1 MiB."""
    path = directory()
    job = counter(LARGE_MIB, CUDAW_HOST_POOL="0",
                  CUDAW_SIM_FAULT=f"cuMemcpyDtoHAsync_v2:{LARGE_MIB * 3 // 2}:999")
    taken(job, path)
    refused(job, path, "copy: CUDA_ERROR_UNKNOWN")
    cudaw_ok("verify", path)
    taken(job, path, "--incremental")
    finish(job)


def what_cannot_be_unmapped_runs_on():
    path = directory()
    job = counter(64, CUDAW_SIM_FAULT="cuMemUnmap:1:999")
    refused(job, path, "unmap: CUDA_ERROR_UNKNOWN")
    taken(job, path)
    finish(job)


def a_process_image_needs_the_whole_gpu():
    path = directory()
    job = counter(64, CUDAW_RELEASE="memory",
                  CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:999")
    said = ask(job, f"snapshot pause hold image {path}")[-1]
    check(said.startswith("end unsupported the driver does not release the GPU"), said)
    job.wait_state("running")
    equal(contents(path), [], "what is in the directory")
    job.wait_steps(job.steps() + 2)
    equal(ask(job, f"snapshot pause 9000 hold image {path}")[-1], "end ok", "the answer")
    equal((job.state(), told(job, "snapshot")), ("paused", path), "the state, and where it is")
    check("manifest.new" in contents(path), f"the directory has {contents(path)}")
    job.resume()
    finish(job)


def a_resume_calls_it_off():
    """At any moment; the job runs on, and what the directory has is whole."""
    rng = random.Random(5)
    path = directory()
    job = counter(LARGE_MIB, **HELD)
    taken(job, path)
    codes = []
    for attempt in range(6):
        hold("out")
        command = subprocess.Popen([CUDAW, "snapshot", "--gpu-only", str(job.pid), path],
                                   env=base_environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        job.until(lambda: told(job, "state") != "running", 30, "it begins")
        if attempt == 0:
            cudaw_ok("resume", "--no-wait", job.pid)
        let_go("out")
        time.sleep(rng.random() * 0.08 * attempt)
        cudaw_ok("resume", job.pid)
        said = command.communicate(timeout=300)[1]
        codes.append(command.returncode)
        check(command.returncode == 0 or "resume" in said, said)
        job.wait_state("running")
        cudaw_ok("verify", path)
        equal(len([name for name in contents(path) if name.startswith("index-")]), 1, "the indices")
        job.wait_steps(job.steps() + 2)
    check(1 in codes, f"none was called off: {codes}")
    finish(job)


def one_at_a_time():
    job = counter(**HELD)
    path = directory()
    hold("out")
    command = subprocess.Popen([CUDAW, "snapshot", "--gpu-only", str(job.pid), path],
                               env=base_environment(), stdout=subprocess.DEVNULL)
    job.until(lambda: job.state() != "running", 30, "it begins")
    equal(ask(job, f"snapshot pause {path}2")[-1],
          "end busy another snapshot is under way, or being read back", "the answer")
    done = cudaw("snapshot", "--gpu-only", job.pid, path + "2")
    equal(done.returncode, 1, f"the exit code of the second ({done.stderr.strip()})")
    check("another snapshot is under way" in done.stderr, done.stderr)
    let_go("out")
    equal(command.wait(300), 0, "the exit code of the first")
    check(not os.path.exists(path + "2"), "the second one's directory was made")
    finish(job)


@unsanitized
def what_goes_to_disk_is_read_back_from_there():
    """While more is still being written there."""
    path = directory()
    with Group(1 << 40) as group:
        job = Job(*group.command("counter", "--mib", 256, "--steps", 1000000, "--step-ms", 10),
                  env={"CUDAW_SPILL_DIR": SCRATCH, "CUDAW_RELEASE": "memory"})
        job.wait_steps(3)
        group.set_limit(group.used() + (256 + 144) * MIB)
        for stays in ("", "hold "):
            equal(ask(job, f"snapshot pause {stays}{path}")[-1], "end ok", "the answer")
            spilled = int(told(job, "spilled"))
            check(spilled >= 64 * MIB or stays, f"{spilled} bytes spilled")
            cudaw_ok("verify", path)
            equal(job.state(), "paused", "the state")
            job.resume()
            job.wait_steps(job.steps() + 2)
        finish(job)


if __name__ == "__main__":
    main(what_runs_is_written_while_it_is_copied, the_gpu_tells_what_changed,
         what_was_changed_is_written_anew,
         a_full_disk_is_no_harm, a_directory_of_others_is_no_harm,
         what_a_killed_one_left_makes_room_first,
         one_of_another_pid_namespace_is_not_taken_for_another, the_init_of_a_container_is_refused,
         an_id_may_have_seven_digits,
         a_copy_that_fails_is_no_harm,
         what_cannot_be_unmapped_runs_on, a_process_image_needs_the_whole_gpu,
         a_resume_calls_it_off, one_at_a_time, what_goes_to_disk_is_read_back_from_there)
