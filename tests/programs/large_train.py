#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch training with --gib of GPU memory, most of it data that is made on the GPU. Each step trains
a network of 3 GiB, changes all words of one GiB of the data, and prints "step K LOSS", with the loss as
an exact hexadecimal float. SIGINT, or the last of --steps, ends it: it then verifies the data, by the
sums of its rows and columns.
"""
import argparse
import os
import signal
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (it reads the variable above)
from torch import nn  # noqa: E402

NETWORK_GIB = 3
WIDTH, LAYERS, BATCH = 4096, 8, 4096
ROWS, COLUMNS = 8192, 16384     # of a part of the data: 1 GiB of 64-bit integers
WRONG_DATA = 65     # an exit status: STEP_WRONG_DATA of step.h


def sums(part):
    """Of each row and of each column, modulo 2^64."""
    return part.sum(1).cpu(), part.sum(0).cpu()


class Data:
    def __init__(self, gib):
        self.parts = [torch.empty(ROWS, COLUMNS, dtype=torch.int64, device="cuda").random_()
                      for _ in range(gib)]
        self.first = [sums(part) for part in self.parts]
        self.added = [0] * gib

    def change(self, k):
        number = k % len(self.parts)
        self.parts[number].add_(k + 1)
        self.added[number] += k + 1

    def verify(self):
        for number, (part, (rows, columns)) in enumerate(zip(self.parts, self.first)):
            added = self.added[number]
            for found, first, words in zip(sums(part), (rows, columns), (COLUMNS, ROWS)):
                if not torch.equal(found, first + added * words):
                    print(f"large_train: part {number} of the data is wrong", file=sys.stderr)
                    sys.exit(WRONG_DATA)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(".", maxsplit=1)[0])
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    told = []
    signal.signal(signal.SIGINT, lambda *_: told.append(True))
    torch.manual_seed(20)
    torch.use_deterministic_algorithms(True)
    # It would write the new parts twice.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cuda.matmul.allow_tf32 = False
    data = Data(max(1, args.gib - NETWORK_GIB))
    layers = [part for _ in range(LAYERS)
              for part in (nn.Linear(WIDTH, WIDTH, bias=False, device="cuda"), nn.Tanh())]
    network = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    k = 0
    while k < args.steps and not told:
        loss = (network(inputs) - inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        data.change(k)
        k += 1
        print("step", k, loss.item().hex(), flush=True)
    data.verify()
    print(f"large_train: {k} steps, every word right", flush=True)


main()
