#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuFFT and cuRAND, through CuPy: noise, its spectrum, and back."""
from rounds import digest, need, run

need("cupy")

import cupy  # noqa: E402


def one_round():
    random = cupy.random.RandomState(18)
    results = []
    for _ in range(20):
        noise = random.standard_normal((512, 512), dtype=cupy.float32)
        spectrum = cupy.fft.rfft2(noise)
        spectrum[64:] = 0
        results += [cupy.fft.irfft2(spectrum), cupy.fft.fft(noise[:100, :500]),
                    random.uniform(size=1000)]
    return digest(*results)


run(one_round)
