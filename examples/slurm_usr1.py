#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A training that saves a checkpoint when Slurm warns it, by SIGUSR1, that its time is nearly up.

    #SBATCH --signal=USR1@90
    srun cudaw run --name train -- python slurm_usr1.py checkpoint

As the program handles SIGUSR1, cudaw leaves that signal to it: the job is paused by `cudaw pause train`. If the warning
comes while the job is paused, the checkpoint is written after the resume.
"""
import os
import signal
import sys
import time

import gpu

path, warned = sys.argv[1], []
signal.signal(signal.SIGUSR1, lambda *_: warned.append(True))
step = 0
if os.path.exists(path):
    with open(path, encoding="ascii") as file:
        step = int(file.read())
weights = gpu.Memory(8 << 20)
while True:
    step += 1
    weights.fill(step % 256)
    gpu.synchronize()
    print("step", step, flush=True)
    if warned:
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(step))
        os.replace(path + ".new", path)
        print("saved step", step, flush=True)
        warned.clear()
    time.sleep(0.01)
