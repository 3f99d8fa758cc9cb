#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A training with PyTorch Lightning, which needs no change.

    cudaw run --turns --name train -- python lightning_training.py

Under Slurm Lightning handles SIGUSR1 itself, to save a checkpoint and queue the job anew: cudaw leaves the signal to
it, and `cudaw pause train` pauses the job.
"""
import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))

    def training_step(self, batch):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layers(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def train(epochs):
    lightning.seed_everything(1)
    inputs = torch.randn(4096, 32)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = Model()
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="gpu", devices=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=256))
    return model


if __name__ == "__main__":
    train(epochs=1000)
