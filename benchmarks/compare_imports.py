"""Networks that were made elsewhere: random PyTorch modules, imported and computed on shares, or refused by name; a
residual network of PyTorch, from a file of its own and from ONNX.

`make prove SUITE=compare PART=residual IMAGES=20 EPOCHS=1` takes a quick look.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import hdcos
from benchmarks.random_modules import Generator
from benchmarks.record import Line, at_least, at_most, exactly
from benchmarks.residual import ResNet, train
from hdcos import data, nn
from hdcos.errors import HdcosWarning, ModelError
from hdcos.secure.estimate import estimate, total
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_private

IMPORTED, REFUSED, ROWS = 200, 50, 3
IMAGES, EPOCHS = int(os.environ.get("IMAGES") or 1000), int(os.environ.get("EPOCHS") or 4)
BATCH = 20


def prove_imports(seed: int) -> Iterator[Line]:
    """The plaintext network against PyTorch, and the network on shares against the bound that follows from its bits."""
    apart, over, wrong = 0.0, 0.0, 0
    for number in range(IMPORTED):
        module, shape = Generator(seed + number).module()
        x = np.random.default_rng([seed, number]).normal(size=(ROWS, *shape))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HdcosWarning)
            model = nn.from_torch(module, x).calibrate(x).model
        expected = module[0](torch.from_numpy(x)).detach().numpy()
        apart = max(apart, float(np.abs(model(x) - expected).max()))
        over = max(over, float((np.abs(simulate_private(model, x) - model(x)) / error_bound(model, x)).max()))
    yield at_most(
        f"{IMPORTED} random PyTorch modules, imported: largest difference from PyTorch in float64", apart, 1e-9
    )
    yield at_most(f"{IMPORTED} random PyTorch modules, on shares: largest error over its derived bound", over, 1.0)
    for number in range(REFUSED):
        module, shape, name = Generator(seed + number).spoilt()
        try:
            nn.from_torch(module, shape)
        except ModelError as error:
            wrong += f"({name})" not in str(error)
        else:
            wrong += 1
    yield exactly(f"of {REFUSED} modules with an unsupported part: not refused by its name", wrong, 0)


def prove_residual(seed: int) -> Iterator[Line]:
    """ResNet-20 for images of 28 x 28, trained on Fashion-MNIST, from a file of PyTorch and from one of ONNX."""
    torch.manual_seed(seed)
    images, labels = (torch.from_numpy(each) for each in data.fashion_mnist("train"))
    module = train(ResNet(), images.float(), labels.long(), EPOCHS)
    x, y = data.fashion_mnist("test")
    x, y = x[:IMAGES], y[:IMAGES]
    with torch.no_grad():
        expected = module(torch.from_numpy(x).float()).argmax(1).numpy()
    with tempfile.TemporaryDirectory() as folder, hdcos.local() as cluster:
        for kind, model in _files(module, Path(folder)).items():
            cluster.reset_cost()
            private = cluster.share(model, calibrate=x[:BATCH])
            found = np.concatenate([private.predict(x[n : n + BATCH]).argmax(1) for n in range(0, len(x), BATCH)])
            cost = cluster.cost
            private.delete()
            agree, right = 100 * float((found == expected).mean()), 100 * float((found == y).mean())
            online, material = max(cost.online.bytes_sent) // len(x), sum(cost.offline.bytes_sent) // len(x)
            price = (
                f"{total(estimate(model)).online.rounds} rounds, {online:,} bytes online and {material:,} of material"
            )
            what = f"ResNet-20 on Fashion-MNIST from {kind}, {right:.1f} % right, {price} an image"
            yield at_least(f"{what}: labels of {len(x)} images as PyTorch's, %", agree, 99.5)


def _files(module: torch.nn.Module, folder: Path) -> dict[str, nn.Network]:
    """The network as it comes back from either kind of file."""
    torch.save(module, folder / "net.pt")
    rows = torch.export.Dim("rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = (torch.zeros(2, 1, 28, 28),)
        torch.onnx.export(module, example, folder / "net.onnx", dynamo=True, dynamic_shapes=({0: rows},), verbose=False)
    return {
        "PyTorch": nn.convert(folder / "net.pt", input_shape=(1, 28, 28), trust=True).model,
        "ONNX": nn.from_onnx(folder / "net.onnx"),
    }
