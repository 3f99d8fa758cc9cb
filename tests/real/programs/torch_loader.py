#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: batches made by a DataLoader's processes, forked anew in each round, and pinned."""
from rounds import deterministic, digest, need, run

need("torch")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils import data  # noqa: E402

deterministic(torch)


class Noise(data.Dataset):
    """A sample of each number, the same whichever process makes it."""

    def __len__(self):
        return 512

    def __getitem__(self, k):
        sample = torch.randn(1024, generator=torch.Generator().manual_seed(k))
        return sample, sample[:16].sin()


def one_round():
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 16)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    loader = data.DataLoader(Noise(), batch_size=32, shuffle=True, num_workers=2, pin_memory=True,
                             multiprocessing_context="fork",
                             generator=torch.Generator().manual_seed(5))
    for samples, targets in loader:
        found = model(samples.cuda(non_blocking=True))
        loss = ((found - targets.cuda(non_blocking=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return digest(loss, *model.state_dict().values())


run(one_round)
