#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of paused jobs and by signal, and jobs that go on from them in the same process."""
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import time

from simlib import HELD, MIB, hold, is_quiet, let_go, passed, unsanitized
from json_docs import check_documented
from gpulib import BUILD, Group, Job, check, cudaw, cudaw_ok, equal, main, until
import snapshotlib
from snapshotjobs import COUNTER_MIB, LARGE_MIB, ask, contents, counter, finish, directory, no_host_memory, told


def paused_into(path, **env):
    """A job that a signal has paused into a snapshot."""
    job = counter(CUDAW_SNAPSHOT_DIR=path, **env)
    job.pause("signal")
    until(lambda: told(job, "snapshot") == path, 30, "the job is in its snapshot")
    return job


def a_signal_pauses_into_a_snapshot():
    path = directory()
    job = paused_into(path)
    equal((told(job, "paused"), told(job, "pool")), ("0", "0"), "the host memory it keeps")
    cudaw_ok("verify", path)
    found = json.loads(cudaw_ok("inspect", "--json", path))
    equal(found["process"]["pid"], job.pid, "the pid in the manifest")
    check(found["totals"]["bytes"] >= COUNTER_MIB * MIB, f"totals are {found['totals']}")
    equal([phase["name"] for phase in found["phases"] if phase["name"] != "release"],
          ["drain", "copy", "unmap", "write"], "the phases")
    equal(found["devices"][0]["memory"] > 0 and found["devices"][0]["major"] > 0, True,
          "whether the device is described")
    job.check_still()
    job.resume("signal")
    equal(told(job, "snapshot"), None, "the snapshot that a running job is in")
    finish(job)


def the_second_one_writes_what_changed():
    """With and without digests made on the GPU."""
    for verify in ("0", "1"):
        path = directory()
        job = Job("hold", env={"CUDAW_SNAPSHOT_DIR": path, "CUDAW_VERIFY": verify})
        job.wait_line("holding")
        for full in (True, False):
            job.pause("signal")
            until(lambda: told(job, "snapshot") == path, 30, "the job is in its snapshot")
            totals = json.loads(cudaw_ok("inspect", "--json", path))["totals"]
            check(totals["written"] > 0 if full else totals["written"] == 0,
                  f"verify {verify}, full {full}: totals are {totals}")
            cudaw_ok("verify", path)
            job.resume("signal")
        job.tell()
        job.result()


def it_is_paused_once_the_gpu_is_free():
    """However long the rest of the snapshot takes then."""
    path = directory()
    job = counter(256, CUDAW_SNAPSHOT_DIR=path)
    seen = set()
    for _ in range(10):
        job.send(signal.SIGUSR1)
        end = time.monotonic() + 30
        while ("paused", path) not in seen and time.monotonic() < end:
            status = dict(line.split(" ", 1) for line in ask(job, "status"))
            seen.add((status["state"], status.get("snapshot")))
        job.resume("signal")
        if ("paused", None) in seen:
            break
        seen.clear()
    check(("paused", None) in seen, "it is paused no sooner than it is written")
    finish(job)


def totals_of(path):
    return json.loads(cudaw_ok("inspect", "--json", path))["totals"]


def a_signal_pauses_into_a_compressed_snapshot():
    path = directory()
    job = paused_into(path, CUDAW_SNAPSHOT_COMPRESS="zstd")
    totals = totals_of(path)
    check(0 < totals["stored"] < totals["written"], f"totals are {totals}")
    cudaw_ok("verify", path)
    job.resume("signal")
    finish(job)


def a_wrong_codec_is_told_and_the_snapshot_written():
    path = directory()
    job = paused_into(path, CUDAW_SNAPSHOT_COMPRESS="rar", CUDAW_LOG_FILE=path + ".log")
    with open(path + ".log", encoding="utf-8") as file:
        said = file.read()
    check("CUDAW_SNAPSHOT_COMPRESS=rar: expected none, lz4 or zstd" in said, f"the log is {said!r}")
    totals = totals_of(path)
    equal(totals["stored"], totals["written"], "the bytes on disk")
    job.resume("signal")
    finish(job)


def the_command_compresses():
    job = counter()
    for codec in ("zstd", "lz4", "none"):
        path = directory()
        done = json.loads(cudaw_ok("snapshot", "--gpu-only", "--compress", codec, "--json",
                                   job.pid, path))
        totals = done["totals"]
        equal(totals, totals_of(path), "the totals")
        equal(done["ms"], round(done["ms"], 3), "the time, to the microsecond")
        if codec == "none":
            equal(totals["stored"], totals["written"], "the bytes on disk")
        if codec == "zstd":     # LZ4 finds nothing in words that count up
            check(totals["stored"] < totals["written"], f"totals are {totals}")
        cudaw_ok("verify", path)
        shutil.rmtree(path)
    done = cudaw("snapshot", "--gpu-only", "--compress", "zip", job.pid, directory())
    equal(done.returncode, 2, "the exit code")
    check("--compress zip: expected zstd, lz4 or none" in done.stderr, f"stderr is {done.stderr!r}")
    finish(job)


def with_the_context_left_on_the_gpu():
    path = directory()
    job = paused_into(path, CUDAW_RELEASE="memory")
    cudaw_ok("verify", path)
    job.resume("signal")
    finish(job)


def what_an_earlier_pause_has_pinned_is_given_back():
    """It stays pinned while the job runs."""
    path = directory()
    job = counter(CUDAW_SNAPSHOT_DIR=path)

    def pinned():
        cudaw_ok("pause", "--release", "memory", job.pid)
        cudaw_ok("resume", job.pid)
        job.wait_steps(job.steps() + 20)    # what is not pinned does not count after that
        return told(job, "pool") != "0"
    until(pinned, 30, "host memory is pinned")
    job.pause("signal")
    until(lambda: told(job, "snapshot") == path, 30, "the job is in its snapshot")
    equal((told(job, "paused"), told(job, "pool")), ("0", "0"), "the host memory it keeps")
    job.resume("signal")
    finish(job)


def a_damaged_snapshot_leaves_the_job_paused():
    path = directory()
    job = paused_into(path)
    shutil.copytree(path, path + ".good")
    data = sorted(name for name in os.listdir(path) if name.startswith("data"))[0]
    with open(f"{path}/{data}", "r+b") as file:
        file.seek(4096)
        file.write(b"damage")
    done = cudaw("resume", job.pid)
    equal(done.returncode, 1, "the exit code of cudaw resume")
    check(f"{path}: {data}: damaged at" in done.stderr, f"stderr is {done.stderr!r}")
    check(job.state() in ("failed", "paused"), f"the state is {job.state()}")
    shutil.rmtree(path)
    done = cudaw("resume", job.pid)
    check(f"{path}: index-1: No such file" in done.stderr, f"stderr is {done.stderr!r}")
    equal(ask(job, f"moved {path}.good"), ["end ok"], "the answer")
    job.resume()
    finish(job)


def has_data(path):
    return any(name.startswith("data-") and os.path.getsize(f"{path}/{name}") for name in contents(path))


def a_program_that_closes_its_files_fails_it():
    """Nothing is written into the program's own file in their place, and the job keeps its memory."""
    path = directory()
    when, own = path + ".now", path + ".own"
    with open(own, "wb") as file:
        file.write(bytes(64 * MIB))
    job = counter(64, CUDAW_SNAPSHOT_DIR=path, CLOSES_WHEN=when, CLOSES_WHAT=path + "/data-",
                  CLOSES_OPENS=own, LD_PRELOAD=os.path.join(BUILD, "tests", "preload", "closes.so"),
                  **HELD)
    hold("out", after=60)   # of 66, of which 8 make a piece that is written
    job.send(signal.SIGUSR1)
    until(lambda: passed("out"), 20, "the other copies wait")
    until(lambda: has_data(path) and is_quiet(job.pid), 20, "all is written that was copied")
    with open(when, "wb"):
        until(lambda: not os.path.exists(when), 10, "the files are closed")
    let_go("out")
    job.wait_state("paused")
    until(lambda: "the program has closed it" in (job.status()["reason"] or ""), 10, "the reason is told")
    equal(told(job, "snapshot"), None, "where the job is")
    with open(own, "rb") as file:
        check(file.read() == bytes(64 * MIB), "something was written into the program's own file")
    job.resume()
    finish(job)


def a_copy_in_its_place_is_read():
    """The directory that the job has locked is gone."""
    path = directory()
    job = paused_into(path)
    shutil.copytree(path, path + ".copy")
    shutil.rmtree(path)
    os.rename(path + ".copy", path)
    job.resume()
    finish(job)


def a_resume_that_could_not_read_it_is_repeated():
    """What the first attempt has read takes no room from the second."""
    with Group(1100 * MIB) as group:
        path = directory()
        job = Job(*group.command("counter", "--mib", 256, "--steps", 1000000, "--step-ms", 10),
                  env={"CUDAW_SNAPSHOT_DIR": path, "CUDAW_RELEASE": "memory"})
        job.wait_steps(3)
        job.pause("signal")
        until(lambda: told(job, "snapshot") == path, 20, "the job is in the snapshot")
        group.set_limit(700 * MIB)
        data = f"{path}/{sorted(name for name in os.listdir(path) if name.startswith('data'))[-1]}"
        with open(data, "r+b") as file:
            file.seek(-4096, os.SEEK_END)
            byte = file.read(1)
            for wrong in (True, False):
                file.seek(-4096, os.SEEK_END)
                file.write(bytes([byte[0] ^ wrong]))
                file.flush()
                equal(cudaw("resume", job.pid).returncode, int(wrong), "the exit code of cudaw resume")
        finish(job)


def a_resume_waits_for_host_memory():
    """Other jobs have taken what this one gave back."""
    path = directory()
    job = paused_into(path)
    with no_host_memory():
        job.send(signal.SIGUSR2)
        job.wait_state("waiting")
        reason = job.status()["reason"]
        check("GiB of host memory, to read the snapshot" in reason, f"the reason is {reason!r}")
        job.pause()
        equal(told(job, "snapshot"), path, "where it is after a pause that ended the wait")
        done = cudaw("resume", "--timeout", 0.1, job.pid)
        check("are missing" in done.stderr, f"stderr is {done.stderr!r}")
        equal((job.state(), told(job, "snapshot")), ("paused", path), "the state, and where, after that")
        job.send(signal.SIGUSR2)
        job.wait_state("waiting")
    job.wait_state("running")
    finish(job)


def what_a_job_is_in_is_not_overwritten():
    path = directory()
    job = paused_into(path)
    other = counter(CUDAW_SNAPSHOT_DIR=path)
    other.pause("signal")
    until(lambda: "another process reads or writes" in (other.status()["reason"] or ""), 10,
          "the reason is told")
    other.resume("signal")
    finish(other)
    cudaw_ok("verify", path)
    os.rename(path, path + ".moved")
    job.resume()
    finish(job)


def other_machines_see_that_it_is_in_use():
    """They do not see its lock, on some file systems."""
    path = directory()
    job = paused_into(path)
    check("in-use" in contents(path), f"the directory has {contents(path)}")
    job.resume()
    check("in-use" not in contents(path), f"the directory of a job that runs has {contents(path)}")
    job.pause("signal")
    until(lambda: told(job, "snapshot") == path, 30, "the job is in its snapshot again")
    with open(f"{path}/in-use", encoding="ascii") as file:
        words = file.read().split(" ")
    job.discard()
    other = counter()
    words[6:] = ["another-boot", *words[7:9], "-", "elsewhere\n"]
    with open(f"{path}/in-use", "r+", encoding="ascii") as file:
        file.truncate()
        file.write(" ".join(words))
    done = cudaw("snapshot", "--gpu-only", other.pid, path)
    equal(done.returncode, 1, f"the exit code ({done.stderr.strip()})")
    check("on elsewhere, may have its memory in it" in done.stderr, f"stderr is {done.stderr!r}")
    os.remove(f"{path}/in-use")
    cudaw_ok("snapshot", "--gpu-only", other.pid, path)
    finish(other)


def so_is_one_that_the_job_has_moved_to():
    """The file that came with the copy names the other directory."""
    path = directory()
    job, copy = paused_into(path), path + ".copy"
    subprocess.run(["cp", "-a", path, copy], check=True)
    equal(ask(job, f"moved {copy}"), ["end ok"], "the answer")
    with open(f"{copy}/in-use", encoding="ascii") as file:
        words = file.read().split(" ")
    equal((words[2], words[5]), (str(job.pid), str(os.stat(copy).st_ino)), "the process, and the directory")
    job.resume()
    check("in-use" not in contents(copy), f"the directory of a job that runs has {contents(copy)}")
    finish(job)


def filled(path, seals):
    """A memory file with the data in the order of its places, as 'cudaw restore' hands it over."""
    places = sorted({(one["file"], one["offset"]) for one in snapshotlib.chunks(path) if one["codec"]})
    size = len(places) * snapshotlib.CHUNK
    memory = os.memfd_create("filled", os.MFD_ALLOW_SEALING)
    os.truncate(memory, -(-size // (16 * MIB)) * 16 * MIB)
    for place, (number, offset) in enumerate(places):
        with open(f"{path}/data-{number}", "rb") as file:
            os.pwrite(memory, os.pread(file.fileno(), snapshotlib.CHUNK, offset), place * snapshotlib.CHUNK)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    return memory


def memory_that_comes_along_is_not_read_again():
    path = directory()
    job = paused_into(path)
    memory = filled(path, fcntl.F_SEAL_SHRINK)
    for name in contents(path):
        if name.startswith("data-"):
            os.truncate(f"{path}/{name}", 0)
    equal(ask(job, f"moved {path}", memory), ["end ok"], "the answer")
    os.close(memory)
    equal((told(job, "state"), told(job, "snapshot")), ("paused", None), "its state, and where its memory is")
    check("in-use" not in contents(path), "the directory is in use")
    job.resume()
    for command in ("pause", "resume"):     # with host memory of its own
        cudaw_ok(command, job.pid)
    finish(job)


def memory_that_does_not_fit_is_left_alone():
    """One that could shrink would be a signal in the job; it reads the directory."""
    path = directory()
    job = paused_into(path)
    for seals in (0, fcntl.F_SEAL_SHRINK):
        memory = filled(path, seals)
        if seals:
            os.truncate(memory, os.fstat(memory).st_size + 16 * MIB)
        equal(ask(job, f"moved {path}", memory), ["end ok"], "the answer")
        os.close(memory)
        equal(told(job, "snapshot"), path, "where its memory is")
    job.resume()
    finish(job)


def a_job_that_was_killed_leaves_its_directory():
    path = directory()
    job = paused_into(path)
    job.discard()
    other = counter()
    cudaw_ok("snapshot", "--gpu-only", other.pid, path)
    check("in-use" not in contents(path), f"the directory has {contents(path)}")
    finish(other)


def another_snapshot_is_refused():
    job, other = paused_into(directory()), paused_into(directory())
    path = told(job, "snapshot")
    answer = ask(job, f"moved {told(other, 'snapshot')}")[-1]
    check(answer.startswith("end invalid "), f"the answer is {answer!r}")
    check("it holds another snapshot, not the one that this job is in" in answer, f"the answer is {answer!r}")
    equal(told(job, "snapshot"), path, "where it is then")
    check("No such file" in ask(job, "moved /nowhere")[-1], "a directory that is not there")
    for request in ("moved", "moved here", "moved 0=1 /x", "moved GPU-x=GPU-y /x"):
        check(ask(job, request)[-1].startswith("end invalid "), f"the answer to {request}")
    equal(ask(job, f"moved {path}"), ["end ok"], "the answer")
    for one in (job, other):
        one.resume()
        finish(one)


def the_driver_is_told_of_other_gpus():
    """The simulated one refuses to go elsewhere, so what it says shows that it was asked to."""
    job = paused_into(directory())
    gpu = job.status()["gpu"][0]["uuid"]
    move = f"moved {gpu}={gpu[:-1]}f"
    equal(ask(job, f"{move} {told(job, 'snapshot')}"), ["end ok"], "the answer")
    done = cudaw("resume", job.pid)
    check("cuCheckpointProcessRestore: CUDA_ERROR_NOT_SUPPORTED" in done.stderr,
          f"stderr is {done.stderr!r}")
    job.discard()


def a_snapshot_that_cannot_be_written_keeps_the_memory():
    path = directory()
    os.mkdir(path)
    with open(f"{path}/thesis", "w", encoding="ascii") as file:
        file.write("x")
    job = counter(CUDAW_SNAPSHOT_DIR=path)
    job.pause("signal")
    until(lambda: "found thesis in it" in (job.status()["reason"] or ""), 10, "the reason is told")
    check(int(told(job, "paused")) >= COUNTER_MIB * MIB, "the host memory it keeps")
    job.resume("signal")
    finish(job)


def a_signal_while_it_is_written_resumes():
    """While it is copied and written, or only written, or just after that."""
    rng = random.Random(7)
    path = directory()
    job = counter(LARGE_MIB, CUDAW_SNAPSHOT_DIR=path)
    for _ in range(5):
        job.send(signal.SIGUSR1)
        job.until(lambda: job.state() != "running", 30, "a pause begins")
        time.sleep(rng.random() * 0.8)
        job.send(signal.SIGUSR2)
        job.wait_state("running")
        job.wait_steps(job.steps() + 2)
        if os.path.exists(f"{path}/manifest.json"):
            cudaw_ok("verify", path)
        else:
            equal(contents(path), [], "what is left in the directory")
    finish(job)


def a_path_that_no_request_can_name_is_refused():
    """The line that follows would be another request, and what comes before it another directory."""
    keep, job = directory(), counter()
    cudaw_ok("snapshot", "--gpu-only", job.pid, keep)
    before = contents(keep)
    long = "/".join([os.path.dirname(keep)] + ["d" * 200] * 19)
    os.makedirs(long)
    fits = f"{long}/{'x' * (4030 - len(long) - 1)}"
    for path, message in [(keep + "\n-new", f"{keep}?-new: expected a path without line breaks"),
                          (keep + "\x1b", "expected a path without line breaks"),
                          (fits + "x", "expected a path of at most 4030 bytes, found 4031")]:
        done = cudaw("snapshot", "--gpu-only", job.pid, path)
        equal(done.returncode, 1, f"the exit code ({done.stderr})")
        check(message in done.stderr, f"{message!r} is not in {done.stderr!r}")
        equal((contents(keep), contents(path)), (before, []), "what is in the directories")
    cudaw_ok("verify", keep)
    cudaw_ok("snapshot", "--gpu-only", job.pid, fits)
    finish(job)


def json_names_a_path_of_any_bytes():
    job, path = counter(), directory()
    said = json.loads(cudaw_ok("snapshot", "--gpu-only", "--json", job.pid,
                               os.fsdecode(os.fsencode(path) + b"-\xe9")))
    check_documented("snapshot", said, but="further")
    equal(said["path"], path + "-?", "the path")
    finish(job)


def such_a_path_is_refused_for_signals():
    path, log = directory() + "\nmore", directory()
    job = counter(CUDAW_SNAPSHOT_DIR=path, CUDAW_LOG_FILE=log)
    job.pause("signal")
    job.resume("signal")
    with open(log, encoding="utf-8") as file:
        said = file.read()
    check("more: expected a path without line breaks" in said, f"the log is {said!r}")
    check(not os.path.exists(path), "there is a snapshot")
    finish(job)


def requests_that_make_no_sense():
    job = counter()
    path = directory()
    equal(ask(job, f"snapshot {path}")[-1], "end busy the job is not paused", "the answer")
    for request in ("snapshot", "snapshot here", "snapshot hold", "snapshot fast /tmp/x",
                    "snapshot pause", "snapshot pause -1 /tmp/x", "snapshot pause 5x /tmp/x",
                    "snapshot zstd", "snapshot lz4 zstd /tmp/x", "snapshot zeros /tmp/x"):
        check(ask(job, request)[-1].startswith("end invalid "), f"the answer to {request}")
    check(not os.path.exists(path), "a directory was made")
    finish(job)


def a_paused_job_can_be_written_and_goes_on():
    job = counter()
    job.pause()
    path = directory()
    said = ask(job, f"snapshot {path}")
    equal(said[-1], "end ok", "the answer")
    check(any(line.startswith("snapshot_us ") for line in said), f"the answer is {said}")
    equal(told(job, "snapshot"), None, "the snapshot that the job is in")
    cudaw_ok("verify", path)
    shutil.rmtree(path)
    job.resume()
    finish(job)


if __name__ == "__main__":
    main(a_signal_pauses_into_a_snapshot, the_second_one_writes_what_changed,
         it_is_paused_once_the_gpu_is_free, a_signal_pauses_into_a_compressed_snapshot,
         a_wrong_codec_is_told_and_the_snapshot_written, the_command_compresses,
         with_the_context_left_on_the_gpu, what_an_earlier_pause_has_pinned_is_given_back,
         a_damaged_snapshot_leaves_the_job_paused,
         unsanitized(a_program_that_closes_its_files_fails_it), a_copy_in_its_place_is_read,
         unsanitized(a_resume_that_could_not_read_it_is_repeated),
         a_resume_waits_for_host_memory, what_a_job_is_in_is_not_overwritten,
         other_machines_see_that_it_is_in_use, so_is_one_that_the_job_has_moved_to,
         memory_that_comes_along_is_not_read_again, memory_that_does_not_fit_is_left_alone,
         a_job_that_was_killed_leaves_its_directory, another_snapshot_is_refused,
         the_driver_is_told_of_other_gpus,
         a_snapshot_that_cannot_be_written_keeps_the_memory,
         a_signal_while_it_is_written_resumes, a_path_that_no_request_can_name_is_refused,
         json_names_a_path_of_any_bytes, such_a_path_is_refused_for_signals,
         requests_that_make_no_sense, a_paused_job_can_be_written_and_goes_on)
