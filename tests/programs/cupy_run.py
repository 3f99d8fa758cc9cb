#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy: its own memory pool, kernels that it compiles at run time, cuBLAS and cuFFT."""
import argparse
import hashlib
import time

import cupy


def digest(array):
    return hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--hold-mib", type=int, default=0, help="memory beside that")
    args = parser.parse_args()
    held = cupy.arange(args.hold_mib << 18, dtype=cupy.uint32)
    mix = cupy.ElementwiseKernel("uint32 x, uint32 k", "uint32 y", "y = x * 1664525u + k + i",
                                 "mix")
    words = cupy.arange(1 << 20, dtype=cupy.uint32)
    matrix = cupy.sin(cupy.arange(512 * 512, dtype=cupy.float32)).reshape(512, 512)
    product = cupy.eye(512, dtype=cupy.float32)
    for k in range(args.steps):
        words = mix(words, k)
        product = matrix @ product
        product /= cupy.abs(product).max()
        spectrum = cupy.fft.fft2(product)
        cupy.cuda.Stream.null.synchronize()
        print("step", k + 1, flush=True)
        time.sleep(args.step_ms / 1000)
    print("held", digest(held))
    print("words", digest(words))
    print("product", digest(product))
    print("spectrum", digest(spectrum))


if __name__ == "__main__":
    main()
