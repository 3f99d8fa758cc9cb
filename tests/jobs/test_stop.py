#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTSTP, as Ctrl-Z and schedulers send it: the GPU is freed before the process stops, and SIGCONT asks for it."""
import os
import signal
import subprocess
import sys

from simlib import HELD, errors_of_cudaw, held_back, hold, is_stopped, let_go, process_used, unsanitized
from gpulib import CUDAW, BUILD, Job, base_environment, check, equal, faces, jobs, main, proc_status
from harness import until
from shelllib import Shell, Terminal

ENDLESS = ("--steps", 10000000, "--step-ms", 5)

os.environ["CUDAW_TSTP_TIMEOUT"] = "60"     # a loaded machine may need more than 5 s


def own_group(program, *args, **options):
    """A job of a shell's: its process group is its own, and has a parent in the session."""
    job = Job(program, *args, *ENDLESS, process_group=0, **options)
    job.wait_steps(3)
    return job


def counter(**options):
    return own_group("counter", "--mib", 32, "--verify", 1, **options)


def stop(job):
    job.send(signal.SIGTSTP)
    job.until(lambda: is_stopped(job.pid), 20, "it is stopped")


def go_on(job):
    job.send(signal.SIGCONT)
    job.wait_steps(job.steps() + 3)


def stopped_by(pid):
    """The signal, as its parent hears of it."""
    state = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG)
    return state and state.si_status


def is_noticed(job):
    """The signals that it got before: it looks for them whenever it has answered."""
    for _ in range(2):
        job.state()


def handles(pid):
    return bool(int(proc_status(pid)["SigCgt"], 16) >> (signal.SIGTSTP - 1) & 1)


def verify_and_end(job):
    check("every word right" in job.finish(), "the job did not verify its memory")


def the_gpu_is_free_when_it_stops():
    job = counter()
    for _ in range(3):
        stop(job)
        equal((stopped_by(job.pid), process_used(job.pid)), (signal.SIGTSTP, 0), "the signal, and bytes on the GPU")
        go_on(job)
        equal(job.state(), "running", "the state")
    equal(errors_of_cudaw(job), [], "what it said")
    verify_and_end(job)


def what_the_user_had_paused_stays_paused():
    job = counter()
    job.pause()
    stop(job)
    job.send(signal.SIGCONT)
    job.wait_state("paused")
    job.check_still()
    job.resume()
    verify_and_end(job)


def a_pause_by_the_user_outlives_the_stop():
    """It comes while the GPU is being freed."""
    job = counter(env=HELD)
    hold("out")
    job.send(signal.SIGTSTP)
    job.wait_state("pausing")
    job.send(signal.SIGUSR1)
    is_noticed(job)
    let_go("out")
    job.until(lambda: is_stopped(job.pid), 20, "it is stopped")
    job.send(signal.SIGCONT)
    job.wait_state("paused")
    job.resume()
    verify_and_end(job)


def runs_on_after(number):
    """The signal comes before the job has stopped."""
    job = counter(env=HELD)
    hold("out")
    job.send(signal.SIGTSTP)
    job.wait_state("pausing")
    job.send(number)
    is_noticed(job)
    let_go("out")
    job.wait_steps(job.steps() + 3)
    equal((job.state(), stopped_by(job.pid)), ("running", None), "the state, and the signal that stopped it")
    verify_and_end(job)


def sigcont_before_it_has_stopped():
    runs_on_after(signal.SIGCONT)


def a_resume_before_it_has_stopped():
    runs_on_after(signal.SIGUSR2)


def it_stops_though_the_gpu_is_not_free():
    job = counter(env={**HELD, "CUDAW_TSTP_TIMEOUT": "1"})
    hold("out")
    stop(job)
    said = errors_of_cudaw(job)
    check(len(said) == 1 and "SIGTSTP: the GPU is not free: " in said[0] and " 1 s" in said[0] and
          said[0].endswith("; the process stops all the same"), f"it said {said}")
    check(process_used(job.pid), "its memory is on the GPU")
    let_go("out")
    go_on(job)
    verify_and_end(job)


def it_stops_though_the_gpu_cannot_be_freed():
    job = own_group("managed_run", env={"CUDAW_RELEASE": "all"})
    stop(job)
    said = errors_of_cudaw(job)
    check(len(said) == 1 and "SIGTSTP: the GPU is not free: pause: " in said[0], f"it said {said}")
    go_on(job)
    job.finish()


def the_programs_own_action():
    for how, got in ((1, 2), (2, 0)):
        job = own_group("tstp", "--how", how)
        for _ in range(2):
            job.send(signal.SIGTSTP)
            job.wait_steps(job.steps() + 3)
            equal((job.state(), stopped_by(job.pid)), ("running", None), "the state, and what stopped it")
        equal(job.finish().splitlines()[-1], f"tstp: got {got}", "the last line")


def the_default_action_is_what_the_program_sees():
    job = own_group("tstp")
    check(handles(job.pid), "cudaw has no handler")
    stop(job)
    go_on(job)
    equal(job.finish().splitlines()[-1], "tstp: got 0", "the last line")


def a_program_that_raises_it_stops_there():
    job = own_group("tstp", "--how", 3)
    for times in (1, 2):
        job.send(signal.SIGWINCH)
        job.until(lambda: is_stopped(job.pid), 20, "it is stopped")
        until(job.is_read, 10, "what it has printed is read")
        equal((job.lines.count("raises"), job.lines.count("continued")), (times, times - 1), "what it said")
        go_on(job)
        equal(job.lines.count("continued"), times, "what it said when it went on")
    job.finish()


def a_thread_sends_it_while_the_main_thread_synchronises():
    """It is the main thread that gets it, and the GPU is free only once its call has ended."""
    job = own_group("tstp", "--how", 5, env={**HELD, "CUDAW_SIM_HELD_CALL": "cuCtxSynchronize"})
    hold("call")
    job.until(lambda: held_back("call"), 20, "it synchronises")
    job.send(signal.SIGWINCH)
    job.wait_line("sent")
    let_go("call")
    job.until(lambda: is_stopped(job.pid), 20, "it is stopped")
    equal((stopped_by(job.pid), process_used(job.pid)), (signal.SIGTSTP, 0), "the signal, and bytes on the GPU")
    go_on(job)
    equal(errors_of_cudaw(job), [], "what it said")
    job.finish()


def children_stop_at_once():
    """They have no control thread of cudaw's."""
    job = own_group("tstp", "--how", 4, env=HELD)
    children = [int(line.split()[1]) for line in job.lines if line.startswith("child ")]
    equal([handles(pid) for pid in children], [False, False], "whether the children handle it")
    hold("out")
    os.killpg(job.pid, signal.SIGTSTP)
    until(lambda: all(map(is_stopped, children)), 10, "the children are stopped")
    equal(stopped_by(job.pid), None, "what stopped the job")
    let_go("out")
    job.until(lambda: is_stopped(job.pid), 20, "it is stopped")
    os.killpg(job.pid, signal.SIGCONT)
    job.wait_steps(job.steps() + 3)
    job.finish()


def without_cuda():
    """The program is as it was, until its first CUDA call."""
    job = Job("counter", "--start-line", 1, *ENDLESS, process_group=0)
    job.wait_line("before CUDA")
    check(not handles(job.pid), "cudaw handles the signal")
    stop(job)
    job.send(signal.SIGCONT)
    job.tell()
    job.wait_steps(3)
    check(handles(job.pid), "cudaw does not handle the signal")
    job.finish()


def switched_off():
    job = counter(env={"CUDAW_TSTP": "0"})
    check(not handles(job.pid), "cudaw handles the signal")
    stop(job)
    check(process_used(job.pid), "its memory is gone")
    go_on(job)
    verify_and_end(job)


def a_library_that_the_program_loads():
    """Its sigaction() goes past us, and would tell of our handler."""
    code = ("import ctypes, sys, time\n"
            "cuda = ctypes.CDLL(sys.argv[1])\n"
            "print(cuda.cuInit(0), cuda.cuInit(0))\n"
            "sys.stdin.read()\n")
    with subprocess.Popen([sys.executable, "-c", code, os.path.join(faces(), "libcuda.so.1")], text=True,
                          env=base_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        equal(process.stdout.readline(), "0 0\n", "what cuInit() returned")
        until(lambda: process.pid in jobs(), 10, "its control thread runs")
        until(lambda: not handles(process.pid), 10, "cudaw leaves the signal alone")
        process.stdin.close()


def in_an_orphaned_group():
    """The kernel ignores the signal there. The GPU is free until SIGCONT, as SIGSTOP may follow."""
    job = Job("counter", "--mib", 32, "--verify", 1, *ENDLESS, start_new_session=True)
    job.wait_steps(3)
    job.send(signal.SIGTSTP)
    job.wait_state("paused")
    job.until(lambda: not process_used(job.pid), 20, "the GPU is free")
    equal(stopped_by(job.pid), None, "what stopped it")
    job.send(signal.SIGSTOP)
    job.until(lambda: is_stopped(job.pid), 10, "it is stopped")
    go_on(job)
    job.send(signal.SIGTSTP)
    job.wait_state("paused")
    job.resume()
    job.wait_steps(job.steps() + 3)
    verify_and_end(job)


def in_a_shell():
    """Ctrl-Z frees the GPU, and fg brings it back."""
    shell = Shell()
    for _ in range(2):
        shell.stop()
        equal(process_used(shell.job), 0, "what it has on the GPU")
        shell.go_on()
    shell.end_well()


def without_a_shell():
    """The leader of a terminal's session is in an orphaned group: Ctrl-Z changes nothing."""
    program = f"{BUILD}/tests/programs/counter"
    terminal = Terminal(CUDAW, "run", "--", program, "--mib", "32", "--verify", "1", "--steps", "10000000",
                        "--step-ms", "5")
    terminal.wait_steps(3)
    terminal.type("\x1a")
    terminal.wait_steps(30)
    equal(stopped_by(terminal.pid), None, "what stopped it")
    terminal.type("\x03")
    terminal.read_until(lambda said: "every word right" in said, "it ends well")
    terminal.end()


main(the_gpu_is_free_when_it_stops, what_the_user_had_paused_stays_paused, a_pause_by_the_user_outlives_the_stop,
     sigcont_before_it_has_stopped, a_resume_before_it_has_stopped, it_stops_though_the_gpu_is_not_free,
     it_stops_though_the_gpu_cannot_be_freed, the_programs_own_action, the_default_action_is_what_the_program_sees,
     a_program_that_raises_it_stops_there, a_thread_sends_it_while_the_main_thread_synchronises,
     children_stop_at_once, without_cuda, switched_off, unsanitized(a_library_that_the_program_loads),
     in_an_orphaned_group, unsanitized(in_a_shell), unsanitized(without_a_shell))
