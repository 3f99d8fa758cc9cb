#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch with expandable segments, which it maps by itself, in sizes that grow; it empties its cache at times."""
import os

from rounds import deterministic, digest, need, run

need("torch")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch  # noqa: E402  (it reads the variable above)
from torch import nn  # noqa: E402

deterministic(torch)


def one_round():
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for k in range(60):
        inputs = torch.randn(64 << (k % 7), 512, device="cuda")
        loss = (model(inputs) - inputs.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if k % 10 == 9:
            torch.cuda.empty_cache()
    if not any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot()):
        raise SystemExit("PyTorch has no expandable segments")
    return digest(loss, *model.state_dict().values())


run(one_round)
