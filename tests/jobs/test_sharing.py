#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that processes share: what happens when one of them fails, ends or is stopped in the middle of a pause
or a resume. test_sharing_pauses.py has what runs on a GPU, too.
"""
import glob
import os
import signal
import subprocess
import tempfile
import time
import types

from simlib import (HELD, HOLD, SCRATCH, by_age, errors_of_cudaw, gpus_used, held_back, hold, is_stopped,
                    kept_descriptors, let_go, process_used)
from snapshotjobs import connected, end_of
from gpulib import (CUDAW, PATIENCE, RUNTIME_DIR, Job, base_environment, check, cudaw, cudaw_ok, equal, hog,
                    jobs, main, proc_status, seeded, until)

OBJECTS, MIB = 2, 2
IDLE = (["running"] * 2, ["paused"] * 2)
MANY = 60000        # lines that a pipe holds


def rows():
    """Of the ranks in their order: each is younger than the one before."""
    first = next(job.pid for job in Job.alive if job.program == "sharing")
    found = jobs()
    return [found[pid] for pid in by_age((pid for pid, row in found.items() if row["name"] == "sharing"), first)]


def states():
    return [row["state"] for row in rows()]


def started(*extra, ranks=2, **env):
    job = Job("sharing", "--ranks", ranks, "--objects", OBJECTS, "--mib", MIB, "--steps", 100000000,
              "--step-ms", 10, *extra, name="sharing", env=env)
    job.process.stdin.write("\n" * 3)   # with --each-line it makes as many steps
    job.until(lambda: len(rows()) == ranks, 30, "all ranks use CUDA")
    job.wait_steps(3)
    return job


def goes_on(job):
    equal(set(states()), {"running"}, "the states in the end")
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "not every rank verified its memory")


def pauses_and_goes_on(job):
    cudaw_ok("pause", "sharing")
    equal(set(states()), {"paused"}, "the states after cudaw pause")
    cudaw_ok("resume", "sharing")
    goes_on(job)


def other_rank(job):
    """The process of rank 1."""
    return next(row["pid"] for row in rows() if row["pid"] != job.pid)


def asked(*args):
    return subprocess.Popen([CUDAW, *args, "sharing"], env=base_environment(),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def a_fault(what, fault, *words):
    """Rank 1 fails in a pause before anybody has given memory back: all run on."""
    def case():
        job = started(SHARING_FAULT=fault)
        done = cudaw("pause", "sharing")
        check(done.returncode != 0, "the pause succeeded")
        for word in words:
            check(word in done.stderr, f"cudaw pause says {done.stderr!r}")
        job.until(lambda: states() == ["running"] * 2, 20, "both ranks run")
        pauses_and_goes_on(job)
    return f"{what} fails in a pause", case


def a_late_fault(what, fault):
    """Rank 1 fails when there is no way back: the job is paused all the same, and says so."""
    def case():
        job = started(SHARING_FAULT=fault)
        check("on the GPU" in cudaw_ok("pause", "sharing"), "the command does not say so")
        equal(states(), ["paused"] * 2, "the states after it")
        cudaw_ok("resume", "sharing")
        pauses_and_goes_on(job)
    return f"{what} fails after the last way back", case


def a_resume_that_fails(what, fault, release):
    """Nobody runs before all do, and the resume can be repeated."""
    def case():
        job = started(SHARING_FAULT=fault)
        cudaw_ok("pause", "--release", release, "sharing")
        used = gpus_used()
        done = cudaw("resume", "--timeout", 20, "sharing")
        check(done.returncode != 0, "the resume succeeded")
        job.until(lambda: set(states()) <= {"paused", "failed"}, 20, "both ranks are paused")
        equal(gpus_used(), used, "the bytes on the GPU afterwards")
        job.check_still(0.1, spare=0)
        cudaw_ok("resume", "sharing")
        pauses_and_goes_on(job)
    return f"{what} fails in a resume, {release}", case


def amid_copies(deed, **options):
    """What is done to a job while all its ranks copy for a pause; returns it, and the command that pauses it.
    No rank copies by itself: rank 0 waits for a line, and the others for rank 0."""
    job = started("--each-line", 1, "--ballast", 128, **HELD, **options)
    hold("out")
    command = asked("pause")
    until(lambda: held_back("out") >= {row["pid"] for row in rows()}, 20, "all ranks copy")
    deed(job)
    let_go("out")
    return job, command


def an_exporter_that_dies_in_a_pause_lets_the_others_run():
    job, command = amid_copies(lambda job: os.kill(other_rank(job), signal.SIGKILL), ranks=3)
    _, said = command.communicate(timeout=100 * PATIENCE)
    equal(command.returncode, 1, f"the exit code of cudaw pause ({said})")
    # Which rank sees the end first depends on the machine.
    check("runs on" in said, f"cudaw pause says {said!r}")
    # The program misses the other rank, which it can only find out as it runs.
    job.tell()
    equal(job.wait_end(), 1, "the exit status of the program")


def one_that_is_stopped_in_a_pause_keeps_nobody():
    """The other one has saved its memory, and is told to run."""
    stopped = []

    def stop(job):
        stopped.append(other_rank(job))
        os.kill(stopped[0], signal.SIGSTOP)
    job, command = amid_copies(stop)
    jobs()      # a look at all, which the stopped one holds up
    job.send(signal.SIGUSR2)
    job.until(lambda: job.state() == "running", 30, "the first rank runs")
    os.kill(stopped[0], signal.SIGCONT)
    job.until(lambda: states() == ["running"] * 2, 20, "both ranks run")
    command.communicate(timeout=60 * PATIENCE)
    job.process.stdin.write("\n" * MANY)
    pauses_and_goes_on(job)


def an_exporter_that_dies_late_in_a_pause_holds_up_nobody():
    """All have given their memory back, and cannot run on without that of rank 1. In the ring rank 2 imports
    from it, and cannot resume; rank 0 imports from rank 2 alone, and does not run without it."""
    started("--ring", 1, "--each-line", 1, ranks=3, CUDAW_SIM_HELD_CALL="cuCheckpointProcessLock", **HELD)
    first, exporter, last = (row["pid"] for row in rows())
    hold("call")
    command = asked("pause")
    until(lambda: held_back("call") == {first, exporter, last}, 20, "all have given their memory back")
    os.kill(exporter, signal.SIGKILL)
    let_go("call")
    try:
        _, said = command.communicate(timeout=60 * PATIENCE)
        equal(command.returncode, 1, f"the exit code of cudaw pause ({said})")
        for words in (f"{exporter} (sharing): it ended without an answer",
                      f"{last} (sharing): memory of process {exporter}: it has ended",
                      f"{first} (sharing): another process of the job did not resume"):
            check(words in said, f"cudaw pause says {said!r}, not {words!r}")
        equal(states(), ["paused", "failed"], "the states after it")
    finally:
        os.kill(last, signal.SIGKILL)   # else it stays, as it waits for a resume that cannot be


def waits_on(command):
    """The sockets of a command that sleeps; none of another one."""
    if not proc_status(command.pid)["State"].startswith("S"):
        return set()
    return {link for number, link in kept_descriptors(command.pid).items()
            if number > 2 and link.startswith("socket:")}


def resume_is_heard(command):
    """By all ranks: on sockets that were there before, it does not wait for a status, which has been told."""
    before = waits_on(command)
    equal(states(), ["pausing"] * 2, "the states meanwhile")
    return len(before) >= 2 and waits_on(command) == before


def a_resume_in_the_midst_lets_all_run():
    resumes = []

    def resume(_job):
        resumes.append(asked("resume"))
        until(lambda: resume_is_heard(resumes[0]), 20, "both ranks hear of the resume")
        # In one look at its clients a rank may tell its state before it takes the resume, but not in two.
        for _ in range(2):
            states()
    job, command = amid_copies(resume)
    _, said = command.communicate(timeout=100 * PATIENCE)
    equal(command.returncode, 1, f"the exit code of cudaw pause ({said})")
    check("a resume was asked for" in said, f"cudaw pause says {said!r}")
    _, said = resumes[0].communicate(timeout=100 * PATIENCE)
    equal(resumes[0].returncode, 0, f"the exit code of cudaw resume ({said})")
    job.process.stdin.write("\n" * MANY)
    goes_on(job)


def a_command_that_is_killed_leaves_nobody_half_way():
    job, rng = started(), seeded()
    for turn in range(8):
        verb = "pause" if states() == IDLE[0] else "resume"
        command = asked(verb)
        time.sleep(rng.uniform(0, 0.15))
        command.kill()
        command.communicate()
        job.until(lambda: states() in IDLE, 30, f"turn {turn}: both run, or both are paused")
    if "paused" in states():
        cudaw_ok("resume", "sharing")
    pauses_and_goes_on(job)


def a_process_that_does_not_pause_is_named():
    job = started()
    done = cudaw("pause", job.pid)
    equal(done.returncode, 6, "the exit code of cudaw pause")
    for words in (f"process {other_rank(job)}", "'cudaw pause sharing' pauses all"):
        check(words in done.stderr, f"cudaw pause says {done.stderr!r}")
    pauses_and_goes_on(job)


def a_process_of_another_job_is_named_with_its_job():
    job = started(SHARING_JOB="b12345")
    other, own = other_rank(job), job.status()["id"]
    done = cudaw("pause", own)
    equal(done.returncode, 6, "the exit code of cudaw pause")
    for text in (f"process {other} of job b12345, which shares memory with this one",
                 "'cudaw pause sharing b12345' pauses all of them"):
        check(text in done.stderr, f"cudaw pause says {done.stderr!r}")
    job.send(signal.SIGUSR1)
    job.until(lambda: "'cudaw pause sharing b12345' pauses all of them" in (job.status()["reason"] or ""), 20,
              "the refusal of a signal names the other job")
    cudaw_ok("pause", own, "b12345")
    equal(set(states()), {"paused"}, "the states after cudaw pause")
    cudaw_ok("resume", own, "b12345")
    goes_on(job)


def one_that_resumes_alone_waits_for_the_other():
    job = started()
    cudaw_ok("pause", "sharing")
    other = other_rank(job)
    job.send(signal.SIGUSR2)
    job.until(lambda: states()[0] == "resuming", 20, "the first rank resumes")
    job.check_still(0.5)
    equal(states()[0], "resuming", "the first rank meanwhile")
    job.send(signal.SIGUSR1)
    job.until(lambda: states() == ["paused"] * 2, 20, "it is paused again")
    job.send(signal.SIGUSR2)
    time.sleep(0.1)
    os.kill(other, signal.SIGUSR2)
    job.until(lambda: states() == ["running"] * 2, 20, "both run")
    pauses_and_goes_on(job)


def a_resume_of_all_finds_one_that_resumes_alone():
    """It has its memory, or waits for that of the other one, which the command holds."""
    job = started()
    for seconds in (0, 0.5):
        cudaw_ok("pause", "sharing")
        job.send(signal.SIGUSR2)
        time.sleep(seconds)
        cudaw_ok("resume", "sharing")
        equal(set(states()), {"running"}, f"the states after cudaw resume, {seconds} s later")
    pauses_and_goes_on(job)


def resume_each(job):
    for pid in (job.pid, other_rank(job)):
        os.kill(pid, signal.SIGUSR2)


def nobody_waits_for_one_that_failed_to_resume():
    """By a signal each goes by itself. Rank 0 has all memory but that of rank 1, or all, and gives up."""
    job = started(SHARING_FAULT=f"cuMemImportFromShareableHandle:{NEXT_IMPORT}:999")
    cudaw_ok("pause", "sharing")
    other = other_rank(job)
    resume_each(job)
    job.until(lambda: states() == ["failed"] * 2, 30, "both have failed")
    reason = jobs()[job.pid]["reason"]
    check(f"process {other}, which shares memory with this one, has failed to resume" in reason, reason)
    cudaw_ok("resume", "sharing")
    pauses_and_goes_on(job)


def one_that_gave_up_is_waited_for():
    """It can resume once the one that failed does, which is asked first, and alone."""
    job = started(SHARING_FAULT=f"cuMemImportFromShareableHandle:{NEXT_IMPORT}:999")
    cudaw_ok("pause", "sharing")
    other = other_rank(job)
    resume_each(job)
    job.until(lambda: states() == ["failed"] * 2, 30, "both have failed")
    os.kill(other, signal.SIGUSR2)
    job.until(lambda: states() == ["failed", "resuming"], 20, "the one that failed resumes")
    job.check_still(4)      # longer than one that failed is waited for
    equal(states(), ["failed", "resuming"], "the states meanwhile")
    job.send(signal.SIGUSR2)
    job.until(lambda: states() == ["running"] * 2, 20, "both run")
    pauses_and_goes_on(job)


def a_resume_of_all_that_finds_one_has_a_time_limit():
    """The one that resumes alone waits for memory without one; the command's holds for it, too."""
    job = started()
    cudaw_ok("pause", "sharing")
    other, _ = hog()
    job.send(signal.SIGUSR2)
    job.until(lambda: "waiting" in states(), 20, "one waits for memory")
    done = cudaw("resume", "--timeout", 1, "sharing")
    equal(done.returncode, 5, f"the exit code of cudaw resume ({done.stderr})")
    job.until(lambda: set(states()) == {"paused"}, 20, "both are paused")
    other.discard()
    cudaw_ok("resume", "sharing")
    goes_on(job)


def nobody_runs_before_all_are_whole():
    """In a ring rank 0 has all that it imports from rank 2, which waits for rank 1."""
    job = started("--ring", 1, ranks=3)
    cudaw_ok("pause", "sharing")
    first, second, third = (row["pid"] for row in rows())
    equal(first, job.pid, "the process of rank 0")
    for pid in (first, third):
        os.kill(pid, signal.SIGUSR2)
    apart = ["resuming", "paused", "resuming"]
    job.until(lambda: states() == apart, 20, "two of them resume")
    time.sleep(0.5)
    equal(states(), apart, "the states meanwhile")
    os.kill(second, signal.SIGUSR2)
    job.until(lambda: states() == ["running"] * 3, 20, "all run")
    pauses_and_goes_on(job)


def the_next_imports_are_asked_for_before_one_is_there():
    """While rank 0 is held up in its second import, rank 1 is asked for the fourth, and fails to export that."""
    objects, held = 4, HOLD["call"] + "-0"
    job = started("--objects", objects, "--apart", 1, CUDAW_LOG="warn", **HELD,
                  CUDAW_SIM_HELD_CALL="cuMemImportFromShareableHandle",
                  SHARING_FAULT=f"cuMemExportToShareableHandle:{3 * objects}:999")
    cudaw_ok("pause", "sharing")
    with open(held, "w", encoding="ascii") as file:
        file.write("x")
    command = asked("resume")
    until(lambda: glob.glob(held + ".[0-9]*"), 20, "rank 0 is in its second import")
    until(lambda: "gets no memory" in "".join(errors_of_cudaw(job)), 20, "rank 1 is asked for the fourth")
    os.unlink(held)
    command.communicate(timeout=60 * PATIENCE)
    equal((command.returncode, states()), (1, ["failed", "paused"]), "the exit code of cudaw resume, and the states")
    cudaw_ok("resume", "sharing")
    goes_on(job)


def a_cancelled_resume_takes_no_more_imports():
    """Rank 1 is held up in its first import, and would fail with the second one. It fails with that in the next
    resume. Rank 0 waits for it, and gives back what it has of it: the driver's checkpoint comes after that."""
    held = HOLD["call"] + "-1"
    job = started("--apart", 1, **HELD, CUDAW_SIM_HELD_CALL="cuMemImportFromShareableHandle",
                  SHARING_FAULT=f"cuMemImportFromShareableHandle:{NEXT_IMPORT + 1}:999")
    cudaw_ok("pause", "sharing")
    with open(held, "w", encoding="ascii"):
        pass
    resume_each(job)
    until(lambda: glob.glob(held + ".[0-9]*"), 20, "rank 1 is in its first import")
    pause = connected(types.SimpleNamespace(pid=other_rank(job)), b"pause 60000\n")
    # In one look at its clients the rank may tell its state before it takes the pause, but not in two.
    for _ in range(2):
        states()
    os.unlink(held)
    equal(end_of(pause), "end ok", "the answer to the pause")
    equal(process_used(other_rank(job)) or 0, 0, "MiB that it leaves on the GPU")
    check("CUDA_ERROR_UNKNOWN" in cudaw("resume", "sharing").stderr, "the second import did not fail in the next resume")
    cudaw_ok("resume", "sharing")
    pauses_and_goes_on(job)


def a_stopped_process_is_waited_for():
    job = started()
    other = other_rank(job)
    cudaw_ok("pause", "sharing")
    os.kill(other, signal.SIGSTOP)
    job.send(signal.SIGUSR2)
    time.sleep(1.5)
    os.kill(other, signal.SIGCONT)
    os.kill(other, signal.SIGUSR2)
    job.until(lambda: states() == ["running"] * 2, 20, "both run")
    times = jobs()[job.pid]["resume_phases"]
    check(0 < times["imports"] < times["sharing"], f"the time of the wait is not in sharing alone: {times}")
    pauses_and_goes_on(job)


def about_to_import():
    """Two ranks that have exported memory, and import each other's once they are told; and the process of rank 1."""
    job = Job("sharing", "--waits", 1, "--mib", MIB, "--objects", OBJECTS, "--steps", 100000000,
              "--step-ms", 10, name="sharing")
    job.wait_line("exported")
    job.until(lambda: len(rows()) == 2, 30, "all ranks use CUDA")
    return job, other_rank(job)


def an_import_waits_where_its_process_can_be_paused():
    """Rank 0 is paused alone, as nothing is shared yet, and then rank 1 imports its memory."""
    job, other = about_to_import()
    cudaw_ok("pause", job.pid)
    job.tell()
    time.sleep(0.3)
    cudaw_ok("pause", other)
    equal(states(), ["paused"] * 2, "the states while the import waits")
    cudaw_ok("resume", other)
    time.sleep(0.3)
    equal(job.steps(), 0, "the steps while the exporter is paused")
    cudaw_ok("resume", job.pid)
    job.wait_steps(3)
    pauses_and_goes_on(job)


def an_import_from_a_stopped_process_says_so():
    """It waits, as natively no import needs the exporter; here rank 0 imports from rank 1."""
    job, other = about_to_import()
    os.kill(other, signal.SIGSTOP)
    until(lambda: is_stopped(other), 10, "rank 1 is stopped")
    job.tell()

    def said():
        return [line for line in errors_of_cudaw(job) if f"memory of process {other} cannot be imported yet" in line]
    job.until(said, 60, "cudaw says that the exporter does not answer")
    os.kill(other, signal.SIGCONT)
    job.wait_steps(3)
    equal(len(said()), 1, "how often it says so")
    goes_on(job)


NOT_IN = {"GPU": "is not in the snapshot", "host": "no snapshot has yet"}


def snapshots_are_refused_by_name(what, *extra):
    def case():
        job, path = started(*extra), os.path.join(SCRATCH, "snapshot")
        for paused in (False, True):
            if paused:
                cudaw_ok("pause", "sharing")
            done = cudaw("snapshot", "--gpu-only", job.pid, path)
            equal(done.returncode, 6, "the exit code of cudaw snapshot")
            check(f"{what} memory with this one" in done.stderr and NOT_IN[what] in done.stderr,
                  f"cudaw snapshot says {done.stderr!r}")
        cudaw_ok("resume", "sharing")
        pauses_and_goes_on(job)
    return f"snapshots of {what} memory are refused by name", case


def a_pause_that_is_undone_gets_its_own_imports_back():
    job = started("--self", 1, ranks=1, CUDAW_SIM_FAULT="cuMemUnmap:1:999")
    done = cudaw("pause", "sharing")
    check(done.returncode != 0, "the pause succeeded")
    equal(states(), ["running"], "the states after it")
    pauses_and_goes_on(job)


def an_own_export_that_fails_is_not_taken_for_a_free():
    job = started("--self", 1, ranks=1, CUDAW_SIM_FAULT=f"cuMemExportToShareableHandle:{NEXT_EXPORT}:999")
    cudaw_ok("pause", "sharing")
    done = cudaw("resume", "sharing")
    equal(done.returncode, 1, "the exit code of cudaw resume")
    check(f"memory of process {job.pid}: it cannot export it" in done.stderr, f"cudaw resume says {done.stderr!r}")
    equal(states(), ["failed"], "the states after it")
    cudaw_ok("resume", "sharing")
    goes_on(job)


def an_import_that_cannot_be_given_back_is_refused_by_name():
    """A device on the bus may use what a dma-buf was made of, and the exporter cannot move it then."""
    job = started("--dmabuf", 2, "--ring", 1, ranks=3)
    for args in (("--release", "memory", "sharing"), ("--release", "memory", job.pid)):
        done = cudaw("pause", *args)
        equal(done.returncode, 6, f"the exit code of cudaw pause ({done.stderr!r})")
    goes_on(job)
    job = started("--dmabuf", 2)
    done = cudaw("pause", "--release", "memory", "sharing")
    check("a dma-buf" in done.stderr, f"cudaw pause says {done.stderr!r}")
    goes_on(job)


def an_exporter_that_became_another_program_has_ended():
    """It lives under the same PID, and has no memory any more."""
    job = started("--execs", 200, ranks=3)
    exporter = rows()[-1]["pid"]
    job.wait_steps(202)
    until(lambda: os.readlink(f"/proc/{exporter}/exe").endswith("sleep"), 20, "it is another program")
    cudaw_ok("pause", "--release", "memory", "sharing")
    os.kill(exporter, signal.SIGKILL)
    cudaw_ok("resume", "sharing")
    job.wait_steps(job.steps() + 3)


def sharing_sockets(job):
    return [os.path.join(RUNTIME_DIR, f"{pid}.sharing") for pid in (job.pid, other_rank(job))]


def sockets_that_somebody_removes_are_made_again():
    """Also those of a paused job, which could not be resumed without them."""
    job = started()
    sockets = sharing_sockets(job)
    for verb in ("pause", "resume"):
        for path in sockets:
            os.unlink(path)
        cudaw_ok(verb, "sharing")
    equal([path for path in sockets if not os.path.exists(path)], [], "the sockets that are missing")
    goes_on(job)


def refused(job, *words):
    """A pause of rank 0 alone, which would leave the other one with memory that is none of its own."""
    for release in ("all", "memory"):
        done = cudaw("pause", "--release", release, job.pid)
        equal(done.returncode, 6, f"the exit code of cudaw pause ({done.stderr!r})")
        for word in words:
            check(word in done.stderr, f"cudaw pause says {done.stderr!r}, not {word!r}")


def lost_rank(option):
    """A job whose rank 1 cannot be found any more, and works on; returns that one, too."""
    job = started("--each-line", 1, option, 4)
    other = other_rank(job)
    job.process.stdin.write("\n" * 3)
    job.wait_steps(6)
    return job, f"process {other}, which shares memory with this one,"


def runs_to_its_end(job):
    job.process.stdin.write("\n" * 3)
    job.wait_steps(9)
    job.process.stdin.write("\n" * MANY)
    check("every word right" in job.finish(), "not every rank verified its memory")


def one_that_cannot_be_reached_has_not_ended():
    """It has closed its sockets, and has no descriptor for others."""
    job, other = lost_rank("--deaf")
    refused(job, f"{other} cannot be reached: Connection refused: {RUNTIME_DIR}")
    runs_to_its_end(job)


def one_in_its_exit_handlers_has_not_ended():
    job, other = lost_rank("--lingers")
    refused(job, f"{other} does not pause with it")
    runs_to_its_end(job)


def a_resume_that_cannot_reach_an_exporter_says_so():
    """Somebody has put something else where its socket was."""
    job = started("--ring", 1)
    socket = sharing_sockets(job)[1]
    cudaw_ok("pause", "sharing")
    os.unlink(socket)
    os.mkdir(socket)
    try:
        done = cudaw("resume", "sharing")
    finally:
        os.rmdir(socket)
    check(done.returncode != 0, "the resume succeeded")
    check(f"cannot be reached: Connection refused: {socket}" in done.stderr, f"cudaw resume says {done.stderr!r}")
    check("ended" not in done.stderr, f"cudaw resume says {done.stderr!r}")
    job.until(lambda: os.path.exists(socket), 20, "the socket is there again")
    cudaw_ok("resume", "sharing")
    pauses_and_goes_on(job)


def two_gpus():
    job = started("--gpus", 2, CUDAW_SIM_DEVICES="2")
    for release in ("all", "memory"):
        cudaw_ok("pause", "--release", release, "sharing")
        cudaw_ok("resume", "sharing")
    pauses_and_goes_on(job)


def without_a_directory(ipc):
    """It is another user's, say."""
    def case():
        directory = tempfile.mkdtemp(dir=SCRATCH)
        os.chmod(directory, 0o755)
        job = Job("sharing", "--ipc", ipc, "--each-line", 1, env={"CUDAW_RUNTIME_DIR": directory})
        job.process.stdin.write("\n" * 3)
        job.wait_steps(3)
        with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
            check(f"@cudaw-{job.pid}-" in file.read(), "it has no socket without a name")
        equal(os.listdir(directory), [], "the sockets with names")
        check("every word right" in job.finish(), "not every rank verified its memory")
        check("other users may enter it" in job.stderr(), "the reason is not said")
    return f"without a runtime directory memory is shared, {'by handles' if ipc else 'by descriptors'}", case


def sockets_are_removed():
    job = started()
    sockets = {f"{row['pid']}.sharing" for row in rows()}
    equal(sockets & set(os.listdir(RUNTIME_DIR)), sockets, "the sockets of the ranks")
    check("every word right" in job.finish(), "not every rank verified its memory")
    equal(sockets & set(os.listdir(RUNTIME_DIR)), set(), "the sockets that are left")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


def memory_is_imported_by_any_number_of_processes_in_turn():
    check("300 processes" in Job("importers", "--count", 300).result(), "not all have imported it")


# The calls that rank 1 has made before: an export for its ticket and one for rank 0, an import.
NEXT_EXPORT, NEXT_IMPORT = 2 * OBJECTS + 1, OBJECTS + 1

main(a_fault("a copy", "cuMemcpyDtoHAsync_v2:1:999", "copy"),
     a_late_fault("the unmap of an import", "cuMemUnmap:1:999"),
     a_late_fault("the unmap of its own", f"cuMemUnmap:{OBJECTS + 1}:999"),
     a_late_fault("the driver's checkpoint", "cuCheckpointProcessCheckpoint:1:999"),
     *[a_resume_that_fails("an import", f"cuMemImportFromShareableHandle:{NEXT_IMPORT + k}:999", r)
       for k in (0, OBJECTS - 1) for r in ("all", "memory")],
     a_resume_that_fails("an export", f"cuMemExportToShareableHandle:{NEXT_EXPORT}:999", "all"),
     an_exporter_that_dies_in_a_pause_lets_the_others_run, one_that_is_stopped_in_a_pause_keeps_nobody,
     an_exporter_that_dies_late_in_a_pause_holds_up_nobody, a_resume_in_the_midst_lets_all_run,
     a_command_that_is_killed_leaves_nobody_half_way, a_process_that_does_not_pause_is_named,
     a_process_of_another_job_is_named_with_its_job,
     one_that_resumes_alone_waits_for_the_other, a_resume_of_all_finds_one_that_resumes_alone,
     nobody_waits_for_one_that_failed_to_resume, one_that_gave_up_is_waited_for,
     a_resume_of_all_that_finds_one_has_a_time_limit,
     nobody_runs_before_all_are_whole, the_next_imports_are_asked_for_before_one_is_there,
     a_cancelled_resume_takes_no_more_imports, a_stopped_process_is_waited_for,
     an_import_waits_where_its_process_can_be_paused, an_import_from_a_stopped_process_says_so,
     snapshots_are_refused_by_name("GPU"), snapshots_are_refused_by_name("host", "--host", 1), two_gpus,
     a_pause_that_is_undone_gets_its_own_imports_back, an_own_export_that_fails_is_not_taken_for_a_free,
     an_import_that_cannot_be_given_back_is_refused_by_name,
     an_exporter_that_became_another_program_has_ended,
     sockets_that_somebody_removes_are_made_again, one_that_cannot_be_reached_has_not_ended,
     one_in_its_exit_handlers_has_not_ended, a_resume_that_cannot_reach_an_exporter_says_so,
     memory_is_imported_by_any_number_of_processes_in_turn,
     without_a_directory(0), without_a_directory(1), sockets_are_removed)
