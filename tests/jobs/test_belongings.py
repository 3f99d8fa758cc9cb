#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the processes of a job have, of each kind that CRIU carries: it is there after a restore, and can be used."""
import os
import signal
import tempfile

from restorelib import directory, need_criu
from simlib import SCRATCH
from detached import Detached
from gpulib import check, cudaw_ok, equal, main


def they_stay_and_come_back():
    """In a job that runs on after a snapshot, that is restored, and that is so once more."""
    need_criu()
    os.environ["TMPDIR"] = tempfile.mkdtemp(dir=SCRATCH)
    job = Detached("belongings.py", log_mode="a")
    job.wait_steps(3)
    for options in ([], ["--stop"], ["--stop"]):
        path = directory()
        cudaw_ok("snapshot", *options, job.pid, path)
        if options:
            check(job.is_gone(), "the job is still there")
            cudaw_ok("restore", path)
        job.wait_steps(job.steps() + 3)
    os.kill(job.pid, signal.SIGINT)
    said = [line for line in job.wait_end(60) if not line.startswith("step ")]
    equal(said, ["belongings: every one kept"], "what it says")


main(they_stay_and_come_back)
