#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpytorch: the regression of a noisy wave by a Gaussian process, trained and asked."""
from rounds import deterministic, digest, need, run

need("torch", "gpytorch")

import gpytorch  # noqa: E402
import torch  # noqa: E402

deterministic(torch)
torch.manual_seed(14)
PLACES = torch.linspace(0, 1, 600, device="cuda")
WAVE = torch.sin(12 * PLACES) + 0.1 * torch.randn(600, device="cuda")


class Process(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(PLACES, WAVE, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, places):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(places),
                                                         self.covar_module(places))


def one_round():
    torch.manual_seed(15)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Process(likelihood).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(20):
        optimizer.zero_grad()
        loss = -marginal(model(PLACES), WAVE)
        loss.backward()
        optimizer.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        found = likelihood(model(torch.linspace(0, 1.2, 300, device="cuda")))
        return digest(loss, found.mean, found.variance)


run(one_round)
