#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of the driver's answers, on the simulated driver: the cases of which it knows how the
real one answers.
"""
from simlib import SIM_DIR, shared, unsanitized
from gpulib import CUDAW, answers, base_environment, main, same_answers

CASES = ("captured_full", "descriptors", "descriptors_two", "foreign", "free_async", "free_async_busy",
         "full_captured", "green", "host_memory", "host_memory_ends", "host_memory_two", "ipc", "ipc_events",
         "ipc_get", "ipc_wrong", "mappings", "peer_busy", "peer_contexts", "peer_copy",
         "pool_captured_beside", "stack")


def environment():
    """For a native run, too: the loader finds the simulated driver."""
    return {**base_environment(), "CUDAW_SIM_DEVICES": "2", "LD_LIBRARY_PATH": SIM_DIR}


@unsanitized
def host_memory_without_files():
    """The driver has it then."""
    native = answers("fidelity", "host_memory", env=environment())
    limited = (CUDAW, "run", "--", "sh", "-c", 'ulimit -S -f 2048; exec "$0" "$@"')
    same_answers(native, answers("fidelity", "host_memory", under=limited, env=environment()))


main(host_memory_without_files,
     *[(name, unsanitized(case))
       for name, case in shared("fidelity.py", gpu_count=lambda: 2, base_environment=environment)
       if name.split(", ")[-1].replace(" ", "_") in CASES])
