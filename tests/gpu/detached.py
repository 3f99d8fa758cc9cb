# SPDX-License-Identifier: Apache-2.0
"""Jobs that outlive their first process: without pipes to us, and with a log file."""
import atexit
import json
import os
import signal
import subprocess
import tempfile

import gpulib
from gpulib import SCRATCH, check, cudaw, jobs, until


class Detached:
    """A job in a session of its own, which goes on as another process of the same id."""
    all = []

    def __init__(self, program, *args, log_mode="w", **options):
        """@options are subprocess.Popen's."""
        command, environment = gpulib.job_command(program, args, "run")
        self.log = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "log")
        with open(self.log, log_mode, encoding="utf-8") as log:
            self.process = subprocess.Popen(command, env=environment, **{
                "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log,
                "start_new_session": True, **options})
        self.pid = self.process.pid
        self.program = os.path.basename(command[-1 - len(args)])
        Detached.all.append(self)

    def lines(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()

    def steps(self):
        return sum(line.startswith("step ") for line in self.lines())

    def wait_steps(self, count, timeout=60):
        until(lambda: self.steps() >= count or self.is_gone(), timeout, f"step {count}")
        check(self.steps() >= count, f"{self.program} ended: {self.lines()[-3:]}")

    def state(self):
        return (jobs().get(self.pid) or {}).get("state")

    def is_gone(self):
        """It has ended; its parent may have to wait for it yet (Z), or the kernel has not removed it yet (X)."""
        self.process.poll()
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
                return file.read().rpartition(")")[2].split()[0] in "XZ"
        except (FileNotFoundError, ProcessLookupError):
            return True

    def wait_end(self, timeout=120):
        until(self.is_gone, timeout, f"{self.program} ends")
        return self.lines()

    def command_line(self):
        with open(f"/proc/{self.pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace")


@atexit.register
def end_detached():
    """What a case that failed left behind; the id may be another process's by now."""
    for job in Detached.all:
        try:
            if job.program in job.command_line():
                os.kill(job.pid, signal.SIGKILL)
        except OSError:
            pass


def why_no_criu():
    """Why cudaw cannot use the CRIU of this machine; nothing if it can."""
    checks = json.loads(cudaw("doctor", "--json").stdout)["checks"]
    found = [check for check in checks if check["check"] == "CRIU"][0]
    # That it may not take jobs of other users is no harm: these are the caller's.
    usable = found["value"] not in ("absent", "unsuitable") and "CAP_NET_ADMIN" not in (found["because"] or "")
    return "" if usable else found["because"]
