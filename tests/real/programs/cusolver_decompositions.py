#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuSOLVER, through CuPy: decompositions and solvers of dense matrices."""
from rounds import digest, need, run

need("cupy")

import cupy  # noqa: E402


def one_round():
    square = cupy.sin(cupy.arange(256 * 256, dtype=cupy.float64) ** 1.5).reshape(256, 256)
    positive = square @ square.T + 256 * cupy.eye(256)
    results = [cupy.linalg.cholesky(positive), cupy.linalg.solve(positive, square)]
    results += cupy.linalg.qr(square)
    results += cupy.linalg.eigh(positive)
    results += cupy.linalg.svd(square)
    return digest(*results)


run(one_round)
