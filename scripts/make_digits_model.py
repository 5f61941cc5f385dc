"""Train the digits model that ships with hdcos, for `make demo` and the tests. Needs hdcos[torch] and scikit-learn.

    python scripts/make_digits_model.py [--output FILE]

Data: scikit-learn's bundled 8 x 8 digits, pixels divided by 16. The 1,797 rows are shuffled with NumPy's generator of
seed 0; the last 397 are the test set. Width, bandwidth and noise were chosen by four-fold cross-validation on the
other 1,400.
Model: three Hadamard-Diagonal layers with cosines between them, 64 -> 256 -> 256 -> 10, 1,098 parameters. The first
starts as random Fourier features. Softmax loss, AdamW, Gaussian noise of 0.1 on the inputs while training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from hdcos import nn

TEST_ROWS = 397
MODEL = Path(nn.__file__).parent / "pretrained" / "digits.safetensors"


def train(x: torch.Tensor, y: torch.Tensor, epochs: int = 100, batch: int = 32, noise: float = 0.1) -> nn.Sequential:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first = nn.HadamardDiagonal(64, 256, bandwidth=4.0)
    layers = [first, nn.Cos(), nn.HadamardDiagonal(256, 256), nn.Cos(), nn.HadamardDiagonal(256, 10)]
    twin = nn.Sequential(layers, seed=0).to_torch()
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.03, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(x) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[: len(x) // batch * batch].view(-1, batch):
            noisy = x[rows] + noise * torch.randn(batch, x.shape[1])
            loss = torch.nn.functional.cross_entropy(twin(noisy), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return nn.from_torch(twin)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the digits model that ships with hdcos.")
    parser.add_argument("--output", type=Path, default=MODEL)
    output = parser.parse_args().output
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    x, y = images[order] / 16, labels[order]
    model = train(torch.tensor(x[:-TEST_ROWS], dtype=torch.float32), torch.tensor(y[:-TEST_ROWS]))
    accuracy = (model(x[-TEST_ROWS:]).argmax(axis=1) == y[-TEST_ROWS:]).mean()
    model.save(output)
    print(f"digits: {100 * accuracy:.1f} % of {TEST_ROWS} test rows, {model.parameter_count} parameters, {output}")


if __name__ == "__main__":
    main()
