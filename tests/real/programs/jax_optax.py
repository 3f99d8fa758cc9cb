#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX with optax: a network trained by AdamW, each step compiled by XLA as a whole."""
import os

from rounds import digest, need, run

need("jax", "optax")
# Tuning picks kernels by time, and so other ones in other runs.
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
# A share of the GPU taken at the start would tell nothing about allocation.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax  # noqa: E402  (it reads the variables above)
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402

if jax.default_backend() != "gpu":
    raise SystemExit("JAX has no GPU here")

KEYS = jax.random.split(jax.random.PRNGKey(21), 4)
SHAPES = ((128, 512), (512, 512), (512, 16))
WEIGHTS = [jax.random.normal(key, shape) / shape[0] ** 0.5 for key, shape in zip(KEYS, SHAPES)]
INPUTS = jax.random.normal(KEYS[3], (256, 128))
TARGETS = jnp.sin(INPUTS[:, :16])
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))


def loss_of(weights):
    hidden = INPUTS
    for matrix in weights[:-1]:
        hidden = jnp.tanh(hidden @ matrix)
    return jnp.mean((hidden @ weights[-1] - TARGETS) ** 2)


@jax.jit
def step(weights, state):
    loss, slopes = jax.value_and_grad(loss_of)(weights)
    updates, state = OPTIMIZER.update(slopes, state, weights)
    return loss, optax.apply_updates(weights, updates), state


def one_round():
    weights, state = WEIGHTS, OPTIMIZER.init(WEIGHTS)
    for _ in range(150):
        loss, weights, state = step(weights, state)
    return digest(loss, *weights, *jax.tree_util.tree_leaves(state))


run(one_round)
