"""What the paper claims, and a verdict that is computed from the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paper.cells import IMAGES, Cell
from paper.experiments import ACTIVATIONS, EXPERIMENTS, STRUCTURES
from paper.report.document import Heading, Part, Table, signed
from paper.report.kernels import mean_errors
from paper.report.scores import Scores
from paper.report.tables import NAMES, cell_of_table

DATASETS = (*IMAGES, "higgs")
PRIVATE = tuple(name for name in ACTIVATIONS if name != "relu")


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
    return [Heading("Claims of the paper"), Table(["claim, and what is tested", "verdict", "numbers"], rows)]


def _best(scores: Scores, cell: Cell) -> float:
    """The cell's accuracy at the epochs of its table."""
    peers = [cell_of_table(cell.dataset, a, s) for a in ACTIVATIONS for s in STRUCTURES]
    score = scores.score(cell, scores.epochs(peers))
    if score is None:
        raise Missing
    return score.best.mean


def _cos_matches_relu(scores: Scores) -> tuple[bool, str]:
    gaps = {
        d: _best(scores, cell_of_table(d, "cos", "dense")) - _best(scores, cell_of_table(d, "relu", "dense"))
        for d in DATASETS
    }
    return all(gap >= -0.5 for gap in gaps.values()), _listed(gaps)


def _cos_is_best(structure: str) -> Callable[[Scores], tuple[bool, str]]:
    def test(scores: Scores) -> tuple[bool, str]:
        gaps = {}
        for dataset in DATASETS:
            others = [_best(scores, cell_of_table(dataset, a, structure)) for a in PRIVATE if a != "cos"]
            gaps[dataset] = _best(scores, cell_of_table(dataset, "cos", structure)) - max(others)
        return all(gap > 0 for gap in gaps.values()), _listed(gaps)

    return test


def _hadamard_is_close(scores: Scores) -> tuple[bool, str]:
    gaps = {}
    for dataset in DATASETS:
        values = {s: _best(scores, cell_of_table(dataset, "cos", s)) for s in STRUCTURES}
        gaps[dataset] = values["hadamard"] - max(values.values())
    return all(gap >= -1 for gap in gaps.values()), _listed(gaps)


def _hadamard_beats_low_rank(scores: Scores) -> tuple[bool, str]:
    wins, pairs = 0, 0
    for dataset in DATASETS:
        for activation in ACTIVATIONS:
            hadamard, low = (_best(scores, cell_of_table(dataset, activation, s)) for s in ("hadamard", "low_rank"))
            wins, pairs = wins + (hadamard > low), pairs + 1
    return wins > pairs / 2, f"in {wins} of {pairs} pairs"


def _depth_separates(scores: Scores) -> tuple[bool, str]:
    values = {a: _best(scores, Cell("higgs", a, "hadamard", depth=4)) for a in ("cos", "relu", "square", "expm1")}
    calm, wild = min(values["cos"], values["relu"]), max(values["square"], values["expm1"])
    return calm > wild + 5, ", ".join(f"{name} {value:.1f}" for name, value in values.items())


def _growth_needs_adam(scores: Scores) -> tuple[bool, str]:
    epochs = scores.epochs(EXPERIMENTS["mnist-optimizers"])
    gains = {}
    for activation in ("square", "expm1", "cos", "relu"):
        pair = [scores.score(Cell("mnist", activation, "dense", name), epochs) for name in ("adam", "sgd")]
        if pair[0] is None or pair[1] is None:
            raise Missing
        gains[activation] = pair[0].best.mean - pair[1].best.mean
    holds = min(gains["square"], gains["expm1"]) > 1 > max(gains["cos"], gains["relu"])
    return holds, "Adam less SGD: " + _signed(gains)


def _one_block_is_enough(scores: Scores) -> tuple[bool, str]:
    gains = {}
    for dataset in DATASETS:
        one, three = (cell for cell in EXPERIMENTS["blocks"] if cell.dataset == dataset)
        gains[dataset] = _best(scores, three) - _best(scores, one)
    return all(gain < 1 for gain in gains.values()), _listed(gains)


def _hadamard_beats(structure: str) -> Callable[[Scores], tuple[bool, str]]:
    def test(scores: Scores) -> tuple[bool, str]:
        cells = {a: [cell_of_table("fashion_mnist", a, s) for s in ("hadamard", structure)] for a in ACTIVATIONS}
        gaps = {a: _best(scores, first) - _best(scores, second) for a, (first, second) in cells.items()}
        wins = sum(gap > 0 for gap in gaps.values())
        return wins > len(gaps) / 2, f"ahead for {wins} of {len(gaps)}: " + _signed(gaps)

    return test


def _criteo(scores: Scores) -> tuple[bool, str]:
    cells = {"cos, hadamard": ("cos", "hadamard"), "relu, dense": ("relu", "dense")}
    values = {name: _best(scores, cell_of_table("criteo", *cell)) for name, cell in cells.items()}
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
    Claim("Four layers deep, only cosine and ReLU learn: 5 points ahead of square and expm1, SGD", _depth_separates),
    Claim("Square and expm1 need Adam, cosine and ReLU do not: more and less than 1 point", _growth_needs_adam),
    Claim("Three HD blocks gain less than 1 point over one", _one_block_is_enough),
    Claim("Hadamard-Diagonal is ahead of PHD for most activations", _hadamard_beats("phd")),
    Claim("Hadamard-Diagonal is ahead of circulant for most activations", _hadamard_beats("circulant")),
    Claim("Features of three blocks of random signs are closer to the kernel", _features(True, "signs3")),
    Claim("So are those of the layer with Gaussian diagonals", _features(True, "hadamard", "hadamard3")),
    Claim("Fastfood and circulant features are not", _features(False, "fastfood", "circulant")),
    Claim(
        "Criteo: cosine with Hadamard-Diagonal is at most 2 points of AUC-PR behind dense ReLU",
        _criteo,
        "the data may not be passed on",
    ),
)
