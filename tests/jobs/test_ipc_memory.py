#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of memory that another process shares by a legacy IPC handle, on the simulated driver."""
from simlib import SIM_DIR, shared, unsanitized
from gpulib import Job, base_environment, check, equal, main


def environment():
    """For a native run, too: the loader finds the simulated driver."""
    return {**base_environment(), "CUDAW_SIM_DEVICES": "2", "LD_LIBRARY_PATH": SIM_DIR}


def translated_memory_is_refused_by_name():
    job = Job("ipc_memory", "large", env={"CUDAW_ADDRESSING": "translated"})
    equal(job.wait_end(), 1, "the exit status of the program")
    check("as its addresses are translated" in job.stderr(), f"cudaw says {job.stderr()!r}")


main(translated_memory_is_refused_by_name,
     *[(name, unsanitized(case))
       for name, case in shared("ipc_memory.py", gpu_count=lambda: 2, base_environment=environment)])
