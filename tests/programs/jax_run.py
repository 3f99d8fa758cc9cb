#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX: a network trained by gradient descent, compiled by XLA as a whole."""
import argparse
import os
import time

# A share of the GPU taken at the start would tell nothing about allocation.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") +
                           " --xla_gpu_deterministic_ops=true")

import jax  # noqa: E402  (it reads the variables above)
import jax.numpy as jnp  # noqa: E402


def loss_of(weights, inputs, targets):
    hidden = inputs
    for matrix in weights[:-1]:
        hidden = jnp.tanh(hidden @ matrix)
    return jnp.mean((hidden @ weights[-1] - targets) ** 2)


@jax.jit
def train(weights, inputs, targets):
    loss, slopes = jax.value_and_grad(loss_of)(weights, inputs, targets)
    return loss, [w - 0.05 * s for w, s in zip(weights, slopes)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--hold-mib", type=int, default=0, help="memory beside that")
    args = parser.parse_args()
    if jax.default_backend() != "gpu":
        raise SystemExit("jax_run: JAX has no GPU here")
    held = jnp.arange(args.hold_mib << 18, dtype=jnp.uint32)
    keys = jax.random.split(jax.random.PRNGKey(22), 6)
    shapes = ((128, 512), (512, 512), (512, 512), (512, 16))
    weights = [jax.random.normal(key, shape) / shape[0] ** 0.5 for key, shape in zip(keys, shapes)]
    inputs = jax.random.normal(keys[4], (256, 128))
    targets = jnp.sin(inputs[:, :16])
    for k in range(args.steps):
        loss, weights = train(weights, inputs, targets)
        print("step", k + 1, float(loss).hex(), flush=True)
        time.sleep(args.step_ms / 1000)
    print("held", int(held.sum()))
    print("weights", [float(jnp.abs(w).sum()).hex() for w in weights])


if __name__ == "__main__":
    main()
