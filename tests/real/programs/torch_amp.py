#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a convolutional network (cuDNN) trained in mixed precision with a gradient scaler."""
from rounds import deterministic, digest, need, run

need("torch")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

deterministic(torch)
torch.manual_seed(2)
IMAGES = torch.randn(4, 32, 3, 64, 64, device="cuda")
CLASSES = torch.randint(10, (4, 32), device="cuda")


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
                       nn.BatchNorm2d(outputs), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(128, 10)

    def forward(self, images):
        return self.head(self.features(images).mean(dim=(2, 3)))


def train(dtype):
    torch.manual_seed(3)
    model = Network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)
    for k in range(30):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            loss = functional.cross_entropy(model(IMAGES[k % 4]), CLASSES[k % 4])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return digest(loss, *model.state_dict().values()).encode()


def one_round():
    return digest(train(torch.float16), train(torch.bfloat16))


run(one_round)
