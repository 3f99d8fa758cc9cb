#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training on --ranks GPUs, a process each, with NCCL below PyTorch's own ways to share the work:
--kind ddp (DistributedDataParallel), fsdp (FSDP2) or tensor (tensor parallel). Rank 0 prints
"step K LOSS", an exact hexadecimal float.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import nccl_rank

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("ddp", "fsdp", "tensor"), required=True)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", choices=nccl_rank.TRANSPORTS, default="host")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    return parser.parse_args()


def shared_model(args, device):
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh

    blocks = [nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(8)]
    model = nn.Sequential(*blocks).to(device)
    if args.kind == "ddp":
        return nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    mesh = init_device_mesh("cuda", (args.ranks,))
    if args.kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                       parallelize_module)

        for block in model:
            parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def train(args):
    gpu = nccl_rank.device_of(args.rank)
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", gpu)
    torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl", init_method=f"file://{args.store}", rank=args.rank,
                            world_size=args.ranks)
    torch.manual_seed(1)
    model = shared_model(args, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # The ranks of a tensor-parallel model all see the same data.
    torch.manual_seed(100 + (0 if args.kind == "tensor" else args.rank))
    inputs = torch.randn(8, 64, 512, device=device)
    for k in range(args.steps):
        x = inputs[k % len(inputs)]
        loss = (model(x) - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        # The ranks look at their results at different steps, so that they run ahead of each other.
        if args.rank == 0 or k % (3 + args.rank) == 0:
            total = total.item()
        if args.rank == 0:
            print("step", k + 1, total.hex(), flush=True)
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
    print("nccl_training:", "failed" if failed else "all ranks have ended")
    sys.exit(failed)


if __name__ == "__main__":
    main()
