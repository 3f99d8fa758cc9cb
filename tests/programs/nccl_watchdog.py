#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's NCCL watchdog in one process: all_reduce without end, of which the watchdog always has
some to ask for. PyTorch's monitor ends the process if the watchdog hangs for --heartbeat-s.

SIGINT ends it: it verifies its tensor.
"""
import argparse
import os
import signal
import sys
import tempfile
import time

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")      # multicast objects cannot be paused
os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "1"


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--heartbeat-s", type=int, default=5)
    return parser.parse_args()


def reduce_until_told(args, store):
    import torch
    import torch.distributed as dist

    told = []
    signal.signal(signal.SIGINT, lambda *_: told.append(True))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=0, world_size=1)
    total = torch.zeros(1 << 20, device="cuda")
    steps = 0
    while steps < args.steps and not told:
        total += 1
        work = dist.all_reduce(total, async_op=True)
        work.wait()         # the stream waits, not this thread
        steps += 1
        print("step", steps, flush=True)
        time.sleep(args.step_ms / 1000)
    if not torch.equal(total, torch.full_like(total, steps)):
        sys.exit(f"nccl_watchdog: the first word is {total[0].item()}, should be {steps}")
    print("nccl_watchdog: every word right", flush=True)
    dist.destroy_process_group()


def main():
    args = parse()
    os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = str(args.heartbeat_s)
    with tempfile.TemporaryDirectory() as directory:
        reduce_until_told(args, os.path.join(directory, "store"))


if __name__ == "__main__":
    main()
