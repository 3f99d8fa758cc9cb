#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training on --ranks GPUs, a process each, with NCCL below PyTorch's own ways to share the work:
--kind ddp (DistributedDataParallel), fsdp (FSDP2) or tensor (tensor parallel); or graph: each step,
all_reduce included, is replayed as a CUDA graph; stages: each rank has a stage of the model, and sends to its
neighbours; experts: each rank has an expert, and every rank sends to every other (all-to-all). Rank 0 prints
"step K LOSS", an exact hexadecimal float.

--transport is one of nccl_rank.py. --launcher torchrun: PyTorch's own launcher starts the ranks.
--visible: each rank sees its GPU alone (CUDA_VISIBLE_DEVICES). --groups N: every N steps the losses are
summed in a new communicator, and the old one is destroyed; with --split it is split from the first one.
--gib: each rank has so much data that it makes on its GPU, of which each step takes another part. The GPU
works for longer on that than the host on the step.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import nccl_rank

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
PARTS = 4   # of the input of a pipeline


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("ddp", "fsdp", "tensor", "graph", "stages", "experts"), required=True)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--end", metavar="FILE", help="end, before the last step, when FILE has been made")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", choices=nccl_rank.TRANSPORTS, default="host")
    parser.add_argument("--launcher", choices=("own", "torchrun"), default="own")
    parser.add_argument("--visible", action="store_true")
    parser.add_argument("--groups", type=int, default=0)
    parser.add_argument("--split", action="store_true")
    parser.add_argument("--gib", type=int, default=0)
    parser.add_argument("--rank", type=int, default=os.environ.get("RANK"))
    parser.add_argument("--store")
    return parser.parse_args()


def whole_model():
    from torch import nn

    return nn.Sequential(*(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(8)))


def shared_model(args, device):
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh

    model = whole_model().to(device)
    if args.kind == "graph":
        return model
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


def error(output, x):
    return (output - x.roll(1, dims=1)).square().mean()


def stages_step(args, device):
    """Each rank has some blocks of the model; PARTS parts of the input go forth one after the other, then back."""
    import torch
    import torch.distributed as dist

    blocks = whole_model()
    stage = blocks[args.rank * len(blocks) // args.ranks:(args.rank + 1) * len(blocks) // args.ranks].to(device)
    before, after = args.rank > 0, args.rank < args.ranks - 1
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        entered, left = [], []
        for part in x.chunk(PARTS):
            entered.append(torch.empty_like(part) if before else part.clone())
            if before:
                dist.recv(entered[-1], args.rank - 1)
                entered[-1].requires_grad_()
            left.append(stage(entered[-1]))
            if after:
                dist.send(left[-1].detach(), args.rank + 1)
            else:
                left[-1] = error(left[-1], part) / PARTS
        for given, made in zip(entered, left):
            gradient = torch.empty_like(made) if after else None
            if after:
                dist.recv(gradient, args.rank + 1)
            made.backward(gradient)
            if before:
                dist.send(given.grad, args.rank - 1)
        optimizer.step()
        return torch.zeros((), device=device) if after else sum(left).detach()

    return step


def experts_step(args, device):
    """Each rank has an expert, to which every rank sends an equal part of its input, and gets the result back."""
    import torch
    from torch.distributed.nn.functional import all_to_all_single

    expert = whole_model()[args.rank % 8].to(device)
    optimizer = torch.optim.SGD(expert.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        # Autograd sends the gradients back the same way.
        given = x.clone().requires_grad_()
        loss = error(all_to_all_single(torch.empty_like(x), expert(all_to_all_single(torch.empty_like(x), given))), x)
        loss.backward()
        optimizer.step()
        return loss.detach().clone()

    return step


def step_of(args, device):
    """A function that makes a step with an input, and returns this rank's loss; for graph, that of all."""
    import torch
    import torch.distributed as dist

    if args.kind in STEPS:
        return STEPS[args.kind](args, device)
    model = shared_model(args, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        loss = error(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        if args.kind == "graph":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        total = loss.detach().clone()
        if args.kind == "graph":
            dist.all_reduce(total)
        return total

    return captured(step, torch.ones(64, 512, device=device)) if args.kind == "graph" else step


STEPS = {"stages": stages_step, "experts": experts_step}


def captured(step, x):
    """The step as a CUDA graph that reads @x."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        total = step(x)

    def replay(given):
        x.copy_(given)
        graph.replay()
        return total.clone()

    return replay


def begin(args, device):
    import torch.distributed as dist

    own = {"init_method": f"file://{args.store}", "rank": args.rank, "world_size": args.ranks}
    # A group that knows its device makes others by ncclCommSplit().
    dist.init_process_group("nccl", **({} if args.launcher == "torchrun" else own),
                            **({"device_id": device} if args.split else {}))


def train(args):
    gpu = 0 if args.visible else nccl_rank.device_of(args.rank)
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", gpu)
    torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    begin(args, device)
    torch.manual_seed(1)
    step = step_of(args, device)
    # The ranks of a model that is cut into parts all see the same data.
    torch.manual_seed(100 + (0 if args.kind in ("tensor", "stages") else args.rank))
    inputs = torch.randn(8, 64, 512, device=device)
    data = [torch.randn(1024, 512, 512, device=device) for _ in range(args.gib)]    # 1 GiB each
    group = None
    for k in range(args.steps):
        if args.groups and k % args.groups == 0:
            if group:
                dist.destroy_process_group(group)
            group = dist.new_group(list(range(args.ranks)))
        x = inputs[k % len(inputs)]
        if data:
            part = data[k % len(data)]
            for _ in range(8):
                product = torch.bmm(part, part)
            x = torch.tanh(x @ product[k // len(data) % len(part)])
        total = step(x)
        if args.kind != "graph":
            dist.all_reduce(total, group=group)
        # The ranks look at their results at different steps, so that they run ahead of each other.
        if args.rank == 0 or k % (3 + args.rank) == 0:
            total = total.item()
        if args.rank == 0:
            print("step", k + 1, total.hex(), flush=True)
        if args.end and nccl_rank.is_last(args.end, args.rank, k):
            break
    # NCCL waits for the end of the graphs that use a communicator.
    del step
    dist.destroy_process_group()


def main():
    args = parse()
    nccl_rank.choose(args.transport)
    if args.rank is not None:
        train(args)
        return
    if args.launcher == "torchrun":
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--standalone",
                                  "--nproc-per-node", str(args.ranks), *sys.argv])
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, *sys.argv[1:], "--store", os.path.join(directory, "store")]
        ranks = []
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        for rank in range(args.ranks):
            gpu = gpus[rank] if rank < len(gpus) and gpus[rank] else str(rank)
            visible = {"CUDA_VISIBLE_DEVICES": gpu} if args.visible else {}
            ranks.append(subprocess.Popen([*command, "--rank", str(rank)], env={**os.environ, **visible}))
        failed = [rank.wait() for rank in ranks].count(0) != args.ranks
    print("nccl_training:", "failed" if failed else "all ranks have ended")
    sys.exit(failed)


if __name__ == "__main__":
    main()
