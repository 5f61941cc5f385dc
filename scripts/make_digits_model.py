"""Train the digits model that ships with hdcos, for `make demo` and the tests. Needs hdcos[torch] and scikit-learn.

    python scripts/make_digits_model.py [--output FILE]

Data: scikit-learn's bundled 8 x 8 digits in the split of hdcos.data.digits, 1,400 rows to train and 397 to test. Width,
bandwidth and noise were chosen by four-fold cross-validation on training rows.
Model: three Hadamard-Diagonal layers with cosines between them, 64 -> 256 -> 256 -> 10, 1,098 parameters. The first
starts as random Fourier features. Softmax loss, AdamW, Gaussian noise of 0.1 on the inputs while training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from hdcos import data, nn

MODEL = Path(nn.__file__).parent / "pretrained" / "digits.safetensors"


def train(x: torch.Tensor, y: torch.Tensor, epochs: int = 100, batch: int = 32, noise: float = 0.1) -> nn.Sequential:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first = nn.HadamardDiagonal(64, 256, bandwidth=4.0)
    layers = [first, nn.Cos(), nn.HadamardDiagonal(256, 256), nn.Cos(), nn.HadamardDiagonal(256, 10)]
    module = nn.Sequential(layers, seed=0).to_torch()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.03, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(x) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[: len(x) // batch * batch].view(-1, batch):
            noisy = x[rows] + noise * torch.randn(batch, x.shape[1])
            loss = torch.nn.functional.cross_entropy(module(noisy), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return nn.from_torch(module)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the digits model that ships with hdcos.")
    parser.add_argument("--output", type=Path, default=MODEL)
    output = parser.parse_args().output
    x, y = data.digits("train")
    model = train(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    images, labels = data.digits("test")
    accuracy = (model(images).argmax(axis=1) == labels).mean()
    model.save(output)
    print(f"digits: {100 * accuracy:.1f} % of {len(labels)} test rows, {model.parameter_count} parameters, {output}")


if __name__ == "__main__":
    main()
