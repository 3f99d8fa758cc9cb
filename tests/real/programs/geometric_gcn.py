#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch-geometric: a graph convolutional network trained on a random graph."""
from rounds import deterministic, digest, need, run

need("torch", "torch_geometric")

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_geometric.nn import GCNConv  # noqa: E402

deterministic(torch)
torch.manual_seed(12)
NODES = 2000
FEATURES = torch.randn(NODES, 64, device="cuda")
CLASSES = torch.randint(8, (NODES,), device="cuda")
EDGES = torch.randint(NODES, (2, 10000), device="cuda")


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(64, 128)
        self.second = GCNConv(128, 8)

    def forward(self, features):
        return self.second(functional.relu(self.first(features, EDGES)), EDGES)


def one_round():
    torch.manual_seed(13)
    model = Network().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        loss = functional.cross_entropy(model(FEATURES), CLASSES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return digest(loss, *model.state_dict().values())


run(one_round)
