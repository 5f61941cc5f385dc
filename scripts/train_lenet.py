"""Train the LeNet-5 models that ship with hdcos. Needs hdcos[torch] and the IDX files below $HDCOS_DATA.

    HDCOS_DATA=... python scripts/train_lenet.py [mnist fashion_mnist] [--epochs 20]

LeNet-5 with cosine and Hadamard-Diagonal layers (3,390 parameters), pixels divided by 255, softmax loss, SGD with
momentum and a learning rate that falls to zero along a half cosine. The test images are only counted at the end.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hdcos import nn

FOLDERS = {"mnist": "mnist", "fashion_mnist": "fashion-mnist"}
MODELS = Path(nn.__file__).parent / "pretrained"


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of bytes: magic 0 0 8 AXES, the sizes as big-endian words, the bytes."""
    raw = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(raw, ">u4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def read(dataset: str, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    folder = Path(os.environ["HDCOS_DATA"]) / FOLDERS[dataset]
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:, None] / np.float32(255)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int64)
    return torch.from_numpy(images), torch.from_numpy(labels)


def train(
    model: nn.Sequential, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float, batch: int
) -> nn.Sequential:
    torch.manual_seed(0)
    twin = model.to_torch()
    optimizer = torch.optim.SGD(twin.parameters(), lr=rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(x) // batch))
    for epoch in range(epochs):
        start, total = time.perf_counter(), 0.0
        for rows in torch.randperm(len(x))[: len(x) // batch * batch].view(-1, batch):
            loss = torch.nn.functional.cross_entropy(twin(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        mean = total / (len(x) // batch)
        print(f"epoch {epoch + 1}: training loss {mean:.4f}, {time.perf_counter() - start:.0f} s", flush=True)
    return nn.from_torch(twin)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the LeNet-5 models that ship with hdcos.")
    parser.add_argument("datasets", nargs="*", default=list(FOLDERS), metavar="DATASET", help="mnist, fashion_mnist")
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
        x, y = read(dataset, "t10k")
        accuracy = (model(x.numpy()).argmax(axis=1) == y.numpy()).mean()
        model.save(options.output / f"lenet5_{dataset}.safetensors")
        print(f"{dataset}: {100 * accuracy:.2f} % of {len(x)} test images", flush=True)


if __name__ == "__main__":
    main()
