#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are killed while a snapshot is made of them: it is the one before, or none."""
import os
import signal
import time

from simlib import not_by_tsan
from gpulib import check, cudaw_ok, equal, main
from restorelib import Counting, Snapshot, folder
from snapshotjobs import contents


def kill(job):
    os.kill(job.pid, signal.SIGKILL)


@not_by_tsan
def one_that_is_killed_while_criu_works():
    """Whether that fails then, or waits for ever; and is asked to end, which waits for the end."""
    for older in (True, False):
        for fails in (True, False):
            path = folder()
            job = Counting()
            if older:
                cudaw_ok("snapshot", "--gpu-only", job.pid, path)
            before = contents(path)
            snapshot = Snapshot(job, path=path).in_criu()
            kill(job)
            snapshot.process.send_signal(signal.SIGTERM)
            if fails:
                snapshot.let_criu_go(1)
            begin = time.monotonic()
            equal(snapshot.end(1), f"cudaw: snapshot {job.pid}: it has ended\n", "what is said")
            check(time.monotonic() - begin < 20, "it waited for CRIU")
            equal(contents(path), before, "what is in the folder")
            if older:
                cudaw_ok("verify", path)


if __name__ == "__main__":
    main(one_that_is_killed_while_criu_works)
