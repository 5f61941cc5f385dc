"""A residual network with BatchNorm, as He et al. made for small images: with three blocks a stage it is ResNet-20."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions with BatchNorm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        out = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return functional.relu(out)


class ResNet(nn.Module):
    """For images of one channel and ten classes."""

    def __init__(self, widths: Sequence[int] = (16, 32, 64), blocks: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        stages, inputs = [], widths[0]
        for number, outputs in enumerate(widths):
            first = Block(inputs, outputs, 2 if number else 1)
            stages.append(nn.Sequential(first, *(Block(outputs, outputs, 1) for _ in range(blocks - 1))))
            inputs = outputs
        self.stages = nn.ModuleList(stages)
        self.linear = nn.Linear(inputs, 10)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.bn1(self.conv1(x)))
        for stage in self.stages:
            x = stage(x)
        x = functional.avg_pool2d(x, x.size()[3])
        return self.linear(x.view(x.size(0), -1))


def train(
    module: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float = 0.2, batch: int = 128
) -> nn.Module:
    """By SGD with momentum and a rate that rises to `rate` and falls to zero; in evaluation mode afterwards."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=rate / 2, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * (len(x) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[: len(x) // batch * batch].view(-1, batch):
            loss = functional.cross_entropy(module(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return module.eval()
