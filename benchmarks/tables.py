"""Every figure in the documents: rendered from results and the planner into marked blocks, or compared with them.

`python -m benchmarks.tables` writes the blocks and the plot, `--check` exits 1 if one differs from the results, or if
results were recorded at a commit that the history does not have.
The README has a choice of a few rows; docs/benchmarks.md has all of them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import gpu_aims, plot, stated
from benchmarks.history import MARK, lost_commits
from benchmarks.record import RESULTS
from hdcos import data, nn
from hdcos.cli.networks import DENSE, KERNEL, network_cost
from hdcos.cli.networks import networks as ready_networks
from hdcos.link import Emulation
from hdcos.nn.activations import SeriesActivation
from hdcos.nn.comparing import Comparing
from hdcos.planning.figures import read_figures
from hdcos.planning.needs import SPARE
from hdcos.planning.serving import Load
from hdcos.planning.serving_plan import ServingPlan, plan_serving
from hdcos.planning.training_plan import Run, TrainingPlan, plan_training
from hdcos.secure.answers import LARGEST_NOISE
from hdcos.secure.estimate import estimate
from hdcos.testing.bounds import error_bound
from paper import results
from paper.cells import IMAGES
from paper.report.scores import Scores
from paper.report.tables import cell_of_table

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/design.md", "docs/security.md", "docs/benchmarks.md", "docs/gpu.md")
PLOT = ROOT / "docs" / "images" / "activations.svg"
PAIRS_PLOT = ROOT / "docs" / "images" / "pairs.svg"
PEERS_PLOT = ROOT / "docs" / "peers.svg"


def _results(name: str) -> list[dict[str, Any]]:
    """The records of a suite; none of one that was not measured yet."""
    path = RESULTS / f"{name}.json"
    records: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return records


def _found(suites: str, pattern: str, nth: int = 0) -> tuple[str, ...]:
    """The numbers in the nth line of a suite, or of several, that the pattern matches; there must be one."""
    records = [record for suite in suites.split() for record in _results(suite)]
    matches = [match for record in records if (match := re.search(pattern, record["line"]))]
    if len(matches) <= nth:
        raise SystemExit(f"no line of {suites} in benchmarks/results matches {pattern!r}")
    return matches[nth].groups()


def _value(suite: str, line: str) -> Any:
    """The value of the one line of a suite that starts like this."""
    (found,) = [record["value"] for record in _results(suite) if record["line"].startswith(line)]
    return found


def _table(headings: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns but the first hold numbers."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(
        f"| {' | '.join(cells)} |".replace("| --- ", "|---").replace(" ---: |", "---:|") for cells in lines
    )


def summary() -> str:
    """Six rows that say what it costs, beside plaintext PyTorch on the same machine."""
    took = r"([\d.]+) ms"
    mlp = rf"criteo_mlp batch {{}}: online .*? over plaintext .*?{took} \(predict {took}, offline {took} per input"
    lenet = rf"LeNet-5 batch 128: online .*?\(dense cosine {took}.*?; predict {took}, offline {took} per input"
    step = rf"its time per step, {took}, over .*?\(dense {took}.*? and {took} per step"
    rows = []
    for name, network, batch, pattern in (
        ("Predict 1 row, MLP of 4 x 1024", "criteo_mlp", 1, mlp.format(1)),
        ("Predict 128 rows, the same MLP", "criteo_mlp", 128, mlp.format(128)),
        ("Predict 128 images, LeNet-5", "LeNet-5", 128, lenet),
    ):
        plain, call, offline = map(float, _found("inference", pattern))
        rounds = _value("inference", f"{network} HD-cos, rounds per batch, input masked")
        rows.append([name, f"{rounds}", f"{call:.3g} ms", f"{offline * batch:.3g} ms", f"{plain:.3g} ms"])
    for nth, (name, network) in enumerate(
        (
            ("Train on a batch of 256 rows, MLP of 4 x 16", "Higgs MLP, batch 256"),
            ("Train on a batch of 128 images, LeNet-5", "LeNet-5, batch 128"),
        )
    ):
        call, plain, offline = map(float, _found("training", step, nth))
        rounds = _value("training", f"{network}, logistic loss: rounds per step")
        rows.append([name, f"{rounds}", f"{call:.3g} ms", f"{offline:.3g} ms, alongside", f"{plain:.3g} ms"])
    ours, theirs = _found("service", r"(\d+) predictions per second .* over those of one plaintext .*?, (\d+)$")
    rounds = _value("inference", "criteo_mlp HD-cos, rounds per batch, input shares")
    rows.append(
        ["Serve 64 clients over HTTPS, MLP of 4 x 1024", f"{rounds}", f"{ours} rows/s", "alongside", f"{theirs} rows/s"]
    )
    machine = _results("inference")[0]["machine"].split(", kernels")[0]
    table = _table(["work", "rounds", "on shares", "preprocessing", "plaintext"], rows)
    return f"{table}\n\nOne machine ({machine}) runs the dealer, both parties, the caller and plaintext PyTorch."


def accuracy() -> str:
    """Accuracy on shares beside plaintext, for predictions and for training."""
    both = r"([\d.]+) % on shares.*? ([\d.]+) % in plaintext"
    rows = []
    for name, suites, start in (
        ("predict MNIST, 10,000 images, LeNet-5", "paper", "MNIST, 10,000"),
        ("predict Fashion-MNIST, 10,000 images, LeNet-5", "paper", "Fashion-MNIST, 10,000"),
        ("predict HIGGS sample, 20,269 rows, MLP", "paper", r"Higgs \(sample\), 20,269"),
        ("train on MNIST, 10 epochs, LeNet-5", "accuracy training", "MNIST, LeNet-5 HD-cos, 10"),
        ("train on Fashion-MNIST, 10 epochs, LeNet-5", "accuracy training", "Fashion-MNIST, LeNet-5 HD-cos, 10"),
        ("train on HIGGS sample, 20 epochs, MLP", "training", "HIGGS sample.*lr 0.5"),
    ):
        shares, plain = _found(suites, f"^{start}.*?{both}")
        rows.append([name, f"{shares} %", f"{plain} %"])
    return _table(["accuracy on test rows", "on shares", "in plaintext"], rows)


def networks() -> str:
    """The ready networks: accuracies from the results, prices of a row from the planner."""
    prices = [network_cost(name, model) for name, model in ready_networks().items()]
    found = _accuracies()
    rows = []
    for price in prices:
        more = "+" if price.network == DENSE else ""  # what comparisons would add
        name = f"{price.network}, ReLU" if more else price.network
        right = [found.get((price.network, dataset), "-") for dataset in ("digits", "mnist", "fashion_mnist", "higgs")]
        online = [f"{number:,}{more}" for number in (price.rounds, price.online_bytes)]
        rows.append([name, f"{price.parameters:,}", *right, *online, f"{price.row_bytes:,}"])
        rows[-1].append(f"{price.offline_bytes:,}{more}")
    head = ["network", "parameters", "digits", "MNIST", "Fashion-MNIST", "HIGGS sample"]
    return _table([*head, "rounds", "online bytes", "row bytes", "dealt bytes"], rows)


def _accuracies() -> dict[tuple[str, str], str]:
    """In per cent by network and data set, as far as results are there."""
    shared = accuracy().splitlines()[2:5]
    names = (("lenet5", "mnist"), ("lenet5", "fashion_mnist"), ("higgs_mlp", "higgs"))
    found = {name: line.split(" | ")[1] for name, line in zip(names, shared, strict=True)}
    images, labels = data.digits("test")
    found["digits", "digits"] = f"{100 * (nn.models.digits()(images).argmax(1) == labels).mean():.2f} %"
    runs = results.read(ROOT / "results" / "paper.jsonl")
    for run in runs:
        if run["experiment"] == "kernel-machine" and (run["dimension"], run["seed"]) == (4096, 0):
            found[KERNEL, run["dataset"]] = f"{100 * run['value']:.2f} %"
    scores = Scores(runs)
    trained = [json.loads(line) for line in (ROOT / "results" / "ready.jsonl").read_text().splitlines()]
    for dataset in IMAGES:
        relu = scores.longest(cell_of_table(dataset, "relu", "dense"))
        if relu is not None:
            found[DENSE, dataset] = f"{relu.best.mean:.2f} %"
        own = [row for row in trained if row["dataset"] == dataset]
        means = [fmean(row["averaged"] for row in own if row["rate"] == rate) for rate in {row["rate"] for row in own}]
        found["convnet", dataset] = f"{100 * max(means):.2f} %"
    return found


def accuracy_short() -> str:
    """The accuracy of MNIST in a sentence."""
    rows = [line.strip("| ").split(" | ") for line in accuracy().splitlines()[2:]]
    (_, predicted, plain), (_, trained, plain_trained) = rows[0], rows[3]
    return (
        f"LeNet-5 on the 10,000 test images of MNIST: predictions are right in {predicted} on shares and {plain} in\n"
        f"plaintext; after ten epochs of training in {trained} on shares and {plain_trained} in plaintext. "
        "[More data sets](docs/benchmarks.md#accuracy)."
    )


def picture(folder: str = "") -> str:
    """The plot for the README: the comparison with other systems where it was measured, else that of activations."""
    if PEERS_PLOT.exists():
        return f"![Time of the same work on hdcos, CrypTen and SPU]({folder}{PEERS_PLOT.name})"
    return f"![Bytes and time of each activation on shares]({folder}images/{PLOT.name})"


def peers(brief: bool = False) -> str:
    """The comparison with other systems, or six rows of it; a note while it was not measured."""
    path = RESULTS / "peers.json"
    if not path.exists():
        return "Run `make peers` to measure hdcos, CrypTen and SPU side by side on your machine."
    from benchmarks.peers import report

    results = json.loads(path.read_text())
    return str(report.brief(results) if brief else report.table(results))


def activations() -> str:
    """The activation table, as `hdcos cost activations --json` measured it."""
    rows = [
        "| activation | rounds in the paper | online rounds | online bytes per element | offline bytes per element "
        "| largest error | on | ms for 131,072 |",
        "|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    for row in _results("activations"):
        low, high = row["interval"]
        paper = "-" if row["paper_rounds"] is None else row["paper_rounds"]
        rows.append(
            f"| {row['activation']} | {paper} | {row['rounds']} | {row['bytes_per_element']:.4g} "
            f"| {row['offline_bytes_per_element']:.4g} | {row['max_abs_error']:.1e} | [{low:g}, {high:g}] "
            f"| {row['ms']:.2f} |"
        )
    return "\n".join(rows)


def proof(suite: str, part: str = "", without: str | tuple[str, ...] = ()) -> str:
    """The lines of a suite, or of one part of it or all others, with their targets."""
    records = [
        record
        for record in _results(suite)
        if record["command"].endswith(part) and not (without and record["command"].endswith(without))
    ]
    if not records:
        return f"Not measured yet: `make prove SUITE={suite}` does."
    rows = ["| metric | result | target |", "|---|---:|---:|"]
    for record in records:
        value = record["value"]
        shown = f"{value:.5g}" if isinstance(value, float) else value
        missed = "" if record["ok"] else ", not reached"
        rows.append(f"| {record['line']} | {shown} | {record['limit']}{missed} |")
    rows.append("")
    machines = "; ".join(dict.fromkeys(record["machine"] for record in records))
    rows.append(f"Measured on {machines}, by `make prove SUITE={suite}{' ' + part if part else ''}`.")
    if marked := sum(record["commit"].endswith(MARK) for record in records):
        rows[-1] += f" The history no longer has the commit that {marked} of the lines were measured at."
    return "\n".join(rows)


DATASETS = {"lenet5": ("mnist", "fashion_mnist"), "higgs_mlp": ("higgs",), "criteo_mlp": ()}
"""That the paper trains its networks on, as far as there are real rows."""


def compared() -> str:
    """The paper's networks with the cosine and with ReLU: what a row costs on shares, and how often each is right."""
    taken = re.compile(
        r"(\w+), (\w+) (\w+)(.*): a row takes (\d+) rounds, (\S+) bytes online each way, (\S+) of material, (\S+) ms;"
    )
    scores, rows = Scores(results.read(ROOT / "results" / "paper.jsonl")), []
    for record in _results("compare"):
        if found := taken.match(record["line"]):
            network, structure, activation, way, *figures = found.groups()
            best = [scores.longest(cell_of_table(name, activation, structure)) for name in DATASETS[network]]
            right = ", ".join(f"{score.best.mean:.1f} %" for score in best if score) or "-"
            rows.append([f"{network}, {structure} {activation}{way}", *figures, f"{record['value']:.3g}", right])
    headings = ["network", "rounds", "bytes each way", "bytes of material", "ms", "time over the first", "right"]
    return _table(headings, rows)


def planned() -> str:
    """What two large loads would need, by `hdcos plan` with the figures that come with hdcos."""
    figures, network, day_s = read_figures(), Emulation(rtt_ms=10), 86_400
    plans: list[tuple[str, ServingPlan | TrainingPlan]] = [
        (
            f"10^9 criteo_mlp predictions a day, {rows} to a request",
            plan_serving(nn.models.criteo_mlp(), figures, Load(1e9 / day_s / rows, rows), network),
        )
        for rows in (1, 64)
    ]
    run = Run(10**9, 1, 8192)
    plans += [
        (
            f"an epoch over 10^9 HIGGS rows in {hours} hours, batch {run.batch:,}",
            plan_training(nn.models.higgs_mlp(), figures, run, network, hours=hours),
        )
        for hours in (24, 4)
    ]
    rows = []
    for name, made in plans:
        party, other, dealer = made.needs
        seen = (
            f"p50 {made.p50_s * 1e3:.0f} ms, p99 {made.p99_s * 1e3:.0f} ms"
            if isinstance(made, ServingPlan)
            else f"{made.hours:.1f} hours"
        )
        cores, lines = f"{party.cores} + {other.cores} + {dealer.cores}", f"{other.gbit_in:.2g}, {other.gbit_out:.2g}"
        rows.append(
            [name, f"{made.pairs}", f"{made.dealers}", cores, f"{party.memory_gb:.1f}", lines, seen, made.limit]
        )
    headings = ["load", "pairs", "dealers", "cores of both parties and the dealer", "GB of a party"]
    table = _table([*headings, "Gbit/s into and out of party 1", "to expect", "what limits"], rows)
    said = f"Round-trip time {network.rtt_ms:g} ms, lines as fast as they must be, {SPARE:.0%} of all time to spare."
    return f"{table}\n\n{said} Costs were measured on {figures.machine}."


def activation_layers() -> str:
    """What one value of each activation costs between two dense layers, and how far off it may be in the worst case."""
    width, rows = 1024, []
    comparing = [kind(compare=way) for kind in (nn.ReLU, nn.ReLU6) for way in ("tables", "dcf")]
    series = [kind(interval) for kind in (nn.GELU, nn.SiLU, nn.Softplus) for interval in kind().intervals[:3]]
    for layer in (nn.Cos(), nn.Tanh(4), *series, *comparing):
        dense = nn.Sequential([nn.Dense(8, width), layer, nn.Dense(width, 1)])
        (cost,) = [step for step in estimate(dense) if step.name == f"1 {layer.kind}"]
        reach = layer.reach if isinstance(layer, SeriesActivation) else None
        grid = np.linspace(-(reach or 8), reach or 8, 4001)[None]
        worst = float(error_bound(nn.Sequential([layer], input_shape=(4001,)), grid).max()) - LARGEST_NOISE
        way = f", {layer.compare}" if isinstance(layer, Comparing) else ""
        per_value = [size / width for size in (cost.online.bytes_sent, cost.offline.bytes_sent)]
        interval = "all" if reach is None else f"[-{reach}, {reach}]"
        numbers = [f"{number:.4g}" for number in per_value]
        rows.append([f"{layer.kind}{way}", interval, f"{cost.online.rounds}", *numbers, f"{worst:.1e}"])
    headings = ["layer", "right on", "rounds", "bytes each way", "bytes of material", "largest error"]
    return _table(headings, rows)


BLOCKS = {
    "activation_layers": activation_layers,
    "planned": planned,
    "summary": summary,
    "accuracy": accuracy,
    "accuracy_short": accuracy_short,
    "networks": networks,
    "picture": lambda: picture("docs/"),
    "picture_here": picture,
    "peers": peers,
    "peers_brief": lambda: peers(brief=True),
    "activations": activations,
    "core": lambda: proof("core"),
    "gpu": lambda: proof("gpu"),
    "gpu_aims": lambda: _table(["on one GPU", "result", "target", "aim"], gpu_aims.rows(_results("gpu"))),
    "inference": lambda: proof("inference"),
    "training": lambda: proof("training"),
    "learning": lambda: proof("accuracy"),
    "compare": lambda: proof("compare", without="PART=networks"),
    "compared": compared,
    "scale": lambda: proof("scale"),
    "owners": lambda: proof("tables"),
    "service": lambda: proof("service"),
    "paper": lambda: proof("paper"),
    "offline": lambda: proof("offline"),
    "leakage": lambda: proof("hardening", part="PART=leakage"),
    "layers": lambda: proof("hardening", part="PART=layers"),
    "stated": stated.table,
    "hardening": lambda: proof("hardening", without=("PART=leakage", "PART=layers")),
}
_MARKED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(text: str) -> str:
    return _MARKED.sub(lambda block: f"{block[1]}{BLOCKS[block[2]]()}\n{block[3]}", text)


def main() -> None:
    wanted = {ROOT / name: rendered((ROOT / name).read_text()) for name in DOCUMENTS}
    wanted[PLOT] = plot.activations(_results("activations"))
    wanted[PAIRS_PLOT] = plot.pairs(_results("scale"))
    stale = []
    for path, after in wanted.items():
        if not path.exists() or path.read_text() != after:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(after)
    if stale and "--check" in sys.argv:
        sys.exit(f"tables differ from benchmarks/results in {', '.join(stale)}: run `python -m benchmarks.tables`")
    if "--check" in sys.argv and (lost := lost_commits()):
        sys.exit(
            f"benchmarks/results has lines measured at {', '.join(lost)}, which the history does not have: "
            f"measure them again, or put {MARK} behind the commit"
        )


if __name__ == "__main__":
    main()
