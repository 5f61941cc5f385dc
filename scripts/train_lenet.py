"""Train the LeNet-5 models that ship with hdcos. Needs hdcos[torch] and the IDX files below $HDCOS_DATA.

    HDCOS_DATA=... python scripts/train_lenet.py [mnist fashion_mnist] [--epochs 20]

LeNet-5 with cosine and Hadamard-Diagonal layers (3,390 parameters), pixels divided by 255, softmax loss, SGD with
momentum and a learning rate that falls to zero along a half cosine. The test images are only counted at the end.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from hdcos import data, nn

DATASETS = ("mnist", "fashion_mnist")
MODELS = Path(nn.__file__).parent / "pretrained"


def read(dataset: str, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = getattr(data, dataset)(part)
    return torch.from_numpy(images).float(), torch.from_numpy(labels)


def train(
    model: nn.Sequential, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float, batch: int
) -> nn.Sequential:
    torch.manual_seed(0)
    module = model.to_torch()
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(x) // batch))
    for epoch in range(epochs):
        start, total = time.perf_counter(), 0.0
        for rows in torch.randperm(len(x))[: len(x) // batch * batch].view(-1, batch):
            loss = torch.nn.functional.cross_entropy(module(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        mean = total / (len(x) // batch)
        print(f"epoch {epoch + 1}: training loss {mean:.4f}, {time.perf_counter() - start:.0f} s", flush=True)
    return nn.from_torch(module)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the LeNet-5 models that ship with hdcos.")
    parser.add_argument("datasets", nargs="*", default=list(DATASETS), metavar="DATASET", help="mnist, fashion_mnist")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=MODELS, help="folder for the model files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for dataset in options.datasets:
        model = nn.models.lenet5("cos", "hadamard", options.seed)
        model = train(model, *read(dataset, "train"), options.epochs, options.rate, options.batch)
        x, y = read(dataset, "test")
        accuracy = (model(x.numpy()).argmax(axis=1) == y.numpy()).mean()
        model.save(options.output / f"lenet5_{dataset}.safetensors")
        print(f"{dataset}: {100 * accuracy:.2f} % of {len(x)} test images", flush=True)


if __name__ == "__main__":
    main()
