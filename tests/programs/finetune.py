#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning with PyTorch: most of the model is frozen, and nine tenths of the GPU memory with it.
Makes one optimizer step for each line that it reads, or --steps of them, and prints "step K LOSS".
--gib: how much is frozen.
"""
import argparse
import sys

import torch
from torch import nn

WIDTH = 2048


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    torch.manual_seed(20)
    layers = int(args.gib * 2**30 / (4 * WIDTH * WIDTH))
    frozen = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))
    frozen.cuda().requires_grad_(False)
    # With gradients and the optimizer's two moments a trained weight takes four words.
    trained = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers // 45)))
    trained.cuda()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-4)
    inputs = torch.randn(64, WIDTH).cuda()
    print("ready", flush=True)
    for k, _ in enumerate(sys.stdin if args.steps is None else range(args.steps)):
        x = inputs
        with torch.no_grad():
            for layer in frozen:
                x = torch.tanh(layer(x)) + x
        loss = (trained(x) - inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print("step", k + 1, loss.item().hex(), flush=True)


main()
