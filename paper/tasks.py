"""The data sets of the experiments on a device, with the batch size and epochs of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hdcos.errors import InputError
from paper.splits import split, standardised


@dataclass(frozen=True)
class Task:
    """Rows and labels on one device; `classes` is 2 where the network has a single logit."""

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    classes: int
    batch_size: int
    epochs: int

    @property
    def chance(self) -> float:
        return 1 / self.classes


def load(dataset: str, inputs: str, device: str, part: float = 1.0) -> Task:
    """The task of a cell; DataMissing says which file to get."""
    train_x, train_y, test_x, test_y = split(dataset)
    kept = round(part * len(train_x))
    parts = (train_x[:kept], train_y[:kept], test_x, test_y)
    if inputs == "standardised":
        parts = standardised(parts)
    elif inputs != "unit":
        raise InputError(f"inputs are unit or standardised, got {inputs!r}")
    classes, batch_size, epochs = (2, 256, 40) if dataset == "higgs" else (10, 128, 200)
    tensors = [torch.from_numpy(array).to(device) for array in parts]
    return Task(tensors[0], tensors[1], tensors[2], tensors[3], classes, batch_size, epochs)
