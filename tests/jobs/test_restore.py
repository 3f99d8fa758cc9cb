#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw snapshot and cudaw restore. All of it needs CRIU, and skips where there is none that will do."""
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile

from simlib import HELD, hold, is_stopped, let_go, shared
from daemonlib import Daemon
from restorelib import Counting, criu_after, directory, need_criu, nobody_writes_there, refused, stopped
from detached import Detached
from proclib import descriptors
from json_docs import check_documented
from gpulib import BUILD, CUDAW, Job, base_environment, check, cudaw_ok, equal, jobs, main, until


def opened(pid):
    """By number: a path, or of a pipe or socket the kind."""
    return {number: re.sub(r":\[\d+\]$", "", link) for number, link in descriptors(pid).items()}


def told(command, *args):
    """What it says in JSON; times are to the microsecond."""
    text = cudaw_ok(command, "--json", *args)
    check(not re.search(r"\d\.\d{4}", text), text)
    said = json.loads(text)
    check_documented(command, said, every=False)
    return said


def a_job_goes_on_after_its_snapshot():
    need_criu()
    path = directory()
    job = Counting()
    for _ in range(2):
        cudaw_ok("snapshot", job.pid, path)
        equal(job.state(), "running", "the state")
        cudaw_ok("verify", path)
        job.wait_steps(job.steps() + 3)
    job.finish()


def a_stopped_job_goes_on_from_a_copy():
    job, path = stopped()
    copy = directory()
    subprocess.run(["cp", "-a", path, copy], check=True)
    shutil.rmtree(path)
    steps = job.steps()
    cudaw_ok("restore", copy)
    equal(job.state(), "running", "the state")
    job.wait_steps(steps + 3)
    job.finish()


def a_restore_that_waits_ends_as_the_job_does():
    """Which gets the signals to the command."""
    need_criu()
    path = directory()
    job = Detached("counter", "--mib", 32, "--steps", 1000000, "--step-ms", 10, "--term-exit", 7)
    job.wait_steps(3)
    cudaw_ok("snapshot", "--stop", job.pid, path)
    until(job.is_gone, 20, "the job is gone")
    size = os.path.getsize(job.log)
    for whom, how, code in (("job", signal.SIGKILL, 128 + signal.SIGKILL), ("command", signal.SIGTERM, 7),
                            ("command", signal.SIGINT, 0)):
        os.truncate(job.log, size)
        steps = job.steps()
        waits = subprocess.Popen([CUDAW, "restore", "--wait", path], env=base_environment(), stdout=subprocess.DEVNULL)
        until(lambda: job.steps() >= steps + 3, 60, "the job goes on")
        equal(waits.poll(), None, "its exit code while the job runs")
        os.kill(job.pid if whom == "job" else waits.pid, how)
        equal(waits.wait(timeout=60), code, f"its exit code after {how} to the {whom}")
    check("every word right" in job.wait_end(30)[-1], "the job did not end well")


def restored_untold():
    """A job that takes turns and answers, and its restore, which is stopped before it has told it anything."""
    need_criu()
    daemon, path = Daemon(), directory()
    os.environ["CUDAW_TURNS"] = daemon.path
    job = Counting()
    del os.environ["CUDAW_TURNS"]
    before = daemon.member()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    equal(before.until("end").split()[0], "busy", "what cudawd hears of the snapshot")
    command = subprocess.Popen([CUDAW, "restore", path], stdout=subprocess.DEVNULL,
                               env={**base_environment(), **criu_after("restore", "kill -STOP $PPID")})
    until(lambda: not job.is_gone() and is_stopped(job.pid), 60, "CRIU has started it")
    os.kill(job.pid, signal.SIGCONT)
    until(lambda: job.state() == "paused", 60, "it answers")
    return daemon, job, command


def ended(job):
    """It would join the daemon of the next case."""
    os.kill(job.pid, signal.SIGKILL)
    until(job.is_gone, 20, "the job is gone")


def one_that_takes_turns():
    """cudawd hears nothing of it before the command has told it where its snapshot is."""
    daemon, job, command = restored_untold()
    equal(select.select([daemon.socket], [], [], 0)[0], [], "the connections meanwhile")
    os.kill(command.pid, signal.SIGCONT)
    equal(command.wait(timeout=60), 0, "the exit code of the restore")
    daemon.member()
    ended(job)


def one_that_is_resumed_instead():
    """It joins then, and once more while it is paused later."""
    daemon, job, command = restored_untold()
    command.kill()
    command.wait()
    cudaw_ok("resume", job.pid)
    member = daemon.member()
    cudaw_ok("pause", job.pid)
    member.socket.close()
    member.lines.close()
    daemon.joined()
    ended(job)


def it_has_the_memory_limit_that_it_had():
    need_criu()
    os.environ["CUDAW_MEM"] = "64M"
    try:
        job = Counting()
    finally:
        del os.environ["CUDAW_MEM"]
    before, path = jobs()[job.pid]["gpu"][0], directory()
    equal(before["limit"], 64 << 20, "the limit")
    cudaw_ok("snapshot", "--stop", job.pid, path)
    until(job.is_gone, 20, "the job is gone")
    cudaw_ok("restore", path)
    after = jobs()[job.pid]["gpu"][0]
    equal((after["limit"], after["limit_used"]), (before["limit"], before["limit_used"]), "its limit, and what it has")
    job.finish()


def it_counts_where_it_is_restored():
    """The processes that its command is a child of share a scheduler's limit with it."""
    need_criu()
    limit = {"CUDA_DEVICE_MEMORY_LIMIT": "64m"}
    os.environ.update(limit)
    try:
        job, path = stopped()
    finally:
        del os.environ["CUDA_DEVICE_MEMORY_LIMIT"]
    quota = os.path.join(BUILD, "tests", "programs", "quota")
    steps = job.steps()
    shell = Job("/bin/sh", "-c", f'"{CUDAW}" restore --wait "{path}" > "{path}.out" < /dev/null & read line; '
                f'"{quota}" < /dev/null; echo done; wait', mode="path", env=limit)
    until(lambda: job.steps() >= steps + 3, 60, "the job goes on")
    shell.tell()
    shell.wait_line("done")
    left = [line for line in shell.lines if line.startswith("free ")]
    equal(left, ["free 30 of 64 MiB, device 64"], "what it leaves")
    job.finish()
    shell.result()


def others_see_that_it_is_in_its_snapshot():
    """CRIU has put it into a time namespace of its own, in which start times are others."""
    job, path = stopped()
    cudaw_ok("restore", path)
    cudaw_ok("pause", job.pid)
    other = directory()
    cudaw_ok("snapshot", job.pid, other)
    check("in-use" in os.listdir(other), f"the directory has {os.listdir(other)}")
    cudaw_ok("resume", job.pid)
    check("in-use" not in os.listdir(other), f"the directory of a job that runs has {os.listdir(other)}")
    job.finish()


def its_descriptors_and_signals_are_as_they_were():
    """New files are behind its pipe and its socket; both serve, and no others are opened beside them."""
    need_criu()
    job = Counting()
    cudaw_ok("pause", job.pid)      # the first one opens cudaw-freemem
    cudaw_ok("resume", job.pid)
    before = opened(job.pid)
    for _ in range(2):
        path = directory()
        cudaw_ok("snapshot", "--stop", job.pid, path)
        until(job.is_gone, 20, "the job is gone")
        cudaw_ok("restore", path)
        for sig, state in ((signal.SIGUSR1, "paused"), (signal.SIGUSR2, "running")):
            os.kill(job.pid, sig)
            until(lambda wanted=state: job.state() == wanted, 30, f"it is {state}")
        until(lambda: opened(job.pid) == before, 10, "it has open what it had")
    job.finish()


def inspect_tells_what_it_takes_and_needs():
    need_criu()
    path = directory()
    job = Counting()
    cudaw_ok("snapshot", job.pid, path)
    sizes = {os.path.join(at, name): os.path.getsize(os.path.join(at, name))
             for at, _, names in os.walk(path) for name in names}
    image = [size for name, size in sizes.items() if "/host-" in name]
    said = told("inspect", path)
    equal((said["disk"], said["image_bytes"]), (sum(sizes.values()), sum(image)), "the bytes")
    check(job.log in said["opened"] and not said["terminal"], f"it needs {said['opened']}")
    text = cudaw_ok("inspect", path)
    for part in (f" in {len(sizes)} files, ", f" of that in {len(image)} files: the processes\n"):
        check(part in text, f"{part!r} is not in {text}")
    job.finish()


def one_of_the_commands_session():
    """In a process group of its own: it gets no SIGHUP as CRIU ends, while it is stopped."""
    need_criu()
    path = directory()
    job = Counting(start_new_session=False, preexec_fn=os.setpgrp)
    cudaw_ok("snapshot", "--stop", job.pid, path)
    until(job.is_gone, 20, "the job is gone")
    steps = job.steps()
    cudaw_ok("restore", path)
    job.wait_steps(steps + 3)
    job.finish()


def on_tmpfs(path):
    return subprocess.check_output(["stat", "-f", "-c", "%T", path], text=True).strip() in ("tmpfs", "ramfs")


def twice_in_a_row():
    job, path = stopped()
    for _ in range(2):
        said = told("restore", path)
        equal([phase["name"] for phase in said["phases"] if phase["name"] != "read" or not on_tmpfs(path)],
              ["check", "verify", "criu", "start", "restore", "map", "copy"], "the phases")
        check(0 < sum(phase["ms"] for phase in said["phases"] if phase["name"] != "verify") <= said["ms"] + 5, f"{said}")
        equal((said["pid"], said["path"], said["paused"]), (job.pid, path, False), "what it says")
        job.wait_steps(job.steps() + 3)
        path = directory()
        cudaw_ok("snapshot", "--stop", job.pid, path)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        shutil.move(path, memory)
        path = os.path.join(memory, os.path.basename(path))
        phases = [phase["name"] for phase in told("restore", path)["phases"]]
        equal(phases, ["check", "verify", "criu", "start", "read", "restore", "map", "copy"],
              "the phases of a restore from memory, which the job reads itself")
        job.wait_steps(job.steps() + 3)
        path = directory()
        cudaw_ok("snapshot", "--stop", job.pid, path)
    # Not those of the resume before it.
    equal([phase["name"] for phase in told("restore", "--paused", path)["phases"]],
          ["check", "verify", "criu", "start"], "the phases of a restore without a resume")
    cudaw_ok("resume", job.pid)
    job.finish()


def one_snapshot_starts_a_job_again_and_again():
    job, path = stopped()
    log = "\n".join(job.lines()) + "\n"
    for _ in range(2):
        with open(job.log, "w", encoding="utf-8") as file:
            file.write(log)
        cudaw_ok("restore", path)
        job.wait_steps(job.steps() + 3)
        job.finish()


def a_paused_job_stays_paused():
    need_criu()
    path = directory()
    job = Counting()
    cudaw_ok("pause", job.pid)
    cudaw_ok("snapshot", job.pid, path)
    equal(job.state(), "paused", "the state")
    nobody_writes_there(path)
    cudaw_ok("resume", job.pid)
    job.wait_steps(job.steps() + 3)
    job.finish()


def restored_paused():
    job, path = stopped()
    cudaw_ok("restore", "--paused", path)
    equal(job.state(), "paused", "the state")
    # The snapshot that it is in paused it for itself; that is over.
    check("the job is in a snapshot already" in
          refused("snapshot", "--gpu-only", job.pid, directory()), "another snapshot")
    equal(job.state(), "paused", "the state after another snapshot")
    cudaw_ok("resume", job.pid)
    job.wait_steps(job.steps() + 3)
    job.finish()


def one_that_is_paused_at_once_is_there():
    """It is whoever's pause it was, and not ended, whether the pause came in time or after it."""
    os.environ.update(HELD)
    job, path = stopped()
    hold("in")
    command = subprocess.Popen([CUDAW, "restore", path], env=base_environment(), text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    until(lambda: job.state() == "resuming", 30, "it begins to go on")
    cudaw_ok("pause", "--no-wait", job.pid)
    let_go("in")
    said = command.communicate(timeout=300)[1]
    until(lambda: job.state() == "paused", 30, f"it is paused ({said})")
    check(command.returncode == 0 or command.returncode == 1 and f"{job.pid} stays paused" in said,
          f"cudaw restore: {command.returncode}, {said}")
    for name in HELD:
        del os.environ[name]
    cudaw_ok("resume", job.pid)
    job.finish()


def one_that_ends_as_it_goes_on():
    """Nothing went wrong, so none of its processes is ended."""
    need_criu()
    path = directory()
    job = Detached("ends", "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    cudaw_ok("snapshot", "--stop", job.pid, path)
    until(job.is_gone, 20, "the job is gone")
    check(cudaw_ok("restore", path).startswith(f"{job.pid} goes on: "), "it says something else")
    job.wait_end(30)


def an_incremental_one_writes_what_changed():
    need_criu()
    path = directory()
    theirs, mine = os.pipe()    # it waits for itself
    job = Detached("hold", "--verify", 0, stdin=theirs, pass_fds=[mine])
    os.close(theirs)
    os.close(mine)
    until(lambda: "holding" in job.lines(), 30, "it holds")
    cudaw_ok("snapshot", job.pid, path)
    said = told("snapshot", "--incremental", job.pid, path)
    equal(said["totals"]["written"], 0, "the bytes written by the second one")
    equal([p["name"] for p in said["phases"]][-2:], ["write", "criu"], "the last phases")
    job.process.kill()


if __name__ == "__main__":
    main(a_job_goes_on_after_its_snapshot, a_restore_that_waits_ends_as_the_job_does, one_that_takes_turns,
         one_that_is_resumed_instead, a_stopped_job_goes_on_from_a_copy,
         it_has_the_memory_limit_that_it_had, it_counts_where_it_is_restored, others_see_that_it_is_in_its_snapshot,
         its_descriptors_and_signals_are_as_they_were, inspect_tells_what_it_takes_and_needs,
         one_of_the_commands_session, twice_in_a_row, one_snapshot_starts_a_job_again_and_again,
         a_paused_job_stays_paused,
         restored_paused, one_that_is_paused_at_once_is_there, one_that_ends_as_it_goes_on,
         an_incremental_one_writes_what_changed,
         *shared("restore.py", "--translated", "graph_nodes", "--steps", 100, "--step-ms", 20))
