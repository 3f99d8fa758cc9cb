#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numba: kernels written in Python, with shared memory, atomics and a stream."""
from rounds import digest, need, run

need("numba", "numpy")

import numpy  # noqa: E402

# numba-cuda 0.30 asks for this name, which NumPy 2.5 does not have any more.
numpy.row_stack = getattr(numpy, "row_stack", numpy.vstack)

from numba import cuda, int32  # noqa: E402

SIZE = 1 << 18
THREADS = 256


@cuda.jit
def mix(words, k):
    i = cuda.grid(1)
    if i < words.size:
        words[i] = (words[i] * 48271 + k + i) % 2147483647


@cuda.jit
def count(words, counts):
    shared = cuda.shared.array(256, int32)
    thread = cuda.threadIdx.x
    shared[thread] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < words.size:
        cuda.atomic.add(shared, words[i] % 256, 1)
    cuda.syncthreads()
    cuda.atomic.add(counts, thread, shared[thread])


def one_round():
    stream = cuda.stream()
    words = cuda.to_device(numpy.arange(SIZE, dtype=numpy.int64), stream=stream)
    counts = cuda.to_device(numpy.zeros(256, dtype=numpy.int32), stream=stream)
    for k in range(100):
        mix[SIZE // THREADS, THREADS, stream](words, k)
        count[SIZE // THREADS, THREADS, stream](words, counts)
    stream.synchronize()
    return digest(words, counts)


run(one_round)
