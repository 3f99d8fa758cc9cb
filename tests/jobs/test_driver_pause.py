#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw pause --driver: processes that do not run under cudaw, by the driver's own checkpoint."""
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from simlib import (BUILD, HELD, MIB, SCRATCH, gpus_used, held_back, hold, is_stopped, let_go, process_used, shared,
                    unsanitized)
from proclib import descendants, send
from gpulib import (CUDAW, PATIENCE, RUNTIME_DIR, Failure, Job, base_environment, check, equal, jobs, main,
                    until)

REMOTE = os.path.join(SCRATCH, "remote")
os.makedirs(REMOTE)
os.environ["CUDAW_SIM_REMOTE"] = REMOTE     # of the jobs, and of the command

# A checkpoint from outside finds threads of the program that wait in the driver, as it is meant to.
os.environ["CUDAW_SIM_STRICT"] = "0"


def command(*args, code=0, **env):
    """Run the command; returns its stdout, or its stderr after a failure."""
    done = subprocess.run([CUDAW] + [str(arg) for arg in args], capture_output=True, text=True,
                          timeout=60 * PATIENCE, env={**base_environment(), **env})
    equal(done.returncode, code, f"the exit code of cudaw {args} ({done.stderr.strip()})")
    return done.stderr if code else done.stdout


def other_tool(pid, steps):
    """Another tool than cudaw locks the process, and checkpoints it as a second step."""
    Job("drvckpt", "--pid", pid, "--until", steps, mode="native").result()


def has(text, *parts):
    for part in parts:
        check(part in text, f"{part!r} is not in {text!r}")


def native(program="counter", *args, **env):
    job = Job(program, *(args or ("--mib", 64, "--steps", 100000, "--step-ms", 10)), mode="native",
              env=env)
    job.wait_steps(3)
    return job


def is_running(job):
    equal(job.status(), None, "its row of cudaw ps")
    job.wait_steps(job.steps() + 3)


def is_paused(job, state="paused"):
    row = job.status()
    equal((row["state"], row["by_driver"]), (state, True), "the state of cudaw ps")
    equal((row["carried"], row["pool"]), (None, None), "the amounts that nobody knows")
    job.check_still()


def ends_well(job):
    check("every word right" in job.finish(), "the job did not verify its memory")


def records():
    return [name for name in os.listdir(RUNTIME_DIR) if name.endswith(".driver")]


def pause_and_resume():
    job = native()
    said = command("pause", job.pid, code=3)
    has(said, f"'cudaw pause --driver {job.pid}'")
    for _ in range(2):
        check(sum(gpus_used()) > 64 * MIB, "the job uses no GPU memory")
        said = command("pause", "--driver", job.pid)
        has(said, f"paused {job.pid}: ", "at its speed and without cudaw's guarantees")
        equal(records(), [f"{job.pid}.driver"], "the record, without NVML")
        equal(sum(gpus_used()), 0, "the bytes in use on the GPU")
        is_paused(job)
        has(command("ps"), f"{job.pid}: paused by the driver's own checkpoint")
        has(command("pause", "--driver", job.pid), "already paused")
        command("resume", "--all")
        is_paused(job)
        has(command("resume", job.pid), f"resumed {job.pid}: ")
        is_running(job)
    command("resume", job.pid, code=3)
    equal(records(), [], "the records that are left")
    ends_well(job)


def states():
    return {pid: row["state"] for pid, row in jobs().items()}


def json_and_dry_run():
    job = User()
    under = Job("counter", "--mib", 64, "--steps", 100000, "--step-ms", 10)
    job.ready()
    under.wait_steps(3)
    row, = json.loads(command("pause", "--driver", "--dry-run", "--json", job.pid))
    equal((row["request"], row["pid"], row["outcome"], row["ms"]), ("pause", job.pid, "meant", None))
    equal(command("pause", "--driver", "--dry-run", job.pid), f"would pause {job.pid}\n")
    equal(states(), {under.pid: "running"})
    row, = json.loads(command("pause", "--driver", "--json", job.pid))
    equal((row["outcome"], row["code"], row["message"], row["schema"]), ("done", 0, None, 1))
    check(row["ms"] >= 0 and row["bytes"] != 0, f"no figures are in {row}")
    under.pause()
    # One word is for the driver, and one is a job.
    words = [job.pid, under.pid]
    equal(command("resume", "--dry-run", *words), "".join(f"would resume {pid}\n" for pid in words))
    equal([(row["pid"], row["outcome"]) for row in
           json.loads(command("resume", "--dry-run", "--json", *words))],
          [(pid, "meant") for pid in words])
    equal(states(), {pid: "paused" for pid in words})
    rows = json.loads(command("resume", "--json", *words))
    equal([(row["pid"], row["outcome"], row["schema"], sorted(row)) for row in rows],
          [(pid, "done", 1, sorted(rows[0])) for pid in words])
    equal(states(), {under.pid: "running"})
    os.kill(job.pid, signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 10, "the process is stopped")
    done = subprocess.run([CUDAW, "resume", "--json", str(job.pid)], capture_output=True, text=True,
                          timeout=60 * PATIENCE, check=False, env=base_environment())
    row, = json.loads(done.stdout)
    equal((done.returncode, row["outcome"], row["code"]), (1, "failed", 1))
    has(row["message"], "it is stopped, and the driver cannot work on it")
    os.kill(job.pid, signal.SIGCONT)
    job.end()
    ends_well(under)


def a_snapshot_is_refused():
    job = native()
    for _ in range(2):
        said = command("snapshot", job.pid, os.path.join(SCRATCH, "no"), code=6)
        has(said, f"snapshot {job.pid}: it does not run under cudaw")
        command("pause", "--driver", job.pid)
    command("resume", job.pid)
    ends_well(job)


def another_tool_paused_it():
    job = native()
    other_tool(job.pid, 2)
    is_paused(job)
    row = job.status()
    equal((row["own_pid"], row["id"], row["name"]), (job.pid, None, None))
    has(row["command"], "counter --mib 64")
    check(0 < row["age_ms"] < 1e6, f"its age is {row['age_ms']} ms")
    line, = [line for line in command("ps").splitlines() if line.split()[2:3] == [str(job.pid)]]
    has(row["command"], line.rstrip().rpartition("  ")[2])     # its begin
    check(line.split()[6] != "-", f"no age is in {line!r}")
    command("resume", job.pid)
    is_running(job)
    ends_well(job)


def a_command_was_killed_after_the_lock():
    job = native()
    other_tool(job.pid, 1)
    is_paused(job, "locked")
    has(command("pause", "--driver", job.pid, code=1), "it is locked", "'cudaw resume PID' unlocks")
    has(command("resume", job.pid), "it was only locked")
    is_running(job)
    ends_well(job)


def each_step_fails():
    """Each leaves the job running, or as the next resume can end it."""
    job = native()
    for call in "Lock", "Checkpoint":
        said = command("pause", "--driver", job.pid, code=1,
                       CUDAW_SIM_FAULT=f"cuCheckpointProcess{call}:1:304")
        has(said, f"cuCheckpointProcess{call} fails with CUDA_ERROR_OPERATING_SYSTEM (304); "
            "it runs on")
        is_running(job)
    said = command("pause", "--driver", job.pid, code=1,
                   CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:304,"
                                   "cuCheckpointProcessUnlock:1:304")
    has(said, "cuCheckpointProcessCheckpoint fails", "it is locked, and 'cudaw resume PID'")
    command("resume", job.pid)
    is_running(job)
    has(command("pause", "--driver", job.pid, code=6,
                CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:801"), "it runs on")

    command("pause", "--driver", job.pid)
    for call, state in ("Restore", "paused"), ("Unlock", "locked"):
        said = command("resume", job.pid, code=1,
                       CUDAW_SIM_FAULT=f"cuCheckpointProcess{call}:1:304")
        has(said, f"cuCheckpointProcess{call} fails", f"it is {state}, and 'cudaw resume PID'")
        is_paused(job, state)
    command("resume", job.pid)
    is_running(job)
    ends_well(job)


def a_long_kernel():
    job = Job("spin", "--steps", 100000, "--step-ms", 10, mode="native")
    job.wait_line("spinning")
    has(command("pause", "--driver", "--timeout", 0.3, job.pid, code=5), "did not end in time",
        "it runs on")
    is_running(job)
    check("the kernel ended" in job.finish(), "the job did not end by itself")


def with_nvml(free, process=""):
    libraries = os.path.join(SCRATCH, "nvml")
    os.makedirs(libraries, exist_ok=True)
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    return {"LD_LIBRARY_PATH": libraries, "TEST_NVML_FREE": str(free),
            "TEST_NVML_PROCESS": process}


def a_resume_waits_for_gpu_memory():
    job = native()
    size = 128 * MIB
    said = command("pause", "--driver", job.pid, **with_nvml(0, f"{job.pid} {size}"))
    has(said, f"paused {job.pid}: 128 MiB in ")
    for option in ("--timeout", 0.3), ("--no-wait",):
        said = command("resume", *option, job.pid, code=5, **with_nvml(size // 2))
        has(said, "it needs 128 MiB of GPU-", "which has 64.0 MiB free", "it stays paused")
        is_paused(job)
    command("resume", job.pid, **with_nvml(size))
    is_running(job)
    # Nobody knows what a process needs that another tool has paused.
    other_tool(job.pid, 2)
    said = command("resume", "--timeout", 0.3, job.pid, code=5, **with_nvml(1 << 30))
    has(said, "it needs at most", "it stays paused")
    command("resume", job.pid, **with_nvml(1 << 40))
    is_running(job)
    ends_well(job)


def what_another_tool_paused_needs_is_guessed():
    """At most what a GPU has, on the GPU that the process sees; or as the user says."""
    job = native(CUDAW_SIM_DEVICES="2", CUDA_VISIBLE_DEVICES="1")

    def resume(*args, free, code=5, **env):
        with open(os.path.join(SCRATCH, "memory"), "w", encoding="ascii") as file:
            file.write(f"{256 * MIB} {free * MIB}")
        return command("resume", "--timeout", 0.01, *args, job.pid, code=code, CUDAW_SIM_DEVICES="2",
                       **{**with_nvml(0), "TEST_NVML_FILE": file.name, **env})

    other_tool(job.pid, 2)
    said = resume(free=128)
    has(said, "it needs at most 256 MiB of GPU-", "which has 128 MiB free")
    gpu = said.split(" of ")[1].split(",")[0]
    first = gpu[:-1] + "0"
    check(gpu[-1] == "1", f"it needs memory of {gpu}")
    has(resume(free=250, TEST_NVML_PROCESS=f"1 {MIB}"), "it needs at most 256 MiB")
    has(resume("--need", "200M", free=128), "it needs 200 MiB of GPU-")
    is_paused(job)
    for enough in ({"args": ("--need", "100M"), "free": 128}, {"free": 250},
                   {"free": 0, "TEST_NVML_ONLY": first}):
        resume(*enough.pop("args", ()), **enough, code=0)
        is_running(job)
        other_tool(job.pid, 2)
    resume("--need", 0, free=0, code=0)
    is_running(job)
    ends_well(job)


def session_below(pid):
    """The process that pauses or resumes, which is in a session of its own; those that ask are not."""
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(child) == child:
                return child
    return None


def memory_in_parts(held_up):
    """@held_up: the command is, while the later parts become free."""
    def case():
        """NVML does not list the process: what becomes free is taken for what it held."""
        free, job = os.path.join(SCRATCH, "free"), native()

        def becomes(size):
            with open(f"{free}.new", "w", encoding="ascii") as file:
                file.write(f"{1 << 40} {size}")
            os.rename(f"{free}.new", free)

        def pauses():
            """False if this machine was too slow for the parts to follow one another, or for the first to
            follow the checkpoint: the command waits for that for a second."""
            becomes(0)
            looks = [time.monotonic()]

            def is_given_back():
                looks.append(time.monotonic())
                return not process_used(job.pid)

            with subprocess.Popen([CUDAW, "pause", "--driver", str(job.pid)], env=env) as pause:
                until(is_given_back, 20, "its memory is given back")
                worker, times = session_below(pause.pid), []
                for mib in (32, 64, 96):
                    becomes(mib * MIB)
                    times.append(time.monotonic())
                    time.sleep(0.05)
                    if held_up and worker and mib == 32:
                        send(worker, "STOP")
                if held_up and worker:
                    time.sleep(0.4)
                    send(worker, "CONT")
            equal(pause.returncode, 0, "the exit code of cudaw pause")
            # By the last look but one it was not given back.
            in_time = max(b - a for a, b in zip(times, times[1:])) < 0.15
            return worker and in_time and times[0] - looks[-2] < 0.8

        env = {**base_environment(), **with_nvml(0), "TEST_NVML_FILE": free}
        for _ in range(20):
            if pauses():
                break
            becomes(1 << 40)
            command("resume", job.pid, **env)
        else:
            raise Failure("this machine is too slow for this test")
        becomes(64 * MIB)
        has(command("resume", "--timeout", 0.3, job.pid, code=5, **env), "it needs 96.0 MiB of GPU-")
        becomes(96 * MIB)
        command("resume", job.pid, **env)
        ends_well(job)
    return "memory that becomes free part after part" + (", held up" if held_up else ""), case


def too_little_host_memory():
    job = native()
    said = command("pause", "--driver", job.pid, code=1, **with_nvml(0, f"{job.pid} {1 << 50}"))
    has(said, "of host memory", "it runs on")
    is_running(job)
    ends_well(job)


def a_resume_takes_turns_with_jobs():
    job = native()
    command("pause", "--driver", job.pid, **with_nvml(0, f"{job.pid} {MIB}"))
    with open(os.path.join(RUNTIME_DIR, records()[0]), encoding="ascii") as file:
        gpu = file.read().splitlines()[1].split()[0]
    lock = os.path.join(RUNTIME_DIR, f"{gpu}.lock")
    with open(lock, "w", encoding="ascii") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        said = command("resume", "--timeout", 0.3, job.pid, code=5, **with_nvml(1 << 40))
        has(said, f"another job resumes on {gpu}")
    command("resume", job.pid, **with_nvml(1 << 40))
    ends_well(job)


def an_interrupted_command_brings_it_to_the_end():
    job = native(**HELD)
    for verb, way, state in (("pause", "--driver"), "out", "paused"), (("resume",), "in", None):
        hold(way)
        with subprocess.Popen([CUDAW, *verb, str(job.pid)], stdout=subprocess.PIPE,
                              env=base_environment(), start_new_session=True) as process:
            until(lambda w=way: job.pid in held_back(w), 60, "the driver copies")
            os.killpg(process.pid, signal.SIGINT)    # as the terminal does
            equal(process.wait(60 * PATIENCE), -signal.SIGINT, "how the command ended")
            equal(process.stdout.read(), b"", "what the command said")
        let_go(way)
        job.until(lambda s=state: (job.status() or {}).get("state") == s, 30, f"it is {state}")
    is_running(job)
    hold("out")
    has(command("pause", "--driver", "--no-wait", job.pid), f"pausing {job.pid}\n")
    has(command("resume", job.pid, code=1), "another command works on it")
    let_go("out")
    job.wait_state("paused")
    until(lambda: "resuming" in subprocess.run(
        [CUDAW, "resume", "--no-wait", str(job.pid)], capture_output=True, text=True, check=False,
        env=base_environment()).stdout, 10, "the record is free")
    job.until(lambda: not job.status(), 30, "it runs")
    ends_well(job)


def wrong_targets():
    job = native()
    under = Job("counter", "--mib", 64, "--steps", 100000, "--step-ms", 10)
    under.wait_steps(3)
    for args, code, text in (
            (["--driver", under.pid], 6, f"'cudaw pause {under.pid}'"),
            (["--driver", os.getpid()], 3, "does not use CUDA"),
            (["--driver", 2 ** 22 + 1], 3, "there is no process"),
            (["--driver", "train"], 2, "expected a PID, not a name"),
            (["--driver", "--all"], 2, "--all"),
            (["--driver", "--release", "memory", job.pid], 2, "--release memory")):
        has(command("pause", *args, code=code), text)
    command("resume", "--driver", job.pid, code=2)
    for args, text in ((("resume", "--need", "1G", under.pid), "--need is for processes that"),
                       (("resume", "--need", "1X", job.pid), "--need takes a number of bytes"),
                       (("resume", "--need", "1G", "--all"), "--need takes no --all"),
                       (("pause", "--driver", "--need", "1G", job.pid), "an option of resume only")):
        has(command(*args, code=2), text)
    has(command("pause", "--driver", job.pid, code=6), f"process {under.pid} "
        "(both are in one process group)", "it runs on")
    under.pause()
    equal(under.status()["by_driver"], False, "whether the driver paused the cudaw job")
    under.resume()
    ends_well(under)
    job.send(signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 10, "the job is stopped")
    for verb in ("pause", "--driver"), ("resume",):
        has(command(*verb, job.pid, code=1), "it is stopped")
    job.send(signal.SIGCONT)
    has(command("pause", "--driver", job.pid, code=6, CUDAW_REAL_LIBCUDA="/nowhere"),
        "there is no driver")
    is_running(job)
    ends_well(job)


# A process that loads the driver, with what it is given, and says so.
CUDA_USER = """
import ctypes, mmap, os, socket, subprocess, sys
lib = ctypes.CDLL(os.environ["CUDAW_REAL_LIBCUDA"])
assert lib.cuInit(0) == 0
kind, value = sys.argv[1:]
if kind == "map":
    shared = mmap.mmap(os.open(value, os.O_RDWR), 4096)
elif kind == "connect":
    end = socket.create_connection(("localhost", int(value)))
elif kind == "accept":
    end, _ = socket.socket(fileno=int(value)).accept()
elif kind == "spawn":
    child = subprocess.Popen([sys.executable, *sys.orig_argv[1:3], "none", ""], stdout=-1,
                             start_new_session=True)
    child.stdout.readline()
elif kind == "fork" and os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


class User:
    """A process that uses CUDA natively, in a process group of its own."""

    def __init__(self, kind="none", value="", fds=()):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CUDA_USER, kind, str(value)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, pass_fds=fds, start_new_session=True,
            env={**base_environment(), "CUDAW_SIM_SHARED": ""})
        self.pid = self.process.pid

    def ready(self):
        equal(self.process.stdout.readline(), b"ready\n", "what the process says")

    def end(self):
        self.process.stdin.close()
        self.process.wait(60 * PATIENCE)


def refused_with_a_peer(how, *users):
    for user in users:
        user.ready()
    for user, other in (users, users[::-1]):
        has(command("pause", "--driver", "--no-wait", user.pid, code=6), f"process {other.pid} ({how}")
    equal(records(), [], "the records that are left")
    for user in users:
        user.end()


def processes_that_may_share_gpu_memory():
    users = User(), User()
    for user in users:
        user.ready()
        command("pause", "--driver", user.pid)
    for user in users:
        command("resume", user.pid)
        user.end()
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(4096)
        refused_with_a_peer(f"both write to {file.name})", User("map", file.name),
                            User("map", file.name))
    listener = socket.create_server(("localhost", 0))
    server = User("accept", listener.fileno(), [listener.fileno()])
    client = User("connect", listener.getsockname()[1])
    refused_with_a_peer("a socket connects both)", server, client)
    parent = User("spawn")
    parent.ready()
    has(command("pause", "--driver", parent.pid, code=6), "(it is a descendant)")
    parent.end()
    # As a data loader: it has the parent's mappings, and no CUDA.
    parent = User("fork")
    parent.ready()
    command("pause", "--driver", parent.pid)
    command("resume", parent.pid)
    parent.end()


main(pause_and_resume, unsanitized(json_and_dry_run), a_snapshot_is_refused, another_tool_paused_it,
     a_command_was_killed_after_the_lock, each_step_fails, a_long_kernel,
     a_resume_waits_for_gpu_memory, what_another_tool_paused_needs_is_guessed, memory_in_parts(False), memory_in_parts(True), too_little_host_memory,
     a_resume_takes_turns_with_jobs, an_interrupted_command_brings_it_to_the_end, wrong_targets,
     unsanitized(processes_that_may_share_gpu_memory),
     # NVML does not know the simulated GPU; and its processes all write to one file.
     *shared("driver_pause.py", MIB=64, leave_out=("a_resume_waits_for_free_memory",
                                                   "strangers_on_one_gpu")))
