#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: decompositions and solvers of torch.linalg, by cuSOLVER and cuBLAS."""
from rounds import deterministic, digest, need, run

need("torch")

import torch  # noqa: E402

deterministic(torch)
torch.manual_seed(8)
SQUARE = torch.randn(256, 256, dtype=torch.float64, device="cuda")
BATCH = torch.randn(16, 64, 64, device="cuda")


def one_round():
    positive = SQUARE @ SQUARE.T + 256 * torch.eye(256, dtype=torch.float64, device="cuda")
    factor = torch.linalg.cholesky(positive)
    values, vectors = torch.linalg.eigh(positive)
    left, singular, right = torch.linalg.svd(SQUARE, driver="gesvd")
    q, r = torch.linalg.qr(SQUARE)
    solved = torch.linalg.solve(BATCH, BATCH.transpose(1, 2))
    return digest(factor, values, vectors, left, singular, right, q, r, solved,
                  torch.linalg.inv(SQUARE), torch.linalg.slogdet(BATCH).logabsdet)


run(one_round)
