#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of memory that another process shares by a legacy IPC handle, on the simulated driver."""
import os
import subprocess

from simlib import SIM_DIR, shared, unsanitized
from gpulib import BUILD, CUDAW, base_environment, check, main


def environment():
    """For a native run, too: the loader finds the simulated driver."""
    return {**base_environment(), "CUDAW_SIM_DEVICES": "2", "LD_LIBRARY_PATH": SIM_DIR}


def translated_memory_is_refused_by_name():
    program = os.path.join(BUILD, "tests", "programs", "ipc_memory")
    done = subprocess.run([CUDAW, "run", "--", program, "large"], capture_output=True, text=True,
                          env={**base_environment(), "CUDAW_ADDRESSING": "translated"}, timeout=120)
    check("as its addresses are translated" in done.stderr, f"cudaw says {done.stderr!r}")


main(translated_memory_is_refused_by_name,
     *[(name, unsanitized(case))
       for name, case in shared("ipc_memory.py", gpu_count=lambda: 2, base_environment=environment)])
