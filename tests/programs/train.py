#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch training whose every loss is the same bits in every run on the same GPU.

--modes takes a comma-separated list, run one after the other in this process:

    eager    a transformer, one kernel launch at a time
    graph    the same, each step replayed as a CUDA graph
    compile  the same through torch.compile (Triton kernels)
    cnn      a convolutional network (cuDNN)

Each step prints "step MODE K LOSS", the loss as an exact hexadecimal float. With --bench the
program instead times one round of steps for each line that it reads, so that two of them can be
timed in turns.
"""
import argparse
import os
import signal
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
if "--expandable" in sys.argv:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch  # noqa: E402  (it reads the variable above)
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

VOCABULARY = 512
LENGTH = 64
BATCH = 16
BATCHES = 8
WARMUP = 3


class Block(nn.Module):
    """One layer of the transformer, of matrix products, softmax and layer norms."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.hidden = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        split = self.attention(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
        weights = functional.dropout(torch.softmax(scores + mask, dim=-1), 0.1)
        x = x + self.projection((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.output(functional.gelu(self.hidden(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width=256, heads=4, layers=4):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY)
        mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(x).flatten(0, 1)


class Convolutions(nn.Module):
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


class Training:
    """A model, its data and its optimizer; step(k) trains on batch k and returns the loss."""

    def __init__(self, mode):
        torch.manual_seed(20)
        random = torch.Generator().manual_seed(21)
        if mode == "cnn":
            self.inputs = torch.randn(BATCHES, 32, 3, 64, 64, generator=random).cuda()
            self.targets = torch.randint(10, (BATCHES, 32), generator=random).cuda()
            self.model = Convolutions().cuda()
        else:
            text = torch.randint(VOCABULARY, (BATCHES, BATCH, LENGTH + 1), generator=random).cuda()
            self.inputs = text[..., :-1].contiguous()
            self.targets = text[..., 1:].reshape(BATCHES, -1).contiguous()
            self.model = Transformer().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3,
                                           capturable=mode == "graph")
        self.forward = torch.compile(self.model) if mode == "compile" else self.model
        self.step = self.eager_step
        if mode == "graph":
            self.capture()

    def train(self, inputs, targets):
        loss = functional.cross_entropy(self.forward(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def eager_step(self, k):
        self.optimizer.zero_grad(set_to_none=True)
        return self.train(self.inputs[k % BATCHES], self.targets[k % BATCHES])

    def capture(self):
        """Make a graph of a whole step; it reads its batch from static_inputs and _targets."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for k in range(WARMUP):
                self.eager_step(k)
        torch.cuda.current_stream().wait_stream(stream)
        self.static_inputs = self.inputs[0].clone()
        self.static_targets = self.targets[0].clone()
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.static_loss = self.train(self.static_inputs, self.static_targets)
        self.step = self.graph_step

    def graph_step(self, k):
        self.static_inputs.copy_(self.inputs[k % BATCHES])
        self.static_targets.copy_(self.targets[k % BATCHES])
        self.graph.replay()
        return self.static_loss


def run(mode, args):
    training = Training(mode)
    for k in range(args.steps):
        print("step", mode, k + 1, training.step(k).item().hex(), flush=True)
        time.sleep(args.step_ms / 1000)
    state = sum(p.detach().double().abs().sum() for p in training.model.parameters())
    print("parameters", mode, state.item().hex(), flush=True)


def bench(mode, args):
    """One round of --steps steps for each line of input; prints milliseconds a step."""
    training = Training(mode)
    for k in range(20):
        training.step(k)
    torch.cuda.synchronize()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for k in range(args.steps):
            training.step(k)
        torch.cuda.synchronize()
        milliseconds = (time.perf_counter() - start) / args.steps * 1e3
        print(f"round train_{mode} {milliseconds:.4f} ms\ndone", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default="eager", help="eager, graph, compile, cnn")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--expandable", action="store_true",
                        help="PyTorch's own virtual memory management (expandable_segments)")
    parser.add_argument("--bench", action="store_true")
    args = parser.parse_args()
    # A job told to end by SIGTERM leaves through Python, with its atexit handlers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for mode in args.modes.split(","):
        (bench if args.bench else run)(mode, args)


if __name__ == "__main__":
    main()
