#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The driver answers about memory that another process shares by a legacy IPC handle as natively."""
from gpulib import CUDAW, Skip, answers, base_environment, gpu_count, main, same_answers

CASES = {"opened": 1, "refused": 1, "waits": 1, "green": 1, "ends": 1, "large": 1, "peers": 2,
         "masked": 2}


def compare(case):
    def run():
        if gpu_count() < CASES[case]:
            raise Skip(f"{CASES[case]} GPUs needed, {gpu_count()} here")
        env = base_environment()
        same_answers(answers("ipc_memory", case, env=env),
                     answers("ipc_memory", case, under=(CUDAW, "run", "--"), env=env))
    return f"the driver's answers about shared memory, {case}", run


main(*[compare(case) for case in CASES])
