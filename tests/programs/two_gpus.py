#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two GPUs in one process: work on both, and copies between them by peer access."""
import argparse
import hashlib
import time

import torch


def digest(tensor):
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    args = parser.parse_args()
    print("peer access", torch.cuda.can_device_access_peer(0, 1))
    here = torch.arange(1 << 22, dtype=torch.int32, device="cuda:0")
    there = torch.ones(1 << 22, dtype=torch.int32, device="cuda:1")
    for k in range(args.steps):
        there = there * 3 + here.to("cuda:1") + k
        here = here * 5 + there.to("cuda:0")
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        print("step", k + 1, flush=True)
        time.sleep(args.step_ms / 1000)
    print("here", digest(here))
    print("there", digest(there))


if __name__ == "__main__":
    main()
