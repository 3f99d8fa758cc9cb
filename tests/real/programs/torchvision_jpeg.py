#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchvision: images encoded and decoded on the GPU by nvJPEG."""
from rounds import deterministic, digest, need, run, skip

need("torch", "torchvision")

import torch  # noqa: E402
from torchvision import io  # noqa: E402

deterministic(torch)


def image(k, size):
    """Waves of some colours, with a little noise."""
    random = torch.Generator().manual_seed(17 + k)
    across = torch.linspace(0, 6 + k, size)
    waves = torch.stack([torch.outer(across.sin(), (k * across).cos()) for k in (1, 2, 3)])
    noise = torch.rand(3, size, size, generator=random)
    return ((waves + 1) * 120 + noise * 15).to(torch.uint8)


IMAGES = [image(k, size) for k, size in enumerate((256, 512, 768))]
FILES = [io.encode_jpeg(one, quality=90) for one in IMAGES]
try:
    io.decode_jpeg(FILES[0], device="cuda")
except RuntimeError as error:
    if "nvjpeg" in str(error).lower() and "compil" in str(error).lower():
        skip("torchvision has no nvJPEG on this machine")
    raise


def one_round():
    results = []
    for _ in range(10):
        decoded = io.decode_jpeg(FILES, device="cuda")
        encoded = io.encode_jpeg([one.cuda() for one in IMAGES], quality=80)
        results += decoded + encoded
    return digest(*results)


run(one_round)
