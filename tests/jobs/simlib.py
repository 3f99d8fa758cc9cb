# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests on the simulated driver. They are GPU tests on a simulated GPU: this module puts
that, and its nvidia-smi, under tests/gpu/gpulib.py, and hands on the cases of the scripts there, so
that a test for both is written once.

SANITIZE in the environment says that everything was built with sanitizers. A library that is
preloaded would come before their runtime, so jobs are then started by LD_LIBRARY_PATH alone, and
programs that were not built so (Python, the shell, nvcc's) are left out: see unsanitized().
"""
import contextlib
import glob
import os
import runpy
import secrets
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import BUILD, TESTS, Failure, Skip, after_case, check, equal, faces  # noqa: E402
import gpulib  # noqa: E402
from gpulib import SCRATCH, cudaw, proc_status  # noqa: E402
from proclib import descriptors, threads_of  # noqa: E402

GPU_TESTS = os.path.join(TESTS, "gpu")
REPOSITORY = os.path.dirname(TESTS)
SIM_DIR = os.path.join(BUILD, "tests", "sim")
SANITIZED = os.environ.get("SANITIZE", "")
MIB = 1 << 20
LEFT_MIB = 64 + 2    # by a release of memory: the context, and the block of its fences

os.environ.setdefault("CUDAW_REAL_LIBCUDA", os.path.join(SIM_DIR, "libcuda.so.1"))
os.environ.setdefault("CUDAW_SIM_SHARED", os.path.join(SCRATCH, "gpu"))
# A call of the program that waits inside the driver during its checkpoint would crash a real one.
os.environ.setdefault("CUDAW_SIM_STRICT", "1")


def simsmi(path):
    """The rows of the simulated nvidia-smi; none before a process uses the simulated GPUs."""
    if not os.path.exists(path):
        return []
    done = subprocess.run([os.path.join(SIM_DIR, "simsmi"), path], capture_output=True, text=True,
                          timeout=60, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def gpus_used(path=os.environ["CUDAW_SIM_SHARED"]):
    """Bytes in use on each simulated GPU."""
    return [int(row[1]) for row in simsmi(path) if row[0] != "pid"]


def knows_gpu():
    """The environment of a process whose NVML knows the simulated GPU."""
    libraries = os.path.join(SCRATCH, "nvml")
    os.makedirs(libraries, exist_ok=True)
    if not os.path.exists(f"{libraries}/libnvidia-ml.so.1"):
        shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    paths = [libraries, faces()] if SANITIZED else [libraries]  # by which such jobs find cudaw
    return {"LD_LIBRARY_PATH": ":".join(paths), "TEST_NVML_FILE": os.environ["CUDAW_SIM_SHARED"]}


def gpu_used():
    return sum(gpus_used()) >> 20


def process_used(pid):
    """MiB in use by the process, or None where it does not use the simulated GPU."""
    rows = [row for row in simsmi(os.environ["CUDAW_SIM_SHARED"]) if row[:2] == ["pid", str(pid)]]
    return int(rows[0][2]) >> 20 if rows else None


gpulib.gpu_used = gpu_used
gpulib.process_used = process_used

if SANITIZED:
    preloading = gpulib.job_command

    def job_command(program, args, mode, name=None):
        command, env = preloading(program, args, "path" if mode == "run" else mode)
        if mode == "run":   # what cudaw run puts into the environment
            # Other tests have jobs at the same time, and a snapshot looks for its job's processes on the whole machine.
            env["CUDAW_JOB"] = f"a{secrets.randbelow(1 << 20):05x}"
            env["CUDAW_NAME"] = name or ""
        return command, env

    gpulib.job_command = job_command

TSAN = SANITIZED == "thread"

with open("/proc/sys/kernel/pid_max", encoding="ascii") as limit:
    PIDS = int(limit.read())    # after the last comes the first again


def by_age(pids, first):
    """Those that were made after @first, or are it, the oldest first."""
    return sorted(pids, key=lambda pid: (pid - first) % PIDS)


def each(count):
    """The numbers of so many calls: all, or with sanitizers, which take long, some from first to last."""
    most = 2 if TSAN else 8 if SANITIZED else count
    return [1 + i * (count - 1) // (most - 1) for i in range(most)] if count > most else range(1, count + 1)


def skipped(case, why):
    def skip():
        raise Skip(why)
    skip.__name__ = case.__name__
    return skip


def unsanitized(case):
    """Mark a case whose programs cannot be built with sanitizers."""
    why = f"its programs are not built with -fsanitize={SANITIZED}"
    return skipped(case, why) if SANITIZED else case


def not_by_tsan(case):
    """Mark a case whose program clones or forks: TSan then stops to see what synchronises it."""
    return skipped(case, "TSan does not follow a clone() or fork()") if TSAN else case


def call_in_handlers():
    """Programs do so. TSan runs handlers late, and reports those that allocate, as the simulated driver does."""
    if TSAN:
        raise Skip("TSan does not let signal handlers call the driver")


def shared(script, *argv, leave_out=(), sanitizers_leave_out=(), tsan_leaves_out=(), **constants):
    """The cases of a script of tests/gpu, with some of its constants made smaller."""
    cases = []
    saved, gpulib.main = gpulib.main, lambda *found: cases.extend(found)
    sys.argv[1:] = [str(arg) for arg in argv]
    try:
        runpy.run_path(os.path.join(GPU_TESTS, script))
    finally:
        gpulib.main = saved
    wanted = []
    for case in cases:
        name, function = case if isinstance(case, tuple) else (case.__name__, case)
        function.__globals__.update(constants)
        if name in sanitizers_leave_out:
            function = unsanitized(function)
        if name in tsan_leaves_out:
            function = not_by_tsan(function)
        if name not in leave_out:
            wanted.append((f"{script}: {name.replace('_', ' ')}", function))
    if len(wanted) != len(cases) - len(leave_out):
        raise Failure(f"{script} has not all of {leave_out}")
    return wanted


def paused_and_resumed(job, times=1, by="command"):
    for _ in range(times):
        job.pause(by)
        job.resume(by)


def waits_for_memory(job):
    """It is paused, and wants to resume; returns who has the GPU's memory."""
    job.pause()
    other, _ = gpulib.hog()
    job.send(signal.SIGUSR2)
    job.wait_state("waiting")
    return other


def ask(job, verb, state, works=lambda: None):
    """Ask for it until it is so, twice at most; returns what was said on the way. A job that runs
    on after a failed pause must pass works()."""
    done = cudaw(verb, job.pid, timeout=30)
    if done.returncode == 0:
        equal(job.state(), state, f"the state after cudaw {verb}")
        return done.stderr + done.stdout
    equal(done.returncode, 1, f"the exit code of cudaw {verb} ({done.stderr.strip()})")
    check(str(job.pid) in done.stderr, f"stderr does not name the job: {done.stderr!r}")
    if job.state() == "running":
        works()
    again = cudaw(verb, job.pid, timeout=30)
    equal(again.returncode, 0, f"the exit code of cudaw {verb} after '{done.stderr.strip()}', "
          f"asked again ({again.stderr.strip()})")
    equal(job.state(), state, f"the state after cudaw {verb}, asked again")
    return done.stderr


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kept_descriptors(pid):
    """What its descriptors are of, by number; of those that stay: a job looks into a file of /proc for a
    moment, by itself too."""
    return {number: link for number, link in descriptors(pid).items() if not link.startswith("/proc/")}


def threads_are(pid, letter):
    """This is the state of all of its threads. Not if one has ended meanwhile: another may have begun."""
    threads = threads_of(pid)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return bool(threads) and all(proc_status(thread)["State"].startswith(letter) for thread in threads)
    return False


def is_stopped(pid):
    """All of its threads are: each stops when it is run next."""
    return threads_are(pid, "T")


def is_quiet(pid):
    """None of its threads has anything to do, as when all that it did has ended, or waits."""
    return threads_are(pid, "S")


def counted(program, *args):
    """What a run to its end prints, and how often it makes each call of the driver, by the call's name."""
    counts = os.path.join(SCRATCH, "counts")
    printed = gpulib.Job(program, *args, env={"CUDAW_SIM_COUNT": counts}).result()
    with open(counts, encoding="ascii") as file:
        return printed, {name: int(times) for name, times in map(str.split, file)}


HOLD = {way: os.path.join(SCRATCH, f"hold-{way}") for way in ("out", "in", "call")}
HELD = {f"CUDAW_SIM_HOLD_{way.upper()}": path for way, path in HOLD.items()}


def hold(way, after=0):
    """The copies off ("out") or onto ("in") the GPU wait, of jobs with HELD in their environment, behind the
    next ones, of which there are @after. "call": so do calls of the function CUDAW_SIM_HELD_CALL."""
    for pid in held_back(way):  # one that looked as an earlier hold ended
        os.unlink(f"{HOLD[way]}.{pid}")
    with open(HOLD[way] + ".new", "w", encoding="ascii") as file:
        file.write("x" * after)
    os.rename(HOLD[way] + ".new", HOLD[way])


def held_back(way):
    """The processes whose copies wait."""
    return {int(path.rpartition(".")[2]) for path in glob.glob(HOLD[way] + ".[0-9]*")}


def passed(way):
    """All copies that a hold lets through have begun."""
    return not os.path.getsize(HOLD[way])


def let_through(way, count=1):
    """So many of the copies that wait."""
    with open(HOLD[way], "a", encoding="ascii") as file:
        file.write("x" * count)


def let_go(way):
    os.unlink(HOLD[way])
    for pid in held_back(way):
        os.unlink(f"{HOLD[way]}.{pid}")


def let_all_go(_good=True):
    for way, path in HOLD.items():
        if os.path.exists(path):
            let_go(way)


after_case.append(let_all_go)


def errors_of_cudaw(job):
    """What our libraries said on the stderr of the job."""
    return [line for line in job.stderr().splitlines() if line.startswith("cudaw[")]
