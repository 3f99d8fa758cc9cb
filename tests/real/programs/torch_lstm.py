#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: an LSTM of two layers (cuDNN) trained to add up what it has seen."""
from rounds import deterministic, digest, need, run

need("torch")

import torch  # noqa: E402
from torch import nn  # noqa: E402

deterministic(torch)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 32)

    def forward(self, steps):
        return self.head(self.lstm(steps)[0])


def one_round():
    torch.manual_seed(9)
    model = Network().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(64, 50, 32, device="cuda")
    targets = inputs.tanh().roll(1, 1)
    for _ in range(40):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return digest(loss, *model.state_dict().values())


run(one_round)
