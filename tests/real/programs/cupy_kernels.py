#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy: kernels compiled at run time, streams, its memory pool, and sorting."""
from rounds import digest, need, run

need("cupy")

import cupy  # noqa: E402

MIX = cupy.ElementwiseKernel("uint32 x, uint32 k", "uint32 y", "y = x * 1664525u + k + i", "mix")
BLUR = cupy.RawKernel(r"""
extern "C" __global__ void blur(const float *from, float *to, int size)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < size)
		to[i] = (from[(i + size - 1) % size] + 2 * from[i] + from[(i + 1) % size]) / 4;
}
""", "blur")
SIZE = 1 << 18
STREAM = cupy.cuda.Stream(non_blocking=True)


def one_round():
    words = cupy.arange(SIZE, dtype=cupy.uint32)
    with STREAM:
        wave = cupy.sin(cupy.arange(SIZE, dtype=cupy.float32))
    for k in range(200):
        words = MIX(words, k)
        with STREAM:
            other = cupy.empty_like(wave)
            BLUR((SIZE // 256,), (256,), (wave, other, cupy.int32(SIZE)))
            wave = other
        if k % 20 == 0:
            words = cupy.sort(words)[::-1].copy() ^ cupy.cumsum(words, dtype=cupy.uint32)
    STREAM.synchronize()
    return digest(words, wave)


run(one_round)
