# SPDX-License-Identifier: Apache-2.0
"""Shared by the GPU tests: starting jobs natively and under cudaw, and watching them.

CUDAW_REAL_LIBCUDA may name another driver than the machine's, for native runs too: most of the tests
also run on a simulated GPU. Every test has a runtime directory of its own, so it sees no other jobs,
and ends the jobs that a case leaves behind.
"""
import atexit
import contextlib
import fcntl
import glob
import importlib.util
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import termios
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import (BUILD, CUDAW, PATIENCE, SKIP_STATUS, TESTS, Failure, Skip,  # noqa: E402, F401
                     after_case, answered, check, equal, faces, figure, judge_end, main, note_end,
                     scratch, seeded, until)
from proclib import descendants, is_zombie, send, with_environment  # noqa: E402

SOURCES = os.path.join(TESTS, "programs")
SCRATCH = scratch(0o700)
RUNTIME_DIR = os.path.join(SCRATCH, "run")

# The library that a program needs beside the driver, or the Python package.
NEEDS = {
    "dynamic_rt": "libcudart.so.13",
    "runtime12": "libcudart.so.12",
    "cublas_gemm": "libcublas.so.13",
    "cublas_batched": "libcublas.so.13",
    "cufft_run": "libcufft.so.12",
    "nvjpeg": "libnvjpeg.so.13",
    "train.py": "torch",
    "finetune.py": "torch",
    "large_train.py": "torch",
    "cupy_run.py": "cupy",
    "jax_run.py": "jax",
    "two_gpus.py": "torch",
    "nccl_ranks.py": "torch",
    "nccl_watchdog.py": "torch",
    "nccl_training.py": "torch",
    "nccl_reduce.py": "torch",
    "torch_queue.py": "torch",
    "ucx.py": "libucx",
    "ucx_ranks.py": "libucx",
}
GPUS_NEEDED = {"two_gpus.py": 2, "nccl_ranks.py": 2, "nccl_training.py": 2, "nccl_reduce.py": 2,
               "across": 2}
MODES = {"native": "natively", "run": "cudaw run", "path": "LD_LIBRARY_PATH alone"}


def library_dir(name):
    """Where CUDA's library @name is: in the build, in a toolkit, or in a Python package."""
    sites = dict.fromkeys([sysconfig.get_path("purelib"), *filter(None, sys.path)])
    dirs = [os.path.join(BUILD, "tests", "libs"), "/usr/local/cuda/lib64"]
    for site in sites:
        dirs += sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))
    for directory in dirs:
        if os.path.exists(os.path.join(directory, name)):
            return directory
    raise Skip(f"no {name} on this machine")


def visible_gpus():
    """The GPUs that programs see, as nvidia-smi counts them; empty: all of them."""
    return list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))


def gpu_count():
    if visible_gpus():
        return len(visible_gpus())
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return done.stdout.count("GPU ")


def base_environment():
    env = {**os.environ, "CUDAW_RUNTIME_DIR": RUNTIME_DIR,
           "TORCHINDUCTOR_CACHE_DIR": os.path.join(SCRATCH, "inductor"),
           "TRITON_CACHE_DIR": os.path.join(SCRATCH, "triton")}
    env.pop("LD_PRELOAD", None)
    return env


def shares_gpu(program):
    """True if all its ranks share a GPU (tests/programs/nccl_rank.py)."""
    return program.startswith("nccl_") and "TEST_NCCL" in os.environ


def ranks_asked(program, args):
    """How many ranks @args ask for, of a program that gives each a GPU."""
    args = [str(arg) for arg in args]
    return int(args[args.index("--ranks") + 1]) if program.startswith("nccl_") and "--ranks" in args else 0


class Training:
    """A job of ranks that train with NCCL until they are told to end."""
    def __init__(self, *arguments, **options):
        self.arguments = arguments
        self.file = os.path.join(scratch(0o700), "end")
        self.job = Job(*arguments, "--steps", 1000000, "--end", self.file, **options)

    def end_as_natively(self, what):
        """End the job; fail if a loss is not that of a native run of as many steps."""
        with open(self.file, "w", encoding="ascii"):
            pass
        found = self.job.result()
        steps = sum(line.startswith("step ") for line in found.splitlines())
        same_lines(found, Job(*self.arguments, "--steps", steps, mode="native").result(600), what)


def job_command(program, args, mode, name=None):
    """The command line and the environment that start @program in one of MODES."""
    need = NEEDS.get(program, "")
    gpus = 0 if shares_gpu(program) else max(GPUS_NEEDED.get(program, 0), ranks_asked(program, args))
    if gpus and gpu_count() < gpus:
        raise Skip(f"{gpus} GPUs needed, {gpu_count()} here")
    env = base_environment()
    paths = [faces()] if mode == "path" else []
    if mode == "native" and env.get("CUDAW_REAL_LIBCUDA"):
        paths.append(os.path.dirname(env["CUDAW_REAL_LIBCUDA"]))
    if ".so." in need:
        paths.append(library_dir(need))
    elif need and importlib.util.find_spec(need) is None:
        raise Skip(f"no Python package {need} on this machine")
    if env.get("LD_LIBRARY_PATH"):
        paths.append(env["LD_LIBRARY_PATH"])
    if paths:
        env["LD_LIBRARY_PATH"] = ":".join(paths)
    if program.endswith(".py"):
        command = [sys.executable, os.path.join(SOURCES, program)]
    elif "/" in program:
        command = [program]
    else:
        command = [os.path.join(BUILD, "tests", "programs", program)]
        check(os.path.exists(command[0]), f"{command[0]} was not built")
    if mode == "run":
        command = [CUDAW, "run"] + (["--name", name] if name else []) + ["--"] + command
    return command + [str(arg) for arg in args], env


def cudaw(*args, timeout=60, **options):
    """Run the command; returns what subprocess.run() does, stdout and stderr as text."""
    done = subprocess.run([CUDAW] + [str(arg) for arg in args], capture_output=True, text=True,
                          timeout=timeout * PATIENCE, env=base_environment(), **options)
    judge_end(f"cudaw {args[0]}", done.returncode)
    return done


def cudaw_ok(*args, **options):
    done = cudaw(*args, **options)
    equal(done.returncode, 0, f"the exit code of cudaw {args} ({done.stderr.strip()})")
    return done.stdout


def proc_status(pid):
    """/proc/PID/status, by its keys; of a thread, too."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return {key: value.strip() for key, value in (line.split(":", 1) for line in file)}


def is_pending(pid, sig):
    """It was sent to the process, and no thread has taken it."""
    return bool(int(proc_status(pid)["ShdPnd"], 16) >> (sig - 1) & 1)


def is_blocked(thread, sig):
    """The signal does not reach the thread now, as while its own handler runs there; no if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return bool(int(proc_status(thread)["SigBlk"], 16) >> (sig - 1) & 1)
    return False


def jobs():
    """What `cudaw ps` says of the processes that use CUDA, by process."""
    rows = answered(lambda: [row for row in json.loads(cudaw_ok("ps", "--json"))
                             if row["state"] != "starting"])
    return {row["pid"]: row for row in rows}


def ask(job, request, *fds, limit=30):
    """The lines of the job's answer to a request of the protocol, with which descriptors come."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(limit)
        client.connect(os.path.join(RUNTIME_DIR, f"{job.pid}.sock"))
        socket.send_fds(client, [request.encode() + b"\n"], fds)
        text = b""
        while chunk := client.recv(65536):
            text += chunk
    return text.decode(errors="replace").splitlines()


def told(job, key):
    """A value of the job's status; None where it is absent."""
    values = [line.split(" ", 1)[1] for line in ask(job, "status") if line.startswith(key + " ")]
    return values[0] if values else None


class Job:
    """A running program. Its stdout is read line by line as it comes. A test program that has made
    all its steps waits for the end of stdin, which wait_end() brings.
    """
    alive = []
    numbers = itertools.count(1)

    def __init__(self, program, *args, mode="run", name=None, env=None, **options):
        """@options are subprocess.Popen()'s."""
        command, environment = job_command(program, args, mode, name)
        self.mark = f"TEST_JOB={os.getpid()}.{next(self.numbers)}"
        self.program = program
        self.lines = []
        self.said = ""      # by cudaw pause
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, text=True, bufsize=1,
                                        env={**environment, "STEP_LINGER": "1", **(env or {}),
                                             "TEST_JOB": self.mark.partition("=")[2]},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, **options)
        self.pid = self.process.pid     # cudaw run becomes the program, so this is the job
        self.reading = threading.Lock()     # held from the pipe to @lines
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.alive.append(self)

    def read(self):
        fd, chunk, rest = self.process.stdout.fileno(), True, b""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while chunk:
            poll.poll()
            with self.reading:
                chunk = os.read(fd, 1 << 16)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self.take(line.decode(errors="replace"))
        if rest:
            self.take(rest.decode(errors="replace"))

    def take(self, line):
        self.lines.append(line)

    def is_read(self):
        """All that it has printed by now is in @lines."""
        with self.reading:
            return not any(fcntl.ioctl(self.process.stdout, termios.FIONREAD, bytes(4)))

    def stderr(self):
        # The job writes at the offset of this same open file: a seek would have it write over what it said.
        fd = self.errors.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    def ended(self):
        return self.process.poll() is not None

    def until(self, condition, timeout, what):
        """until(), but fail at once when the job ends."""
        def watched():
            value = condition()
            if not value and self.ended():
                self.skip_if_it_did()
                judge_end(self.program, self.process.returncode)
                value = condition()     # it may have come true just before the end
            check(value or not self.ended(),
                  f"{self.program} ended with {self.process.returncode} before: {what}")
            return value
        return until(watched, timeout, what)

    def steps(self):
        return sum(line.startswith("step ") for line in self.lines)

    def wait_steps(self, count, timeout=60):
        self.until(lambda: self.steps() >= count, timeout, f"{self.program}: step {count}")

    def wait_line(self, text, timeout=60):
        self.until(lambda: text in self.lines, timeout, f"{self.program}: '{text}'")

    def status(self):
        """Its row of `cudaw ps --json`, or None."""
        return jobs().get(self.pid)

    def state(self):
        """As `cudaw ps` has it, by the job's own word, which takes much less time; by that if it does not answer."""
        try:
            said = dict(line.partition(" ")[::2] for line in ask(self, "status", limit=1))
        except OSError:
            said = {}
        if "state" not in said:
            return (self.status() or {}).get("state")
        return "waiting" if said["state"] == "running" and "waits" in said else said["state"]

    def wait_state(self, state, timeout=30):
        """`cudaw ps` must say so, too, so the state must last until it has looked."""
        self.until(lambda: self.state() == state and (self.status() or {}).get("state") == state, timeout,
                   f"{self.program} is {state}")

    def send(self, sig):
        self.process.send_signal(sig)

    def pause(self, by="command"):
        if by == "command":
            self.said += cudaw_ok("pause", self.pid)
            equal(self.status()["state"], "paused", "the state in cudaw ps after cudaw pause")
        else:
            self.send(signal.SIGUSR1)
            self.wait_state("paused")

    def resume(self, by="command"):
        if by == "command":
            cudaw_ok("resume", self.pid)
            equal(self.status()["state"], "running", "the state in cudaw ps after cudaw resume")
        else:
            self.send(signal.SIGUSR2)
            self.wait_state("running")

    def tell(self):
        """Give it the line on stdin that it waits for."""
        self.process.stdin.write("\n")

    def make_steps(self, count):
        """Of a job with --each-line 1: it rests between two steps then."""
        wanted = self.steps() + count
        self.process.stdin.write("\n" * count)
        self.wait_steps(wanted)

    def check_still(self, seconds=0.2, spare=1):
        """It makes no step, once what it printed before has come. One is let pass: its GPU work may
        have been done before the pause.
        """
        for _ in range(50 * PATIENCE):
            before = self.steps()
            time.sleep(0.03)
            if self.is_read() and self.steps() == before:
                break
        time.sleep(seconds)
        until(self.is_read, 10, "what it has printed is read")
        check(self.steps() <= before + spare, f"{self.program} goes on while it is paused")

    def wait_end(self, timeout=60):
        """Returns its exit status, as subprocess counts it."""
        timeout *= PATIENCE
        self.process.stdin.close()
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.program} did not end within {timeout} s") from None
        self.reader.join(5 * PATIENCE)
        return status

    def skip_if_it_did(self):
        """An ended program that says "skip: WHY" skips the case."""
        if self.wait_end() == SKIP_STATUS:
            raise Skip(self.lines[-1].partition("skip: ")[2] if self.lines else "")

    def result(self, timeout=120):
        """Wait until it ends well; returns its output."""
        self.wait_end(timeout)
        self.skip_if_it_did()
        judge_end(self.program, self.process.returncode)
        equal(self.process.returncode, 0, f"the exit status of {self.program}")
        self.alive.remove(self)
        return "\n".join(self.lines)

    def finish(self, timeout=60):
        """Tell it to verify what it has and end."""
        self.send(signal.SIGINT)
        return self.result(timeout)

    def discard(self):
        """End it however it is, and all that it has started: its ranks outlive the first of them. On stderr it
        may have said why a case failed."""
        below, killed = descendants(self.pid), set()

        def have_ended():
            """One that is killed may just have started another one."""
            new = {*below, *with_environment(self.mark)} - killed
            for pid in new:
                send(pid, "KILL")
            killed.update(new)
            return not new and all(map(is_zombie, killed))

        if not self.ended():
            self.process.kill()
        self.process.wait()
        until(have_ended, 10, f"{self.program} and all that it has started have ended")
        self.alive.remove(self)
        return self.stderr()


@atexit.register
def discard_jobs(good=True):
    """End the jobs that are left; after a case that failed, show what they said."""
    for job in list(Job.alive):
        if not good and job.ended():
            note_end(job.process.returncode)
        said = job.discard()
        if not good:
            print(f"# {job.program} printed {job.lines[-5:]}, and on stderr:")
            print("".join(f"#   {line}\n" for line in said.splitlines()[-10:]), end="")


after_case.append(discard_jobs)


def smi(query, gpu=0):
    """The rows that nvidia-smi answers of a GPU that a program sees as @gpu, as lists of words."""
    if not shutil.which("nvidia-smi"):
        raise Skip("no nvidia-smi on this machine")
    number = visible_gpus()[gpu] if visible_gpus() else gpu
    done = subprocess.run(["nvidia-smi", f"--id={number}", f"--query-{query}",
                           "--format=csv,noheader,nounits"], capture_output=True, text=True,
                          timeout=30 * PATIENCE)
    equal(done.returncode, 0, "the exit status of nvidia-smi")
    return [[word.strip() for word in row.split(",")] for row in done.stdout.splitlines()]


def gpu_used(gpu=0):
    """MiB in use on the GPU."""
    return int(smi("gpu=memory.used", gpu)[0][0])


def process_used(pid):
    """MiB that nvidia-smi shows for the process, or None where it shows no such process."""
    rows = dict(row[:2] for row in smi("compute-apps=pid,used_memory"))
    used = rows.get(str(pid))
    return int(used) if used is not None and used.isdigit() else None


def idle_gpu_used(limit_mib=1024):
    """gpu_used() once what ended before is gone. Skips where somebody else uses the GPU."""
    last = [gpu_used()]

    def settled():
        time.sleep(0.3)
        last.append(gpu_used())
        return last[-1] == last[-2]
    until(settled, 10, "the GPU's memory in use stands still")
    if last[-1] > limit_mib:
        raise Skip(f"the GPU is in use: {last[-1]} MiB")
    return last[-1]


def hog(*args):
    """A process that holds GPU memory, all of it without arguments; returns it and its bytes."""
    job = Job("hog", *args, mode="native")
    job.until(lambda: job.lines, 30, "hog says what it has")
    return job, int(job.lines[0].split()[1])


# Each version's directory of groups, and its files for the limit and for what is used.
CGROUPS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
           ("/sys/fs/cgroup", "memory.max", "memory.current"))


class Group:
    """
    A memory cgroup of @limit bytes for as long as the with statement lasts, in which jobs are put
    into a group of their own where @inner.
    """

    def __init__(self, limit, inner=False):
        self.paths = [self.made(limit)]
        if inner:
            self.paths.append(os.path.join(self.paths[0], "job"))
            os.mkdir(self.paths[1])

    def made(self, limit):
        for directory, limit_file, used_file in CGROUPS:
            path = os.path.join(directory, f"cudaw-test-{os.getpid()}")
            self.limit_file, self.used_file = os.path.join(path, limit_file), os.path.join(path, used_file)
            try:
                os.mkdir(path)
            except OSError:
                continue
            try:
                self.set_limit(limit)
                return path
            except OSError:
                os.rmdir(path)
        raise Skip("no memory cgroup can be made here (it takes root and a writable hierarchy)")

    def set_limit(self, limit):
        with open(self.limit_file, "w", encoding="ascii") as file:
            file.write(str(limit))

    def used(self):
        with open(self.used_file, encoding="ascii") as file:
            return int(file.read())

    def command(self, program, *args):
        """For Job: a program of tests/programs, which is in the group before it begins."""
        return ("/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(self.paths[-1], "cgroup.procs"),
                os.path.join(BUILD, "tests", "programs", program), *args)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        def gone():
            try:
                while self.paths:
                    os.rmdir(self.paths[-1])
                    self.paths.pop()
                return True
            except OSError:
                return False
        for job in list(Job.alive):
            job.discard()
        until(gone, 10, "the memory cgroup is empty")


def pause_at_random(job, count, steps, still=0.2):
    """Pause and resume the job of so many steps at random moments, by signal and by the command in
    turn; returns its row of `cudaw ps` after each resume, None where it had ended.
    """
    rng = seeded()
    rows = []
    # The last fifth of the steps is left free, so that the last pause still finds the job.
    for i, step in enumerate(sorted(rng.sample(range(2, steps * 4 // 5), count))):
        by = ("signal", "command")[i % 2]
        job.wait_steps(step)
        time.sleep(rng.uniform(0, 0.02))
        job.pause(by)
        job.check_still(still)
        job.resume(by)
        rows.append(job.status())
    return rows


def answers(program, *args, under=(), env=None):
    """What a program of questions.h answers: a list of (question, answer), as questions come again."""
    done = subprocess.run([*under, os.path.join(BUILD, "tests", "programs", program), *args],
                          capture_output=True, text=True, timeout=120 * PATIENCE,
                          env=env or base_environment())
    rows = [tuple(line.rsplit(": ", 1)) for line in done.stdout.splitlines()]
    return [*rows, ("how the program ended", str(done.returncode))]


def same_answers(native, wrapped, known=(), sometimes=()):
    """Print both. Questions of @known have to be answered otherwise; those of @sometimes may be."""
    different = {row[0] for row in set(native) ^ set(wrapped)} - set(sometimes)
    for row in native:
        print(f"# natively: {': '.join(row)}")
    for row in wrapped:
        if row not in native:
            print(f"# cudaw:    {': '.join(row)}")
    equal(sorted(different), sorted(known), "what is answered otherwise")


def same_lines(found, native, what):
    """Fail with the first line of output that is not what the native run printed."""
    found, native = found.splitlines(), native.splitlines()
    for number, (mine, other) in enumerate(zip(found, native), 1):
        check(mine == other, f"line {number} {what} is '{mine}', natively '{other}'")
    equal(len(found), len(native), f"the number of lines {what}")
