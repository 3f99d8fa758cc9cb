#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a network trained through torch.compile (Inductor's Triton kernels)."""
from rounds import deterministic, digest, need, run

need("torch")

import torch  # noqa: E402
from torch import nn  # noqa: E402

deterministic(torch)
torch.manual_seed(1)
MODEL = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512),
                      nn.SiLU(), nn.Linear(512, 64)).cuda()
FIRST = {name: value.clone() for name, value in MODEL.state_dict().items()}
COMPILED = torch.compile(MODEL)
INPUTS = torch.randn(4, 128, 256, device="cuda")
TARGETS = torch.tanh(INPUTS[..., :64])


def one_round():
    MODEL.load_state_dict(FIRST)
    optimizer = torch.optim.AdamW(MODEL.parameters(), lr=1e-3)
    for k in range(60):
        loss = ((COMPILED(INPUTS[k % 4]) - TARGETS[k % 4]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return digest(loss, *MODEL.state_dict().values())


run(one_round)
