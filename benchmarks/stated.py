"""What is stated of each kind of network, and what the number rests on: the table of docs/security.md."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10

from hdcos import nn
from hdcos.api.quota import allowed_queries
from hdcos.secure import compile_network
from hdcos.secure.answers import stated_queries
from hdcos.secure.compile import PHASE_BITS, WHOLE_TURN


@dataclass(frozen=True)
class Row:
    """A network of 256 units; `{outputs}` of them."""

    name: str
    hidden: tuple[nn.Layer, ...]
    basis: str
    last: str = "HadamardDiagonal"

    def network(self, outputs: int) -> nn.Sequential:
        first, *more = self.hidden
        start = [first] if isinstance(first, nn.Reshape) else [nn.HadamardDiagonal(256, 256), first]
        before = nn.Sequential([*start, *more], input_shape=(256,))
        last = nn.LowRank(256, outputs, 4) if self.last == "LowRank" else None
        layers = [*before.layers, last or nn.HadamardDiagonal(before.output_shape[0], outputs)]
        return nn.Sequential(layers, input_shape=(256,))


ROWS = (
    Row("Cos", (nn.Cos(),), "measured: carry, table and dealt channel"),
    Row("Sin", (nn.Sin(),), "that of Cos: the same opening, a quarter turn on"),
    Row("Cos, three hidden layers", (nn.Cos(), *(nn.HadamardDiagonal(256, 256), nn.Cos()) * 2),
        "that of one: the last has the same public tail and more noise; the first was measured"),
    Row("LowRank of rank 4 behind Cos", (nn.Cos(),), "measured with 10 outputs; its rank counts as units", "LowRank"),
    *(Row(layer.kind, (layer,), "measured: carry and table") for layer in (nn.Sigmoid(), nn.Tanh(), nn.ExpM1())),
    Row("GELU", (nn.GELU(),), "measured: carry, x beside the series, and table"),
    *(Row(layer.kind, (layer,), "measured: carry and table; x beside the series as in GELU, it is the same x/2")
      for layer in (nn.SiLU(), nn.Softplus())),
    Row("Square", (nn.Square(),), "measured: what is squared, as it is opened"),
    Row("ReLU", (nn.ReLU(),), "measured: what is compared, as it is rounded"),
    Row("ReLU, three hidden layers", (nn.ReLU(), *(nn.HadamardDiagonal(256, 256), nn.ReLU()) * 2),
        "that of one; measured for the first and the last with 10 outputs"),
    Row("ReLU behind Conv2d", (nn.Reshape((1, 16, 16)), nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Flatten()),
        "that of ReLU, with the inputs of one pixel as units; measured with 10 outputs. Conv2d itself rounds "
        "nothing"),
    *(Row(layer.kind, (layer,), "measured; the opening of ReLU") for layer in
      (nn.LeakyReLU(), nn.ReLU6(), nn.HardTanh())),
    Row("MaxPool2d, 64 windows", (nn.Reshape((64, 2, 2)), nn.MaxPool2d(2), nn.Flatten()),
        "measured with 10 and 64 outputs; one bit fewer than ReLU"),
    Row("PolyReLU3", (nn.PolyReLU3(),), "an exception, measured with 10 outputs, with more by the law"),
    Row("GrowingCos", (nn.GrowingCos(),), "an exception, measured with 10 outputs, with more by the law"),
)  # fmt: skip


def table() -> str:
    """Queries that are stated of each, rounded down, with 10 and with 256 outputs; and the rows answered by default."""
    lines = [
        "| hidden layers, 256 wide | 10 outputs | 256 outputs | exact, 10 | exact, 256 | rows, 10 | rests on |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in ROWS:
        cells, answered = [row.name], 0
        for bits in (PHASE_BITS, WHOLE_TURN):
            for outputs in (10, 256):
                chosen = compile_network(row.network(outputs), bits)
                cells.append(_rounded_down(stated_queries(chosen)))
                answered = allowed_queries(chosen, 0) if (bits, outputs) == (PHASE_BITS, 10) else answered
        lines.append(f"| {' | '.join([*cells, f'{answered:,}', row.basis])} |")
    return "\n".join(lines)


def _rounded_down(number: float) -> str:
    unit = 10.0 ** (floor(log10(number) + 1e-9) - 1)
    return f"{floor(number / unit + 1e-9) * unit:.2g}"
