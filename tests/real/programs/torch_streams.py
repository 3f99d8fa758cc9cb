#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: two streams that compute, wait for each other by events, and copy to pinned memory."""
from rounds import deterministic, digest, need, run

need("torch")

import torch  # noqa: E402

deterministic(torch)
STREAMS = [torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
ROWS = torch.randn(512, 512, generator=torch.Generator().manual_seed(6)).pin_memory()


def one_round():
    matrices, hosts = [], []
    for stream in STREAMS:
        with torch.cuda.stream(stream):
            matrices.append(ROWS.cuda(non_blocking=True))
            hosts.append(torch.empty_like(ROWS).pin_memory())
    for _ in range(200):
        ready = [stream.record_event() for stream in STREAMS]
        before = list(matrices)
        for i, stream in enumerate(STREAMS):
            stream.wait_event(ready[1 - i])
            with torch.cuda.stream(stream):
                product = before[i] @ before[1 - i].T
                matrices[i] = product / product.abs().max() + before[i]
                before[1 - i].record_stream(stream)
                hosts[i].copy_(matrices[i], non_blocking=True)
    torch.cuda.synchronize()
    return digest(*matrices, *hosts)


run(one_round)
