#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuSPARSE, through CuPy: products and a triangular solver of sparse matrices.

All numbers are small integers in double precision, so the order of additions changes no sum.
"""
from rounds import digest, need, run

need("cupy", "scipy")

import cupy  # noqa: E402
from cupyx.scipy import sparse  # noqa: E402
from cupyx.scipy.sparse import linalg  # noqa: E402

SIZE = 20000
PER_ROW = 10


def matrix(seed):
    random = cupy.random.RandomState(seed)
    places = random.randint(0, SIZE, (SIZE, PER_ROW)).ravel()
    values = random.randint(1, 8, SIZE * PER_ROW).astype(cupy.float64)
    rows = cupy.repeat(cupy.arange(SIZE), PER_ROW)
    return sparse.coo_matrix((values, (rows, places)), shape=(SIZE, SIZE)).tocsr()


def one_round():
    left, right = matrix(19), matrix(20)
    square = left @ right
    dense = (cupy.arange(SIZE * 4) % 11).astype(cupy.float64).reshape(SIZE, 4)
    vector = dense[:, 0].copy()
    for _ in range(50):
        vector = (left @ vector) % 1009
        dense = (right @ dense) % 1009
    # The solution holds sums of the vector: integers, too.
    lower = sparse.diags([cupy.ones(SIZE), cupy.full(SIZE - 1, -1.0)], [0, -1], format="csr")
    solved = linalg.spsolve_triangular(lower, vector, lower=True)
    square.sort_indices()
    return digest(vector, dense, solved, square.data, square.indices, square.indptr)


run(one_round)
