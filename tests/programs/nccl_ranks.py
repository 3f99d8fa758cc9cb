#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on --ranks GPUs, a process each, with NCCL's all_reduce.

Every step averages the gradients of all ranks; rank 0 prints "step K LOSS", the loss of all ranks
as an exact hexadecimal float. At the end all ranks compare their parameters.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import nccl_rank

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--end", metavar="FILE", help="end, before the last step, when FILE has been made")
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", choices=nccl_rank.TRANSPORTS, default="host")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    return parser.parse_args()


def train(args):
    gpu = nccl_rank.device_of(args.rank)
    import torch
    import torch.distributed as dist
    from torch import nn

    device = torch.device("cuda", gpu)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method=f"file://{args.store}", rank=args.rank,
                            world_size=args.ranks)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(),
                          nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(100 + args.rank)
    inputs = torch.randn(8, 64, 512, device=device)
    for k in range(args.steps):
        x = inputs[k % len(inputs)]
        loss = (model(x) - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= args.ranks
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        # The ranks look at their results at different steps, so that they run ahead of each other.
        if args.rank == 0 or k % (3 + args.rank) == 0:
            total = total.item()
        if args.rank == 0:
            print("step", k + 1, total.hex(), flush=True)
        if args.end and nccl_rank.is_last(args.end, args.rank, k):
            break
        time.sleep(args.step_ms / 1000)
    for parameter in model.parameters():
        first = parameter.detach().clone()
        dist.broadcast(first, 0)
        if not torch.equal(first, parameter):
            sys.exit(f"nccl_ranks: the parameters of rank {args.rank} are not those of rank 0")
    dist.destroy_process_group()


def main():
    args = parse()
    nccl_rank.choose(args.transport)
    if args.rank is not None:
        train(args)
        return
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, *sys.argv[1:], "--store", os.path.join(directory, "store")]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(args.ranks)]
        failed = [rank.wait() for rank in ranks].count(0) != args.ranks
    print("nccl_ranks:", "failed" if failed else "all ranks agree")
    sys.exit(failed)


if __name__ == "__main__":
    main()
