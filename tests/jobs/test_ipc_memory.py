#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of memory that another process shares by a legacy IPC handle, on the simulated driver."""
from simlib import SIM_DIR, shared, unsanitized
from gpulib import base_environment, main


def environment():
    """For a native run, too: the loader finds the simulated driver."""
    return {**base_environment(), "CUDAW_SIM_DEVICES": "2", "LD_LIBRARY_PATH": SIM_DIR}


main(*[(name, unsanitized(case)) for name, case in shared("ipc_memory.py", gpu_count=lambda: 2,
                                                          base_environment=environment)])
