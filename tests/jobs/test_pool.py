#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a pause puts the memory, on the simulated driver; and a copy that loses data in silence."""
import resource

from simlib import paused_and_resumed, shared, unsanitized
from gpulib import Job, check, cudaw, equal, main, proc_status


def lost_data_is_found():
    """The third copy to the GPU does nothing and says that it did."""
    job = Job("hold", env={"CUDAW_VERIFY": "1", "CUDAW_SIM_FAULT": "cuMemcpyHtoDAsync_v2:3:0"})
    job.wait_line("holding")
    job.pause()
    done = cudaw("resume", job.pid)
    equal(done.returncode, 1, f"the exit code of cudaw resume ({done.stderr.strip()})")
    check("came back different" in done.stderr, f"stderr does not say why: {done.stderr!r}")
    equal(job.state(), "failed", "the state after it")
    job.resume()
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


def what_stays_pinned_is_kept():
    """The driver may still copy to it: its addresses are not used again, as what is not pinned."""
    faults = ",".join(f"cuMemHostUnregister:{nth}:999" for nth in range(1, 9))
    job = Job("hold", env={"CUDAW_LOG": "warn", "CUDAW_SIM_FAULT": faults})
    job.wait_line("holding")
    paused_and_resumed(job, 3)
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")
    check("is kept" in job.stderr(), f"nothing stayed pinned: {job.stderr()}")
    check("no pinned memory" not in job.stderr(), f"an address was used again: {job.stderr()}")


def no_addresses_for_buffers():
    """What host memory holds gets back to the GPU all the same."""
    job = Job("hold")
    job.wait_line("holding")
    for _ in range(2):
        job.pause()
        size = int(proc_status(job.pid)["VmSize"].split()[0]) << 10
        saved = resource.prlimit(job.pid, resource.RLIMIT_AS)
        resource.prlimit(job.pid, resource.RLIMIT_AS, (size, saved[1]))
        job.resume()
        resource.prlimit(job.pid, resource.RLIMIT_AS, saved)
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


GROUPS = ("what_memory_does_not_hold_goes_to_disk", "a_pause_that_fits_is_not_killed",
          "a_full_disk_is_said")

# TSan runs with CUDAW_RELEASE=memory, which pins.
main(lost_data_is_found, what_stays_pinned_is_kept, unsanitized(no_addresses_for_buffers),
     *shared("pool.py", ZEROS_MIB=1200, sanitizers_leave_out=GROUPS))
