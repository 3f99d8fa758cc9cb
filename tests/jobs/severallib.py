# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of snapshots of jobs of which several processes use CUDA."""
import contextlib
import glob
import json
import os
import re
import signal
import subprocess
import tempfile
import types

from restorelib import directory, nvml, refused, stands_in
from detached import Detached
from simlib import SCRATCH
from gpulib import CUDAW, Skip, base_environment, check, cudaw_ok, equal, is_pending, jobs, until
from json_docs import check_documented
import proclib


def state(pid):
    """As in ps(1); a process that was told to stop, and has not yet run since, is stopped."""
    try:
        stops = is_pending(pid, signal.SIGSTOP)
    except OSError:
        stops = False
    found = proclib.state(pid)
    return "T" if stops and found not in "XZ" else found


class Several(Detached):
    """A job; @engines are its processes that use CUDA, @pids are all."""
    END = ""

    def found(self, engines):
        self.engines = sorted(engines)
        self.in_command = types.SimpleNamespace(pid=self.engines[0])
        self.pids = sorted([self.pid, *proclib.descendants(self.pid)])
        # One that has only initialised CUDA may run for a while before it can be asked.
        until(lambda: self.cuda_states() == {"running"}, 60, "all that use CUDA can be asked")
        self.id = jobs()[self.engines[0]]["id"]

    def cuda_states(self):
        return {jobs().get(pid, {}).get("state") for pid in self.engines}

    def states(self):
        """Of its processes, as in ps(1); without those that are gone, or that nobody has waited for."""
        self.process.poll()
        return "".join(sorted({state(pid) for pid in self.pids} - {"X", "Z"}))

    def goes_on(self):
        until(lambda: self.cuda_states() == {"running"}, 60, "all run")
        equal("T" in self.states(), False, "whether one of its processes is stopped")
        self.wait_steps(self.steps() + 3)

    def all_steps(self):
        return [int(line.split()[1]) for line in self.lines() if line.startswith("step ")]

    def finish(self, back=0):
        """It was rolled back so often."""
        os.kill(self.pid, signal.SIGINT)
        equal(self.wait_end(60)[-1], self.END, "the last line")
        steps = self.all_steps()
        equal(sum(step != before + 1 for before, step in zip(steps, steps[1:])), back, "how often the steps go back")

    def kill(self):
        for pid in self.pids:
            proclib.send(pid, "KILL")
        until(lambda: not self.states(), 20, "it is gone")


class Sharing(Several):
    """Ranks that share GPU memory, and change each other's."""
    END = "sharing: every word right"

    def __init__(self, *options, ranks=2):
        super().__init__("sharing", "--ranks", ranks, "--objects", 2, "--mib", 2, "--steps", 1000000, "--step-ms", 10,
                         *options, log_mode="a")
        self.wait_steps(3)
        self.found([self.pid, *proclib.descendants(self.pid)])
        equal(len(self.engines), ranks, "the ranks")


class Server(Several):
    """A process without CUDA that several engines serve by TCP, and a client of it."""
    END = "server_job: every answer right"

    def __init__(self, *options, engines=2):
        super().__init__("server_job.py", "--engines", engines, *options, log_mode="a")
        self.wait_steps(3)
        self.found([int(line.split()[1]) for line in self.lines() if line.startswith("engine ")] +
                   [self.pid] * ("--inits" in options))


@contextlib.contextmanager
def watching():
    """The options of a server whose client uses NVML, and what gives the files of GPUs that a job has open."""
    device = f"/dev/nvidia-of-test-{os.getpid()}"
    added = {"CUDAW_SIM_REMOTE": tempfile.mkdtemp(dir=SCRATCH), "CUDAW_SIM_DEVICES": "2", **nvml(COUNT=2)}
    library = os.path.join(added["LD_LIBRARY_PATH"], "libnvidia-ml.so.1")
    try:
        with open(device, "w", encoding="ascii"):
            os.environ.update(added)
    except OSError as error:
        raise Skip(f"{device} cannot be made: {error.strerror}") from error

    def left(job):
        return [path for pid in job.pids for path in proclib.descriptors(pid).values() if path == device]
    try:
        yield ("--watches", library, device), left
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(device)
        for name in added:
            del os.environ[name]


def watchers_of(job, count):
    """The children of the client that use NVML, once they do."""
    def found():
        return [int(line.split()[1]) for line in job.lines() if line.startswith("watcher ")]
    until(lambda: len(found()) == count, 30, "they use NVML")
    return sorted(found())


@contextlib.contextmanager
def held_before_its_lock(job, pid, *options, path=None, fails=""):
    """A snapshot under way, the child of which waits to lock @pid; it has those that are older. It succeeds, or says why not."""
    hold = f"{os.environ['CUDAW_SIM_REMOTE']}/{pid}.held"
    os.mkfifo(hold)
    command = subprocess.Popen([CUDAW, "snapshot", *options, job.id, path or directory()], env=base_environment(),
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open(hold, "w", encoding="ascii"):     # opened by both
        os.unlink(hold)
        yield command
    said, errors = command.communicate(timeout=120)
    equal(command.returncode, 1 if fails else 0, f"the exit code of the snapshot ({said} {errors})")
    check(fails in errors, errors)


def taken(job, *options, path=None):
    path = path or directory()
    resumes = "--stop" not in options and "paused" not in job.cuda_states()
    said = json.loads(cudaw_ok("snapshot", "--json", *options, job.id, path))
    equal((said["processes"], said["pid"]), (len(job.pids), job.engines[0]), "the processes, and the first that uses CUDA")
    check_documented("snapshot", said, every=resumes)
    further = {one["pid"]: one for one in said["further"]}
    equal(sorted(further), job.engines[1:], "the further ones")
    for pid, one in further.items():
        check({"write", "release"} <= {phase["name"] for phase in one["phases"]}, f"the phases of {pid}: {one['phases']}")
        equal(bool(one["resume"]), bool(said["resume"]), f"whether there are phases of the resume of {pid}")
    parts = [int(os.path.basename(part)) for part in glob.glob(f"{path}/parts-*/*")]
    equal(sorted(parts), job.engines[1:], "the parts")
    cudaw_ok("verify", path)
    amount, unit = re.search(r"^memory +([\d.]+) (\w+) of the GPUs", cudaw_ok("inspect", path), re.MULTILINE).groups()
    memory = float(amount) * 1024 ** ("B", "KiB", "MiB").index(unit)
    check(abs(memory / said["totals"]["bytes"] - 1) < 0.1, f"inspect says {amount} {unit} of memory, not that of all parts")
    return path


def stopped_and_restored(job, *options, taking=(), path=None):
    path = taken(job, "--stop", *taking, path=path)
    equal(job.states(), "", "what runs of it")
    if stands_in():
        check("no real CRIU" in refused("restore", *options, path), "something does not fit")
        return
    said = json.loads(cudaw_ok("restore", "--json", *options, path))
    check_documented("restore", said)
    equal(sorted(one["pid"] for one in said["further"] if one["phases"]), job.engines[1:], "the resumes of the others")
    job.goes_on()


def rolled_back(job):
    """It runs on after a snapshot, is killed, and goes on from there. Returns the directory."""
    path = taken(job)
    job.goes_on()
    job.kill()
    cudaw_ok("restore", path)
    job.goes_on()
    return path
