#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton: a matrix product and a softmax written as kernels, on PyTorch's tensors."""
from rounds import deterministic, digest, need, run

need("torch", "triton")

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

deterministic(torch)
SIZE = 1024
BLOCK = 64


@triton.jit
def multiply(left, right, product, size, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(left + rows[:, None] * size + inner[None, :]),
                        tl.load(right + inner[:, None] * size + columns[None, :]))
    tl.store(product + rows[:, None] * size + columns[None, :], total.to(tl.float16))


@triton.jit
def softmax(values, shares, size: tl.constexpr):
    places = tl.program_id(0) * size + tl.arange(0, size)
    row = tl.load(values + places).to(tl.float32)
    powers = tl.exp(row - tl.max(row, axis=0))
    tl.store(shares + places, (powers / tl.sum(powers, axis=0)).to(tl.float16))


FIRST = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(16)).half().cuda()


def one_round():
    matrix = FIRST.clone()
    shares, product = torch.empty_like(matrix), torch.empty_like(matrix)
    for _ in range(100):
        softmax[(SIZE,)](matrix, shares, SIZE)
        multiply[(SIZE // BLOCK, SIZE // BLOCK)](shares, FIRST, product, SIZE, BLOCK=BLOCK)
        matrix = (product + FIRST) / 2
    return digest(matrix, shares)


run(one_round)
