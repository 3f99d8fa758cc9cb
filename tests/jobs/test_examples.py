#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say. That of PyTorch Lightning is run by check-real."""
import os
import signal
import urllib.request

from simlib import REPOSITORY, SCRATCH, unsanitized
from gpulib import PATIENCE, Job, check, equal, main
from harness import until
from turnslib import ENV, counting, finish, members, start_daemon, started

CHECKPOINT = os.path.join(SCRATCH, "checkpoint")
MODEL_MIB = 160     # two do not fit on the GPU
os.environ["CUDAW_SIM_MEMORY"] = ENV["CUDAW_SIM_MEMORY"]


def example(name):
    return os.path.join(REPOSITORY, "examples", name)


def cell(job, text, answer):
    job.process.stdin.write(text + "\n")
    job.wait_line(answer)


def notebook_kernel():
    job = Job(example("notebook_kernel.py"))
    cell(job, "data = gpu.Memory(8 << 20); data.fill(7); print('filled')", "filled")
    cell(job, "print('works', flush=True)\n", "works")
    job.process.stdin.write("print('busy', flush=True); [data.read(1) for _ in iter(int, 1)]\n")
    job.wait_line("busy")
    job.pause()
    job.send(signal.SIGINT)
    equal(job.state(), "paused", "the state after the interrupt")
    check("interrupted" not in job.lines, "the cell has ended in the pause")
    job.resume()
    job.wait_line("interrupted")
    cell(job, "print('data', data.read(2))", r"data b'\x07\x07'")
    job.result()


def slurm_usr1():
    job = Job(example("slurm_usr1.py"), CHECKPOINT, name="train")
    job.wait_steps(3)
    job.send(signal.SIGUSR1)
    job.until(lambda: any(line.startswith("saved") for line in job.lines), 30, "it has saved")
    equal(job.state(), "running", "the state after SIGUSR1")
    job.pause()
    saved = read(CHECKPOINT)
    job.send(signal.SIGUSR1)
    equal(job.state(), "paused", "the state after a second one")
    job.resume()
    job.until(lambda: read(CHECKPOINT) > saved, 30, "it has saved again")
    job.discard()
    again = Job(example("slurm_usr1.py"), CHECKPOINT)
    again.wait_line(f"step {read(CHECKPOINT) + 1}")
    again.discard()


def read(path):
    with open(path, encoding="ascii") as file:
        return int(file.read())


def inference_server():
    start_daemon()
    server = started("server", example("inference_server.py"), 0, MODEL_MIB)
    server.until(lambda: server.lines, 30, "it serves")
    url = f"http://localhost:{server.lines[0].split()[-1]}"

    def asked():
        with urllib.request.urlopen(url, timeout=30 * PATIENCE) as answer:
            return answer.read()

    equal(asked(), b"42", "its answer")
    other = counting("other", MODEL_MIB, 50)
    other.wait_steps(50)
    until(lambda: members()[server.pid]["state"] == "out", 10, "the idle server has given its memory")
    finish(other)
    equal(asked(), b"42", "its answer after the other job")
    server.discard()


main(*map(unsanitized, (notebook_kernel, slurm_usr1, inference_server)))
