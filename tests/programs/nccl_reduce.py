#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes, a GPU each, that time NCCL's all_reduce. For each line on stdin rank 0 prints a round: the
median of --times calls with 8 bytes, and of a hundredth as many with 1 GiB.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import nccl_rank

RANKS = 2
# Name, bytes, and by what --times is divided.
SIZES = (("nccl_8B", 8, 1), ("nccl_1GiB", 1 << 30, 100))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    return parser.parse_args()


def median_us(torch, dist, data, times):
    """Of so many all_reduces, each timed by the GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    dist.barrier()
    events[0].record()
    for event in events[1:]:
        dist.all_reduce(data)
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) * 1000


def reduce(args):
    gpu = nccl_rank.device_of(args.rank)
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", init_method=f"file://{args.store}", rank=args.rank, world_size=RANKS)
    tensors = [torch.zeros(size // 4, device="cuda") for _, size, _ in SIZES]
    for data in tensors:
        dist.all_reduce(data)
    torch.cuda.synchronize()
    print("ready", flush=True)
    for _ in sys.stdin:
        for (name, _, part), data in zip(SIZES, tensors):
            took = median_us(torch, dist, data, max(args.times // part, 1))
            print("round", name, took, "us", flush=True)
        print("done", flush=True)
    dist.destroy_process_group()


def main():
    args = parse()
    nccl_rank.choose("default")
    if args.rank is not None:
        reduce(args)
        return
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, *sys.argv[1:], "--store", os.path.join(directory, "store")]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], stdin=subprocess.PIPE, text=True,
                                  stdout=subprocess.DEVNULL if rank else None) for rank in range(RANKS)]
        for line in sys.stdin:
            for rank in ranks:
                rank.stdin.write(line)
                rank.stdin.flush()
        for rank in ranks:
            rank.stdin.close()
        sys.exit([rank.wait() for rank in ranks].count(0) != RANKS)


if __name__ == "__main__":
    main()
