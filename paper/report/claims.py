"""What the paper claims, and a verdict that is computed from the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from hdcos.nn.models import mlp
from hdcos.secure.estimate import LayerCost, estimate, total
from paper.cells import IMAGES, Cell
from paper.experiments import ACTIVATIONS, EXPERIMENTS, STRUCTURES
from paper.report.document import Heading, Part, Table, Text, signed
from paper.report.kernels import mean_errors
from paper.report.published import PAPER_STEPS
from paper.report.scores import Scores
from paper.report.tables import NAMES, cell_of_table

DATASETS = (*IMAGES, "higgs")
PRIVATE = tuple(name for name in ACTIVATIONS if name != "relu")
WIDTHS = (16, 64, 256, 1024)
NOTE = (
    "Numbers are points of accuracy after the longest training that all cells of a claim had. Online bytes are linear "
    "in d for both structures: hdcos opens the masked weights of a model once, and from then on one masked value for "
    "each input of a layer. What Hadamard-Diagonal layers save are multiplications, rounds and a constant factor of "
    "bytes."
)


class Missing(Exception):
    """A run that the claim needs is not among the results."""


@dataclass(frozen=True)
class Claim:
    text: str
    test: Callable[[Scores], tuple[bool, str]]
    """Whether it holds, and the numbers that say so."""
    missing: str = "runs are missing"
    """Why it cannot be tested where runs are missing."""


def claims(scores: Scores) -> list[Part]:
    rows = []
    for claim in CLAIMS:
        try:
            holds, numbers = claim.test(scores)
            rows.append([claim.text, "holds" if holds else "does not hold", numbers])
        except Missing:
            rows.append([claim.text, "not testable here", claim.missing])
    higgs = scores.longest(cell_of_table("higgs", "cos", "hadamard"))
    steps = f" Higgs: {higgs.steps:,} steps, where the paper takes {PAPER_STEPS:,}." if higgs else ""
    return [
        Heading("Claims of the paper"),
        Table(["claim, and what is tested", "verdict", "numbers"], rows),
        Text(NOTE + steps),
    ]


def _best(scores: Scores, *cells: Cell) -> list[float]:
    """The accuracies of cells after the longest training that all of them had."""
    lengths = set.intersection(*(set(scores.lengths(cell)) for cell in cells))
    for epochs in sorted(lengths, reverse=True):
        found = [scores.score(cell, epochs) for cell in cells]
        if None not in found:
            return [score.best.mean for score in found if score]
    raise Missing


def _cos_matches_relu(scores: Scores) -> tuple[bool, str]:
    gaps = {}
    for dataset in DATASETS:
        cosine, relu = _best(scores, *(cell_of_table(dataset, name, "dense") for name in ("cos", "relu")))
        gaps[dataset] = cosine - relu
    return all(gap >= -0.5 for gap in gaps.values()), _listed(gaps)


def _cos_is_best(structure: str) -> Callable[[Scores], tuple[bool, str]]:
    def test(scores: Scores) -> tuple[bool, str]:
        gaps = {}
        for dataset in DATASETS:
            cosine, *others = _best(scores, *(cell_of_table(dataset, a, structure) for a in PRIVATE))
            gaps[dataset] = cosine - max(others)
        return all(gap > 0 for gap in gaps.values()), _listed(gaps)

    return test


def _hadamard_is_close(scores: Scores) -> tuple[bool, str]:
    gaps = {}
    for dataset in DATASETS:
        values = _best(scores, *(cell_of_table(dataset, "cos", s) for s in STRUCTURES))
        gaps[dataset] = values[STRUCTURES.index("hadamard")] - max(values)
    return all(gap >= -1 for gap in gaps.values()), _listed(gaps)


def _hadamard_beats_low_rank(scores: Scores) -> tuple[bool, str]:
    wins, pairs = 0, 0
    for dataset in DATASETS:
        for activation in ACTIVATIONS:
            hadamard, low = _best(scores, *(cell_of_table(dataset, activation, s) for s in ("hadamard", "low_rank")))
            wins, pairs = wins + (hadamard > low), pairs + 1
    return wins > pairs / 2, f"in {wins} of {pairs} pairs"


def _depth_separates(structure: str) -> Callable[[Scores], tuple[bool, str]]:
    def test(scores: Scores) -> tuple[bool, str]:
        names = ("cos", "relu", "square", "expm1")
        found = _best(scores, *(Cell("higgs", name, structure, depth=4) for name in names))
        holds = min(found[:2]) > max(found[2:]) + 5
        return holds, ", ".join(f"{name} {value:.1f}" for name, value in zip(names, found, strict=True))

    return test


def _growth_needs_adam(scores: Scores) -> tuple[bool, str]:
    gains = {}
    for activation in ("square", "expm1", "cos", "relu"):
        adam, sgd = _best(scores, *(Cell("mnist", activation, "dense", name) for name in ("adam", "sgd")))
        gains[activation] = adam - sgd
    holds = min(gains["square"], gains["expm1"]) > 1 > max(gains["cos"], gains["relu"])
    return holds, "Adam less SGD: " + _signed(gains)


def _cos_is_best_with_adam(scores: Scores) -> tuple[bool, str]:
    tables = {
        "MNIST, dense": [Cell("mnist", a, "dense", "adam") for a in PRIVATE],
        "Higgs (sample), Hadamard": [Cell("higgs", a, "hadamard", "adam", 4) for a in ("cos", "square", "expm1")],
    }
    gaps = {}
    for name, cells in tables.items():
        cosine, *others = _best(scores, *cells)
        gaps[name] = cosine - max(others)
    return all(gap > 0 for gap in gaps.values()), _signed(gaps)


def _wide_range_of_rates(scores: Scores) -> tuple[bool, str]:
    """How many of the six rates come within 5 points of the best accuracy of any activation."""
    said, holds = [], True
    names = ("cos", "relu", "square", "expm1")
    for optimizer in ("sgd", "adam"):
        cells = [Cell("mnist", name, "dense", optimizer) for name in names]
        best = max(_best(scores, *cells))
        counts = {}
        for name, cell in zip(names, cells, strict=True):
            score = scores.score(cell, scores.epochs(cells))
            if score is None:
                raise Missing
            counts[name] = sum(at.mean >= best - 5 for at in score.by_rate.values())
        holds = holds and min(counts["cos"], counts["relu"]) > max(counts["square"], counts["expm1"])
        said.append(f"{optimizer}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    return holds, "; ".join(said)


def _small_deviations(scores: Scores) -> tuple[bool, str]:
    """0.1 in order of magnitude is less than the square root of 0.1."""
    cells = [cell_of_table(d, a, s) for d in DATASETS for a in ACTIVATIONS for s in STRUCTURES]
    found = [(cell, score) for cell in cells if (score := scores.longest(cell)) is not None and score.trials > 1]
    if len(found) < len(cells):
        raise Missing
    small = sum(score.best.deviation < sqrt(0.1) for _, score in found)
    cell, largest = max(found, key=lambda pair: pair[1].best.deviation)
    name = f"{NAMES[cell.dataset]}, {cell.activation}, {cell.structure}"
    calm = max(score.best.deviation for cell, score in found if cell.activation in ("cos", "relu"))
    said = f"in {small} of {len(found)} cells; cosine and ReLU up to {calm:.1f}, largest {largest.best.deviation:.1f}"
    return small == len(found), f"{said} ({name})"


def _layer(structure: str, size: int) -> LayerCost:
    """What two layers of a structure with a cosine between them take."""
    return total(estimate(mlp([size, size, size], "cos", structure), 1))


def _fewer_multiplications(scores: Scores) -> tuple[bool, str]:
    counts = {d: [_layer(s, d).multiplications // 2 for s in ("dense", "hadamard")] for d in WIDTHS}
    said = ", ".join(f"d = {d}: {dense:,} and {hadamard:,}" for d, (dense, hadamard) in counts.items())
    return all(pair == [d * d, d] for d, pair in counts.items()), said


def _less_communication(scores: Scores) -> tuple[bool, str]:
    pairs = {d: [_layer(s, d).online for s in ("dense", "hadamard")] for d in WIDTHS}
    ratios = [dense.bytes_sent / hadamard.bytes_sent for dense, hadamard in pairs.values()]
    bytes_said = ", ".join(f"d = {d}: {a.bytes_sent:,} and {b.bytes_sent:,}" for d, (a, b) in pairs.items())
    rounds = " and ".join(str(cost.rounds) for cost in pairs[WIDTHS[0]])
    said = f"online bytes of layer, cosine, layer, {bytes_said}; ratio {min(ratios):.1f} to {max(ratios):.1f}"
    return ratios[-1] > 2 * ratios[0], f"{said}; rounds {rounds}"


def _one_block_is_enough(scores: Scores) -> tuple[bool, str]:
    gains = {}
    for dataset in DATASETS:
        one, three = (cell for cell in EXPERIMENTS["blocks"] if cell.dataset == dataset)
        before, after = _best(scores, one, three)
        gains[dataset] = after - before
    return all(gain < 1 for gain in gains.values()), _listed(gains)


def _hadamard_beats(structure: str) -> Callable[[Scores], tuple[bool, str]]:
    def test(scores: Scores) -> tuple[bool, str]:
        gaps = {}
        for activation in ACTIVATIONS:
            pair = (cell_of_table("fashion_mnist", activation, s) for s in ("hadamard", structure))
            first, second = _best(scores, *pair)
            gaps[activation] = first - second
        wins = sum(gap > 0 for gap in gaps.values())
        return wins > len(gaps) / 2, f"ahead for {wins} of {len(gaps)}: " + _signed(gaps)

    return test


def _criteo(scores: Scores) -> tuple[bool, str]:
    cells = {"cos, hadamard": ("cos", "hadamard"), "relu, dense": ("relu", "dense")}
    found = _best(scores, *(cell_of_table("criteo", *cell) for cell in cells.values()))
    values = dict(zip(cells, found, strict=True))
    holds = values["cos, hadamard"] - values["relu, dense"] >= -2
    return holds, "; ".join(f"{name} {value:.1f}" for name, value in values.items())


def _features(closer: bool, *names: str) -> Callable[[Scores], tuple[bool, str]]:
    """Whether the features' errors are below those of independent ones at every size, or above."""

    def test(scores: Scores) -> tuple[bool, str]:
        errors = mean_errors(scores.untrained)
        if not {"gaussian", *names} <= set(errors):
            raise Missing
        ratios = {n: [errors[n][d] / errors["gaussian"][d] for d in errors[n]] for n in names}
        holds = all((ratio < 1) == closer for listed in ratios.values() for ratio in listed)
        said = ", ".join(f"{name} {min(listed):.2f} to {max(listed):.2f}" for name, listed in ratios.items())
        return holds, f"error over that of independent features: {said}"

    return test


def _listed(gaps: dict[str, float]) -> str:
    return _signed({NAMES[dataset]: gap for dataset, gap in gaps.items()})


def _signed(gaps: dict[str, float]) -> str:
    return ", ".join(f"{name} {signed(gap)}" for name, gap in gaps.items())


CLAIMS = (
    Claim("Cosine matches ReLU: with dense layers it is at most 0.5 points behind", _cos_matches_relu),
    Claim("Cosine is ahead of the other activations that can be private, dense layers", _cos_is_best("dense")),
    Claim("The same with Hadamard-Diagonal layers", _cos_is_best("hadamard")),
    Claim("Hadamard-Diagonal is at most 1 point behind the best structure, cosine", _hadamard_is_close),
    Claim("Hadamard-Diagonal is ahead of low rank in most cases", _hadamard_beats_low_rank),
    Claim(
        "Four Hadamard layers deep, only cosine and ReLU learn: 5 points ahead of square and expm1, SGD, Higgs",
        _depth_separates("hadamard"),
    ),
    Claim("The same with dense layers", _depth_separates("dense")),
    Claim("The same with low-rank layers", _depth_separates("low_rank")),
    Claim("Square and expm1 need Adam, cosine and ReLU do not: more and less than 1 point", _growth_needs_adam),
    Claim("With Adam, cosine is still ahead of the other activations that can be private", _cos_is_best_with_adam),
    Claim(
        "Cosine and ReLU learn at a wide range of rates: more of the six rates come within 5 points of the best "
        "accuracy than of square and expm1, MNIST, dense layers",
        _wide_range_of_rates,
    ),
    Claim("The standard deviation over trials is of the order of 0.1 or smaller: below 0.32", _small_deviations),
    Claim("Three HD blocks gain less than 1 point over one", _one_block_is_enough),
    Claim("Hadamard-Diagonal is ahead of PHD for most activations", _hadamard_beats("phd")),
    Claim("Hadamard-Diagonal is ahead of circulant for most activations", _hadamard_beats("circulant")),
    Claim("Features of three blocks of random signs are closer to the kernel", _features(True, "signs3")),
    Claim("So are those of the layer with Gaussian diagonals", _features(True, "hadamard", "hadamard3")),
    Claim("Fastfood and circulant features are not", _features(False, "fastfood", "circulant")),
    Claim("A layer of width d takes d secure multiplications instead of d^2", _fewer_multiplications),
    Claim(
        "Its communication is O(d) instead of O(d^2): the advantage over dense layers grows with d",
        _less_communication,
    ),
    Claim(
        "Criteo: cosine with Hadamard-Diagonal is at most 2 points of AUC-PR behind dense ReLU",
        _criteo,
        "the data may not be passed on",
    ),
)
