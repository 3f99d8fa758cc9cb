#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on cudaMallocAsync: its memory comes from the driver's pool, in many sizes."""
import os

from rounds import deterministic, digest, need, run

need("torch")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"

import torch  # noqa: E402  (it reads the variable above)
from torch import nn  # noqa: E402

deterministic(torch)
if torch.cuda.get_allocator_backend() != "cudaMallocAsync":
    raise SystemExit("PyTorch does not use cudaMallocAsync")


def one_round():
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for k in range(60):
        inputs = torch.randn(64 + 16 * (k % 7), 512, device="cuda")
        loss = (model(inputs) - inputs.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return digest(loss, *model.state_dict().values())


run(one_round)
