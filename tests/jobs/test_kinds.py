#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of the kinds of memory, on the simulated driver; and how much of each is counted as
left to the driver, which NVML answers on a GPU.
"""
from simlib import MIB, SANITIZED, shared
from gpulib import Job, main

SIZE = 64 << 10
# The bytes that a job has. With native addressing the plain memory is left to the driver as well; the
# levels of a mipmap are taken for as much again as the first one, which has 16 KiB.
COUNTED = {
    "async": 0, "pool": 0, "vmm": 0, "managed": SIZE, "array": SIZE // 2,
    "mipmap": SIZE // 2, "graph_mem": 2 * SIZE, "external": SIZE, "ipc_out": 2 * SIZE,
    "ipc_in": 2 * SIZE, "vmm_out": 2 * MIB, "vmm_in": 2 * MIB, "graph_replay": 0,
    "dmabuf": 0, "dmabuf_vmm": 2 * MIB,
}


def counted(kind):
    def case():
        job = Job("memory_kinds", "--kind", kind, "--steps", 1000000, "--step-ms", 20,
                  env={"CUDAW_TO_DRIVER": "memory,exports" if kind.startswith("ipc") else "exports"})
        job.wait_steps(3)
        # In the midst of a step there may be more.
        job.until(lambda: job.status()["left_to_driver"] == COUNTED[kind], 5,
                  f"{COUNTED[kind]} bytes are left to the driver")
        job.finish()
    return f"{kind} is counted", case


main(*[(name, case if name.endswith((", all", "is refused")) else case)
       for name, case in shared("kinds.py", STEPS=200 if SANITIZED else 120, STEP_MS=3, STILL=0.04)],
     *[counted(kind) for kind in COUNTED])
