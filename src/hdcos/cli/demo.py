"""`hdcos demo`: a network classifies digits that no machine sees, in a minute, on this machine."""

from __future__ import annotations

import time

import click
import numpy as np
from rich.console import Console

from hdcos import data, nn
from hdcos.cli.model_cost import show_model_cost
from hdcos.link import Emulation
from hdcos.serve.local import local


@click.command()
def demo() -> None:
    """Classify shared digits with a shared network, and show what it cost."""
    console = Console(width=110 if not Console().is_terminal else None)
    model = nn.models.digits()
    images, labels = data.digits("test")
    console.print(
        f"An HD-cos network of {model.parameter_count:,} parameters for 8x8 digits, trained in the clear. A dealer\n"
        f"and two parties start as three processes on this machine. The network is split between the parties, each\n"
        f"image is masked by its owner; neither party sees a weight, a pixel or an answer.\n"
    )
    with local() as cluster:
        private = cluster.share(model, "digits")
        private.prepare(len(images))
        offline = cluster.cost.offline
        cluster.reset_cost()
        started = time.perf_counter()
        scores = private.predict(images)
        seconds = time.perf_counter() - started
        online = cluster.cost.online
    plain = model(images)
    agreeing = int((scores.argmax(1) == plain.argmax(1)).sum())
    console.print(f"accuracy in the clear    {100 * np.mean(plain.argmax(1) == labels):.2f} % of {len(labels)} images")
    console.print(f"accuracy on shares       {100 * np.mean(scores.argmax(1) == labels):.2f} %")
    console.print(f"labels that agree        {agreeing} of {len(labels)}")
    console.print(f"largest difference       {np.abs(scores - plain).max():.1e} between private and plain scores")
    console.print(
        f"online                   {online.rounds} rounds, {online.bytes_sent[0] / len(images):,.0f} bytes "
        f"an image each way, {seconds * 1e3:.0f} ms for all images"
    )
    console.print(
        f"offline                  {offline.bytes_sent[1] / len(images):,.0f} bytes an image, dealer to party 1\n"
    )
    show_model_cost("digits", "cos", "hadamard", 64, Emulation(), as_json=False, measured=True)
    console.print(
        "\nTry `hdcos cost activations` for what each activation costs, `hdcos cost lenet5 --batch 128 --measure`."
    )
