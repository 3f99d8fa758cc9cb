#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of memory that another process shares by a legacy IPC handle, on the simulated driver."""
from simlib import SIM_DIR, counted, shared, unsanitized
from gpulib import Job, base_environment, check, equal, main


def environment():
    """For a native run, too: the loader finds the simulated driver."""
    return {**base_environment(), "CUDAW_SIM_DEVICES": "2", "LD_LIBRARY_PATH": SIM_DIR}


def translated_memory_is_refused_by_name():
    job = Job("ipc_memory", "large", env={"CUDAW_ADDRESSING": "translated"})
    equal(job.wait_end(), 1, "the exit status of the program")
    check("as its addresses are translated" in job.stderr(), f"cudaw says {job.stderr()!r}")


def memory_that_is_kept_is_given_back_for_it():
    """The last of these calls is one of those that open the memory."""
    _, made = counted("ipc_memory", "kept")
    for call in "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess":
        job = Job("ipc_memory", "kept", env={"CUDAW_SIM_FAULT": f"{call}:{made[call]}:2"})
        equal(job.result(), "opening: CUDA_SUCCESS", f"the answer after {call} has found no memory")


main(translated_memory_is_refused_by_name, memory_that_is_kept_is_given_back_for_it,
     *[(name, unsanitized(case))
       for name, case in shared("ipc_memory.py", gpu_count=lambda: 2, base_environment=environment)])
