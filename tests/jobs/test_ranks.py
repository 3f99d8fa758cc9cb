#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes whose kernels wait for each other."""
import os
import signal
import socket
import subprocess
import time

from simlib import HELD, errors_of_cudaw, held_back, hold, is_stopped, let_go, shared, unsanitized
from gpulib import (BUILD, CUDAW, PATIENCE, RUNTIME_DIR, Job, base_environment, check, cudaw, cudaw_ok, equal, hog,
                    jobs, main, until)
from harness import REPEATS
from proclib import is_zombie


def ranks_of(name):
    return [pid for pid, row in jobs().items() if row["name"] == name]


def started(count, name):
    job = Job("ranks", "--ranks", count, "--steps", 100000000, "--step-ms", 1, name=name)
    job.until(lambda: len(ranks_of(name)) == count, 30, "all ranks use CUDA")
    job.wait_steps(3)
    return job


def goes_on(job):
    equal({row["state"] for row in jobs().values()}, {"running"}, "the states afterwards")
    job.wait_steps(job.steps() + 3, timeout=20)
    job.finish()
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


def held(pid):
    """A connection to one rank, which is held."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
    client.sendall(b"hold 60000\n")
    until(lambda: b"held " in client.recv(4096), 10, "the rank is held")
    return client


def all_run_on():
    until(lambda: {row["state"] for row in jobs().values()} == {"running"}, 10, "they run on")


def a_command_that_dies_before_the_commit_leaves_the_job_running():
    job = started(2, "left")
    clients = [held(pid) for pid in ranks_of("left")]
    equal({row["state"] for row in jobs().values()}, {"pausing"}, "the states while it is held")
    clients[0].close()
    clients[1].close()
    all_run_on()
    goes_on(job)


def orders_that_are_none_end_the_hold():
    job = started(2, "odd")
    for order in (b"step 0\n", b"step x\n", b"step 999999999\n", b"hurry\n", b"x" * 4096, b"commit\0\n"):
        client = held(ranks_of("odd")[0])
        client.sendall(order)
        text = b""
        while part := client.recv(4096):
            text += part
        check(b"\nend invalid" in b"\n" + text, f"{order[:20]} was answered with {text!r}")
        all_run_on()
    goes_on(job)


def a_second_command_is_turned_away():
    job = started(2, "two")
    first = held(ranks_of("two")[0])
    done = cudaw("pause", "two")
    equal(done.returncode, 1, "the exit code of the second")
    check("another pause is under way" in done.stderr, f"it said {done.stderr!r}")
    first.close()
    all_run_on()
    goes_on(job)


def states_of(name):
    return [row["state"] for row in jobs().values() if row["name"] == name]


def a_pause_ends_a_resume_that_waits():
    """Of all of them, though their first command tells those that still wait to go back."""
    job = started(2, "wait")
    cudaw_ok("pause", "wait")
    other, _ = hog()
    resume = subprocess.Popen([CUDAW, "resume", "wait"], env=base_environment(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: states_of("wait") == ["waiting"] * 2, 20, "they wait for memory")
    time.sleep(2)       # they look for it less often then
    cudaw_ok("pause", "wait")
    resume.wait(60 * PATIENCE)
    equal(states_of("wait"), ["paused"] * 2, "the states after it")
    other.discard()
    cudaw_ok("resume", "wait")
    goes_on(job)


def resume_each(name):
    """By itself: none waits for the others."""
    for pid in ranks_of(name):
        cudaw_ok("resume", "--no-wait", pid)


def a_pause_that_is_interrupted_lets_a_resume_go_on():
    """One rank runs, and comes to rest for the other one only, which waits for memory."""
    job = started(2, "half")
    cudaw_ok("pause", "half")
    other, _ = hog("--mib", 4096 - 64 - 100)
    resume_each("half")
    for how in (signal.SIGINT, signal.SIGKILL):
        until(lambda: sorted(states_of("half")) == ["running", "waiting"], 20, "one of them runs")
        pause = subprocess.Popen([CUDAW, "pause", "half"], env=base_environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: states_of("half") == ["pausing"] * 2 or pause.poll() == 0, 20,
              "both are held")
        pause.send_signal(how)
        pause.wait(100 * PATIENCE)
        until(lambda: sorted(states_of("half")) in (["running", "waiting"], ["paused"] * 2), 20,
              "the pause has ended")
        if "paused" in states_of("half"):   # the one that ran was at rest by chance
            resume_each("half")
    until(lambda: sorted(states_of("half")) == ["running", "waiting"], 20, "one of them runs")
    other.discard()
    all_run_on()
    goes_on(job)


def a_rank_that_is_stopped_spares_the_others():
    job = started(2, "still")
    rank = ranks_of("still")[1]
    os.kill(rank, signal.SIGSTOP)
    until(lambda: jobs()[rank]["error"] == "stopped", 10, "one rank is stopped")
    done = cudaw("pause", "still")
    equal(done.returncode, 1, f"the exit code of cudaw pause ({done.stderr})")
    check(f"{rank}: it is stopped" in done.stderr, f"it said {done.stderr!r}")
    until(lambda: set(states_of("still")) == {"running", None}, 20, "the one that answers runs")
    cudaw_ok("resume", "still")
    goes_on(job)


def a_rank_that_is_silent_after_the_commit_resumes_later():
    """The other one runs on after 10 s, and waits for it."""
    job = Job("ranks", "--ranks", 2, "--steps", 100000000, "--step-ms", 1, name="silent", env=HELD)
    job.until(lambda: len(ranks_of("silent")) == 2, 30, "all ranks use CUDA")
    job.wait_steps(3)
    hold("out")
    # The command does not wait for its time limit, with which this case would never end.
    pause = subprocess.Popen([CUDAW, "pause", "--timeout", "1000000", "silent"], env=base_environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ranks = ranks_of("silent")
    until(lambda: held_back("out") == set(ranks), 20, "they have come to rest, and copy")
    os.kill(ranks[1], signal.SIGSTOP)
    until(lambda: is_stopped(ranks[1]), 10, "it is stopped")
    let_go("out")
    _, said = pause.communicate(timeout=60 * PATIENCE)
    equal(pause.returncode, 1, f"the exit code of cudaw pause ({said})")
    check(f"{ranks[1]} (silent): it is stopped" in said, f"it said {said!r}")
    os.kill(ranks[1], signal.SIGCONT)
    until(lambda: states_of("silent") == ["running"] * 2, 20, "both run")
    goes_on(job)


@unsanitized
def a_rank_that_closes_its_connection_resumes_with_the_others():
    """It lives. Its program has closed all sockets after the commit, and it would pause alone."""
    preload = os.path.join(BUILD, "tests", "preload", "leaves.so")
    job = Job("ranks", "--ranks", 2, "--steps", 100000000, "--step-ms", 1, name="left",
              env={**HELD, "LD_PRELOAD": preload})
    job.until(lambda: len(ranks_of("left")) == 2, 30, "all ranks use CUDA")
    job.wait_steps(3)
    hold("out")
    pause = subprocess.Popen([CUDAW, "pause", "left"], env=base_environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ranks = ranks_of("left")
    until(lambda: held_back("out") == set(ranks), 20, "they have come to rest, and copy")
    os.kill(ranks[1], signal.SIGWINCH)
    let_go("out")
    _, said = pause.communicate(timeout=60 * PATIENCE)
    equal(pause.returncode, 5, f"the exit code of cudaw pause ({said})")
    check(f"{ranks[1]} (left): its program has closed the connection" in said, f"it said {said!r}")
    until(lambda: states_of("left") == ["running"] * 2, 20, "both run")
    goes_on(job)


def a_pause_of_one_rank_by_a_signal_comes_first():
    job = started(2, "signal")
    rank = ranks_of("signal")[0]
    os.kill(rank, signal.SIGUSR1)
    job.until(lambda: jobs()[rank]["state"] == "paused", 20, "one rank is paused")
    done = cudaw("pause", "--timeout", 1, "signal")
    # The other one may wait for it on the GPU, or be at rest by chance.
    check(done.returncode in (0, 5), f"the exit code is {done.returncode}: {done.stderr}")
    cudaw("resume", "signal")
    goes_on(job)


def they_resume_together_or_not_at_all():
    """There is room for one of them, who must not run while the other one cannot."""
    job = started(2, "room")
    cudaw_ok("pause", "room")
    other, _ = hog("--mib", 4096 - 64 - 100)
    for _ in range(2):
        done = cudaw("resume", "--timeout", 1, "room")
        equal(done.returncode, 5, f"the exit code of a resume without room ({done.stderr})")
        # One says for what it waited, the other one as well if it looked at its own limit first.
        equal([line for line in done.stderr.splitlines() if "stays paused" not in line], [], "what else it says")
        equal(states_of("room"), ["paused"] * 2, "the states after it")
        job.check_still()
    other.discard()
    cudaw_ok("resume", "room")
    goes_on(job)


def a_resume_whose_command_dies_goes_on():
    job = started(2, "alone")
    cudaw_ok("pause", "alone")
    clients = []
    for pid in ranks_of("alone"):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
        client.sendall(b"regain\n")
        clients.append(client)
    for client in clients:
        until(lambda: b"held " in client.recv(4096), 10, "the rank has its memory")
    equal(states_of("alone"), ["resuming"] * 2, "the states until all are told")
    for client in clients:
        client.close()
    all_run_on()
    goes_on(job)


@unsanitized
def a_command_that_is_killed_between_two_commits():
    """All pause, whichever have heard of it, as it has been agreed before the first commit."""
    job = started(2, "killed")
    preload = os.path.join(BUILD, "tests", "preload", "dies.so")
    for commits in (0, 1):
        done = subprocess.run([CUDAW, "pause", "killed"], check=False, capture_output=True,
                              timeout=100 * PATIENCE, env={**base_environment(), "LD_PRELOAD": preload,
                                                "TEST_COMMITS": str(commits)})
        equal(done.returncode, -signal.SIGKILL, "how the command ended")
        until(lambda: "pausing" not in states_of("killed"), 20, "the pause is over")
        equal(states_of("killed"), ["paused"] * 2, f"the states after {commits} commits")
        cudaw_ok("resume", "killed")
    goes_on(job)


def a_discarded_job_leaves_no_rank():
    """Not even if its first process has ended, whose children the others were: they would be there in the
    cases after it."""
    job = Job("sharing", "--ranks", 3, "--steps", 100000000, "--step-ms", 1, name="left")
    job.until(lambda: len(ranks_of("left")) == 3, 30, "all ranks use CUDA")
    others = set(ranks_of("left")) - {job.pid}
    for pid in others:      # which would see the end of the first one, and may end as well
        os.kill(pid, signal.SIGSTOP)
        until(lambda p=pid: is_stopped(p), 10, "it is stopped")
    job.send(signal.SIGKILL)
    job.process.wait()
    equal((len(others), {pid for pid in others if is_stopped(pid)}), (2, others), "the ranks that are left")
    job.discard()
    equal({pid for pid in others if not is_zombie(pid)}, set(), "the ranks after it")


PAUSES = 5 * REPEATS

main(*shared("ranks.py", 2, PAUSES),
     *shared("ranks.py", 4, PAUSES),
     a_command_that_dies_before_the_commit_leaves_the_job_running,
     orders_that_are_none_end_the_hold,
     a_second_command_is_turned_away,
     a_command_that_is_killed_between_two_commits,
     a_rank_that_is_stopped_spares_the_others,
     a_pause_ends_a_resume_that_waits,
     a_pause_that_is_interrupted_lets_a_resume_go_on,
     they_resume_together_or_not_at_all,
     a_resume_whose_command_dies_goes_on,
     a_rank_that_is_silent_after_the_commit_resumes_later,
     a_rank_that_closes_its_connection_resumes_with_the_others,
     a_pause_of_one_rank_by_a_signal_comes_first, a_discarded_job_leaves_no_rank)
