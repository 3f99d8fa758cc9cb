#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch Lightning: the training of examples/."""
import os
import sys

from rounds import deterministic, digest, need, run

need("torch", "lightning")

import torch  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples"))
from lightning_training import train  # noqa: E402

deterministic(torch)


def one_round():
    return digest(*train(epochs=5).state_dict().values())


run(one_round)
