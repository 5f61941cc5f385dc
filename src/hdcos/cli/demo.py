"""`hdcos demo`: a network learns digits that no machine sees, in a minute, on this machine."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from hdcos import data, nn
from hdcos.cli.cost import show_model_cost
from hdcos.cluster.local import local
from hdcos.link import Emulation
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.targets import one_hot

EPOCHS, BATCH, RATE = 10, 50, 0.2
RULE: dict[str, Any] = {"momentum": 0.9, "seed": 0}


@click.command(short_help="A network learns digits on shares, on this machine.")
def demo() -> None:
    """Train a network on shared digits, classify others with it, and show what that cost."""
    console = Console(highlight=False)
    x, y = data.digits("train")
    images, labels = data.digits("test")
    model = nn.Sequential([nn.HadamardDiagonal(64, 128, bandwidth=3.0), nn.Cos(), nn.Dense(128, 10)])
    console.print(
        f"A network of cosines with {model.parameter_count:,} parameters is to learn 8x8 digits. A dealer and two "
        f"parties start as three processes on this machine. {len(x):,} images, their labels and the network are split "
        f"between the parties: neither sees a pixel, a label, a weight, a gradient or an answer.\n"
    )
    with local() as cluster:
        started = time.perf_counter()
        private = cluster.fit(model, x, y, epochs=EPOCHS, batch_size=BATCH, lr=RATE, watch=0, **RULE)
        trained_s, training = time.perf_counter() - started, cluster.cost
        private.prepare(len(images))
        cluster.reset_cost()
        started = time.perf_counter()
        scores = private.predict(images)
        predicted_s, online = time.perf_counter() - started, cluster.cost.online
    plain = plain_fit(model, x, one_hot(y, 10), EPOCHS, BATCH, lambda epoch: RATE, **RULE)(images)
    steps = EPOCHS * (len(x) // BATCH)
    lines = {
        "untrained": f"{_percent(model(images), labels)} of {len(labels)} test images are recognised",
        "trained on shares": f"{_percent(scores, labels)}, after {EPOCHS} epochs",
        "trained in plaintext": f"{_percent(plain, labels)}, same settings, in floating point",
        "largest difference": f"{np.abs(scores - plain).max():.1e} between the scores of the two",
        "training": f"{steps} steps in {trained_s:.1f} s, {training.online.rounds // steps} rounds and "
        f"{training.online.bytes_sent[0] / steps / 1e3:,.0f} kB each way in a step; dealer "
        f"{training.offline.bytes_sent[1] / steps / 1e6:.1f} MB",
        "inference": f"{online.rounds} rounds, {online.bytes_sent[0] / len(images):,.0f} bytes an image each way, "
        f"{predicted_s * 1e3:.0f} ms for all images",
    }
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, text in lines.items():
        table.add_row(name, text)
    console.print(table)
    console.print("\nWhat inference with a ready network costs, layer by layer:\n")
    show_model_cost("digits", nn.models.digits(), 64, Emulation(), measured=True)
    console.print(
        "\nTry `hdcos cost activations` for what each activation costs, `hdcos cost lenet5 --batch 128 --measure`."
    )


def _percent(scores: np.ndarray, labels: np.ndarray) -> str:
    return f"{np.mean(scores.argmax(1) == labels):.2%}"
