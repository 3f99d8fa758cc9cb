#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch training whose every loss is the same bits in every run on the same GPU.

--modes takes a comma-separated list, run one after the other in this process:

    eager    a transformer, one kernel launch at a time
    graph    the same, each step replayed as a CUDA graph
    compile  the same through torch.compile (Triton kernels)
    cnn      a convolutional network (cuDNN)

Each step prints "step MODE K LOSS", the loss as an exact hexadecimal float, and appends the same to
the file of --log. --workers has the batches made, each a new one, by a DataLoader's processes and
its thread that pins them; the processes are forked when the model is on the GPU. --width 1024
--layers 20 makes it 4 GiB. With --bench the program instead times one round of steps for each line
that it reads, so that two of them can be timed in turns.
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
from torch.utils import data  # noqa: E402

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
    def __init__(self, width, layers):
        super().__init__()
        heads = width // 64
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


def make_batches(mode, count, random):
    """Inputs and targets of so many batches."""
    if mode == "cnn":
        return (torch.randn(count, 32, 3, 64, 64, generator=random),
                torch.randint(10, (count, 32), generator=random))
    text = torch.randint(VOCABULARY, (count, BATCH, LENGTH + 1), generator=random)
    return text[..., :-1].contiguous(), text[..., 1:].reshape(count, -1).contiguous()


class Batches(data.Dataset):
    """A batch for each step, made by whichever worker is asked for it."""

    def __init__(self, mode, count):
        self.mode, self.count = mode, count

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        inputs, targets = make_batches(self.mode, 1, torch.Generator().manual_seed(1000 + k))
        return inputs[0], targets[0]


class Training:
    """A model, its data and its optimizer; step(k) trains on batch k and returns the loss."""

    def __init__(self, mode, args):
        torch.manual_seed(20)
        self.inputs, self.targets = (
            made.cuda() for made in make_batches(mode, BATCHES, torch.Generator().manual_seed(21)))
        if mode == "cnn":
            self.model = Convolutions().cuda()
        else:
            self.model = Transformer(args.width, args.layers).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3,
                                           capturable=mode == "graph")
        self.forward = torch.compile(self.model) if mode == "compile" else self.model
        self.step = self.eager_step
        self.loaded = None
        if mode == "graph":
            self.capture()
        if args.workers:
            self.loaded = iter(data.DataLoader(
                Batches(mode, args.steps), batch_size=None, num_workers=args.workers,
                pin_memory=True, multiprocessing_context="fork"))

    def batch(self, k):
        if self.loaded:
            return [part.cuda(non_blocking=True) for part in next(self.loaded)]
        return self.inputs[k % BATCHES], self.targets[k % BATCHES]

    def train(self, inputs, targets):
        loss = functional.cross_entropy(self.forward(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def eager_step(self, k):
        inputs, targets = self.batch(k)
        self.optimizer.zero_grad(set_to_none=True)
        return self.train(inputs, targets)

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
        inputs, targets = self.batch(k)
        self.static_inputs.copy_(inputs)
        self.static_targets.copy_(targets)
        self.graph.replay()
        return self.static_loss


def run(mode, args):
    training = Training(mode, args)

    def tell(*words):
        print(*words, flush=True)
        if args.log:
            print(*words, file=args.log, flush=True)
    for k in range(args.steps):
        tell("step", mode, k + 1, training.step(k).item().hex())
        time.sleep(args.step_ms / 1000)
    state = sum(p.detach().double().abs().sum() for p in training.model.parameters())
    tell("parameters", mode, state.item().hex())


def bench(mode, args):
    """One round of --steps steps for each line of input; prints the last loss, and milliseconds a
    step."""
    training = Training(mode, args)
    for k in range(20):
        training.step(k)
    torch.cuda.synchronize()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for k in range(args.steps):
            loss = training.step(k)
        torch.cuda.synchronize()
        milliseconds = (time.perf_counter() - start) / args.steps * 1e3
        print(f"loss train_{mode} {loss.item().hex()}")
        print(f"round train_{mode} {milliseconds:.4f} ms\ndone", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default="eager", help="eager, graph, compile, cnn")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--width", type=int, default=256, help="of the transformer, by 64")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="of a DataLoader; 0: none")
    parser.add_argument("--log", type=argparse.FileType("a"), help="append the steps to this file")
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
